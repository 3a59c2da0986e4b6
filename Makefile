# pg_lookahead
#
# With a server of one's own:	make && make install && make installcheck PG_CONFIG=...
# For developers:		the same with PROFILE=1, which compiles function profiles in (docs/lab.md), or
#						with SERVER_PREFETCH=1, for servers that prefetch by themselves (docs/inside.md)
# Without one:			make demo, make bench, make test, make lint (set themselves up; see the second half)

TOOL_GOALS = setup demo bench figures test torture mutants matrix sanitize fuzz packages dist lint format lock
ifeq ($(filter $(TOOL_GOALS),$(MAKECMDGOALS)),)

# First half: PGXS build of the extension.

PG_CONFIG ?= pg_config
EXTENSION = pg_lookahead
MODULE_big = pg_lookahead
PROFILE_OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/profile*.c src/observe/profile*.c)))
ALL_OBJS = $(filter-out $(PROFILE_OBJS),$(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c))))
OBJS = $(filter-out $(LEFT_OUT_OBJS),$(ALL_OBJS))
DATA = $(wildcard sql/pg_lookahead--*.sql)
LOOKAHEAD_VERSION = $(shell cat $(srcdir)/VERSION)
PG_CPPFLAGS = -I$(srcdir)/src -DLOOKAHEAD_VERSION='"$(LOOKAHEAD_VERSION)"'
# SERVER_PREFETCH=1: for a server that prefetches the heap pages of index scans by itself, which changes what the
# descriptors of these scans hold.  The files that look into descriptors are left out; docs/inside.md lists them.
# It is the default where the server's headers have the setting of its prefetching.
COST_H = $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/optimizer/cost.h
SERVER_PREFETCH ?= $(if $(shell grep -s enable_indexscan_prefetch '$(COST_H)'),1)
DESCRIPTOR_OBJS = $(filter src/scan/% src/toast/%,$(ALL_OBJS)) $(addprefix src/,early/coming_rows.o index/btree_children.o \
	index/btree_descents.o index/btree_leaf.o index/scan_position.o inspect/block_order.o)
ifneq ($(SERVER_PREFETCH),1)
LEFT_OUT_OBJS = src/server_prefetch.o
LEFT_OUT_TESTS = server_prefetch
else ifeq ($(PROFILE),1)
$(error SERVER_PREFETCH=1 leaves out what PROFILE=1 profiles; give only one of them)
else
LEFT_OUT_OBJS = $(DESCRIPTOR_OBJS)
LEFT_OUT_TESTS = heap_block_order index_scan toast
PG_CPPFLAGS += -DLOOKAHEAD_SERVER_PREFETCH
endif
ifeq ($(PROFILE),1)
OBJS += $(PROFILE_OBJS)
DATA += $(wildcard sql/pg_lookahead_profile*)
PG_CPPFLAGS += -DLOOKAHEAD_PROFILE
# What src/profile_scan.c stands in for.
PROFILED_FUNCTIONS = ScanFetch PageRowsLookUp HeapAheadFollow HeapAheadFill HeapAheadVisit EntriesAheadNext \
	BTreeDescentsNext BTreeLeafExamine PageReadStart WindowStart WindowTake WindowDrain \
	heap_hot_search_buffer heap_page_prune_opt visibilitymap_get_status ReleaseAndReadBuffer
SHLIB_LINK += $(PROFILED_FUNCTIONS:%=-Wl,--wrap=%)
# PGXS would take this for flags of the compiler.
override PROFILE =
endif
REGRESS = $(filter-out $(LEFT_OUT_TESTS),$(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql))))
REGRESS_OPTS = --inputdir=test --outputdir=build/regress
ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --outputdir=build/isolation
EXTRA_CLEAN = build/regress build/isolation build/built_for $(PROFILE_OBJS) $(PROFILE_OBJS:.o=.bc) \
	$(LEFT_OUT_OBJS) $(LEFT_OUT_OBJS:.o=.bc)

PG_VERSION := $(shell $(PG_CONFIG) --version 2>/dev/null)
PG_MAJOR := $(shell echo '$(PG_VERSION)' | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')
ifeq ($(PG_MAJOR),)
$(error no PostgreSQL: cannot run $(PG_CONFIG); name the pg_config of a server by PG_CONFIG=..., or run make demo, which brings one)
endif
ifeq ($(shell test $(PG_MAJOR) -ge 17 && echo yes),)
$(error $(PG_CONFIG) is of $(PG_VERSION); pg_lookahead needs PostgreSQL 17 or later (name another by PG_CONFIG=...))
endif
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) is of $(PG_VERSION), whose server headers and PGXS are not installed (Debian, Ubuntu: postgresql-server-dev-$(PG_MAJOR)))
endif
# JIT could inline functions from LLVM's code of the library, which takes the clang that the server was built with.
ifeq ($(shell command -v $$(sed -n 's/^CLANG *= *//p' '$(dir $(PGXS))../Makefile.global' 2>/dev/null)),)
override with_llvm = no
endif
include $(PGXS)
# Functions of the server are called for each row of a scan: not by way of a table of jumps.
override CFLAGS += -fno-plt
# gcc 12 does not know this warning, which some servers were built with.
override CFLAGS := $(filter-out -Wmissing-variable-declarations,$(CFLAGS))

# Where sessions without a superuser's rights may LOAD the library, or name it in local_preload_libraries.
.PHONY: install-plugin uninstall-plugin
install-plugin: all
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)/plugins'
	$(INSTALL_SHLIB) pg_lookahead$(DLSUFFIX) '$(DESTDIR)$(pkglibdir)/plugins/'
uninstall-plugin:
	rm -f '$(DESTDIR)$(pkglibdir)/plugins/pg_lookahead$(DLSUFFIX)'

# What is in an extension image, below the directory TREE: see docs/install.md.
.PHONY: extension-tree
extension-tree:
	$(MAKE) install with_llvm=no DESTDIR= datadir='$(TREE)/share' pkglibdir='$(TREE)/lib'

# Objects of one server are never linked for another: all are rebuilt when the server,
# the compiler or the flags differ from those they were built with.
BUILT_FOR := $(PG_VERSION) $(shell $(PG_CONFIG) --includedir-server) $(CC) $(CFLAGS) $(CPPFLAGS)
ifneq ($(file <build/built_for),$(BUILT_FOR))
ifeq ($(filter clean,$(MAKECMDGOALS)),)
$(shell mkdir -p build)
$(file >build/built_for,$(BUILT_FOR))
endif
endif
$(OBJS) $(OBJS:.o=.bc): build/built_for $(wildcard src/*.h src/*/*.h)

else

# Second half: the tool, its server and the tests.  PG_CONFIG, if given, names the server.

VENV = .venv/bin

.PHONY: $(TOOL_GOALS)

setup:
	@tools/setup.sh $(if $(filter setup,$(MAKECMDGOALS)),--next)

demo: setup
	@$(VENV)/pg_lookahead demo

# Options by BENCH='--scenario index_scan_random --io direct'.
bench: setup
	@$(VENV)/pg_lookahead bench $(BENCH)

# The figures of README.md and docs, measured and written anew: an hour, on a quiet machine.  Another
# call completes what the first could not.  Some runs, or less data, by FIGURES='--quick cold'.
figures: setup
	@$(VENV)/python -Es tools/figures.py $(FIGURES)

# Four files of tests at a time, as each waits for reads half of its time; those of one follow each other in
# one process.  Regress and isolation tests run beside them.  pytest keeps what it has compiled of the tests, which
# is most of what it takes to collect them.
test: setup
	@$(VENV)/python -Es tools/with_server.py --set io_method=worker --set shared_preload_libraries=pg_lookahead \
		--set autovacuum=off -- tools/installcheck.sh & regress=$$!; \
	env -u PYTHONDONTWRITEBYTECODE $(VENV)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 10; python=$$?; \
	wait $$regress || { echo 'Regress or isolation tests failed; see above, and build/regress and build/isolation.'; exit 1; }; \
	exit $$python

# Crashes of a server and its standby under load, and checks after each; see docs/reliability.md.
MINUTES = 10
SEED = 1
torture: setup
	@cd tools && ../$(VENV)/python -Es -m torture --minutes $(MINUTES) --seed $(SEED)

# Which tests notice when a guard is taken away; one mutation by MUTANTS='--only NAME'.
mutants: setup
	@$(VENV)/python -Es tools/mutate.py $(MUTANTS)

# Versions x I/O methods x suites; options by MATRIX='--cells 17,18/io_uring --suites regress,isolation'.
# Servers: Debian's own packages, unpacked under build; or MATRIX_PG_CONFIGS='pg_config ...'.
matrix: setup
	@$(VENV)/python -Es tools/matrix.py $(MATRIX)

# Regress and isolation tests, and those of index maintenance, under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: setup
	@$(VENV)/python -Es tools/sanitize.py

# Pages that libFuzzer invents, under sanitizers; options by FUZZ='--minutes 1 pgstatindex'.
fuzz: setup
	@$(VENV)/python -Es tools/fuzz.py $(FUZZ)

# Debian packages, built and tried in roots of their own (as root); one version by PACKAGES=18.
packages: setup
	@$(VENV)/python -Es tools/packages.py $(PACKAGES)

# The archive for PGXN, of what is committed.
VERSION = $(shell cat VERSION)
dist:
	@mkdir -p build
	git archive --format=zip --prefix=pg_lookahead-$(VERSION)/ -o build/pg_lookahead-$(VERSION).zip HEAD

lint: setup
	@tools/lint.sh

# Bring all code into the form that lint checks.
format: setup
	$(VENV)/python -I tools/format_c.py $(wildcard src/*.[ch] src/*/*.[ch] test/modules/*.c)
	$(VENV)/ruff check --fix python test/python tools
	$(VENV)/ruff format python test/python tools

# Choose versions for requirements.in anew.
lock: setup
	$(VENV)/python -m pip --disable-pip-version-check install -q uv
	$(VENV)/uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
		--no-header --upgrade -q -o requirements.txt requirements.in

endif

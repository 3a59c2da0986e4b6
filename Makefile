# pg_lookahead: PGXS build of the extension.  The targets that set up a private
# server (demo, test, lint, ...) are in the second half.
EXTENSION = pg_lookahead
MODULE_big = pg_lookahead
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c)))
DATA = $(wildcard sql/pg_lookahead--*.sql)
PG_CPPFLAGS = -I$(srcdir)/src
REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=test --outputdir=build/regress
ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --outputdir=build/isolation

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
# gcc 12 does not know this warning, which some servers were built with.
override CFLAGS := $(filter-out -Wmissing-variable-declarations,$(CFLAGS))

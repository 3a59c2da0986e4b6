#!/bin/sh
# Every check that runs nothing: C with warnings as errors, with and without assertions and
# function profiles; the form of C and Python; Python's types; and that versions are told apart in one place only.
# All are run; any that fails makes this fail.  After tools/setup.sh.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=0

check()
{
	what=$1
	shift
	if "$@"
	then
		echo "ok      $what"
	else
		echo "FAILED  $what"
		failed=1
	fi
}

PG_CONFIG=${PG_CONFIG:-$("$bin/python" -I tools/embedded_pg_config.py)}
CC=${CC:-gcc}
# The newest clang, as a second reader.
CLANG=${CLANG:-$(ls /usr/bin/clang-[0-9]* 2>/dev/null | grep -E '/clang-[0-9]+$' | sort -V | tail -1)}
sources=$(ls src/*.c src/*/*.c test/modules/*.c)
default=$(echo "$sources" | grep -v '^src/profile\|^src/observe/profile')
headers=$(ls src/*.h src/*/*.h)

# Unused parameters and missing initializers are how fmgr and PostgreSQL's own macros are
# written; PostgreSQL's headers are not ours to warn about (-isystem).
# Usage: compile FILES COMPILER OPTION ...
compile()
{
	files=$1
	compiler=$2
	shift 2
	echo "$files" | xargs -n 8 -P "$(nproc)" \
		"$compiler" -fsyntax-only -O2 -std=gnu11 -fno-strict-aliasing -fwrapv -Wall -Wextra -Werror \
		-Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare \
		-Wmissing-prototypes -Wpointer-arith -Wdeclaration-after-statement -Wvla \
		-Wformat-security -Wundef \
		-D_GNU_SOURCE -DLOOKAHEAD_VERSION="\"$(cat VERSION)\"" "$@" -Isrc -isystem "$("$PG_CONFIG" --includedir-server)"
}

versions()
{
	found=$(grep -nE 'PG_VERSION_NUM|pgstat_info->|pg_attribute_always_inline' $sources $headers | grep -v '^src/compat\(_scan\)\?\.h:')
	[ -z "$found" ] || { echo "$found"; return 1; }
}

gcc_only="-Wimplicit-fallthrough=3 -Wshadow=compatible-local"
"$CC" --version | grep -qi clang && gcc_only=
profile=-DLOOKAHEAD_PROFILE
check "C without warnings, $CC" compile "$default" "$CC" $gcc_only
check "C without warnings, with assertions" compile "$default" "$CC" $gcc_only -DUSE_ASSERT_CHECKING
check "C without warnings, with profiles" compile "$sources" "$CC" $gcc_only $profile
if [ -n "$CLANG" ]
then
	check "C without warnings, ${CLANG##*/}" compile "$default" "$CLANG" -Wimplicit-fallthrough
	check "C without warnings, ${CLANG##*/}, with profiles" compile "$sources" "$CLANG" -Wimplicit-fallthrough $profile
else
	echo "NOT RUN C without warnings, by clang: there is none (Debian, Ubuntu: apt install clang)"
fi
check "C in form" "$bin/python" -I tools/format_c.py --check $sources $headers
check "versions told apart in src/compat*.h only" versions
check "Python by ruff's rules" "$bin/ruff" check -q python test/python tools
check "Python in form" "$bin/ruff" format -q --check python test/python tools
check "Python types" "$bin/mypy"
exit $failed

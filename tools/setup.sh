#!/bin/sh
# Bring this copy of the repository to the point where demo, test and lint can run: a private
# virtual environment in .venv from the locked requirements, the command-line tool in it, and
# the extension built for and installed into a server: $PG_CONFIG, else the embedded one.
#
# With --next it says what can be run now.
#
# Does what is missing only.  A file in .venv tells what it was made from, and is written
# last, so that an interrupted set-up starts afresh.
set -eu
cd "$(dirname "$0")/.."

fail()
{
	echo "pg_lookahead: $*" >&2
	exit 2
}

PYTHON=${PYTHON:-python3}
venv=.venv
need_mb=1100

command -v "$PYTHON" >/dev/null || fail "no $PYTHON; install Python 3.10 or later (Debian, Ubuntu: apt install python3 python3-venv)"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
	fail "$("$PYTHON" --version 2>&1) is too old; Python 3.10 or later is needed (name another by PYTHON=...)"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
	fail "$PYTHON has no venv module (Debian, Ubuntu: apt install python3-venv)"
command -v "${CC:-gcc}" >/dev/null || fail "no C compiler ${CC:-gcc} (Debian, Ubuntu: apt install gcc make libc6-dev)"
echo '#include <stdio.h>' | "${CC:-gcc}" -E -x c - >/dev/null 2>&1 ||
	fail "${CC:-gcc} finds no C headers (Debian, Ubuntu: apt install libc6-dev)"

mkdir -p build 2>/dev/null || fail "cannot write to $(pwd)"
# Two runs at once in the same copy take turns.
exec 9>build/setup.lock
flock 9

made_from=$({ cat requirements.txt; pwd; "$PYTHON" -c 'import sys; print(sys.version, sys.prefix)'; } | cksum)
if [ "$(cat "$venv/made_from" 2>/dev/null)" != "$made_from" ]
then
	free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
	[ "$free_mb" -ge "$need_mb" ] ||
		fail "$free_mb MB free in $(pwd), $need_mb MB are needed for the virtual environment"
	echo "pg_lookahead: setting up $venv, which takes some minutes, once (Python packages of requirements.txt, 800 MB)"
	rm -rf "$venv"
	"$PYTHON" -m venv "$venv" || fail "$PYTHON -m venv failed"
	"$venv/bin/python" -m pip --disable-pip-version-check install -q --require-hashes -r requirements.txt ||
		fail "could not install the Python packages of requirements.txt"
	echo "$made_from" >"$venv/made_from"
fi
tool=$(cat pyproject.toml VERSION | cksum)
if [ "$(cat "$venv/tool" 2>/dev/null)" != "$tool" ]
then
	"$venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e . ||
		fail "could not install the command-line tool"
	echo "$tool" >"$venv/tool"
fi

if [ -z "${PG_CONFIG:-}" ]
then
	PG_CONFIG=$("$venv/bin/python" -I tools/embedded_pg_config.py)
	chmod -R u+x "$(dirname "$PG_CONFIG")"
fi

log=build/extension.log
[ -e pg_lookahead.so ] || echo "pg_lookahead: building the extension for $PG_CONFIG"
if ! env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -j"$(nproc 2>/dev/null || echo 1)" PG_CONFIG="$PG_CONFIG" ${CC:+CC="$CC"} all install >"$log" 2>&1
then
	grep -E 'error|Error|\*\*\*|No space' "$log" | head -20 >&2
	fail "could not build and install the extension for $PG_CONFIG; all of it is in $log"
fi

if [ "${1:-}" = --next ]
then
	cat <<-end
		pg_lookahead is set up in $(pwd)/$venv, for the server of $PG_CONFIG.  Next:
		  make demo                                          three minutes: what look-ahead does on this machine
		  make bench BENCH='--suite quick'                   a first measurement; all of it: make bench
		  $venv/bin/pg_lookahead --install-completion        let the shell complete commands and options
	end
fi

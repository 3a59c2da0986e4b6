#!/bin/sh
# pg_regress and isolationtester against the server that PGHOST and its kin name.
set -eu
cd "$(dirname "$0")/.."
PG_CONFIG=${PG_CONFIG:-$(.venv/bin/python -I -c 'from pg_lookahead.server import embedded_directory as d; print(d())')/pginstall/bin/pg_config}
mkdir -p build/regress build/isolation
exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s installcheck PG_CONFIG="$PG_CONFIG"

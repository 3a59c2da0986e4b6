#!/bin/sh
# pg_regress and isolationtester against the server that PGHOST and its kin name.
set -eu
cd "$(dirname "$0")/.."
PG_CONFIG=${PG_CONFIG:-$(.venv/bin/python -I tools/embedded_pg_config.py)}
mkdir -p build/regress build/isolation
exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s installcheck PG_CONFIG="$PG_CONFIG"

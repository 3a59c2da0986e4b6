"""A database whose owner, who is no superuser, lies in wait for whoever asks it with more rights.

All that his code does is to write a line into the server's log, which no rollback undoes, and to raise an
error.  ``untouched`` asserts that it never ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pg_lookahead.server.cluster import Cluster
from queries import fetch, run

TENANT = "tenant"
TRAP = "the code of a tenant was called"

_FUNCTIONS = """
SELECT format('CREATE FUNCTION public.%I(%s) RETURNS %s%s %s AS $$ SELECT trap.spring(); SELECT NULL::%s $$',
              p.proname,
              (SELECT string_agg(format('%s %s', CASE WHEN a.at = array_length(p.proargtypes::oid[], 1)
                                                       AND p.provariadic <> 0 THEN 'VARIADIC' ELSE '' END,
                                        a.type::regtype), ', ' ORDER BY a.at)
               FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(type, at)),
              CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END, p.prorettype::regtype,
              'LANGUAGE sql IMMUTABLE', p.prorettype::regtype)
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_type AS t
                  WHERE t.typtype = 'p' AND (t.oid = p.prorettype OR t.oid = ANY (p.proargtypes::oid[])))
"""
_OPERATORS = """
SELECT format('CREATE OPERATOR public.%s (FUNCTION = trap.%I, %s RIGHTARG = %s)', o.oprname, 'f' || o.oid,
              CASE WHEN o.oprleft <> 0 THEN format('LEFTARG = %s,', o.oprleft::regtype) ELSE '' END,
              o.oprright::regtype),
       format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE sql IMMUTABLE AS '
              '$$ SELECT trap.spring(); SELECT NULL::%s $$', 'f' || o.oid,
              concat_ws(', ', nullif(o.oprleft, 0)::regtype, o.oprright::regtype),
              o.oprresult::regtype, o.oprresult::regtype)
FROM pg_catalog.pg_operator AS o
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_type AS t
                  WHERE t.typtype = 'p' AND t.oid IN (o.oprleft, o.oprright, o.oprresult))
"""
_RELATIONS = """
SELECT format('CREATE VIEW public.%I AS SELECT trap.spring() AS sprung, t.* FROM pg_catalog.%I AS t',
              relname, relname)
FROM pg_catalog.pg_class AS c
WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
  AND has_table_privilege('tenant', oid, 'SELECT')
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
                  WHERE a.attrelid = c.oid AND t.typtype = 'p')
"""
_TYPES = """
SELECT format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (trap.spring() IS NULL)', typname, typname)
FROM pg_catalog.pg_type
WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typcategory <> 'A'
"""
_SPRING = f"""
CREATE FUNCTION trap.spring() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE LOG '{TRAP}';
    RAISE EXCEPTION '{TRAP}';
END
$$
"""
LOOKALIKES = """
CREATE SCHEMA lookahead;
GRANT USAGE ON SCHEMA lookahead TO PUBLIC;
CREATE VIEW lookahead.apply_stats AS SELECT trap.spring() AS rows;
CREATE VIEW lookahead.join_stats AS SELECT trap.spring(), 1 AS joins, 1 AS rows;
CREATE VIEW lookahead.index_scan_stats AS SELECT trap.spring(), 1 AS blocks_read;
CREATE VIEW lookahead.index_vacuum_stats AS
    SELECT trap.spring(), 'hash' AS access_method, 1 AS blocks_streamed;
CREATE FUNCTION lookahead.index_scans_served() RETURNS bigint LANGUAGE sql AS
    'SELECT trap.spring(); SELECT 1::bigint';
CREATE FUNCTION lookahead.heap_block_order(regclass, text, text, bigint)
    RETURNS TABLE (entry bigint, block bigint) LANGUAGE sql AS
    'SELECT trap.spring(); SELECT 1::bigint, 1::bigint';
CREATE FUNCTION lookahead.index_bloat(min_size bigint, sample_pages int, seed bigint,
    OUT index regclass, OUT "table" regclass, OUT method text, OUT partitions int, OUT size bigint,
    OUT gain bigint, OUT gain_low bigint, OUT gain_high bigint, OUT gain_percent float8, OUT basis text,
    OUT command text, OUT skipped text) RETURNS SETOF record LANGUAGE sql AS
    'SELECT trap.spring(); SELECT NULL::regclass, NULL::regclass, NULL::text, 1, 1::bigint, 1::bigint,
     1::bigint, 1::bigint, 1::float8, NULL::text, NULL::text, NULL::text'
"""
"""Of what the extension has, in a database that lacks it."""

STATEMENTS = """
CREATE VIEW public.pg_stat_statements AS
    SELECT trap.spring() AS query, 1::oid AS dbid, 1::bigint AS queryid, 1::bigint AS calls,
           1::float8 AS total_exec_time, 1::bigint AS shared_blks_read, 1::float8 AS shared_blk_read_time
"""


def make(cluster: Cluster, name: str) -> None:
    """Make a database of the tenant's, with his trap in it."""
    with cluster.connect() as conn:
        if not fetch(conn, "SELECT FROM pg_roles WHERE rolname = %s", [TENANT]):
            run(conn, f"CREATE ROLE {TENANT} LOGIN")
        run(conn, f"CREATE DATABASE {name} OWNER {TENANT} TEMPLATE template0")
    with cluster.connect(name, user=TENANT) as conn:
        run(conn, "CREATE SCHEMA trap", "GRANT USAGE ON SCHEMA trap TO PUBLIC", _SPRING)


def hide_the_catalogs(cluster: Cluster, name: str) -> None:
    """Let names of pg_catalog lead into the trap, in all sessions that do not see to it."""
    with cluster.connect(name, user=TENANT) as conn:
        texts = [text for (text,) in fetch(conn, _FUNCTIONS)]
        for create, function in fetch(conn, _OPERATORS):
            texts += [function, create]
        texts += [text for query in (_RELATIONS, _TYPES) for (text,) in fetch(conn, query)]
        with conn.transaction():
            conn.execute("SET LOCAL check_function_bodies = off")
            for text in texts:
                conn.execute(text.encode())
        run(conn, f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
        run(conn, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")


@contextmanager
def untouched(cluster: Cluster) -> Iterator[None]:
    """Asserts that no code of the tenant's is called."""
    before = cluster.log.count(TRAP)
    yield
    assert cluster.log.count(TRAP) == before, "code of a tenant was called"

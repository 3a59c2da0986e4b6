# ruff: noqa: E501
"""What the tests of leaf pages share: a table whose indexes have many, and how many were read ahead."""

from __future__ import annotations

from collections.abc import Iterator

from pg_lookahead.server.cluster import Cluster
from sides import Side, Sides, off_and_forced

ROWS = 24_000


SETUP = f"""
DROP TABLE IF EXISTS p;
DROP FUNCTION IF EXISTS wide(bigint);
CREATE FUNCTION wide(n bigint) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT lpad(n::text, 7, '0') || repeat('.', 150) $$;
ALTER FUNCTION wide(bigint) COST 1;
CREATE OR REPLACE FUNCTION late(n bigint) RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN wide(n); END $$;
CREATE TABLE p (id int, a text, b text, g int, pad text) WITH (autovacuum_enabled = off);
CREATE INDEX p_b ON p (b);
CREATE INDEX p_gb ON p (g, b);
INSERT INTO p SELECT i, wide(i), wide(i::bigint * 7919 % {ROWS}), i % 7, 'x' FROM generate_series(0, {ROWS - 1}) AS i;
CREATE INDEX p_a ON p (a);
ALTER TABLE p ALTER a SET STORAGE PLAIN, ALTER b SET STORAGE PLAIN;
DELETE FROM p WHERE id BETWEEN 5000 AND 7000 OR b BETWEEN wide(11000) AND wide(12000);
VACUUM (ANALYZE) p;
DELETE FROM p WHERE id % 50 = 7
"""


ONLY_INDEX_SCANS = "SET enable_bitmapscan = off; SET enable_indexscan = on; SET enable_indexonlyscan = on"


ONLY_BITMAPS = "SET enable_bitmapscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_sort = on"


INDEXES = ("p_a", "p_b", "p_gb")


def turn(side: Side, *, on: bool) -> None:
    """Look-ahead on and forced, or off."""
    side.run(f"SET pg_lookahead.debug_force = {on}", f"SET pg_lookahead.index_pages = {on}")
    side.run(f"SET pg_lookahead.index_scan = {on}")


def make_cold(side: Side) -> None:
    side.evict("p", *INDEXES)


def leaf_pages_read(side: Side) -> int:
    """So far, of all sessions."""
    return int(side.value("SELECT leaf_pages_read FROM lookahead.index_scan_stats"))


def with_leaf_pages(cluster: Cluster) -> Iterator[Sides]:
    """The table on both sides, of which one has look-ahead off and the other has it forced."""
    settings = "SET stats_fetch_consistency = none; SET random_page_cost = 1"
    for sides in off_and_forced(cluster, *SETUP.split(";\n"), settings):
        for side in sides.values():
            turn(side, on=side.forced)
        yield sides

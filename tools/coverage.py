"""How often the intervals of index_estimate hold the true figure: many shapes, many seeded samples of each.

    python tools/coverage.py [--samples 1000] [--rows 1000000] [--index NAME ...]

A true figure is what index_estimate says when it reads all pages; it equals that of pgstatindex.  The true
size after REINDEX is that of the index after a REINDEX, in the end.  Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from typing import Any

import psycopg

from pg_lookahead.server.cluster import Cluster

Connection = psycopg.Connection[Any]

SAMPLED_PART = 0.1
"""Part of an index's pages that a sample reads."""

TINY_PAGES = 10

# {n} is the number of rows; each table is "t", and each index "i".
INDEXES: dict[str, tuple[str, ...]] = {
    "uniform": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT hashint4(g) FROM generate_series(1, {n}) g",
    ),
    "hot end deleted": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT g + (hashint4(g) & 4095) FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE k < {n} * 0.6",
        "VACUUM t",
    ),
    "periodic holes": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT generate_series(1, {n})",
        "DELETE FROM t WHERE k / 1000 % 4 = 0 OR hashint4(k) % 3 = 0",
        "VACUUM t",
    ),
    "freshly built": (
        "CREATE TABLE t (k int)",
        "INSERT INTO t SELECT hashint4(g) FROM generate_series(1, {n}) g",
        "CREATE INDEX i ON t (k)",
    ),
    "never vacuumed": (
        "CREATE TABLE t (k int, v int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT hashint4(g), 0 FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE k > 0 AND hashint4(k) % 5 = 0",
        "SET enable_seqscan = off",
        "SET enable_bitmapscan = off",
        "SELECT sum(v) FROM t WHERE k > 0",
        "RESET ALL",
    ),
    "partial": (
        "CREATE TABLE t (k int, v int)",
        "CREATE INDEX i ON t (k) WHERE v < 50",
        "INSERT INTO t SELECT hashint4(g), g % 100 FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE hashint4(k) % 4 = 0",
        "VACUUM t",
    ),
    "expression": (
        "CREATE TABLE t (k text)",
        "CREATE INDEX i ON t (lower(k))",
        "INSERT INTO t SELECT md5(g::text) FROM generate_series(1, {n} / 2) g",
    ),
    "wide keys": (
        "CREATE TABLE t (k text)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT repeat(md5(g::text), 1 + (hashint4(g) & 7)) || g"
        " FROM generate_series(1, {n} / 10) g",
    ),
    "deduplicated": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT hashint4(g) & 1023 FROM generate_series(1, {n} * 2) g",
    ),
    "keys of 600 bytes": (
        "CREATE TABLE t (k text STORAGE plain)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT repeat(md5(g::text), 19) FROM generate_series(1, {n} / 25) g",
        "DELETE FROM t WHERE hashtext(k) % 5 = 0",
        "VACUUM t",
    ),
    "keys of 1,920 bytes": (
        "CREATE TABLE t (k text STORAGE plain)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT repeat(md5(g::text), 60) FROM generate_series(1, {n} / 100) g",
        "VACUUM t",
    ),
    "two columns": (
        "CREATE TABLE t (a int, k text STORAGE plain)",
        "CREATE INDEX i ON t (a, k)",
        "INSERT INTO t SELECT hashint4(g) & 8191, repeat(md5(g::text), 10)"
        " FROM generate_series(1, {n} / 20) g",
        "DELETE FROM t WHERE hashtext(k) % 5 = 0",
        "VACUUM t",
    ),
    "few keys a page": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT hashint4(hashint4(g) & 4095) FROM generate_series(1, {n} * 2) g",
        "DELETE FROM t WHERE random() < 0.1",
        "VACUUM t",
    ),
    "few long keys a page": (
        "CREATE TABLE t (k text STORAGE plain)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT repeat(md5((hashint4(g) & 2047)::text), 10) FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE random() < 0.1",
        "VACUUM t",
    ),
    "keys on two leaves": (
        "CREATE TABLE t (k text STORAGE plain)",
        "INSERT INTO t SELECT repeat(md5((g % ({n} / 400))::text), 3) FROM generate_series(1, {n}) g",
        "CREATE INDEX i ON t (k)",
        "DELETE FROM t WHERE random() < 0.1",
        "VACUUM t",
    ),
    "long keys on two leaves": (
        "CREATE TABLE t (k text STORAGE plain)",
        "INSERT INTO t SELECT repeat(md5((g % ({n} / 500))::text), 19) FROM generate_series(1, {n} / 5) g",
        "CREATE INDEX i ON t (k)",
        "DELETE FROM t WHERE random() < 0.1",
        "VACUUM t",
    ),
    "skewed": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT (1e4 * random() ^ 8)::int FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE random() < 0.1",
        "VACUUM t",
    ),
    "few dense pages": (
        "CREATE TABLE t (k text STORAGE plain)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT repeat(md5(g::text), 8) FROM generate_series(1, {n} / 50) g",
        "INSERT INTO t SELECT 'x' FROM generate_series(1, {n} / 20) g",
    ),
    "hash, unique": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t USING hash (k)",
        "INSERT INTO t SELECT generate_series(1, {n})",
        "DELETE FROM t WHERE hashint4(k) % 4 = 0",
        "VACUUM t",
    ),
    "hash, skewed": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t USING hash (k)",
        "INSERT INTO t SELECT (1e5 * random() ^ 4)::int FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE random() < 0.6",
        "VACUUM t",
    ),
    "hash, few keys": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t USING hash (k)",
        "INSERT INTO t SELECT hashint4(g) & 63 FROM generate_series(1, {n}) g",
        "DELETE FROM t WHERE k < 32",
        "VACUUM t",
    ),
    "Bloom": (
        "CREATE EXTENSION IF NOT EXISTS bloom",
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t USING bloom (k)",
        "INSERT INTO t SELECT generate_series(1, {n} * 2)",
        "DELETE FROM t WHERE k % 1000 < 300 AND k < {n}",
        "VACUUM t",
    ),
    "Bloom, freshly built": (
        "CREATE EXTENSION IF NOT EXISTS bloom",
        "CREATE TABLE t (k int)",
        "INSERT INTO t SELECT generate_series(1, {n} * 2)",
        "CREATE INDEX i ON t USING bloom (k)",
    ),
    "tiny": (
        "CREATE TABLE t (k int)",
        "CREATE INDEX i ON t (k)",
        "INSERT INTO t SELECT hashint4(g) FROM generate_series(1, 9000) g",
    ),
}


@dataclass(frozen=True)
class Coverage:
    """One figure of one index, over all samples.

    covered: of ``samples``, whose interval held the truth
    bias: mean error of the value; half: mean half width of the intervals
    varies: whether samples gave different values
    possible: of a number of pages, see ``least_possible``; else 0"""

    index: str
    figure: str
    samples: int
    covered: int
    bias: float
    half: float
    truth: float
    varies: bool
    possible: float

    @property
    def part(self) -> float:
        """Covered, of all samples."""
        return self.covered / self.samples


def least_possible(population: int, sampled: int, pages: int) -> float:
    """Return the least part of samples, but 93 % or more, for which intervals can hold a number of pages.

    Each sample has a whole number of such pages, and intervals that hold the truth are those of a range of
    these numbers.  Where the pages are few, there may be no range that has between 93 and 97 % of all
    samples."""
    few = min(pages, population - pages)
    ways = [comb(few, seen) * comb(population - few, sampled - seen) for seen in range(min(few, sampled) + 1)]
    up_to = [0, *accumulate(ways)]
    parts = ((up_to[last] - up_to[first]) / up_to[-1] for last in range(len(up_to)) for first in range(last))
    return min(part for part in parts if part >= 0.93)


def build(conn: Connection, name: str, rows: int) -> None:
    """Make the table and the index."""
    conn.execute("DROP TABLE IF EXISTS t")
    conn.execute("SELECT setseed(0.5)")
    for statement in INDEXES[name]:
        conn.execute(statement.format(n=rows).encode())


def measure(conn: Connection, name: str, samples: int, first_seed: int = 1) -> Iterator[Coverage]:
    """Sample the index that was built, then REINDEX it."""
    conn.execute("DROP TABLE IF EXISTS exact")
    conn.execute(
        "CREATE TEMP TABLE exact AS SELECT figure, value FROM lookahead.index_estimate('i', 2147483647)"
    )
    row = conn.execute("SELECT pg_relation_size('i') / 8192").fetchone()
    assert row is not None
    pages = TINY_PAGES if name == "tiny" else int(row[0] * SAMPLED_PART)
    population = int(row[0]) - 1  # the metapage is not sampled
    # the samples are drawn before the index changes, and compared to what it is afterwards
    conn.execute("DROP TABLE IF EXISTS sampled")
    conn.execute(
        b"CREATE TEMP TABLE sampled AS SELECT figure, unit, value, low, high, e.exact FROM"
        b" generate_series(%d::bigint, %d) seed, LATERAL lookahead.index_estimate('i', %d, seed => seed) e"
        % (first_seed, first_seed + samples - 1, pages)
    )
    conn.execute("REINDEX INDEX i")
    conn.execute(
        "UPDATE exact SET value = CASE figure WHEN 'size_after_reindex' THEN pg_relation_size('i')"
        " ELSE (SELECT value FROM exact WHERE figure = 'size') - pg_relation_size('i') END"
        " WHERE figure IN ('size_after_reindex', 'bytes_to_gain')"
    )
    query = (
        "SELECT figure, min(s.unit), count(*),"
        " count(*) FILTER (WHERE s.low IS NULL OR s.low <= x.value AND x.value <= s.high),"
        " avg(s.value - x.value), avg(s.high - s.low) / 2, min(x.value), count(DISTINCT s.value) > 1"
        " FROM sampled s JOIN exact x USING (figure) WHERE NOT s.exact GROUP BY figure ORDER BY figure"
    )
    for figure, unit, count, covered, bias, half, truth, varies in conn.execute(query):
        possible = least_possible(population, pages, int(truth)) if unit == "pages" else 0.0
        yield Coverage(name, figure, count, covered, float(bias), float(half), float(truth), varies, possible)


def all_indexes(conn: Connection, names: list[str], samples: int, rows: int) -> Iterator[Coverage]:
    """Build each index, and sample it."""
    conn.execute("CREATE EXTENSION IF NOT EXISTS pg_lookahead")
    for name in names:
        build(conn, name, rows)
        yield from measure(conn, name, samples)


def table(found: list[Coverage]) -> str:
    """Return a table with a row for each figure and a column for each index.

    A cell has the per cent of samples whose interval holds the true value, and the most that is possible
    if that is more than 97 %."""
    names = list(dict.fromkeys(one.index for one in found))
    figures = list(dict.fromkeys(one.figure for one in found))
    cell = {(one.index, one.figure): one for one in found}
    lines = ["| figure | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for figure in figures:
        row = []
        for name in names:
            one = cell.get((name, figure))
            if one is None:
                row.append("")
            elif not one.varies:
                row.append("-" if one.covered == one.samples else f"{100 * one.part:.1f} constant")
            else:
                possible = f" ({100 * one.possible:.1f})" if one.possible > 0.97 else ""
                row.append(f"{100 * one.part:.1f}{possible}")
        lines.append(f"| `{figure}` | " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> int:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--index", action="append", choices=INDEXES, help="only this one; may be repeated")
    options = parser.parse_args()
    settings = {"autovacuum": False, "shared_buffers": "512MB", "max_wal_size": "4GB"}
    with Cluster(settings=settings) as cluster, cluster.connect() as conn:
        found = []
        for one in all_indexes(conn, options.index or list(INDEXES), options.samples, options.rows):
            found.append(one)
            ratio = abs(one.bias) / one.half if one.half else 0.0
            print(
                f"{one.index:16} {one.figure:22} {100 * one.part:6.1f} % truth {one.truth:14,.2f}"
                f" half {one.half:14,.2f} bias/half {ratio:6.3f}{'' if one.varies else ' constant'}",
                flush=True,
            )
    print()
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

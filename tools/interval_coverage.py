"""How often the intervals of index_estimate hold the true figure: many shapes, many seeded samples of each.

    python tools/interval_coverage.py [--samples 1000] [--rows 1000000] [--index NAME ...]

A true figure is what index_estimate says when it reads all pages; it equals that of pgstatindex.  The true
size after REINDEX is that of the index after a REINDEX, in the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from pg_lookahead.server.cluster import Cluster

Connection = psycopg.Connection[Any]

SAMPLED_PART = 0.1
"""Part of an index's pages that a sample reads."""

TINY_PAGES = 10


@dataclass(frozen=True)
class Shape:
    """A table t with an index i; {n} is the number of rows that was asked for.

    values: of row g; rows: how many; columns: of the table; on: what the index is on
    built: whether the index is made of the rows, and not before they come
    deleted: which rows are deleted, and vacuumed away; then: further statements"""

    values: str = "hashint4(g)"
    rows: str = "{n}"
    columns: str = "k int"
    on: str = "(k)"
    built: bool = False
    deleted: str = ""
    then: tuple[str, ...] = ()

    def statements(self) -> list[str]:
        fill = f"INSERT INTO t SELECT {self.values} FROM generate_series(1, {self.rows}) g"
        made = [f"CREATE INDEX i ON t {self.on}", fill]
        delete = [f"DELETE FROM t WHERE {self.deleted}", "VACUUM t"] if self.deleted else []
        return [
            f"CREATE TABLE t ({self.columns})",
            *(made[::-1] if self.built else made),
            *delete,
            *self.then,
        ]


TEXT, PLAIN = "k text", "k text STORAGE plain"
LONG = "repeat(md5(g::text), {})"

INDEXES = {
    "uniform": Shape(),
    "hot end deleted": Shape("g + (hashint4(g) & 4095)", deleted="k < {n} * 0.6"),
    "periodic holes": Shape("g", deleted="k / 1000 % 4 = 0 OR hashint4(k) % 3 = 0"),
    "freshly built": Shape(built=True),
    "never vacuumed": Shape(
        then=(
            "DELETE FROM t WHERE k > 0 AND hashint4(k) % 5 = 0",
            *(f"SET enable_{scan} = off" for scan in ("seqscan", "bitmapscan", "indexonlyscan")),
            "SELECT sum(k) FROM t WHERE k > 0",
            "RESET ALL",
        )
    ),
    "partial": Shape(on="(k) WHERE abs(k % 100) < 50", deleted="hashint4(k) % 4 = 0"),
    "expression": Shape("md5(g::text)", "{n} / 2", TEXT, "(lower(k))"),
    "wide keys": Shape(f"{LONG.format('1 + (hashint4(g) & 7)')} || g", "{n} / 10", TEXT),
    "deduplicated": Shape("hashint4(g) & 1023", "{n} * 2"),
    "keys of 600 bytes": Shape(LONG.format(19), "{n} / 25", PLAIN, deleted="hashtext(k) % 5 = 0"),
    "keys of 1,920 bytes": Shape(LONG.format(60), "{n} / 100", PLAIN, then=("VACUUM t",)),
    "two columns": Shape(
        f"hashint4(g) & 8191, {LONG.format(10)}",
        "{n} / 20",
        f"a int, {PLAIN}",
        "(a, k)",
        deleted="hashtext(k) % 5 = 0",
    ),
    "few keys a page": Shape("hashint4(hashint4(g) & 4095)", "{n} * 2", deleted="random() < 0.1"),
    "few long keys a page": Shape(
        "repeat(md5((hashint4(g) & 2047)::text), 10)", columns=PLAIN, deleted="random() < 0.1"
    ),
    "keys on two leaves": Shape(
        "repeat(md5((g % ({n} / 400))::text), 3)", columns=PLAIN, built=True, deleted="random() < 0.1"
    ),
    "long keys on two leaves": Shape(
        "repeat(md5((g % ({n} / 500))::text), 19)", "{n} / 5", PLAIN, built=True, deleted="random() < 0.1"
    ),
    "skewed": Shape("(1e4 * random() ^ 8)::int", deleted="random() < 0.1"),
    "few dense pages": Shape(
        LONG.format(8),
        "{n} / 50",
        PLAIN,
        then=("INSERT INTO t SELECT 'x' FROM generate_series(1, {n} / 20) g",),
    ),
    "hash, unique": Shape("g", on="USING hash (k)", deleted="hashint4(k) % 4 = 0"),
    "hash, skewed": Shape("(1e5 * random() ^ 4)::int", on="USING hash (k)", deleted="random() < 0.6"),
    "hash, few keys": Shape("hashint4(g) & 63", on="USING hash (k)", deleted="k < 32"),
    "Bloom": Shape("g", "{n} * 2", on="USING bloom (k)", deleted="k % 1000 < 300 AND k < {n}"),
    "Bloom, freshly built": Shape("g", "{n} * 2", on="USING bloom (k)", built=True),
    "tiny": Shape(rows="9000"),
}


@dataclass(frozen=True)
class Coverage:
    """One figure of one index, over all samples.

    covered: of ``samples``, whose interval held the truth
    bias: mean error of the value; half: mean half width of the intervals
    varies: whether samples gave different values"""

    index: str
    figure: str
    samples: int
    covered: int
    bias: float
    half: float
    truth: float
    varies: bool

    @property
    def part(self) -> float:
        """Covered, of all samples."""
        return self.covered / self.samples


def build(conn: Connection, name: str, rows: int) -> None:
    """Make the table and the index."""
    conn.execute("DROP TABLE IF EXISTS t")
    conn.execute("CREATE EXTENSION IF NOT EXISTS bloom")
    conn.execute("SELECT setseed(0.5)")
    for statement in INDEXES[name].statements():
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
        "SELECT figure, count(*),"
        " count(*) FILTER (WHERE s.low IS NULL OR s.low <= x.value AND x.value <= s.high),"
        " avg(s.value - x.value), avg(s.high - s.low) / 2, min(x.value), count(DISTINCT s.value) > 1"
        " FROM sampled s JOIN exact x USING (figure) WHERE NOT s.exact GROUP BY figure ORDER BY figure"
    )
    for figure, count, covered, bias, half, truth, varies in conn.execute(query):
        yield Coverage(name, figure, count, covered, float(bias), float(half), float(truth), varies)


def all_indexes(conn: Connection, names: list[str], samples: int, rows: int) -> Iterator[Coverage]:
    """Build each index, and sample it."""
    conn.execute("CREATE EXTENSION IF NOT EXISTS pg_lookahead")
    for name in names:
        build(conn, name, rows)
        yield from measure(conn, name, samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--index", action="append", choices=INDEXES, help="only this one; may be repeated")
    options = parser.parse_args()
    settings = {"autovacuum": False, "shared_buffers": "512MB", "max_wal_size": "4GB"}
    with Cluster(settings=settings) as cluster, cluster.connect() as conn:
        for one in all_indexes(conn, options.index or list(INDEXES), options.samples, options.rows):
            ratio = abs(one.bias) / one.half if one.half else 0.0
            print(
                f"{one.index:16} {one.figure:22} {100 * one.part:6.1f} % truth {one.truth:14,.2f}"
                f" half {one.half:14,.2f} bias/half {ratio:6.3f}{'' if one.varies else ' constant'}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

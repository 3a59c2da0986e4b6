"""The diagnostics of index pages give what contrib/pgstattuple gives, column by column."""

from __future__ import annotations

import random
import struct

import pytest

import bloom_pages
from conftest import MakeCluster
from maintenance import read_fork
from pg_lookahead.server.cluster import Cluster
from queries import fetch_dicts, query_plan, run, scalar
from relations import (
    BLOCK,
    Connection,
    assert_answer,
    assert_equal,
    blocks,
    data_file,
    evict,
    has_assertions,
    seed,
    write_at,
)

BTREES = {
    "b_pkey": "ALTER TABLE b ADD CONSTRAINT b_pkey PRIMARY KEY (id)",
    "b_ts": "CREATE INDEX b_ts ON b (ts)",
    "b_f": "CREATE INDEX b_f ON b (f)",
    "b_three": "CREATE INDEX b_three ON b (word, f DESC, id)",
}
ROUNDS = 3


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    """Without checksums, so that a test may change a page; nothing happens there by itself."""
    return make_cluster(
        settings={"autovacuum": False, "shared_buffers": "32MB", "max_wal_size": "4GB"},
        initdb_args=["--no-data-checksums"],
    )


def fill_btrees(db: Connection, rng: random.Random, *, fragmented: bool) -> int:
    """Table b with BTREES: built at once over sorted rows, or grown by inserts in random order."""
    rows = (
        rng.choice([0, 1, 300, rng.randint(2_000, 30_000)]) if not fragmented else rng.randint(5_000, 30_000)
    )
    seed(db, rng)
    run(db, "CREATE TABLE b (id int, ts timestamp, f float8, word text)")
    if fragmented:
        run(db, *BTREES.values())
    run(
        db,
        "INSERT INTO b SELECT i, '2020-01-01'::timestamp + random() * interval '10 years', random(),"
        f" md5((i % 100)::text) FROM generate_series(1, {rows}) i"
        f" ORDER BY {'random()' if fragmented else 'i'}",
    )
    if not fragmented:
        run(db, *BTREES.values())
    return rows


def check_btrees(db: Connection, rng: random.Random) -> dict[str, dict[str, float]]:
    found = {}
    for index in BTREES:
        assert_answer(db, "pgstattuple", index, rng=rng)
        assert_answer(db, "pgstattuple", f"t.{index}", "text", rng)
        assert_answer(db, "pgstatindex", index, "text", rng)
        assert_answer(db, "pg_relpages", index, rng=rng)
        found[index] = assert_answer(db, "pgstatindex", index, rng=rng)
    return found


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("fragmented", [False, True])
def test_btree(db: Connection, rng: random.Random, fragmented: bool, round: int) -> None:
    rows = fill_btrees(db, rng, fragmented=fragmented)
    found = check_btrees(db, rng)
    if rows > 1000:
        assert (found["b_pkey"]["leaf_fragmentation"] > 10) == fragmented

    # Pages without entries: deleted by the first VACUUM, used again by the inserts.
    low, high = sorted(rng.sample(range(rows + 2), 2))
    run(db, f"DELETE FROM b WHERE id BETWEEN {low} AND {high}")
    check_btrees(db, rng)
    run(db, "VACUUM b")
    found = check_btrees(db, rng)
    if high - low > 4000 and not fragmented:
        assert found["b_pkey"]["deleted_pages"] > 0
    run(db, f"INSERT INTO b SELECT i, now(), random(), 'x' FROM generate_series({low}, {high}) i")
    check_btrees(db, rng)

    # Entries marked dead by an index scan over rows that are gone.
    run(db, f"DELETE FROM b WHERE id > {rows // 2}")
    run(
        db,
        "SET enable_seqscan = off",
        "SET enable_bitmapscan = off",
        "SELECT sum(f), max(ts) FROM b WHERE id > 0",
    )
    check_btrees(db, rng)
    if rows > 1000:
        assert assert_answer(db, "pgstattuple", "b_pkey", rng=rng)["dead_tuple_count"] > 0


def test_btree_page_kinds(server: Cluster, db: Connection, rng: random.Random) -> None:
    """Half-dead, deleted, incompletely split and never initialised pages, made by hand."""
    fill_btrees(db, rng, fragmented=True)
    index = "b_three"
    path = data_file(server, db, index)
    evict(db, index)
    intact = path.read_bytes()
    flags_at = BLOCK - 16 + 12
    leaf, deleted, half_dead, incomplete = 0x01, 0x04, 0x10, 0x80
    pages = list(blocks(intact))
    leaves = [i for i, page in enumerate(pages) if i and struct.unpack_from("<H", page, flags_at)[0] == leaf]
    for _ in range(20):
        chosen = rng.sample(leaves, 8)
        for block, flag in zip(
            chosen, [half_dead] * 3 + [deleted, deleted | half_dead, incomplete, 0, leaf], strict=True
        ):
            write_at(path, block * BLOCK + flags_at, struct.pack("<H", leaf | flag))
        if not has_assertions(db):  # one of contrib's is against a page without a special area
            write_at(path, rng.choice([c for c in leaves if c not in chosen]) * BLOCK, bytes(BLOCK))
        found = assert_answer(db, "pgstatindex", index, rng=rng)
        assert (found["empty_pages"], found["deleted_pages"]) == (3, 2)
        assert_answer(db, "pgstattuple", index, rng=rng)
        evict(db, index)
        path.write_bytes(intact)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_hash(db: Connection, rng: random.Random, round: int) -> None:
    """Buckets, overflow pages of frequent values, pages given back, pages never used."""
    rows, values = rng.randint(1_000, 20_000), rng.choice([3, 50, 20_000])
    fillfactor = rng.choice([10, 75, 100])
    run(
        db,
        "CREATE TABLE h (id int, v int)",
        f"CREATE INDEX h_v ON h USING hash (v) WITH (fillfactor = {fillfactor})",
        f"INSERT INTO h SELECT i, i % {values} FROM generate_series(1, {rows}) i",
    )

    def check() -> dict[str, float]:
        assert_answer(db, "pgstattuple", "h_v", rng=rng)
        assert_answer(db, "pgstattuple", "h_v", "text", rng)
        assert_answer(db, "pg_relpages", "h_v", "text", rng)
        return assert_answer(db, "pgstathashindex", "h_v", rng=rng)

    found = check()
    assert found["live_items"] == rows
    if values == 3 and rows > 5_000:
        assert found["overflow_pages"] > 0
    run(db, f"DELETE FROM h WHERE id > {rng.randint(0, rows)} OR v = 1")
    # Index scans mark the entries of deleted rows.
    run(db, "SET enable_seqscan = off", "SET enable_bitmapscan = off", "SELECT count(*) FROM h WHERE v = 1")
    assert check()["dead_items"] > 0
    run(db, "VACUUM h")
    found = check()
    if values == 3 and rows > 5_000:
        assert found["unused_pages"] > 0
    run(db, "TRUNCATE h")
    check()


@pytest.mark.parametrize("round", range(ROUNDS))
def test_gin(db: Connection, rng: random.Random, round: int) -> None:
    """The pending list while it grows, and after it was merged."""
    rows = rng.randint(10, 3_000)
    run(
        db,
        "CREATE TABLE g (id int, words int[])",
        "CREATE INDEX g_words ON g USING gin (words) WITH (fastupdate = on, gin_pending_list_limit = 4096)",
    )
    check = ["pgstatginindex", "pg_relpages", "pgstattuple", "pgstatindex", "pgstathashindex"]
    for _ in range(3):
        run(db, f"INSERT INTO g SELECT i, array[i, i % 7, i / 3] FROM generate_series(1, {rows}) i")
        for function in check:
            assert_equal(db, function, "g_words", rng=rng)
        assert assert_answer(db, "pgstatginindex", "g_words", rng=rng)["pending_tuples"] > 0
    run(db, "VACUUM g")
    for function in check:
        assert_equal(db, function, "g_words", rng=rng)
    assert assert_answer(db, "pgstatginindex", "g_words", rng=rng)["pending_tuples"] == 0


@pytest.mark.parametrize("round", range(ROUNDS))
def test_gist(db: Connection, rng: random.Random, round: int) -> None:
    rows = rng.choice([0, 50, rng.randint(3_000, 15_000)])
    seed(db, rng)
    run(
        db,
        "CREATE TABLE s (id int, p point, r int4range)",
        f"INSERT INTO s SELECT i, point(random(), random()), int4range(i, i + 5)"
        f" FROM generate_series(1, {rows}) i",
        "CREATE INDEX s_p ON s USING gist (p)",
        "CREATE INDEX s_r ON s USING gist (r)",
        f"INSERT INTO s SELECT i, point(random(), random()), int4range(i, i + 9)"
        f" FROM generate_series(1, {rows}) i",
    )

    def check() -> None:
        for index in ("s_p", "s_r"):
            assert_answer(db, "pgstattuple", index, rng=rng)
            assert_equal(db, "pgstatindex", index, rng=rng)
            assert_answer(db, "pg_relpages", index, rng=rng)

    check()
    run(db, f"DELETE FROM s WHERE id > {rng.randint(0, rows)}")
    run(db, "SET enable_seqscan = off", "SET enable_bitmapscan = off")
    run(db, "SELECT count(*) FROM s WHERE p <@ box '(0,0),(1,1)'")
    check()
    run(db, "VACUUM s")
    check()


@pytest.mark.parametrize("kind", ["", "UNLOGGED", "TEMPORARY"])
def test_bloom(db: Connection, rng: random.Random, kind: str) -> None:
    length, bits = rng.choice([16, 80, 1024, 4096]), [rng.randint(1, 12) for _ in range(3)]
    rows = rng.randint(1, 6_000)
    index = (
        f"CREATE INDEX l_bloom ON l USING bloom (a, b, c)"
        f" WITH (length = {length}, col1 = {bits[0]}, col2 = {bits[1]}, col3 = {bits[2]})"
    )
    run(
        db,
        "CREATE EXTENSION IF NOT EXISTS bloom SCHEMA contrib",
        f"CREATE {kind} TABLE l (id int, a int, b text, c int)",
        index,
    )

    def check() -> dict[str, object]:
        (found,) = fetch_dicts(db, "SELECT * FROM lookahead.pgstatbloomindex('l_bloom')")
        assert found == bloom_pages.describe(read_fork(db, "l_bloom"), 3)
        assert found["column_bits"] == bits and found["signature_bits"] == length
        for function in ("pgstattuple", "pgstatindex", "pgstathashindex", "pgstatginindex", "pg_relpages"):
            assert_equal(db, function, "l_bloom", rng=rng)
        return found

    assert check()["live_tuples"] == 0
    run(
        db,
        "DROP INDEX l_bloom",
        f"INSERT INTO l SELECT i, i % 50, md5(i::text), NULLIF(i % 3, 0) FROM generate_series(1, {rows}) i",
        index,
    )
    assert check()["live_tuples"] == rows
    run(db, f"INSERT INTO l SELECT i, i, i::text, i FROM generate_series(1, {rows}) i")
    assert check()["live_tuples"] == 2 * rows
    run(db, f"DELETE FROM l WHERE id > {rng.randint(0, rows)}", "VACUUM l")
    assert check()["live_tuples"] == scalar(db, "SELECT count(*) FROM l")
    run(db, "DELETE FROM l", "VACUUM l")
    found = check()
    assert found["live_tuples"] == 0
    assert found["deleted_pages"] == scalar(db, "SELECT pg_relation_size('l_bloom') / 8192 - 1")


def test_bloom_false_positives(db: Connection, rng: random.Random) -> None:
    """The rate told beforehand is what searches for absent values then meet."""
    rows, searches, bits = 5_000, 400, rng.choice([1, 2, 3])
    run(
        db,
        "CREATE EXTENSION IF NOT EXISTS bloom SCHEMA contrib",
        f"CREATE TABLE l AS SELECT i AS a, i * 7 AS b FROM generate_series(1, {rows}) i",
        f"CREATE INDEX l_bloom ON l USING bloom (a, b) WITH (length = 32, col1 = {bits}, col2 = 5)",
        "SET enable_seqscan = off",
    )
    rate = scalar(db, "SELECT false_positive_rate[1] FROM lookahead.pgstatbloomindex('l_bloom')")
    met = 0
    for _ in range(searches):
        absent = rng.randint(1_000_000, 2_000_000_000)
        plan = query_plan(db, f"SELECT FROM l WHERE a = {absent}")
        assert plan["Node Type"] == "Bitmap Heap Scan" and plan["Actual Rows"] == 0
        met += plan["Rows Removed by Index Recheck"]
    assert met / (rows * searches) == pytest.approx(rate, rel=0.3)

"""Damaged pages: counted, named once in a warning, and nothing worse, whoever finds them."""

from __future__ import annotations

import os
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import product

import psycopg
import pytest

from conftest import MakeCluster
from corruption import ANYWHERE, HEAP, damage, line_pointers
from estimates import WHOLE, Figure, estimate, out_of_bounds
from maintenance import fresh_database
from pg_lookahead.server.cluster import Cluster
from queries import Notice, fetch_row, noticed, run, scalar
from relations import BLOCK, Connection, await_no_pins, blocks, data_file, evict, install, write_at

MUTATIONS = int(os.environ.get("PG_LOOKAHEAD_MUTATIONS", "5000")) // 10

RELATIONS = {
    "d_btree": "index_estimate",
    "d_dup": "index_estimate",
    "d_hash": "index_estimate",
    "d_gin": "index_estimate",
    "d_gist": "index_estimate",
    "d_bloom": "index_estimate",
    "d": "table_estimate",
}


def set_up(conn: Connection) -> None:
    install(conn)
    run(
        conn,
        "CREATE EXTENSION bloom SCHEMA contrib",
        "CREATE TABLE d AS SELECT i AS id, i % 20 AS few, ARRAY[i, i % 9] AS list, point(i, i % 100) AS p"
        " FROM generate_series(1, 6000) i",
        "CREATE INDEX d_btree ON d (id)",
        "CREATE INDEX d_dup ON d (few)",
        "CREATE INDEX d_hash ON d USING hash (id)",
        "CREATE INDEX d_gin ON d USING gin (list)",
        "CREATE INDEX d_gist ON d USING gist (p)",
        "CREATE INDEX d_bloom ON d USING bloom (id, few)",
        "DELETE FROM d WHERE id BETWEEN 1000 AND 2500",
        "VACUUM (FREEZE) d",
        "CHECKPOINT",
    )


@pytest.fixture(scope="module", params=["--data-checksums", "--no-data-checksums"])
def server(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Cluster:
    return make_cluster({"autovacuum": False, "shared_buffers": "16MB"}, [request.param])


with_checksums = pytest.mark.parametrize("server", ["--data-checksums"], indirect=True)
without_checksums = pytest.mark.parametrize("server", ["--no-data-checksums"], indirect=True)


@pytest.fixture
def conn(server: Cluster) -> Iterator[Connection]:
    """A database of this test's own, whose files it may damage."""
    with fresh_database(server) as conn:
        set_up(conn)
        yield conn
        await_no_pins(conn)


def warnings(told: list[Notice]) -> list[tuple[str, str | None]]:
    """Message and detail of each warning, but for the server's own, until 17."""
    return [
        (one.message, one.detail) for one in told if not one.message.startswith("page verification failed")
    ]


def test_bad_pages(server: Cluster, conn: Connection, rng: random.Random) -> None:
    """Of pages that the server itself refuses to read, all are counted and the first named."""
    checksums = scalar(conn, "SHOW data_checksums") == "on"
    for (relation, function), wanted in product(RELATIONS.items(), (1, 3, 12, None)):
        whole = estimate(conn, relation, function=function, sample_pages=WHOLE)
        pages = int(whole["size"].value / BLOCK)
        path = data_file(server, conn, relation)
        evict(conn, relation)
        intact = path.read_bytes()
        first = 0 if relation in ("d", "d_gist") else 1
        number = min(wanted or pages, pages - first)
        bad = sorted(rng.sample(range(first, pages), number))
        for block in bad:
            # contents that fail the checksum, or a header that makes no sense
            at, data = (200, b"\xa5\x5a" * 3) if checksums else (12, struct.pack("<HHH", 9000, 8, 70))
            write_at(path, block * BLOCK + at, data)
        with noticed(conn) as told:
            found = estimate(conn, relation, function=function, sample_pages=WHOLE)
        assert found["corrupt_pages"] == Figure("pages", number, number, number, True), relation
        named = ", ".join(str(block) for block in bad[:10]) + (", ..." if number > 10 else "")
        message = f'relation "{relation}" has corrupt pages: {number} of the {pages - first} that were read'
        assert warnings(told) == [
            (message, f'Of all figures, only "corrupt_pages" counts these blocks: {named}.')
        ]
        sampled = estimate(conn, relation, function=function, sample_pages=7, confidence=0.9999, seed=1)
        assert sampled["corrupt_pages"].low <= number <= sampled["corrupt_pages"].high
        if number == pages - first:
            assert found["free_bytes"].value == 0
        evict(conn, relation)
        path.write_bytes(intact)
        assert repr(estimate(conn, relation, function=function, sample_pages=WHOLE)) == repr(whole)


@with_checksums
def test_read_one_by_one_where_needed(server: Cluster, conn: Connection) -> None:
    """A bad page in the middle costs no page around it: all others are counted as before."""
    whole = estimate(conn, "d_btree", sample_pages=WHOLE)
    leaf = scalar(
        conn,
        "SELECT b FROM generate_series(1, 9) b, LATERAL contrib.bt_page_stats('d_btree', b) s"
        " WHERE s.type = 'l' ORDER BY b DESC LIMIT 1",
    )
    entries = scalar(conn, "SELECT live_items - 1 FROM contrib.bt_page_stats('d_btree', %s)", [leaf])
    evict(conn, "d_btree")
    write_at(data_file(server, conn, "d_btree"), leaf * BLOCK + 5000, b"\x5a\xa5\x5a")
    for rate in ("0", "8MB"):
        run(conn, "LOAD 'pg_lookahead'", f"SET pg_lookahead.max_read_rate = '{rate}'")
        found = estimate(conn, "d_btree", sample_pages=WHOLE)
        assert found["leaf_pages"].value == whole["leaf_pages"].value - 1
        assert found["entries"].value == whole["entries"].value - entries
        assert found["deleted_pages"] == whole["deleted_pages"]


@with_checksums
def test_bad_page_of_the_visibility_map(server: Cluster, conn: Connection) -> None:
    """The server takes it for an empty one, and so does an estimate; all else is as before."""
    whole = estimate(conn, "d", function="table_estimate", sample_pages=WHOLE)
    maps = {"all_visible_pages", "all_frozen_pages"}
    assert all(whole[name].value > 0 for name in maps)
    evict(conn, "d")
    write_at(data_file(server, conn, "d", "vm"), 200, b"\xa5\x5a" * 3)
    with noticed(conn) as told:
        found = estimate(conn, "d", function="table_estimate", sample_pages=WHOLE)
    assert [message.split(" of relation")[0] for message, _ in warnings(told)] == ["invalid page in block 0"]
    assert all(found[name] == Figure("pages", 0, 0, 0, True) for name in maps)
    assert repr({**found, **{name: whole[name] for name in maps}}) == repr(whole)


@with_checksums
def test_memory(server: Cluster, conn: Connection) -> None:
    """What a try to read a bad page needs is freed when the page has been counted."""
    run(
        conn,
        "DROP TABLE d",
        "CREATE TABLE d AS SELECT i AS id, repeat(i::text, 100) AS pad FROM generate_series(1, 20000) i",
        "CREATE INDEX d_i ON d (id, pad)",
        "CHECKPOINT",
    )
    query = (
        "SELECT lookahead.index_gain('d_i'::regclass, 0, 2000, 1),"
        " (SELECT sum(total_bytes) FROM pg_backend_memory_contexts)"
    )
    evict(conn, "d_i")
    before = fetch_row(conn, query)[1]
    evict(conn, "d_i")
    path = data_file(server, conn, "d_i")
    pages = path.stat().st_size // BLOCK
    assert 1000 < pages < 2000
    for block in range(1, pages):
        write_at(path, block * BLOCK + 200, b"\xa5\x5a" * 3)
    with noticed(conn) as told:
        after = fetch_row(conn, query)[1]
    assert f"{pages - 1} of the {pages - 1} that were read" in warnings(told)[0][0]
    assert after - before < 1_000_000


def pointer(offset: int, length: int) -> bytes:
    """A line pointer, to a normal item."""
    return struct.pack("<I", offset | 1 << 15 | length << 17)


def has_items(page: bytes) -> bool:
    """Whether there are items between the free space and the special area."""
    upper, special = struct.unpack_from("<HH", page, 14)
    return bool(line_pointers(page)) and bool(upper < special)


def lies(relation: str, page: bytes) -> dict[str, bytes]:
    """Pages that pass the server's check of a header, and lead out of themselves."""
    items = [one for one in line_pointers(page) if one.flags == 1]
    found = {}

    def changed(what: str, at: int, data: bytes) -> None:
        found[what] = page[:at] + data + page[at + len(data) :]

    if relation != "d":
        changed("no special area", 16, struct.pack("<H", BLOCK))
        # what is read as the special area is that of a sound page, but the area is twice as long as it
        area = page[struct.unpack_from("<H", page, 16)[0] :]
        start = BLOCK - 2 * len(area)
        found["a special area of another size"] = (
            page[:16] + struct.pack("<H", start) + page[18:start] + area + area
        )
    if relation in ("d", "d_btree", "d_dup", "d_hash"):
        item = items[len(items) // 2]
        changed("item beyond the end", item.at, pointer(BLOCK - 8, 200))
        changed("item that ends beyond", item.at, pointer(item.offset, BLOCK - item.offset + 64))
        changed("item before the start", item.at, pointer(8, 40))
        changed("item that is too short", item.at, pointer(item.offset, 4))
    if relation in ("d_btree", "d_dup"):
        changed("tuple longer than its item", item.offset + 6, struct.pack("<H", 0x1FFF))
        changed("tuple shorter than a header", item.offset + 6, struct.pack("<H", 3))
        at = max(items, key=lambda one: one.length).offset
        # a posting list of 4,095 TIDs, and one that begins far beyond its tuple
        info = struct.unpack_from("<H", page, at + 6)[0] | 0x2000
        changed("too many TIDs", at, struct.pack("<HHHH", 0, 16, 0x2000 | 0x0FFF, info))
        changed("TIDs elsewhere", at, struct.pack("<HHHH", 0, 0x7FF8, 0x2000 | 2, info))
    if relation == "d_gist":
        changed("no page of a GiST index", BLOCK - 2, struct.pack("<H", 0xFF82))
    if relation == "d_hash":
        changed("a second metapage", BLOCK - 4, struct.pack("<H", 8))
    if relation == "d_bloom":
        changed("too many entries", BLOCK - 8, struct.pack("<H", 0xFFFF))
    return found


@without_checksums
@pytest.mark.parametrize("relation", RELATIONS)
def test_misleading_pages(server: Cluster, conn: Connection, relation: str) -> None:
    """A page that leads out of itself is corrupt, and is not followed."""
    path = data_file(server, conn, relation)
    evict(conn, relation)
    intact = path.read_bytes()
    # a table may have been extended by more pages than it needs
    whole = list(blocks(intact))
    block = max(i for i, one in enumerate(whole) if relation == "d_bloom" or has_items(one))
    page = whole[block]
    if relation in ("d_btree", "d_dup"):
        assert struct.unpack_from("<H", page, BLOCK - 4)[0] & 1, "this is no leaf"
    made = lies(relation, page)
    assert made
    for what, data in made.items():
        write_at(path, block * BLOCK, data)
        found = estimate(conn, relation, function=RELATIONS[relation], sample_pages=WHOLE)
        evict(conn, relation)
        path.write_bytes(intact)
        assert found["corrupt_pages"].value == 1, what


def test_any_damage(own_cluster: MakeCluster, rng: random.Random) -> None:
    """Pages damaged at random, so that the server reads most of them: figures or an error, never a crash."""
    server = own_cluster(
        {"autovacuum": False, "shared_buffers": "4MB", "max_connections": 10, "statement_timeout": "120s"},
        ["--no-data-checksums"],
    )
    seen: Counter[str] = Counter()
    with server.connect() as conn:
        set_up(conn)
        assertions = bool(scalar(conn, "SELECT current_setting('debug_assertions')::bool"))
        paths = {relation: data_file(server, conn, relation) for relation in RELATIONS}
        for relation in RELATIONS:
            evict(conn, relation)
        intact = {relation: path.read_bytes() for relation, path in paths.items()}
        pages = [page for data in intact.values() for page in blocks(data)]
        pid = server.pid
        for number in range(MUTATIONS):
            # The server asserts on rows that make no sense, whoever asks whether they are visible.
            relation = rng.choice(
                ["d_btree", "d_dup", *RELATIONS] if not assertions else list(RELATIONS)[:-1]
            )
            harm = damage(intact[relation], pages, HEAP if relation == "d" else ANYWHERE, rng)
            paths[relation].write_bytes(harm.data)
            with noticed(conn) as notices:
                try:
                    pages_read = rng.choice([5, 20, WHOLE])
                    function = RELATIONS[relation]
                    found = estimate(conn, relation, function=function, sample_pages=pages_read, seed=number)
                    told = warnings(notices)
                    seen["answers"] += 1
                    corrupt = found["corrupt_pages"].value + (
                        found["toast_corrupt_pages"].value if relation == "d" else 0
                    )
                    assert (corrupt > 0) == (len(told) > 0), (relation, harm.what)
                    assert len(told) <= 1
                    seen["warnings"] += len(told)
                    assert not out_of_bounds(found), (relation, harm.what)
                except psycopg.Error as error:
                    if conn.closed:
                        pytest.fail(f"crashed: {relation}, {harm.what}: {error}\n{server.log[-2000:]}")
                    seen[f"error {error.sqlstate}"] += 1
                    text = f"{error.diag.message_primary} {error.diag.context}"
                    path = f"{paths[relation].parent.name}/{paths[relation].name}"
                    assert (
                        relation in text or path in text or re.search("transaction|multixact", text, re.I)
                    ), text
            evict(conn, relation)
            paths[relation].write_bytes(intact[relation])
        assert server.pid == pid
        await_no_pins(conn)
    print(dict(seen))
    assert seen["warnings"] > MUTATIONS // 20
    assert seen["answers"] > MUTATIONS // 2

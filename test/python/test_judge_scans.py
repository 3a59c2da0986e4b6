# ruff: noqa: E501
"""Which blocks index scans read ahead (entries_ahead.c), and when they begin and cease to (judge.c).

That rows and counters are stock's is shown elsewhere.  Here look-ahead's own counts are looked at: a hint that
is wrong or missing changes no row, and costs a read or a wait.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster, reads_are_async
from differential import bad_lines
from pg_lookahead.lab.profile import variant
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, query_plan, run, scalar
from relations import evict
from scans import INDEX_SCANS

pytestmark = pytest.mark.within_scans

Connection = psycopg.Connection[Any]

SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "128MB",
}
SETUP = """
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_visibility;
CREATE TABLE t (id int, k int, dup int, nul int, p point, pad text);
INSERT INTO t SELECT i, (i * 7919) % 20000, (i * 7919) % 20000 / 1000, CASE WHEN i % 3 = 0 THEN (i * 7919) % 20000 END,
    point((i * 7919) % 20000, i % 10), repeat('x', 300) FROM generate_series(1, 20000) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_dup ON t (dup);
CREATE INDEX t_nul ON t (nul);
CREATE INDEX t_nul_first ON t (nul NULLS FIRST, id);
CREATE INDEX t_k_dup ON t (k, dup);
CREATE INDEX t_wide ON t (lpad(k::text, 300, '0')) WHERE k < 6000;
CREATE INDEX t_gist ON t USING gist (p);
CREATE TABLE other (k int, p point, pad text);
INSERT INTO other SELECT i % 3, point((i * 7919) % 20000, i % 10), repeat('y', 300) FROM generate_series(1, 6000) AS i;
CREATE INDEX other_hash ON other USING hash (k);
CREATE INDEX other_spgist ON other USING spgist (p);
CREATE TABLE gone (id int, k int, pad text);
INSERT INTO gone SELECT i, (i * 7919) % 20000, repeat('x', 300) FROM generate_series(1, 20000) AS i;
CREATE TABLE swept (LIKE gone);
CREATE INDEX gone_k ON gone (k);
CREATE INDEX gone_id ON gone (id);
DELETE FROM gone WHERE id BETWEEN 5000 AND 9000 OR k BETWEEN 8000 AND 12000;
INSERT INTO swept SELECT * FROM gone;
INSERT INTO swept SELECT -i, 8000 + i, '' FROM generate_series(1, 3999) AS i;
CREATE INDEX swept_k ON swept (k);
DELETE FROM swept WHERE id < 0;
VACUUM swept;
ANALYZE
"""
TABLES = ("t", "other", "gone", "swept")
FORCE = "SET pg_lookahead.debug_force = on"
BY_K = "SELECT id FROM t WHERE k > 50 ORDER BY k"
COUNTS = ("blocks_read", "reads", "blocks_hit", "blocks_visited", "blocks_direct", "blocks_unused", "stalls")


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    """A server, where it reads in the background with direct I/O, so that reads are slow.

    It has the build with function profiles: how often functions are called tells how rows are fetched."""
    built = variant.build()
    cluster = make_cluster({**SERVER, **built.settings()})
    with cluster.connect() as conn:
        built.install(conn)
        run(conn, *SETUP.split(";"))
        in_background = reads_are_async(conn)
    if in_background:
        cluster.restart({"debug_io_direct": "data"})
    yield cluster
    assert not bad_lines(cluster.log)


@pytest.fixture
def conn(server: Cluster) -> Iterator[Connection]:
    with server.connect(prepare_threshold=None) as connection:
        connection.execute(INDEX_SCANS)
        connection.execute("SET effective_io_concurrency = 16")
        yield connection


@pytest.fixture
def slow(conn: Connection) -> Connection:
    """A connection in which look-ahead is taken to pay, however long reads take on this machine."""
    conn.execute("SET pg_lookahead.debug_force = paying")
    return conn


def counts(conn: Connection) -> dict[str, int]:
    row = fetch_row(conn, f"SELECT {', '.join(COUNTS)} FROM lookahead.index_scan_stats")
    return dict(zip(COUNTS, row, strict=True))


def measured(conn: Connection, query: str, *tables: str) -> tuple[list[Any], dict[str, int]]:
    """The rows of a query whose indexes are cached and whose tables are not, and what look-ahead did."""
    conn.execute("SET pg_lookahead.index_scan = off")
    stock = fetch(conn, query)
    # From PostgreSQL 19 on, a scan that prunes a page marks it as all-visible: once only.
    for table in tables or TABLES:
        conn.execute("SELECT pg_truncate_visibility_map(%s::regclass)", [table])
    evict(conn, *tables or TABLES)
    conn.execute("RESET pg_lookahead.index_scan")
    before = counts(conn)
    rows = fetch(conn, query)
    after = counts(conn)
    assert rows == stock
    return rows, {name: after[name] - before[name] for name in COUNTS}


def make(conn: Connection, name: str, columns: str, rows: str) -> None:
    """Make a table anew, with an index on its column k; rows: a query."""
    run(
        conn,
        f"DROP TABLE IF EXISTS {name}",
        f"CREATE TABLE {name} ({columns})",
        f"INSERT INTO {name} {rows}",
        f"CREATE INDEX ON {name} (k)",
        f"ANALYZE {name}",
    )


def tracked(conn: Connection, query: str, times: int = 1) -> dict[str, int]:
    """How often our functions are called for a query."""
    conn.execute("SELECT lookahead.function_stats_reset()")
    conn.execute("SET pg_lookahead.track_functions = on")
    for _ in range(times):
        conn.execute(query.encode())
    conn.execute("SET pg_lookahead.track_functions = off")
    return dict(fetch(conn, "SELECT function, calls FROM lookahead.function_stats"))


ONE_ROW = "SELECT id FROM t WHERE dup = 7 AND k = 7007"


def newly_served(conn: Connection, statement: str, times: int = 1) -> int:
    """How many index scans are taken over in some executions of a statement."""
    served = "SELECT lookahead.index_scans_served()"
    before: int = scalar(conn, served)
    run(conn, *[statement] * times)
    after: int = scalar(conn, served)
    return after - before


def test_small_cached_statements_are_left_alone(conn: Connection) -> None:
    """A small statement rests after 256 executions that read nothing, until one reads; EXPLAIN wakes none, and lulls none.

    One in which nothing is served rests after eight.
    """
    query = ONE_ROW
    assert "Index Scan" in fetch_row(conn, f"EXPLAIN {query}")[0]
    run(conn, query, query)
    assert 254 <= newly_served(conn, query, 300) <= 256
    assert newly_served(conn, f"EXPLAIN (ANALYZE) {query}") == 1
    assert newly_served(conn, query, 3) == 0
    evict(conn, "t")
    assert newly_served(conn, query) == 0
    assert newly_served(conn, query, 3) == 3
    run(conn, *[f"EXPLAIN {query}"] * 9)
    assert newly_served(conn, query, 3) == 3
    evict(conn, "t")
    conn.execute("SET pg_lookahead.index_scan = off")
    run(conn, *[query] * 9)
    conn.execute("RESET pg_lookahead.index_scan")
    assert newly_served(conn, query, 3) == 0
    evict(conn, "t")
    assert newly_served(conn, query, 2) == 1


def test_dear_cached_statements_are_left_alone_later(conn: Connection) -> None:
    """Twice as dear a statement rests after twice as many executions that read nothing."""
    conn.execute("SET random_page_cost = 1000")
    plan = fetch_row(conn, f"EXPLAIN (FORMAT json) {ONE_ROW}")[0][0]["Plan"]
    runs = 256 * plan["Total Cost"] / 200
    assert plan["Node Type"] == "Index Scan" and 1000 < runs < 10000
    loop = f"DO $$ BEGIN FOR i IN 1 .. 10000 LOOP PERFORM {ONE_ROW.removeprefix('SELECT ')}; END LOOP; END $$"
    run(conn, ONE_ROW, ONE_ROW)
    assert runs - 2 <= newly_served(conn, loop) <= runs + 1
    evict(conn, "t")
    assert newly_served(conn, ONE_ROW) == 0
    assert newly_served(conn, ONE_ROW, 3) == 3


def test_a_statement_within_itself_is_not_left_alone(conn: Connection) -> None:
    """A statement that reads is looked ahead for, although a function of its own executes it, too, and that reads nothing."""
    run(
        conn,
        "SET plan_cache_mode = force_generic_plan",
        """CREATE FUNCTION pg_temp.walk(n int) RETURNS int LANGUAGE plpgsql AS $$
           DECLARE nodes int := 1; child int;
           BEGIN
               FOR child IN SELECT k FROM t WHERE dup = n AND k % 4 = 0 LOOP
                   nodes := nodes + pg_temp.walk(-child);
               END LOOP;
               RETURN nodes;
           END $$""",
    )
    walk = "SELECT pg_temp.walk(7)"
    nodes = scalar(conn, walk)
    assert nodes > 100
    for _ in range(30):
        evict(conn, "t")
        assert newly_served(conn, walk) == nodes


# What is told


ARRAY = "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT i * 7 FROM generate_series(1, 2000) AS i)) ORDER BY k"
WIDE = "lpad(k::text, 300, '0')"
FEW_PER_LEAF = f"SELECT id FROM t WHERE {WIDE} BETWEEN lpad('500', 300, '0') AND lpad('5500', 300, '0') AND k < 6000 ORDER BY {WIDE}"
TOLD = {
    "btree": "SELECT id FROM t WHERE k BETWEEN 500 AND 9000 ORDER BY k",
    "btree backward": "SELECT id FROM t WHERE k BETWEEN 500 AND 9000 ORDER BY k DESC",
    "few entries a leaf": FEW_PER_LEAF,
    "few entries a leaf, backward": f"{FEW_PER_LEAF} DESC",
    "posting lists": "SELECT id FROM t WHERE dup BETWEEN 2 AND 9 ORDER BY dup",
    "posting lists backward": "SELECT id FROM t WHERE dup BETWEEN 2 AND 9 ORDER BY dup DESC",
    "before NULLs": "SELECT id FROM t WHERE nul > 12000 ORDER BY nul",
    "before NULLs, backward": "SELECT k FROM t WHERE nul < 8000 ORDER BY nul DESC NULLS LAST, id DESC",
    "after NULLs": "SELECT k FROM t WHERE nul < 8000 ORDER BY nul NULLS FIRST, id",
    "after NULLs, backward": "SELECT id FROM t WHERE nul > 12000 ORDER BY nul DESC",
    "second column": "SELECT id FROM t WHERE k BETWEEN 500 AND 9000 AND dup > 2 ORDER BY k, dup",
    "row comparison": "SELECT id FROM t WHERE (k, dup) > (8000, 3) AND k < 12000 ORDER BY k, dup",
    "array": ARRAY,
    "array backward": f"{ARRAY} DESC",
    "dead": "SELECT id FROM gone WHERE k BETWEEN 500 AND 15000 ORDER BY k",
    "dead, backward": "SELECT id FROM gone WHERE k BETWEEN 500 AND 15000 ORDER BY k DESC",
    "dead pages": "SELECT k FROM gone WHERE id BETWEEN 1000 AND 15000 ORDER BY id",
    "dead pages, array": "SELECT k FROM gone WHERE id = ANY (ARRAY(SELECT generate_series(1000, 15000, 3))) ORDER BY id",
    "deleted leaves": "SELECT id FROM swept WHERE k BETWEEN 500 AND 15000 ORDER BY k",
    "deleted leaves, backward": "SELECT id FROM swept WHERE k BETWEEN 500 AND 15000 ORDER BY k DESC",
    "index only": "SELECT k FROM t WHERE k BETWEEN 500 AND 9000 ORDER BY k",
    "hash": "SELECT ctid FROM other WHERE k = 1",
    "GiST": "SELECT id FROM t WHERE p <@ box '((100,0),(9000,9))'",
    "GiST index only": "SELECT p FROM t WHERE p <@ box '((100,0),(9000,9))'",
    "SP-GiST": "SELECT ctid FROM other WHERE p <@ box '((100,0),(9000,9))'",
    "SP-GiST index only": "SELECT p FROM other WHERE p <@ box '((100,0),(9000,9))'",
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_is_told_is_what_is_visited(conn: Connection, name: str) -> None:
    """No block is looked at ahead that the scan then does not visit, and hardly one is missed."""
    conn.execute(FORCE)
    query = TOLD[name]
    plan = str(fetch(conn, f"EXPLAIN {query}"))
    assert ("Index Only Scan" in plan) == ("index only" in name), plan
    _, done = measured(conn, query)
    assert done["blocks_read"] > 200
    assert done["blocks_unused"] == 0
    assert done["blocks_read"] + done["blocks_hit"] + done["blocks_direct"] == done["blocks_visited"], done
    assert reads_of_all(conn, query) == reads_of_all(conn, query, look_ahead=False)
    # a btree is looked at beyond the current page (backward, since 18), others do not
    assert done["blocks_direct"] <= done["blocks_visited"] // (8 if "GiST" in name else 20), done


def reads_of_all(conn: Connection, query: str, look_ahead: bool = True) -> int:
    """How many blocks the query reads where none is cached, those of indexes included."""
    indexes = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid::regclass::text = ANY (%s)"
    evict(conn, *TABLES, *(row[0] for row in conn.execute(indexes, [list(TABLES)])))
    conn.execute(f"SET pg_lookahead.index_scan = {look_ahead}".encode())
    read = int(query_plan(conn, query)["Shared Read Blocks"])
    conn.execute("RESET pg_lookahead.index_scan")
    return read


def test_what_a_worker_looks_up_is_not_counted(conn: Connection) -> None:
    """A second scan copies its keys, whose types a new process finds in the catalogs."""
    conn.execute("SET debug_parallel_query = on")
    conn.execute(FORCE)
    query = (
        f"SELECT id FROM t WHERE k = ANY ('{{{','.join(map(str, range(1, 9000, 3)))}}}') AND dup > 2::bigint"
    )
    hits = {}
    for look_ahead in ("off", "on", "off", "on"):  # the first two of them fill the session's own caches
        conn.execute(f"SET pg_lookahead.index_scan = {look_ahead}".encode())
        evict(conn, "t")
        plan = query_plan(conn, query)
        hits[look_ahead] = plan["Shared Hit Blocks"], plan["Shared Read Blocks"]
    assert hits["on"] == hits["off"]


def test_cursor_goes_on_after_a_pause(conn: Connection) -> None:
    """What had been looked at ahead when a cursor paused is looked at again; the filter leaves it unbounded."""
    conn.execute(FORCE)
    evict(conn, "t")
    before = counts(conn)
    conn.execute("BEGIN")
    conn.execute("DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 50 AND id > 0 ORDER BY k")
    for _ in range(20):
        conn.execute("FETCH 400 FROM c")
    conn.execute("COMMIT")
    done = {name: value - before[name] for name, value in counts(conn).items()}
    assert done["blocks_visited"] > 7000 and done["blocks_direct"] < 200, done


FAILS = "SELECT 1 / (n - n) FROM generate_series(1, 1) AS n"
CAUGHT = (
    "FOR i IN 1..100 LOOP BEGIN EXECUTE $q${}$q$; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP;"
)
LOOP = f"FOR r IN {BY_K} LOOP n := n + 1; END LOOP;"
BLOCK = "DO $b$ DECLARE r record; n int := 0; BEGIN {} END $b$"
FAILING = f"""CREATE OR REPLACE FUNCTION pg_temp.failing() RETURNS int LANGUAGE plpgsql AS $f$ BEGIN
    EXECUTE $q$ DO $d$ BEGIN EXECUTE 'EXPLAIN ANALYZE {FAILS}'; END $d$ $q$; RETURN 1; END $f$"""
ERRORS = {
    "of the client's queries": [FAILS] * 100 + [BY_K],
    "of the client's blocks": [f"DO $$ BEGIN EXECUTE '{FAILS}'; END $$"] * 100 + [BY_K],
    "in blocks in the client's queries": [FAILING, *["SELECT pg_temp.failing()"] * 40, BY_K],
    "caught": [BLOCK.format(CAUGHT.format(FAILS) + LOOP)],
    "caught, of blocks": [BLOCK.format(CAUGHT.format(f"DO $d$ BEGIN EXECUTE $e${FAILS}$e$; END $d$") + LOOP)],
    "before a commit": [BLOCK.format(CAUGHT.format(FAILS) + "COMMIT;" + LOOP)],
    "before and after a commit": [
        BLOCK.format(CAUGHT.format(FAILS) + "COMMIT;" + CAUGHT.format(FAILS) + LOOP)
    ],
}


@pytest.mark.parametrize("name", ERRORS)
def test_goes_on_after_errors(slow: Connection, name: str) -> None:
    """However many queries have failed, one that runs is known, and so is what is around it: its portions are not cut short."""
    evict(slow, "t")
    before = counts(slow)
    for statement in ERRORS[name]:
        with suppress(psycopg.errors.DivisionByZero):
            slow.execute(statement.encode())
    done = {name: value - before[name] for name, value in counts(slow).items()}
    assert done["blocks_read"] > 850 and done["blocks_direct"] + done["blocks_unused"] < 50, done


# With a filter, any number of entries may have to be looked at for one row.
FILTERED = (
    "SELECT id FROM t WHERE k > 50 AND id % 500 = 3 ORDER BY k LIMIT 1",
    "SELECT id FROM (SELECT id FROM t WHERE k > 50 ORDER BY k OFFSET 0) q WHERE id % 500 = 3 LIMIT 1",
)


@pytest.mark.parametrize("query", FILTERED)
def test_limit_above_a_filter_is_no_bound(conn: Connection, query: str) -> None:
    conn.execute(FORCE)
    _, done = measured(conn, query)
    assert done["blocks_read"] > 100 and done["blocks_direct"] < 10, done


def test_limit_above_scans_that_are_merged(conn: Connection) -> None:
    """Each of them looks ahead no further than the rows still wanted."""
    run(
        conn,
        FORCE,
        "CREATE TABLE merged (k int, pad text) PARTITION BY LIST ((k % 2))",
        "CREATE TABLE merged0 PARTITION OF merged FOR VALUES IN (0)",
        "CREATE TABLE merged1 PARTITION OF merged FOR VALUES IN (1)",
        "INSERT INTO merged SELECT i * 7919 % 6000, repeat('x', 300) FROM generate_series(1, 6000) AS i",
        "CREATE INDEX ON merged (k)",
        "ANALYZE merged",
    )
    query = "SELECT k, length(pad) FROM merged ORDER BY k LIMIT 2"
    assert "Merge Append" in str(fetch(conn, f"EXPLAIN {query}"))
    _, done = measured(conn, query, "merged0", "merged1")
    assert done["blocks_visited"] > 0 and done["blocks_read"] + done["blocks_direct"] <= 2 * 2, done


# How far


def distance(conn: Connection, *settings: str) -> int:
    """The largest distance of a scan of blocks that are not cached."""
    if conn.info.server_version < 180000:
        pytest.skip("EXPLAIN tells of look-ahead from PostgreSQL 18 on")
    for setting in (FORCE, *settings):
        conn.execute(setting.encode())
    evict(conn, "t")
    plan = query_plan(conn, BY_K)
    assert 0 < plan["Look-Ahead Mean Distance"] <= plan["Look-Ahead Maximum Distance"]
    return int(plan["Look-Ahead Maximum Distance"])


@pytest.mark.parametrize("most", (1, 3, 20))
def test_reads_in_flight_are_bounded(conn: Connection, most: int) -> None:
    """With one block a read, so that its blocks ahead are its reads."""
    set_most = f"SET pg_lookahead.max_distance = {most}"
    assert 1 <= distance(conn, "SET io_combine_limit = 1", set_most) <= most


def test_neighbours_in_one_read_count_once(conn: Connection) -> None:
    """The setting bounds reads, not blocks."""
    if not reads_are_async(conn):
        pytest.skip("the kernel is told of single blocks")
    few = "SELECT k, pad FROM t WHERE k < 4000 ORDER BY k"
    run(conn, f"CREATE TABLE sorted WITH (fillfactor = 10) AS {few}", "CREATE INDEX ON sorted (k)")
    run(conn, "ANALYZE sorted", FORCE, "SET pg_lookahead.max_distance = 2", "SET io_combine_limit = 8")
    _, done = measured(conn, "SELECT k, pad FROM sorted ORDER BY k", "sorted")
    assert done["blocks_read"] > 500 and done["reads"] < done["blocks_read"] / 3, done


def test_distance_grows(conn: Connection) -> None:
    """It does not stay where it begins (4) while reads miss."""
    assert distance(conn) > 32


def test_window_fits_the_buffers(conn: Connection) -> None:
    """Of temporary buffers, an eighth is held at most in index order; in block order, half is wanted."""
    run(
        conn,
        FORCE,
        "SET temp_buffers = 100",
        "CREATE TEMPORARY TABLE scattered AS SELECT k, pad FROM t LIMIT 4000",
        "CREATE INDEX ON scattered (k)",
        "SET effective_io_concurrency = 200",
        "SET pg_lookahead.order_window = 500",
    )
    for order, figure, most in (("index", "Maximum Distance", 12), ("block", "Blocks Sorted", 50)):
        conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
        before = counts(conn)["blocks_read"]
        plan = query_plan(conn, "SELECT k, pad FROM scattered ORDER BY k")
        assert counts(conn)["blocks_read"] > before
        if conn.info.server_version >= 180000:
            assert 0 < plan[f"Look-Ahead {figure}"] <= most


@pytest.mark.parametrize("rows", (3, 6, 12))
def test_distance_is_earned(conn: Connection, rows: int) -> None:
    """However early a scan ends, it has read no more than 4 blocks and one for four that were used for nothing."""
    conn.execute(FORCE)
    conn.execute("SET effective_io_concurrency = 200")
    _, done = measured(conn, f"SELECT id FROM t WHERE k > 50 AND id > 0 ORDER BY k LIMIT {rows}")
    assert done["blocks_visited"] == rows and done["blocks_unused"] <= 4 + rows // 4, done


def test_stalls_are_counted(slow: Connection) -> None:
    """Who looks one block ahead waits for it."""
    slow.execute(FORCE)
    slow.execute("SET pg_lookahead.max_distance = 1")
    _, done = measured(slow, "SELECT id FROM t WHERE k BETWEEN 50 AND 700 ORDER BY k")
    assert 0 < done["stalls"] <= done["blocks_visited"]


# When


def test_stops_where_all_is_cached_and_begins_again(slow: Connection) -> None:
    """Of 20,000 rows on 1,000 blocks most are hits; that the blocks are gone again is noticed, too."""
    for emptied, most, times in ((0, 5000, 1), (12000, 10000, 2)):
        loop = (
            f"DO $$ DECLARE n int := 0; r record; BEGIN FOR r IN {BY_K} LOOP n := n + 1;"
            f" IF n = {emptied} THEN PERFORM count(pg_buffercache_evict(bufferid)) FROM pg_buffercache; END IF;"
            " END LOOP; END $$"
        )
        evict(slow, "t")
        before = counts(slow)
        drained = tracked(slow, loop)["window_drain"]
        done = {name: value - before[name] for name, value in counts(slow).items()}
        assert done["blocks_read"] > (1200 if emptied else 700), done
        assert done["blocks_visited"] < most and drained == times, (done, drained)


# Rows of one page follow each other, so that only some of them read.
HEAP_ORDER = {
    "2 rows a page": ("3500", "SELECT k, length(pad) FROM pages WHERE k > 0 ORDER BY k"),
    "2 rows a page, filter": ("3500", "SELECT k FROM pages WHERE k > 0 AND length(pad) > 5 ORDER BY k"),
    "6 rows a page": ("1100", "SELECT k, length(pad) FROM pages WHERE k > 0 ORDER BY k"),
    "20 rows a page": ("300", "SELECT k, length(pad) FROM pages WHERE k > 0 ORDER BY k"),
    "20 rows a page, filter": ("300", "SELECT k FROM pages WHERE k > 0 AND length(pad) > 5 ORDER BY k"),
    "20 rows a page, index only": ("300", "SELECT k FROM pages WHERE k > 0 ORDER BY k"),
    "180 rows a page, index only": ("10", "SELECT k FROM pages WHERE k > 0 ORDER BY k"),
}


@pytest.mark.parametrize("name", HEAP_ORDER)
def test_begins_in_heap_order(slow: Connection, name: str) -> None:
    """However many rows of a page come one after the other, its read is seen to be slow."""
    length, query = HEAP_ORDER[name]
    rows = f"SELECT i, repeat('x', {length}) FROM generate_series(1, 300 * 8000 / ({length} + 32)) AS i"
    make(slow, "pages", "k int, pad text STORAGE PLAIN", rows)
    assert ("Index Only Scan" in str(fetch(slow, f"EXPLAIN {query}"))) == ("index only" in name)
    _, done = measured(slow, query, "pages")
    assert done["blocks_read"] > 100, done
    # once it has read, met cached pages, and reads again; it does not end while it reads
    slow.execute("SELECT pg_truncate_visibility_map('pages')")
    evict(slow, "pages")
    slow.execute("SELECT length(pad) FROM pages WHERE ctid BETWEEN '(1,0)' AND '(40,0)'")
    before = counts(slow)["blocks_read"]
    drained = tracked(slow, query)["window_drain"]
    assert counts(slow)["blocks_read"] - before > 100 and drained == 1


def test_begins_before_the_first_row(slow: Connection) -> None:
    """A filter lets pass one row of hundreds: the blocks before it are read ahead, too."""
    _, done = measured(slow, FILTERED[0])
    assert done["blocks_read"] > 100, done


def test_stops_where_nothing_is_read(slow: Connection) -> None:
    """An index-only scan that reads at first, then meets visible pages only, and then cached ones."""
    run(
        slow,
        "CREATE TABLE visible (k int, pad text) WITH (fillfactor = 50)",
        "INSERT INTO visible SELECT i, repeat('x', 150) FROM generate_series(1, 15000) AS i",
        "CREATE INDEX ON visible (k)",
        "VACUUM visible",
    )
    query = "SELECT k FROM visible WHERE k > 0 ORDER BY k"
    assert "Index Only Scan" in str(fetch(slow, f"EXPLAIN {query}"))
    slow.execute(query.encode())
    last = fetch_row(slow, "SELECT max((ctid::text::point)[0])::int FROM visible WHERE k <= 2900")
    # From here on, nothing else looks at the table: from PostgreSQL 19 on, its pages would be visible again.
    slow.execute("UPDATE visible SET pad = pad WHERE k <= 3000 OR k > 9500")
    pages = fetch_row(
        slow,
        "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache, pg_class WHERE relname = 'visible'"
        " AND pg_buffercache.relfilenode = pg_class.relfilenode AND relforknumber = 0 AND relblocknumber <= %s",
        last,
    )
    assert pages[0] > 50
    before = counts(slow)
    slow.execute(query.encode())
    done = {name: value - before[name] for name, value in counts(slow).items()}
    # after the visible pages, no more than was in the window of 93
    assert done["blocks_read"] > 40 and done["blocks_visited"] < pages[0] + 120, (pages, done)


def test_stops_where_it_is_useless(slow: Connection) -> None:
    """Scans that are begun again for one row each read little for nothing, all together."""
    query = (
        "SELECT (SELECT length(pad) FROM t WHERE t.k >= i AND pad <> '' ORDER BY k LIMIT 1)"
        " FROM generate_series(1, 20000, 25) AS i"
    )
    rows, done = measured(slow, query)
    assert len(rows) == 800 and done["blocks_unused"] < 200, done


def test_partitions_learn_from_each_other(slow: Connection) -> None:
    """That reads are slow, the first one has to see twice, and each other one only once."""
    slow.execute("CREATE TABLE parts (k int, pad text) PARTITION BY RANGE (k)")
    slow.execute("ALTER TABLE parts ALTER pad SET STORAGE PLAIN")
    names = [f"part{i}" for i in range(20)]
    for i, name in enumerate(names):
        slow.execute(
            f"CREATE TABLE {name} PARTITION OF parts FOR VALUES FROM ({i * 12}) TO ({i * 12 + 12})".encode()
        )
    slow.execute("INSERT INTO parts SELECT i, repeat('x', 5000) FROM generate_series(0, 239) AS i")
    slow.execute("CREATE INDEX ON parts (k)")
    slow.execute("ANALYZE parts")
    rows, done = measured(slow, "SELECT length(pad) FROM parts ORDER BY k", *names)
    # of each partition, the first read is not timed
    assert len(rows) - done["blocks_read"] < 2 * 20 + 10, done


def test_left_beside_scans_that_stay_unknown(slow: Connection) -> None:
    """Scans of too many temporary tables are never known, however much they read; another one of the query is."""
    slow.execute("SET temp_buffers = '800kB'")
    slow.execute("CREATE TEMPORARY TABLE many (k int, pad text) PARTITION BY LIST ((k % 20))")
    for i in range(20):
        slow.execute(f"CREATE TEMPORARY TABLE many{i} PARTITION OF many FOR VALUES IN ({i})".encode())
    slow.execute("INSERT INTO many SELECT i, repeat('x', 900) FROM generate_series(1, 8000) AS i")
    slow.execute("CREATE INDEX ON many (k)")
    rows, done = measured(
        slow, "SELECT k, pad FROM t UNION ALL SELECT k, pad FROM many ORDER BY 1 LIMIT 6000", "t"
    )
    assert len(rows) == 6000 and done["blocks_read"] > 100


def test_pages_visited_in_turns(conn: Connection) -> None:
    """Each entry lies on another page than the one before, but every fourth on the same: it is looked ahead from once."""
    rows = "SELECT i % 2000, repeat('x', 300) FROM generate_series(1, 8000) AS i"
    make(conn, "turns", "k int, pad text", rows)
    conn.execute(FORCE)
    found, done = measured(conn, "SELECT length(pad) FROM turns WHERE k >= 0 ORDER BY k", "turns")
    assert len(found) == 8000 and 300 < done["blocks_visited"] < 2000, done


def test_is_trusted_again(slow: Connection) -> None:
    """A scan that is useless once and useful three times, in turns, waits for a few reads only each time."""
    rows = "SELECT (i * 7919) % 2500, repeat('x', 5000) FROM generate_series(1, 2500) AS i"
    make(slow, "long", "k int, pad text STORAGE PLAIN", rows)
    counted, done = measured(
        slow,
        "SELECT (SELECT count(*) FROM (SELECT FROM long WHERE k >= i / 4 * 122 + greatest(i % 4 * 40 - 39, 0) AND pad <> ''"
        " ORDER BY k LIMIT CASE i % 4 WHEN 0 THEN 1 ELSE 40 END) AS q) FROM generate_series(0, 79) AS i",
        "long",
    )
    used = sum(row[0] for row in counted)
    assert used > 2000 and used - done["blocks_visited"] < 600, done


def test_the_last_row_is_not_looked_ahead_to(slow: Connection) -> None:
    """Of scans for one row each, none begins, however slow their reads are."""
    _, done = measured(
        slow,
        "SELECT (SELECT id FROM t WHERE k >= i ORDER BY k LIMIT 1) FROM generate_series(1, 20000, 25) AS i",
    )
    assert done["blocks_visited"] == 0, done


# What is cached


# By number of the row (51 a page) its key, and how many of 3,000 rows are looked up with their neighbours.
CACHED = {
    "heap order": ("i", range(2900, 3000)),
    "pages at random": ("i / 50 * 17 % 60 * 50 + i % 50", range(2800, 3000)),
    "pairs at random": ("i / 2 * 7919 % 1500 * 2 + i % 2", range(1)),
    "at random": ("i * 7919 % 3000", range(1)),
    "heap order, then at random": (
        "CASE WHEN i < 500 THEN i ELSE 500 + i * 7919 % 2500 END",
        range(450, 490),
    ),
}


def make_cached(conn: Connection, key: str) -> None:
    rows = f"SELECT {key}, repeat('x', 120) FROM generate_series(0, 2999) AS i"
    make(conn, "cached", "k int, pad text", rows)
    conn.execute("SELECT * FROM cached ORDER BY k")


def calls(conn: Connection, query: str, times: int = 1) -> tuple[int, int, int]:
    """How often our own loops fetch from the heap, and look for neighbours; how many rows they look up with these."""
    done = tracked(conn, query, times)
    return done["heap_fetch"], done["page_rows"], done["heap_hot_search"]


@pytest.mark.parametrize("name", CACHED)
def test_cached_neighbours_are_looked_up_together(conn: Connection, name: str) -> None:
    """Where many rows of a page follow each other, and only there, does our own loop fetch them."""
    key, together = CACHED[name]
    make_cached(conn, key)
    fetches, runs, looked_up = calls(conn, "SELECT k, pad FROM cached ORDER BY k")
    assert looked_up in together
    assert runs <= fetches < 300 and (fetches > 0) == (looked_up > 0)
    # with a filter it watches each entry
    _, runs, looked_up = calls(conn, "SELECT k, pad FROM cached WHERE length(pad) > 0 ORDER BY k")
    assert runs < 300 and looked_up in together


def test_a_read_is_forgotten(conn: Connection) -> None:
    """For some rows after each read of an index page, reads are timed, and then all is as before."""
    for name, filtered, least, most in (
        ("heap order", False, 2900, 3000),
        ("heap order", True, 2900, 3000),
        ("pairs at random", False, 0, 0),
        ("pairs at random", True, 0, 0),
    ):
        make_cached(conn, CACHED[name][0])
        evict(conn, "cached_k_idx")
        query = f"SELECT k, pad FROM cached WHERE {'length(pad) > 0' if filtered else 'k >= 0'} ORDER BY k"
        _, runs, looked_up = calls(conn, query)
        assert runs < 150 and least <= looked_up <= most


@pytest.mark.parametrize("column", ("length(pad)", "0"))
def test_only_a_read_is_a_miss(conn: Connection, column: str) -> None:
    """After the read of an index's one page, rows are timed; none of them reads."""
    make_cached(conn, "i")
    run(conn, "TRUNCATE cached", "INSERT INTO cached SELECT i, 'x' FROM generate_series(1, 300) AS i")
    evict(conn, "cached_k_idx")
    before = counts(conn)
    conn.execute(f"SELECT k, {column} FROM cached ORDER BY k".encode())
    assert counts(conn) == before


def test_few_cached_rows_are_the_servers(conn: Connection) -> None:
    """The second row's block is compared with that of one 17 rows later, whatever was scanned before."""
    make_cached(conn, "i")
    query = "SELECT k, pad FROM cached WHERE k > 20 ORDER BY k LIMIT"
    assert calls(conn, f"{query} 18", 40) == (0, 0, 0)
    # the 19th is fetched with what follows it
    assert calls(conn, f"{query} 20", 3) == (3, 3, 6)
    # so it is with a filter
    query = "SELECT k, pad FROM cached WHERE k > 20 AND length(pad) > 0 ORDER BY k LIMIT"
    assert [calls(conn, f"{query} {limit}", 3)[1] for limit in (18, 19)] == [0, 3]
    # an index-only scan; since 19, scans that prune a page note that it is all-visible
    if conn.info.server_version < 190000:
        assert calls(conn, "SELECT k FROM cached ORDER BY k")[2] > 2800
    conn.execute("CREATE TEMPORARY TABLE copied AS SELECT * FROM cached ORDER BY k")
    conn.execute("CREATE INDEX ON copied (k)")
    conn.execute("ANALYZE copied")
    assert calls(conn, "SELECT k, pad FROM copied ORDER BY k")[2] > 2800


ONE_AFTER_THE_OTHER = {
    "row": "SELECT k, pad FROM t WHERE k > 5 ORDER BY k LIMIT 40",
    "entry": "SELECT k FROM t WHERE k > 6 ORDER BY k LIMIT 40",
    "filtered row": "SELECT k, pad FROM t WHERE k > 7 AND id > 0 ORDER BY k LIMIT 40",
    "filtered entry": "SELECT k FROM t WHERE k > 8 AND k % 2 = 0 ORDER BY k LIMIT 40",
    "no row": "SELECT k, pad FROM t WHERE k > 90000 ORDER BY k LIMIT 40",
    "temporary row": "SELECT k, pad FROM temporary WHERE k > 5 ORDER BY k LIMIT 40",
}


def test_scans_one_after_the_other(conn: Connection) -> None:
    """What is remembered of a scan dies with it, whoever comes to lie at its address."""
    conn.execute("CREATE TEMPORARY TABLE temporary AS SELECT * FROM t LIMIT 1000")
    conn.execute("CREATE INDEX ON temporary (k)")
    conn.execute("ANALYZE temporary")
    conn.execute("SET pg_lookahead.index_scan = off")
    stock = {name: fetch(conn, query) for name, query in ONE_AFTER_THE_OTHER.items()}
    conn.execute("RESET pg_lookahead.index_scan")
    for cold, *names in product((False, True), ONE_AFTER_THE_OTHER, ONE_AFTER_THE_OTHER):
        if cold:
            evict(conn, "t")
        assert [fetch(conn, ONE_AFTER_THE_OTHER[name]) for name in names] == [stock[name] for name in names]


# Where


SMALL = "SELECT id FROM small WHERE k > 50 ORDER BY k"
MAKE_SMALL = (
    "CREATE EXTENSION pg_lookahead",
    "CREATE EXTENSION pg_buffercache",
    "CREATE TABLE small AS SELECT i AS id, (i * 7919) % 3000 AS k, repeat('x', 300) AS pad"
    " FROM generate_series(1, 3000) AS i",
    "CREATE INDEX small_k ON small (k)",
    "ANALYZE small",
)


def read_ahead_by_force(conn: Connection) -> int:
    conn.execute(INDEX_SCANS)
    conn.execute(FORCE)
    evict(conn, "small")
    before = counts(conn)["blocks_read"]
    conn.execute(SMALL.encode())
    return counts(conn)["blocks_read"] - before


def test_where_the_library_is_loaded(own_cluster: MakeCluster) -> None:
    """Without shared_preload_libraries the view counts all sessions; the setting may be a database's or a role's."""
    cluster = own_cluster({"autovacuum": False})
    with cluster.connect() as conn:
        run(conn, *MAKE_SMALL, "CREATE ROLE other SUPERUSER LOGIN")
        loaded = fetch_row(conn, "SHOW shared_preload_libraries")
        assert "pg_lookahead" not in loaded[0]
        with cluster.connect() as one:
            one.execute("LOAD 'pg_lookahead'")
            total = read_ahead_by_force(one)
        assert total > 50
        for of, user, served in (
            ("DATABASE postgres SET session_preload_libraries = pg_lookahead", "postgres", True),
            ("DATABASE postgres SET pg_lookahead.index_scan = off", "postgres", False),
            ("ROLE other SET pg_lookahead.index_scan = on", "postgres", False),
            ("ROLE other SET pg_lookahead.index_scan = on", "other", True),
        ):
            conn.execute(f"ALTER {of}".encode())
            with cluster.connect(user=user) as one:
                done = read_ahead_by_force(one)
            assert (done > 50) == served, of
            total += done
        assert counts(conn)["blocks_read"] == total


def test_a_second_copy_is_refused(conn: Connection, server: Cluster) -> None:
    """However often it is asked for, a copy of the library at another place leaves the session as it was."""
    libdir = scalar(conn, "SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'")
    copy = server.data / "pg_lookahead_copy.so"
    shutil.copyfile(Path(libdir, "pg_lookahead.so"), copy)
    copy.chmod(0o755)
    conn.execute(FORCE)
    for _ in range(3):
        with pytest.raises(psycopg.Error, match="attempt to redefine parameter"):
            conn.execute(f"LOAD '{copy}'".encode())
        assert measured(conn, BY_K)[1]["blocks_read"] > 850


def test_synchronous_reads(own_cluster: MakeCluster) -> None:
    """With direct I/O nothing reads in the background; what comes from the system's cache is fast."""
    cluster = own_cluster({**SERVER, "io_method": "sync"})
    with cluster.connect() as conn:
        run(conn, *MAKE_SMALL)
        tells = conn.info.server_version >= 180000
        assert read_ahead_by_force(conn) > 50
    deadline = time.monotonic() + 120
    text = ""
    while tells and "Look-Ahead: not used (reads are fast)" not in text:
        # on a busy machine, some reads are slow, and a session remembers what it concluded from them
        assert time.monotonic() < deadline, text
        with cluster.connect() as conn:
            conn.execute(INDEX_SCANS)
            evict(conn, "small")
            text = str(fetch(conn, f"EXPLAIN (ANALYZE, LOOKAHEAD) {SMALL}"))
    cluster.restart({"debug_io_direct": "data"})
    with cluster.connect() as conn:
        assert read_ahead_by_force(conn) == 0
        if tells:
            text = str(fetch(conn, f"EXPLAIN (ANALYZE, LOOKAHEAD) {SMALL}"))
            assert "Look-Ahead: not used (reads are synchronous and direct)" in text

# ruff: noqa: E501
"""What could go wrong when index scans look ahead, each compared with what stock does.

Every test does the same in two databases, in one with look-ahead off and in the other with
look-ahead forced from the second row on, and what it observes there must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from clusters import until
from compiled import module
from conftest import MakeCluster
from differential import Session, bad_lines
from queries import fetch, query_plan, run, scalar
from scans import PARALLEL, blocks_read_ahead, operator_class
from sides import (
    KEYS,
    SERVER,
    Connection,
    Side,
    Sides,
    alike,
    cached_blocks,
    increments,
    off_and_forced,
    outcome,
    outcome_of,
    pins_at_rest,
)

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER, initdb_args=("--data-checksums",))
    yield from off_and_forced(cluster)


# VACUUM beside a scan


def blocked_vacuum(side: Side, meanwhile: Callable[[], None]) -> bool:
    """Run VACUUM beside; once it waits for a pin or is done, go on. Whether it waited."""
    with side.connect() as other, side.cluster.connect() as watcher:
        session = Session(other)
        session.send("VACUUM t")
        waits = f"SELECT wait_event_type IN ('BufferPin', 'Buffer') FROM pg_stat_activity WHERE pid = {other.info.backend_pid}"
        assert until(lambda: scalar(watcher, waits) or not session.busy)
        waited = session.busy
        meanwhile()
        assert session.collect()[0][0] == b"VACUUM"
        return waited


@pytest.mark.parametrize(
    "columns, kind", (("k", ""), ("k", "UNLOGGED"), ("id, k", ""), ("id, k", "UNLOGGED"))
)
def test_vacuum_under_a_paused_scan(sides: Sides, columns: str, kind: str) -> None:
    """VACUUM waits for a paused scan when it waits with stock; and recycled TIDs do no harm.

    Index-only scans hold a leaf page, and so do, until 18, plain scans of unlogged indexes, which
    cannot tell by LSN whether the page changed before they mark dead entries."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)", kind=kind)
        side.run("DELETE FROM t WHERE k % 3 = 1")
        seen: list[Any] = []
        side.evict()
        side.run("BEGIN", f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE k > 100 ORDER BY k")
        seen.append(side.rows("FETCH 40 FROM c"))

        def go_on() -> None:
            seen.append(side.rows("FETCH ALL FROM c"))
            side.run("COMMIT")

        seen.append(blocked_vacuum(side, go_on))
        # the same keys at recycled TIDs
        side.run("INSERT INTO t SELECT -k, k, 'recycled' FROM generate_series(1, 5999, 3) AS k")
        seen.append(side.rows("SELECT id, k FROM t WHERE k > 100 ORDER BY k"))
        seen.append(side.rows("SELECT k FROM t WHERE k > 100 ORDER BY k"))
        side.rows("SELECT bt_index_check('t_0', true)")
        return seen

    seen = alike(sides, steps)
    lsn_stands_still = kind == "UNLOGGED" and sides["off"].cluster.version < 19
    assert (columns == "k" or lsn_stands_still) in seen, "stock's VACUUM did not do as expected"


# Many dead rows


def test_queue(sides: Sides) -> None:
    """A queue, of which the head is read and deleted again and again, costs no more than with stock."""

    def steps(side: Side) -> Any:
        side.table(
            "(id int, pad text)", "SELECT i, repeat('x', 90) FROM generate_series(1, 6000) AS i", "(id)"
        )
        side.run("VACUUM t", "SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset()")
        done = 0
        for i in range(400):
            where = "FOR UPDATE SKIP LOCKED" if i % 2 else ""
            batch = 1 if i % 3 else 5
            done += len(
                side.rows(
                    f"DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT {batch} {where}) RETURNING id"
                )
            )
        side.run("SELECT pg_stat_force_next_flush()")
        return done, side.rows(
            "SELECT heap_blks_read + heap_blks_hit, idx_blks_read + idx_blks_hit, idx_scan, idx_tup_read"
            " FROM pg_statio_user_tables JOIN pg_stat_user_indexes s USING (relid) WHERE s.relname = 't'"
        )

    alike(sides, steps)


# Serializable


@pytest.mark.parametrize(
    "query", ("SELECT sum(v) FROM t WHERE k = {}", "SELECT count(k) FROM t WHERE k = {}")
)
def test_write_skew_is_prevented(sides: Sides, query: str) -> None:
    """Two transactions that each write what the other has read cannot both commit, index-only scans included."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i % 20, i, repeat('x', 200) FROM generate_series(1, 2000) AS i"
        side.table("(k int, v int, pad text)", rows, "(k)")
        side.run("VACUUM t", "UPDATE t SET v = v WHERE v % 7 = 3")
        side.evict()
        seen: list[Any] = []
        with side.connect() as one, side.connect() as other:
            for conn, key in ((one, 1), (other, 2)):
                conn.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
                seen.append(fetch(conn, query.format(key)))
            locks = (
                "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype IN ('page', 'tuple')"
            )
            seen.append(side.value(locks))
            one.execute("INSERT INTO t VALUES (2, 1, 'new')")
            other.execute("INSERT INTO t VALUES (1, 1, 'new')")
            for conn in (one, other):
                try:
                    conn.execute("COMMIT")
                    seen.append("committed")
                except psycopg.errors.SerializationFailure as error:
                    seen.append(error.sqlstate)
        return seen

    assert alike(sides, steps)[-2:] == ["committed", "40001"]


# Few buffers


def test_many_cursors_with_few_buffers(make_cluster: MakeCluster) -> None:
    """16 buffers, and more cursors than that at once fail no more than with stock."""
    cluster = make_cluster({**SERVER, "max_connections": 10})
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    for side in sides.values():
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.conn.close()
    cluster.restart({"shared_buffers": "128kB"})

    def steps(side: Side) -> list[Any]:
        side.conn = side.connect()
        seen: list[Any] = []
        for cursors in (3, 6, 9):
            side.run("BEGIN")
            for i in range(cursors):
                side.run(
                    f"DECLARE c{i} CURSOR FOR SELECT ctid, id FROM t WHERE k > {i * 300} AND pad <> '' ORDER BY k"
                )
            for n in (1, 5, 50, 3):
                seen += [outcome(side.conn, f"FETCH {n} FROM c{i}") for i in range(cursors)]
            side.run("ROLLBACK")
        seen.append(outcome(side.conn, "SELECT count(*), sum(id) FROM t WHERE k > 5 AND pad <> ''"))
        side.conn.close()
        return seen

    seen = alike(sides, steps)
    assert [one[0] for one in seen].count("rows") > 50
    assert not bad_lines(cluster.log)


FEW_BUFFERS = f"""
SET temp_buffers = '800kB';
SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
CREATE TEMP TABLE few (id int, k int, pad text);
INSERT INTO few {KEYS};
CREATE INDEX few_k ON few (k);
CREATE FUNCTION pg_temp.side_by_side(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE c refcursor; cs refcursor[]; r record; s int := 0;
    BEGIN FOR i IN 1..n LOOP c := NULL; OPEN c FOR EXECUTE 'SELECT id FROM few WHERE k > ' || i * 50 || ' ORDER BY k'; cs := cs || c; END LOOP;
    FOR i IN 1..5 * n LOOP c := cs[1 + i % n]; FETCH c INTO r; s := s + r.id; END LOOP; RETURN s; END $$;
CREATE FUNCTION pg_temp.nested(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record;
    BEGIN FOR r IN SELECT id FROM few WHERE k > n * 50 ORDER BY k LOOP
    RETURN r.id + CASE WHEN n > 0 THEN pg_temp.nested(n - 1) ELSE 0 END; END LOOP; END $$;
CREATE TEMP TABLE merged (k int, pad text) PARTITION BY LIST ((k % 55));
DO $$ BEGIN FOR i IN 0..54 LOOP
    EXECUTE format('CREATE TEMP TABLE part%1$s PARTITION OF merged FOR VALUES IN (%1$s)', i);
END LOOP; END $$;
INSERT INTO merged SELECT i, repeat('x', 900) FROM generate_series(1, 11000) AS i;
CREATE INDEX ON merged (k)
"""


def merged_scans(n: int) -> str:
    return f"SELECT k FROM merged WHERE k % 55 IN ({', '.join(map(str, range(n)))}) ORDER BY k"


def nested_scans(n: int) -> str:
    nested = (
        f" JOIN LATERAL (SELECT k FROM part{i} WHERE k >= p{i - 1}.k AND pad <> '' ORDER BY k OFFSET 0) p{i} ON true"
        for i in range(1, n)
    )
    return f"SELECT p0.k FROM part0 p0{''.join(nested)} WHERE p0.k > 9 LIMIT 30"


@pytest.mark.parametrize("order", ("index", "block"))
def test_many_scans_with_few_temporary_buffers(sides: Sides, order: str) -> None:
    """100 temporary buffers, and scans of functions, or of one query, that need most of them at once, fail no more than with stock."""

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        with side.session(FEW_BUFFERS, f"SET pg_lookahead.issue_order = {order}") as one:
            for n in (20, 60, 80, 84, 110):
                seen += [outcome(one.conn, f"SELECT pg_temp.{f}({n})") for f in ("side_by_side", "nested")]
            # with 14 scans, pages are read ahead; 20 leave no room for that; stock can just serve 48, not always 52
            for n in (14, 20, 48, 52):
                before = side.blocks_read_ahead()
                seen += [outcome(one.conn, query) for query in (merged_scans(n), nested_scans(n))]
                assert (side.blocks_read_ahead() > before) == (side.forced and n < 15)
            if side.forced and side.cluster.version >= 18:
                # with a column of the table, which 19 has found all-visible by now
                query = merged_scans(20).replace("SELECT k", "SELECT k, pad")
                plan = str(one.rows(f"EXPLAIN (ANALYZE, LOOKAHEAD) {query}"))
                assert plan.count("Look-Ahead: not used (too many scans of temporary tables)") == 20, plan
        return seen

    # how many pages a scan pins depends on the version
    seen = [one[0] for one in alike(sides, steps)]
    assert seen[:14] == ["rows"] * 8 + ["error"] * 2 + ["rows"] * 4 and "error" in seen[14:]


def test_operator_that_runs_queries_with_few_temporary_buffers(sides: Sides) -> None:
    """Looking ahead calls the keys' operators: what these run takes back no pin from under it."""

    def steps(side: Side) -> list[Any]:
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute("SET check_function_bodies = off")
            run(conn, *operator_class("asking_ops", "PERFORM FROM asked"))
            conn.execute("CREATE TEMP TABLE asked ()")
            conn.execute("CREATE TEMP TABLE few (id int, k int, pad text) PARTITION BY HASH (id)")
            for i in range(4):
                conn.execute(
                    f"CREATE TEMP TABLE few{i} PARTITION OF few FOR VALUES WITH (MODULUS 4, REMAINDER {i})".encode()
                )
            conn.execute(f"INSERT INTO few {KEYS}".encode())
            conn.execute("CREATE INDEX ON few (k asking_ops)")
            conn.execute("ANALYZE few")
            query = "SELECT id FROM few WHERE k @> 10 AND pad <> '' ORDER BY k USING @<"
            assert "Merge Append" in str(fetch(conn, f"EXPLAIN {query}"))
            before = blocks_read_ahead(conn)
            rows = fetch(conn, query)
            assert (blocks_read_ahead(conn) > before) == side.forced
        return rows

    assert len(alike(sides, steps)) == 5989


def test_visibility_map_of_a_temporary_table_is_counted_once(sides: Sides) -> None:
    """Its page is read by whoever looks first, and found by the other, who is not counted."""

    def steps(side: Side) -> Any:
        conn = side.connect()
        side.run("DROP TABLE IF EXISTS t")
        run(
            conn,
            "SET temp_buffers = 100",  # fewer than the table has pages
            "CREATE TEMP TABLE t AS SELECT i AS id, (i * 7919) % 20000 AS k, repeat('x', 100) AS pad"
            " FROM generate_series(1, 20000) AS i",
            "CREATE INDEX ON t (k)",
            "VACUUM t",  # without ANALYZE, by which the planner would look at the map
            "UPDATE t SET pad = pad WHERE id % 200 = 0",
        )
        totals = []
        for order in ("", " DESC") * 2:  # the first one marks dead entries
            conn.execute("SELECT count(pad) FROM t")  # now nothing else is cached
            plan = query_plan(conn, f"SELECT k FROM t WHERE k BETWEEN 100 AND 2000 ORDER BY k{order}")
            assert plan["Node Type"] == "Index Only Scan" and plan["Local Read Blocks"] > 100
            totals.append(plan["Local Hit Blocks"] + plan["Local Read Blocks"])
        conn.close()
        return totals

    alike(sides, steps)


def test_every_version_of_a_row(sides: Sides) -> None:
    """Under a snapshot that is not of the MVCC kind, each member of a HOT chain is returned, as stock does."""
    library = module(sides["off"].cluster, "any_snapshot")
    counts = []

    def steps(side: Side) -> list[Any]:
        side.table(
            "(id int, k int, v int, pad text) WITH (fillfactor = 30)",
            "SELECT i, i, 0, repeat('x', 150) FROM generate_series(1, 1000) AS i",
            "(k)",
        )
        with side.connect() as holder:
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM t LIMIT 1")  # nothing is pruned
            side.run("UPDATE t SET v = v + 1 WHERE id % 2 = 1", "UPDATE t SET v = v + 1 WHERE id % 4 = 1")
            side.run(
                f"CREATE OR REPLACE FUNCTION rows_of_any_version(text) RETURNS bigint STRICT LANGUAGE c AS '{library}'"
            )
            seen = []
            for query in (
                "SELECT id, v FROM t WHERE k > 10 ORDER BY k",
                "SELECT id FROM t WHERE k > 10 AND v >= 0 ORDER BY k DESC",
            ):
                seen.append(side.value(f"SELECT rows_of_any_version('{query}')"))
            counts.extend(seen)
            holder.execute("COMMIT")
        return seen

    alike(sides, steps)
    assert counts[0] > 1500


# Rows, and what scans leave behind


ROWS = "(id int, k int, pad text)"
IN_ORDER = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"


@dataclass(frozen=True)
class Hazard:
    """Statements on a table t, whose outcomes must be stock's.

    columns, rows, index: of the table, as Side.table() takes them
    before: statements that come first, after which no page of the table is cached
    shows: what EXPLAIN (ANALYZE) tells of the queries; has: what is among the outcomes
    least: how many rows are returned at least; ahead: blocks must be read ahead"""

    statements: Sequence[str]
    columns: str = ROWS
    rows: str = IN_ORDER
    index: str = "(k)"
    before: Sequence[str] = ()
    shows: Sequence[str] = ()
    has: Sequence[str] = ()
    least: int = 100
    ahead: bool = False


LOCKS = "SELECT locktype, relation::regclass::text, page, tuple FROM pg_locks WHERE mode = 'SIReadLock' ORDER BY 1, 2, 3, 4"


def left_in_serializable(columns: str, condition: str, *fetches: int) -> list[str]:
    """A scan that is left after some rows, and the predicate locks that it has taken."""
    query = f"SELECT {columns} FROM t WHERE {condition} AND k + 0 > 0"
    fetched = [step for rows in fetches for step in (f"FETCH {rows} FROM c", LOCKS)]
    return ["BEGIN ISOLATION LEVEL SERIALIZABLE", f"DECLARE c CURSOR FOR {query}", *fetched, "COMMIT"]


LEFT = left_in_serializable("k", "k > 50", 2)  # of more rows of a page, stock locks the page
FAR = "k = ANY (ARRAY(SELECT generate_series(50, 3000, 200)))"  # on all leaf pages
BEGUN_AGAIN = (
    "SELECT i, q.* FROM generate_series(1, 900) AS i, LATERAL"
    " (SELECT id, pad FROM t WHERE t.k >= i AND pad <> '' ORDER BY k LIMIT 1) AS q"
)
TURNS = ("2", "BACKWARD 1", "9", "BACKWARD 4", "PRIOR", "NEXT", "70", "BACKWARD 40", "3", "LAST", "PRIOR")
SCROLL = "DECLARE c SCROLL CURSOR FOR SELECT {} FROM t WHERE k > 5 AND k + 0 > 0 ORDER BY k"
LOSSY = "SELECT * FROM (SELECT {}::text AS found FROM t WHERE {} OFFSET 0) AS q ORDER BY found"
POLYGON = "polygon(format('((%s,%s),(%s,%s),(%s,%s))', {x}, {y}, {x} + {side}, {y}, {x}, {y} + {side}))"
AREAS = f"SELECT i, {POLYGON}, repeat('x', 150) FROM generate_series(1, {{rows}}) AS i"
COPIED = "SELECT n FROM t ORDER BY n"
PART_OF_A_KEY = (
    *("a = 5", "a = 5 AND b > 0", "a = 5 AND a = 5", "(a, b) >= (5, 3) AND a = 5", "a < 6 AND b > 50"),
    "a = ANY ('{5,6}') AND b = ANY (ARRAY(SELECT generate_series(1, 900)))",
)
HAZARDS: dict[str, Hazard] = {
    # what was found of neighbours on a heap page is void once the scan has let go of the page, as at each rescan
    "rows looked up together are used under their pin only": Hazard([BEGUN_AGAIN, BEGUN_AGAIN]),
    # with a filter, a FETCH does not bound how many are looked up
    **{
        f"turns within a page, {columns}": Hazard(
            ["BEGIN", SCROLL.format(columns), *(f"FETCH {turn} FROM c" for turn in TURNS), "COMMIT"],
            before=["DELETE FROM t WHERE id % 7 = 3"],
        )
        for columns in ("id, pad", "k")
    },
    # of a page that is all-visible, an index-only scan locks the page
    "serializable scans read no row before its turn": Hazard(
        [
            *left_in_serializable("id", "k > 50", 2),
            *LEFT,
            *left_in_serializable("id", FAR, 2),
            "VACUUM t",
            *LEFT,
        ],
        has=["('tuple', 't'"],
        least=12,
    ),
    **{
        f"serializable arrays lock what stock locks, {columns}": Hazard(
            left_in_serializable(
                columns, "k = ANY (ARRAY(SELECT generate_series(50, 6000, 9)))", 60, 60, 90, 60
            ),
            rows=KEYS,
            before=["VACUUM t"],
            has=[f"('page', 't_0', {page}, None)" for page in (1, 2, 4, 5)],
            ahead=columns == "id",
        )
        for columns in ("id", "k")
    },
    # of the server's own, no index-only scan has an index that returns rows for want of knowledge
    "lossy indexes are rechecked": Hazard(
        [
            LOSSY.format("id", "area && '((50,30),(59,39),(59,30))'::polygon"),
            LOSSY.format("id", "area @> '((51,31),(52,32),(52,31))'::polygon"),
        ],
        columns="(id int, area polygon, pad text)",
        rows=AREAS.format(x="i % 100", y="i / 100", side=9, rows=6000),
        index="USING gist (area)",
        before=["VACUUM t", "UPDATE t SET pad = pad WHERE id % 60 = 1"],
        shows=["Index Scan", "Rows Removed by Index Recheck"],
    ),
    "points are rechecked": Hazard(
        [LOSSY.format("p", "p <@ '<(40,25),20>'::circle")],
        columns="(id int, p point, pad text)",
        rows="SELECT i, point(i % 100, i / 100), repeat('x', 150) FROM generate_series(1, 6000) AS i",
        index="USING gist (p)",
        before=["VACUUM t", "UPDATE t SET pad = pad WHERE id % 60 = 1"],
        shows=["Index Only Scan"],
    ),
    # a scan that is ordered by a distance which the index only bounds is reordered by the server
    "nearest neighbours come in their order": Hazard(
        ["SELECT area <-> point(95, 90) FROM t ORDER BY area <-> point(95, 90) LIMIT 500"],
        columns="(id int, area polygon, pad text)",
        rows=AREAS.format(x="i * 37 % 100", y="i * 59 % 97", side=20, rows=3000),
        index="USING gist (area)",
        before=["VACUUM t"],
        shows=["Index Scan"],
        least=500,
    ),
    "names are padded": Hazard(
        [
            f"CREATE TABLE copied AS {COPIED}",
            "SELECT b, lp, t_data FROM generate_series(0, pg_relation_size('copied') / 8192 - 1) AS b,"
            " heap_page_items(get_raw_page('copied', b::int))",
            COPIED,
        ],
        columns="(n name, id int)",
        rows="SELECT nullif(repeat(chr(97 + i % 26), i % 64)::name, ''), i FROM generate_series(1, 3000) AS i",
        index="(n)",
        before=["VACUUM t", "UPDATE t SET id = id WHERE id % 20 = 3", "DROP TABLE IF EXISTS copied"],
        shows=["Index Only Scan"],
        least=5000,
    ),
    "index-only scans ask the map": Hazard(
        [f"SELECT k FROM t WHERE k > 5 ORDER BY {order}" for order in ("k", "k DESC")],
        rows=KEYS,
        before=["VACUUM t", "DELETE FROM t WHERE id % 40 = 3"],
        shows=["Index Only Scan"],
        least=11600,
    ),
    # a row that is looked up with its neighbours has the TID of its version, not of its chain's root
    "members of HOT chains": Hazard(
        [
            "SELECT ctid, id FROM t WHERE k > 5 ORDER BY k",
            "UPDATE t SET pad = 'own' WHERE k BETWEEN 50 AND 90 RETURNING ctid, id",
            "SELECT ctid, id, pad FROM t WHERE k BETWEEN 40 AND 100 ORDER BY k",
        ],
        columns=f"{ROWS} WITH (fillfactor = 40)",
        before=["UPDATE t SET pad = pad WHERE id % 3 = 1"],
        least=3000,
    ),
    # only one value for each column of a unique index means one row
    **{
        f"part of a unique key looks ahead, {number}": Hazard(
            [f"SELECT a, b, pad FROM t WHERE {condition} ORDER BY a, b"],
            columns="(a int, b int, pad text)",
            rows="SELECT i % 7, i / 7 * 613 % 857, repeat('x', 150) FROM generate_series(0, 5998) AS i",
            index="(pad)",
            before=["CREATE UNIQUE INDEX t_key ON t (a, b)", "VACUUM ANALYZE t"],
            least=800,
            ahead=True,
        )
        for number, condition in enumerate(PART_OF_A_KEY)
    },
    # idx_scan tells what the scan did, though a second scan of the same keys ran ahead of it
    "searches of an index are counted once": Hazard(
        [
            "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(5, 6000, 40))) AND pad <> ''",
            "SELECT pg_stat_force_next_flush()",
            "SELECT idx_scan, idx_tup_read, idx_tup_fetch FROM pg_stat_user_indexes WHERE indexrelname = 't_0'",
        ],
        rows=KEYS,
        ahead=True,
    ),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_as_stock(sides: Sides, name: str) -> None:
    """Outcomes are those of stock, and no page stays pinned."""
    hazard = HAZARDS[name]

    def steps(side: Side) -> list[Any]:
        side.table(hazard.columns, hazard.rows, hazard.index)
        side.run(*hazard.before)
        side.evict()
        before = side.blocks_read_ahead()
        seen = [outcome_of(side.conn, statement) for statement in hazard.statements]
        if hazard.ahead:
            assert (side.blocks_read_ahead() > before) == side.forced
        if hazard.shows:
            queries = [query for query in hazard.statements if query.startswith("SELECT")]
            shown = str([side.rows(f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {query}") for query in queries])
            assert all(word in shown for word in hazard.shows), shown
        assert side.pins() == 0
        return seen

    seen = alike(sides, steps)
    assert all(word in str(seen) for word in hazard.has), seen
    assert sum(len(rows) for rows in seen if isinstance(rows, list)) >= hazard.least


# Parallel scans

OF_ROWS = f"{PARALLEL}; SET cpu_tuple_cost = 10"


@pytest.mark.parametrize("condition", ("k BETWEEN 100 AND 5500", "k = ANY (ARRAY[{}])"))
def test_parallel_scans_look_at_their_own_pages(sides: Sides, condition: str) -> None:
    """No process of a parallel scan reads ahead for the leaf pages that others take.

    Each reads what it visits: little is read for nothing, though all of it is cold."""
    condition = condition.format(", ".join(map(str, range(100, 5500, 2))))
    rows = {}
    for name, side in sides.items():
        side.run(
            "DROP TABLE IF EXISTS t CASCADE",
            "CREATE TABLE t (id int, k int, pad text)",
            "ALTER TABLE t ALTER pad SET STORAGE PLAIN",
        )
        side.run(
            "INSERT INTO t SELECT i, i * 7919 % 6000, repeat('x', 3000) FROM generate_series(0, 5999) AS i",
            "CREATE INDEX t_0 ON t (k)",
            "VACUUM ANALYZE t",
            "ALTER TABLE t SET (parallel_workers = 2)",
        )
        side.evict("t", "t_0")
        with side.connect() as conn:
            conn.execute(OF_ROWS.encode())
            query = f"SELECT count(*), sum(length(pad)), sum(id) FROM t WHERE {condition}"
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
            assert "Parallel Index Scan" in plan, plan

            def count(reader: Connection = conn, query: str = query, name: str = name) -> None:
                rows[name] = fetch(reader, query)

            found = increments(side, count)
    print(found)
    assert rows["forced"] == rows["off"]
    assert found["blocks_read"] > 500
    assert found["blocks_unused"] <= 10


@pytest.mark.parametrize("condition", ("k BETWEEN 100 AND 5500", "k = ANY (ARRAY[{}])"))
def test_leaf_pages_that_another_process_may_take_are_not_read(sides: Sides, condition: str) -> None:
    """A process of a parallel scan reads no leaf page before the scan gives it to it.

    The leader, for which no worker is left, fails at the last entry of a leaf page, with a window that is
    long enough for what is on the next one."""
    condition = condition.format(", ".join(map(str, range(100, 5500))))
    leaf = 5

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t", "ALTER TABLE t SET (parallel_workers = 2)")
        last = side.value(f"SELECT max(k) FROM t JOIN bt_page_items('t_0', {leaf}) AS i ON t.ctid = i.htid")
        query = f"SELECT sum(1 / (k - {last})), sum(length(pad)) FROM t WHERE {condition}"
        with side.connect() as conn:
            conn.execute(f"{OF_ROWS}; SET max_parallel_workers = 0".encode())
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
            assert "Parallel Index Scan" in plan, plan
            side.evict("t", "t_0")
            before = side.blocks_read_ahead()
            with pytest.raises(psycopg.errors.DivisionByZero):
                conn.execute(query.encode())
        assert until(lambda: (side.blocks_read_ahead() - before > 50) == side.forced)
        return cached_blocks(side, "t_0")

    assert ("t_0", leaf) in alike(sides, steps)


# Life of what is taken


def test_work_mem_bounds_what_is_known_ahead(sides: Sides) -> None:
    """Many scans that are open at once share work_mem, however far the settings let each of them look."""
    side = sides["forced"]
    side.run(
        "DROP TABLE IF EXISTS spread",
        "CREATE TABLE spread (id int, k int, pad text) PARTITION BY HASH (id)",
        *(
            f"CREATE TABLE spread{i} PARTITION OF spread FOR VALUES WITH (MODULUS 8, REMAINDER {i})"
            for i in range(8)
        ),
        "INSERT INTO spread SELECT i, i * 7919 % 16000, repeat('x', 900) FROM generate_series(1, 16000) AS i",
        "CREATE INDEX ON spread (k)",
        "ANALYZE spread",
    )
    used = "SELECT sum(used_bytes)::int FROM pg_backend_memory_contexts WHERE name = 'ExecutorState' OR name LIKE 'look-ahead%'"
    kilobytes = {}
    for setting in ("off", "64kB", "64MB"):
        side.evict(*(f"spread{i}" for i in range(8)))
        with side.connect() as conn:
            if setting == "off":
                conn.execute("SET pg_lookahead.index_scan = off")
            else:
                conn.execute(f"SET work_mem = '{setting}'".encode())
            conn.execute("SET pg_lookahead.issue_order = block; SET pg_lookahead.order_window = 16384")
            conn.execute("BEGIN")
            conn.execute("DECLARE c CURSOR FOR SELECT id, pad FROM spread WHERE id > 0 ORDER BY k")
            conn.execute("MOVE 3000 FROM c")
            kilobytes[setting] = scalar(conn, used) // 1024
    side.run("DROP TABLE spread")
    print(kilobytes)
    assert kilobytes["64kB"] - kilobytes["off"] < 80
    assert kilobytes["64MB"] - kilobytes["64kB"] > 20


def test_more_than_one_page_of_the_visibility_map(sides: Sides) -> None:
    """Looking ahead onto another page of the map than the one that the scan holds pins nothing for longer."""
    side = sides["forced"]
    side.run(
        "DROP TABLE IF EXISTS t CASCADE",
        "CREATE TABLE t (k int, pad text)",
        "ALTER TABLE t ALTER pad SET STORAGE PLAIN",
    )
    # one row a page, and keys that lead from one end to the other
    with side.conn.transaction():
        side.run(
            "TRUNCATE t",
            "INSERT INTO t SELECT CASE WHEN i % 2 = 0 THEN i ELSE 33400 - i END, repeat('x', 4100) FROM generate_series(0, 33399) AS i",
        )
    side.run(
        "CREATE INDEX t_0 ON t (k)", "VACUUM ANALYZE t", "UPDATE t SET pad = '' WHERE k % 10 = 3 AND k < 900"
    )
    side.run("BEGIN", "DECLARE c CURSOR FOR SELECT k FROM t WHERE k >= 0 AND k + 0 >= 0 ORDER BY k")
    assert len(side.rows("FETCH 500 FROM c")) == 500
    off = sides["off"].pins()
    pins = pins_at_rest(side)
    side.run("COMMIT")
    assert side.pins() == off == 0
    # a page of the index, one of the heap, one of the map
    assert pins <= 3

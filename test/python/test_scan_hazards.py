# ruff: noqa: E501
"""What could go wrong when index scans look ahead, each compared with what stock does.

Every test does the same in two databases, in one with look-ahead off and in the other with
look-ahead forced from the second row on, and what it observes there must be equal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from compiled import module
from conftest import MakeCluster
from differential import bad_lines
from portals import Portals
from queries import fetch, fetch_row, run
from scans import INDEX_SCANS, blocks_read_ahead
from sides import (
    KEYS,
    SECONDS,
    SERVER,
    Connection,
    Side,
    Sides,
    alike,
    increments,
    off_and_forced,
    outcome,
    pins_at_rest,
    until,
)

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER, initdb_args=("--data-checksums",))
    yield from off_and_forced(cluster)


# Index-only scans


@pytest.mark.parametrize("visible", (True, False))
@pytest.mark.parametrize("order", ("k", "k DESC"))
def test_current_of_index_only_scan(sides: Sides, visible: bool, order: str) -> None:
    """WHERE CURRENT OF changes the row fetched last, not the one that look-ahead stands on."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        if visible:
            side.run("VACUUM t")
        seen = []
        query = f"SELECT k FROM t WHERE k BETWEEN 100 AND 5000 ORDER BY {order}"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.run("BEGIN", f"DECLARE c CURSOR FOR {query}")
        for n in (1, 7, 30, 2):
            k = side.rows(f"FETCH {n} FROM c")[-1][0]
            seen.append(side.rows("UPDATE t SET pad = 'changed' WHERE CURRENT OF c RETURNING id, k"))
            assert seen[-1][0][1] == k
            k = side.rows("FETCH 3 FROM c")[-1][0]
            seen.append(side.rows("DELETE FROM t WHERE CURRENT OF c RETURNING id, k"))
            assert seen[-1][0][1] == k
        side.run("COMMIT")
        return seen

    alike(sides, steps)


def blocked_vacuum(side: Side, meanwhile: Callable[[], None], command: str = "VACUUM t") -> bool:
    """Run VACUUM beside; once it waits for a pin or is done, go on. Whether it waited."""
    with side.connect() as other:
        pid = other.info.backend_pid
        thread = threading.Thread(target=lambda: other.execute(command.encode()))
        thread.start()

        def waits() -> bool:
            query = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
            with side.cluster.connect() as watcher:
                return fetch(watcher, query, [pid]) in ([("BufferPin",)], [("Buffer",)])

        assert until(lambda: waits() or not thread.is_alive())
        waited = thread.is_alive()
        meanwhile()
        thread.join(SECONDS)
        assert not thread.is_alive()
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


# Pruning


@pytest.mark.parametrize("order", ("(i * 61) % 400", "i / 2 + (i % 2) * 200", "i"))
def test_pages_are_pruned_as_with_stock(sides: Sides, order: str) -> None:
    """Whatever the order in which blocks come (A, B, A too), line pointers are the same afterwards."""

    def steps(side: Side) -> Any:
        rows = f"SELECT i, {order}, repeat('x', 300) FROM generate_series(0, 3999) AS i"
        side.table("(id int, k int, pad text) WITH (fillfactor = 70)", rows, "(k, id)")
        side.run("UPDATE t SET pad = repeat('y', 300) WHERE id % 5 < 3")
        side.evict()
        pointers = (
            "SELECT b, p.lp, p.lp_flags, p.lp_off FROM generate_series(0, pg_relation_size('t') / 8192 - 1) AS b,"
            " heap_page_items(get_raw_page('t', b)) AS p ORDER BY 1, 2"
        )
        before = side.rows(pointers)
        side.evict()
        seen = [side.rows("SELECT ctid, id, pad FROM t WHERE k BETWEEN 20 AND 300 ORDER BY k, id")]
        seen.append(side.rows(pointers))
        assert seen[1] != before, "reading pruned nothing"
        return seen

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


# Cursors that wait


HALF_VISIBLE, UNLOGGED = "index only, half visible", "array keys, unlogged"
IDLE = {
    "fetch": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    "filter": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 AND pad <> '' ORDER BY k", "FETCH 30 FROM c"],
    "index only": ["DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    HALF_VISIBLE: ["DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    "backward": [
        "DECLARE c SCROLL CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c", "FETCH BACKWARD 9 FROM c",
    ],
    "array keys": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7))) AND pad <> ''", "FETCH 300 FROM c"],
    UNLOGGED: ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7))) AND pad <> ''", "FETCH 300 FROM c"],
    "opened by a function": ["SELECT open_cursor(30)"],
    "opened by a block": ["DO $$ BEGIN PERFORM open_cursor(30); END $$"],
    "opened by a trigger": ["INSERT INTO triggering VALUES (1)"],
    "after an error": [
        "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c", "SAVEPOINT s",
        "SELECT 1 / 0", "ROLLBACK TO s",
    ],
    "opened by a function after an error": [
        "SAVEPOINT s", "SELECT 1 / (n - n) FROM generate_series(1, 1) AS n", "ROLLBACK TO s", "SELECT open_cursor(30)",
    ],
    "opened by a function after an error in another transaction": [
        "ROLLBACK", "DO $$ BEGIN PERFORM 1 / (n - n) FROM generate_series(1, 1) AS n; END $$", "BEGIN", "SELECT open_cursor(30)",
    ],
    "that failed": [
        "DECLARE c CURSOR FOR SELECT id, 1 / (k - 40) FROM t WHERE k > 5 ORDER BY k", "SAVEPOINT s", "FETCH 100 FROM c", "ROLLBACK TO s",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", IDLE)
def test_idle_cursor_pins_what_stock_pins(sides: Sides, name: str) -> None:
    """A cursor left idle holds nothing for coming rows: VACUUM (FREEZE) passes as with stock."""

    # these hold an index page, with stock as well, for which a VACUUM of dead entries would wait
    half_visible, unlogged = name == HALF_VISIBLE, name == UNLOGGED

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)", kind="UNLOGGED" if unlogged else "")
        side.run(
            "CREATE OR REPLACE FUNCTION open_cursor(n int) RETURNS void LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'c'; r record;"
            " BEGIN OPEN c FOR SELECT id FROM t WHERE k > 5 ORDER BY k; FOR i IN 1..n LOOP FETCH c INTO r; END LOOP; END $$",
            "CREATE TABLE IF NOT EXISTS triggering (n int)",
            "CREATE OR REPLACE FUNCTION opening() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM open_cursor(30); RETURN NULL; END $$",
            "CREATE OR REPLACE TRIGGER opening AFTER INSERT ON triggering FOR EACH ROW EXECUTE FUNCTION opening()",
        )
        if half_visible:
            side.run("VACUUM t", "UPDATE t SET pad = pad WHERE id % 400 < 200")
        side.evict()
        seen: list[Any] = []
        with side.connect() as idle:
            idle.execute("BEGIN")
            before = side.blocks_read_ahead()
            for statement in IDLE[name]:
                with suppress(psycopg.errors.DivisionByZero):
                    idle.execute(statement.encode())
            seen.append(side.pins())
            if not unlogged and not half_visible:
                # what is pinned is not frozen, or VACUUM says so
                side.run(
                    "VACUUM t", "SET vacuum_freeze_min_age = 0", "VACUUM t", "RESET vacuum_freeze_min_age"
                )
                seen.append(side.rows("SELECT all_visible, all_frozen FROM pg_visibility_map_summary('t')"))
            if name != "that failed":
                seen.append(fetch(idle, "FETCH 20 FROM c"))
                seen.append(fetch(idle, "FETCH ALL FROM c"))
            idle.execute("COMMIT")
            if name != "that failed":  # what a query did that failed is not counted
                assert (side.blocks_read_ahead() > before) == side.forced
        seen.append(side.pins())
        return seen

    seen = alike(sides, steps)
    assert seen[-1] == 0


@pytest.mark.parametrize(
    "begin",
    ("BEGIN", "SELECT 1", "DO $$ BEGIN PERFORM 1 / (n - n) FROM generate_series(1, 1) AS n; END $$"),
    ids=("in a block", "outside of one", "after a block that failed"),
)
def test_portal_in_portions_pins_what_stock_pins(sides: Sides, begin: str) -> None:
    """Between two portions of a portal's rows nothing is held for coming rows; all rows come, read ahead."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        seen: list[Any] = []
        portals = Portals(side)
        portals.query(INDEX_SCANS)
        portals.query(f"SET pg_lookahead.{'debug_force = on' if side.forced else 'index_scan = off'}")
        portals.query(begin, fails=begin.startswith("DO"))
        # a filter, so that the number of rows does not bound look-ahead
        portals.open("SELECT id FROM t WHERE k > 5 AND pad <> '' ORDER BY k")
        for rows in (50, 1, 200, 0):
            seen.append(portals.fetch(rows))
            seen.append(side.pins())
        assert len(seen[0]) == 50
        portals.end()
        portals.query("COMMIT")
        portals.close()
        assert until(lambda: (side.blocks_read_ahead() > before) == side.forced)
        return seen

    alike(sides, steps)


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


@pytest.mark.parametrize("order", ("index", "block"))
def test_many_scans_with_few_temporary_buffers(sides: Sides, order: str) -> None:
    """100 temporary buffers, and scans of a function that need most of them at once, fail no more than with stock."""
    depths = (20, 60, 80, 84, 110)

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
            conn.execute("CREATE TEMP TABLE few (id int, k int, pad text)")
            conn.execute(f"INSERT INTO few {KEYS}".encode())
            conn.execute("CREATE INDEX few_k ON few (k)")
            conn.execute(
                "CREATE FUNCTION pg_temp.side_by_side(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE c refcursor; cs refcursor[]; r record; s int := 0;"
                " BEGIN FOR i IN 1..n LOOP c := NULL; OPEN c FOR EXECUTE 'SELECT id FROM few WHERE k > ' || i * 50 || ' ORDER BY k'; cs := cs || c; END LOOP;"
                " FOR i IN 1..5 * n LOOP c := cs[1 + i % n]; FETCH c INTO r; s := s + r.id; END LOOP; RETURN s; END $$"
            )
            conn.execute(
                "CREATE FUNCTION pg_temp.nested(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record;"
                " BEGIN FOR r IN SELECT id FROM few WHERE k > n * 50 ORDER BY k LOOP"
                " RETURN r.id + CASE WHEN n > 0 THEN pg_temp.nested(n - 1) ELSE 0 END; END LOOP; END $$"
            )
            for n in depths:
                seen += [outcome(conn, f"SELECT pg_temp.{f}({n})") for f in ("side_by_side", "nested")]
        return seen

    assert [one[0] for one in alike(sides, steps)] == ["rows"] * 8 + ["error"] * 2


def test_operator_that_runs_queries_with_few_temporary_buffers(sides: Sides) -> None:
    """Looking ahead calls the keys' operators: what these run takes back no pin from under it."""

    def steps(side: Side) -> list[Any]:
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute("SET check_function_bodies = off")
            for name, sign in (("lt", "<"), ("le", "<="), ("eq", "="), ("ge", ">="), ("gt", ">")):
                conn.execute(
                    f"CREATE FUNCTION asking_{name}(a int, b int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT"
                    f" AS $$ BEGIN PERFORM FROM asked; RETURN a {sign} b; END $$".encode()
                )
                conn.execute(
                    f"CREATE OPERATOR {sign}@ (LEFTARG = int, RIGHTARG = int, FUNCTION = asking_{name})".encode()
                )
            conn.execute(
                "CREATE OPERATOR CLASS asking_ops FOR TYPE int USING btree AS OPERATOR 1 <@, OPERATOR 2 <=@,"
                " OPERATOR 3 =@, OPERATOR 4 >=@, OPERATOR 5 >@, FUNCTION 1 btint4cmp(int, int)"
            )
            conn.execute("CREATE TEMP TABLE asked ()")
            conn.execute("CREATE TEMP TABLE few (id int, k int, pad text) PARTITION BY HASH (id)")
            for i in range(4):
                conn.execute(
                    f"CREATE TEMP TABLE few{i} PARTITION OF few FOR VALUES WITH (MODULUS 4, REMAINDER {i})".encode()
                )
            conn.execute(f"INSERT INTO few {KEYS}".encode())
            conn.execute("CREATE INDEX ON few (k asking_ops)")
            conn.execute("ANALYZE few")
            query = "SELECT id FROM few WHERE k >@ 10 AND pad <> '' ORDER BY k USING <@"
            assert "Merge Append" in str(fetch(conn, f"EXPLAIN {query}"))
            before = blocks_read_ahead(conn)
            rows = fetch(conn, query)
            assert (blocks_read_ahead(conn) > before) == side.forced
        return rows

    assert len(alike(sides, steps)) == 5989


@pytest.mark.parametrize("order", ("index", "block"))
def test_one_query_with_many_scans_and_few_temporary_buffers(sides: Sides, order: str) -> None:
    """100 temporary buffers, of which each scan pins two: so many scans as with stock, look-ahead or not."""

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute("SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
            conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
            conn.execute("CREATE TEMP TABLE merged (k int, pad text) PARTITION BY LIST ((k % 55))")
            conn.execute(
                "DO $$ BEGIN FOR i IN 0..54 LOOP"
                " EXECUTE format('CREATE TEMP TABLE part%1$s PARTITION OF merged FOR VALUES IN (%1$s)', i);"
                " END LOOP; END $$"
            )
            conn.execute("INSERT INTO merged SELECT i, repeat('x', 900) FROM generate_series(1, 11000) AS i")
            conn.execute("CREATE INDEX ON merged (k)")
            # so few that some are read ahead, so many that stock can just serve them, and more
            for n in (14, 20, 48, 52):
                before = side.blocks_read_ahead()
                parts = ", ".join(map(str, range(n)))
                merged = f"SELECT k FROM merged WHERE k % 55 IN ({parts}) ORDER BY k"
                seen.append(outcome(conn, merged))
                nested = "".join(
                    f" JOIN LATERAL (SELECT k FROM part{i} WHERE k >= p{i - 1}.k AND pad <> '' ORDER BY k OFFSET 0) p{i} ON true"
                    for i in range(1, n)
                )
                seen.append(outcome(conn, f"SELECT p0.k FROM part0 p0{nested} WHERE p0.k > 9 LIMIT 30"))
                assert (side.blocks_read_ahead() > before) == (side.forced and n < 15)
                if side.forced and n == 20 and conn.info.server_version >= 180000:
                    # with a column of the table, which 19 has found all-visible by now
                    query = merged.replace("SELECT k", "SELECT k, pad")
                    plan = str(outcome(conn, f"EXPLAIN (ANALYZE, LOOKAHEAD) {query}"))
                    assert plan.count("Look-Ahead: not used (too many scans of temporary tables)") == n, plan
        return seen

    # how many pages a scan pins depends on the version
    seen = [one[0] for one in alike(sides, steps)]
    assert seen[:4] == ["rows"] * 4 and "error" in seen[4:]


# Scans within scans


def test_function_in_the_filter_scans_and_fails(sides: Sides) -> None:
    """Each row's filter runs a scan of its own that fails half of the time in a subtransaction."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run(
            "CREATE OR REPLACE FUNCTION inner_scan(low int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record; n int := 0; BEGIN"
            " FOR r IN SELECT k FROM t WHERE k >= low AND pad <> '' ORDER BY k LOOP n := n + 1;"
            " IF n > 20 THEN PERFORM 1 / (low % 2); EXIT; END IF; END LOOP; RETURN n;"
            " EXCEPTION WHEN division_by_zero THEN RETURN -n; END $$"
        )
        side.evict()
        seen: list[Any] = [
            side.rows(
                "SELECT id, inner_scan(k) FROM t WHERE k BETWEEN 10 AND 200 AND inner_scan(k + 1) <> 3 ORDER BY k"
            )
        ]
        side.evict()
        seen.append(side.rows("SELECT id FROM t WHERE k > 10 AND inner_scan(k) < 0 ORDER BY k LIMIT 40"))
        assert side.pins() == 0
        return seen

    alike(sides, steps)


def test_rows_looked_up_together_are_used_under_their_pin_only(sides: Sides) -> None:
    """A rescan that begins with the row which would have been the next finds it anew.

    Neighbours on a heap page are looked up together; what was found is void once the scan has
    let go of the page, as it does at each rescan."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(k)")
        query = (
            "SELECT i, q.* FROM generate_series(1, 900) AS i, LATERAL"
            " (SELECT id, pad FROM t WHERE t.k >= i AND pad <> '' ORDER BY k LIMIT 1) AS q"
        )
        side.evict()
        return [side.rows(query), side.rows(query), side.pins()]

    alike(sides, steps)


@pytest.mark.parametrize("columns", ("id, pad", "id"))
def test_turns_within_a_page(sides: Sides, columns: str) -> None:
    """Neighbours that were looked up together are not returned for others, wherever a cursor turns.

    With a filter, a FETCH does not bound how many are looked up."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(id)")
        side.run("DELETE FROM t WHERE id % 7 = 3")
        side.evict()
        side.run(
            "BEGIN",
            f"DECLARE c SCROLL CURSOR FOR SELECT {columns} FROM t WHERE id > 5 AND id + 0 > 0 ORDER BY id",
        )
        turns = (
            "2",
            "BACKWARD 1",
            "9",
            "BACKWARD 4",
            "PRIOR",
            "NEXT",
            "70",
            "BACKWARD 40",
            "3",
            "LAST",
            "PRIOR",
        )
        seen = [side.rows(f"FETCH {turn} FROM c") for turn in turns]
        side.run("COMMIT")
        return seen

    alike(sides, steps)


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
            row = fetch_row(
                conn,
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT json)"
                f" SELECT k FROM t WHERE k BETWEEN 100 AND 2000 ORDER BY k{order}",
            )
            plan = row[0][0]["Plan"]
            assert plan["Node Type"] == "Index Only Scan" and plan["Local Read Blocks"] > 100
            totals.append(plan["Local Hit Blocks"] + plan["Local Read Blocks"])
        conn.close()
        return totals

    alike(sides, steps)


def test_serializable_reads_no_row_before_its_turn(sides: Sides) -> None:
    """A scan that is left early has taken the predicate locks that stock takes, no more."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(k)")
        seen = []
        far = "k = ANY (ARRAY(SELECT generate_series(50, 3000, 200)))"  # on all leaf pages
        cases = [("id", "k > 50"), ("k", "k > 50"), ("id", far), ("vacuum", ""), ("k", "k > 50")]
        for columns, condition in cases:
            if columns == "vacuum":
                side.run("VACUUM t")  # of a page that is all-visible, an index-only scan locks the page
                continue
            side.run(
                "BEGIN ISOLATION LEVEL SERIALIZABLE",
                f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE {condition} AND (k + 0) > 0 ORDER BY k",
                "FETCH 2 FROM c",  # of more rows of a page, stock locks the page
            )
            seen.append(
                side.rows(
                    "SELECT locktype, relation::regclass::text, page, tuple FROM pg_locks WHERE mode = 'SIReadLock'"
                    " ORDER BY 1, 2, 3, 4"
                )
            )
            side.run("COMMIT")
        assert any(kind == "tuple" for kind, _, _, _ in seen[0]), seen
        return seen

    alike(sides, steps)


@pytest.mark.parametrize("columns", ("id", "k"))
def test_serializable_arrays_lock_what_stock_locks(sides: Sides, columns: str) -> None:
    """A scan of array keys that is left after some leaf pages has locked no page that it has not come to."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t")
        side.evict()
        before = side.blocks_read_ahead()
        side.run(
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE k = ANY (ARRAY(SELECT generate_series(50, 6000, 9))) AND k + 0 > 0",
        )
        seen: list[Any] = []
        for rows in (60, 60, 90, 60):
            seen.append(len(side.rows(f"FETCH {rows} FROM c")))
            seen.append(
                side.rows(
                    "SELECT locktype, relation::regclass::text, page, tuple FROM pg_locks WHERE mode = 'SIReadLock' ORDER BY 1, 2, 3, 4"
                )
            )
        side.run("COMMIT")
        if columns == "id":
            assert (side.blocks_read_ahead() > before) == side.forced
        return seen

    seen = alike(sides, steps)
    pages = [lock for lock in seen[-1] if lock[1] == "t_0" and lock[0] == "page"]
    assert 4 < len(pages) < 15


# Which rows


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


def test_lossy_indexes_are_rechecked(sides: Sides) -> None:
    """Rows that an index returns for want of knowledge are tested, in index scans (of the server's own, no index-only scan has such)."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.run(
            "CREATE TABLE t (id int, p point, area polygon, pad text)",
            "INSERT INTO t SELECT i, point(i % 100, i / 100), polygon(format('((%s,%s),(%s,%s),(%s,%s))', i % 100, i / 100, i % 100 + 9, i / 100, i % 100, i / 100 + 9)),"
            " repeat('x', 150) FROM generate_series(1, 6000) AS i",
            "CREATE INDEX t_area ON t USING gist (area)",
            "CREATE INDEX t_p ON t USING gist (p)",
            "VACUUM ANALYZE t",
            "UPDATE t SET pad = pad WHERE id % 60 = 1",
        )
        seen = []
        for columns, condition, node in (
            ("id", "area && '((50,30),(59,39),(59,30))'::polygon", "Index Scan"),
            ("id", "area @> '((51,31),(52,32),(52,31))'::polygon", "Index Scan"),
            ("p", "p <@ '<(40,25),20>'::circle", "Index Only Scan"),
        ):
            query = f"SELECT {columns}::text FROM t WHERE {condition}"
            plan = "\n".join(row[0] for row in side.rows(f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {query}"))
            assert node in plan and (columns == "p" or "Rows Removed by Index Recheck" in plan), plan
            side.evict()
            seen.append(sorted(side.rows(query)))
        return seen

    assert all(alike(sides, steps))


def test_nearest_neighbours_come_in_their_order(sides: Sides) -> None:
    """A scan that is ordered by a distance which the index only bounds is reordered by the server."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.run(
            "CREATE TABLE t (id int, area polygon, pad text)",
            "INSERT INTO t SELECT i, polygon(format('((%s,%s),(%s,%s),(%s,%s))', i * 37 % 100, i * 59 % 97, i * 37 % 100 + 20, i * 59 % 97, i * 37 % 100, i * 59 % 97 + 20)),"
            " repeat('x', 150) FROM generate_series(1, 3000) AS i",
            "CREATE INDEX t_area ON t USING gist (area)",
            "VACUUM ANALYZE t",
        )
        query = "SELECT area <-> point(95, 90) FROM t ORDER BY area <-> point(95, 90) LIMIT 500"
        assert "Index Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.evict()
        return side.rows(query)

    distances = [row[0] for row in alike(sides, steps)]
    assert distances == sorted(distances)


def test_names_are_padded(sides: Sides) -> None:
    """Columns of type name come out of an index as they were put in, with zeros up to their size."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.table(
            "(n name, id int)",
            "SELECT repeat(chr(97 + i % 26), i % 64)::name, i FROM generate_series(1, 3000) AS i",
            "(n)",
        )
        side.run("VACUUM t", "UPDATE t SET id = id WHERE id % 20 = 3")
        side.evict()
        query = "SELECT n FROM t WHERE n > 'b' ORDER BY n"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.run("DROP TABLE IF EXISTS copied", f"CREATE TABLE copied AS {query}")
        return side.rows(
            "SELECT b, lp, t_data FROM generate_series(0, pg_relation_size('copied') / 8192 - 1) AS b,"
            " heap_page_items(get_raw_page('copied', b::int))"
        )

    assert len(alike(sides, steps)) > 2500


@pytest.mark.parametrize("order", ("k", "k DESC"))
def test_index_only_scans_ask_the_map(sides: Sides, order: str) -> None:
    """Rows that were deleted since their page was all-visible are not returned."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t", "DELETE FROM t WHERE id % 40 = 3")
        side.evict()
        query = f"SELECT k FROM t WHERE k > 5 ORDER BY {order}"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        return side.rows(query)

    assert 5800 < len(alike(sides, steps)) < 5900


def test_members_of_hot_chains(sides: Sides) -> None:
    """A row that is looked up with its neighbours has the TID of its version, not of its chain's root."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text) WITH (fillfactor = 40)", rows, "(k)")
        side.run("UPDATE t SET pad = pad WHERE id % 3 = 1")
        side.evict()
        seen: list[Any] = [side.rows("SELECT ctid, id FROM t WHERE k > 5 ORDER BY k")]
        seen.append(side.rows("UPDATE t SET pad = 'own' WHERE k BETWEEN 50 AND 90 RETURNING ctid, id"))
        seen.append(side.rows("SELECT ctid, id, pad FROM t WHERE k BETWEEN 40 AND 100 ORDER BY k"))
        return seen

    seen = alike(sides, steps)
    assert len(seen[1]) == 41


@pytest.mark.parametrize(
    "condition",
    ("a = 5", "a = 5 AND b > 0", "a = ANY ('{5,6}') AND b = ANY (ARRAY(SELECT generate_series(1, 900)))"),
)
def test_part_of_a_unique_key_looks_ahead(sides: Sides, condition: str) -> None:
    """Only one value for each column of a unique index means one row."""

    def steps(side: Side) -> Any:
        rows = "SELECT i % 7, i / 7 * 613 % 857, repeat('x', 150) FROM generate_series(0, 5998) AS i"
        side.table("(a int, b int, pad text)", rows)
        side.run("CREATE UNIQUE INDEX t_0 ON t (a, b)", "VACUUM ANALYZE t")
        side.evict()
        before = side.blocks_read_ahead()
        found = side.rows(f"SELECT a, b, pad FROM t WHERE {condition} ORDER BY a, b")
        assert (side.blocks_read_ahead() > before) == side.forced
        return found

    assert len(alike(sides, steps)) > 800


def test_searches_of_an_index_are_counted_once(sides: Sides) -> None:
    """idx_scan tells what the scan did, though a second scan of the same keys ran ahead of it."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        counts = "SELECT idx_scan, idx_tup_read, idx_tup_fetch FROM pg_stat_user_indexes WHERE indexrelname = 't_0'"
        query = "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(5, 6000, 40))) AND pad <> ''"
        rows = side.rows(query)
        side.run("SELECT pg_stat_force_next_flush()")
        assert (side.blocks_read_ahead() - before > 20) == side.forced
        return [rows, side.rows(counts)]

    assert alike(sides, steps)[1][0][0] > 1


# Parallel scans

PARALLEL = (
    "SET cpu_tuple_cost = 10; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0;"
    " SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
)


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
            conn.execute(PARALLEL.encode())
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
            conn.execute(f"{PARALLEL}; SET max_parallel_workers = 0".encode())
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
            assert "Parallel Index Scan" in plan, plan
            side.evict("t", "t_0")
            before = side.blocks_read_ahead()
            with pytest.raises(psycopg.errors.DivisionByZero):
                conn.execute(query.encode())
        assert until(lambda: (side.blocks_read_ahead() - before > 50) == side.forced)
        return side.rows(
            "SELECT relblocknumber FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_0')"
            " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1"
        )

    assert (leaf,) in alike(sides, steps)


# Life of what is taken


def test_queries_are_forgotten_with_their_memory(sides: Sides) -> None:
    """After many queries, failed or not, what runs next meets nothing that was left of them."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        seen: list[Any] = []
        with side.connect() as conn:
            for i in range(60):
                side.evict() if i % 20 == 0 else None
                try:
                    query = f"SELECT id, 1 / (k - {100 + i * (i % 3)}) FROM t WHERE k BETWEEN 90 AND {200 + i} ORDER BY k"
                    seen.append(fetch(conn, query))
                except psycopg.errors.DivisionByZero as error:
                    seen.append(error.sqlstate)
                    conn.execute(f"SELECT count(pad) FROM t WHERE k < {i}".encode())
        seen.append(pins_at_rest(side))
        return seen

    assert alike(sides, steps)[-1] == 0


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
            row = fetch_row(conn, used)
            kilobytes[setting] = row[0] // 1024
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

# ruff: noqa: E501
"""What could go wrong when nested loops look ahead, each compared with what stock does.

Every test does the same in two databases, in one with look-ahead off and in the other with joins
forced to look ahead from the first row on, and what it observes there must be equal, or differ by
a bound that is documented.  Where a join can look ahead, the test sees to it that it did.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from clusters import until
from conftest import MakeCluster
from corruption import line_pointers
from differential import Session
from joins import (
    NESTED_LOOPS,
    JoinSide,
    JoinSides,
    by_row,
    by_row_of,
    loops,
    off_and_forced,
    same,
    sessions,
    told,
)
from portals import WAYS, Portals
from queries import fetch, fetch_row, relation_count, scalar
from relations import leaves_index_scans
from scans import PARALLEL
from sides import (
    SERVER,
    Connection,
    damaged,
    damaged_page,
    damaged_row,
    dead_entries,
    outcome,
    outcome_of,
    pins_at_rest,
    spoil_block,
    unknown_transaction,
    unnamed,
    waiting,
)


@pytest.fixture(scope="module")
def joins(make_cluster: MakeCluster) -> Iterator[JoinSides]:
    yield from off_and_forced(make_cluster(SERVER, initdb_args=("--data-checksums",)))


UNIQUE = "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k"
MANY = "SELECT o.id, i2.id FROM o JOIN i2 ON i2.m = o.m WHERE o.id < 200"

# Side effects ahead of time

EFFECTS = {
    "nextval of the outer side": "SELECT q.n, i2.id FROM (SELECT *, nextval('seq') AS n FROM o OFFSET 0) q JOIN i2 ON i2.k = q.k LIMIT 10",
    "nextval in the outer filter": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k WHERE nextval('seq') + o.id > 0 LIMIT 10",
    "notices of the outer side": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k WHERE loud(o.id) > 0 LIMIT 10",
    "notices of an immutable function": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k AND whisper(i2.id) > 0 WHERE whisper(o.id) > 0 LIMIT 10",
    "notices of a leakproof function": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k WHERE murmur(o.id) > 0 LIMIT 10",
    "notices of the keys": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = whisper(o.k) LIMIT 10",
    "a sequence read by the outer side": "SELECT o.id, nextval('seq') FROM o JOIN i2 ON i2.k = o.k WHERE o.id <> lastval() LIMIT 10",
    "a setting read by the outer side": "SELECT set_config('my.own', o.c, false), i2.id FROM o JOIN i2 ON i2.k = o.k"
    " WHERE o.c > current_setting('my.own') LIMIT 10",
    "row locks of the outer side": "SELECT q.id, i2.id FROM (SELECT * FROM o ORDER BY id FOR UPDATE) q JOIN i2 ON i2.k = q.k LIMIT 3",
    "nextval of a subplan of the keys": "SELECT o.id, i2.id FROM o LEFT JOIN i2 ON i2.k = (SELECT nextval('seq') + o.k) LIMIT 10",
    "notices of a subplan of the keys": "SELECT o.id, i2.id FROM o LEFT JOIN i2 ON i2.k = (SELECT loud(o.k)) LIMIT 10",
    "a sort that comes later": "SELECT x.k, i2.id FROM (SELECT k FROM o WHERE id < 8 UNION ALL (SELECT nextval('seq')::int FROM generate_series(1, 5) ORDER BY 1)) x"
    " JOIN i2 ON i2.k = x.k AND i2.m = 37 LIMIT 1",
    "a hashed subplan that comes later": "SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k WHERE CASE WHEN o.id > 12 THEN o.id NOT IN"
    " (SELECT nextval('seq')::int FROM generate_series(1, 3) ORDER BY 1 OFFSET 0) ELSE true END LIMIT 10",
    "a sequence scanned by the outer side": "SELECT nextval('seq'), x.k, i2.id FROM (SELECT k::bigint AS k FROM o WHERE id <= 20 UNION ALL SELECT last_value FROM seq) x"
    " JOIN i2 ON i2.k = x.k",
    "comparisons of a sort that comes later": "SELECT loud(x.k), i2.id FROM (SELECT k FROM o WHERE id < 20 UNION ALL (SELECT k FROM o WHERE id < 10 ORDER BY k USING <#)) x"
    " JOIN i2 ON i2.k = x.k",
    "comparisons of an outer index": "SELECT loud(q.k), i2.id FROM (SELECT l.k FROM o, LATERAL (SELECT k FROM told WHERE told.k = o.id OFFSET 0) l OFFSET 0) q"
    " JOIN i2 ON i2.k = q.k",
    "the role": "SELECT set_config('role', CASE WHEN o.id = 3 THEN 'pg_monitor' ELSE 'none' END, false), i2.id FROM o JOIN i2 ON i2.k = o.k WHERE o.c <> current_user LIMIT 10",
    "a modifying CTE": "WITH w AS (UPDATE o SET pad = 'new' WHERE id < 30 RETURNING *) SELECT w.id, i2.id FROM w JOIN i2 ON i2.k = w.k LIMIT 3",
}  # fmt: skip
LOCKED = "SELECT count(*) FROM (SELECT FROM o FOR UPDATE SKIP LOCKED) AS q"


@pytest.mark.parametrize("name", EFFECTS)
def test_no_effect_ahead_of_time(joins: JoinSides, name: str) -> None:
    """What the outer side does, or depends on, comes when it comes with stock; such a join does not look ahead."""

    def steps(side: JoinSide) -> list[Any]:
        seen: list[Any] = []
        side.run("ALTER SEQUENCE seq RESTART")
        with side.connect() as conn:
            conn.execute("SET my.own = '1'; SELECT nextval('seq')")
            conn.execute("BEGIN")
            session = Session(conn)
            session.send(EFFECTS[name])
            seen.append(session.collect())
            assert seen[0][0][0] != "error", seen
            seen.append(side.rows(LOCKED))
            conn.execute("ROLLBACK")
        seen.append(side.rows("SELECT last_value, is_called FROM seq"))
        return seen

    same(joins, steps, ahead=False)


def test_no_effect_of_a_recheck_ahead_of_time(joins: JoinSides) -> None:
    """The condition of a partial index is tested again for pages of which a bitmap does not know the rows."""

    def steps(side: JoinSide) -> Any:
        side.run(
            "SET client_min_messages = warning",
            "CREATE TABLE lossy (id int, k int, pad text) WITH (autovacuum_enabled = off, fillfactor = 10)",
            "INSERT INTO lossy SELECT n, n, repeat('x', 700) FROM generate_series(1, 1500) AS n",
            "CREATE INDEX lossy_id ON lossy (id) WHERE whisper(k) >= 0",
            "CREATE INDEX lossy_k ON lossy (k)",
            "ANALYZE lossy",
            "RESET client_min_messages",
        )
        settings = "SET enable_bitmapscan = on; SET enable_seqscan = off; SET work_mem = '64kB'"
        query = "SELECT loud(l.id), i2.id FROM lossy l JOIN i2 ON i2.k = l.k WHERE l.id < 1400 AND whisper(l.k) >= 0 OR l.k > 1450"
        with side.session(settings) as one:
            plan = str(one.rows(f"EXPLAIN {query}"))
            assert "BitmapOr" in plan and "Filter" not in plan, plan
            seen = by_row_of(one.conn, query)
        side.run("DROP TABLE lossy")
        return seen

    same(joins, steps, ahead=False)


# Errors ahead of time


CERTAIN = {
    "EXISTS": "SELECT EXISTS ({} OFFSET 12)",
    "ANY": "SELECT 0 < ANY ({} OFFSET 12)",
    "a LIMIT": "SELECT count(*) FROM ({} LIMIT 13) AS q",
    "a semijoin": "SELECT n FROM generate_series(1, 2) AS n WHERE EXISTS ({} OFFSET 12)",
    "a hash join without inner rows": "SELECT q.x FROM ({} OFFSET 0) AS q (x) JOIN (SELECT id AS n FROM o WHERE id % 2 = 3 OFFSET 0) AS e ON e.n = q.x",
    "a merge join": "SELECT q.x FROM (SELECT n FROM generate_series(1, 3) AS n ORDER BY n OFFSET 0) AS e JOIN ({} ORDER BY o.id OFFSET 0) AS q (x) ON e.n = q.x",
}  # fmt: skip
UNCERTAIN = {
    "outer filter": "SELECT o.id FROM o JOIN i2 ON i2.k = o.k WHERE 1 / (o.id - {fails}) < 9",
    "key": "SELECT o.id FROM o JOIN i2 ON i2.k = o.k + 0 / (o.id - {fails})",
    "key below another join": "SELECT o.id FROM o JOIN i2 ON i2.k = o.k + 0 / (o.id - {fails}) JOIN i2 AS j ON j.k = o.k",
    "key of a later child": "SELECT o.id FROM o CROSS JOIN LATERAL (SELECT id FROM i2 WHERE i2.k = o.k UNION ALL SELECT id FROM t WHERE t.id = o.id + 0 / (o.id - {fails}) AND t.id < 0) AS i2",
    "scalar subquery": "SELECT q.id FROM (SELECT id, k, (SELECT d FROM (VALUES (1), (2)) AS v (d) WHERE o.id >= {fails}) AS d FROM o OFFSET 0) q"
    " JOIN i2 ON i2.k = q.k + coalesce(q.d, 0) - coalesce(q.d, 0)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("above", "name"),
    [
        (above, name)
        for above in CERTAIN
        for name in UNCERTAIN
        if "hash" not in above or name != "key below another join"  # which would be a hash join, too
    ],
)
def test_no_error_of_a_row_that_is_not_certain(joins: JoinSides, above: str, name: str) -> None:
    """Where the query may end before it comes to a row, nothing that may fail is computed of it."""
    join = UNCERTAIN[name].format(fails=2 if "hash" in above else 15)
    if "hash" in above:  # the join itself must remain a nested loop
        lateral = r", LATERAL (SELECT FROM i2 WHERE i2.k = \1 OFFSET 0) AS l\2"
        join = re.sub(r" JOIN i2 ON i2\.k = (.*?)( WHERE|$)", lateral, join)
    if "ORDER" in CERTAIN[above]:
        join = join.replace("q.", "o.").replace(") q", ") o")
    query = CERTAIN[above].format(join)

    def steps(side: JoinSide) -> Any:
        side.make_cold()
        kinds = {"a hash join": "hashjoin", "a merge join": "mergejoin"}
        kind = next((kinds[key] for key in kinds if above.startswith(key)), "nestloop")
        seen = by_row(side, f"SET enable_{kind} = on", f"EXPLAIN {query}", query)
        assert "hash" not in above or "Hash Join" in str(seen[1]), seen[1]
        return seen[-1]

    found = same(joins, steps, ahead=None)
    if "merge" not in above:
        assert all(result[0] != "error" for result in found[:-1]), found


@pytest.mark.parametrize("change", ("DELETE FROM w", "UPDATE w SET k = k + 1000"))
def test_no_error_of_a_row_behind_one_that_others_delete(joins: JoinSides, change: str) -> None:
    """A snapshot sees a row that was deleted since: a LIMIT ends there, before a row for which the filter fails."""

    def steps(side: JoinSide) -> Any:
        side.run(
            "DROP TABLE IF EXISTS w",
            "CREATE TABLE w (id int, k int, v int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO w SELECT n * 3, n / 2, n % 2, repeat('x', 300) FROM generate_series(2, 601) AS n",
            "CREATE INDEX w_k ON w (k, id)",
            "VACUUM ANALYZE w",
        )
        with side.connect() as conn:
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            conn.execute("SELECT FROM w LIMIT 1")
            side.run(f"{change} WHERE v = 0 AND k > 100", "SELECT sum(v) FROM w")
            side.make_cold("w")
            return fetch(
                conn,
                "SELECT o.id, l.id FROM o, LATERAL (SELECT * FROM w WHERE w.k = o.id AND 10 / (w.v - 1) < 0 ORDER BY id LIMIT 1) AS l"
                " WHERE o.id <= 300",
            )

    assert len(same(joins, steps)) == 300


FAILING_KEYS = {
    "of a scan that is not begun": ("SELECT o.id, x.id FROM o, LATERAL (SELECT id FROM i2 WHERE i2.k = o.k"
    " UNION ALL SELECT id FROM t WHERE t.k = o.k AND t.k > 1 / $1 LIMIT 1) x", True),
    "of a row that is not come to": ("SELECT o.id, i2.id FROM o JOIN i2"
    " ON i2.k = CASE WHEN o.id < 8 THEN -1 WHEN o.id < 15 THEN o.k ELSE 1 / $1 END LIMIT 6", None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING_KEYS)
def test_no_error_of_a_key_without_a_value(joins: JoinSides, name: str) -> None:
    """What fails for all rows is not computed where the join does not come to it."""
    query, ahead = FAILING_KEYS[name]

    def steps(side: JoinSide) -> Any:
        generic = "SET plan_cache_mode = force_generic_plan"
        found: list[Any] = by_row(side, generic, f"PREPARE q (int) AS {query}", "EXECUTE q (0)")[-1]
        return found

    assert len(same(joins, steps, ahead)) > 6


# Settings


EVENTS = "SELECT e.id, i2.id FROM event e JOIN i2 ON i2.k = e.k WHERE "
AT_THEIR_TIME = {
    "a time ago": f"{EVENTS} e.at > now() - interval '200 days'",
    "today": f"{EVENTS} e.at >= current_date - 200",
    "a day of a time": f"{EVENTS} e.at::date >= current_date - 200 AND e.at_local::date < now() + interval '1 day'",
    "a local time": f"{EVENTS} e.at_local > localtimestamp - interval '200 days' AND e.at_local >= now() - interval '200 days'",
    "a month": f"{EVENTS} e.at > date_trunc('month', now() - interval '2 months')",
    "a field of a document": f"{EVENTS} e.doc ->> 'n' <> '7' AND e.doc @> '{{}}' AND e.doc ? 'n'",
    "the role": f"{EVENTS} e.doc ->> 'n' <> current_user",
    "keys": "SELECT o.id, e.id FROM o JOIN event e ON e.k = o.k AND e.at > now() - interval '200 days' AND e.at < current_date + 2",
    # in a partition, or on the inner side of a join, that has not returned a row yet
    "a partition": "SELECT e.id, i2.id FROM part e JOIN i2 ON i2.k = e.k WHERE e.at > date_trunc('month', now() - interval '2 months')",
    "an inner side": "SELECT e.id, i2.id FROM (SELECT event.* FROM o JOIN event ON event.k = o.k AND event.at > date_trunc('month', now() - interval '2 months') OFFSET 0) e JOIN i2 ON i2.k = e.k",
}  # fmt: skip


@pytest.mark.parametrize("name", AT_THEIR_TIME)
def test_what_depends_on_settings_only(joins: JoinSides, name: str) -> None:
    """Stable functions without a value of the row keep no join from looking ahead, if it runs to its end."""
    query = AT_THEIR_TIME[name]
    before = joins["forced"].stats()["joins"]
    same(joins, lambda side: by_row(side, query))
    assert joins["forced"].stats()["joins"] - before == 1 + (name == "an inner side")
    if query.startswith(EVENTS):
        same(joins, lambda side: by_row(side, query + " LIMIT 300"))


ZONES = (
    "set_config('timezone', CASE WHEN e.id % 20 < 10 THEN 'Asia/Tokyo' ELSE 'America/New_York' END, false)"
)
CHANGED = {
    "by the target list": f"SELECT {ZONES}, e.id, i2.id FROM event e JOIN i2 ON i2.k = e.k WHERE e.at > current_date - 200",
    "by a subplan": f"SELECT (SELECT {ZONES} OFFSET 0), i2.id FROM event e JOIN i2 ON i2.k = e.k WHERE e.at > current_date - 200",
    "by the join's filter": f"SELECT e.id, i2.id FROM event e LEFT JOIN i2 ON i2.k = e.k AND {ZONES} <> i2.id::text WHERE e.at > current_date - 200",
    "by a function of a user": "SELECT e.id, zoned(e.id) FROM event e JOIN i2 ON i2.k = e.k WHERE e.at > current_date - 200",
    "by the outer side": f"SELECT e.id, i2.id FROM event e JOIN i2 ON i2.k = e.k WHERE e.at > current_date - 200 AND {ZONES} <> ''",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_settings_that_change_between_two_rows(joins: JoinSides, name: str) -> None:
    """Where a query may change a setting itself, what depends on settings is not computed ahead."""
    same(joins, lambda side: by_row(side, "SET timezone = 'Asia/Tokyo'", CHANGED[name]), ahead=False)


# What a function of the query changes between two rows, besides settings: statements before it, and the query
REDEFINED = {
    "the name of an enum's value": (
        "CREATE TYPE colour AS ENUM ('red')",
        "CREATE TABLE painted AS SELECT id, k, 'red'::colour AS c FROM o WHERE id <= 300",
        "CREATE FUNCTION redefined(v int) RETURNS int LANGUAGE plpgsql AS $$"
        " BEGIN IF v = 100 THEN ALTER TYPE colour RENAME VALUE 'red' TO 'blue'; END IF; RETURN v; END $$",
        "SELECT p.c, redefined(p.id), i2.id FROM (SELECT id, k, c::text FROM painted OFFSET 0) AS p JOIN i2 ON i2.k = p.k",
    ),
    "a value of an enum": (
        "CREATE TYPE colour AS ENUM ('red')",
        "CREATE FUNCTION redefined(v int) RETURNS int LANGUAGE plpgsql AS $$"
        " BEGIN IF v = 1 THEN ALTER TYPE colour ADD VALUE 'blue'; END IF; RETURN v; END $$",
        "SELECT p.c, redefined(p.id), i2.id FROM (SELECT id, k, (CASE WHEN id > 2 THEN 'blue' ELSE 'red' END)::colour AS c"
        " FROM o WHERE id <= 300 OFFSET 0) AS p JOIN i2 ON i2.k = p.k",
    ),
    "a row of a catalog": (
        "DO $$ BEGIN FOR i IN 1..40 LOOP EXECUTE format('CREATE TABLE indexed%s (a int)', i); END LOOP; END $$",
        "CREATE FUNCTION redefined() RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF nextval('seq') = 1 THEN FOR i IN 1..40 LOOP"
        " EXECUTE format('CREATE INDEX ON indexed%s (a)', i); END LOOP; END IF; RETURN 0; END $$",
        "SELECT relhasindex, redefined(), i2.id FROM (SELECT relnatts::int AS n, relhasindex FROM pg_class"
        " WHERE oid >= 'indexed1'::regclass::oid AND relkind = 'r' OFFSET 0) AS c JOIN i2 ON i2.k = c.n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REDEFINED)
def test_what_is_redefined_between_two_rows(joins: JoinSides, name: str) -> None:
    """The values of an enum, and the rows of catalogs that are updated in place, are the same for all snapshots."""

    def steps(side: JoinSide) -> Any:
        side.run("ALTER SEQUENCE seq RESTART")
        *before, query = REDEFINED[name]
        seen = by_row(side, "BEGIN", *before, query, "ROLLBACK")[-2]
        assert seen[-2][0] != "error", seen
        return seen

    assert len(same(joins, steps, ahead=False)) > 30


def test_settings_that_change_between_two_fetches(joins: JoinSides) -> None:
    """A cursor computes ahead what depends on settings only while it runs to its end."""

    def steps(side: JoinSide) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("BEGIN")
            conn.execute(
                "DECLARE c NO SCROLL CURSOR FOR SELECT e.id, x.id FROM event e"
                " CROSS JOIN LATERAL (SELECT * FROM i2 WHERE i2.k = e.k AND i2.m < 20 OFFSET 0) x WHERE e.at::date <> e.day"
            )
            for zone in ("Asia/Tokyo", "America/New_York") * 10:
                conn.execute(f"SET timezone = '{zone}'")
                seen.append(fetch(conn, "FETCH 5 FROM c"))
        return seen

    same(joins, steps, ahead=None)


def test_time_of_a_statement_that_changes_between_two_fetches(joins: JoinSides) -> None:
    """statement_timestamp() is another one with each FETCH; as long is waited as a busy machine takes for the first ones."""
    query = "SELECT o.id FROM o JOIN i2 ON i2.k = o.k AND i2.m < 20 WHERE statement_timestamp() < %L OR o.id > 1500"

    def steps(side: JoinSide) -> list[Any]:
        with side.connect() as conn:
            for seconds in (0.2, 2, 20, 200):
                conn.execute("BEGIN")
                until = scalar(conn, f"SELECT (clock_timestamp() + interval '{seconds} s')::text")
                conn.execute(f"DECLARE c NO SCROLL CURSOR FOR {query.replace('%L', repr(until))}".encode())
                seen = [fetch(conn, "FETCH 5 FROM c") for _ in range(6)]
                if scalar(conn, f"SELECT statement_timestamp() < '{until}'"):
                    break
                conn.execute("ROLLBACK")
            conn.execute(f"SELECT pg_sleep({seconds})")
            return [*seen, fetch(conn, "FETCH 5 FROM c")]

    assert same(joins, steps, ahead=None)[-1][0][0] > 1500


# Portals that are idle


def inner_pins(side: JoinSide) -> int:
    """Of pages of inner sides; the sequential scan of an outer side pins a varying number of its coming pages."""
    pins_at_rest(side)
    return int(
        side.value(
            "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0 AND relfilenode IN"
            " (SELECT relfilenode FROM pg_class WHERE relname ~ '^(t|i2)(_|$)')"
            " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    )


JOINED = {
    "unique": "SELECT o.id FROM o JOIN i2 ON i2.k = o.k",
    "many": MANY,
    "chain": "SELECT i2.id FROM o JOIN t ON t.id = o.k JOIN i2 ON i2.k = t.k",
    "outer index scan": "SELECT o.id FROM (SELECT * FROM t WHERE k > 10 ORDER BY k OFFSET 0) o JOIN i2 ON i2.k = o.id",
}


# A nested loop does not turn round: the cursor would read what a Materialize node has kept.
IDLE = [
    (name, way)
    for name in JOINED
    for way in WAYS
    if not way.startswith("turned")
    and (name == "chain" or way in ("FETCH", "opened by a block", "WITH HOLD", "ROLLBACK TO"))
]


@pytest.mark.parametrize(("name", "way"), IDLE)
def test_idle_portal_pins_what_stock_pins(joins: JoinSides, name: str, way: str) -> None:
    """However a portal becomes idle, of a chain of joins in every way, nothing is held for coming rows, and all come."""
    pins = {}

    def steps(side: JoinSide) -> list[Any]:
        side.make_cold()
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET enable_sort = off")
            conn.execute("BEGIN")
            seen.append(WAYS[way](conn, JOINED[name]))
            pins[side.forced] = inner_pins(side)
            seen.append(fetch(conn, "FETCH 40 FROM c"))
            pins[side.forced] += inner_pins(side)
            seen.append(fetch(conn, "FETCH ALL FROM c"))
            conn.execute("COMMIT")
        seen.append(pins_at_rest(side))
        return seen

    seen = same(joins, steps)
    assert seen[-1] == 0 and len(seen[-2]) > 1000
    assert pins[True] <= pins[False]


def test_idle_portal_pins_no_page_of_rows_ahead(joins: JoinSides) -> None:
    """Rows of cached pages all over a table are ahead of an idle cursor, which pins the page of its last row only."""
    query = (
        "SELECT o.*, i2.id FROM (SELECT * FROM t WHERE k > 10 ORDER BY k OFFSET 0) o JOIN i2 ON i2.k = o.id"
    )
    pins: dict[bool, list[int]] = {}

    def steps(side: JoinSide) -> list[Any]:
        side.rows("SELECT count(pad) FROM t")
        side.make_cold("i2")
        with side.connect() as conn:
            conn.execute("SET enable_sort = off")
            conn.execute("SET pg_lookahead.index_scan = on")
            conn.execute("BEGIN")
            conn.execute(f"DECLARE c NO SCROLL CURSOR FOR {query}".encode())
            seen = []
            pins[side.forced] = []
            for _ in range(3):
                seen.append(fetch(conn, "FETCH 40 FROM c"))
                pins[side.forced].append(inner_pins(side))
            conn.execute("COMMIT")
        return seen

    same(joins, steps)
    assert pins[True] == pins[False]


@pytest.mark.parametrize("portion", (1, 7, 100))
def test_portal_in_portions(joins: JoinSides, portion: int) -> None:
    """Of two portals by the protocol, each pins between two portions what stock pins."""
    pins: dict[bool, list[int]] = {True: [], False: []}

    def steps(side: JoinSide) -> list[Any]:
        side.make_cold()
        portals = Portals(side)
        try:
            portals.query(f"{NESTED_LOOPS}; SET pg_lookahead.index_scan = off")
            portals.query(f"SET pg_lookahead.{'debug_force = on' if side.forced else 'nested_loop = off'}")
            portals.query("BEGIN")
            portals.declare("a", JOINED["unique"])
            portals.declare("b", JOINED["many"])
            seen = []
            for _ in range(5):
                for name in "ab":
                    seen.append(portals.rows(name, portion))
                    pins[side.forced].append(inner_pins(side))
            seen += [portals.rows("a", 0), portals.rows("b", 0)]
            portals.query("COMMIT")
        finally:
            portals.close()
        return seen

    same(joins, steps, ahead=None)
    assert all(ours <= stock for ours, stock in zip(pins[True], pins[False], strict=True)), pins


def test_query_that_stands_still_pins_what_stock_pins(joins: JoinSides) -> None:
    """While a query waits at a row in its midst, no page is pinned for those that come."""
    pins = {}
    for side in joins.values():
        side.make_cold()
        query = "SELECT count(q) FROM (SELECT o.id, CASE WHEN o.id = 700 THEN wait_here() END, i2.id FROM o JOIN i2 ON i2.m = o.m WHERE o.id < 900 OFFSET 0) AS q"
        with waiting(side, query):
            pins[side.forced] = inner_pins(side)
    assert pins[True] <= pins[False] and pins[False] > 0


# Keys of types that join_corpus.KEYS has not

KEYS = {
    "name = text": "y.n = x.c",
    "text = name": "y.c = x.n",
    "ANY of an array column": "y.a = ANY (x.array_)",
    "collation": "y.w = x.c",
    "long keys": "y.long = x.long",
    "char": "y.ch = x.ch",
    "uuid": "y.uu = x.uu",
    "float": "y.fl = x.a",
    "enum": "y.mood = x.mood AND y.a < x.a",
    "domain": "y.dom = x.dom",
    "domain and its type": "y.dom = x.l AND y.s = x.dom",
    "array": "y.array_ = x.array_",
    "composite": "y.pair >= x.pair AND y.a = x.a",
    "range": "y.ra = x.ra",
    "bits": "y.bits >= x.bits AND y.bits < x.bits || '1'",
    "document": "y.doc = x.doc",
}


@pytest.fixture(scope="module")
def keyed(joins: JoinSides) -> JoinSides:
    indexed = "a", "s", "n", "c", 'w COLLATE "C"', "long", "ch", "uu", "fl", "mood, a DESC", "dom", "array_", "pair", "ra", "bits"  # fmt: skip
    for side in joins.values():
        side.run(
            "CREATE TYPE mood AS ENUM ('sad', 'happy')",
            "ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'",
            "CREATE DOMAIN whole AS int CHECK (VALUE >= 0)",
            "CREATE TYPE pair AS (a int, b text)",
            "CREATE TABLE keys (id int, a int, l bigint, s smallint, n name, c text, array_ int[], w text, long text, ch char(5), uu uuid, fl float8,"
            " mood mood, dom whole, pair pair, ra int4range, bits varbit, doc jsonb, pad text)",
            "INSERT INTO keys SELECT i, CASE WHEN i % 9 <> 4 THEN i % 97 END, i % 97, i % 97, 'n' || i % 90, 'n' || i % 90,"
            " CASE WHEN i % 3 > 0 THEN ARRAY[i % 97, i % 50, NULL] END, 'n' || i % 90, repeat(md5((i % 90)::text), 60), i % 97,"
            " md5((i % 90)::text)::uuid, i % 97, (enum_range(NULL::mood))[i % 4], i % 97, ROW(i % 9, (i % 90)::text)::pair,"
            " int4range(i % 97, i % 97 + i % 5), (i % 90)::bit(8), jsonb_build_array(i % 90), repeat('x', 200) FROM generate_series(1, 700) AS i",
            *(f"CREATE INDEX ON keys ({columns})" for columns in indexed),
            *(f"CREATE INDEX ON keys USING hash ({column})" for column in ("dom", "doc")),
            "VACUUM ANALYZE keys",
        )  # fmt: skip
    return joins


@pytest.mark.parametrize("name", KEYS)
def test_keys(keyed: JoinSides, name: str) -> None:
    """Rows, their order, and the number of scans are stock's, whatever the keys are."""

    def steps(side: JoinSide) -> list[Any]:
        side.make_cold()
        joined = f"SELECT x.a, y.id FROM keys x LEFT JOIN keys y ON {KEYS[name]}"
        query = f"SELECT count(*), md5(string_agg(q::text, ',')) FROM ({joined}) AS q"
        with side.session("SET enable_seqscan = off") as one:
            return [one.rows(query), loops(one.plan(query))]

    same(keyed, steps, ahead=None)


# Counters


def test_reads_stay_at_the_inner_side(joins: JoinSides) -> None:
    """EXPLAIN shows the pages that were read ahead at the inner scan, as read, and not at the outer side."""

    def read(side: JoinSide) -> list[int]:
        side.make_cold()
        plan = side.plan(UNIQUE)
        return [node["Shared Read Blocks"] for node in (plan, *plan["Plans"])]

    same(joins, read)


# SERIALIZABLE


@pytest.mark.parametrize(
    "column, key, limit",
    (
        ("o.id", "k", " LIMIT 3"),
        ("o.id", "k", ""),
        ("o.id", "m", " LIMIT 3"),
        # the transaction goes on after the error, and keeps its predicate locks
        ("1 / (o.id - 40)", "k", ""),
    ),
)
def test_serializable(joins: JoinSides, column: str, key: str, limit: str) -> None:
    """A writer of a row that stock's join does not come to is no reason to fail; predicate locks are stock's."""
    query = f"SELECT {column}, i2.id FROM o JOIN i2 ON i2.{key} = o.{key} WHERE o.id BETWEEN 1 AND 300{limit}"

    def steps(side: JoinSide) -> list[Any]:
        side.run("CREATE TABLE IF NOT EXISTS other (n int)", "TRUNCATE other")
        seen: list[Any] = []
        with side.connect() as one, side.connect() as two:
            for conn in (one, two):
                conn.execute("SET enable_seqscan = off")
                conn.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            one.execute("SAVEPOINT s")
            seen.append(outcome_of(one, query))
            one.execute("ROLLBACK TO s")
            locks = "SELECT relation::regclass::text, locktype, page, tuple FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid() ORDER BY 1, 2, 3, 4"
            seen.append(fetch(one, locks))
            seen.append(fetch(two, "SELECT count(*) FROM other"))
            for statement in (
                "UPDATE o SET pad = 'two' WHERE id = 250",
                "UPDATE i2 SET pad = 'two' WHERE k = 250 * 37 % 6000",
            ):
                seen.append(outcome_of(two, statement))
            seen.append(outcome_of(one, "INSERT INTO other VALUES (1)"))
            seen += [outcome_of(two, "COMMIT"), outcome_of(one, "COMMIT")]
        side.run("VACUUM o", "VACUUM i2")
        return seen

    same(joins, steps, ahead=False)


# Tables that the query changes

CHANGING = {
    "target outside": "UPDATE w SET pad = 'new' FROM i2 WHERE i2.k = w.k AND w.m % 3 = 1",
    "target outside, by an index": "UPDATE w SET pad = 'new ' || i2.id FROM i2 WHERE i2.k = w.k AND w.id BETWEEN 100 AND 3000",
    "target inside": "UPDATE w SET pad = 'new' FROM o WHERE w.k = o.k",
    "target inside, many": "UPDATE w SET pad = 'new' FROM o WHERE w.m = o.m AND o.id < 90",
    "not HOT": "UPDATE w SET k = w.k + 10000 FROM o WHERE w.k = o.k",
    "joined with itself": "UPDATE w SET pad = 'new' FROM w x WHERE x.k = w.id AND x.id < 900",
    "DELETE": "DELETE FROM w USING o WHERE w.k = o.k",
    "MERGE": "MERGE INTO w USING o ON w.k = o.k WHEN MATCHED AND o.m < 30 THEN UPDATE SET pad = 'new' WHEN MATCHED THEN DELETE",
    "INSERT of itself": "INSERT INTO w SELECT x.id + 10000, y.k + 10000, x.m, x.pad FROM w x JOIN w y ON y.k = x.id",
}  # fmt: skip
LINE_POINTERS = "SELECT b, lp, lp_flags, t_ctid, t_infomask2 FROM generate_series(0, pg_relation_size('w') / 8192 - 1) AS b, heap_page_items(get_raw_page('w', b))"


@pytest.mark.parametrize("name", CHANGING)
def test_changed_tables(joins: JoinSides, name: str) -> None:
    """Row versions find their places, HOT or not, and pages are pruned, as with stock, in rounds."""

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "DROP TABLE IF EXISTS w",
            "CREATE TABLE w (id int, k int, m int, pad text) WITH (autovacuum_enabled = off, fillfactor = 80)",
            "INSERT INTO w SELECT n, n * 7919 % 6000, n % 60, repeat('x', 150) FROM generate_series(0, 5999) AS n",
            "CREATE UNIQUE INDEX w_k ON w (k)",
            "CREATE INDEX w_id ON w (id)",
            "CREATE INDEX w_m ON w (m)",
            "VACUUM ANALYZE w",
        )
        seen: list[Any] = []
        for _ in range(3):
            side.make_cold()
            with side.connect() as conn:
                seen.append(outcome_of(conn, CHANGING[name]))
                conn.execute("SELECT pg_stat_force_next_flush()")
            side.run("SELECT pg_stat_force_next_flush()")
            seen.append(side.rows(LINE_POINTERS))
            seen.append(
                side.rows(
                    "SELECT n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = 'w'"
                )
            )
            side.run("UPDATE w SET pad = 'between' WHERE id % 7 = 3")
        return seen

    same(joins, steps, ahead=None)


def test_pages_of_a_changed_table_are_pruned_in_their_turn(joins: JoinSides) -> None:
    """Pages have room once they are pruned, or have none; a page that is pruned early takes rows of those before it.

    None of the first pages is full, so that the free space map is asked when many rows may be ahead."""

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "DROP TABLE IF EXISTS w",
            "CREATE TABLE w (id int, k int, pad text STORAGE PLAIN) WITH (autovacuum_enabled = off)",
            "INSERT INTO w SELECT n, n * 7919 % 6000, repeat('x', 900) FROM generate_series(0, 799) AS n",
            "DELETE FROM w WHERE id % 8 >= 4 AND (id < 400 OR id % 16 >= 8)",
            "VACUUM ANALYZE w",  # the free space map keeps what these pages have room for
            "UPDATE w SET pad = repeat('y', 900) WHERE id < 400 OR id % 16 >= 8",
        )
        side.make_cold("i2")
        side.run("UPDATE w SET pad = repeat('z', 900) FROM i2 WHERE i2.k = w.k")
        seen = side.rows(LINE_POINTERS)
        side.make_cold("i2")  # the same join looks ahead where nothing is changed
        return [*seen, *side.rows("SELECT w.id FROM w JOIN i2 ON i2.k = w.k")]

    same(joins, steps)


# LIMIT


@pytest.mark.parametrize("limit", (1, 2, 4, 16, 64, 256))
@pytest.mark.parametrize("shape", ("unique", "many", "few match", "FETCH", "EXISTS"))
def test_limit_reads_little_for_nothing(joins: JoinSides, shape: str, limit: int) -> None:
    """Rows ahead are at most 2 more than have been handed out; where each row is wanted, none is for nothing."""
    queries = {
        "unique": f"SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k LIMIT {limit}",
        "many": f"SELECT o.id, i2.id FROM o JOIN i2 ON i2.m = o.m LIMIT {limit}",
        "few match": f"SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k AND i2.m % 10 = 1 LIMIT {max(1, limit // 10)}",
        "FETCH": f"SELECT o.id, i2.id FROM o JOIN i2 ON i2.k = o.k LIMIT {limit * 2}",
        "EXISTS": f"SELECT g, EXISTS (SELECT FROM o JOIN i2 ON i2.k = o.k WHERE o.id > g OFFSET {limit - 1}) FROM generate_series(1, 2) AS g",
    }
    blocks: dict[bool, list[int]] = {}

    def steps(side: JoinSide) -> Any:
        side.make_cold()
        with side.connect() as conn:
            conn.execute("SELECT count(*) FROM o WHERE id = 1")
            counts = "SELECT pg_stat_get_xact_tuples_returned('o'::regclass), pg_stat_get_xact_blocks_fetched('i2'::regclass)"
            conn.execute("BEGIN")
            if shape == "FETCH":
                conn.execute(f"DECLARE c CURSOR FOR {UNIQUE}".encode())
                rows = fetch(conn, f"FETCH {limit} FROM c")
                rows += fetch(conn, f"FETCH {limit} FROM c")
            else:
                rows = fetch(conn, queries[shape])
            found = fetch_row(conn, counts)
            blocks[side.forced] = list(found)
            conn.execute("COMMIT")
        return rows

    same(joins, steps, ahead=None)
    rows_off, blocks_off = blocks[False]
    rows_on, blocks_on = blocks[True]
    print(blocks)
    if shape == "unique":
        assert blocks[True] == blocks[False]
    else:
        # up to twice the rows, and two, were fetched; each costs a leaf page at most, and what is found on it
        assert rows_off <= rows_on <= 2 * rows_off + 4 * (3 if shape == "EXISTS" else 1)
        per_row = blocks_off / max(1, rows_off) + 1 if shape != "many" else 100
        assert blocks_on <= blocks_off + (rows_on - rows_off) * (per_row + 2)


def returned(conn: Connection, query: str, *relations: str) -> tuple[list[Any], int]:
    """The rows of a query, and how many rows its scans of relations have returned."""
    counts = (
        f"SELECT sum({relation_count('xact_tuples_returned')})::int FROM pg_class WHERE relname = ANY (%s)"
    )
    with conn.transaction():
        return fetch(conn, query), scalar(conn, counts, [list(relations)])


LEFT_EARLY = {
    "EXISTS": "SELECT n, EXISTS (SELECT FROM f JOIN i2 ON i2.k = f.k WHERE {} AND f.k >= n OFFSET 0) FROM generate_series(1, 3) AS n",
    "EXISTS, once": "SELECT EXISTS (SELECT FROM f JOIN i2 ON i2.k = f.k WHERE {} OFFSET 0)",
    "EXISTS of many": "SELECT n, EXISTS (SELECT FROM f JOIN i2 ON i2.k = f.k WHERE {} AND f.k <> n OFFSET 0) FROM generate_series(101, 130) AS n",
    "ANY": "SELECT n, 4 IN (SELECT f.k FROM f JOIN i2 ON i2.k = f.k WHERE {} AND f.k >= n OFFSET 0) FROM generate_series(1, 3) AS n",
    "semijoin": "SELECT n FROM generate_series(1, 3) AS n WHERE EXISTS (SELECT FROM f JOIN i2 ON i2.k = f.k WHERE {} AND f.k >= n)",
    "antijoin": "SELECT n FROM generate_series(1, 3) AS n WHERE NOT EXISTS (SELECT FROM f JOIN i2 ON i2.k = f.k WHERE {} AND f.k >= n)",
    "groups below a LIMIT": "SELECT q.k, count(*) FROM (SELECT f.k, f.a FROM f WHERE {} ORDER BY k OFFSET 0) q JOIN i2 ON i2.k = q.k GROUP BY q.k ORDER BY q.k LIMIT 1",
    "merge join": "SELECT x.id, q.k FROM (SELECT id FROM o WHERE id < 5 ORDER BY id OFFSET 0) AS x"
    " JOIN (SELECT f.k FROM f, LATERAL (SELECT FROM i2 WHERE i2.k = f.k OFFSET 0) AS y WHERE {} ORDER BY f.k OFFSET 0) AS q ON q.k = x.id",
    **{f"LIMIT {limit}, {joined}": f"SELECT f.k, i2.id FROM f JOIN i2 ON {joined} WHERE {{}} LIMIT {limit}" for joined in ("i2.k = f.k", "i2.m = f.k") for limit in (1, 5)},
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_EARLY)
def test_what_is_left_early_does_not_search_on(joins: JoinSides, name: str) -> None:
    """Where the outer side has a filter, which no row passes from somewhere on, the planner knowing nothing of that, no
    more of it is scanned than a LIMIT is known to need, and nothing ahead for a join that is left for another reason."""
    query = LEFT_EARLY[name].format("a = 1 AND b = 1")
    limit, ordered = name.startswith("LIMIT"), name in ("merge join", "groups below a LIMIT")
    rows, partners = (30, 10) if limit else (14, 1) if name == "EXISTS of many" else (6, 2)

    def steps(side: JoinSide) -> Any:
        # of the first rows, the last ones have a partner
        side.run(
            "CREATE TABLE f (k int, a int, b int) WITH (autovacuum_enabled = off)",
            f"INSERT INTO f SELECT CASE WHEN n < {rows - partners} THEN n - 99 ELSE n END,"
            f" (n < {rows} OR n % 2 = 0)::int, (n < {rows} OR n % 2 = 1)::int FROM generate_series(0, 5999) AS n",
            "CREATE INDEX ON f (k)" if ordered else "SELECT 1",
            "ANALYZE f",
        )
        with side.connect() as conn:
            if name == "merge join":
                conn.execute("SET enable_mergejoin = on; SET enable_nestloop = off; SET enable_sort = off")
            plan = str(fetch(conn, f"EXPLAIN {query}"))
            assert ("Merge Join" in plan) == (name == "merge join")
            assert ("GroupAggregate" in plan) == ("group" in name)
            side.make_cold()
            found = returned(conn, query, "f", "f_k_idx")
        side.run("DROP TABLE f")
        return found

    _, scanned = same(joins, steps, ahead=None if limit or ordered else False)
    assert scanned < 100 or not limit


def test_limit_above_gather(joins: JoinSides) -> None:
    """What the leader executes by itself is bounded as without a Gather node."""

    def steps(side: JoinSide) -> Any:
        side.make_cold()
        with side.session(PARALLEL, "SET max_parallel_workers = 0") as one:
            assert "Gather" in str(one.rows(f"EXPLAIN {UNIQUE} LIMIT 100"))
            return returned(one.conn, f"{UNIQUE} LIMIT 100", "o")

    same(joins, steps)


# Damage


def make_w(side: JoinSide) -> None:
    side.run(
        "DROP TABLE IF EXISTS w",
        "CREATE TABLE w (k int, pad text) WITH (autovacuum_enabled = off)",
        "INSERT INTO w SELECT n, repeat('x', 150) FROM generate_series(0, 5999) AS n",
        "CREATE INDEX w_k ON w (k)",
        "VACUUM ANALYZE w",
    )


def test_damage_that_stock_does_not_reach_is_no_error(joins: JoinSides) -> None:
    """Bad pages of the inner index or table: no error, nor a warning, for a row nobody asked for; else the server's."""

    def steps(side: JoinSide) -> list[Any]:
        make_w(side)
        seen: list[Any] = []
        for relation in ("w_k", "w"):
            damaged(side, spoil_block(3), relation)
            # the leaf page of block 3 has keys from about 700 on, and block 3 of the table those from 120 on
            for first in (0, 90, 100, 110, 115, 600, 660, 690, 700, 720, 730):
                for limit in (1, 5, 20):
                    side.evict("w", "w_k")
                    query = f"SELECT o.id, w.k FROM o JOIN w ON w.k = o.id WHERE o.id > {first} LIMIT {limit}"
                    seen.append(unnamed(by_row(side, query)))
            seen.append(unnamed(outcome(side.conn, "SELECT o.id, w.k FROM o JOIN w ON w.k = o.k")))
            side.evict("w", "w_k")
            side.run("CHECKPOINT", "REINDEX TABLE w" if relation == "w_k" else "SELECT 1")
        return seen

    seen = same(joins, steps, ahead=None)
    assert any("error" in one for one in seen) and any("error" not in one for one in seen)
    if (cluster := joins["forced"].cluster).version >= 18:
        # until 17, stock warns of checksums before each error, which the outcomes have
        assert not re.search(r"WARNING.*(page|checksum)", cluster.log)


def test_a_damaged_row_that_stock_does_not_reach_is_no_error(joins: JoinSides) -> None:
    """A filter is tried early for a row of the inner table whose transaction nobody knows; its page is sound."""

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "CREATE TABLE wd (k int, n int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO wd SELECT k, n, repeat('x', 700) FROM generate_series(1, 400) AS k, generate_series(1, 1 + (k > 100)::int) AS n",
            "CREATE INDEX wd_k ON wd (k, n)",
            "ANALYZE wd",
        )
        damaged_row(side, "wd", "k = 119 AND n = 1", unknown_transaction)
        seen: list[Any] = []
        for limit in (105, 110, 115, 120, 125, 130, 135, 140):
            side.evict("wd", "wd_k")
            inner = "SELECT n FROM wd WHERE wd.k = o.id AND wd.pad <> 'q' ORDER BY n LIMIT 2"
            seen.append(by_row(side, f"SELECT o.id, x.n FROM o, LATERAL ({inner}) AS x LIMIT {limit}"))
        side.run("DROP TABLE wd")
        return seen

    seen = same(joins, steps)
    assert "of transaction 3000000000" in str(seen[-1]) and "of transaction" not in str(seen[:-2])


TEXT = 28
"""Where the text of a row of od begins, which the server would otherwise read as 18 bytes."""
DAMAGED_TEXT: dict[str, bytes] = {
    "endless": b"\xfc\xff\xff\xff",
    "shorter than nothing": struct.pack("<I", 2 << 2),
    "compressed": struct.pack("<II", 20 << 2 | 2, 100) + b"\xff" * 12,
    "in a table that does not exist": struct.pack("<BBiIII", 1, 18, 100, 96, 4_000_000_000, 4_000_000_000),
}
LEFT_AT = 40
OF_DAMAGED = {
    "sequential scan": "SELECT od.id FROM od JOIN i2 ON i2.k = od.k",
    "filter of an index scan": "SELECT od.id FROM od JOIN i2 ON i2.k = od.k WHERE od.id > 0 AND od.c > 'a'",
    "key": "SELECT od.id FROM od JOIN oc ON oc.c = od.c",
    "key of an index scan": "SELECT od.id FROM od JOIN oc ON oc.c = od.c WHERE od.id > 0",
    "subplan": "SELECT od.id, (SELECT i2.id FROM i2 WHERE i2.k = od.k) AS s FROM od",
    "subplan behind a filter": "SELECT od.id FROM od WHERE od.c > 'a' AND (SELECT i2.id FROM i2 WHERE i2.k = od.k) >= 0",
    "whole rows": "SELECT od.id, od FROM od JOIN i2 ON i2.k = od.k",
}


def make_od(side: JoinSide, index: str) -> None:
    """Make a table whose rows have a partner in the table oc each; index: of it."""
    side.run(
        "DROP TABLE IF EXISTS od, oc",
        "CREATE TABLE od (id int, c text, k int) WITH (autovacuum_enabled = off)",
        "INSERT INTO od SELECT i, 'c' || lpad(i::text, 16, '0'), i FROM generate_series(1, 100) AS i",
        "CREATE TABLE oc AS SELECT id, c, repeat('x', 300) AS pad FROM od",
        f"CREATE INDEX od_id ON od {index}",
        "CREATE UNIQUE INDEX oc_c ON oc (c)",
        "VACUUM ANALYZE od, oc",
    )


@pytest.mark.parametrize("damage", (*DAMAGED_TEXT, "transaction"))
@pytest.mark.parametrize("name", OF_DAMAGED)
def test_a_damaged_outer_row_that_stock_does_not_reach_is_no_error(
    joins: JoinSides, name: str, damage: str
) -> None:
    """The row that follows the last one that is asked for is known, or near, but cannot be read."""

    def change(page: bytearray, at: int) -> None:
        if damage == "transaction":
            unknown_transaction(page, at)
        else:
            value = DAMAGED_TEXT[damage]
            page[at + TEXT : at + TEXT + len(value)] = value

    def steps(side: JoinSide) -> list[Any]:
        make_od(side, "(id)")
        damaged_row(side, "od", f"id = {LEFT_AT + 1}", change)
        side.evict("i2", "i2_k", "oc", "oc_c")
        with side.session("SET pg_lookahead.index_scan = on") as one:  # finds rows near
            one.run(f"SET enable_seqscan = {'off' if 'index' in name else 'on'}")
            query = f"SELECT q FROM ({OF_DAMAGED[name]} OFFSET 0) AS q WHERE q.id >= {{}} LIMIT 1"
            seen: list[Any] = [one.rows(query.format(LEFT_AT))]
            if damage in ("compressed", "in a table that does not exist", "transaction"):
                seen.append(unnamed(outcome(one.conn, query.format(LEFT_AT + 1))))
        return seen

    # all values of a whole row are fetched: none is ahead
    same(joins, steps, ahead=None if name == "whole rows" else True)


@pytest.mark.parametrize("damage", DAMAGED_TEXT)
def test_a_damaged_outer_entry_that_stock_does_not_reach_is_no_error(joins: JoinSides, damage: str) -> None:
    """What an index-only scan would return next stands in its entry, which is near, but cannot be read."""

    def steps(side: JoinSide) -> list[Any]:
        def change(page: bytearray) -> None:
            at = line_pointers(page)[LEFT_AT].offset + 12
            page[at : at + len(DAMAGED_TEXT[damage])] = DAMAGED_TEXT[damage]

        make_od(side, "(id) INCLUDE (c)")
        damaged_page(side, "od_id", 1, change)
        side.evict("oc", "oc_c")
        with side.session("SET pg_lookahead.index_scan = on; SET enable_seqscan = off") as one:
            query = "SELECT q FROM (SELECT od.id FROM od JOIN oc ON oc.c = od.c WHERE od.id > 0 OFFSET 0) AS q WHERE q.id >= {} LIMIT 1"
            assert "Index Only Scan using od_id" in str(one.rows("EXPLAIN " + query.format(LEFT_AT)))
            seen: list[Any] = [one.rows(query.format(LEFT_AT))]
            if damage in ("compressed", "in a table that does not exist"):
                seen.append(unnamed(outcome(one.conn, query.format(LEFT_AT + 1))))
        return seen

    same(joins, steps)


@pytest.mark.parametrize("kind", ("text", "jsonb"))
def test_damaged_inner_keys_that_stock_does_not_reach_are_no_error(joins: JoinSides, kind: str) -> None:
    """The leaf page of rows ahead has keys that cannot be decompressed; keys whose comparison may fail are left alone."""
    value, error = {
        "text": (DAMAGED_TEXT["compressed"], "compressed"),
        "jsonb": (b"\x0b\0\0\0\0", "unknown type of jsonb container"),
    }[kind]

    def steps(side: JoinSide) -> list[Any]:
        def change(page: bytearray) -> None:
            for pointer in line_pointers(page):
                page[pointer.offset + 8 : pointer.offset + 8 + len(value)] = value

        side.run(
            "DROP TABLE IF EXISTS od, oc",
            f"CREATE TABLE od (id int, c {kind}) WITH (autovacuum_enabled = off)",
            f"INSERT INTO od SELECT i, ('\"c' || lpad(i::text, 16, '0') || '\"')::{kind} FROM generate_series(1, 1000) AS i",
            "CREATE TABLE oc AS SELECT id, c, repeat('x', 300) AS pad FROM od",
            "CREATE UNIQUE INDEX oc_c ON oc (c)",
            "VACUUM ANALYZE od, oc",
        )
        first = side.value(
            "SELECT live_items - 1 FROM bt_page_stats('oc_c', 1)"
        )  # the last one is its high key
        damaged_page(side, "oc_c", 2, change)
        side.evict("oc", "oc_c")
        query = "SELECT q FROM (SELECT od.id FROM od JOIN oc ON oc.c = od.c OFFSET 0) AS q WHERE q.id >= {} LIMIT 1"
        return [side.rows(query.format(first)), unnamed(outcome(side.conn, query.format(first + 1)))]

    assert error in str(same(joins, steps, ahead=kind == "text")[1])


@pytest.mark.parametrize("relation", ("w_k", "w"))
def test_file_that_is_too_short(joins: JoinSides, relation: str) -> None:
    """Blocks beyond the end of a file are the server's error, in their turn."""

    def steps(side: JoinSide) -> list[Any]:
        make_w(side)
        blocks = side.value(f"SELECT pg_relation_size('{relation}') / 8192")

        def cut(path: Any) -> None:
            with path.open("r+b") as file:
                file.truncate((blocks // 2) * 8192)

        damaged(side, cut, relation)
        seen = []
        for query in (
            "SELECT o.id, w.k FROM o JOIN w ON w.k = o.k WHERE o.k < 2000 LIMIT 100",
            "SELECT o.id, w.k FROM o JOIN w ON w.k = o.k WHERE o.k < 4000",
            "SELECT o.id, w.k FROM o JOIN w ON w.k = o.k",
            "SELECT o.id, w.k FROM o JOIN w ON w.k = o.k * 3",
        ):
            side.evict("o")
            with side.connect() as conn:
                seen.append(unnamed(by_row_of(conn, query)))
        side.run("DROP TABLE w")
        return seen

    same(joins, steps, ahead=None)


# What happens between descent and arrival


# By kind of index, what is done before a join has found pages for rows ahead, and what between that and the rows' turn.
MEANWHILE = {
    "splits": ("btree", [], ["INSERT INTO w SELECT n, -n FROM generate_series(1, 23999) AS n"]),
    "deleted pages": (
        "btree", ["DELETE FROM w WHERE k BETWEEN 900 AND 5100"],
        ["VACUUM w", "VACUUM w", "INSERT INTO w SELECT 30000 + n, n FROM generate_series(1, 30000) AS n", "VACUUM w"],
    ),
    "some inserts": ("btree", [], ["INSERT INTO w SELECT n, -n FROM generate_series(1, 9000, 3) AS n", "VACUUM w"]),
    "emptied": ("btree", [], ["DELETE FROM w WHERE k > 3000", "VACUUM (TRUNCATE off) w"]),
    "splits of buckets": ("hash", [], ["INSERT INTO w SELECT n + 20000, -n FROM generate_series(1, 40000) AS n", "VACUUM w"]),
    "overflow pages": ("hash", [], ["INSERT INTO w SELECT n % 60, -n FROM generate_series(1, 9000) AS n", "VACUUM w"]),
    "emptied buckets": ("hash", [], ["DELETE FROM w WHERE k > 3000", "VACUUM w"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANWHILE)
@pytest.mark.parametrize("first", (1, 50, 300))
def test_index_changes_under_an_open_cursor(joins: JoinSides, name: str, first: int) -> None:
    """Pages that were found for rows ahead are split, or deleted and used again, before the rows' turn."""
    method, before, meanwhile = MEANWHILE[name]
    query = "SELECT o.id, w.v FROM o LEFT JOIN w ON w.k = o.k"

    def steps(side: JoinSide) -> list[Any]:
        side.run("DROP TABLE IF EXISTS w", "CREATE TABLE w (k int, v int) WITH (autovacuum_enabled = off)")
        side.run(
            "INSERT INTO w SELECT n * 2, n FROM generate_series(0, 11999) AS n",
            f"CREATE INDEX w_k ON w USING {method} (k)",
            "VACUUM ANALYZE w",
            *before,
        )
        side.make_cold()
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("BEGIN")
            conn.execute(f"DECLARE c CURSOR FOR {query}".encode())
            seen.append(fetch(conn, f"FETCH {first} FROM c"))
            side.run(*meanwhile)
            seen.append(fetch(conn, "FETCH 77 FROM c"))
            seen.append(fetch(conn, "FETCH ALL FROM c"))
            conn.execute("COMMIT")
        if method == "btree":
            side.rows("SELECT bt_index_check('w_k', true)")
        return [*seen, sorted(side.rows(query), key=str)]

    assert sum(map(len, same(joins, steps)[:3])) == 2000


# Memoize in between


@pytest.mark.parametrize("work_mem", ("4MB", "64kB"))
def test_memoize(joins: JoinSides, work_mem: str) -> None:
    """Its hits, misses and evictions are stock's, and keys that it has are not looked up ahead again and again."""

    def steps(side: JoinSide) -> list[Any]:
        with side.connect() as conn:
            conn.execute(f"SET enable_memoize = on; SET work_mem = '{work_mem}'".encode())
            side.make_cold()
            query = "SELECT count(*), md5(string_agg(q::text, ',')) FROM (SELECT o.id, i2.id FROM o JOIN i2 ON i2.m = o.m) AS q"
            seen: list[Any] = [fetch(conn, query)]
            row = fetch_row(conn, f"EXPLAIN (ANALYZE, TIMING off, SUMMARY off, FORMAT json) {query}")
            assert "Memoize" in json.dumps(row[0])
            found = dict(
                re.findall(
                    r'"(Cache (?:Hits|Misses|Evictions|Overflows)|Peak Memory Usage)": (\d+)',
                    json.dumps(row[0]),
                )
            )
            seen.append(found)
        return seen

    seen = same(joins, steps)
    assert int(seen[1]["Cache Hits"]) > 1000 or work_mem == "64kB"


def test_memoize_with_null_parameters(joins: JoinSides) -> None:
    """A parameter that is no key of the inner scan may be NULL, and its value then points nowhere."""
    query = (
        "SELECT o.id, q.id FROM nulls AS o,"
        " LATERAL (SELECT i2.id FROM i2 WHERE i2.m = o.m AND (o.z IS NULL OR i2.id % 3 = length(o.z)) OFFSET 0) AS q"
    )

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "CREATE TABLE nulls AS SELECT id, m, nullif((id % 3)::text, '0') AS z FROM o",
            "ANALYZE nulls",
        )
        with side.connect() as conn:
            conn.execute("SET enable_memoize = on")
            side.make_cold()
            assert "Memoize" in str(fetch(conn, f"EXPLAIN {query}"))
            return fetch(conn, query)

    assert len(same(joins, steps)) > 10_000


def test_hash_functions_that_are_not_the_servers_are_not_called_early(joins: JoinSides) -> None:
    """A type's hash function may do anything, and that of an array calls the function of its elements."""
    side = joins["forced"]
    side.run(
        "CREATE FUNCTION telling_hash(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'hash'; RETURN v; END $$",
        "CREATE OPERATOR CLASS telling_hash_ops FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 1 telling_hash(int)",
        "CREATE TABLE hashed AS SELECT n AS k, ARRAY[n] AS a FROM generate_series(1, 3000) AS n",
        "SET client_min_messages = warning",
        "CREATE INDEX ON hashed USING hash (k telling_hash_ops)",
        "CREATE INDEX ON hashed USING hash (a)",
        "ANALYZE hashed",
    )
    reasons = {
        "h.k = o.k": "index on a type of an extension",
        "h.a = o.a": "an index is on a type whose comparisons may fail",
    }
    for condition, reason in reasons.items():
        outer = "(SELECT k, ARRAY[k] AS a FROM o OFFSET 0) AS o"
        found = told(side, f"SELECT * FROM {outer} JOIN hashed AS h ON {condition}")
        assert f"Look-Ahead: not used ({reason})" in found, found


# A composite type is compared and hashed by functions of the server, which call those of its fields' types.
COMPOSITE = (
    "CREATE TYPE field AS (a int)",
    "CREATE FUNCTION field_hash(v field) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'hash %', v; RETURN v.a; END $$",
    "CREATE FUNCTION field_cmp(v field, w field) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE NOTICE 'compare % %', v, w; RETURN btint4cmp(v.a, w.a); END $$",
    "CREATE FUNCTION field_eq(v field, w field) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT v.a = w.a'",
    "CREATE OPERATOR =# (LEFTARG = field, RIGHTARG = field, FUNCTION = field_eq, HASHES)",
    "CREATE OPERATOR CLASS field_ops DEFAULT FOR TYPE field USING btree AS OPERATOR 3 =#, FUNCTION 1 field_cmp(field, field)",
    "CREATE OPERATOR CLASS field_ops DEFAULT FOR TYPE field USING hash AS OPERATOR 1 =#, FUNCTION 1 field_hash(field)",
    "CREATE TYPE composite AS (f field)",
    "CREATE TABLE grouped AS SELECT id, id / 3 AS third, ('x' || id)::tsvector AS v, ROW(ROW(id % 4))::composite AS r FROM o WHERE id <= 300",
    "ANALYZE grouped",
)
OF_COMPOSITE = {
    # a row is put into the hash table of one grouping set while the groups of another one are returned
    "grouping sets": ("SET LOCAL enable_hashagg = on", "SELECT count(*) AS n FROM grouped GROUP BY GROUPING SETS ((v), (r), (id))"),
    "count(DISTINCT)": ("SET LOCAL enable_presorted_aggregate = off", "SELECT count(DISTINCT r) AS n FROM grouped GROUP BY third"),
    "an order within an aggregate": ("SET LOCAL enable_presorted_aggregate = off", "SELECT count(id ORDER BY r) AS n FROM grouped GROUP BY third"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_COMPOSITE)
def test_functions_of_fields_are_not_called_early(joins: JoinSides, name: str) -> None:
    setting, outer = OF_COMPOSITE[name]
    query = f"SELECT loud(g.n::int), i2.id FROM ({outer}) AS g JOIN i2 ON i2.k = g.n"

    def steps(side: JoinSide) -> Any:
        seen = by_row(side, "BEGIN", *COMPOSITE, setting, query, "ROLLBACK")[-2]
        assert any("hash" in notice or "compare" in notice for notice in seen[-1]), seen
        return seen

    same(joins, steps, ahead=False)


ORDERED = {
    "DISTINCT above the join": f"SELECT count(DISTINCT q.id % 7) FROM ({UNIQUE} WHERE o.c LIKE '1%') AS q (id, inner_id)",
    "an order above the join": f"SELECT string_agg(q.c, ',' ORDER BY q.c DESC) FROM ({UNIQUE.replace('o.id', 'o.c')} WHERE o.c LIKE '1%') AS q (c, inner_id)",
    "DISTINCT outside": "SELECT q.n, i2.id FROM (SELECT m, count(DISTINCT c) + m AS n FROM o GROUP BY m) AS q JOIN i2 ON i2.k = q.n",
    "an order outside": "SELECT q.t, i2.id FROM (SELECT m, string_agg(c, ',' ORDER BY k) AS t FROM o GROUP BY m) AS q JOIN i2 ON i2.k = q.m",
}


@pytest.mark.parametrize("name", ORDERED)
def test_aggregates_that_sort_plain_values(joins: JoinSides, name: str) -> None:
    """They keep no join below or above from looking ahead, whatever it may depend on."""
    assert same(joins, lambda side: by_row(side, ORDERED[name]))[0][0][0] == "row"


# Memory


@pytest.mark.parametrize("width", (100_000, 3_000))
def test_wide_rows(joins: JoinSides, width: int) -> None:
    """Rows ahead take a share of work_mem, however wide they are, and the query goes on looking ahead."""
    used = {}

    def steps(side: JoinSide) -> Any:
        with side.connect() as conn:
            conn.execute("SET work_mem = '2MB'; SET pg_lookahead.max_distance = 512; SET enable_sort = on")
            wide = f"(SELECT n, repeat(md5(n::text), {width // 32}) AS big FROM generate_series(1, 900) AS n ORDER BY big) AS w"
            memory = "CASE WHEN n % 300 = 7 THEN (SELECT max(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'look-ahead rows' AND n > 0) END"
            side.evict("i2", "i2_k")
            rows = fetch(conn, f"SELECT n, md5(big), i2.id, {memory} FROM {wide} JOIN i2 ON i2.k = w.n")
            used[side.forced] = max((row[3] or 0) for row in rows)
            return [row[:3] for row in rows]

    side = joins["forced"]
    ahead = side.ahead(lambda: same(joins, steps))
    print(used, ahead)
    assert used[False] == 0 < used[True] <= 2 * 2**20 + 2 * width + 2**16
    if width == 3_000:
        assert ahead["rows"] > 800 and ahead["max_rows"] >= 0


def test_rows_that_are_too_wide_are_not_copied(joins: JoinSides) -> None:
    """Look-ahead ends where a row takes so much memory that no other one can be ahead: to copy rows takes longer than to read pages."""
    ticks = "SELECT split_part(pg_read_file('/proc/self/stat'), ' ', 14)::int + split_part(pg_read_file('/proc/self/stat'), ' ', 15)::int"
    times: dict[bool, int] = {}
    query = (
        "SELECT count(q.big), count(i2.pad) FROM (SELECT o.*, (SELECT repeat('x', 20000000)) AS big FROM o OFFSET 0) AS q"
        " JOIN i2 ON i2.k = q.k WHERE q.id < 800"
    )

    def steps(side: JoinSide) -> Any:
        with side.connect() as conn:
            side.make_cold()
            begun = fetch_row(conn, ticks)[0]
            rows = fetch(conn, query)
            times[side.forced] = fetch_row(conn, ticks)[0] - begun
            return rows

    same(joins, steps)
    assert times[True] < times[False] + 30, times


# Parallel workers


def test_workers_do_not_hoard(joins: JoinSides) -> None:
    """While one worker stands still at its first row, the other comes to nearly all of the other rows."""
    came = {name: rows_beside_one_that_stands(side) for name, side in joins.items()}
    print(came)
    assert came["off"] >= 145  # a stream of the server reads a few blocks ahead
    assert came["forced"] >= came["off"] - 4


def rows_beside_one_that_stands(side: JoinSide) -> int:
    side.run(
        "CREATE TABLE IF NOT EXISTS wide (id int, k int, pad text STORAGE PLAIN) WITH (parallel_workers = 2)",
        "TRUNCATE wide",
        "INSERT INTO wide SELECT n, n * 37, repeat('x', 5000) FROM generate_series(0, 149) AS n",
        "ANALYZE wide",
        "CREATE SEQUENCE IF NOT EXISTS gate",
        "CREATE OR REPLACE FUNCTION stand(id int) RETURNS bool VOLATILE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', pg_backend_pid(), id;"
        " IF id = 0 THEN WHILE (SELECT is_called FROM gate) LOOP PERFORM pg_sleep(0.01); END LOOP; END IF; RETURN true; END $$",
        "SELECT setval('gate', 1, true)",
    )
    with side.connect() as conn:
        conn.execute(f"{PARALLEL}; SET parallel_leader_participation = off".encode())
        query = "SELECT count(*) FROM wide w JOIN i2 ON i2.k = w.k AND stand(w.id + i2.m - i2.m)"
        plan = str(fetch(conn, f"EXPLAIN {query}"))
        assert "Workers Planned: 2" in plan and "Nested Loop" in plan, plan
        session = Session(conn)
        session.send(query)
        workers = f"SELECT count(*) FROM pg_stat_activity WHERE leader_pid = {conn.info.backend_pid}"
        # the one that stands has told of one row; the other ends when no row is left for it
        until(lambda: session.notices() > 1 and side.value(workers) == 1)
        side.run("SELECT setval('gate', 1, false)")
        (_, _, rows), notices = session.collect()
        assert rows == [(b"150",)] and len(notices) == 150
        seen = [str(notice).split() for notice in notices]
        (standing,) = (pid for pid, row in seen if row == "0")
        return sum(pid != standing for pid, _ in seen)


# Off


@pytest.mark.parametrize(
    "setting",
    (
        "pg_lookahead.enabled = off",
        "pg_lookahead.nested_loop = off",
        "pg_lookahead.max_distance = 0",
        "effective_io_concurrency = 0",
    ),
)
def test_turned_off(joins: JoinSides, setting: str) -> None:
    """The settings that turn look-ahead off do."""
    side = joins["forced"]
    for value, ahead in ((setting, False), ("application_name = ''", True)):
        with side.connect() as conn:
            conn.execute(f"SET {value}".encode())
            side.make_cold()
            before = side.stats()["joins"]
            conn.execute(UNIQUE.encode())
            assert (side.stats()["joins"] > before) == ahead


# Why a join does not look ahead, and what is left when rows ahead are not asked for

REASONS = {
    "SELECT nextval('seq'), o.k FROM o JOIN i2 ON i2.k = o.k": None,
    "SELECT * FROM (SELECT nextval('seq'), k FROM o OFFSET 0) AS o JOIN i2 ON i2.k = o.k": "outer side may have side effects",
    "SELECT * FROM o JOIN i2 ON i2.k = o.k WHERE 10 / (o.m + 1) >= 0": None,
    "SELECT * FROM o JOIN i2 ON i2.m = o.m WHERE 10 / (o.m + 1) >= 0 LIMIT 1000": "the query may not ask for all outer rows",
    "SELECT * FROM o JOIN i2 ON i2.k = length(format('%s', o.id))": "a key of the inner scan is not a plain value",
    "SELECT * FROM o JOIN i2 ON i2.k = o.k WHERE o.c LIKE '1%' AND o.m IN (1, 2)": None,
    "SELECT * FROM o JOIN i2 ON i2.k = o.k + 1": None,
    "SELECT * FROM o JOIN i2 ON i2.k = o.k::bigint": None,
    "SELECT * FROM o JOIN i2 ON i2.k = o.k OR i2.m = o.id LIMIT 1000": None,
    "SELECT * FROM o JOIN t ON t.p <@ box(point(o.k, 0), point(o.k + 1, 60))": "the inner index is neither btree nor hash",
    "SELECT * FROM (SELECT * FROM o FOR UPDATE) AS o JOIN i2 ON i2.k = o.k": "outer side locks rows",
    "WITH w AS (UPDATE o SET m = m RETURNING k) SELECT * FROM w JOIN i2 ON i2.k = w.k": "outer side changes data",
    "DELETE FROM o USING i2 WHERE i2.k = o.k AND o.m > 900": "outer side reads what the statement changes",
    "UPDATE i2 SET m = i2.m FROM o WHERE i2.k = o.k AND o.id < 900": None,
}  # fmt: skip


@pytest.mark.parametrize("query", REASONS)
def test_reasons(joins: JoinSides, query: str) -> None:
    """A join looks ahead, or says why it does not."""
    settings = f"SET pg_lookahead.writes = off; SET enable_bitmapscan = {'on' if ' OR ' in query else 'off'}"
    with sessions(joins, settings) as both:
        # other tests need tables of the same size on both sides, and what is undone makes them larger
        found = {name: told(side, query) for name, side in both.items()}["forced"]
    reason = REASONS[query]
    expected = "Look-Ahead: rows mean=" if reason is None else f"Look-Ahead: not used ({reason})"
    assert found and found[0].startswith(expected), found


def test_a_join_that_is_begun_again(joins: JoinSides) -> None:
    """A join in a subquery is left while it has rows ahead, and begun again with other parameters.

    Its outer side has no filter, so that rows are fetched ahead though a LIMIT may end it at any of them."""
    inner = "SELECT o.id, i2.m FROM by_m AS o JOIN i2 ON i2.k = o.k WHERE o.m = g AND i2.m % 7 = 3"
    queries = [
        query.format(outer)
        for outer in ("generate_series(0, 9)", "(SELECT n % 10 FROM generate_series(1, 50) AS n OFFSET 0)")
        for query in (
            f"SELECT * FROM {{}} AS s(g), LATERAL ({inner} LIMIT 1 + g % 4) AS t",
            f"SELECT g, (SELECT t.id FROM ({inner} LIMIT 1) AS t) FROM {{}} AS s(g)",
            f"SELECT g, EXISTS ({inner} OFFSET 0) FROM {{}} AS s(g)",
        )
    ]
    for side in joins.values():
        side.run(
            "CREATE TABLE by_m AS SELECT id, k, id % 10 AS m FROM o",
            "CREATE INDEX ON by_m (m)",
            "ANALYZE by_m",
        )

    def steps(side: JoinSide) -> list[Any]:
        seen = []
        with side.session("SET enable_seqscan = off") as one:
            one.run(f"SET pg_lookahead.index_scan = {side.forced}")
            for distance in (1, 2, 5, 512):
                one.make_cold()
                one.run(f"SET pg_lookahead.max_distance = {distance}")
                seen += [one.rows(query) for query in queries]
        return seen

    ahead = joins["forced"].ahead(lambda: same(joins, steps))
    # where index scans are left to the server, none can be told to look at a few entries only
    assert ahead["rows_unused"] > 0 or leaves_index_scans(joins["forced"].conn)


def test_added_columns(joins: JoinSides) -> None:
    """A column with a default that was added without a rewrite is there in copies of older rows, too."""

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "CREATE TABLE added AS SELECT * FROM o", "ALTER TABLE added ADD COLUMN extra text DEFAULT 'extra'"
        )
        return side.rows("SELECT added.*, i2.m FROM added JOIN i2 ON i2.k = added.k")

    assert {row[5] for row in same(joins, steps)} == {"extra"}


MARKED = "(k) WITH (deduplicate_items = off)"
DEAD = {
    "btree": (MARKED, "SELECT g, dying.id FROM generate_series(1, 300) AS g JOIN dying ON dying.k = g"),
    "hash": ("USING hash (k)", "SELECT g, dying.id FROM generate_series(1, 300) AS g JOIN dying ON dying.k = g"),
    "subplan": (MARKED, "SELECT g, (SELECT id FROM dying WHERE k = g AND n <> 7 LIMIT 1) FROM generate_series(1, 300) AS g"),
    "error": (MARKED, "SELECT g, dying.id FROM generate_series(1, 300) AS g JOIN dying ON dying.k = g WHERE 10 / (g - 40) IS NOT NULL"),
    "both sides": (MARKED, "SELECT v.id, dying.id FROM (SELECT * FROM dying WHERE k < 300 ORDER BY k OFFSET 0) AS v"
    " JOIN dying ON dying.k = CASE WHEN v.k % 10 = 6 THEN v.k + 40 ELSE v.k + 2000 END"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEAD)
def test_dead_entries_are_marked(joins: JoinSides, name: str) -> None:
    """The entries that stock marks are marked; not all of them by a statement that fails, nor at once where both sides scan the index."""
    index, query = DEAD[name]

    def steps(side: JoinSide) -> list[list[tuple[int, int]]]:
        side.run(
            "DROP TABLE IF EXISTS dying",
            "CREATE TABLE dying (id int, k int, n int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO dying SELECT i, i / 8, i * 31 % 700, repeat('x', 150) FROM generate_series(1, 6000) AS i",
            f"CREATE INDEX dying_k ON dying {index}",
            "ANALYZE dying",
            "DELETE FROM dying WHERE id % 3 = 1",
            "CHECKPOINT",
        )
        seen = []
        for _ in range(2):
            side.make_cold()
            by_row(side, query)
            seen.append(dead_entries(side.rows, "dying_k"))
        return seen

    stock, forced = steps(joins["off"]), []
    assert joins["forced"].ahead(lambda: forced.extend(steps(joins["forced"])))["joins"] > 0
    if name == "error":
        # The rows that were handed out bound the rows ahead, so the inner side was executed for five rows at least.
        assert all(
            one == other[: len(one)] and len(one) >= 13 for one, other in zip(forced, stock, strict=True)
        )
    elif name == "both sides":
        assert set(forced[0]) <= set(stock[0]) and forced[1] == stock[1]
    else:
        assert forced == stock
    assert len(stock[0]) >= 100

# ruff: noqa: E501
"""Nested loops that look ahead do what stock does where looking ahead would be easy to notice.

Each case is executed with look-ahead off, by default and forced, on cold caches; harm.py says what is compared.
The cases named here are those that a review found by reading; harm_corpus.py makes further ones.
Their number can be raised by $PG_LOOKAHEAD_HARM.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from conftest import MakeCluster
from differential import bad_lines
from harm import BAD, CONFIGS, SECONDS_LEAST, SERVER, Case, Seen, Side, harms, make_sides, seconds_for
from harm_corpus import HarmCorpus

Sides = dict[str, Side]
CASES = int(os.environ.get("PG_LOOKAHEAD_HARM", "160"))
TIMED_OUT = "57014"


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    """With direct I/O, so that reads are slow enough for joins to look ahead by default."""
    cluster = make_cluster(SERVER)
    if cluster.version >= 18:
        cluster.stop()
        cluster = make_cluster({**SERVER, "debug_io_direct": "data"})
    make_sides(cluster)
    found = {config: Side(cluster, config) for config in CONFIGS}
    yield found
    for side in found.values():
        side.session.connection.close()
    assert not bad_lines(cluster.log)


def executed(sides: Sides, case: Case) -> dict[str, Seen]:
    """What each side has seen, or the first side's complaint that something differs."""
    seen = {"off": sides["off"].execute(case, SECONDS_LEAST)}
    for config, side in sides.items():
        if config != "off":
            seen[config] = side.execute(case, seconds_for(seen["off"]))
    return seen


def unharmed(sides: Sides, case: Case) -> Seen:
    """What stock has seen of a case for which the other sides do no harm."""
    seen = executed(sides, case)
    found = [
        f"{config}: {harm}"
        for config, ours in seen.items()
        if config != "off"
        for harm in harms(case, config, seen["off"], ours)
    ]
    assert not found, "\n".join([*found, str(case)])
    return seen["off"]


def test_joins_do_look_ahead_here(sides: Sides) -> None:
    """Otherwise nothing below would show anything."""
    case = Case(["SELECT a.id, b.id FROM a JOIN b ON b.k = a.k"])
    unharmed(sides, case)
    looked = dict.fromkeys(sides, 0)
    for config, side in sides.items():
        # where others read at the same time, a judge may need several
        for _ in range(5 if config == "on" and side.direct else 1):
            before = side.looked_ahead()
            side.execute(case)
            looked[config] = max(looked[config], side.looked_ahead() - before)
    by_default = 1 if sides["on"].direct else looked["on"]
    assert looked == {"off": 0, "on": by_default, "forced": 1}


# Errors for rows that the query does not come to

# The row before the one that fails is the first that passes a filter of the join.
PAIR = "b.id * 0 + s.id >= 34 AND s::text || b.id <> ''"
EARLY = {
    "exists": f"SELECT EXISTS (SELECT 1 FROM ({{outer}} OFFSET 0) s JOIN b ON b.k = s.k WHERE {PAIR})",
    "exists in a row": f"SELECT a.id FROM a WHERE a.id < 4 AND EXISTS (SELECT 1 FROM ({{outer}} OFFSET 0) s JOIN b ON b.k = s.k WHERE {PAIR} AND a.id > 0)",
    "any": f"SELECT a.id, 0 <= ANY (SELECT b.id + a.g FROM ({{outer}} OFFSET 0) s JOIN b ON b.k = s.k WHERE {PAIR}) FROM a WHERE a.id < 4",
    "limit": "SELECT s, b.id FROM ({outer} OFFSET 0) s JOIN b ON b.k = s.k LIMIT 12",
    "limit of a filter": f"SELECT s.id, b.id FROM ({{outer}} OFFSET 0) s JOIN b ON b.k = s.k WHERE {PAIR} LIMIT 1",
    "anti": "SELECT count(*) FROM (SELECT s.id FROM ({outer} OFFSET 0) s WHERE NOT EXISTS (SELECT FROM b WHERE b.k = s.k AND b.id * 0 + s.id < 34 AND s::text || b.id <> '') LIMIT 1) q",
}
FAILING = {
    "a scalar sublink": "SELECT a.id, a.k, (SELECT dup.v FROM dup WHERE dup.k = a.x) AS e FROM a",
    "a scalar sublink that makes the key": "SELECT a.id, (SELECT dup.v FROM dup WHERE dup.k = a.x) AS k FROM a",
    "a scalar sublink in a filter": "SELECT a.id, a.k FROM a WHERE (SELECT dup.v FROM dup WHERE dup.k = a.x) > 0",
    "LIMIT": "SELECT a.id, a.k FROM a, LATERAL (SELECT 1 FROM dup WHERE dup.k >= a.id LIMIT a.n) l",
    "OFFSET": "SELECT a.id, a.k FROM a, LATERAL (SELECT 1 FROM dup WHERE dup.k >= a.id OFFSET a.n LIMIT 1) l",
    "LIMIT of a sublink": "SELECT a.id, a.k FROM a WHERE EXISTS (SELECT 1 FROM dup WHERE dup.k >= a.id OFFSET a.n)",
    "the test of IN": "SELECT a.id, a.k FROM a WHERE a.id < 35 OR current_setting('no.such') IN (SELECT dup.v::text FROM dup WHERE dup.k = a.x)",
    "the test of IN in a column": "SELECT a.id, a.k, CASE WHEN a.id = 35 THEN current_setting('no.such') IN (SELECT dup.v::text FROM dup WHERE dup.k = a.x) END AS e FROM a",
    "the test of ALL": "SELECT a.id, a.k FROM a WHERE a.id < 35 OR current_setting('no.such') >= ALL (SELECT dup.v::text FROM dup WHERE dup.k = a.x)",
    "ARRAY": "SELECT a.id, a.k FROM a WHERE 0 < ALL (ARRAY(SELECT 10 / a.z FROM dup WHERE dup.k = a.id OR dup.k = 3)) OR a.id > 0",
    "FILTER": "SELECT a.id, a.k, (SELECT count(current_setting('no.such')) FILTER (WHERE a.id = 35 AND dup.v > 0) FROM dup WHERE dup.k = a.id) AS e FROM a",
    "FILTER of groups": "SELECT id, min(k) AS k, count(current_setting('no.such')) FILTER (WHERE id = 35) AS e FROM (SELECT * FROM a ORDER BY id) a GROUP BY id",
    "collations": "SELECT a.id, a.k FROM a WHERE (a.ci < a.cp) IS NOT TRUE",
    "collations in a column": "SELECT a.id, a.k, a.ci || a.cp > a.cp || a.ci AS e FROM a",
    "circle": "SELECT a.id, a.k FROM a WHERE (a.circ < circle(point(0, 0), 1e9)) IS NOT NULL",
    "division": "SELECT a.id, a.k FROM a WHERE 10 / a.z >= 0",
    "a cast": "SELECT a.id, a.k FROM a WHERE a.v::int > 0",
    "overflow": "SELECT a.id, a.k FROM a WHERE a.big + 1 > 0",
    "a domain": "SELECT a.id, a.k, a.n::positive AS e FROM a",
    "a function of a user": "SELECT a.id, a.k FROM a WHERE picky(a.z) >= 0",
    "a window": "SELECT id, k, sum(10 / z) OVER (PARTITION BY id) AS e FROM (SELECT * FROM a ORDER BY id) a",
    "VALUES": f"SELECT v.id, a.k FROM (VALUES {', '.join(f'({i}, 1)' for i in range(1, 35))}, (35, date_part('no field', now()))) v (id, e) JOIN a ON a.id = v.id",
    "UNION ALL": "SELECT id, k, 0 AS e FROM a WHERE id < 35 UNION ALL SELECT id, k, 1 / z FROM a WHERE id >= 35",
    "unnest": "SELECT a.id, a.k, u FROM a, unnest(ARRAY[10 / a.z]) u",
    "a document": "SELECT a.id, a.k FROM a WHERE (a.j ->> 'n')::int > 0",
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("above", EARLY)
def test_no_error_of_rows_that_are_not_come_to(sides: Sides, above: str, name: str) -> None:
    """A query that ends before the row that fails succeeds, whatever fails."""
    seen = unharmed(sides, Case([EARLY[above].format(outer=FAILING[name])]))
    assert seen.error is None and len(seen.rows) > 1


GROUPED = {
    "groups": "SELECT a.id, count(*) FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL GROUP BY a.id LIMIT {n}",
    "groups of a semi join": "SELECT a.id, count(*) FROM a JOIN b ON b.k = a.k WHERE EXISTS (SELECT FROM b s WHERE s.m = a.m AND s.h > 15000) AND sqrt(a.n) IS NOT NULL GROUP BY a.id LIMIT {n}",
    "DISTINCT": "SELECT DISTINCT a.id FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL ORDER BY a.id LIMIT {n}",
    "DISTINCT ON": "SELECT DISTINCT ON (a.id) a.id, b.t FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL ORDER BY a.id LIMIT {n}",
    "a window": "SELECT a.id, count(*) OVER (PARTITION BY a.id) FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL LIMIT {n}",
    "a running window": "SELECT a.id, sum(b.h) OVER (ORDER BY a.id) FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL LIMIT {n}",
    "a run condition": "SELECT * FROM (SELECT a.id, row_number() OVER (ORDER BY a.id) AS rn FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL) q WHERE rn <= {n}",
    "a merge join": "SELECT dup.k, q.b FROM (SELECT k FROM dup WHERE k <= {n} ORDER BY k OFFSET 0) dup JOIN (SELECT a.id, b.id AS b FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL ORDER BY a.id OFFSET 0) q ON q.id = dup.k",
    "a join that matches several rows": "SELECT a.id, i.id FROM a JOIN b ON b.k = a.k JOIN b i ON i.m = b.m WHERE sqrt(a.n) IS NOT NULL LIMIT {n} * 39",
    "an offset": "SELECT a.id, b.id FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL LIMIT {n} - 10 OFFSET 10",
    "a LIMIT of a LIMIT": "SELECT * FROM (SELECT a.id, b.id AS b FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL LIMIT 100) q LIMIT {n}",
    "UNION ALL": "SELECT id, k FROM dead WHERE id <= 3 UNION ALL SELECT a.id, b.id FROM a JOIN b ON b.k = a.k WHERE sqrt(a.n) IS NOT NULL LIMIT {n} + 3",
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("n", (17, 30, 33))
def test_no_error_of_rows_that_a_node_does_not_ask_for(sides: Sides, n: int, name: str) -> None:
    """A node that needs only some of the rows is given these, and asks for no others."""
    seen = unharmed(
        sides, Case(["SET enable_seqscan = off", "SET enable_mergejoin = on", GROUPED[name].format(n=n)])
    )
    if name == "a merge join" and sides["off"].version >= 19:
        assert seen.error is not None  # its plan has the other input outside
    else:
        assert seen.error is None and len(seen.rows) > 1


JOINED = "({outer} OFFSET 0) s JOIN b ON b.k = s.k"
COMING_TO_IT = {
    "a query": [f"SELECT count(s), sum(b.id) FROM {JOINED}"],
    # a cursor that is fetched in parts returns the rows before the error
    "a cursor": [
        "BEGIN",
        f"DECLARE c NO SCROLL CURSOR FOR SELECT s, b.id FROM {JOINED}",
        *["FETCH 6 FROM c"] * 15,
    ],
}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("above", COMING_TO_IT)
def test_an_error_remains_an_error(sides: Sides, above: str, name: str) -> None:
    """What comes to the row that fails does so as on stock."""
    seen = unharmed(sides, Case([text.format(outer=FAILING[name]) for text in COMING_TO_IT[above]]))
    assert seen.error is not None and (above == "a query" or len(seen.rows) > 20)


# Effects of functions that are called stable or immutable

WHOLE = "SELECT loud(s.id), s, b.id FROM ({outer} OFFSET 0) s JOIN b ON b.k = s.k"
EFFECTS = {
    "jsonb_populate_record": "SELECT a.id, a.k, jsonb_populate_record(NULL::counted_row, jsonb_build_object('n', a.id)) AS e FROM a WHERE a.id < 90",
    "jsonb_populate_record of a constant": "SELECT a.id, a.k, jsonb_populate_record(NULL::counted_row, '{\"n\": 1}') AS e FROM a",
    "jsonb_populate_record of a constant in a filter": "SELECT a.id, a.k FROM a WHERE jsonb_populate_record(NULL::counted_row, '{\"n\": 1}') IS NOT NULL",
    "jsonb_populate_recordset of a constant": "SELECT a.id, a.k, q.n FROM a, jsonb_populate_recordset(NULL::counted_row, '[{\"n\": 1}]') q",
    "json_populate_record of a setting": "SELECT a.id, a.k, json_populate_record(NULL::counted_row, current_setting('my.json')::json) AS e FROM a",
    "record_in": "SELECT a.id, a.k, record_in('(1)', 'counted_row'::regtype, -1) AS e FROM a",
    "to_tsquery of a row": "SELECT a.id, a.k, to_tsquery('the ' || left(a.v, 0)) AS e FROM a",
    "plainto_tsquery": "SELECT a.id, a.k, plainto_tsquery('the') AS e FROM a",
    "table_to_xml": "SELECT a.id, a.k, query_to_xml('SELECT nextval(''seq'')', true, true, '') IS NULL AS e FROM a",
    "jsonb_to_record": "SELECT a.id, a.k, q.n FROM a, jsonb_to_record(jsonb_build_object('n', a.id)) AS q (n counted) WHERE a.id < 90",
    "a cast to a row": "SELECT a.id, a.k, ('(' || a.id || ')')::counted_row AS e FROM a WHERE a.id < 90",
    "a cast to a domain": "SELECT a.id, a.k, a.id::counted AS e FROM a WHERE a.id < 90",
    "a cast to an array of a domain": "SELECT a.id, a.k, ('{' || a.id || '}')::counted[] AS e FROM a WHERE a.id < 90",
    "to_tsquery": "SELECT a.id, a.k, to_tsquery('the') AS e FROM a WHERE a.id < 90",
    "to_tsquery in a filter": "SELECT a.id, a.k FROM a WHERE a.id < 90 AND to_tsquery('english', left('the ' || a.v, 3)) IS NOT NULL",
    "a stable function of a user": "SELECT a.id, a.k FROM a WHERE a.id < 90 AND murmur(a.id) > 0",
    "an immutable function of a user": "SELECT a.id, a.k, whisper(a.id) AS e FROM a WHERE a.id < 90",
    "a setting": "SELECT a.id, a.k, ('(' || a.id || ')')::kept_row AS e FROM a WHERE a.id < 90",
    "nextval": "SELECT a.id, a.k, nextval('seq') AS e FROM a WHERE a.id < 90",
    "an advisory lock": "SELECT a.id, a.k FROM a WHERE a.id < 90 AND pg_try_advisory_lock(a.id)",
}  # fmt: skip


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("above", (*EARLY, "cursor"))
def test_no_effect_of_rows_that_are_not_come_to(sides: Sides, above: str, name: str) -> None:
    """Sequences, notices, settings and locks are those of stock where a query is left early."""
    if name == "table_to_xml":
        _needs_xml(sides)
    statements = ["SET my.json = '{\"n\": 1}'"]
    if above == "cursor":
        query = f"SELECT s, b.id FROM ({EFFECTS[name]} OFFSET 0) s JOIN b ON b.k = s.k"
        statements += ["BEGIN", f"DECLARE c NO SCROLL CURSOR FOR {query}", "FETCH 20 FROM c", "FETCH 12 FROM c", "CLOSE c", "COMMIT"]  # fmt: skip
    else:
        statements.append(EARLY[above].format(outer=EFFECTS[name]))
    assert unharmed(sides, Case(statements)).error is None


def _needs_xml(sides: Sides) -> None:
    session = sides["off"].session
    session.send("SELECT '<a/>'::xml")
    if session.collect()[0][0] == "error":
        pytest.skip("the server was built without XML")


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_come_in_order(sides: Sides, name: str) -> None:
    """What the outer side does comes between what is done with its rows, as on stock."""
    if name == "table_to_xml":
        _needs_xml(sides)
    setting = "SET my.json = '{\"n\": 1}'"
    assert unharmed(sides, Case([setting, WHOLE.format(outer=EFFECTS[name])])).error is None


DIGITS = "CREATE FUNCTION digits(v int) RETURNS int VOLATILE LANGUAGE plpgsql AS $f$ BEGIN PERFORM set_config('extra_float_digits', (v % 3 - 5)::text, true), set_config('bytea_output', CASE WHEN v % 2 = 0 THEN 'hex' ELSE 'escape' END, true), set_config('quote_all_identifiers', (v % 2 = 0)::text, true); RETURN v; END $f$"
READ = "SELECT digits(s.id), s.e, b.id FROM (SELECT id, k, {} AS e FROM a WHERE id < 90 OFFSET 0) s JOIN b ON b.k = s.k"
FOUND_BY_REVIEW = {
    "digits of a number": [DIGITS, READ.format("(f / 7.0)::text")],
    "the text of bytes": [DIGITS, READ.format("convert_to(v, 'UTF8')::text")],
    "digits of a point": [DIGITS, READ.format("point(id / 7.0::float8, 0)::text")],
    "quoted names": [DIGITS, READ.format("quote_ident('x' || v)")],
    "xmax of the outer side": [
        "CREATE FUNCTION locks(w int) RETURNS int VOLATILE LANGUAGE plpgsql AS $f$ BEGIN PERFORM FROM a WHERE id = w FOR UPDATE; RETURN w; END $f$",
        "SELECT locks(s.id + 1), s.locked::text <> '0' FROM (SELECT id, k, xmax AS locked FROM a WHERE id < 90 OFFSET 0) s JOIN b ON b.k = s.k",
    ],
    "xmax of rows that are locked": [
        "SELECT x.id, x.xmax::text <> '0' FROM (SELECT id, g, xmax FROM a WHERE id < 60 ORDER BY id) x JOIN a y ON y.id = x.id + 1 FOR UPDATE OF y LIMIT 12",
    ],
    "casts of an enum": [
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE FUNCTION mood_json(mood) RETURNS jsonb LANGUAGE plpgsql AS $f$ BEGIN RETURN to_jsonb(nextval('seq')); END $f$",
        "CREATE CAST (mood AS jsonb) WITH FUNCTION mood_json(mood)",
        "SELECT nextval('seq'), s.e FROM (SELECT id, k, jsonb_build_object('t', ts, 'm', CASE WHEN id > 3 THEN 'ok' ELSE 'sad' END::mood)::text AS e FROM a WHERE id < 90 OFFSET 0) s JOIN b ON b.k = s.k",
        "SELECT nextval('seq'), s.e FROM (SELECT id, k, (SELECT jsonb_agg(CASE WHEN g > a.id THEN 'ok' ELSE 'sad' END::mood)::text FROM generate_series(1, 2) AS g) AS e FROM a WHERE id < 90 OFFSET 0) s JOIN b ON b.k = s.k",
    ],
    "a record that is not assigned": [
        "SET LOCAL enable_seqscan = off",
        "DO $d$ DECLARE r record; n int; BEGIN FOR i IN 1..2 LOOP IF i = 1 THEN SELECT 99 AS f INTO r; ELSE r := NULL; END IF;"
        " SELECT count(*) INTO n FROM generate_series(1, 1) WHERE EXISTS (SELECT FROM (SELECT * FROM a WHERE a.id > 0 AND (a.x < 140 OR a.x = r.f) ORDER BY a.id OFFSET 0) s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id > 33);"
        " RAISE NOTICE '%', n; END LOOP; END $d$",
    ],
    "comparisons of a sort that merges": [
        "CREATE FUNCTION told(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM nextval('seq'); RETURN btint4cmp($1, $2); END $f$",
        "CREATE FUNCTION told_lt(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT told($1, $2) < 0'",
        "CREATE OPERATOR <<< (LEFTARG = int, RIGHTARG = int, FUNCTION = told_lt)",
        "CREATE OPERATOR CLASS told_ops FOR TYPE int USING btree AS OPERATOR 1 <<<, OPERATOR 3 =, FUNCTION 1 told(int, int)",
        "SET LOCAL work_mem = '64kB'",
        "SELECT EXISTS (SELECT FROM (SELECT * FROM b WHERE id < 5000 ORDER BY id USING <<< OFFSET 0) s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id > 4000)",
    ],
    "a recursion without an end, and an error": [
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT r.n, 1 / (b.k - 50) FROM r JOIN b ON b.k = r.n WHERE r.n < 60",
    ],
    "notices of a text search query before an error": [
        "SELECT 1 / (s.id - 20), b.id FROM (SELECT id, k FROM a WHERE to_tsquery('english', left('the ' || v, 3)) IS NOT NULL OFFSET 0) s JOIN b ON b.k = s.k",
    ],
    "comparisons of a range of a user before an error": [
        "CREATE FUNCTION told(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN RAISE NOTICE '%, %', $1, $2; RETURN btint4cmp($1, $2); END $f$",
        "CREATE OPERATOR CLASS told_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 told(int, int)",
        "CREATE TYPE told_range AS RANGE (SUBTYPE = int, SUBTYPE_OPCLASS = told_ops)",
        "CREATE TABLE ranges AS SELECT id, k, told_range(id, NULL) AS r FROM a",
        "SELECT 1 / (s.id - 20), b.id FROM (SELECT id, k FROM ranges WHERE r > '[0,]' OFFSET 0) s JOIN b ON b.k = s.k",
    ],
    "partitions found by a function of a user": [
        "CREATE FUNCTION told_hash(int, int8) RETURNS int8 LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM nextval('seq'); RETURN $1; END $f$",
        "CREATE OPERATOR CLASS told_hash_ops FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 2 told_hash(int, int8)",
        "CREATE TABLE hp (id int, k int) PARTITION BY HASH (k told_hash_ops)",
        "CREATE TABLE hp0 PARTITION OF hp FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE hp1 PARTITION OF hp FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO hp SELECT id, k FROM a",
        "CREATE INDEX ON hp (k)",
        "SELECT nextval('seq'), s.id FROM (SELECT a.id, hp.k FROM a JOIN hp ON hp.k = a.k WHERE a.id < 90 OFFSET 0) s JOIN b ON b.k = s.k",
    ],
    "defaults of a type that cannot be sorted": [
        "CREATE FUNCTION told_json(json, json) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN PERFORM nextval('seq'); RETURN bttextcmp($1::text, $2::text); END $f$",
        *(f"CREATE FUNCTION told_json{name}(json, json) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT told_json($1, $2) {name_op} 0'" for name, name_op in (("_lt", "<"), ("_eq", "="), ("_gt", ">"))),
        *(f"CREATE OPERATOR {op} (LEFTARG = json, RIGHTARG = json, FUNCTION = told_json{name})" for name, op in (("_lt", "<#"), ("_eq", "=#"), ("_gt", ">#"))),
        "CREATE OPERATOR CLASS told_json_ops DEFAULT FOR TYPE json USING btree AS OPERATOR 1 <#, OPERATOR 3 =#, OPERATOR 5 >#, FUNCTION 1 told_json(json, json)",
        "SELECT nextval('seq'), s.e FROM (SELECT id, k, greatest(v::json, json '1')::text AS e FROM a WHERE id < 30 OFFSET 0) s JOIN b ON b.k = s.k",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND_BY_REVIEW)
def test_what_a_review_found(sides: Sides, name: str) -> None:
    """Rows, sequences and notices are those of stock, and what succeeds there does so."""
    seen = unharmed(sides, Case(["BEGIN", *FOUND_BY_REVIEW[name], "ROLLBACK"]))
    assert (seen.error is None) == ("an error" not in name), seen.error


ZONES = "('(' || CASE WHEN {id} % 20 < 10 THEN 'Asia/Tokyo' ELSE 'America/New_York' END || ')')::zone_row"
CHANGED = {
    "on the inner side": f"SELECT s.id, s.local, b.id FROM (SELECT id, k, ts::timestamptz AS local FROM a OFFSET 0) s JOIN b ON b.k = s.k AND {ZONES.format(id='b.id')} IS NOT NULL",
    "on the inner side, read by a filter": f"SELECT s.id, b.id FROM (SELECT id, k FROM a WHERE (t::timestamptz + make_interval(hours => id))::date <> '2026-03-10' OFFSET 0) s JOIN b ON b.k = s.k AND {ZONES.format(id='b.id')} IS NOT NULL",
    "by the join": f"SELECT s.id, b.id FROM (SELECT id, k FROM a WHERE (ts::timestamptz AT TIME ZONE 'UTC')::date <> '2026-03-10' OFFSET 0) s LEFT JOIN b ON b.k = s.k AND {ZONES.format(id='b.id + s.id')} IS NOT NULL",
    "by a column": f"SELECT s.id, s.local, b.id, {ZONES.format(id='b.id')} FROM (SELECT id, k, ts::timestamptz AS local FROM a OFFSET 0) s JOIN b ON b.k = s.k",
    "by jsonb_populate_record": "SELECT s.id, s.local, b.id, jsonb_populate_record(NULL::zone_row, jsonb_build_object('z', CASE WHEN b.id % 20 < 10 THEN 'Asia/Tokyo' ELSE 'UTC' END))"
    " FROM (SELECT id, k, ts::timestamptz AS local FROM a OFFSET 0) s JOIN b ON b.k = s.k",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_that_a_domain_changes(sides: Sides, name: str) -> None:
    """What depends on a setting is computed when stock computes it."""
    assert unharmed(sides, Case([CHANGED[name]])).error is None


# The next outer row may be far away

RECURSIVE = "WITH RECURSIVE r (id, k) AS (SELECT 1, 1 UNION ALL {step})"
ENDLESS = RECURSIVE.format(step="SELECT id + 1, (k * 5 + 7) % 16000 FROM r WHERE {condition}")

# 20 rows are near; that of number {first} is the first that passes a filter of the join.
FAR_ROWS = {
    "an index condition that bounds nothing": "(SELECT f.a AS id, f.k FROM far f WHERE f.b = 1 AND f.a > 0 ORDER BY f.a)",
    "the same in an index-only scan": "(SELECT f.a AS id, f.a * 5 % 16000 AS k FROM far f WHERE f.b = 1 AND f.a > 0 ORDER BY f.a)",
    "the same in a subquery": "(SELECT f.a AS id, f.k FROM far f WHERE f.b = 1 AND f.a > 0 ORDER BY f.a OFFSET 0)",
    "a filter that finds no more": "(SELECT f.a AS id, f.k FROM far f WHERE f.b = 1)",
    "a dead tail of a table": "dead",
    "a dead tail in a subquery": "(SELECT * FROM dead OFFSET 0)",
    "UNION ALL with a long tail": "(SELECT id, k FROM a WHERE id <= 20 UNION ALL SELECT a, k FROM far WHERE b = 1 AND a > 20)",
    "DISTINCT": "(SELECT DISTINCT ON (a) a AS id, k FROM far WHERE b = 1 OR a > 59990 ORDER BY a)",
    "groups": "(SELECT a AS id, min(k) AS k FROM far WHERE b = 1 GROUP BY a)",
    "a recursion without an end": f"({ENDLESS.format(condition='true')} SELECT * FROM r WHERE id <= 20)",
    "a recursion without an end, rows without an end": f"({ENDLESS.format(condition='true')} SELECT * FROM r)",
    "a recursion whose rows are NULL": f"({ENDLESS.format(condition='true')} SELECT id, CASE WHEN id <= 20 THEN k END AS k FROM r)",
    "a join that finds no more": "(SELECT f.a AS id, f.k FROM far f JOIN dup ON dup.k = f.a AND dup.v <= 20 OFFSET 0)",
    "a window": "(SELECT a AS id, k, row_number() OVER (ORDER BY a) AS rn FROM far WHERE b = 1)",
    "a LIMIT that is not reached": "(SELECT a AS id, k FROM far WHERE b = 1 ORDER BY a LIMIT 25)",
    "a series": "(SELECT g AS id, g * 7 % 16000 AS k FROM generate_series(1, 60000) g WHERE g <= 20)",
}
FAR_ENDS = {
    "limit": "SELECT s.id, b.id FROM {outer} s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id >= {first} LIMIT 1",
    "limit of all": "SELECT s.id, b.id FROM {outer} s JOIN b ON b.k = s.k LIMIT {first}",
    "left": "SELECT s.id, b.id FROM {outer} s LEFT JOIN b ON b.k = s.k WHERE b.id * 0 + s.id >= {first} LIMIT 1",
    "exists": "SELECT EXISTS (SELECT FROM {outer} s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id >= {first})",
    "exists in a row": "SELECT a.id FROM a WHERE a.id < 4 AND EXISTS (SELECT FROM {outer} s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id >= {first} AND s.id > a.id)",
    "CTE": "WITH c AS MATERIALIZED (SELECT s.id, b.id AS other FROM {outer} s JOIN b ON b.k = s.k) SELECT EXISTS (SELECT FROM c WHERE id >= {first})",
    "CTE with two readers": "WITH c AS MATERIALIZED (SELECT s.id, b.id AS other FROM {outer} s JOIN b ON b.k = s.k) SELECT EXISTS (SELECT FROM c WHERE id >= {first}), (SELECT id FROM c LIMIT 1)",
    "semi": "SELECT s.id FROM {outer} s WHERE EXISTS (SELECT FROM b WHERE b.k = s.k AND b.id * 0 + s.id >= {first}) LIMIT 1",
    "cursor": "DECLARE c NO SCROLL CURSOR FOR SELECT s.id, b.id FROM {outer} s JOIN b ON b.k = s.k WHERE s.id <> b.id",
    "loop": "DO $$ DECLARE r record; BEGIN FOR r IN SELECT s.id, b.id AS other FROM {outer} s JOIN b ON b.k = s.k LOOP EXIT WHEN r.id >= {first}; END LOOP; RAISE NOTICE '%', r; END $$",
    "scalar": "SELECT a.id, (SELECT b.id FROM {outer} s JOIN b ON b.k = s.k WHERE b.id * 0 + s.id >= {first} LIMIT 1) FROM a WHERE a.id < 4",
}  # fmt: skip


# Where 18 rows are wanted, two more are near when the query ends, which each end and each kind of rows has once.
# PL/pgSQL asks for rows that do not come.
FAR = [
    (first, end, name)
    for first in (18, 20)
    for end in FAR_ENDS
    for name in FAR_ROWS
    if not (end == "loop" and name in ("a recursion without an end", "a recursion whose rows are NULL"))
    and (first == 20 or end == "CTE" or name == "a filter that finds no more")
]


@pytest.mark.parametrize(("first", "end", "name"), FAR)
def test_no_search_for_the_next_row(sides: Sides, first: int, end: str, name: str) -> None:
    """A query that has what it wants does not search on, however many rows lie ahead, or none."""
    statements = ["BEGIN"]
    if name not in ("a filter that finds no more", "a dead tail of a table", "a dead tail in a subquery"):
        statements.append("SET enable_seqscan = off")
    statements.append(FAR_ENDS[end].format(outer=FAR_ROWS[name], first=first))
    if end == "cursor":
        statements += [f"FETCH {first - 2} FROM c", "FETCH 2 FROM c", "CLOSE c"]
    seen = unharmed(sides, Case([*statements, "COMMIT"]))
    assert seen.error is None and seen.rows, seen.error


# Nodes that end an inner scan early

LATERAL = "SELECT a.id, l.* FROM a CROSS JOIN LATERAL ({inner}) l WHERE a.id <= 400"
ENDED = {
    "LIMIT 1": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m ORDER BY b.ts DESC LIMIT 1"),
    "LIMIT 2 of a filter": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m AND b.t <> 'n7' ORDER BY b.ts DESC LIMIT 2"),
    "LIMIT of the row": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m ORDER BY b.ts DESC LIMIT abs(a.n)"),
    "OFFSET and LIMIT": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m ORDER BY b.ts DESC LIMIT 1 OFFSET 1"),
    "row_number": LATERAL.format(inner="SELECT * FROM (SELECT b.id, b.h, row_number() OVER (ORDER BY b.ts DESC) AS rn FROM b WHERE b.m = a.m) q WHERE rn <= 1"),
    "rank": LATERAL.format(inner="SELECT * FROM (SELECT b.id, b.h, rank() OVER (ORDER BY b.ts DESC) AS rn FROM b WHERE b.m = a.m) q WHERE rn < 3"),
    "DISTINCT ON": LATERAL.format(inner="SELECT DISTINCT ON (b.m) b.id, b.h FROM b WHERE b.m = a.m ORDER BY b.m, b.ts DESC"),
    "DISTINCT and LIMIT": LATERAL.format(inner="SELECT DISTINCT b.ts, b.h FROM b WHERE b.m = a.m ORDER BY b.ts DESC LIMIT 1"),
    "GROUP and LIMIT": LATERAL.format(inner="SELECT b.ts, min(b.h) FROM b WHERE b.m = a.m GROUP BY b.ts ORDER BY b.ts DESC LIMIT 1"),
    "max": LATERAL.format(inner="SELECT max(b.ts) FROM b WHERE b.m = a.m"),
    "EXISTS": "SELECT a.id FROM a WHERE a.id <= 400 AND EXISTS (SELECT FROM b WHERE b.m = a.m AND b.h >= 0)",
    "EXISTS in a column": "SELECT a.id, EXISTS (SELECT FROM b WHERE b.m = a.m AND b.h >= 0) FROM a WHERE a.id <= 400",
    "NOT EXISTS": "SELECT a.id FROM a WHERE a.id <= 400 AND NOT EXISTS (SELECT FROM b WHERE b.m = a.m AND b.h >= 0)",
    "a scalar sublink": "SELECT a.id, (SELECT b.h FROM b WHERE b.m = a.m ORDER BY b.ts DESC LIMIT 1) FROM a WHERE a.id <= 400",
    "partitions": LATERAL.format(inner="SELECT bp.id, bp.ts FROM bp WHERE bp.m = a.m ORDER BY bp.ts DESC LIMIT 1"),
    "UNION ALL": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m UNION ALL SELECT bp.id, bp.ts FROM bp WHERE bp.m = a.m LIMIT 1"),
    "a join below a LIMIT": LATERAL.format(inner="SELECT b.id, c.id AS other FROM b JOIN b c ON c.k = b.h WHERE b.m = a.m ORDER BY b.ts DESC LIMIT 1"),
    "a hash index": LATERAL.format(inner="SELECT q.id, q.ts FROM b q WHERE q.h = a.k LIMIT 1"),
    "a cursor in a subquery": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m ORDER BY b.ts DESC FETCH FIRST ROW ONLY"),
    "EXISTS of a filter": "SELECT a.id FROM a WHERE a.id <= 400 AND EXISTS (SELECT FROM b WHERE b.m = a.m AND hashint4(b.id) % 4 = 1)",
    "LIMIT 1 of a filter": LATERAL.format(inner="SELECT b.id, b.ts FROM b WHERE b.m = a.m AND hashint4(b.id) % 7 = 1 ORDER BY b.ts DESC LIMIT 1"),
}  # fmt: skip


# The filter fails for rows behind the first that passes, or for outer rows that the query does not come to.
FAILING_FILTERS = {
    "EXISTS": "SELECT a.id FROM a WHERE EXISTS (SELECT FROM b WHERE b.m = a.m AND 100 / (400 + b.m - b.id) >= 0)",
    "a subplan": "SELECT a.id, (SELECT b.id FROM b WHERE b.m = a.m AND 100 / (400 + b.m - b.id) >= 0 ORDER BY b.ts LIMIT 1) FROM a",
    "LIMIT 1": "SELECT a.id, q.id FROM a, LATERAL (SELECT b.id FROM b WHERE b.m = a.m AND 100 / (400 + b.m - b.id) >= 0 ORDER BY b.ts LIMIT 1) q",
    "LIMIT 2": "SELECT a.id, q.id FROM a, LATERAL (SELECT b.id FROM b WHERE b.m = a.m AND 100 / (800 + b.m - b.id) >= 0 ORDER BY b.ts LIMIT 2) q",
    "LIMIT of a join": "SELECT a.id, q.* FROM a, LATERAL (SELECT b.id, g FROM b JOIN generate_series(1, 9) g ON b.m >= 0 WHERE b.m = a.m AND 100 / (400 + b.m - b.id) >= 0 ORDER BY b.ts LIMIT 4) q",
    "LIMIT of a set": "SELECT a.id, q.* FROM a, LATERAL (SELECT b.id, generate_series(1, 9) FROM b WHERE b.m = a.m AND 100 / (400 + b.m - b.id) >= 0 ORDER BY b.ts LIMIT 4) q",
    "a LIMIT above": f"SELECT s.id FROM (SELECT a.id FROM a ORDER BY a.id OFFSET 0) s WHERE EXISTS (SELECT FROM b WHERE b.m = s.id * 37 % 400 AND 100 / (b.id * 0 + s.id - {BAD}) <> 99999) LIMIT 30",
    "EXISTS above": f"SELECT EXISTS (SELECT FROM (SELECT a.id, a.m FROM a ORDER BY a.id OFFSET 0) s CROSS JOIN LATERAL (SELECT b.id FROM b WHERE b.m = s.m AND 100 / (b.id * 0 + s.id - {BAD}) <> 99999 LIMIT 1) q WHERE q.id * 0 + s.id >= {BAD - 1})",
    "a condition before": f"SELECT a.id FROM a WHERE a.id <> {BAD} AND EXISTS (SELECT FROM b WHERE b.m = a.m AND 100 / (b.id * 0 + a.id - {BAD}) <> 99999)",
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING_FILTERS)
def test_no_error_of_inner_rows_that_are_not_come_to(sides: Sides, name: str) -> None:
    """A filter of an inner scan, which is tried early, is not tried for rows behind the one at which the scan is left."""
    seen = unharmed(sides, Case([FAILING_FILTERS[name]]))
    assert seen.error is None and seen.rows


@pytest.mark.parametrize("name", ENDED)
def test_no_read_of_what_a_node_does_not_ask_for(sides: Sides, name: str) -> None:
    """What is read ahead for a row is what the nodes above the scan ask for."""
    assert unharmed(sides, Case([ENDED[name]])).error is None


@pytest.mark.parametrize("name", ENDED)
def test_what_is_read_for_nothing_is_counted(sides: Sides, name: str) -> None:
    """EXPLAIN's blocks that were read ahead and not used are all that is read beyond stock, and count as nothing else."""
    side = sides["forced"]
    if side.version < 18:
        pytest.skip("EXPLAIN says nothing of look-ahead")
    query = f"EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off, FORMAT json) {ENDED[name]}"
    reads, done, unused, of_scans = {}, {}, 0, 0
    for config in ("off", "forced"):
        seen = sides[config].execute(Case([query]))
        text = seen.rows[0][1]
        assert isinstance(text, bytes), seen
        done[config] = seen.reads
        nodes = list(_nodes(json.loads(text)[0]["Plan"]))
        reads[config] = int(nodes[0]["Shared Read Blocks"])
        count = [(node["Node Type"], int(node.get("Look-Ahead Blocks Unused", 0))) for node in nodes]
        unused = sum(number for _, number in count)
        # what scans read ahead themselves counts as read at once
        of_scans = sum(number for kind, number in count if "Scan" in kind)
    assert reads["forced"] <= reads["off"] + of_scans, (reads, of_scans)
    assert done["forced"] <= done["off"] + unused + 8, (done, unused)  # of catalogs


def _nodes(plan: dict[str, object]) -> Iterator[dict[str, str]]:
    yield plan  # type: ignore[misc]
    for child in plan.get("Plans", ()):  # type: ignore[attr-defined]
        yield from _nodes(child)


# What nobody has thought of


@pytest.mark.timeout(max(900, CASES))
def test_corpus(sides: Sides, rng: random.Random) -> None:
    corpus, errors, looked, found = HarmCorpus(rng), Counter[str](), 0, []
    started = time.monotonic()
    for number in range(CASES):
        case = corpus.case()
        stock = sides["off"].execute(case)
        if stock.error is not None:
            errors[stock.error[0]] += 1
            assert stock.error[0] not in WRONG, f"the corpus makes no valid statement: {stock.error}\n{case}"
            if stock.error[0] == TIMED_OUT:
                continue
        before = sides["off"].looked_ahead()
        for config in ("on", "forced"):
            ours = sides[config].execute(case, seconds_for(stock))
            found += [
                f"case {number}, {config}: {harm}\n  {case}" for harm in harms(case, config, stock, ours)
            ]
        looked += sides["off"].looked_ahead() > before
    print(
        f"{CASES} cases in {time.monotonic() - started:.0f} s; in {looked} joins looked ahead; errors: {dict(errors)}"
    )
    found.sort(key=lambda text: "blocks read" in text.split("\n")[0])
    assert not found, f"{len(found)} harms, among them:\n" + "\n\n".join(found[:8])
    # the corpus must be neither too harmless nor too hard
    assert looked > CASES // 8 and errors.total() > CASES // 10 and errors[TIMED_OUT] < CASES // 20


WRONG = {"42601", "42883", "42803", "42P01", "42703", "42702", "42804", "42846", "42725", "0A000", "42P10"}
"""SQLSTATEs that tell of a mistake in the corpus."""

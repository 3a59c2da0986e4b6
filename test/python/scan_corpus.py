"""Random schemas, and random statements over them whose plans are index scans.

Everything follows from the random.Random given, so that a seed repeats a run.  The statements
are made to meet every way in which an index scan is driven, not to be sensible.
"""

# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from differential import Blocks, Case, explained
from scans import NOT_PARALLEL, PARALLEL

COLUMNS = "id serial, a int, b int, c text, d numeric, ts timestamp, n name, p point, bx box, r int4range, big text, pad text"

INDEXES = (
    "(a)",
    "(a DESC NULLS LAST)",
    "(a NULLS FIRST, b DESC)",
    "(a, b) INCLUDE (id)",
    "(b, a, id)",
    "(b) WITH (deduplicate_items = off)",
    "(b, c) WITH (fillfactor = 30)",
    "(c)",
    "(c DESC, a)",
    "(c text_pattern_ops)",
    "(lower(c), b)",
    "((a + b))",
    "((a % 7), ts)",
    "(d)",
    "(d DESC, a)",
    "(ts)",
    "(ts, b) WHERE b IS NOT NULL",
    "(n)",
    "(n, a)",
    "(id) WHERE a < 40",
    "(a) INCLUDE (b, c) WHERE b > 5",
    "(big)",
    "USING hash (a)",
    "USING hash (c)",
    "USING hash (n)",
    "USING gist (p)",
    "USING gist (bx)",
    "USING gist (r)",
    "USING spgist (p)",
    "USING spgist (p kd_point_ops)",
    "USING spgist (c)",
    "USING spgist (r)",
    "USING spgist (bx)",
)


def loops(query: str, left: int) -> tuple[str, ...]:
    """What PL/pgSQL does with the rows of a query, which have an id; it leaves some loops after a number of rows."""
    row = "steps := steps + 1; told := told || r.id || ',';"
    return (
        f"FOR r IN {query} LOOP {row} EXIT WHEN steps >= {left}; END LOOP;",
        f"OPEN walk FOR {query}; LOOP FETCH walk INTO r; EXIT WHEN NOT FOUND OR steps >= {left}; {row} END LOOP;",
        f"FOR r IN {query} LOOP BEGIN {row} IF steps % 7 = 3 THEN PERFORM 1 / 0; END IF;"
        " EXCEPTION WHEN division_by_zero THEN steps := steps + 1; told := told || '!'; END; END LOOP;",
        f"BEGIN FOR r IN {query} LOOP {row} PERFORM 1 / (steps - {left}); END LOOP;"
        " EXCEPTION WHEN division_by_zero THEN told := told || '!' || steps; END;",
        f"FOR r IN {query} LOOP {row} EXIT WHEN steps > {left}; IF steps % 20 = 0 THEN COMMIT; END IF; END LOOP;",
    )


def block(body: str) -> str:
    """A DO statement that tells what has become of the variables of loops()."""
    variables = "r record; q record; walk refcursor; steps int := 0; told text := ''"
    return f"DO $$ DECLARE {variables}; BEGIN {body} RAISE NOTICE '% %', steps, md5(told); END $$"


@dataclass
class Table:
    """A table of the corpus.

    rows, values: how many rows it has, and how many different values its keys
    kind: what stands between CREATE and TABLE
    changing: rows may be inserted and updated.  Then it has no GiST or SP-GiST index, since
        these place an entry at random where several places would do, and the order in which
        rows come back would differ between the copies.
    clean: it has no page that a scan would prune"""

    name: str
    rows: int
    values: int
    kind: str = ""
    changing: bool = True
    clean: bool = False
    indexes: list[str] = field(default_factory=list)


class Corpus:
    """A schema and an endless supply of cases.

    rng: decides all
    tables: how many
    version: major version of the server"""

    # Only index scans where there is a choice.
    PLANNER = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_tidscan = off; SET jit = off"

    def __init__(self, rng: random.Random, *, tables: int = 5, version: int = 18, rows: int = 2500) -> None:
        self.rng = rng
        self.version = version
        self.tables = [
            Table(f"t{i}", rng.randrange(rows // 3, rows), rng.choice((12, 60, 300, 2000)))
            for i in range(tables)
        ]
        self.tables[-1].kind = "UNLOGGED "
        for table in self.tables[::2]:
            table.changing = False
            table.clean = table is not self.tables[-1]
        self._number = 0

    # Data

    def setup(self) -> list[str]:
        """Statements that make the schema and its rows."""
        made = [self.PLANNER, f"SELECT setseed({self.rng.random()})"]
        for table in self.tables:
            made += self._table(table)
        made += self._partitions()
        made += [
            "CREATE FUNCTION count_below(int) RETURNS bigint STABLE LANGUAGE sql"
            " AS 'SELECT count(*) FROM t0 WHERE a < $1 AND b IS NOT NULL'",
            "CREATE FUNCTION rows_below(int) RETURNS SETOF t0 STABLE LANGUAGE sql"
            " AS 'SELECT * FROM t0 WHERE a < $1 ORDER BY a'",
            "CREATE FUNCTION risky(int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN"
            " SELECT count(*) INTO n FROM t1 WHERE a BETWEEN $1 AND $1 + 2 AND 10 / (a % 5) > 0; RETURN n;"
            " EXCEPTION WHEN division_by_zero THEN"
            " SELECT count(*) INTO n FROM t1 WHERE a = $1; RETURN -n; END $$",
            "ANALYZE",
        ]
        return made

    def _table(self, table: Table) -> list[str]:
        rng, name, values = self.rng, table.name, table.values
        order = rng.choice(("i", "random()", f"i % {rng.randrange(3, 50)}, i", "-i"))
        usable = [index for index in INDEXES if not (table.changing and "gist" in index)]
        table.indexes = [*rng.sample(usable, 10), "(a, id)", "(b)"]
        statements = [
            f"CREATE {table.kind}TABLE {name} ({COLUMNS})"
            f" WITH (autovacuum_enabled = off, fillfactor = {rng.choice((100, 100, 80))})",
            f"INSERT INTO {name} (a, b, c, d, ts, n, p, bx, r, big, pad)"
            f" SELECT nullif(v, {values // 3}), nullif((v * 7) % {max(3, values // 4)}, 2),"
            f" chr(97 + v % 26) || 'k' || v, round((random() * {values})::numeric, rand),"
            f" timestamp '2020-01-01' + make_interval(hours => v), 'name' || v % 50,"
            f" point(v, random() * 100), box(point(v, v), point(v + random() * 5, v + 3)),"
            f" int4range(v, v + 1 + (random() * 9)::int),"
            f" CASE WHEN i % 40 = 0 THEN repeat(md5(i::text), {rng.choice((20, 200, 2000))})"
            f" ELSE 'small ' || v END, repeat('p', {rng.choice((20, 200, 600))})"
            f" FROM (SELECT i, (random() * {values})::int AS v, (random() * 2)::int AS rand"
            f" FROM generate_series(1, {table.rows}) AS i ORDER BY {order} LIMIT {table.rows}) AS rows",
        ]
        # an index on long values would refuse them
        for index in table.indexes:
            if index == "(big)":
                index = "(left(big, 30))"
            statements.append(f"CREATE INDEX ON {name} {index}")
        if rng.random() < 0.8:
            statements.append(f"VACUUM {name}")
        statements.append(f"UPDATE {name} SET pad = 'hot ' || a WHERE id % {rng.randrange(9, 30)} = 1")
        statements.append(f"UPDATE {name} SET b = b + 1 WHERE id % {rng.randrange(9, 60)} = 2")
        statements.append(f"DELETE FROM {name} WHERE id % {rng.randrange(7, 60)} = 3")
        statements.append(f"BEGIN; UPDATE {name} SET a = a + 1 WHERE id % 50 = 4; ROLLBACK")
        if rng.random() < 0.3:
            statements.append(f"VACUUM {name}")
            statements.append(f"DELETE FROM {name} WHERE id % 30 = 5")
        if table.clean:
            statements.append(f"VACUUM {name}")
        return statements

    def _partitions(self) -> list[str]:
        made = ["CREATE TABLE part (k int, v int, pad text) PARTITION BY RANGE (k)"]
        for i in range(8):
            made.append(
                f"CREATE TABLE part{i} PARTITION OF part FOR VALUES FROM ({i * 100}) TO ({i * 100 + 100})"
            )
        made += [
            "INSERT INTO part SELECT (random() * 799)::int, (random() * 99)::int, repeat('q', 300)"
            " FROM generate_series(1, 3000)",
            "CREATE INDEX ON part (k)",
            "CREATE INDEX ON part (v, k)",
            "CREATE TABLE parent (k int, v int, pad text)",
            "CREATE TABLE child1 (extra int) INHERITS (parent)",
            "CREATE TABLE child2 (other text) INHERITS (parent)",
        ]
        for name in ("parent", "child1", "child2"):
            made.append(
                f"INSERT INTO {name} (k, v, pad) SELECT (random() * 200)::int, i, repeat('r', 250)"
                " FROM generate_series(1, 700) AS i"
            )
            made += [f"CREATE INDEX ON {name} (k)", f"CREATE INDEX ON {name} (v)"]
        return made

    # Expressions

    def table(self) -> Table:
        return self.rng.choice(self.tables)

    def other(self, table: Table) -> Table:
        """A table to scan while ``table`` is being scanned.

        Not the same, unless it is clean: a page that one scan holds is not pruned by another, and
        with look-ahead a scan holds more of them, so that later changes may find their place elsewhere."""
        return self.rng.choice([other for other in self.tables if other is not table or table.clean])

    def clean(self) -> Table:
        return self.rng.choice([table for table in self.tables if table.clean])

    def changing(self) -> Table:
        return self.rng.choice([table for table in self.tables if table.changing])

    def value(self, table: Table) -> int:
        return self.rng.randrange(-1, table.values + 2)

    def _text(self, table: Table) -> str:
        value = self.value(table)
        return f"{chr(97 + value % 26)}k{value}"

    def condition(self, table: Table, alias: str = "") -> str:
        """A condition that some index is for."""
        rng = self.rng
        dot = f"{alias}." if alias else ""
        v = self.value(table)
        w = v + rng.choice((0, 1, 5, max(1, table.values // 20), max(1, table.values // 4)))
        column = rng.choice("ab")
        array = ", ".join(rng.choice((str(self.value(table)), "NULL")) for _ in range(rng.randrange(1, 12)))
        text = self._text(table)
        point = f"box '(({v},{rng.randrange(50)}),({w},{rng.randrange(50, 100)}))'"
        choices = (
            f"{dot}{column} = {v}",
            f"{dot}{column} = {v}",
            f"{dot}{column} BETWEEN {v} AND {w}",
            f"{dot}{column} BETWEEN {v} AND {w}",
            f"{dot}{column} > {table.values - rng.randrange(1, 9)}",
            f"{dot}{column} < {rng.randrange(1, 9)}",
            f"{dot}{column} IS NULL",
            f"{dot}{column} IS NOT NULL AND {dot}{column} < {w}",
            f"{dot}{column} = ANY (ARRAY[{array}]::int[])",
            f"{dot}{column} IN ({v}, {w}, {v}, {w + 3})",
            f"({dot}a, {dot}b) > ({max(v, table.values - 5)}, {w})",
            f"({dot}a, {dot}id) BETWEEN ({v}, 7) AND ({w}, 900)",
            f"{dot}a = {v} AND {dot}b >= {v % 5}",
            f"{dot}a = ANY (ARRAY[{array}]::int[]) AND {dot}b < {w}",
            f"{dot}b BETWEEN 1 AND {rng.randrange(1, 6)} AND {dot}a = {v}",
            f"{dot}a + {dot}b BETWEEN {v} AND {w}",
            f"{dot}a % 7 = {v % 7} AND {dot}ts < timestamp '2020-01-01' + interval '{w} hours'",
            f"{dot}c = '{text}'",
            f"{dot}c >= '{text}' AND {dot}c < '{chr(ord(text[0]) + 1)}'",
            f"{dot}c LIKE '{text[:3]}%'",
            f"{dot}c ^@ '{text[:3]}'",
            f"lower({dot}c) = '{text}'",
            f"{dot}c = ANY ('{{{text},{self._text(table)},{self._text(table)}}}')",
            f"{dot}d BETWEEN {v} AND {w}",
            f"{dot}ts BETWEEN timestamp '2020-01-01' + interval '{v} hours' AND timestamp '2020-01-01' + interval '{w} hours'",
            f"{dot}n = 'name{v % 50}'",
            f"{dot}n > 'name{v % 50}' AND {dot}a < {w}",
            f"{dot}p <@ {point}",
            f"{dot}p << point({v}, 3)" if v < 20 else f"{dot}p >> point({table.values - 4}, 3)",
            f"{dot}bx && {point}",
            f"{dot}bx <@ {point}",
            f"{dot}r && int4range({v}, {w + 1})",
            f"{dot}r @> {v}",
            f"{dot}r -|- int4range({v}, {w + 1})",
            f"left({dot}big, 30) >= 'small {v}' AND left({dot}big, 30) < 'small {v}9'",
            f"{dot}id < {rng.randrange(1, 300)} AND {dot}a < 40",
            f"{dot}b > 5 AND {dot}a BETWEEN {v} AND {w}",
        )
        return rng.choice(choices)

    def order(self, alias: str = "") -> str:
        dot = f"{alias}." if alias else ""
        keys = (
            "a",
            "b",
            "c",
            "d",
            "ts",
            "n",
            "a NULLS FIRST, b DESC",
            "a, id",
            "b, a, id",
            "c DESC, a",
            "d DESC, a",
        )
        key = self.rng.choice(keys)
        if self.rng.random() < 0.5:
            return ", ".join(f"{dot}{one}" for one in key.split(", "))
        backward = []
        for one in key.split(", "):
            if " DESC" in one:
                one = one.replace(" DESC", "")
            elif " NULLS FIRST" in one:
                one = one.replace(" NULLS FIRST", " DESC NULLS LAST")
            else:
                one = f"{one} DESC"
            backward.append(f"{dot}{one}")
        return ", ".join(backward)

    def columns(self) -> str:
        rng = self.rng
        return rng.choice(
            ("ctid, id, a, b", "a", "a, b", "b, a, id", "c", "c, a", "n", "d", "ts, b", "n, a", "ctid, pad",
             "id, length(big), left(big, 9)", "p", "r", "id, p, bx, r", "ctid, xmin <> xmax, a, tableoid::regclass")
        )  # fmt: skip

    def scan(self, table: Table | None = None) -> str:
        """A query of one table that runs to its end."""
        rng = self.rng
        table = table or self.table()
        where = self.condition(table)
        if rng.random() < 0.2:
            where += f" AND {self.condition(table)}"
        query = f"FROM {table.name} WHERE {where}"
        kind = rng.random()
        if kind < 0.15:
            return f"SELECT count(*), min(id), max(c), sum(a) {query}"
        if kind < 0.25:
            return f"SELECT count(*) {query}"
        query = f"SELECT {self.columns()} {query}"
        if rng.random() < 0.6:
            query += f" ORDER BY {self.order()}"
        return query

    # Cases, by kind of scan

    def case(self) -> Case:
        """A case of a random kind."""
        kinds = self.kinds()
        name = self.rng.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        self._number += 1
        statements, blocks = kinds[name][1]()
        case = Case(f"{self._number} {name}", statements, blocks, cold=self.rng.random() < 0.35)
        case.ordered = name != "parallel"
        return case

    def cases(self, statements: int) -> Iterator[Case]:
        """Cases that have at least this number of statements together."""
        done = 0
        while done < statements:
            case = self.case()
            done += len(case.statements)
            yield case

    def kinds(self) -> dict[str, tuple[int, Callable[[], tuple[list[str], Blocks]]]]:
        """How often, and how, cases of each kind are made."""
        return {
            "scans": (30, self._scans),
            "explain": (16, self._explain),
            "ordered index only": (8, self._index_only),
            "limit": (10, self._limit),
            "joins": (14, self._joins),
            "semi joins": (6, self._semi_joins),
            "subplans": (6, self._subplans),
            "append": (6, self._append),
            "parallel": (2, self._parallel),
            "prepared": (6, self._prepared),
            "cursor": (14, self._cursor),
            "cursor to the end": (4, self._cursor_to_end),
            "holdable": (4, self._holdable),
            "current of": (5, self._current_of),
            "change": (10, self._change),
            "row locks": (5, self._row_locks),
            "plpgsql": (8, self._plpgsql),
            "refcursor": (4, self._refcursor),
            "functions": (4, self._functions),
            "isolation": (4, self._isolation),
            "temporary": (3, self._temporary),
            "own changes": (6, self._own_changes),
            "savepoints": (6, self._savepoints),
            "errors": (4, self._errors),
            "vacuum": (3, self._vacuum),
        }

    def _with_planner(self, statements: list[str]) -> list[str]:
        """Now and then without sorts or some kinds of join."""
        off = [
            name
            for name, chance in (
                ("sort", 0.5),
                ("incremental_sort", 0.3),
                ("indexonlyscan", 0.25),
                ("material", 0.2),
            )
            if self.rng.random() < chance
        ]
        if not off:
            return statements
        sets = "; ".join(f"SET enable_{name} = off" for name in off)
        resets = "; ".join(f"RESET enable_{name}" for name in off)
        return [sets, *statements, resets]

    def _scans(self) -> tuple[list[str], Blocks]:
        return self._with_planner([self.scan() for _ in range(12)]), "exact"

    def _explain(self) -> tuple[list[str], Blocks]:
        return self._with_planner([explained(self.scan()) for _ in range(6)]), "exact"

    def _index_only(self) -> tuple[list[str], Blocks]:
        made = []
        for _ in range(8):
            table = self.table()
            columns, order = self.rng.choice(
                (("a, id", "a, id"), ("a", "a"), ("b", "b"), ("a, id", "a DESC, id DESC"), ("b", "b DESC"))
            )
            v = self.value(table)
            where = self.rng.choice(
                (
                    f"{columns.split(',')[0]} >= {v}",
                    f"{columns.split(',')[0]} IN ({v}, {v + 1}, {v + 7})",
                    "a = 3",
                    "true",
                )
            )
            made.append(f"SELECT {columns} FROM {table.name} WHERE {where} ORDER BY {order}")
        return self._with_planner([*made, *(explained(one) for one in made[:3])]), "exact"

    def _limit(self) -> tuple[list[str], Blocks]:
        made = []
        for _ in range(8):
            table = self.table()
            query = f"SELECT {self.columns()} FROM {table.name} WHERE {self.condition(table)} ORDER BY {self.order()}"
            query += f" LIMIT {self.rng.choice((0, 1, 2, 3, 5, 17, 100))}"
            if self.rng.random() < 0.4:
                query += f" OFFSET {self.rng.choice((0, 1, 6, 40))}"
            made.append(explained(query) if self.rng.random() < 0.2 else query)
        made.append(f"SELECT min(a), max(a), min(b), max(c) FROM {self.table().name}")
        made.append(f"SELECT a, b FROM {self.table().name} ORDER BY a FETCH FIRST 5 ROWS WITH TIES")
        return self._with_planner(made), "bounded"

    def _join(self, kind: str) -> str:
        one = self.table()
        other = self.other(one)
        key = self.rng.choice("abcdn")
        return (
            f"SELECT x.ctid, y.ctid, x.{key} FROM {one.name} x {kind} JOIN {other.name} y ON x.{key} = y.{key}"
            f" AND x.id < 300 AND y.id < {self.rng.choice((100, 600))} WHERE {self.condition(one, 'x')}"
        )

    def _joins(self) -> tuple[list[str], Blocks]:
        methods = ("nestloop", "mergejoin", "hashjoin")
        keep = self.rng.choice(methods)
        sets = "; ".join(f"SET enable_{m} = {'on' if m == keep else 'off'}" for m in methods)
        sets += "; SET enable_sort = off; SET enable_material = " + self.rng.choice(("on", "off"))
        sets += "; SET enable_memoize = " + self.rng.choice(("on", "off"))
        made = [sets]
        for _ in range(5):
            query = self._join(
                self.rng.choice(("INNER", "LEFT", "FULL") if keep != "nestloop" else ("INNER", "LEFT"))
            )
            if self.rng.random() < 0.4:
                query += f" ORDER BY x.{self.rng.choice('abc')}"
            made.append(f"SELECT count(*), min(q::text), max(q::text) FROM ({query}) q")
            made.append(f"SELECT * FROM ({query}) q LIMIT 40")
        resets = "; ".join(f"RESET enable_{m}" for m in (*methods, "sort", "material", "memoize"))
        return [*made, resets], "any"

    def _semi_joins(self) -> tuple[list[str], Blocks]:
        made = []
        for _ in range(6):
            one = self.table()
            other = self.other(one)
            word = self.rng.choice(("EXISTS", "NOT EXISTS"))
            key = self.rng.choice("abc")
            made.append(
                f"SELECT id, a FROM {one.name} x WHERE {self.condition(one, 'x')} AND {word}"
                f" (SELECT 1 FROM {other.name} y WHERE y.{key} = x.{key} AND y.b < 9) ORDER BY {self.order('x')}, id"
            )
        return self._with_planner(made), "any"

    def _subplans(self) -> tuple[list[str], Blocks]:
        one = self.table()
        other = self.other(one)
        v = self.value(one)
        made = [
            f"SELECT id, (SELECT count(*) FROM {other.name} y WHERE y.a = x.a) FROM {one.name} x"
            f" WHERE {self.condition(one, 'x')} AND id < 400",
            f"SELECT id, (SELECT y.id FROM {other.name} y WHERE y.b = x.b ORDER BY y.a, y.id LIMIT 1) FROM {one.name} x"
            f" WHERE {self.condition(one, 'x')} AND id < 400",
            f"SELECT * FROM {one.name} WHERE a = (SELECT max(a) FROM {other.name} WHERE a < {v})",
            f"SELECT id, a FROM {one.name} WHERE a = ANY (ARRAY(SELECT b FROM {other.name} WHERE b < 4 ORDER BY b))",
            f"WITH q AS MATERIALIZED (SELECT * FROM {one.name} WHERE {self.condition(one)}) SELECT q.id, y.id FROM q"
            f" JOIN {other.name} y ON y.a = q.a WHERE y.id < 200 LIMIT 100",
            f"WITH RECURSIVE q(v) AS (SELECT min(a) FROM {one.name} UNION ALL SELECT (SELECT min(a) FROM {one.name}"
            f" WHERE a > q.v) FROM q WHERE v IS NOT NULL AND v < 50) SELECT * FROM q",
            f"SELECT x.a, l.* FROM (SELECT DISTINCT a FROM {one.name} WHERE a < 20) x, LATERAL"
            f" (SELECT id, b FROM {other.name} y WHERE y.a >= x.a ORDER BY y.a, y.id LIMIT 3) l",
            f"SELECT DISTINCT ON (a) a, id FROM {one.name} ORDER BY a, id",
            f"SELECT a, rank() OVER (ORDER BY a), lag(id) OVER (PARTITION BY a ORDER BY id) FROM {one.name} WHERE a < 30",
        ]
        return self._with_planner(self.rng.sample(made, 5)), "any"

    def _append(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        k = rng.randrange(800)
        order = rng.choice(("k", "k DESC", "v, k", "v DESC, k DESC"))
        made = [
            f"SELECT k, v, tableoid::regclass FROM part WHERE k BETWEEN {k} AND {k + rng.randrange(300)} ORDER BY {order}",
            f"SELECT k, v, ctid FROM part WHERE v = {k % 100} ORDER BY {order}",
            f"SELECT k, v FROM part ORDER BY {order} LIMIT {rng.randrange(1, 60)}",
            f"SELECT k, v, tableoid::regclass FROM parent WHERE k = {k % 200} ORDER BY v",
            f"SELECT k, v FROM parent WHERE k > {k % 200} ORDER BY k {rng.choice(('', 'DESC'))} LIMIT 30",
            f"SELECT a, 1 FROM t0 WHERE a < 5 UNION ALL SELECT b, 2 FROM t1 WHERE b = 3 UNION ALL {self._half()}",
            "SELECT a FROM t0 WHERE a < 9 UNION SELECT b FROM t1 WHERE b < 20 ORDER BY 1",
            f"SELECT x.id, y.k FROM {self.table().name} x JOIN part y ON y.k = x.a WHERE x.id < 60 ORDER BY x.id, y.ctid",
            f"SELECT count(*), sum(v) FROM part WHERE k IN (SELECT a FROM t0 WHERE a < {k})",
        ]
        return self._with_planner(made), "any"

    def _half(self) -> str:
        return f"SELECT a, 3 FROM {self.table().name} WHERE a IN (1, 3, 5)"

    def _parallel(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        leader, query = rng.choice(("on", "off")), rng.choice(("off", "on"))
        others = ("parallel_leader_participation", "debug_parallel_query")
        sets = f"{PARALLEL}; SET {others[0]} = {leader}; SET {others[1]} = {query}"
        made = []
        # clean tables: which of two workers comes to a page while the other holds it is a matter of chance
        for _ in range(3):
            table = self.clean()
            made.append(f"SELECT count(*), sum(a), min(c) FROM {table.name} WHERE {self.condition(table)}")
            made.append(f"SELECT id, a FROM {table.name} WHERE a >= {self.value(table)} ORDER BY a, id")
        made.append("SELECT count(*), sum(v) FROM part WHERE k > 10")
        made.append(
            f"SELECT count(*) FROM {self.clean().name} x JOIN {self.clean().name} y ON x.a = y.a WHERE x.id < 90"
        )
        made.append("SELECT (SELECT count(*) FROM t0 y WHERE y.a > x.a) FROM t2 x WHERE x.a < 4")
        return [sets, *made, "; ".join([NOT_PARALLEL, *(f"RESET {name}" for name in others)])], "any"

    def _prepared(self) -> tuple[list[str], Blocks]:
        table = self.table()
        mode = self.rng.choice(("auto", "force_generic_plan", "force_custom_plan"))
        made = [
            f"SET plan_cache_mode = {mode}",
            f"PREPARE q1 (int, int) AS SELECT ctid, a, b FROM {table.name} WHERE a BETWEEN $1 AND $2 ORDER BY a, id",
            f"PREPARE q2 (int[]) AS SELECT ctid, a FROM {table.name} WHERE a = ANY ($1) ORDER BY a",
            f"PREPARE q3 (text) AS SELECT id FROM {table.name} WHERE c = $1",
        ]
        for _ in range(self.rng.randrange(3, 8)):
            v = self.value(table)
            made.append(f"EXECUTE q1 ({v}, {v + 4})")
            made.append(f"EXECUTE q2 ('{{{v},{v + 9},{v},3}}')")
            made.append(f"EXECUTE q3 ('{self._text(table)}')")
        return [*made, "DEALLOCATE ALL; RESET plan_cache_mode"], "exact"

    def _moves(self, rows: int) -> list[str]:
        """Random fetches from a scrollable cursor c, and back to the start at the end."""
        rng = self.rng
        made = []
        for _ in range(rng.randrange(3, 14)):
            n = rng.choice((1, 1, 2, 3, 8, 40, rows))
            move = rng.choice(
                (f"FORWARD {n}", f"FORWARD {n}", f"BACKWARD {n}", "NEXT", "PRIOR", "FIRST", "LAST", f"ABSOLUTE {n}",
                 f"ABSOLUTE -{n}", f"RELATIVE {n}", f"RELATIVE -{n}", "RELATIVE 0", "ALL", "BACKWARD ALL")
            )  # fmt: skip
            made.append(f"{rng.choice(('FETCH', 'FETCH', 'FETCH', 'MOVE'))} {move} FROM c")
        return made

    def _declare(self, options: str, table: Table | None = None) -> str:
        table = table or self.table()
        query = f"SELECT ctid, {self.rng.choice(('a, id', 'a, b, c', 'id, left(big, 5)'))}"
        if self.rng.random() < 0.4:
            query = "SELECT a, id"
        return f"DECLARE c {options} FOR {query} FROM {table.name} WHERE {self.condition(table)} ORDER BY {self.order()}"

    def _cursor(self) -> tuple[list[str], Blocks]:
        made = ["BEGIN", self._declare(self.rng.choice(("SCROLL CURSOR", "SCROLL CURSOR", "CURSOR")))]
        made += self._moves(100)
        if self.rng.random() < 0.5:
            made.append("CLOSE c")
        return self._with_planner([*made, "COMMIT"]), "any"

    def _cursor_to_end(self) -> tuple[list[str], Blocks]:
        n = self.rng.choice((1, 3, 10, 50))
        made = [
            "BEGIN",
            self._declare("NO SCROLL CURSOR"),
            *[f"FETCH {n} FROM c"] * 6,
            "FETCH ALL FROM c",
            "COMMIT",
        ]
        return self._with_planner(made), "bounded"

    def _holdable(self) -> tuple[list[str], Blocks]:
        made = ["BEGIN", self._declare(self.rng.choice(("SCROLL", "NO SCROLL", "")) + " CURSOR WITH HOLD")]
        made += ["FETCH 5 FROM c", "COMMIT", "FETCH 5 FROM c", *self._fetches(), "CLOSE c"]
        return self._with_planner(made), "any"

    def _fetches(self) -> list[str]:
        return [f"FETCH {n} FROM c" for n in self.rng.sample((1, 2, 7, 30), 3)]

    def _current_of(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        lock = rng.choice(("", "", " FOR UPDATE"))
        columns = rng.choice(("a, id", "ctid, a, b, id"))
        made = [
            "SET enable_sort = off; SET enable_incremental_sort = off",
            "BEGIN",
            f"DECLARE c CURSOR FOR SELECT {columns} FROM {table.name} WHERE a >= {self.value(table)} ORDER BY a, id{lock}",
        ]
        for _ in range(rng.randrange(2, 8)):
            made.append(f"FETCH {rng.choice((1, 1, 2, 5, 30))} FROM c")
            change = rng.choice(("UPDATE", "UPDATE", "DELETE", "BACK"))
            if change == "UPDATE":
                what = rng.choice(("pad = 'current'", "a = a + 1", "b = b + 1"))
                made.append(f"UPDATE {table.name} SET {what} WHERE CURRENT OF c RETURNING ctid, id, a")
            elif change == "DELETE":
                made.append(f"DELETE FROM {table.name} WHERE CURRENT OF c RETURNING ctid, id, a")
            elif not lock:
                made.append("FETCH BACKWARD 1 FROM c")
        made.append(f"SELECT sum(hashtext(q::text)) FROM {table.name} q")
        made += [rng.choice(("COMMIT", "ROLLBACK")), "RESET enable_sort; RESET enable_incremental_sort"]
        return made, "any"

    def _change(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        v = self.value(table)
        made = ["BEGIN"]
        for _ in range(4):
            condition = f"{self.condition(table)} AND id % {rng.randrange(2, 9)} = 1"
            made.append(
                rng.choice(
                    (f"UPDATE {table.name} SET pad = 'changed {v}' WHERE {condition} RETURNING ctid, id",
                     f"UPDATE {table.name} SET a = a + 1, b = b - 1 WHERE {condition} RETURNING ctid, id",
                     f"UPDATE {table.name} x SET c = y.c FROM {self.other(table).name} y WHERE x.a = y.a AND y.id = {v}"
                     f" AND x.id < 500 RETURNING x.ctid",
                     f"DELETE FROM {table.name} WHERE {condition} AND id % 3 = 0 RETURNING ctid, id",
                     f"INSERT INTO {table.name} (a, b, c, pad) SELECT a, b, c, 'new' FROM {table.name} WHERE {condition}"
                     f" RETURNING ctid, a",
                     f"MERGE INTO {table.name} x USING (SELECT id, a FROM {self.other(table).name} WHERE a = {v}) y"
                     f" ON x.id = y.id AND x.a < 40 WHEN MATCHED THEN UPDATE SET b = 3 WHEN NOT MATCHED THEN DO NOTHING")
                )
            )  # fmt: skip
        made.append(f"SELECT ctid, id, a, b FROM {table.name} WHERE a BETWEEN {v} AND {v + 3} ORDER BY a, id")
        return [*made, rng.choice(("COMMIT", "COMMIT", "ROLLBACK"))], "any"

    def _row_locks(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        lock = rng.choice(
            (
                "UPDATE",
                "SHARE",
                "NO KEY UPDATE",
                "KEY SHARE SKIP LOCKED",
                "UPDATE SKIP LOCKED",
                "UPDATE NOWAIT",
            )
        )
        made = ["BEGIN"]
        for _ in range(3):
            limit = rng.choice(("", f" LIMIT {rng.randrange(1, 9)}"))
            made.append(
                f"SELECT ctid, id, a FROM {table.name} WHERE {self.condition(table)} ORDER BY {self.order()}{limit} FOR {lock}"
            )
        return self._with_planner([*made, rng.choice(("COMMIT", "ROLLBACK"))]), "any"

    def _plpgsql(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        v = self.value(table)
        query = f"SELECT * FROM {table.name} WHERE a >= {v} ORDER BY a, id"
        others = [other for other in self.tables if other.changing and other is not table]  # see other()
        changed = rng.choice(others or [table])
        bodies = (
            *loops(query, rng.choice((1, 5, 12, 60, 9999))),
            f"FOR r IN {query} LOOP steps := steps + 1; EXIT WHEN steps > 80; FOR q IN SELECT id FROM {self.other(table).name} WHERE b = r.b AND id < 90"
            f" LOOP told := told || q.id || ';'; EXIT WHEN q.id > 20; END LOOP; END LOOP;",
            f"FOR r IN {query} LOOP UPDATE {changed.name} SET b = b + 1 WHERE id = r.id AND a < 40; steps := steps + 1; EXIT WHEN steps > 30; END LOOP;",
            f"FOR i IN 1..5 LOOP FOR r IN EXECUTE 'SELECT * FROM {table.name} WHERE a = $1 ORDER BY a, id' USING {v} + i LOOP"
            f" told := told || r.id || ','; END LOOP; END LOOP;",
        )
        return self._with_planner([block(body) for body in rng.sample(bodies, 2)]), "any"

    def _refcursor(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.table()
        query = f"SELECT ctid, a, id FROM {table.name} WHERE a >= {self.value(table)} ORDER BY a, id"
        n = rng.choice((1, 4, 30))
        made = [
            "BEGIN",
            f"DO $$ DECLARE c refcursor := 'c'; r record; BEGIN OPEN c FOR {query};"
            f" FOR i IN 1..{n} LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; END LOOP; RAISE NOTICE '%', r; END $$",
            self.scan(table),
            "FETCH 3 FROM c",
            "DO $$ DECLARE c refcursor := 'c'; r record; n int := 0; BEGIN LOOP FETCH c INTO r; EXIT WHEN NOT FOUND OR n > 90;"
            " n := n + 1; END LOOP; RAISE NOTICE '% %', n, r; END $$",
            "FETCH 2 FROM c",
        ]
        return [*made, rng.choice(("COMMIT", "ROLLBACK", "CLOSE c; COMMIT"))], "any"

    def _functions(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        v = rng.randrange(1, 30)
        made = [
            f"SELECT count_below({v}), count_below({v + 5})",
            f"SELECT id, a FROM rows_below({v}) LIMIT 9",
            f"SELECT id, (SELECT count(*) FROM rows_below(x.a % 5)) FROM t1 x WHERE a BETWEEN {v} AND {v + 2}",
            f"SELECT id, count_below(a % 9) FROM t2 WHERE a BETWEEN {v} AND {v + 1} ORDER BY a, id",
            f"SELECT id, risky(a % 9) FROM t2 WHERE a BETWEEN {v} AND {v + 1} ORDER BY a, id",
            f"SELECT id FROM t0 WHERE a BETWEEN {v} AND {v + 4} AND risky(a) > -3 ORDER BY a, id LIMIT 12",
        ]
        return self._with_planner(rng.sample(made, 3)), "any"

    def query(self) -> str:
        """One that runs to its end, as a rule."""
        return self.scan()

    def _change_within(self) -> list[str]:
        """Changes within a transaction of queries."""
        table = self.changing()
        return [f"UPDATE {table.name} SET pad = 'iso' WHERE {self.condition(table)} AND id % 5 = 0"]

    def _isolation(self) -> tuple[list[str], Blocks]:
        level = self.rng.choice(("SERIALIZABLE", "REPEATABLE READ"))
        made = [f"BEGIN ISOLATION LEVEL {level}", *(self.query() for _ in range(4)), *self._change_within()]
        made.append(
            # of this transaction: those of an earlier one stay while a session overlaps with it
            "SELECT locktype, relation::regclass, page, tuple FROM pg_locks WHERE mode = 'SIReadLock' AND virtualtransaction ="
            " (SELECT virtualtransaction FROM pg_locks WHERE locktype = 'virtualxid' AND pid = pg_backend_pid())"
            " ORDER BY 2, 1, 3, 4"
        )
        return self._with_planner([*made, self.rng.choice(("COMMIT", "ROLLBACK"))]), "any"

    def _temporary(self) -> tuple[list[str], Blocks]:
        table = self.table()
        made = [
            f"CREATE TEMP TABLE tmp AS SELECT * FROM {table.name} WHERE id < 900",
            "CREATE INDEX ON tmp (a, id)",
            "CREATE INDEX ON tmp USING hash (c)",
            "ANALYZE tmp",
        ]
        other = Table("tmp", 900, table.values)
        made += [self.scan(other) for _ in range(5)]
        made += [explained(self.scan(other)) for _ in range(2)]
        made.append("UPDATE tmp SET a = a + 1 WHERE a < 40 RETURNING ctid, id")
        made.append("SELECT ctid, a FROM tmp WHERE a < 60 ORDER BY a, id LIMIT 50")
        return [*made, "DROP TABLE tmp"], "any"

    def _own_changes(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        v = self.value(table)
        made = [
            "BEGIN",
            f"INSERT INTO {table.name} (a, b, c, pad) SELECT i % 9, i, 'own' || i, repeat('z', 200) FROM generate_series(1, 60) i",
            f"UPDATE {table.name} SET a = a + 1 WHERE a BETWEEN {v} AND {v + 2}",
            self._declare("SCROLL CURSOR", table),
            "FETCH 20 FROM c",
            f"DELETE FROM {table.name} WHERE a = {v}",
            f"UPDATE {table.name} SET pad = 'own' WHERE a = {v + 1}",
            f"INSERT INTO {table.name} (a, b, c) VALUES ({v}, 1, 'own')",
            "FETCH 20 FROM c",
            "FETCH BACKWARD 15 FROM c",
            self.scan(table),
            "FETCH ALL FROM c",
            self.scan(table),
        ]
        return self._with_planner([*made, rng.choice(("COMMIT", "ROLLBACK"))]), "any"

    def _cursor_outside(self, table: Table) -> tuple[str, str]:
        """A cursor that is fetched within subtransactions, too, and what else may be done with it."""
        v = self.value(table)
        column = self.rng.choice((f"1 / (a - {v + 1})", "id"))
        query = f"SELECT ctid, a, {column} FROM {table.name} WHERE a >= {v} ORDER BY a, id"
        return f"DECLARE c SCROLL CURSOR FOR {query}", "FETCH BACKWARD 3 FROM c"

    def _savepoints(self) -> tuple[list[str], Blocks]:
        rng = self.rng
        table = self.changing()
        declared, last = self._cursor_outside(table)
        change = f"UPDATE {table.name} SET pad = 's' WHERE a = {self.value(table)}"
        made = [
            "BEGIN",
            declared,
            "FETCH 2 FROM c",
            "SAVEPOINT s",
            f"FETCH {rng.choice((1, 20, 500))} FROM c",
            rng.choice(("SELECT 1", change, "SELECT 1 / 0")),
            f"DECLARE d CURSOR FOR {self.query()}",
            "FETCH 5 FROM d",
            rng.choice(("ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s")),
            self.query(),
            "FETCH 5 FROM c",
            last,
            "FETCH 5 FROM d",
        ]
        return self._with_planner([*made, rng.choice(("COMMIT", "ROLLBACK"))]), "any"

    def _errors(self) -> tuple[list[str], Blocks]:
        made = []
        for _ in range(4):
            table = self.table()
            v = self.value(table)
            made.append(
                f"SELECT id, 10 / (id % {self.rng.randrange(2, 90)}) FROM {table.name} WHERE a >= {v} ORDER BY a, id"
            )
            made.append(
                f"SELECT id FROM {table.name} WHERE a >= {v} AND 1 / (id - {v * 3}) >= 0 ORDER BY a, id"
            )
            made.append(f"SELECT sum((c || 'x{v}')::int) FROM {table.name} WHERE b = {v % 9}")
            made.append(self.scan(table))
        return self._with_planner(made), "any"

    def _vacuum(self) -> tuple[list[str], Blocks]:
        table = self.table()
        made = [
            f"DELETE FROM {table.name} WHERE {self.condition(table)} AND id % 4 = 2",
            *(self.scan(table) for _ in range(3)),
        ]
        made.append(f"VACUUM {self.rng.choice(('', '(FREEZE)', '(INDEX_CLEANUP off)'))} {table.name}")
        made += [self.scan(table) for _ in range(3)]
        return made, "any"

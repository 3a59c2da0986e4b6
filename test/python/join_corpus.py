"""Random joins whose plans are nested loops, over random schemas; what differential.py compares.

The outer sides are scans, subqueries, aggregates, sorts, appends, functions and joins; the inner
sides are index scans of every kind that takes keys from an outer row, with LIMITs, errors and side
effects at any depth.  Correlated subplans are in target lists, filters and conditions of joins.  The statements are made to meet every way in which a nested loop is driven,
not to be sensible.  Everything follows from the random.Random given.
"""

# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from differential import BESIDE, Blocks, Case, explained, statements_of
from scan_corpus import Corpus, Table, block, loops
from scans import NOT_PARALLEL, PARALLEL

COLUMNS = (
    "id serial, a int, b int, s smallint, l bigint, n numeric, c text, nm name, d date, ts timestamp,"
    " p point, r int4range, pad text"
)
SOURCE = "id, a, b, s, l, n, c, nm, d, ts"
"""The columns that every outer side has."""

INDEXES = (
    "(a DESC NULLS FIRST, id)",
    "(a, b) INCLUDE (id)",
    "(b, a, id)",
    "(b, a) WITH (fillfactor = 30)",
    "(a, b) WITH (deduplicate_items = off)",
    "(s)",
    "(s, l)",
    "(l, s)",
    "(n)",
    "(lower(c))",
    "(c DESC, a)",
    "(nm)",
    "(d, a)",
    "((a + b))",
    "((a % 7), id)",
    "(a) WHERE b > 5",
    "(a) INCLUDE (b, c) WHERE b > 5",
    "USING hash (a)",
    "USING hash (c)",
    "USING hash (n)",
    "USING hash (nm)",
    "USING gist (p)",
    "USING gist (r)",
    "USING spgist (p)",
)

PARTITIONED_INDEXES = (
    *("(a)", "(b, a)", "(c)", "(s)", "(l)", "(n)", "(d)", "(ts)"),
    *("USING hash (nm)", "USING gist (p)", "USING gist (r)"),
)
"""Of each partition: most keys are for one, as a sequential scan for each outer row shows nothing."""

# Of an inner side y, by an outer side x; v is some value.
KEYS = (
    "{y}.id = {x}.a",
    "{y}.id = {x}.id",
    "{y}.id = {x}.id + 1",
    "{y}.id = {x}.l",
    "{y}.id = ({x}.id * 7919) % 900",
    "{y}.id = ({x}.id * 31) % 300 AND {y}.a >= 0",
    "{y}.a = {x}.a",
    "{y}.a = {x}.a",
    "{y}.a = {x}.b",
    "{y}.b = {x}.b AND {y}.a = {x}.a",
    "{y}.a = {x}.a AND {y}.b = {v}",
    "{y}.b = {v} AND {y}.a = {x}.a",
    "{y}.b = {x}.b AND {y}.a = {v}",
    "({y}.a, {y}.b) = ({x}.a, {x}.b)",
    "{y}.a = {x}.l",
    "{y}.a = {x}.s",
    "{y}.l = {x}.a",
    "{y}.l = {x}.s AND {y}.s = {x}.s",
    "{y}.s = {x}.a AND {y}.l = {x}.l",
    "{y}.s = {x}.l AND {y}.id < 300",
    "{y}.n = {x}.n",
    "{y}.n = {x}.a",
    "{y}.c = {x}.c",
    "{y}.c = 'k' || {x}.a",
    "lower({y}.c) = {x}.c",
    "{y}.nm = {x}.nm AND {y}.id < 90",
    "{y}.ts = {x}.d",
    "{y}.d = {x}.ts",
    "{y}.d = {x}.d AND {y}.a > {v}",
    "{y}.a + {y}.b = {x}.a",
    "{y}.a % 7 = {x}.b AND {y}.id < {x}.id AND {y}.id > {x}.id - 20",
    "{y}.a BETWEEN {x}.a - 1 AND {x}.a + 1",
    "{y}.a > {x}.a AND {y}.a < {x}.a + 3",
    "{y}.a = {x}.a AND {y}.b > 5",
    "{y}.a = {x}.a AND {y}.b BETWEEN 2 AND {x}.b",
    "({y}.a, {y}.id) > ({x}.a, {x}.id) AND {y}.a <= {x}.a + 1",
    "{y}.a = ANY (ARRAY[{x}.a, {x}.b, {x}.a + 3])",
    "{y}.a IN ({x}.a, {v})",
    "{y}.id = ANY (ARRAY[{x}.id, {x}.id, NULL, {x}.a])",
    "{y}.a = {x}.a AND {y}.a = {x}.b",
    # bitmaps of several indexes, where bitmap scans are on
    "({y}.a = {x}.a OR {y}.l = {x}.s)",
    "({y}.c = {x}.c OR {y}.id = {x}.b OR {y}.b = {v})",
    "{y}.l < {x}.l AND ({y}.a = {x}.a OR {y}.b = {x}.b)",
    "{y}.a = coalesce({x}.a, {v})",
    "{y}.a = CASE WHEN {x}.b > 3 THEN {x}.a END",
    "{y}.a = abs({x}.a - {v})",
    "{y}.a IS NULL AND {y}.b = {x}.b AND {y}.id < 400",
    "{y}.c >= {x}.c AND {y}.c < {x}.c || '1' AND {y}.id < 400",
    "{y}.p <@ box(point({x}.a, 0), point({x}.a + 1, 4))",
    "{y}.r @> {x}.a AND {y}.id < 400",
    "{y}.id = {x}.id AND {x}.b > 3",
    # not with a unique column: a join that knows of it leaves the scan at its first match
    "{y}.nm = {x}.nm AND {y}.a < {x}.l",
    "{y}.n = {x}.n AND {y}.a < {x}.l",
)
RESIDUES = ("{y}.id <> {x}.id", "{y}.id % 3 <> {x}.id % 3", "{y}.b IS DISTINCT FROM {x}.b", "{y}.pad > {x}.c")

# What fails for one outer row, one inner row, or one pair.
FAILING_KEYS = (
    "{y}.id = {x}.id + 0 / ({x}.id - {k})",
    "{y}.a = {x}.a AND {y}.b = 10 / nullif({x}.a, {k})",
    "{y}.id = (CASE WHEN {x}.id = {k} THEN 'x' ELSE {x}.id::text END)::int",
    "{y}.s = ({x}.a * CASE WHEN {x}.id = {k} THEN 100000 ELSE 1 END)::smallint",
)
FAILING_OUTER = (
    "10 / ({x}.id - {k}) > -11",
    "({x}.c || {x}.id % {k})::name <> 'k' AND 1 / ({x}.id - {k}) < 2",
)
FAILING_INNER = (
    "10 / ({y}.id - {k}) > -11",
    "10 / ({x}.id + {y}.id - {k}) > -11",
    "sqrt({y}.id - {x}.id + {k}) >= 0",
)
FAILING_COLUMN = ("10 / ({x}.id - {k})", "10 / ({y}.id - {k})", "({x}.c || {k})::int")

FUNCTIONS = """
CREATE SEQUENCE seq;
CREATE TABLE log (n serial, what text);
CREATE FUNCTION loud(v int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'loud %', v; RETURN v; END $$;
CREATE FUNCTION murmur(v int) RETURNS int STABLE LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'murmur %', v; RETURN v; END $$;
CREATE FUNCTION whisper(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
    BEGIN RAISE NOTICE 'whisper %', v; RETURN v; END $$;
CREATE FUNCTION noted(v int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO log (what) VALUES ('noted ' || v); RETURN v; END $$;
CREATE FUNCTION notes() RETURNS bigint VOLATILE LANGUAGE sql AS 'SELECT last_value FROM log_n_seq';
CREATE FUNCTION looked_up(v int) RETURNS bigint STABLE LANGUAGE sql AS
    'SELECT count(*) FROM t0 x JOIN t2 y ON y.id = x.a WHERE x.id < $1 % 20';
CREATE FUNCTION series(v int) RETURNS SETOF t0 STABLE LANGUAGE plpgsql AS $$
    BEGIN RETURN QUERY SELECT * FROM t0 WHERE id < v ORDER BY id; END $$;
CREATE FUNCTION traced() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE NOTICE '% % %', TG_WHEN, TG_OP, CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END;
    INSERT INTO log (what) VALUES (TG_OP);
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$
"""


@dataclass
class Join:
    """A join in the making.

    tables: what it reads, so that a statement may change another one
    names: of its sides, the outermost first; plain: those that are tables themselves
    whole: whether every scan in it runs to its end"""

    text: str = ""
    where: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    whole: bool = True

    def query(self, columns: str) -> str:
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f"SELECT {columns} FROM {self.text}{where}"


class JoinCorpus(Corpus):
    """A schema and an endless supply of cases; see Corpus.

    joins: how many joins the statements made so far have, by their text"""

    PLANNER = (
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_tidscan = off;"
        " SET jit = off; SET random_page_cost = 1; SET join_collapse_limit = 1; SET max_parallel_workers_per_gather = 0"
    )
    SWITCHES = ("memoize", "seqscan", "bitmapscan", "indexonlyscan", "indexscan", "sort", "material")

    def __init__(self, rng: random.Random, *, tables: int = 6, version: int = 18, rows: int = 900) -> None:
        super().__init__(rng, tables=tables, version=version, rows=rows)
        self.joins = 0
        self._names = 0
        self._abandoned = False
        for table in self.tables:
            table.values = rng.choice((60, 200, 600, 1500))

    # Data

    def _partitions(self) -> list[str]:
        """Tables with partitions of each kind, of which some have partitions themselves, and one with children."""
        ranges = [f"FOR VALUES FROM ({i * 75}) TO ({i * 75 + 75})" for i in range(4)]
        lists = ("FOR VALUES IN (1, 2, 3, NULL)", "FOR VALUES IN (4, 5)", "DEFAULT")
        children = [f"par{i}" for i in range(4)]
        made = [
            f"CREATE TABLE pt ({COLUMNS}) PARTITION BY RANGE (a)",
            *(f"CREATE TABLE pt{i} PARTITION OF pt {values}" for i, values in enumerate(ranges)),
            "CREATE TABLE ptd PARTITION OF pt DEFAULT",
            f"CREATE TABLE ht ({COLUMNS}) PARTITION BY HASH (id)",
            *(f"CREATE TABLE ht{i} PARTITION OF ht FOR VALUES WITH (MODULUS 4, REMAINDER {i})" for i in range(4)),
            f"CREATE TABLE st ({COLUMNS}) PARTITION BY RANGE (s)",
            *(f"CREATE TABLE st{i} PARTITION OF st {ranges[i]}" for i in (0, 2)),
            *(f"CREATE TABLE st{i} PARTITION OF st {ranges[i]} PARTITION BY LIST (b)" for i in (1, 3)),
            *(f"CREATE TABLE st{i}{n} PARTITION OF st{i} {values}" for i in (1, 3) for n, values in enumerate(lists)),
            "CREATE TABLE std PARTITION OF st DEFAULT",
            f"CREATE TABLE ct ({COLUMNS}) PARTITION BY RANGE (c)",
            *(f"CREATE TABLE ct{i} PARTITION OF ct FOR VALUES FROM ('k{i}') TO ('k{i + 1}')" for i in (1, 2)),
            "CREATE TABLE ctd PARTITION OF ct DEFAULT",
            f"CREATE TABLE par ({COLUMNS})",
            *(f"CREATE TABLE {child} () INHERITS (par)" for child in children),
        ]  # fmt: skip
        rows = "(random() * 300)::int AS v FROM generate_series(1, 400) AS i"
        made += [self._rows(name, rows, 300) for name in ("pt", "ht", "st", "ct", "par", *children[:3])]
        for name in ("pt", "ht", "st", "ct", "par", *children):
            made += [f"CREATE INDEX ON {name} {index}" for index in PARTITIONED_INDEXES]
            made.append(f"CREATE {'UNIQUE' if name == 'ht' else ''} INDEX ON {name} (id)")
        return made

    def setup(self) -> list[str]:
        made = [self.PLANNER, f"SELECT setseed({self.rng.random()})"]
        for table in self.tables:
            made += self._table(table)
        made += self._partitions()
        if self.version >= 19:
            # Scans mark pages as all-visible, and which of them comes first is not the same with look-ahead.
            made.append("VACUUM pt, ht, st, ct, par")
        made += [
            "CREATE VIEW three AS SELECT * FROM pt1 UNION ALL SELECT * FROM ht UNION ALL SELECT * FROM par2",
            f"CREATE TABLE void ({COLUMNS})",
            "CREATE INDEX ON void (a)",
            "CREATE UNIQUE INDEX ON void (id)",
        ]
        made += statements_of(FUNCTIONS)
        traced = next(table for table in self.tables if table.changing)
        for when in ("BEFORE", "AFTER"):
            made.append(
                f"CREATE TRIGGER {when.lower()}_row {when} INSERT OR UPDATE OR DELETE ON {traced.name}"
                " FOR EACH ROW EXECUTE FUNCTION traced()"
            )
        return [*made, "ANALYZE"]

    @staticmethod
    def _rows(name: str, rows: str, values: int) -> str:
        return (
            f"INSERT INTO {name} (a, b, s, l, n, c, nm, d, ts, p, r, pad) SELECT nullif(v, {values // 3}),"
            f" nullif((v * 7) % {max(3, values // 2)}, 2), v % 300, nullif(v, 5), round(v, i % 2), chr(107) || v, 'k' || v % 200,"
            f" date '2020-01-01' + v, timestamp '2020-01-01' + make_interval(days => v, hours => i % 2 * 12),"
            f" point(v, i % 10), int4range(v, v + 1 + i % 3), repeat('p', 60 + i % 5 * 60)"
            f" FROM (SELECT i, {rows}) AS rows"
        )

    def _table(self, table: Table) -> list[str]:
        rng, name = self.rng, table.name
        order = rng.choice(("i", "random()", f"i % {rng.randrange(3, 50)}, i", "-i"))
        usable = [index for index in INDEXES if not (table.changing and "gist" in index)]
        table.indexes = [*rng.sample(usable, 9), "(a)", "(b)", "(l)", "(c)", "(ts)"]
        made = [
            f"CREATE {table.kind}TABLE {name} ({COLUMNS})"
            f" WITH (autovacuum_enabled = off, fillfactor = {rng.choice((100, 100, 70))})",
            self._rows(
                name,
                f"(random() * {table.values})::int AS v FROM generate_series(1, {table.rows}) AS i ORDER BY {order}",
                table.values,
            ),
            f"CREATE UNIQUE INDEX ON {name} (id) {rng.choice(('', '', 'INCLUDE (a, b)'))}",
            *(f"CREATE INDEX ON {name} {index}" for index in table.indexes),
        ]
        if rng.random() < 0.7:
            made.append(f"VACUUM {name}")
        made += [
            f"UPDATE {name} SET pad = 'hot ' || a WHERE id % {rng.randrange(9, 30)} = 1",
            f"UPDATE {name} SET b = b + 1 WHERE id % {rng.randrange(9, 60)} = 2",
            f"DELETE FROM {name} WHERE id % {rng.randrange(7, 60)} = 3",
            f"BEGIN; UPDATE {name} SET a = a + 1 WHERE id % 50 = 4; ROLLBACK",
        ]
        if table.clean:
            made.append(f"VACUUM {name}")
        return made

    # Joins

    def _name(self) -> str:
        self._names += 1
        return f"q{self._names % 1000}"

    def _v(self) -> int:
        return self.rng.choice((self.rng.randrange(12), self.rng.randrange(150)))

    def _few(self, name: str, rows: int) -> str:
        """A condition that leaves about this number of rows of an outer side."""
        rng, low = self.rng, self.rng.randrange(1, 300)
        return rng.choice(
            (f"{name}.id <= {rows}", f"{name}.id BETWEEN {low} AND {low + rows}", f"{name}.id % 7 = {low % 7} AND {name}.id < {rows * 7}",
             f"{name}.id < {rows * 2} AND {name}.b > {self._v()}", f"{name}.id < {rows} AND ({name}.a IS NULL OR {name}.a % 3 <> 1)",
             f"{name}.id < {rows} AND {name}.pad > 'p'", f"{name}.id < {rows * 9} AND {name}.a = {self._v()}")
        )  # fmt: skip

    def _generated(self, rows: int) -> str:
        return (
            f"(SELECT g AS id, nullif(g * 7 % 60, 9) AS a, g % 11 AS b, (g % 90)::smallint AS s, g::bigint AS l, g::numeric AS n,"
            f" 'k' || g % 70 AS c, ('k' || g % 70)::name AS nm, date '2020-01-01' + g AS d,"
            f" timestamp '2020-01-01' + make_interval(days => g % 80) AS ts, 'pp' AS pad FROM generate_series(1, {rows}) g)"
        )

    def outer(self, join: Join, rows: int, writing: Table | None = None) -> str:
        """The outermost side, of about this number of rows; adds itself to the join."""
        rng, name = self.rng, self._name()
        table = self._side(join, writing)
        few = self._few("o", rows)
        columns = f"{SOURCE}, pad"
        kind = rng.random()
        if kind < 0.5:
            text = f"{table.name} {name}"
            join.where.append(self._few(name, rows))
            join.plain.append(name)
        elif kind < 0.58:
            text = f"{rng.choice(('pt', 'ht', 'par'))} {name}"
            join.where.append(self._few(name, rows))
            join.plain.append(name)
        elif kind < 0.64:
            text = f"{self._generated(rows)} {name}"
        elif kind < 0.66:
            text = f"void {name}"
        else:
            inner = f"SELECT {columns} FROM {table.name} o WHERE {few}"
            made = (
                f"({inner} OFFSET 0)",
                f"({inner} ORDER BY b, id OFFSET 0)",
                f"({inner} ORDER BY b DESC, id LIMIT {rows})",
                f"({inner} UNION ALL SELECT {columns} FROM par WHERE id % 40 = 3)",
                f"(WITH w AS MATERIALIZED ({inner}) SELECT * FROM w)",
                # of a constant, which (a) may be, it would be a LIMIT 1
                f"(SELECT DISTINCT ON (a, b % 5) {columns} FROM ({inner}) i ORDER BY a, b % 5, id)",
                f"(SELECT min(id) AS id, a, b, s, min(l) AS l, min(n) AS n, c, min(nm::text)::name AS nm, min(d) AS d, min(ts) AS ts,"
                f" max(pad) AS pad FROM ({inner}) i GROUP BY a, b, s, c)",
                f"(SELECT {columns} FROM series({rows}))",
                f"(SELECT {columns} FROM ({inner}) i WHERE id > (SELECT min(id) FROM {table.name} WHERE a > 3))",
                f"(SELECT o.id, o.a, z.b, o.s, o.l, z.n, o.c, z.nm, o.d, o.ts, o.pad FROM {table.name} o"
                f" LEFT JOIN {self._side(join, writing).name} z ON z.id = o.a WHERE {few} OFFSET 0)",
            )
            choice = rng.randrange(len(made))
            text = f"{made[choice]} {name}"
            join.whole &= choice not in (2, 8)  # LIMIT, and what min() is
            self.joins += choice == len(made) - 1
        join.names.append(name)
        join.text = text
        return name

    def _side(self, join: Join, writing: Table | None = None) -> Table:
        """A table to read in a join, by the rule of Corpus.other()."""
        if self._abandoned:
            # what is fetched ahead for nothing prunes pages and marks entries dead, where there are dead rows
            table = self.clean()
            join.tables.append(table)
            return table
        taken = [table for table in (*join.tables, *([writing] if writing else [])) if not table.clean]
        table = self.rng.choice([table for table in self.tables if table not in taken])
        join.tables.append(table)
        return table

    def inner(self, join: Join, writing: Table | None = None) -> str:
        """What an inner side can be: mostly a table."""
        name = self._side(join, writing).name
        others = ("pt", "ht", "st", "ct", "par", "three", "void")
        return self.rng.choices((name, *others), (20, 2, 2, 2, 2, 1, 1, 0.5))[0]

    def key(self, x: str, y: str, keys: tuple[str, ...] = KEYS) -> str:
        text = self.rng.choice(keys)
        if self.rng.random() < 0.2:
            text = f"{text} AND {self.rng.choice(RESIDUES)}"
        return text.format(x=x, y=y, v=self._v(), k=self.rng.choice((1, 3, 17, 40, 77, 100)))

    def join(self, sides: int | None = None, rows: int = 40, writing: Table | None = None) -> Join:
        """A join of this number of sides, semi joins and subplans not counted."""
        rng = self.rng
        sides = sides or rng.choice((1, 1, 2, 2, 2, 3, 3, 4))
        join = Join()
        self.outer(join, max(6, rows // (1, 1, 1, 5, 12)[sides]), writing)
        for _ in range(sides - 1):
            self.joins += 1
            x, y = rng.choice((join.names[-1], rng.choice(join.names))), self._name()
            table, on = self.inner(join, writing), self.key(x, y)
            if rng.random() < 0.06:
                on += f" AND {self.subplan_condition(join, x, writing)}"
            kind = rng.random()
            if kind < 0.45:
                join.text += f" JOIN {table} {y} ON {on}"
            elif kind < 0.75:
                join.text += f" LEFT JOIN {table} {y} ON {on}"
            elif kind < 0.8 and len(join.names) == 1:
                join.text = f"{table} {y} RIGHT JOIN {join.text} ON {on}"
            elif kind < 0.85:
                join.text += f" LEFT JOIN {table} {y} ON {on}"
                join.where.append(f"{y}.id IS NULL")
                join.whole = False  # an anti join goes on after the first match
            else:
                lateral = self.lateral(join, x, y, table, on, writing)
                join.text += f" {rng.choice(('CROSS JOIN LATERAL ({}) {}', 'LEFT JOIN LATERAL ({}) {} ON true'))}".format(
                    lateral, y
                )
            join.names.append(y)
            join.plain += [y] if kind < 0.85 and table != "three" else []
        while rng.random() < 0.3:
            join.where.append(self.semi_join(join, writing))
        while rng.random() < (0.4 if sides == 1 else 0.15):
            join.where.append(self.subplan_condition(join, rng.choice(join.names), writing))
        return join

    def subplan(self, join: Join, x: str, writing: Table | None = None, depth: int = 0) -> tuple[str, str]:
        """A correlated subquery that is evaluated for each row of a side, and its type: int, text, bool or int[]."""
        rng, y, z = self.rng, self._name(), self._name()
        self.joins += 1
        table, on = self.inner(join, writing), self.key(x, y)
        rows = f"FROM {table} {y} WHERE {on}"
        if depth == 0 and rng.random() < 0.15:
            rows += f" AND {self.subplan_condition(join, y, writing, depth + 1)}"
        made = (
            # of which every scan runs to its end
            (f"(SELECT count(*)::int {rows})", "int"),
            (f"(SELECT sum({y}.b + {x}.b)::int {rows})", "int"),
            (f"(SELECT string_agg({y}.c, ',' ORDER BY {y}.id) {rows})", "text"),
            (f"(SELECT json_agg({y}.id ORDER BY {y}.id)::text {rows})", "text"),
            (f"ARRAY(SELECT {y}.id {rows} ORDER BY {y}.id)", "int[]"),
            (f"(SELECT count(*)::int + {x}.b {rows} AND {x}.b > {self._v() % 9})", "int"),
            (f"(SELECT min({y}.id + 0) FROM (SELECT * {rows} UNION ALL SELECT * FROM {self.inner(join, writing)} {z} WHERE {self.key(x, z)}) {y})", "int"),
            (f"(SELECT count({z}.id)::int FROM {table} {y} LEFT JOIN {self.inner(join, writing)} {z} ON {z}.id = {y}.a WHERE {on})", "int"),
            # and others
            (f"(SELECT max({y}.id) {rows})", "int"),
            (f"(SELECT {y}.b {rows} ORDER BY {y}.a, {y}.id LIMIT {rng.choice((1, 1, f'(coalesce({x}.b, 1) % 2)'))})", "int"),
            (f"(SELECT {y}.pad {rows} ORDER BY {y}.id DESC LIMIT 1)", "text"),
            (f"EXISTS (SELECT {rows} OFFSET 0)", "bool"),
            (f"NOT EXISTS (SELECT {rows} OFFSET {rng.choice((0, 1, 3))})", "bool"),
            (f"({x}.b IN (SELECT {y}.b {rows} OFFSET 0))", "bool"),
            (f"({x}.b > ALL (SELECT {y}.b {rows}))", "bool"),
            (f"(({x}.a, {x}.b) IN (SELECT {y}.a, {y}.b {rows} OFFSET 0))", "bool"),
            (f"(SELECT {z}.a FROM {self.inner(join, writing)} {z} WHERE {z}.id = (SELECT max({y}.id) {rows}) ORDER BY {z}.a LIMIT 1)", "int"),
        )  # fmt: skip
        choice = rng.randrange(len(made))
        join.whole &= choice < 8
        return made[choice]

    def subplan_condition(self, join: Join, x: str, writing: Table | None = None, depth: int = 0) -> str:
        """A condition of a side with such a subquery, which is not made a join."""
        rng = self.rng
        text, kind = self.subplan(join, x, writing, depth)
        if kind == "bool":
            text = rng.choice((text, f"({x}.b > 3 OR {text})", f"({text} IS NOT TRUE)"))
        else:
            text = {"int": f"coalesce({text}, 1) >= {rng.choice((0, 1, 2))}", "text": f"{text} IS DISTINCT FROM 'x'",
                    "int[]": f"coalesce(array_length({text}, 1), 0) < 3"}[kind]  # fmt: skip
        if rng.random() < 0.2:
            join.whole = False
            text = rng.choice(
                (f"CASE WHEN {x}.b % 3 = 1 THEN true ELSE {text} END", f"({x}.a IS NULL OR {text})",
                 f"10 / nullif({x}.b, 0) IS NOT NULL AND {text}")
            )  # fmt: skip
        return text

    def lateral(self, join: Join, x: str, y: str, table: str, on: str, writing: Table | None = None) -> str:
        """A subquery with keys of an outer row, in one of its scans or in several, below other nodes."""
        rng, z = self.rng, self._name()
        columns = ", ".join(f"{y}.{column}" for column in f"{SOURCE}, pad".split(", "))
        rows = f"SELECT {columns} FROM {table} {y} WHERE {on}"
        other, also = self._side(join, writing).name, self.key(x, z)
        made = (
            f"{rows} ORDER BY {y}.a, {y}.id LIMIT {rng.choice((1, 2, 9))}",
            f"{rows} ORDER BY {y}.b DESC, {y}.id LIMIT {rng.choice((1, 3))}",
            f"{rows} AND {y}.id % 3 = 1 ORDER BY {y}.a LIMIT 1",
            f"SELECT {columns} FROM (SELECT *, row_number() OVER (ORDER BY a, id) AS n_th FROM {table} {y} WHERE {on}) {y} WHERE n_th < 3",
            f"SELECT {columns} FROM {table} {y} WHERE {y}.id = (SELECT max({z}.id) FROM {other} {z} WHERE {also})",
            f"{rows} AND EXISTS (SELECT FROM {other} {z} WHERE {also})",
            f"{rows} UNION ALL SELECT {columns.replace(y, z)} FROM {other} {z} WHERE {also} LIMIT 7",
            f"SELECT {columns} FROM {other} {z}, {table} {y} WHERE {on} AND {also} ORDER BY {y}.id, {z}.id LIMIT 5",
            # a row of the inner side selects partitions, and a subplan is that of a subquery's scan
            f"SELECT {columns} FROM {other} {z} JOIN ct {y} ON {rng.choice((f'{y}.c = {z}.c', self.key(z, y)))} WHERE {also} OFFSET 0",
            f"SELECT {columns} FROM ({rows} ORDER BY {y}.a, {y}.id LIMIT 3) {y} WHERE {y}.b > 3 OR {self.subplan_condition(join, x, writing, 1)} OFFSET 0",
            # of which every scan runs to its end
            f"SELECT DISTINCT ON (b) {columns} FROM {table} {y} WHERE {on} ORDER BY b, id",
            f"SELECT min(id) AS id, a, b, s, min(l) AS l, min(n) AS n, c, min(nm::text)::name AS nm, min(d) AS d, min(ts) AS ts,"
            f" max(pad) AS pad FROM {table} {y} WHERE {on} GROUP BY a, b, s, c",
            f"{rows} ORDER BY {y}.b, {y}.a, {y}.id OFFSET 0",
            f"{rows} UNION ALL SELECT {columns.replace(y, z)} FROM {other} {z} WHERE {also}",
            f"SELECT {columns} FROM {table} {y} LEFT JOIN {other} {z} ON {z}.id = {y}.a WHERE {on} OFFSET 0",
            f"SELECT {columns} FROM {table} {y} LEFT JOIN {other} {z} ON {also} AND {z}.id < 9 WHERE {on} OFFSET 0",
        )
        choice = rng.randrange(len(made))
        join.whole &= choice >= 10
        self.joins += choice in (7, 8, 14, 15)
        return made[choice]

    def semi_join(self, join: Join, writing: Table | None = None) -> str:
        """A condition of one of the sides, by rows of another table."""
        rng = self.rng
        self.joins += 1
        x, y = rng.choice(join.names), self._name()
        table, on = self.inner(join, writing), self.key(x, y)
        join.whole = False
        return rng.choice(
            (f"EXISTS (SELECT FROM {table} {y} WHERE {on})", f"NOT EXISTS (SELECT FROM {table} {y} WHERE {on})",
             f"EXISTS (SELECT FROM {table} {y} WHERE {on} OFFSET 0)", f"NOT EXISTS (SELECT FROM {table} {y} WHERE {on} OFFSET {self._v()})",
             f"{x}.a IN (SELECT {y}.a FROM {table} {y} WHERE {y}.b < {self._v()})",
             f"({x}.a, {x}.b) IN (SELECT {y}.a, {y}.b FROM {table} {y})",
             f"{x}.id > (SELECT count(*) FROM {table} {y} WHERE {on})")
        )  # fmt: skip

    def columns(self, join: Join | None = None) -> str:
        assert join is not None
        rng = self.rng
        x, y = join.names[0], join.names[-1]
        made = [
            f"{x}.id, {y}.id",
            f"{x}.id, {y}.a, {y}.b",
            f"{x}.a + coalesce({y}.b, 0), {x}.c, {y}.c",
            f"{x}.id AS i, length({y}.pad)",
            f"{x}, {y}.id",
            f"{y}.id, {y}.a" if rng.random() < 0.5 else f"{x}.pad, {y}.l",
        ]
        if join.plain:
            z = rng.choice(join.plain)
            made += [
                f"{z}.ctid, {z}.tableoid::regclass, {x}.id",
                f"{z}.*, {y}.id AS i",
                f"{z}.xmin <> {z}.xmax, {z}.ctid",
            ]
        columns = rng.choice(made)
        while rng.random() < (0.7 if x == y else 0.15):
            text = self.subplan(join, rng.choice((y, rng.choice(join.names))))[0]
            if rng.random() < 0.15:
                join.whole = False
                text = f"CASE WHEN {x}.b < {self._v()} THEN {text} END"
            columns += f", {text} AS {self._name()}s"
        return columns

    def joined(self, rows: int = 40, sides: int | None = None) -> tuple[str, Join]:
        """A query of a join that runs to its end."""
        join = self.join(sides, rows)
        query = join.query(self.columns(join))
        kind = self.rng.random()
        if kind < 0.3:
            query = f"SELECT count(*), md5(string_agg(q::text, ',')) FROM ({query}) q"
        elif kind < 0.36:
            query = f"{query} ORDER BY {join.names[-1]}.a, {join.names[0]}.id"
        elif kind < 0.4:
            query = f"SELECT q.*, row_number() OVER () FROM ({query}) q ORDER BY md5(q::text)"
        return query, join

    # Cases

    def case(self) -> Case:
        self._abandoned = False
        case = super().case()
        name = case.name.split(" ", 1)[1]
        case.ordered = name != "parallel"
        case.by_row = name in ("errors", "effects")
        case.reads = False
        case.ahead = case.blocks != "exact"
        # an error that comes earlier leaves inner scans, and what they would mark dead, for others
        case.may_fail = self._abandoned
        if name in ("splits", "parallel"):
            case.cold = False
        return case

    def joins_of(self, joins: int) -> Iterator[Case]:
        """Cases that have at least this number of joins together."""
        until = self.joins + joins
        while self.joins < until:
            yield self.case()

    def kinds(self) -> dict[str, tuple[int, Callable[[], tuple[list[str], Blocks]]]]:
        return {
            "joins": (30, self._whole_joins),
            "any joins": (24, self._any_joins),
            "explain": (12, self._explain),
            "limit": (14, self._limit),
            "prepared": (6, self._prepared),
            "cursor": (10, self._cursor),
            "portions": (5, self._portions),
            "holdable": (3, self._holdable),
            "change": (12, self._change),
            "row locks": (3, self._row_locks),
            "current of": (3, self._current_of),
            "plpgsql": (8, self._plpgsql),
            "errors": (12, self._errors),
            "effects": (10, self._effects),
            "savepoints": (6, self._savepoints),
            "isolation": (3, self._isolation),
            "temporary": (3, self._temporary),
            "splits": (8, self._splits),
            "parallel": (2, self._parallel),
        }

    def _with_planner(self, statements: list[str]) -> list[str]:
        """Now and then without some kinds of node."""
        chances = dict(zip(self.SWITCHES, (0.5, 0.3, 0.6, 0.2, 0.08, 0.2, 0.0), strict=True))
        off = [name for name, chance in chances.items() if self.rng.random() < chance]
        on = ["material"] if self.rng.random() < 0.1 else []
        if not off and not on:
            return statements
        sets = "; ".join(
            [*(f"SET enable_{name} = off" for name in off), *(f"SET enable_{name} = on" for name in on)]
        )
        resets = "; ".join(
            [*(f"RESET enable_{name}" for name in off), *(f"SET enable_{name} = off" for name in on)]
        )
        return [sets, *statements, resets]

    def _whole(self, rows: int = 40) -> str:
        """A query of which every scan runs to its end."""
        while True:
            before = self.joins
            query, join = self.joined(rows)
            if join.whole:
                return query
            self.joins = before

    def _whole_joins(self) -> tuple[list[str], Blocks]:
        return self._with_planner([self._whole() for _ in range(10)]), "exact"

    def _any_joins(self) -> tuple[list[str], Blocks]:
        made = [self.joined()[0] for _ in range(9)]
        join = self.join(2)
        made.append(
            f"SELECT count(*), sum(o.id), sum(i.id) FROM ({join.query(f'{join.names[0]}.id, {join.names[-1]}.b')}) o"
            f" FULL JOIN {self.clean().name} i USING (id)"
        )
        before = self.joins
        recursive = self._name()
        self.joins = before + 1
        made.append(
            f"WITH RECURSIVE {recursive}(id, a, depth) AS (SELECT id, a, 1 FROM t0 WHERE id < 9 UNION ALL"
            f" SELECT y.id, y.a, depth + 1 FROM {recursive} JOIN {self.clean().name} y ON y.id = {recursive}.a WHERE depth < 4) SELECT * FROM {recursive}"
        )
        return self._with_planner(made), "any"

    def _explain(self) -> tuple[list[str], Blocks]:
        return self._with_planner([explained(self._whole()) for _ in range(5)]), "exact"

    def _limited(self) -> str:
        """With a LIMIT somewhere."""
        rng = self.rng
        query, join = self.joined(80)
        n = rng.choice((0, 1, 1, 2, 3, 5, 17, 60))
        kind = rng.random()
        if kind < 0.5:
            return f"{query} LIMIT {n}" + rng.choice(("", f" OFFSET {rng.choice((0, 1, 7, 40))}"))
        if kind < 0.7:
            outer = f"(SELECT * FROM ({query}) l LIMIT {n})"
            self.joins += 1
            return f"SELECT o, i.id FROM {outer} o LEFT JOIN {self.inner(join)} i ON i.id = (SELECT hashtext(o::text) & 511)"
        if kind < 0.8:
            return f"SELECT x.id, lat FROM t0 x, LATERAL (SELECT * FROM ({query}) k LIMIT {n}) lat WHERE x.id < 5"
        if kind < 0.85:
            return f"SELECT id, (SELECT q::text FROM ({query}) q LIMIT 1) FROM t0 WHERE id < 9"
        if kind < 0.95:
            # the LIMIT bounds the sort, too, below two nodes that look ahead
            x, s = rng.choice(self.tables).name, self._name()
            inside = f"SELECT x.*, {self.subplan(join, 'x')[0]} AS {s} FROM {x} x ORDER BY x.c, x.id OFFSET 0"
            return f"SELECT q.id, q.{s}, {self.subplan(join, 'q')[0]} FROM ({inside}) q LIMIT {n}"
        return f"SELECT * FROM ({query}) q FETCH FIRST {max(1, n)} ROWS ONLY"

    def _limit(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        return self._with_planner([self._limited() for _ in range(9)]), "any"

    def _prepared(self) -> tuple[list[str], Blocks]:
        mode = self.rng.choice(("auto", "force_generic_plan", "force_custom_plan"))
        join = self.join(2, 200)
        x, y = join.names[0], join.names[-1]
        join.where += [f"{x}.id < $1", f"({y}.id IS NULL OR {y}.b < $2)"]
        other = self.join(3, 60)
        other.where.append(f"{other.names[0]}.a = ANY ($1)")
        made = [
            f"SET plan_cache_mode = {mode}",
            f"PREPARE q1 (int, int) AS {join.query(f'{x}.id, {y}.id')}",
            f"PREPARE q2 (int[]) AS {other.query(self.columns(other))}",
        ]
        for _ in range(self.rng.randrange(3, 8)):
            self.joins += 3
            v = self._v()
            made.append(f"EXECUTE q1 ({self.rng.choice((3, 40, 200))}, {v})")
            made.append(f"EXECUTE q2 ('{{{v},{v + 9},{v},3,NULL}}')")
        return self._with_planner([*made, "DEALLOCATE ALL; RESET plan_cache_mode"]), "any"

    def _cursor(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        if self.rng.random() < 0.4:
            made = ["BEGIN", f"DECLARE c SCROLL CURSOR FOR {self.joined(80)[0]}", *self._moves(60)]
        else:
            made = ["BEGIN", f"DECLARE c NO SCROLL CURSOR FOR {self.joined(80)[0]}", *(self._fetches() * 2)]
        made += self.rng.choice(([], ["CLOSE c"], [self.joined()[0], "FETCH 3 FROM c"]))
        return self._with_planner([*made, "COMMIT"]), "any"

    def _portions(self) -> tuple[list[str], Blocks]:
        n = self.rng.choice((1, 3, 10, 50))
        made = ["BEGIN", f"DECLARE c NO SCROLL CURSOR FOR {self._whole(80)}", *[f"FETCH {n} FROM c"] * 6]
        return self._with_planner([*made, "FETCH ALL FROM c", "COMMIT"]), "exact"

    def _holdable(self) -> tuple[list[str], Blocks]:
        made = [
            "BEGIN",
            f"DECLARE c {self.rng.choice(('SCROLL', 'NO SCROLL'))} CURSOR WITH HOLD FOR {self.joined(80)[0]}",
        ]
        return self._with_planner(
            [*made, "FETCH 5 FROM c", "COMMIT", "FETCH 5 FROM c", *self._fetches(), "CLOSE c"]
        ), "any"

    def _source(self, table: Table, rows: int = 30) -> tuple[str, str]:
        """A join that does not read a table, as a row source, and its name."""
        join = self.join(self.rng.choice((2, 2, 3)), rows, writing=table)
        x, y = join.names[0], join.names[-1]
        name = self._name()
        query = join.query(
            f"{x}.id, coalesce({y}.a, {x}.a) AS a, {x}.b, {x}.s, {x}.l, {x}.n, {x}.c, {x}.nm, {x}.d, {x}.ts, {x}.pad"
        )
        return f"({query}{self.rng.choice((' OFFSET 0', ''))}) {name}", name

    def _changes(self, table: Table) -> str:
        rng, t = self.rng, table.name
        self.joins += 1
        source, o = self._source(table)
        if rng.random() < 0.4:
            x = self._side(Join(), table).name
            o = self._name()
            source = f"{x} {o}"
        few = f"{o}.id < {rng.choice((9, 40, 90))}"
        key = self.key(o, "w", tuple(one for one in KEYS if "box" not in one and "@>" not in one))
        returning = f"RETURNING w.ctid, w.id, {o}.id"
        kind = rng.randrange(6)
        if kind == 0:
            columns = "a, b, s, l, n, c, nm, d, ts, pad"
            wanted = ", ".join(f"{o}.{column}" for column in columns.split(", "))
            return (
                f"INSERT INTO {t} ({columns}) SELECT {wanted} FROM {source} WHERE {few} RETURNING ctid, id, a"
            )
        if kind == 1:
            return (
                f"UPDATE {t} w SET pad = 'changed ' || {o}.id FROM {source} WHERE {few} AND {key} {returning}"
            )
        if kind == 2:
            return f"UPDATE {t} w SET a = w.a + 1, b = {o}.b FROM {source} WHERE {few} AND {key} {returning}"
        if kind == 3:
            return f"DELETE FROM {t} w USING {source} WHERE {few} AND {key} AND w.id % 5 = 1 {returning}"
        if kind == 4:
            return (
                f"UPDATE {t} SET pad = 'found' WHERE id < 200 AND EXISTS (SELECT FROM {self._side(Join(), table).name} y"
                f" WHERE y.id = {t}.a AND y.b > 3) RETURNING ctid, id"
            )
        return (
            f"MERGE INTO {t} w USING {source} ON w.id = {o}.id AND {few} WHEN MATCHED AND {o}.b > 8 THEN UPDATE SET pad = 'merged'"
            f" WHEN MATCHED AND {o}.b = 1 THEN DELETE WHEN NOT MATCHED AND {few} THEN INSERT (a, b, c) VALUES ({o}.a, 1, 'merged')"
            f" RETURNING merge_action(), w.ctid, w.id"
        )

    def _change(self) -> tuple[list[str], Blocks]:
        self._abandoned = True  # by errors
        table = self.changing()
        made = [self._changes(table) for _ in range(4)]
        made += [self.joined()[0], "SELECT count(*), max(n) FROM log"]
        made.append(f"SELECT count(*), sum(hashtext(q::text)) FROM {table.name} q")
        if self.rng.random() < 0.5:
            made = ["BEGIN", *made, self.rng.choice(("COMMIT", "ROLLBACK"))]
        return self._with_planner(made), "any"

    def _row_locks(self) -> tuple[list[str], Blocks]:
        rng, made = self.rng, ["BEGIN"]
        for _ in range(3):
            self.joins += 1
            x, y = rng.sample(self.tables, 2)
            lock = rng.choice(
                ("UPDATE", "SHARE", "NO KEY UPDATE OF x", "KEY SHARE OF y", "UPDATE OF y SKIP LOCKED")
            )
            limit = rng.choice(("", " LIMIT 7")) if x.clean else ""
            made.append(
                f"SELECT x.ctid, y.ctid FROM {x.name} x JOIN {y.name} y ON {self.key('x', 'y')} WHERE x.id < 40{limit} FOR {lock}"
            )
        return self._with_planner([*made, rng.choice(("COMMIT", "ROLLBACK"))]), "any"

    def _current_of(self) -> tuple[list[str], Blocks]:
        rng, table = self.rng, self.changing()
        self.joins += 1
        other = self._side(Join(), table).name
        found = f"SELECT x.id, y.id FROM {table.name} x JOIN {other} y ON y.id = x.a WHERE x.id < 400 FOR UPDATE OF x"
        if rng.random() < 0.4:
            # a Result node tries the condition that is the same for all rows
            once = rng.choice(("", " AND now() > '2000-01-01'"))
            found = f"SELECT x.id, (SELECT max(y.b) FROM {other} y WHERE y.id = x.a) FROM {table.name} x WHERE x.id < 400{once}"
        made = ["BEGIN", f"DECLARE c NO SCROLL CURSOR FOR {found}"]
        for _ in range(4):
            made.append(f"FETCH {rng.choice((1, 2, 9, 40))} FROM c")
            made.append(f"UPDATE {table.name} SET pad = 'current' WHERE CURRENT OF c RETURNING ctid, id")
        made += ["FETCH ALL FROM c", rng.choice(("COMMIT", "ROLLBACK"))]
        # an outer row that is fetched before an update of its page has pruned the page before it
        return self._with_planner([*made, f"VACUUM {table.name}"]), "any"

    def _plpgsql(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        rng, table = self.rng, self.changing()
        join = self.join(2, 150, writing=table)
        x, y = join.names[0], join.names[-1]
        query = join.query(f"{x}.id, {y}.id AS other")
        inner = self._source(table, 12)[0]
        self.joins += 2
        left = rng.choice((1, 5, 11, 60, 9999))
        bodies = (
            *loops(query, left),
            f"FOR r IN {query} LOOP steps := steps + 1; EXIT WHEN steps > 30; FOR q IN SELECT * FROM {inner}"
            f" LOOP told := told || q.id; steps := steps + 1; EXIT WHEN steps % 9 = 0; END LOOP; END LOOP;",
            f"FOR r IN {query} LOOP UPDATE {table.name} SET pad = 'looped' WHERE id = r.id; steps := steps + 1; EXIT WHEN steps > {left}; END LOOP;",
            f"FOR i IN 1..4 LOOP SELECT count(*), md5(string_agg(z::text, '')) INTO steps, told FROM ({query} LIMIT i * 9) z; END LOOP;",
            f"FOR r IN {query} LOOP steps := steps + 1; EXIT WHEN steps > 40; INSERT INTO log (what) VALUES (r::text); END LOOP;",
        )
        made = [block(body) for body in rng.sample(bodies, 2)]
        made.append(f"SELECT id, looked_up(id) FROM {self.clean().name} WHERE id < 12")
        return self._with_planner(made), "any"

    def _failing(self) -> str:
        """A query that fails at some row, unless a LIMIT comes first."""
        rng = self.rng
        self.joins += 1
        join = Join()
        k = rng.choice((3, 17, 40, 77, 90, 100))
        x, y = self.outer(join, 120), self._name()
        word = rng.choice(("JOIN", "LEFT JOIN"))
        table, on, columns = self.inner(join), self.key(x, y), f"{x}.id, {y}.id"
        place = rng.randrange(6)
        if place == 0:
            on = self.key(x, y, FAILING_KEYS)
        elif place == 1:
            join.where.append(rng.choice(FAILING_OUTER).format(x=x, k=k))
        elif place == 2:
            on += " AND " + rng.choice(FAILING_INNER).format(x=x, y=y, k=k)
        elif place == 3:
            columns = rng.choice(FAILING_COLUMN).format(x=x, y=y, k=k)
        elif place == 4:
            # what fails is not come to
            q = self._name()
            guarded = f"(SELECT max({q}.b) FROM {self.inner(join)} {q} WHERE {rng.choice(FAILING_KEYS).format(x=x, y=q, k=k)})"
            on += (
                f" CROSS JOIN LATERAL (SELECT CASE WHEN {x}.id <> {k} AND {x}.a <> {k} THEN {guarded} END AS e"
                f" FROM (SELECT count(*) FROM void) void OFFSET 0) {q}e"
            )
            columns += f", {q}e.e"
        else:
            q = self._name()
            failing = rng.choice(FAILING_COLUMN[:2]).format(x=x, y=q, k=k)
            columns += (
                f", (SELECT max({q}.id * 0 + {failing}) FROM {self.inner(join)} {q} WHERE {self.key(x, q)})"
            )
        join.text += f" {word} {table} {y} ON {on}"
        query = join.query(columns)
        if rng.random() < 0.2:
            z = self._name()
            query = f"SELECT o.*, {z}.a FROM ({query} OFFSET 0) o(i, j) JOIN {self.inner(join)} {z} ON {z}.id = o.i"
            query = query.replace("o(i, j)", "o(i)") if "," not in columns else query
        return query + rng.choice(("", "", "", " LIMIT 3", " LIMIT 20"))

    def _errors(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        made: list[str] = []
        for _ in range(7):
            query = self._failing()
            kind = self.rng.random()
            if kind < 0.7:
                made.append(query)
            else:
                fetch = f"FETCH {self.rng.choice((1, 10, 50))} FROM c"
                made += ["BEGIN", f"DECLARE c CURSOR FOR {query}", "SAVEPOINT s", fetch, fetch, "FETCH ALL FROM c", "ROLLBACK TO s",
                         self.joined(20)[0], "COMMIT"]  # fmt: skip
        made.append(self.joined()[0])
        return self._with_planner(made), "any"

    def _effect(self) -> str:
        """A query with side effects, at some place of a join."""
        rng = self.rng
        self.joins += 1
        join = Join()
        x, y = self.outer(join, 60), self._name()
        table, on, columns = self.inner(join), self.key(x, y), f"{x}.id, {y}.id"
        effect = rng.choice(
            (
                "loud({})",
                "murmur({})",
                "whisper({})",
                "noted({})",
                "nextval('seq') + {} * 0",
                "random() + {}",
                "notes() + {}",
            )
        )
        place = rng.randrange(7)
        if place == 0:
            columns += f", {effect.format(f'{x}.id')}"
        elif place == 1:
            join.where.append(f"{effect.format(f'{x}.id')} > -1")
        elif place == 2:
            on += f" AND {effect.format(f'{y}.id')} > -1"
        elif place == 3:
            on += f" AND {effect.format(f'{x}.id + {y}.id')} > 1"
        elif place == 4:
            join.text = f"(SELECT *, {effect.format('id')} AS e FROM {join.text} WHERE {join.where.pop() if join.where else 'true'} OFFSET 0) {x}"
            columns += f", {x}.e"
        elif place == 5:
            on = f"{y}.id = {'(SELECT ({})::int)' if effect[0] not in 'mw' else '({})::int'}".format(
                effect.format(f"{x}.id")
            )
        else:
            columns += f", (SELECT max({effect.format('q.id')}) FROM {self.inner(join)} q WHERE q.id = {y}.a)"
        join.text += f" {rng.choice(('JOIN', 'LEFT JOIN'))} {table} {y} ON {on}"
        return join.query(columns) + rng.choice(("", "", " LIMIT 1", " LIMIT 10", " LIMIT 33"))

    def _effects(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        made = ["SELECT setseed(0.5)"]
        for _ in range(6):
            made.append(self._effect())
        made += [
            "SELECT last_value, is_called FROM seq",
            "SELECT count(*), max(n), md5(string_agg(what, ',' ORDER BY n)) FROM log",
            "SELECT random()",
        ]
        made.append(f"WITH w AS (DELETE FROM log WHERE n % 3 = 1 RETURNING n) SELECT x.id, y.id, w.n FROM w JOIN t0 x ON x.id = w.n % 100 JOIN"
                    f" {self.clean().name} y ON y.id = x.a LIMIT 40")  # fmt: skip
        return self._with_planner(made), "any"

    def query(self) -> str:
        return self.joined()[0]

    def _cursor_outside(self, table: Table) -> tuple[str, str]:
        return f"DECLARE c NO SCROLL CURSOR FOR {self.joined(80)[0]}", "FETCH 30 FROM c"

    def _savepoints(self) -> tuple[list[str], Blocks]:
        self._abandoned = True
        return super()._savepoints()

    def _change_within(self) -> list[str]:
        return []

    def _temporary(self) -> tuple[list[str], Blocks]:
        made = [
            f"CREATE TEMP TABLE tmp AS SELECT * FROM {self.clean().name} WHERE id < 700",
            "CREATE INDEX ON tmp (a, id); CREATE UNIQUE INDEX ON tmp (id); ANALYZE tmp",
        ]
        for _ in range(4):
            self.joins += 2
            other = self.clean().name
            made.append(
                f"SELECT x.id, y.ctid FROM {other} x LEFT JOIN tmp y ON {self.key('x', 'y', KEYS[:9])} WHERE x.id < 60"
            )
            made.append(
                f"SELECT x.ctid, y.id FROM tmp x JOIN {other} y ON {self.key('x', 'y')} WHERE x.id < 60"
            )
        made.append(
            "UPDATE tmp x SET pad = 'new' FROM t0 y WHERE y.id = x.a AND x.id < 90 RETURNING x.ctid, y.id"
        )
        return self._with_planner([*made, "DROP TABLE tmp"]), "any"

    def _splits(self) -> tuple[list[str], Blocks]:
        """Pages of the inner index are split, and emptied and filled again, while a join stands still.

        The table that changes is never the outer side, whose scan is further with look-ahead: VACUUM skips the
        page that it stands on."""
        rng = self.rng
        self.joins += 1
        outer = self.clean().name
        key = self.key("x", "y", KEYS[:26])
        table = rng.choice([table for table in self.tables if table.changing and not table.kind])
        t = table.name
        # VACUUM would wait for the page of a bucket that the scan of a hash index holds
        vacuum = f"VACUUM (TRUNCATE off, PARALLEL 0{', INDEX_CLEANUP off' if any('hash' in index for index in table.indexes) else ''}) {t}"
        grow = (
            f"INSERT INTO {t} (a, b, s, l, n, c, nm, pad) SELECT i % {table.values}, i % 9, i % 300, i, i, 'k' || i % 90, 'k' || i % 200, 'grown'"
            f" FROM generate_series(1, {rng.choice((30, 400))}) i"
        )
        changes = [
            f"{BESIDE}{grow}",
            f"{BESIDE}{vacuum}",
            f"{BESIDE}DELETE FROM {t} WHERE id % 11 = {rng.randrange(11)}",
            f"{BESIDE}UPDATE {t} SET a = a + 1 WHERE id % 13 = {rng.randrange(13)}",
            grow,
        ]
        made = [
            "SET enable_indexonlyscan = off; SET enable_bitmapscan = off",  # VACUUM would wait for the pin of a leaf
            f"DELETE FROM {t} WHERE id % 9 = {rng.randrange(9)}",
            "BEGIN",
            f"DECLARE c CURSOR FOR SELECT x.id, y.ctid, y.a FROM {outer} x LEFT JOIN {t} y ON {key} WHERE x.id < 300",
        ]
        for _ in range(3):
            made += [f"FETCH {rng.choice((1, 5, 40))} FROM c", rng.choice(changes)]
        made += [f"{BESIDE}{vacuum}", changes[0], "FETCH ALL FROM c", "COMMIT"]
        # so that tables do not grow without end
        made += [
            f"DELETE FROM {t} WHERE id > 2000 AND pad = 'grown'",
            "RESET enable_indexonlyscan; RESET enable_bitmapscan",
        ]
        return made, "any"

    def _parallel(self) -> tuple[list[str], Blocks]:
        leader = f"SET parallel_leader_participation = {self.rng.choice(('on', 'off'))}"
        made = [f"{PARALLEL}; {leader}"]
        for _ in range(4):
            self.joins += 2
            x, y, z = (self.clean().name for _ in range(3))
            made.append(
                f"SELECT count(*), sum(x.id), sum(hashtext(y::text)) FROM {x} x {self.rng.choice(('JOIN', 'LEFT JOIN'))} {y} y ON"
                f" {self.key('x', 'y')} LEFT JOIN {z} z ON z.id = y.a WHERE x.id < 90"
            )
        resets = "SET max_parallel_workers_per_gather = 0; RESET parallel_leader_participation"
        return [*made, f"{NOT_PARALLEL}; {resets}"], "any"

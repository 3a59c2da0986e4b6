# ruff: noqa: E501
"""Random statements whose nested loops must not look ahead, or not far, or may, over the tables of harm.py.

A statement is an outer side, an inner side of it, and what ends the join early or does not; expressions of each
kind stand anywhere in it.  Some of them fail for row BAD of a, have an effect, or depend on a setting.  Everything
follows from the random.Random given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from harm import BAD, Case, row_of
from scan_corpus import block, loops
from scans import PARALLEL

COLUMNS = "id, x, k, m, n, z, v, big, f, ci, cp, circ, ts, t, d, j, arr, g"

HARMLESS = (
    "{o}.id", "{o}.k", "{o}.g + 1", "{o}.id % 7", "abs({o}.n)", "coalesce(nullif({o}.g, 3), {o}.id)", "greatest({o}.g, {o}.n)", "length({o}.t)",
    "CASE WHEN {o}.g < 5 THEN {o}.id ELSE {o}.k END", "{o}.arr[1]", "(SELECT max(dup.v) FROM dup WHERE dup.k = {o}.id)", "({o}.d - date '2026-01-01')",
    "(SELECT count(*) FROM dup WHERE dup.k = {o}.x)", "cardinality(ARRAY(SELECT dup.v FROM dup WHERE dup.k = {o}.x))", "quiet({o}.id)",
    "(SELECT min(b.id) FROM b WHERE b.m = {o}.m)", "(SELECT b.h FROM b WHERE b.m = {o}.m ORDER BY b.ts DESC LIMIT 1)", "extract(hour FROM {o}.ts)::int",
    "({o}.j <> '{{}}')::int", "({o}.id IN (SELECT dup.v FROM dup WHERE dup.v < 20))::int", "ROW({o}.id, {o}.k) <> ROW({o}.k, {o}.id)", "{o}.id::text || 'x'",
)  # fmt: skip
"""Expressions that succeed for every row, and do nothing."""

FAILING = (
    "10 / {o}.z", "10 % {o}.z", "{o}.v::int", "{o}.big + 1", "{o}.big::int", "{o}.f * {o}.f", "({o}.f * 10)::int", "sqrt({o}.n)", "ln({o}.z)", "{o}.n::positive",
    "(SELECT dup.v FROM dup WHERE dup.k = {o}.x)", "(SELECT 10 / {o}.z)", "({o}.j ->> 'n')::int", "substr({o}.v, 1, {o}.n)", "('{{' || {o}.v || '}}')::int[]",
    "picky({o}.z)", "({o}.circ < circle(point(0, 0), 1e9))", "area({o}.circ)", "({o}.ci < {o}.cp)", "({o}.ci < {o}.cp) IS NOT TRUE", "jsonb_populate_record(NULL::counted_row, {o}.j)",
    "CASE WHEN {o}.id = 35 THEN current_setting('no.such') END", "coalesce(nullif({o}.id, 35)::text, current_setting('no.such'))", "date_part('no field', CASE WHEN {o}.id = 35 THEN now() END)",
    "CASE WHEN {o}.id = 35 THEN current_setting('no.such') IN (SELECT dup.v::text FROM dup WHERE dup.k = {o}.x) END", "(SELECT count(current_setting('no.such')) FILTER (WHERE {o}.id = 35 AND dup.v > 0) FROM dup WHERE dup.k = {o}.id)",
    "{o}.id > ALL (SELECT 10 / {o}.z FROM dup WHERE dup.k < 4)", "{o}.id = ANY (SELECT dup.v / {o}.z FROM dup WHERE dup.k = 3)", "ARRAY(SELECT dup.v / {o}.z FROM dup WHERE dup.k = 3)",
    "({o}.id, {o}.k) = (SELECT dup.k, dup.v FROM dup WHERE dup.k = {o}.x)", "EXISTS (SELECT FROM dup WHERE dup.k >= {o}.id LIMIT {o}.n)", "(SELECT dup.v FROM dup WHERE dup.k >= {o}.id ORDER BY dup.k OFFSET {o}.n LIMIT 1)",
    "(SELECT sum(dup.v / {o}.z) FROM dup WHERE dup.k = 3)", "(WITH RECURSIVE r (i) AS (SELECT 0 UNION ALL SELECT i + 1 / {o}.z + 1 FROM r WHERE i < 3) SELECT max(i) FROM r)",
    "{o}.id NOT IN (SELECT dup.v / {o}.z FROM dup WHERE dup.k < 9)", "date '2026-01-01' + {o}.big::int", "make_interval(hours => {o}.big::int)", "power({o}.f, 3)", "repeat({o}.v, 3)::int",
)  # fmt: skip
"""Expressions that fail for row BAD, most of them."""

EFFECTS = (
    "nextval('seq')", "nextval('other') + {o}.id", "loud({o}.id)", "murmur({o}.id)", "whisper({o}.id)", "set_config('my.v', {o}.id::text, false)", "(to_tsquery('the') IS NULL)",
    "(to_tsquery('the ' || left({o}.v, 0)) IS NULL)", "jsonb_populate_record(NULL::counted_row, jsonb_build_object('n', {o}.id))", "jsonb_populate_record(NULL::counted_row, '{{\"n\": 1}}')",
    "('(' || {o}.id || ')')::counted_row", "({o}.id)::counted", "('(' || {o}.id || ')')::kept_row", "('(' || CASE {o}.g % 2 WHEN 0 THEN 'UTC' ELSE 'Asia/Tokyo' END || ')')::zone_row",
    "pg_try_advisory_lock({o}.id)", "(SELECT nextval('seq') + {o}.id * 0)", "(SELECT count(*) FROM dup WHERE dup.k = {o}.id AND nextval('seq') > 0)", "setval('other', {o}.id)",
    "CASE WHEN {o}.g > 5 THEN nextval('seq') END", "coalesce(nullif({o}.g, 4), nextval('seq'))", "{o}.id IN (SELECT nextval('seq') FROM dup WHERE dup.k < 3)",
)  # fmt: skip
"""Expressions that can be noticed by more than their values."""

DEPENDENT = (
    "current_setting('my.v')", "current_setting('TimeZone')", "{o}.t::timestamptz", "{o}.ts::timestamptz", "({o}.t::timestamptz)::date", "to_char({o}.ts::timestamptz, 'TZ')", "now() - {o}.ts > interval '1 day'",
    "(SELECT last_value FROM seq)", "(SELECT last_value + {o}.id FROM other)", "current_date - {o}.d", "{o}.d::timestamptz::text", "date_trunc('day', {o}.t::timestamptz)",
)  # fmt: skip
"""Expressions whose values depend on what others do."""

PREDICATES = (
    "{o}.id < 90", "{o}.id % 3 <> 1", "{o}.g IN (1, 2, 3, 5, 8)", "{o}.id BETWEEN SYMMETRIC 80 AND 5", "{o}.v LIKE '%1%'", "{o}.ci IS NULL", "{o}.n > 0 OR {o}.id = 35", "NOT {o}.g = 4",
    "{o}.id = ANY ({o}.arr)", "EXISTS (SELECT FROM dup WHERE dup.k = {o}.id)", "NOT EXISTS (SELECT FROM dup WHERE dup.k = {o}.g + 890)", "{o}.id IN (SELECT dup.k FROM dup)", "{o}.id NOT IN (SELECT dup.k FROM dup WHERE dup.k > 880)",
    "{o}.id <= ALL (SELECT dup.k FROM dup WHERE dup.k > {o}.id)", "{o}.id < ANY (SELECT dup.k FROM dup WHERE dup.v > {o}.g)", "EXISTS (SELECT FROM b WHERE b.m = {o}.m AND b.h > 3)", "{o}.id IS DISTINCT FROM {o}.k",
    "EXISTS (SELECT FROM a q JOIN b ON b.k = q.k WHERE q.g = {o}.g)", "(SELECT count(*) FROM a q JOIN b ON b.k = q.k WHERE q.m = {o}.m) > 0",
)  # fmt: skip
"""Conditions that most rows meet."""


class HarmCorpus:
    """An endless supply of cases."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = 0

    def cases(self) -> Iterator[Case]:
        while True:
            yield self.case()

    def case(self) -> Case:
        kinds = {
            self._early: 9,
            self._whole: 5,
            self._cursor: 4,
            self._loop: 3,
            self._lazy: 1,
            self._writing: 3,
            self._parallel: 2,
            self._prepared: 2,
        }
        self._names = 0
        made: Case = self.rng.choices(list(kinds), list(kinds.values()))[0]()
        sets = [
            f"SET enable_{name} = off"
            for name, chance in (("seqscan", 0.3), ("indexonlyscan", 0.2), ("incremental_sort", 0.2))
            if self.rng.random() < chance
        ]
        sets += [
            f"SET enable_{name} = on"
            for name in ("sort", "hashagg", "memoize", "material", "bitmapscan", "mergejoin", "hashjoin")
            if self.rng.random() < 0.12
        ]
        if self.rng.random() < 0.15:
            sets.append(f"SET pg_lookahead.max_distance = {self.rng.choice((1, 2, 5, 512))}")
        made.statements = [*sets, *made.statements]
        return made

    # Expressions

    def _name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def expression(self, o: str, failing: float = 0.3, effect: float = 0.12, dependent: float = 0.1) -> str:
        """Of any type."""
        kind = self.rng.random()
        made: tuple[str, ...] = HARMLESS
        if kind < failing:
            made = FAILING
        elif kind < failing + effect:
            made = EFFECTS
        elif kind < failing + effect + dependent:
            made = DEPENDENT
        text = self.rng.choice(made).format(o=o)
        form = self.rng.random()
        if form < 0.06:
            return f"CASE WHEN {o}.id > {self.rng.choice((3, 20, 34))} THEN ({text})::text END"
        if form < 0.1:
            return f"(SELECT {text})"
        return text

    def condition(self, o: str) -> str:
        """One that most rows meet."""
        kind = self.rng.random()
        if kind < 0.5:
            return self.rng.choice(PREDICATES).format(o=o)
        text = self.expression(o, 0.45, 0.2, 0.1)
        form = self.rng.random()
        if form < 0.5:
            return f"({text}) IS NOT NULL"
        if form < 0.7:
            return f"({o}.id < {self.rng.choice((10, 35))} OR ({text})::text <> '?')"
        if form < 0.8:
            return f"(CASE WHEN {o}.g < 8 THEN ({text})::text ELSE 'y' END) <> ''"
        return f"coalesce(({text})::text, '') <> '?'"

    def _where(self, o: str, chance: float = 0.4) -> str:
        return f" WHERE {self.condition(o)}" if self.rng.random() < chance else ""

    def _limit(self) -> int:
        return self.rng.choice((1, 1, 2, 3, 5, 9, 14, 20, 30, 33))

    # Outer sides

    def _most(self) -> int:
        return self.rng.choice((40, 60, 90, 150))

    def outer(self, o: str, early: bool, depth: int = 0) -> str:
        """A row source with the columns of a, and perhaps e."""
        rng, most, i = self.rng, self._most(), self._name()
        e = self.expression(i)
        where = self._where(i)
        and_ = where.replace(" WHERE ", " AND ", 1)
        simple: list[Callable[[], str]] = [
            lambda: f"a {o}",
            lambda: f"(SELECT {i}.*, {e} AS e FROM a {i} WHERE {i}.id <= {most}{and_} OFFSET 0) {o}",
            lambda: f"(SELECT {i}.*, {e} AS e FROM a {i} WHERE {i}.id <= {most}{and_} ORDER BY {i}.id OFFSET 0) {o}",
            lambda: f"(SELECT {i}.* FROM a {i} WHERE {i}.id <= {most}{and_}) {o}",
            lambda: f"(SELECT DISTINCT ON ({i}.id) {i}.*, {e} AS e FROM a {i} WHERE {i}.id <= {most}{and_} ORDER BY {i}.id, {i}.k) {o}",
            lambda: f"(SELECT {i}.* FROM a {i} WHERE {i}.id <= {most} ORDER BY {i}.id LIMIT {rng.choice((30, 45))} OFFSET {rng.choice((0, 2))}) {o}",
            lambda: self._grouped(i, most, o),
            lambda: f"(SELECT {i}.*, {rng.choice(('row_number() OVER (ORDER BY {i}.id)', 'sum({i}.g) OVER (ORDER BY {i}.id)', 'lag({i}.id) OVER (ORDER BY {i}.id)', 'sum(10 / {i}.z) OVER (ORDER BY {i}.id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)')).format(i=i)} AS rn FROM a {i} WHERE {i}.id <= {most}) {o}",
            lambda: f"(SELECT {COLUMNS} FROM a WHERE id <= 20 UNION ALL SELECT {COLUMNS} FROM a {i} WHERE id BETWEEN 21 AND {most}{and_}) {o}",
            lambda: f"(SELECT a.* FROM (SELECT id FROM a WHERE id <= {most} {rng.choice(('INTERSECT', 'EXCEPT', 'UNION'))} SELECT v FROM dup WHERE v % 9 <> 4 AND v < {most} ORDER BY 1) u JOIN a ON a.id = u.id) {o}",
            lambda: f"(WITH w AS MATERIALIZED (SELECT {i}.*, {e} AS e FROM a {i} WHERE {i}.id <= {most}{and_}) SELECT w.* FROM w WHERE w.id % 11 <> 1) {o}",
            lambda: f"(WITH w AS MATERIALIZED (SELECT {i}.* FROM a {i} WHERE {i}.id <= {most}{and_}) SELECT w.* FROM w WHERE w.id > (SELECT min(id) FROM w q WHERE q.g = 1)) {o}",
            lambda: f"(SELECT {row_of('s')} FROM generate_series(1, {most}) s) {o}",
            lambda: f"(SELECT {row_of('s')} FROM unnest(ARRAY(SELECT id FROM a WHERE id <= {most} ORDER BY id)) s) {o}",
            lambda: f"(SELECT {row_of('s')} FROM (VALUES {', '.join(f'({n})' for n in range(1, 45))}) q (s)) {o}",
            lambda: f"(WITH RECURSIVE r (s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM r WHERE s < {most}) SELECT {row_of('s')} FROM r) {o}",
            lambda: f"rows_of({most}) {o}",
            lambda: f"(SELECT q.* FROM ROWS FROM (generate_series(1, {most}), unnest(ARRAY[1, 2])) s (i, u), LATERAL (SELECT {row_of('s.i')}) q) {o}",
            lambda: f"(SELECT {i}.* FROM a {i}, LATERAL (SELECT {e} AS e, dup.v FROM dup WHERE dup.k = {i}.id LIMIT {rng.choice(('1', '2', f'{i}.n', f'abs({i}.n)'))}) l WHERE {i}.id <= {most}) {o}",
            lambda: f"(SELECT {i}.* FROM a {i} JOIN dup ON dup.k = {i}.id{and_} WHERE {i}.id <= {most} OFFSET 0) {o}",
            lambda: f"(SELECT {i}.* FROM a {i} LEFT JOIN b ON b.k = {i}.k{and_} WHERE {i}.id <= {most}) {o}",
            lambda: f"(SELECT q.*, NULL::circle AS circ FROM (SELECT DISTINCT {', '.join(f'{i}.{c}' for c in COLUMNS.split(', ') if c != 'circ')} FROM a {i} WHERE {i}.id <= {most}) q) {o}",
            lambda: f"(SELECT {i}.* FROM far JOIN a {i} ON {i}.id = far.a WHERE far.b = 1 AND far.a > 0 ORDER BY far.a) {o}",
            lambda: f"(SELECT {i}.* FROM dead JOIN a {i} ON {i}.id = dead.id) {o}",
            lambda: f"(SELECT {i}.* FROM a {i} TABLESAMPLE SYSTEM (100) REPEATABLE (1) WHERE {i}.id <= {most}) {o}",
            lambda: f"(SELECT q.* FROM (SELECT {i}.ctid AS c FROM a {i} WHERE {i}.id <= {most} OFFSET 0) l JOIN a q ON q.ctid = l.c) {o}",
        ]  # fmt: skip
        # without an end, if what is above is sure to end
        endless = f"(WITH RECURSIVE r (s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM r) SELECT {row_of('s')} FROM r) {o}"
        if early and rng.random() < 0.05:
            return endless
        weights = [3, 5, 3, 3] + [1.0] * (len(simple) - 4)
        return rng.choices(simple, weights)[0]()

    def _grouped(self, i: str, most: int, o: str) -> str:
        aggregate = self.rng.choice((
            "count(*)", f"sum(10 / {i}.z)", f"max({i}.v::int)", f"min({i}.big + 1)", f"count(current_setting('no.such')) FILTER (WHERE {i}.id = {BAD})", f"sum({i}.f * {i}.f)",
            f"count({i}.k) FILTER (WHERE 10 / {i}.z > 0)", f"array_agg({i}.k ORDER BY 10 / {i}.z)", f"string_agg({i}.v, ',')", f"count(DISTINCT {i}.n::positive)", f"max({i}.ci)", "sum(nextval('seq'))",
        ))  # fmt: skip
        columns = ", ".join(f"{i}.{column}" for column in COLUMNS.split(", ") if column not in ("circ", "j"))
        return (
            f"(SELECT {columns}, NULL::circle AS circ, NULL::jsonb AS j, {aggregate} AS e FROM (SELECT * FROM a WHERE id <= {most} ORDER BY id) {i}"
            f" GROUP BY {columns.replace(f'{i}.id, ', f'{i}.id, ', 1)}{self.rng.choice(('', f' HAVING count(*) > 0 AND 10 / min({i}.z) >= 0'))}) {o}"
        )

    # Inner sides

    def inner(self, o: str, i: str, kind: str = "JOIN") -> str:
        """A join with an inner side, which has the columns id and h."""
        rng, q = self.rng, self._name()
        table = rng.choice(("b", "b", "b", "bp"))
        also = f" AND {self._inner_condition(o, i)}" if rng.random() < 0.3 else ""
        key = rng.choice((f"{i}.k = {o}.k", f"{i}.k = {o}.k", f"{i}.h = {o}.k", f"{i}.m = {o}.m", f"{i}.k = {o}.arr[2]", f"{i}.k = coalesce({o}.k, 0)", f"{i}.k = {o}.k + 0 / {o}.z",
                          f"{i}.k = CASE WHEN {o}.g < 7 THEN {o}.k END", f"{i}.k IN ({o}.k, {o}.m)", f"{i}.m = {o}.m AND {i}.ts > {o}.ts - interval '60 days'", f"{i}.k = (SELECT dup.v FROM dup WHERE dup.k = {o}.x)",
                          f"{i}.k = whisper({o}.k)", f"{i}.k = {o}.v::int * 7"))  # fmt: skip
        if rng.random() < 0.5:
            return f"{kind} {table} {i} ON {key}{also}"
        also = also.replace(f"{i}.", f"{q}.")
        of_row = f"FROM {table} {q} WHERE {q}.m = {o}.m{also}"
        expression = self.expression(o, 0.35, 0.1, 0.05)
        bodies = (
            f"SELECT {q}.id, {q}.h {of_row} ORDER BY {q}.ts DESC LIMIT {rng.choice((1, 1, 2, 5))}",
            f"SELECT {q}.id, {q}.h {of_row} ORDER BY {q}.ts DESC LIMIT {o}.n",
            f"SELECT {q}.id, {q}.h {of_row} ORDER BY {q}.ts LIMIT 2 OFFSET {rng.choice((f'{o}.n', '3', f'10 / {o}.z'))}",
            f"SELECT {q}.id, {q}.h {of_row} ORDER BY {q}.ts FETCH FIRST 2 ROWS WITH TIES",
            f"SELECT * FROM (SELECT {q}.id, {q}.h, {rng.choice(('row_number', 'rank', 'dense_rank', 'count'))}() OVER (ORDER BY {q}.ts DESC) AS rn {of_row}) w WHERE rn <= {rng.choice((1, 2, 4))}".replace("count()", "count(*)"),
            f"SELECT DISTINCT ON ({q}.m) {q}.id, {q}.h {of_row} ORDER BY {q}.m, {q}.ts DESC",
            f"SELECT DISTINCT {q}.ts, {q}.id, {q}.h {of_row} ORDER BY {q}.ts LIMIT 2",
            f"SELECT min({q}.id) AS id, max({q}.h) AS h {of_row} GROUP BY {q}.ts ORDER BY {q}.ts DESC LIMIT 2",
            f"SELECT extract(epoch FROM min({q}.ts))::int AS id, count(*) FILTER (WHERE {q}.h > 5) AS h {of_row}",
            f"SELECT extract(epoch FROM max({q}.ts))::int AS id, count(current_setting('no.such')) FILTER (WHERE {o}.id = {BAD} AND {q}.h >= 0) AS h {of_row}",
            f"SELECT {q}.id, {q}.h {of_row} UNION ALL SELECT bp.id, bp.h FROM bp WHERE bp.m = {o}.m LIMIT {rng.choice((1, 3))}",
            f"(SELECT {q}.id, {q}.h {of_row} ORDER BY {q}.ts LIMIT 3) UNION ALL (SELECT {o}.id, {o}.k)",
            f"SELECT {q}.id FROM b {q} WHERE {q}.m = {o}.m {rng.choice(('INTERSECT', 'EXCEPT'))} SELECT bp.id FROM bp WHERE bp.m = {o}.m",
            f"WITH w AS MATERIALIZED (SELECT {q}.id, {q}.h {of_row}) SELECT w.* FROM w JOIN b z ON z.k = w.h LIMIT 3",
            f"WITH RECURSIVE r (id, h) AS (SELECT {o}.id, {o}.k UNION ALL SELECT z.id, z.h FROM r JOIN b z ON z.k = r.h) SELECT * FROM r LIMIT {rng.choice((1, 3))}",
            f"SELECT {q}.id, {expression} AS h {of_row} LIMIT 2",
            f"SELECT {q}.id, z.id AS h FROM b {q} JOIN b z ON z.k = {q}.h WHERE {q}.m = {o}.m ORDER BY {q}.ts LIMIT {rng.choice((1, 4))}",
            f"SELECT (SELECT {q}.h {of_row} ORDER BY {q}.ts LIMIT 1) AS id, {expression} AS h",
            f"SELECT {q}.id, {q}.h FROM unnest(ARRAY[{o}.m, {o}.g]) u JOIN b {q} ON {q}.m = u LIMIT 5",
        )  # fmt: skip
        on = "ON true" if kind != "CROSS JOIN" else ""
        return f"{kind} LATERAL ({rng.choice(bodies)}) {i} {on}"

    def _inner_condition(self, o: str, i: str) -> str:
        return self.rng.choice((
            f"{i}.h > 3", f"{i}.t <> 'n7'", f"{i}.id + {o}.id > 20", f"10 / ({i}.id - 77) > -11", f"10 / {o}.z >= 0", f"loud({i}.id) >= 0", "nextval('seq') > 0", f"murmur({o}.id) > 0",
            f"jsonb_populate_record(NULL::counted_row, jsonb_build_object('n', {i}.id)) IS NOT NULL", f"('(' || CASE {i}.id % 2 WHEN 0 THEN 'UTC' ELSE 'Asia/Tokyo' END || ')')::zone_row IS NOT NULL",
            f"EXISTS (SELECT FROM dup WHERE dup.k = {i}.id % 900)", f"{i}.id IN (SELECT {i}.id FROM dup WHERE dup.k = {o}.x)", f"set_config('my.v', {i}.id::text, false) <> ''",
            "to_tsquery('the') IS NOT NULL", f"{i}.id <> {o}.k OR current_setting('no.such') = ''", f"CASE WHEN {o}.id < 30 THEN true ELSE {i}.h > 100 END",
        ))  # fmt: skip

    def joined(self, early: bool) -> str:
        """FROM and WHERE of a join of o and i."""
        rng = self.rng
        kind = rng.choices(("JOIN", "LEFT JOIN"), (3, 1))[0]
        text = f"{self.outer('o', early)} {self.inner('o', 'i', kind)}"
        if rng.random() < 0.2:
            third = self._name()
            text += f" {kind} b {third} ON {third}.k = o.id * 7"
        where = [f"o.id <= {self._most()}"]
        kind_of_semi = rng.random()
        if kind_of_semi < 0.1:
            where.append(
                f"{rng.choice(('', 'NOT '))}EXISTS (SELECT FROM b s WHERE s.m = o.m AND s.h > {rng.choice(('3', 'o.id', '15000'))})"
            )
        elif kind_of_semi < 0.2:
            where.append(
                rng.choice(
                    (
                        "o.k IN (SELECT s.k FROM b s)",
                        "o.m NOT IN (SELECT s.m FROM b s WHERE s.m > 390 AND s.k = o.k)",
                        "o.id < ANY (SELECT s.h FROM b s WHERE s.m = o.m)",
                    )
                )
            )
        if rng.random() < 0.2:
            where.append(self.condition("o"))
        return f"{text} WHERE {' AND '.join(where)}"

    def _columns(self) -> str:
        rng = self.rng
        columns = ["o.id", "i.id AS i"]
        if rng.random() < 0.3:
            columns.append(f"({self.expression('o', 0.2, 0.3, 0.2)})::text AS c")
        if rng.random() < 0.08:
            columns.append("(o.*)::text AS whole")
        return ", ".join(columns)

    def _query(self, early: bool) -> str:
        return f"SELECT {self._columns()} FROM {self.joined(early)}"

    # Cases

    def _early(self) -> Case:
        rng, n = self.rng, self._limit()
        kind = rng.randrange(10)
        if kind < 3:
            return Case([f"{self._query(True)} LIMIT {n}{rng.choice(('', '', f' OFFSET {self._limit()}'))}"])
        if kind == 3:
            where = (
                f"i.id * 0 + o.id >= {n}"
                if rng.random() < 0.7
                else f"right(i.id::text, 1) <> '{rng.randrange(9)}'"
            )
            return Case([f"{self._query(True)} AND {where} LIMIT {rng.choice((1, 2))}"])
        if kind == 4:
            return Case([f"SELECT EXISTS (SELECT FROM {self.joined(True)} AND i.id * 0 + o.id >= {n})"])
        if kind == 5:
            where = rng.choice((f"EXISTS (SELECT FROM {self.joined(False)} AND o.id > a.g)", f"NOT EXISTS (SELECT FROM {self.joined(False)} AND o.id > a.g AND o.id > {n})",
                                f"a.id IN (SELECT o.id FROM {self.joined(False)} AND o.id > a.g - 1)", f"a.g <= ANY (SELECT o.id FROM {self.joined(False)} AND o.id > a.g)",
                                f"a.g < ALL (SELECT o.id FROM {self.joined(False)} AND o.id > a.g)", f"(SELECT o.id FROM {self.joined(False)} AND o.id > a.g LIMIT 1) > 0"))  # fmt: skip
            return Case([f"SELECT a.id FROM a WHERE a.id < 6 AND {where}"])
        if kind == 6:
            return Case(["SET enable_mergejoin = on", "SET enable_nestloop = on",
                         f"SELECT m.id, q.* FROM (SELECT id FROM a WHERE id <= {n} ORDER BY id) m FULL JOIN (SELECT o.id AS oid, i.id AS i FROM {self.joined(False)} ORDER BY o.id LIMIT {n * 3}) q ON q.oid = m.id"])  # fmt: skip
        if kind == 7:
            return Case([f"SELECT o.id, count(*), max(i.id::text) FROM {self.joined(True).replace('(WITH RECURSIVE r (s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM r)', '(WITH RECURSIVE r (s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM r WHERE s < 90)')} GROUP BY o.id LIMIT {n}"])  # fmt: skip
        if kind == 8:
            return Case(
                [
                    f"SELECT a.id, l.* FROM a, LATERAL ({self._query(False)} AND o.id >= a.id LIMIT {rng.choice((1, 2, 7))}) l WHERE a.id < 6"
                ]
            )
        return Case([f"SELECT q.*, row_number() OVER () FROM ({self._query(True)}) q LIMIT {n}"])

    def _whole(self) -> Case:
        query = self._query(False)
        made = (
            query,
            query,
            f"SELECT count(*), md5(string_agg(q::text, ',')) FROM ({query}) q",
            f"SELECT q.* FROM ({query}) q ORDER BY md5(q::text)",
            f"SELECT q.id, count(*) FROM ({query}) q GROUP BY q.id HAVING count(*) > 0",
        )
        return Case([self.rng.choice(made)])

    def _cursor(self) -> Case:
        rng, query = self.rng, self._query(False)
        n = rng.choice((1, 3, 8, 15))
        made = [
            "BEGIN",
            f"DECLARE c {rng.choice(('NO SCROLL', ''))} CURSOR FOR {query}",
            *[f"FETCH {n} FROM c"] * rng.choice((1, 2, 4)),
        ]
        if rng.random() < 0.4:
            made += [
                "SET LOCAL TimeZone = 'Asia/Tokyo'",
                "SELECT set_config('my.v', 'between', false)",
                f"FETCH {n} FROM c",
            ]
        made.append(rng.choice(("CLOSE c", "FETCH ALL FROM c", "FETCH 9 FROM c")))
        return Case([*made, "COMMIT"])

    def _loop(self) -> Case:
        return Case([block(self.rng.choice(loops(self._query(False), self._limit())))])

    def _lazy(self) -> Case:
        n = self._limit()
        function = self.rng.choice(("lazy", "lazy_fails"))
        return Case(
            [
                f"SELECT {function}({n}) LIMIT {self._limit()}",
                f"SELECT * FROM {function}(580)",
                f"SELECT a.id, {function}(a.id) FROM a WHERE a.id < 3 LIMIT {n}",
            ]
        )

    def _writing(self) -> Case:
        rng, joined = self.rng, self.joined(False)
        statement = rng.choice((
            f"INSERT INTO w SELECT 1000 + row_number() OVER (), o.k, 'new' FROM {joined}",
            f"INSERT INTO w SELECT o.id, o.k, 'new' FROM {joined} ON CONFLICT (id) DO NOTHING RETURNING id",
            f"UPDATE w SET note = q.note FROM (SELECT o.id, max(i.id::text) AS note FROM {joined} GROUP BY o.id) q WHERE q.id = w.id RETURNING w.id",
            f"UPDATE w SET note = 'joined' FROM a o {self.inner('o', 'i', 'JOIN')} WHERE w.id = o.id AND o.id < 90 RETURNING w.id",
            f"DELETE FROM w WHERE id IN (SELECT o.id FROM {joined}) RETURNING id",
            "WITH new AS (INSERT INTO w SELECT 2000 + o.id, o.k, 'new' FROM a o WHERE o.id < 60 RETURNING id, k) SELECT new.id, b.id FROM new JOIN b ON b.k = new.k",
            f"CREATE TEMP TABLE made ON COMMIT DROP AS {self._query(False)}",
        ))  # fmt: skip
        return Case([statement], writes=True)

    def _parallel(self) -> Case:
        o = self.rng.choice(
            (
                "a o",
                "(SELECT * FROM a WHERE 10 / nullif(z, 0) >= 0 OR id > 0) o",
                "(SELECT * FROM a WHERE v <> 'y') o",
                "(SELECT * FROM a WHERE (SELECT dup.v FROM dup WHERE dup.k = a.x) > 0) o",
            )
        )
        query = f"SELECT o.id, i.id AS i FROM {o} {self.inner('o', 'i')}"
        query = self.rng.choice(
            (
                query,
                f"SELECT count(*), sum(q.id) FROM ({query}) q",
                f"SELECT 1 FROM ({query}) q LIMIT 1",
                f"SELECT EXISTS ({query} OFFSET 3)",
            )
        )
        # how far others are when an error or a LIMIT ends the query is a matter of chance
        return Case([PARALLEL, query], ordered=False, reads=())

    def _prepared(self) -> Case:
        n = self._limit()
        query = f"{self._query(False)} AND o.id > $1 AND (i.id::text <> '?' OR 1 / $2 > 0) LIMIT $3"
        mode = self.rng.choice(("force_generic_plan", "auto"))
        return Case(
            [
                f"SET plan_cache_mode = {mode}",
                f"PREPARE p (int, int, int) AS {query}",
                f"EXECUTE p (0, 0, {n})",
                f"EXECUTE p (3, 1, {n})",
            ]
        )

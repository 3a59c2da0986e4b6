"""Writers: each changes rows of its own, by every kind of index, and knows which rows each statement must
find."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from psycopg import errors

from .model import Model, State, Violation
from .schema import ACCOUNTS, KEYS
from .sessions import Connection, Tally, run
from .settings import varied

Holds = Callable[[int, int], bool]
"""Of a key and its version: whether a condition holds."""

PLANS = (
    "SET LOCAL enable_seqscan = off",
    "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off",
)


def condition(rng: random.Random, client: int) -> tuple[str, Holds]:
    """Return a condition that the client's rows are found by, for some index, and the same in Python."""
    low = rng.randrange(KEYS)
    high = low + rng.choice((3, 20, 100))
    x, y = rng.randrange(101), rng.randrange(103)
    prefix = rng.choice("0123456789abcdef") + rng.choice("0123456789abcdef")
    keys = {rng.randrange(KEYS) for _ in range(rng.randrange(1, 30))}
    some = [rng.randrange(97) for _ in range(2)]
    own = f"client + 0 = {client}"
    return rng.choice((
        (f"client = {client} AND key BETWEEN {low} AND {high}", lambda k, v: low <= k <= high),
        (f"{own} AND key BETWEEN {low} AND {high}", lambda k, v: low <= k <= high),
        (f"client = {client} AND key = ANY (ARRAY{sorted(keys)})", lambda k, v: k in keys),
        (f"{own} AND version BETWEEN {x} AND {x + 2}", lambda k, v: x <= v <= x + 2),
        (f"{own} AND b = {x % 61}", lambda k, v: (k * 7 + v * 3 + client) % 61 == x % 61),
        (f"{own} AND c = {x % 89}", lambda k, v: k % 89 == x % 89),
        (f"{own} AND d BETWEEN {2 * low} AND {2 * high}", lambda k, v: low <= k <= high),
        (f"{own} AND a = {x % 97}", lambda k, v: (k * 31 + v * 17) % 97 == x % 97),
        (f"{own} AND a = ANY (ARRAY{some})", lambda k, v: (k * 31 + v * 17) % 97 in some),
        (f"{own} AND words @> ARRAY[{x % 53}, {200 + client}]", lambda k, v: k % 53 == x % 53),
        (
            f"{own} AND p <@ box(point({x}, {y}), point({x + 9}, {y + 30}))",
            lambda k, v: x <= k % 101 <= x + 9 and y <= v % 103 <= y + 30,
        ),
        (
            f"{own} AND s ^@ '{prefix}'",
            lambda k, v: hashlib.md5(str(k + v).encode()).hexdigest().startswith(prefix),
        ),
    ))  # fmt: skip


class Writer:
    """One client: its model, and its transactions."""

    def __init__(self, client: int, tally: Tally) -> None:
        self.client = client
        self.model = Model(f"client {client}")
        self._tally = tally

    def transaction(self, conn: Connection, rng: random.Random) -> None:
        """Some changes, and their commit or rollback."""
        if self.model.in_doubt:
            self.model.resolve(self.found(conn), after_crash=False)
        state = self.model.now
        durable = rng.random() < 0.85
        level = rng.choice(("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"))
        run(conn, f"BEGIN ISOLATION LEVEL {level}")
        run(
            conn,
            f"{varied(rng)}; {rng.choice(PLANS)};"
            f" SET LOCAL synchronous_commit = {'on' if durable else 'off'}",
        )
        grow = self.insert if len(state) < KEYS // 2 else self.delete
        actions = (
            *(grow, grow, self.insert, self.delete, self.update, self.touch, self.touch),
            *(self.touch_by_cursor, self.survive_an_error, self.transfer, self.transfer, self.fleet),
        )
        for action in rng.choices(actions, k=rng.randint(1, 4)):
            action(conn, rng, state)
        if rng.random() < 0.01:
            self.wipe(conn, rng, state)
        if rng.random() < 0.15:
            run(conn, "ROLLBACK")
            self._tally.add("rolled back")
            return
        self.model.committing(state)
        run(conn, "COMMIT")
        self.model.committed(durable)
        self._tally.add("committed")

    def found(self, conn: Connection) -> State:
        """Return the client's rows as the database has them, by a sequential scan."""
        with conn.transaction():
            run(conn, "SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
            run(conn, "SET LOCAL enable_indexonlyscan = off")
            query = f"SELECT key, version, touched FROM ledger WHERE client = {self.client}"
            return {key: (version, touched) for key, version, touched in run(conn, query).fetchall()}

    # Changes

    def insert(self, conn: Connection, rng: random.Random, state: State) -> None:
        keys = [key for key in rng.sample(range(KEYS), rng.choice((1, 5, 60, 150))) if key not in state]
        version = rng.randrange(103)
        self._insert(conn, keys, version, copied=rng.random() < 0.3)
        state.update(dict.fromkeys(keys, (version, 0)))

    def _insert(self, conn: Connection, keys: list[int], version: int, *, copied: bool = False) -> None:
        for table, column, third in (
            ("ledger", "version", str(version)),
            ("part", "version", str(version)),
            ("entry", "account", f"mod(k, {ACCOUNTS}) + 1"),
        ):
            into = f"{table} (client, key, {column})"
            rows = f"SELECT {self.client}, k, {third} FROM unnest(%s::int[]) AS k"
            if not copied:
                run(conn, f"INSERT INTO {into} {rows}", [keys])
                continue
            found = run(conn, rows, [keys]).fetchall()
            with conn.cursor().copy(f"COPY {into} FROM STDIN".encode()) as copy:
                for row in found:
                    copy.write_row(row)

    def update(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Update all columns of a row, which changes all indexes and TOAST."""
        keys = self._change(conn, rng, state, "UPDATE ledger SET version = version + 1 WHERE {}")
        self._mirror(conn, "UPDATE part SET version = version + 1 WHERE", keys)
        state.update({key: (state[key][0] + 1, state[key][1]) for key in keys})

    def touch(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Update no indexed column of a row, so that the update is HOT where the page has room."""
        keys = self._change(conn, rng, state, "UPDATE ledger SET touched = touched + 1 WHERE {}")
        state.update({key: (state[key][0], state[key][1] + 1) for key in keys})

    def delete(self, conn: Connection, rng: random.Random, state: State) -> None:
        keys = self._change(conn, rng, state, "DELETE FROM ledger WHERE {}")
        self._mirror(conn, "DELETE FROM part WHERE", keys)
        for key in keys:
            del state[key]

    def _change(self, conn: Connection, rng: random.Random, state: State, statement: str) -> list[int]:
        where, holds = condition(rng, self.client)
        statement = statement.format(where)
        found = sorted(key for (key,) in run(conn, f"{statement} RETURNING key").fetchall())
        self._expect(
            statement, found, sorted(key for key, (version, _) in state.items() if holds(key, version))
        )
        return found

    def _mirror(self, conn: Connection, statement: str, keys: list[int]) -> None:
        run(conn, f"{statement} client = {self.client} AND key = ANY (%s)", [keys])

    def _expect(self, statement: str, found: list[int], expected: list[int]) -> None:
        if found != expected:
            raise Violation(f"{statement}: found {found}, expected {expected}")

    def touch_by_cursor(self, conn: Connection, rng: random.Random, state: State) -> None:
        """WHERE CURRENT OF must change the row that was fetched last.

        The cursor is never an index-only scan: with PostgreSQL's own code, too, WHERE CURRENT OF changes no
        row then if the row's first version was pruned and its page is all-visible."""
        low = rng.randrange(KEYS)
        columns, lock = rng.choice(
            (("key", " FOR UPDATE"), ("key, version, pad", " FOR UPDATE"), ("key, pad", ""))
        )
        query = (
            f"SELECT {columns} FROM ledger WHERE client = {self.client} AND key >= {low} ORDER BY key{lock}"
        )
        run(conn, f"DECLARE c CURSOR FOR {query}")
        expected = sorted(key for key in state if key >= low)
        for _ in range(rng.randint(1, 5)):
            count = rng.choice((1, 1, 7, 30))
            rows = run(conn, f"FETCH {count} FROM c").fetchall()
            self._expect(f"FETCH {count} of {query}", [row[0] for row in rows], expected[:count])
            if len(rows) < count:
                break
            del expected[:count]
            touch = "UPDATE ledger SET touched = touched + 1 WHERE CURRENT OF c RETURNING key"
            touched = [key for (key,) in run(conn, touch).fetchall()]
            self._expect(f"{touch} ({query})", touched, [rows[-1][0]])
            state[touched[0]] = (state[touched[0]][0], state[touched[0]][1] + 1)
        run(conn, "CLOSE c")

    def survive_an_error(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Errors inside subtransactions, of SQL and of PL/pgSQL."""
        run(conn, "SAVEPOINT s")
        other = dict(state)
        rng.choice((self.insert, self.update, self.delete))(conn, rng, other)
        if other:
            try:
                self._insert(conn, [rng.choice(list(other))], 0)
                raise Violation("a duplicate key was inserted")
            except errors.UniqueViolation:
                pass
        run(conn, "ROLLBACK TO s; RELEASE s")
        row = run(conn, f"SELECT stop_in_a_loop({self.client})").fetchone()
        expected = -20 if len(state) >= 20 else len(state)
        if row != (expected,):
            raise Violation(f"stop_in_a_loop({self.client}) returned {row}, expected {expected}")

    def transfer(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Money from one account to others, at times in an order that deadlocks."""
        accounts = rng.sample(range(1, ACCOUNTS + 1), rng.randint(2, 6))
        if rng.random() < 0.9:
            accounts.sort()
        amount = rng.randrange(100)
        for i, account in enumerate(accounts):
            change = amount if i else -amount * (len(accounts) - 1)
            run(conn, f"UPDATE account SET balance = balance + {change} WHERE id = {account}")

    def fleet(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Insert or delete rows of the unlogged table."""
        low = rng.randrange(10_000)
        rows = f"SELECT i, ARRAY[i, i % 9], point(i, i % 50) FROM generate_series({low}, {low + 200}) AS i"
        run(
            conn,
            f"INSERT INTO fleeting {rows}"
            if rng.random() < 0.6
            else f"DELETE FROM fleeting WHERE id > {low}",
        )

    def wipe(self, conn: Connection, rng: random.Random, state: State) -> None:
        """Delete all of the client's rows, those of its partition by TRUNCATE."""
        run(conn, f"DELETE FROM ledger WHERE client = {self.client}; TRUNCATE part_{self.client}")
        state.clear()
        self._insert(conn, list(range(0, KEYS, 3)), 5)
        state.update(dict.fromkeys(range(0, KEYS, 3), (5, 0)))


class Refiller:
    """Empties and fills a table in one transaction: one generation is there, or the one before."""

    def __init__(self) -> None:
        self.model = Model("scratch")

    def refill_scratch(self, conn: Connection, rng: random.Random) -> None:
        if self.model.in_doubt:
            self.model.resolve(self.found(conn), after_crash=False)
        generation = self.model.now.get(0, (0, 0))[0] + 1
        with_rollback = rng.random() < 0.2
        run(conn, "BEGIN")
        run(conn, "TRUNCATE scratch")
        rows = f"SELECT {generation}, i, repeat('f', i * 8) FROM generate_series(1, 100) AS i"
        run(conn, f"INSERT INTO scratch {rows}")
        if with_rollback:
            run(conn, "ROLLBACK")
            return
        self.model.committing({0: (generation, 100)})
        run(conn, "COMMIT")
        self.model.committed(True)

    def found(self, conn: Connection) -> State:
        """Generation and number of rows."""
        rows = run(conn, "SELECT generation, count(*) FROM scratch GROUP BY 1").fetchall()
        return {i: (generation, count) for i, (generation, count) in enumerate(rows)}

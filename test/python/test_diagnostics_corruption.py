"""Damaged files: an answer or an error that tells where, each time; never a crash, a hang or a leak.

The files of small relations are damaged under a running server, $PG_LOOKAHEAD_MUTATIONS times (by default
2,000), each time after their pages were evicted; ``make fuzz`` damages them with coverage as its guide.
Where contrib/pgstattuple gives an outcome, ours must be the same, with few exceptions: those
pages that contrib reads beyond their end, or takes for what they are not (``stricter``).
"""

from __future__ import annotations

import ast
import contextlib
import os
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

import bloom_pages
from conftest import MakeCluster
from corruption import ANYWHERE, HEAP, Damage, Mutator, damage, line_pointers, special_size
from pg_lookahead.server.cluster import Cluster
from queries import run, scalar
from relations import (
    BLOCK,
    Outcome,
    ask,
    await_no_pins,
    await_true,
    blocks,
    clean_log,
    data_file,
    evict,
    has_assertions,
    install,
    write_at,
)

MUTATIONS = int(os.environ.get("PG_LOOKAHEAD_MUTATIONS", "2000"))

SETTINGS = {
    "autovacuum": False,
    "shared_buffers": "4MB",
    "max_connections": 10,
    "statement_timeout": "120s",
    "max_prepared_transactions": 2,
}

RELATIONS = (
    "CREATE EXTENSION IF NOT EXISTS bloom SCHEMA contrib",
    # Heap: live, dead, aborted, updated, locked and frozen rows, and all line pointer states.
    "CREATE TABLE c_heap (id int, v int, filler text) WITH (fillfactor = 80)",
    "CREATE INDEX c_heap_id ON c_heap (id)",
    "INSERT INTO c_heap SELECT i, 0, repeat('x', i % 60) FROM generate_series(1, 700) i",
    "VACUUM (FREEZE) c_heap",
    "UPDATE c_heap SET v = 1 WHERE id % 3 = 0",
    "DELETE FROM c_heap WHERE id % 7 = 0",
    "VACUUM (INDEX_CLEANUP OFF, TRUNCATE OFF) c_heap",
    "UPDATE c_heap SET v = 2 WHERE id % 5 = 0",
    "DELETE FROM c_heap WHERE id % 11 = 0",
    "BEGIN",
    "INSERT INTO c_heap SELECT i, 3, 'aborted' FROM generate_series(1000, 1100) i",
    "DELETE FROM c_heap WHERE id % 13 = 0",
    "ROLLBACK",
    "BEGIN",
    "SELECT FROM c_heap WHERE id % 17 = 0 FOR KEY SHARE",
    "SAVEPOINT s",
    "UPDATE c_heap SET v = 4 WHERE id % 34 = 0",
    "COMMIT",
    "CREATE TABLE c_maps (id int, filler text)",
    "INSERT INTO c_maps SELECT i, repeat('x', 100) FROM generate_series(1, 1500) i",
    "DELETE FROM c_maps WHERE id % 4 = 0",
    "VACUUM c_maps",
    "DELETE FROM c_maps WHERE id % 400 = 1",
    "CREATE SEQUENCE c_sequence",
    "CREATE TABLE c_rows AS SELECT i AS id, i % 5 AS few, md5(i::text) AS word, array[i, i % 9] AS list,"
    " point(i % 100, i / 100) AS p FROM generate_series(1, 3000) i",
    "CREATE INDEX c_btree ON c_rows (word)",
    "CREATE INDEX c_btree_id ON c_rows (id)",
    "CREATE INDEX c_hash ON c_rows USING hash (few) WITH (fillfactor = 40)",
    "CREATE INDEX c_hash_id ON c_rows USING hash (id)",
    "CREATE INDEX c_gin ON c_rows USING gin (list)",
    "CREATE INDEX c_gist ON c_rows USING gist (p)",
    "CREATE INDEX c_bloom ON c_rows USING bloom (id, few, word)",
    "DELETE FROM c_rows WHERE id BETWEEN 1000 AND 2000",
    "VACUUM c_rows",
    "INSERT INTO c_rows SELECT i, 1, 'w', array[i], point(1, 1) FROM generate_series(5000, 5040) i",
)


@dataclass(frozen=True)
class Target:
    """A file to damage, and the functions that read it.

    relation: asked about; file_of: whose file it is; fork: which of its files
    weight: how often, compared with others"""

    relation: str
    functions: tuple[str, ...]
    mutators: tuple[Mutator, ...] = ANYWHERE
    fork: str = "main"
    weight: int = 1


TARGETS = (
    Target("c_heap", ("pgstattuple", "pgstattuple_approx", "pg_relpages"), HEAP, weight=6),
    Target("c_sequence", ("pgstattuple",), HEAP),
    Target("c_btree", ("pgstatindex", "pgstattuple"), weight=2),
    Target("c_btree_id", ("pgstatindex", "pgstattuple"), weight=2),
    Target("c_hash", ("pgstathashindex", "pgstattuple"), weight=2),
    Target("c_hash_id", ("pgstathashindex", "pgstattuple")),
    Target("c_gin", ("pgstatginindex",)),
    Target("c_gist", ("pgstattuple",), weight=2),
    Target("c_bloom", ("pgstatbloomindex",), weight=3),
    Target("c_maps", ("pgstattuple_approx",), fork="vm", weight=2),
    Target("c_maps", ("pgstattuple_approx",), fork="fsm", weight=2),
    Target("c_maps", ("pgstattuple_approx",), HEAP),
)


class Lab:
    """A server with relations to damage: their files, and connections for ours and contrib's."""

    def __init__(self, server: Cluster) -> None:
        self.server = server
        self.crashes_of_contrib = 0
        self.connect()
        self.assertions = has_assertions(self.ours)
        install(self.ours)
        run(self.ours, *RELATIONS, "CHECKPOINT")
        # The server asserts on rows that make no sense, whoever asks whether they are visible.
        self.targets = [t for t in TARGETS if t.mutators is not HEAP or not self.assertions]
        self.paths = {(t.relation, t.fork): data_file(server, self.ours, t.relation, t.fork) for t in TARGETS}
        for relation in {t.relation for t in TARGETS}:
            evict(self.ours, relation)
        self.intact = {key: path.read_bytes() for key, path in self.paths.items()}
        self.pages = [page for data in self.intact.values() for page in blocks(data)]

    def connect(self) -> None:
        self.ours = self.server.connect()
        self.contrib = self.server.connect()

    def close(self) -> None:
        self.ours.close()
        self.contrib.close()

    @contextlib.contextmanager
    def damaged(self, target: Target, damaged: bytes) -> Iterator[None]:
        """The file of a target with other contents, and none of its pages in memory: before and after."""
        path = self.paths[target.relation, target.fork]
        path.write_bytes(damaged)
        yield
        evict(self.ours, target.relation)
        path.write_bytes(self.intact[target.relation, target.fork])

    def ask_contrib(self, function: str, relation: str) -> Outcome | None:
        """contrib's outcome; None if it crashed the server, which is up again then."""
        try:
            return ask(self.contrib, "contrib", function, relation)
        except psycopg.OperationalError:
            self.crashes_of_contrib += 1
            self.close()
            await_true(self.reconnected, "the server up again after contrib's crash")
            return None

    def ask_afresh(self, target: Target, damage: Damage, schema: str, function: str) -> Outcome:
        """The outcome in a new session, the file being as it was when it had just been damaged.

        A session remembers how long a file was until it has met the end; and whoever is asked
        first leaves hint bits, which on a damaged row may say what the row itself does not."""
        self.close()
        self.connect()
        evict(self.ours, target.relation)
        with self.damaged(target, damage.data):
            outcome = ask(self.ours, schema, function, target.relation)
        self.paths[target.relation, target.fork].write_bytes(damage.data)
        return outcome

    def reconnected(self) -> bool:
        try:
            self.connect()
        except psycopg.OperationalError:
            return False
        return True


def names_relation(outcome: Outcome, target: Target, path: Path) -> bool:
    """Whether the error tells in which relation or file."""
    file = f"{path.parent.name}/{path.name.split('_')[0]}"
    return target.relation in outcome.everything or file in outcome.everything


def names_block(outcome: Outcome) -> bool:
    """Whether the error tells at which block, or is core's about an index with a bad metapage."""
    metapage = ("is not a hash index", "has wrong hash version")
    return bool(re.search(r"\bblocks? \d+", outcome.everything, re.I)) or outcome.message.endswith(metapage)


def stricter(ours: Outcome, target: Target, function: str, damage: Damage) -> str | None:
    """Why ours may give an error where contrib does not; None if it may not.

    The damage is looked at again here, so that ours cannot cry wolf."""
    pages = list(blocks(damage.data))
    match = re.search(r"block (\d+)", ours.message)
    page = pages[int(match[1])] if match and int(match[1]) < len(pages) else None
    if ours.message.startswith("invalid line pointer") and page is not None:
        return "line pointer out of the page" if not all(p.sound for p in line_pointers(page)) else None
    if "contains corrupted page at block" in ours.message and page is not None:
        if function == "pgstatindex":
            return "no btree special area" if special_size(page) != 16 else None
        if function == "pgstatginindex":
            return "no GIN metapage" if special_size(page) != 8 or not page[BLOCK - 2] & 0x08 else None
    if ours.message == f'index "{target.relation}" is not a btree':
        return "no btree magic" if struct.unpack_from("<I", pages[0], 24)[0] != 0x053162 else None
    return None


def examine(lab: Lab, target: Target, damage: Damage, seen: Counter[str]) -> None:
    """Ask all functions of a target about its damaged file."""
    path = lab.paths[target.relation, target.fork]
    for function in target.functions:
        where = f"{function}({target.relation}), {target.fork} fork, {damage.what}"
        try:
            ours = ask(lab.ours, "lookahead", function, target.relation)
        except psycopg.OperationalError as error:
            kept = path.with_name(path.name + ".killer")
            kept.write_bytes(damage.data)
            pytest.fail(f"ours crashed the server: {where}: {error}\n{lab.server.log[-3000:]}")
        assert ours.sqlstate != psycopg.errors.QueryCanceled.sqlstate, f"ours hangs: {where}"
        if function == "pgstattuple" and target.mutators is HEAP and ours.error is None:
            sound = all(pointer.sound for page in blocks(damage.data) for pointer in line_pointers(page))
            assert sound, f"went along a line pointer that leads out of its page: {where}: {ours}"
        if ours.error is None:
            seen["answers"] += 1
        else:
            seen["errors"] += 1
            seen[f"error {ours.sqlstate}"] += 1
            assert names_relation(ours, target, path), f"error names no relation: {where}: {ours}"
            assert names_block(ours), f"error names no block: {where}: {ours}"
        if function == "pgstatbloomindex":
            examine_bloom(ours, damage, where)
            continue
        if lab.assertions:  # contrib's and the server's own do not hold of damaged pages
            seen["not asked of contrib: assertions"] += 1
            continue
        reason = stricter(ours, target, function, damage) if ours.error else None
        if reason == "line pointer out of the page":  # contrib would change other pages
            seen[f"not asked of contrib: {reason}"] += 1
            continue
        contrib = lab.ask_contrib(function, target.relation)
        if contrib is None:
            seen["crashes of contrib"] += 1
            assert ours.error is not None, f"contrib crashed where ours answered: {where}: {ours}"
        elif reason and contrib.error is None:
            seen[f"stricter: {reason}"] += 1
        elif not reason and len(damage.blocks) > 1 and ours.error and contrib.error:
            seen["both errors"] += 1  # of two bad blocks in one read, either may be told of
        elif not reason:
            if not ours.same_as(contrib):
                ours = lab.ask_afresh(target, damage, "lookahead", function)
                contrib = lab.ask_afresh(target, damage, "contrib", function)
                seen["asked afresh"] += 1
            assert ours.same_as(contrib), f"{where}:\nours:    {ours}\ncontrib: {contrib}"
            seen["same as contrib"] += 1


def examine_bloom(ours: Outcome, damage: Damage, where: str) -> None:
    """The same for a Bloom index, which contrib does not know: compare with the file's bytes."""
    if "invalid page" in ours.message or not list(blocks(damage.data)):
        return
    expected = bloom_pages.describe(damage.data, 3)
    assert (ours.error is not None) == (expected is None), f"{where}: {ours}, not {expected}"
    if expected is not None:
        values = (None if text is None else ast.literal_eval(text) for text in ours.values)
        found = dict(zip((name for name, _ in ours.columns), values, strict=True))
        assert found == expected, where


@pytest.mark.parametrize("io_method", ["worker", "sync"])
def test_without_checksums(make_cluster: MakeCluster, rng: random.Random, io_method: str) -> None:
    server = make_cluster(settings={**SETTINGS, "io_method": io_method}, initdb_args=["--no-data-checksums"])
    lab = Lab(server)
    seen: Counter[str] = Counter()
    by_target: Counter[str] = Counter()
    weights = [target.weight for target in lab.targets]
    with clean_log(server):
        for number in range(MUTATIONS // 2):
            target = rng.choices(lab.targets, weights)[0]
            harm = damage(lab.intact[target.relation, target.fork], lab.pages, target.mutators, rng)
            with lab.damaged(target, harm.data):
                examine(lab, target, harm, seen)
            by_target[f"{target.relation} {target.fork}"] += 1
            if number % 100 == 0:
                await_no_pins(lab.contrib)
                assert scalar(lab.ours, "SELECT 1") == 1
        await_no_pins(lab.contrib)
        # All files are whole again, and so are the answers.
        asked = [(function, target.relation) for target in TARGETS for function in target.functions]
        assert [one for one in asked if ask(lab.ours, "lookahead", *one).error is not None] == []
    print(dict(by_target), dict(seen), sep="\n")
    lab.close()
    # The damage must have bitten, and not always.
    assert seen["answers"] > MUTATIONS // 20 and seen["errors"] > MUTATIONS // 20
    assert seen["same as contrib"] > MUTATIONS // 5 or lab.assertions


def test_with_checksums(make_cluster: MakeCluster, rng: random.Random) -> None:
    """Any damage of a page is an error, and contrib's; unless the checksum was made to fit."""
    server = make_cluster(settings=SETTINGS, initdb_args=["--data-checksums"])
    lab = Lab(server)
    seen: Counter[str] = Counter()
    weights = [target.weight for target in lab.targets]
    with clean_log(server):
        for number in range(MUTATIONS // 4):
            target = rng.choices(lab.targets, weights)[0]
            intact = lab.intact[target.relation, target.fork]
            harm = damage(intact, lab.pages, target.mutators, rng)
            if len(harm.blocks) == 1 and rng.random() < 0.5:
                harm = sealed(lab, harm)
                seen["sealed"] += 1
            with lab.damaged(target, harm.data):
                examine(lab, target, harm, seen)
            if number % 100 == 0:
                await_no_pins(lab.contrib)
        await_no_pins(lab.contrib)
    print(dict(seen))
    lab.close()
    assert seen["error XX001"] > MUTATIONS // 20


def sealed(lab: Lab, harm: Damage) -> Damage:
    """The same damage with a checksum that fits it."""
    (block,) = harm.blocks
    start = block * BLOCK
    page = bytearray(harm.data[start : start + BLOCK])
    try:
        checksum = scalar(lab.contrib, "SELECT contrib.page_checksum(%s::bytea, %s)", [bytes(page), block])
    except psycopg.Error:
        return harm
    if checksum is None:  # a page that says it is new
        return harm
    struct.pack_into("<H", page, 8, checksum & 0xFFFF)
    return Damage(
        f"{harm.what}, sealed", harm.data[:start] + bytes(page) + harm.data[start + BLOCK :], harm.blocks
    )


CHECKED = {
    "c_heap": ("pgstattuple", "pgstattuple_approx"),
    "c_btree": ("pgstatindex", "pgstattuple"),
    "c_hash": ("pgstathashindex", "pgstattuple"),
    "c_gist": ("pgstattuple",),
}


@pytest.mark.parametrize("io_method", ["worker", "sync"])
def test_error_in_mid_stream(make_cluster: MakeCluster, rng: random.Random, io_method: str) -> None:
    """A bad checksum in the middle: contrib's error, with the block; the session goes on."""
    server = make_cluster(settings={**SETTINGS, "io_method": io_method}, initdb_args=["--data-checksums"])
    lab = Lab(server)
    with clean_log(server):
        for relation, function in 5 * [(one, name) for one, names in CHECKED.items() for name in names]:
            path, intact = lab.paths[relation, "main"], lab.intact[relation, "main"]
            block = rng.randrange(1, len(intact) // BLOCK)
            evict(lab.ours, relation)
            write_at(path, block * BLOCK + rng.randrange(100, BLOCK), b"\xa5\x5a\xa5")
            ours = ask(lab.ours, "lookahead", function, relation)
            contrib = ask(lab.contrib, "contrib", function, relation)
            assert ours.same_as(contrib), f"{ours}\n{contrib}"
            assert f"invalid page in block {block} of relation" in ours.message
            await_no_pins(lab.contrib)
            # In a transaction: rolled back to a savepoint, which releases what was held.
            with lab.ours.transaction():
                assert ask(lab.ours, "lookahead", function, relation).same_as(contrib)
                await_no_pins(lab.contrib)
                assert scalar(lab.ours, "SELECT 1") == 1
            evict(lab.ours, relation)
            write_at(path, 0, intact)
            ours = ask(lab.ours, "lookahead", function, relation)
            assert ours.error is None
            assert ours.same_as(ask(lab.contrib, "contrib", function, relation))
    lab.close()

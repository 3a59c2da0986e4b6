"""Conclusions from figures: which reads look-ahead serves, what to set, what has changed.  Pure functions."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import count, takewhile

from ..report import words
from ..server.dsn import without_secrets
from .records import Advice, Change, Index, Loss, Relation, Report, Server, Setting, Statement, Storage

_SERVED = ("btree", "hash", "gist", "spgist")
_FEW_ROWS = 1.5
"""Rows of a scan, on average, below which there is nothing to look ahead to within it."""
_SLOW = 25e-6
"""Seconds of a read from which on an index scan looks ahead (docs/index-scans.md)."""
_LEAST_BOUND = 1.05
"""The least bound of what a statement can gain for which it is worth a line."""
_LOOK_UP = 8
"""Pages that a look-up of one row by a unique key touches at most: those of its btree, its row's, and a few
of the catalogs."""
_MORE = 1.1
"""What counts as more time or more reads a call than before."""
_WASTE, _WASTED = 0.1, 64
"""The part of what was read ahead, and the blocks, from which on reads for nothing are worth a line."""
_REFILLED = 30.0
"""Per cent of a btree that a rebuild gives back at most if its leaf pages are as full as random keys leave
them: 69 %, of 90."""
_KNOWN_DEFAULT = 16
"""effective_io_concurrency of PostgreSQL 18."""
_MOST_WORKERS = 32
_OTHER_READS = 16
"""Reads in flight of a process beside those ahead."""
_COMBINED = 128 << 10


def served(relation: Relation, server: Server) -> str:
    """Return whether look-ahead serves the reads of this relation: "yes", "partly" or "no", and why."""
    if relation.kind == "table":
        rows = relation.index_rows + relation.other_rows
        if not relation.index_rows:
            return (
                "no: sequential and bitmap scans, which PostgreSQL itself reads ahead"
                if rows
                else "no: no scans"
            )
        share = relation.index_rows / rows
        part = f"{share:.0%}" if share >= 0.005 else "less than 1%"
        return f"{'yes' if share > 0.5 else 'partly'}: index scans fetch {part} of the rows"
    if relation.method == "bloom":
        return "yes: Bloom scans" if _major(server) < 19 else "no: PostgreSQL 19 streams Bloom scans itself"
    if relation.method in ("gin", "brin"):
        return "no: bitmap scans only, whose heap pages PostgreSQL itself reads ahead"
    if relation.method not in _SERVED:
        return "no: the access method is an extension's"
    if not relation.index_rows:
        return "no: no plain index scan fetched rows"
    each = relation.index_rows / max(relation.scans, 1)
    if each < _FEW_ROWS:
        return f"no: about {each:.2g} row a scan; in a nested loop it may be served"
    return f"yes: {words.number(each)} rows a scan"


def bound(statement: Statement) -> float:
    """Return how many times as fast a statement would be if its reads took no time, which bounds any gain."""
    rest = statement.seconds - statement.read_seconds
    return statement.seconds / rest if rest > 0 else math.inf


def try_command(statement: Statement, dsn: str) -> str:
    """Return the command that measures a statement with look-ahead and without; it has no password.

    Where the statement has parameters, it ends with a place for the value of each."""
    known = set(re.findall(r"\$(\d+)", statement.query))  # and sums of money in its comments
    parameters = takewhile(known.__contains__, map(str, count(1)))
    values = "".join(f" --param '${number}'" for number in parameters)
    queryid, place = map(shlex.quote, (statement.queryid, without_secrets(dsn)))  # as the server told them
    return f"pg_lookahead try --queryid {queryid} --dsn={place}{values}"


def likely(statement: Statement) -> bool:
    """Return whether a statement waits for single reads, and long enough to gain; True also where reads
    were not timed.  One that looks up one row by a unique key has no second read to begin early."""
    each = statement.read_seconds / max(statement.blocks_read, 1)
    touched = statement.blocks_read + statement.blocks_hit
    if 0 < statement.rows <= statement.calls and touched <= _LOOK_UP * statement.calls:
        return False
    return not statement.read_seconds or (each >= _SLOW and bound(statement) >= _LEAST_BOUND)


# What may have been harmed

_COUNTS = (
    ("index_scan_stats", "pg_lookahead.index_scan", ("blocks_read",), "blocks_unused"),
    ("index_scan_stats", "pg_lookahead.index_pages", ("leaf_pages_read",), "leaf_pages_unused"),
    ("join_stats", "pg_lookahead.nested_loop", ("leaf_blocks_read", "heap_blocks_read"), "blocks_unused"),
    ("write_stats", "pg_lookahead.writes", ("index_blocks_read", "heap_blocks_read"), "blocks_unused"),
    ("toast_stats", "pg_lookahead.toast", ("chunk_blocks_read", "index_blocks_read"), "blocks_unused"),
    ("apply_stats", "pg_lookahead.apply", ("index_blocks_read", "heap_blocks_read"), "blocks_unused"),
)
"""Where a view counts what was read ahead and what of it was for nothing, and the setting that switches it
off."""


def losses(old: Report | None, new: Report) -> list[Loss]:
    """Return what look-ahead may have harmed: by reads for nothing, as the server's counts and plans of its
    log tell, and by more time or reads a call than in the earlier report."""
    found = [*_wasted(new), *_logged(new)]
    before = {
        (server.name, one.database, one.queryid): one
        for server in (old.servers if old else [])
        for one in server.statements or []
    }
    for server in new.servers:
        for one in server.statements or []:
            was = before.get((server.name, one.database, one.queryid))
            if was is not None and any(any(counts.values()) for counts in server.look_ahead.values()):
                found += _slower(was, one, f"{one.database} on {server.name}")
    return found


def _slower(was: Statement, now: Statement, place: str) -> Iterator[Loss]:
    """Compare the calls since the earlier report with those before it; reset counts tell nothing."""
    calls = now.calls - was.calls
    if was.calls <= 0 or calls <= 0 or was.since not in ("", now.since):
        return
    seconds, blocks = (now.seconds - was.seconds) / calls, (now.blocks_read - was.blocks_read) / calls
    time, reads = was.seconds / was.calls, was.blocks_read / was.calls
    reasons = []
    if seconds > _MORE * time:
        reasons.append(f"{words.duration(seconds)} a call, before {words.duration(time)}")
    if blocks > _MORE * reads + 1:
        reasons.append(f"{words.number(blocks)} blocks a call, before {words.number(reads)}")
    if reasons:
        yield Loss(now.query, place, "; ".join(reasons), now.try_command)


def _share(unused: int, read: int) -> str:
    return f"{words.number(unused)} of {words.number(read)} blocks were read ahead for nothing"


def _much(unused: int, read: int) -> bool:
    return unused > _WASTED and unused > _WASTE * read


def _wasted(report: Report) -> Iterator[Loss]:
    """Yield parts of look-ahead that read much for nothing on a server as a whole."""
    for server in report.servers:
        for view, setting, names, vain in _COUNTS:
            counts = server.look_ahead.get(view, {})
            read, unused = sum(int(counts.get(name, 0)) for name in names), int(counts.get(vain, 0))
            if _much(unused, read):
                command = f"ALTER SYSTEM SET {setting} = off; SELECT pg_reload_conf();"
                yield Loss(f"all that {setting} serves", server.name, _share(unused, read), command)


def _logged(report: Report) -> Iterator[Loss]:
    """Yield statements of a log for which much was read for nothing."""
    for one in sorted(report.logged, key=lambda one: -one.unused):
        if _much(one.unused, one.ahead):
            reason = f"{_share(one.unused, one.ahead)}, most of them for {one.node}"
            yield Loss(one.query, report.log, reason, f"SET {one.setting} = off;")


def refills(index: Index) -> str:
    """Tell whether an index is as large as its keys make it again after a rebuild; empty if it is not."""
    if index.method != "btree" or (index.gain_percent or 0) > _REFILLED:
        return ""
    if index.key == "uuid":
        return "random keys fill it as before"
    return "if its keys come in random order, they fill it as before"


# What to set


def advise(server: Server, storage: Storage | None) -> list[Advice]:
    """Return what to set on a server.

    storage: what was measured of this server's storage; None if nothing was"""
    return list(_advice(server, storage)) if server.settings else []


def _advice(server: Server, storage: Storage | None) -> Iterator[Advice]:
    settings = server.settings
    yield from _library(server)
    needs = {"pg_lookahead.enabled": "on", "pg_lookahead.index_scan": "on", "pg_lookahead.max_distance": "-1"}
    for name, needed in needs.items():
        if name in settings and settings[name].setting in ("off", "0"):
            yield _set(settings, name, needed, "look-ahead is off, except where a role sets it")
    if "track_io_timing" in settings and settings["track_io_timing"].setting == "off":
        yield _set(
            settings, "track_io_timing", "on", "without it the server does not measure how long reads take"
        )
    method, direct = settings.get("io_method"), settings.get("debug_io_direct")
    if method and method.setting == "sync":
        better = "io_uring" if "io_uring" in (method.choices or []) else "worker"
        why = "sync reads nothing in the background: look-ahead can only advise the kernel"
        yield _set(settings, "io_method", better, why)
    elif method is None and direct and direct.setting:
        why = "on PostgreSQL 17 nothing can be read ahead with direct I/O"
        yield _set(settings, "debug_io_direct", "''", why)
    yield from _concurrency(server, storage)
    yield from _combining(settings)
    if storage:
        yield from _page_cost(settings, storage)


def _library(server: Server) -> Iterator[Advice]:
    if server.loaded or server.loaded_for:
        return
    name = "shared_preload_libraries"
    known = server.settings.get(name)
    effect = "after a restart"
    if server.available is None:
        now, command = "not installed", "make install PG_CONFIG=..."
        effect = "not yet: the next report has the setting"
    elif known is None:
        now, command = "not visible to this role", f"-- add pg_lookahead to {name}"
    else:
        names = [one.strip() for one in known.setting.split(",") if one.strip()]
        each = ", ".join("'" + one.replace("'", "''") + "'" for one in [*names, "pg_lookahead"])
        now, command = known.setting or "empty", f"ALTER SYSTEM SET {name} = {each};"
    yield Advice(name, now, "with pg_lookahead", "sessions do not load the library", command, effect)


def _concurrency(server: Server, storage: Storage | None) -> Iterator[Advice]:
    """Reads in flight: as many as storage takes, or at least PostgreSQL 18's default."""
    settings = server.settings
    wanted, why = (
        _KNOWN_DEFAULT,
        f"{_KNOWN_DEFAULT} is the default of PostgreSQL 18; --measure-storage tells what storage takes",
    )
    if storage:
        one, best = storage.curve[0], max(one.reads_a_second for one in storage.curve)
        wanted = storage.knee
        why = (
            f"storage does {words.number(one.reads_a_second)} reads a second one at a time,"
            f" and {words.number(best)} at best; depth {wanted} gives nine tenths of that"
        )
    name = "effective_io_concurrency"
    if name in settings and int(settings[name].setting) < wanted:
        yield _set(settings, name, str(wanted), why)
    for place, options in server.tablespaces.items():
        for option in options:
            key, _, value = option.partition("=")
            if key == name and _number(value) < wanted:
                quoted = '"' + place.replace('"', '""') + '"'
                yield Advice(f"{name} of tablespace {place}", value, str(wanted), why,
                    f"ALTER TABLESPACE {quoted} SET ({name} = {wanted});", "at once")  # fmt: skip
    if settings.get("io_method", Setting("")).setting == "worker":
        name = "io_max_workers" if "io_max_workers" in settings else "io_workers"
        workers = min(wanted, _MOST_WORKERS)
        if name in settings and storage and int(settings[name].setting) < workers:
            yield _set(settings, name, str(workers), f"each worker does one read at a time; {why}")
    name = "io_max_concurrency"
    if name in settings and storage and int(settings[name].setting) < wanted:
        most = f"a process may have at most {settings[name].setting} reads in flight; {why}"
        yield _set(settings, name, str(wanted + _OTHER_READS), most)


def _number(text: str) -> float:
    """Return the value of an option, which the server keeps as it was given: 16, 16.4 or 0x10."""
    return float.fromhex(text) if text.lower().startswith("0x") else float(text)


def _combining(settings: Mapping[str, Setting]) -> Iterator[Advice]:
    block = int(settings["block_size"].setting) if "block_size" in settings else 8192
    for name in ("io_max_combine_limit", "io_combine_limit"):
        if name in settings and int(settings[name].setting) * block < _COMBINED:
            yield _set(
                settings,
                name,
                f"'{_COMBINED >> 10}kB'",
                "neighbouring blocks take more reads than they need; 128 kB is the default",
            )


def _page_cost(settings: Mapping[str, Setting], storage: Storage) -> Iterator[Advice]:
    """Advise to lower random_page_cost to what this storage needs.

    That is the cost of a block read at random, with as many reads in flight as the knee has, as a multiple
    of the cost of a block that is part of a large read."""
    if "random_page_cost" not in settings:
        return
    random = next(one.reads_a_second for one in storage.curve if one.depth == storage.knee)
    ordered = storage.large_bytes_a_second / 8192
    wanted = round(min(max(ordered / random, 1.1), 4.0), 1)
    now = float(settings["random_page_cost"].setting)
    if wanted < now:
        why = (
            f"at depth {storage.knee} storage does {words.number(random)} random blocks a second"
            f" and {words.number(ordered)} by 128 KiB reads: a ratio of {ordered / random:.1f}"
        )
        yield _set(settings, "random_page_cost", str(wanted), why)


def _set(settings: Mapping[str, Setting], name: str, value: str, why: str) -> Advice:
    setting = settings[name]
    now = f"{setting.setting}{f' ({setting.unit})' if setting.unit else ''}"
    effect = "after a restart" if setting.context == "postmaster" else "after SELECT pg_reload_conf()"
    return Advice(name, now, value.strip("'"), why, f"ALTER SYSTEM SET {name} = {value};", effect)


def _major(server: Server) -> int:
    number = re.match(r"\d+", server.version)
    return int(number[0]) if number else 0


# What changed


def changes(old: Report, new: Report) -> list[Change]:
    """Return indexes whose size or file is another than in the earlier report, the largest change first."""
    before = {
        (server.name, database.name, index.index): index
        for server in old.servers
        for database in server.databases
        for index in database.indexes
    }
    found = []
    for server in new.servers:
        for database in server.databases:
            for index in database.indexes:
                was = before.get((server.name, database.name, index.index))
                if was is None or was.size is None or index.size is None:
                    continue
                rebuilt = was.filenode != index.filenode
                if rebuilt or was.size != index.size:
                    what = "rebuilt" if rebuilt else "grew" if index.size > was.size else "shrank"
                    gains = was.gain, was.gain_low, was.gain_high
                    found.append(
                        Change(server.name, database.name, index.index, what, was.size, index.size, *gains)
                    )
    return sorted(found, key=lambda one: -abs(one.after - one.before))

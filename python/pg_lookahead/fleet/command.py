"""The command ``pg_lookahead report``."""

import asyncio
import os
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psycopg
import typer
from psycopg import conninfo

from .. import __version__
from ..parameters import option
from ..report import files, words
from ..server import dsn as servers
from ..server.installation import ClusterError
from . import collect, judge, logs, records, storage, terminal
from .records import Report

_PARTLY = 3
_INTERRUPTED = 130
_MOST_KILOBYTES = 2**31 - 1
"""The largest value that the server takes for pg_lookahead.max_read_rate."""
_UNITS = {"kB": 1, "MB": 1024, "GB": 1024 * 1024}


def _kilobytes(text: str) -> int:
    """Return a size in kB, given as PostgreSQL takes it: a number without a unit is in kB."""
    match = re.fullmatch(r"(\d{1,9}) *(kB|MB|GB|)", str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a number with kB, MB or GB")
    size = int(match[1]) * _UNITS.get(match[2], 1)
    if size > _MOST_KILOBYTES:
        raise typer.BadParameter(
            f"{text!r} is more than {_MOST_KILOBYTES} kB, the largest size that is taken"
        )
    return size


def report(
    dsn: Annotated[list[str] | None, option("A server to ask; may be given several times.", "DSN")] = None,
    service_file: Annotated[Path | None, option("Ask all services of this pg_service.conf.", "FILE")] = None,
    all_databases: Annotated[
        bool, option("Ask all databases of each server.", None, "--all-databases")
    ] = False,
    html: Annotated[Path | None, option("Write an HTML page, which needs no other file.", "FILE")] = None,
    json: Annotated[Path | None, option("Write all figures; - prints them.", "FILE")] = None,
    prometheus: Annotated[Path | None, option("Write metrics for Prometheus.", "FILE")] = None,
    since: Annotated[
        Path | None, option("Compare with the --json file of an earlier report.", "FILE")
    ] = None,
    log: Annotated[
        Path | None, option("Read the plans that auto_explain wrote as JSON into this log.", "FILE")
    ] = None,
    measure_storage: Annotated[
        Path | None, option("Measure storage by reading this file, with fio.", "FILE")
    ] = None,
    measure_seconds: Annotated[
        float, option("Measure each depth (1 to 128) for this time.", "S", min=0.1, max=60)
    ] = 1.0,
    bloat: Annotated[
        bool, option("Estimate what rebuilds of indexes give back.", None, "--bloat/--no-bloat")
    ] = True,
    min_index_size: Annotated[Any, option("Leave out smaller indexes.", "SIZE", parser=_kilobytes)] = "10MB",
    max_read_rate: Annotated[
        Any, option("Read this much a second for estimates; 0: no limit.", "SIZE", parser=_kilobytes)
    ] = "50MB",
    connect_timeout: Annotated[
        float, option("Give up a connection after this time.", "S", min=0.1, max=600)
    ] = 5.0,
    timeout: Annotated[float, option("Give up a statement after this time.", "S", min=0.1, max=3600)] = 10.0,
    bloat_timeout: Annotated[
        float, option("Give up estimates in a database then.", "S", min=0.1, max=86400)
    ] = 600.0,
    per_server: Annotated[int, option("Open this many connections to a server.", "N", min=1, max=64)] = 2,
    limit: Annotated[int, option("Show this many lines of a table.", "N", min=1, max=1000)] = 10,
) -> None:
    """Tell what gains and loses by look-ahead, where servers wait for reads, what to set and rebuild.

    Without --dsn and --service-file, libpq's variables (PGHOST, PGSERVICE, ...) name the server.  The
    report reads statistics and samples of indexes, and changes nothing.  The exit status is 0, or 3 if
    something could not be read, which the report names, or 2 for bad input."""
    others = [service_file, log, measure_storage]
    for name, path in {"--json": json, "--html": html, "--prometheus": prometheus}.items():
        if path is not None and (name, path) != ("--json", Path("-")):
            files.check_writable(name, path, *others)
            others.append(path)
    named = any(os.environ.get(name) for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"))
    if not dsn and service_file is None and log is None and (measure_storage is None or named):
        dsn = [""]
    targets = _told_apart([*map(_target, dsn or []), *_services(service_file)])
    before = records.read(since, "--since") if since else None
    logged = logs.read(log) if log else []
    options = collect.Options(
        all_databases=all_databases, per_server=per_server, limit=limit, connect_timeout=connect_timeout,
        timeout=timeout, bloat=bloat, bloat_timeout=bloat_timeout, max_read_rate=max_read_rate,
        min_index_size=min_index_size << 10,
    )  # fmt: skip
    found = Report(tool=__version__, at=records.now(), since=before.at if before else "")
    found.log, found.logged = files.shown(Path(log.name)) if log else "", logged
    collector = None
    status = _INTERRUPTED
    with words.status() as say:
        if measure_storage:
            found.storage = storage.measure(measure_storage, measure_seconds, say)
        try:
            collector = collect.Collector(found, targets, options, say)
            asyncio.run(collector.run())
        except (KeyboardInterrupt, SystemExit) as error:  # Ctrl-C, SIGTERM or SIGHUP
            found.interrupted = True
            status = getattr(error, "code", _INTERRUPTED)
    _judge(found, before, collector.dsns if collector else {})
    _write(found, html, json, prometheus, limit)
    if found.interrupted:
        raise typer.Exit(status)
    if not found.complete:
        raise typer.Exit(_PARTLY)


def _target(dsn: str) -> collect.Target:
    """Return a target of --dsn.  Its service names it; else its host and port do until it answers."""
    found = servers.parts(dsn)
    host = found.get("host") or found.get("hostaddr") or "local socket"
    service = found.get("service")
    return collect.Target(str(service or f"{host}:{found.get('port') or 5432}"), dsn, given=bool(service))


def _told_apart(targets: list[collect.Target]) -> list[collect.Target]:
    """Number targets of one name, since Prometheus refuses a file in which two series are the same.

    Those that turn out to be databases of one server are one row of the report."""
    seen: Counter[str] = Counter()
    found = []
    for target in targets:
        seen[target.name] += 1
        number = seen[target.name]
        found.append(replace(target, name=f"{target.name} ({number})") if number > 1 else target)
    return found


def _services(path: Path | None) -> list[collect.Target]:
    """Return the services of a file, each under its name."""
    if path is None:
        return []
    option = f"--service-file {path}"
    found = _sections(files.read(path, "--service-file"), option)
    if not found:
        raise ClusterError(f"{option}: this file has no services")
    targets = []
    for name, values in found.items():
        try:
            targets.append(collect.Target(name, conninfo.make_conninfo("", **values)))
        except (psycopg.Error, TypeError) as error:  # the latter for a value that has the name "conninfo"
            raise ClusterError(f"{option}: [{name}]: {' '.join(str(error).split())}") from None
        servers.parts(targets[-1].dsn, f"{option}: [{name}]")
    return targets


def _sections(text: str, option: str) -> dict[str, dict[str, str]]:
    """Return the values of each section, as libpq reads them: the first section of a name holds, and in it
    the first value of a name."""
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("["):
            name, sign, _ = line[1:].partition("]")
            section = {}
            found.setdefault(name, section)
        elif line and not line.startswith("#"):
            name, sign, value = line.partition("=")
            if section is not None:
                section.setdefault(name, value)
        else:
            continue
        if section is None or not sign:  # its words may be a password
            raise ClusterError(f"{option}: line {number} is neither [NAME] nor NAME=VALUE below one")
    return found


def _judge(found: Report, before: Report | None, dsns: dict[str, str]) -> None:
    """Say what the figures mean."""
    for server in found.servers:
        try:
            server.advice = judge.advise(server, found.storage if server.local else None)
        except ValueError as error:  # a value that no setting of PostgreSQL has
            server.problems.append(f"settings: {error}")
        for database in server.databases:
            for relation in database.relations:
                relation.served = judge.served(relation, server)
        for statement in server.statements or []:
            dsn = conninfo.make_conninfo(dsns.get(server.name, ""), dbname=statement.database)
            statement.try_command = judge.try_command(statement, dsn)
    found.losses = judge.losses(before, found)
    if before:
        found.changes = judge.changes(before, found)


def _write(found: Report, html: Path | None, json: Path | None, prometheus: Path | None, limit: int) -> None:
    """Write all files, and show the report; what fails keeps nothing else from being written or shown."""
    text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
    with ExitStack() as stack:  # runs its callbacks in the opposite order, whatever raises
        if json == Path("-"):
            stack.callback(print, text, end="")
        else:
            stack.callback(terminal.show, words.output(), found, limit)
        if json is not None and json != Path("-"):
            stack.callback(files.write, json, text)
        if prometheus is not None:
            from .prometheus import text_of  # not before it is needed, as what follows

            stack.callback(files.write, prometheus, text_of(found))
        if html is not None:
            from .html import page_of

            stack.callback(files.write, html, page_of(found, 2 * limit))

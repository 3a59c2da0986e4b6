"""The command ``pg_lookahead report``."""

from __future__ import annotations

import asyncio
import configparser
import logging
import re
from pathlib import Path
from typing import Annotated

import msgspec
import psycopg
import typer
from psycopg import conninfo
from rich.console import Console

from .. import __version__
from ..report import files, words
from ..server.installation import ClusterError
from . import collect, judge, records, storage, terminal
from .records import Report

_PARTLY = 3
_INTERRUPTED = 130
_UNITS = {"kB": 1, "MB": 1024, "GB": 1024 * 1024}

File = Annotated[Path | None, typer.Option(metavar="FILE")]


def _kilobytes(text: str) -> int:
    """As PostgreSQL reads the setting: kB where there is no unit."""
    match = re.fullmatch(r"(\d{1,9}) *(kB|MB|GB|)", str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a number with kB, MB or GB")
    return int(match[1]) * _UNITS.get(match[2], 1)


def report(
    dsn: Annotated[
        list[str] | None, typer.Option(metavar="DSN", help="A server, or a database of it; several times.")
    ] = None,
    service_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="All services of this pg_service.conf.")
    ] = None,
    all_databases: Annotated[
        bool, typer.Option("--all-databases", help="Of each server, not only the one named.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page to send on.")] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all figures; -: print them.")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write metrics in Prometheus' text format.")
    ] = None,
    since: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with an earlier --json file.")
    ] = None,
    measure_storage: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read this file at depths 1 to 128 (fio); for servers of this machine."
        ),
    ] = None,
    measure_seconds: Annotated[
        float, typer.Option(metavar="N", min=0.1, max=60.0, help="For each depth.")
    ] = 1.0,
    bloat: Annotated[
        bool, typer.Option("--bloat/--no-bloat", help="Estimate what a rebuild of each index gives back.")
    ] = True,
    min_index_size: Annotated[
        int,
        typer.Option(metavar="KB", parser=_kilobytes, help="Smaller ones are not read.", show_default=False),
    ] = 10 << 10,
    max_read_rate: Annotated[
        int,
        typer.Option(
            metavar="RATE",
            parser=_kilobytes,
            help="Of the estimates of a database, a second; 0: no limit.",
            show_default="50MB",
        ),
    ] = 50 << 10,
    prefer_standby: Annotated[
        bool, typer.Option("--prefer-standby", help="Estimate on a standby that is named, too.")
    ] = False,
    connect_timeout: Annotated[float, typer.Option(metavar="S", min=0.1, max=600.0)] = 5.0,
    timeout: Annotated[float, typer.Option(metavar="S", min=0.1, max=3600.0, help="Of a statement.")] = 10.0,
    bloat_timeout: Annotated[
        float, typer.Option(metavar="S", min=0.1, max=86400.0, help="Of the estimates of a database.")
    ] = 600.0,
    per_server: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Connections to a server at a time.")
    ] = 2,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Lines of a table.")] = 10,
) -> None:
    """Tell where the reads of many servers wait, what to set, and what to rebuild.

    Reads statistics and samples of indexes; changes nothing.  Exit status 0; 3 if something could
    not be read, which the report names; 2 for bad input."""
    targets = [*(collect.Target(_name(text), text) for text in dsn or []), *_services(service_file)]
    if not targets and measure_storage is None:
        raise typer.BadParameter("name a server by --dsn or --service-file")
    outputs = {"--html": html, "--json": json, "--prometheus": prometheus}
    for option, path in outputs.items():
        if path is not None and path != Path("-"):
            files.check_writable(option, path)
    before = records.read(since, "--since") if since else None
    options = collect.Options(
        all_databases=all_databases, per_server=per_server, limit=limit, connect_timeout=connect_timeout,
        timeout=timeout, bloat=bloat, bloat_timeout=bloat_timeout, max_read_rate=max_read_rate,
        min_index_size=min_index_size << 10, prefer_standby=prefer_standby,
    )  # fmt: skip
    found = Report(tool=__version__, at=records.now(), since=before.at if before else "")
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    with words.status(Console(stderr=True)) as say:
        if measure_storage:
            found.storage = storage.measure(measure_storage, measure_seconds, say)
        try:
            asyncio.run(collect.Collector(found, targets, options, say).run())
        except KeyboardInterrupt:
            found.interrupted = True
    _judge(found, before, {target.name: target.dsn for target in targets})
    _write(found, html, json, prometheus, limit)
    if found.interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not found.complete:
        raise typer.Exit(_PARTLY)


def _name(dsn: str) -> str:
    """Of a server: its service, or its host and port."""
    try:
        parts = conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise ClusterError("--dsn: not a connection string (key=value ..., or postgresql://...)") from None
    host = parts.get("host") or parts.get("hostaddr") or "local socket"
    return str(parts.get("service") or f"{host}:{parts.get('port') or 5432}")


def _services(path: Path | None) -> list[collect.Target]:
    """The services of a file, each under its name."""
    if path is None:
        return []
    parser = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=False)
    try:
        parser.read_string(path.read_text())
        found = [
            collect.Target(name, conninfo.make_conninfo("", **parser[name])) for name in parser.sections()
        ]
    except OSError as error:
        raise ClusterError(f"--service-file {path}: {error.strerror}") from None
    except (configparser.Error, psycopg.ProgrammingError, UnicodeDecodeError) as error:
        raise ClusterError(f"--service-file {path}: {' '.join(str(error).split())}") from None
    if not found:
        raise ClusterError(f"--service-file {path}: no service is in it")
    return found


def _judge(found: Report, before: Report | None, dsns: dict[str, str]) -> None:
    """Say what the figures mean."""
    for server in found.servers:
        server.advice = judge.advise(server, found.storage if server.local else None)
        for database in server.databases:
            for relation in database.relations:
                relation.served = judge.served(relation, server)
        for statement in server.statements or []:
            dsn = conninfo.make_conninfo(dsns[server.name], dbname=statement.database)
            statement.try_command = judge.try_command(statement, dsn)
    if before:
        found.changes = judge.changes(before, found)


def _write(found: Report, html: Path | None, json: Path | None, prometheus: Path | None, limit: int) -> None:
    text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"
    if json == Path("-"):
        print(text, end="")
    else:
        terminal.show(words.output(), found, limit)
        if json is not None:
            files.write(json, text)
    if html is not None:
        from .html import page_of  # not before it is needed: matplotlib takes a while

        files.write(html, page_of(found, 2 * limit))
    if prometheus is not None:
        from .prometheus import text_of

        files.write(prometheus, text_of(found))

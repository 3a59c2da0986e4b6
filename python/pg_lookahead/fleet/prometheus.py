"""A report in the text format of Prometheus, for the textfile collector of its node exporter."""

from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from .records import Report

_PREFIX = "pg_lookahead_"


def _figures(report: Report) -> Iterator[tuple[str, str, float | None, dict[str, str]]]:
    """Yield the name, the description, the value if it is known, and the labels of each figure."""
    yield "report_complete", "Whether nothing is missing of the report.", report.complete, {}
    at = datetime.fromisoformat(report.at).timestamp()
    yield "report_timestamp_seconds", "When the report was made.", at, {}
    for server in report.servers:
        of = {"server": server.name}
        yield "server_answers", "Whether the server could be asked.", not server.error, of
        if server.error:
            continue
        loaded = server.loaded or bool(server.loaded_for)
        yield "library_loaded", "Whether sessions load the library.", loaded, of
        yield "advice", "Settings that the report advises to change.", len(server.advice), of
        for view, counts in server.look_ahead.items():
            for name, value in counts.items():
                yield f"{view}_{name}", f"{name} of lookahead.{view}.", value, of
        for database in server.databases:
            there = {**of, "database": database.name}
            yield "database_answers", "Whether the database could be asked.", not database.error, there
            if database.error:
                continue
            yield "database_blocks_read", "Blocks read.", database.blocks_read, there
            yield "database_blocks_hit", "Blocks found cached.", database.blocks_hit, there
            yield "database_read_seconds", "Time of reads.", database.read_seconds, there
            for one in database.relations:
                relation = {**there, "kind": one.kind, "relation": one.name}
                yield "relation_blocks_read", "Blocks read.", one.blocks_read, relation
            for index in database.indexes:
                place = {**there, "index": index.index}
                if index.gain is not None:
                    yield "index_size_bytes", "Size of an index.", index.size, place
                yield "index_gain_bytes", "What REINDEX gives back.", index.gain, place
                yield "index_gain_low_bytes", "At least, by a 95 % interval.", index.gain_low, place
                yield "index_gain_high_bytes", "At most, by a 95 % interval.", index.gain_high, place


def text_of(report: Report) -> str:
    """Return the report as text in Prometheus's exposition format."""
    registry = CollectorRegistry()
    gauges: dict[str, Gauge] = {}
    for name, told, value, labels in _figures(report):
        if value is not None:
            if name not in gauges:
                gauges[name] = Gauge(_PREFIX + name, told, tuple(labels), registry=registry)
            gauge = gauges[name].labels(**labels) if labels else gauges[name]
            gauge.set(value)
    return generate_latest(registry).decode()

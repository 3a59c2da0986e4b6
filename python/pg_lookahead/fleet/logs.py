"""Plans that auto_explain has written into a server's log (auto_explain.log_format = json).

The log may be plain text (``stderr``) or JSON (``jsonlog``).  Other lines are passed over."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from ..query import plan
from ..report import files
from ..server.installation import ClusterError
from .records import Logged

_PLAN = re.compile(r"duration: (\d+(?:\.\d+)?) ms  plan:\s*")
_LAST = "\t}"
"""The last line of a plan that takes several."""
_DECODER = json.JSONDecoder()
_TELLING = 18
"""A version in which look-ahead tells of single nodes."""


def read(path: Path) -> list[Logged]:
    """Return the statements of a log, with sums over their executions; ClusterError if it has no plan."""
    found: dict[str, Logged] = {}
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for milliseconds, told in _plans(_lines(path, file)):
                with suppress(Exception):  # a statement may write whatever looks like a plan into the log
                    _add(found, milliseconds / 1000, told)
    except OSError as error:
        raise ClusterError(f"--log {path}: {error.strerror}") from None
    if not found:
        raise ClusterError(
            f"--log {path}: it has no plan in JSON (auto_explain.log_format = json, log_analyze, log_buffers)"
        )
    return list(found.values())


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a log; ClusterError if one has no end, as in /dev/zero."""
    while line := file.readline(files.LONGEST + 1):
        if len(line) > files.LONGEST:
            raise ClusterError(f"--log {path}: longer than {files.LONGEST:,} characters in one line")
        yield line


def _plans(lines: Iterator[str]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the duration and the plan of each message of auto_explain."""
    milliseconds, text = 0.0, ""
    for line in lines:
        if line.startswith("{"):  # jsonlog
            try:
                line = str(_DECODER.raw_decode(line)[0].get("message", ""))
            except (ValueError, RecursionError):
                continue
        start = _PLAN.search(line)
        if start:
            milliseconds, text = float(start[1]), line[start.end() :]
        elif text or milliseconds:  # a line that goes on begins with a tab
            text = text + line if line.startswith("\t") else ""
        if not text.strip():
            milliseconds = milliseconds if start else 0.0
        if not text.strip() or not (start or line.rstrip() == _LAST):
            continue
        try:
            told = _DECODER.raw_decode(text.lstrip())[0]
        except (ValueError, RecursionError):
            if start:
                continue  # the rest is in the lines that follow
            told = None  # not a plan, so that it is not read again with each line that looks like the last
        if isinstance(told, dict) and "Plan" in told:
            yield milliseconds, told
        milliseconds, text = 0.0, ""


def _add(found: dict[str, Logged], seconds: float, told: dict[str, Any]) -> None:
    """Add an execution to its statement."""
    blocks_read = int(told["Plan"].get("Shared Read Blocks", 0))
    ahead = list(plan.parts(plan.nodes(told["Plan"], version=_TELLING)))
    queryid = str(told.get("Query Identifier", ""))
    query = " ".join(str(told.get("Query Text", "")).split())
    one = found.setdefault(queryid or query, Logged(queryid=queryid, query=query))
    one.executions += 1
    one.seconds += seconds
    one.blocks_read += blocks_read
    for part in ahead:
        one.ahead += part.read
        one.unused += part.unused
        if part.unused > one.worst:
            one.worst, one.node, one.setting = part.unused, part.node, part.setting

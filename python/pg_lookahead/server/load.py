"""Processors that are kept busy with other work, as on a machine that does more than to serve one query.

A process for each runs an empty loop, bound to its processor.  Its working directory lies in this process's
private directory (see ``home``): whatever ends our servers when we are killed ends it, too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .home import Home
from .installation import ClusterError

_LOOP = "while :; do :; done"


def processors() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def busy(count: int) -> Iterator[Callable[[], None]]:
    """Keep the first ``count`` processors busy.

    The function that it gives raises ClusterError if one of them is no longer kept busy."""
    found = processors()
    if count > len(found):
        raise ClusterError(f"{count} processors cannot be kept busy: {len(found)} may be used here")
    with ExitStack() as stack:
        place = Home.of_this_process().make_directory("load") if count else Path("/")
        loops = {processor: _loop(stack, place, processor) for processor in found[:count]}

        def check() -> None:
            for processor, loop in loops.items():
                if loop.poll() is not None:
                    raise ClusterError(f"the process that kept processor {processor} busy has ended")

        yield check


def _loop(stack: ExitStack, place: Path, processor: int) -> subprocess.Popen[bytes]:
    """Start a loop on a processor; ``stack`` ends it."""
    silent = subprocess.DEVNULL
    command = ["sh", "-c", _LOOP]
    loop = subprocess.Popen(
        command,
        cwd=place,
        stdin=silent,
        stdout=silent,
        stderr=silent,
        start_new_session=True,  # Ctrl-C is ours to act on
    )
    stack.callback(loop.wait)
    stack.callback(loop.kill)
    os.sched_setaffinity(loop.pid, {processor})
    return loop

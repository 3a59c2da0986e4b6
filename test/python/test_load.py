"""The processors of ``pg_lookahead bench --busy``: kept busy, and let go whatever happens."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from pg_lookahead.measure.meter import cpu_seconds
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import ClusterError
from pg_lookahead.server.load import busy, processors


def loops() -> list[psutil.Process]:
    """The loops of this process that are there."""
    home = str(Home.of_this_process().path)
    found = psutil.Process().children()
    return [one for one in found if (one.cwd() or "").startswith(f"{home}/load-")]


@pytest.mark.parametrize("count", range(len(processors()) + 1))
def test_each_has_a_processor_of_its_own(count: int) -> None:
    with busy(count) as check:
        found = loops()
        assert sorted(one.cpu_affinity() for one in found) == [[one] for one in processors()[:count]]
        while any((cpu_seconds([one.pid]) or 0) < 0.05 for one in found):
            check()
    assert loops() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ClusterError("failed"), SystemExit(1)])
def test_they_are_gone_after_errors_and_interrupts(error: BaseException) -> None:
    with pytest.raises(BaseException) as caught, busy(1):
        pids = [one.pid for one in loops()]
        raise error
    assert caught.type is (error if isinstance(error, type) else type(error))
    assert len(pids) == 1 and not Path(f"/proc/{pids[0]}").exists()


def test_one_that_cannot_be_bound_is_gone_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(pid: int, mask: set[int]) -> None:
        raise OSError("no such processor")

    monkeypatch.setattr(os, "sched_setaffinity", fails)
    with pytest.raises(OSError, match="no such processor"), busy(1):
        pass
    assert loops() == []


def test_a_processor_that_is_no_longer_busy_is_said() -> None:
    with busy(1) as check:
        check()
        (loop,) = loops()
        os.kill(loop.pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match=rf"processor {processors()[0]} busy has ended"):
            while True:
                check()
    assert loops() == []


def test_more_than_there_are_is_one_line() -> None:
    count = len(processors()) + 1
    told = f"^{count} processors cannot be kept busy: {count - 1} may"
    with pytest.raises(ClusterError, match=told), busy(count):
        pass

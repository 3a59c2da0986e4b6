"""What signals do to a program of ours."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

_AGAIN = 0.01
"""Seconds after which a lost exception is raised again."""


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this program as Ctrl-C does: with everything torn down.

    A signal that was ignored when the program began, as SIGHUP is by nohup, stays ignored.
    Python drops an exception that is raised in a callback of its own (that of a weak reference, which each
    import has, or ``__del__``), and the program would go on.  So it is raised again a moment later."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def lost(what: Any) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt | SystemExit):
            others(what)
        elif threading.main_thread().is_alive():  # else the program is about to end
            signal.signal(signal.SIGALRM, lambda *_: again(what.exc_value))
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)

    def again(error: BaseException) -> None:
        raise type(error)(*error.args)

    others, sys.unraisablehook = sys.unraisablehook, lost
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)

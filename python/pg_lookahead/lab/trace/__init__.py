"""``pg_lookahead lab trace``, ``simulate`` and ``replay``: reads in other orders, predicted and done.

All the models are pure functions of arrays; a trace is never held in memory as a whole,
but for sorting it altogether (8 bytes a read)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...server.installation import ClusterError

if TYPE_CHECKING:  # numpy takes a while to load
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Reads: TypeAlias = "tuple[Ints, Ints]"
"""Reads in the order of issue: offsets and lengths, in bytes, arrays of the same length."""
Batches: TypeAlias = "Iterator[Reads]"

BATCH = 1 << 20
"""Reads handled at a time."""


class TraceError(ClusterError):
    """A trace, a model or a file will not do; one line for the user."""


def check_numbers(device: object) -> None:
    """TraceError if a parameter of a device is neither 0 nor a number with which times can be computed."""
    for name, value in vars(device).items():
        if not isinstance(value, Sequence) and not (value == 0 or 1e-9 <= value < 1e12):
            raise TraceError(f"{name} = {value}: expected 0, or a number from 1e-9 to 1e12")

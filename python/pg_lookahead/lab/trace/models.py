"""Devices by name (presets.json), each parameter with its source; models in files of --json; and those
measured by fio on a file or block device.

Of such a file counts {"model": "disk" or "parallel", "parameters": {...}, "sources": {...}}.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ...measure import fio
from ...measure.fio import LARGE, SMALL, reads_a_second
from ...parameters import assignments
from ...report import files
from . import TraceError
from .disk import Disk
from .parallel import Parallel

Device: TypeAlias = Disk | Parallel

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
"""Those at which a device is measured."""


@dataclass(frozen=True)
class Model:
    """A device and where its parameters are from (by parameter's name; "" for all others)."""

    name: str
    device: Device
    sources: Mapping[str, str]

    def as_dict(self) -> dict[str, object]:
        """Return the model in the form of a model file, without an empty table."""
        kind = "disk" if isinstance(self.device, Disk) else "parallel"
        parameters = {name: value for name, value in asdict(self.device).items() if value != ()}
        return {"model": kind, "parameters": parameters, "sources": dict(self.sources)}


class _File(msgspec.Struct):
    model: Literal["disk", "parallel"]
    parameters: dict[str, Any]
    sources: dict[str, str] = {}


def _model(name: str, content: _File) -> Model:
    kind: type[Device] = Disk if content.model == "disk" else Parallel
    return Model(name, msgspec.convert(content.parameters, kind), content.sources)


_presets = msgspec.json.decode(Path(__file__).with_name("presets.json").read_bytes(), type=dict[str, _File])
PRESETS = {name: _model(name, content) for name, content in _presets.items()}


def find(name: str) -> Model:
    """Return the model of a preset's name, or of a model file; TraceError if it is neither."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.exists():
        raise TraceError(f"no model {name}; there are {', '.join(PRESETS)}, and files of --json")
    try:
        return _model(path.name, msgspec.json.decode(files.read(path), type=_File))
    except files.MALFORMED as error:
        raise TraceError(f"{name} is no model file: {error}") from None


def change(model: Model, settings: Sequence[str]) -> Model:
    """Return the model with parameters set by "name=value"; TraceError if there is none of that name."""
    known = {field.name: field for field in fields(model.device) if field.name != "table"}
    values: dict[str, float | int] = {}
    for name, text in assignments("--set", settings).items():
        if name not in known:
            raise TraceError(f"--set {name}={text}: expected NAME=NUMBER, NAME one of {', '.join(known)}")
        try:
            values[name] = int(text) if known[name].type == "int" else float(text)
        except ValueError:
            raise TraceError(f"--set {name}={text}: {text} is not a number") from None
    sources = {**model.sources, **dict.fromkeys(values, "--set")}
    return Model(model.name, replace(model.device, **values), sources)  # type: ignore[arg-type]


def measure(path: Path, seconds: float, say: Callable[[str], None]) -> Model:
    """Return a model measured by fio; takes 14 times ``seconds`` and reads only.

    Random reads of 8 KiB and of 128 KiB, at depths from 1 to 64: of n reads in s seconds at depth d, each
    took d s / n.  The two sizes give a latency and a rate for each depth, the rows of the table of a
    Parallel model.
    path: a file of at least 64 MiB (the longer, the less of it is in a cache), or a device
    say: told before each measurement"""
    fio.check(path)
    table = []
    for depth in DEPTHS:
        small, large = (depth / reads_a_second(path, size, depth, seconds, say) for size in (SMALL, LARGE))
        table.append(row(depth, small, large))
    device = Parallel(table[0][1], table[0][2], table=table, queue=DEPTHS[-1])
    name = files.shown(path)
    return Model(name, device, {"": f"measured by fio on {name}, {seconds:g} s for each of 14 cells"})


def row(depth: int, small: float, large: float) -> tuple[float, float, float]:
    """Return a row of the table from the seconds that a small and a large read took."""
    per_byte = max(large - small, large * 0.01) / (LARGE - SMALL)
    fixed = max(small - SMALL * per_byte, small * 0.1)
    return depth, fixed * 1e6, 1 / per_byte / 1e6

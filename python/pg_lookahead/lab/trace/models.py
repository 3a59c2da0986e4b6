"""Devices by name (presets.json), each parameter with its source; and models in files of --json.

Of such a file counts {"model": "disk" or "parallel", "parameters": {...}, "sources": {...}}.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ...parameters import assignments
from ...report import files
from . import TraceError
from .disk import Disk
from .parallel import Parallel

Device: TypeAlias = Disk | Parallel


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
    except msgspec.MsgspecError as error:
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

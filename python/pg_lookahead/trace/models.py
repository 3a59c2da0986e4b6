"""Devices by name, each parameter with its source; and models in files.

A model file is JSON: {"model": "disk" or "parallel", "parameters": {...}, "sources": {...}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..parameters import assignments
from . import TraceError
from .disk import Disk
from .parallel import Parallel


@dataclass(frozen=True)
class Model:
    """A device and where its parameters are from (by parameter's name; "" for all others)."""

    name: str
    device: Disk | Parallel
    sources: Mapping[str, str]

    def source(self, parameter: str) -> str:
        """Where a parameter is from."""
        return self.sources.get(parameter, self.sources.get("", "default"))

    @property
    def parameters(self) -> dict[str, object]:
        """All of them, by name; a table only where there is one."""
        return {name: value for name, value in asdict(self.device).items() if value != ()}

    def as_dict(self) -> dict[str, object]:
        """As in a model file."""
        kind = "disk" if isinstance(self.device, Disk) else "parallel"
        return {"model": kind, "parameters": self.parameters, "sources": dict(self.sources)}


class _File(msgspec.Struct):
    model: Literal["disk", "parallel"]
    parameters: dict[str, Any]
    sources: dict[str, str] = {}


_146Z10 = "IBM, Ultrastar 146Z10 hard disk drive specifications, S07N9742-03 (February 2002)"
_400BB = "Western Digital, Specifications for the WD Caviar WD400BB"

PRESETS = {
    "ultrastar-146z10": Model(
        "ultrastar-146z10",
        Disk(
            rpm=10_000,
            track_seek_ms=0.5,
            average_seek_ms=4.7,
            full_seek_ms=10.5,
            overhead_ms=0.4,
            hit_overhead_ms=0.03,
            outer_mb_s=66.6,
            inner_mb_s=33.4,
            capacity_gb=36.7,
            queue=32,
        ),
        {
            "": _146Z10,
            "rpm": f"{_146Z10}: average latency 2.99 ms",
            "track_seek_ms": "assumed; the model needs it, and the result hardly does (docs/traces.md)",
            "outer_mb_s": f"{_146Z10}, 4.5.7.1: 16 MiB in 260 ms in zone 0, less overhead, seek and latency",
            "inner_mb_s": f"{_146Z10}, 4.5.7.1: 16 MiB in 510 ms in the last zone, likewise",
            "capacity_gb": "model IC35L036, of 18, 36, 73 and 146 GB",
            "position": "the middle, since nothing is known about it",
            "readahead_kb": "a track; not in the data sheet",
            "queue": "assumed",
        },
    ),
    "caviar-wd400bb": Model(
        "caviar-wd400bb",
        Disk(
            rpm=7_200,
            track_seek_ms=2.0,
            average_seek_ms=8.9,
            full_seek_ms=21,
            overhead_ms=0.3,
            hit_overhead_ms=0.03,
            outer_mb_s=50,
            inner_mb_s=30.5,
            capacity_gb=40,
        ),
        {
            "": _400BB,
            "hit_overhead_ms": "assumed",
            "outer_mb_s": f"{_400BB}: buffer to disk 400 Mbit/s maximum",
            "inner_mb_s": f"{_400BB}: buffer to disk 244 Mbit/s minimum",
            "position": "the middle",
            "readahead_kb": "a track",
            "queue": "1: the drive takes commands in order",
        },
    ),
    "sata-ssd": Model(
        "sata-ssd",
        Parallel(latency_us=70, stream_mb_s=560, iops=98_000, bandwidth_mb_s=560, queue=32),
        {
            "": "Samsung SSD 870 EVO, rated: 560 MB/s, 4 KB reads at depth 1: 13,000/s, 32: 98,000/s",
            "latency_us": "1 / 13,000 s less the transfer of 4 KB",
            "queue": "Serial ATA: 32 commands",
        },
    ),
    "nvme": Model(
        "nvme",
        Parallel(latency_us=80, stream_mb_s=2_600, iops=370_000, bandwidth_mb_s=3_500),
        {
            "": "Samsung SSD 970 Pro 512 GB, rated: 370,000 reads a second of 4 KB; 3,500 MB/s",
            "latency_us": "assumed, of the order of flash memory",
            "stream_mb_s": "970 EVO at depth 2, kitguru.net's review",
        },
    ),
    "cloud": Model(
        "cloud",
        Parallel(latency_us=800, stream_mb_s=500, iops=3_000, bandwidth_mb_s=131.072, spread=0.3, queue=64),
        {
            "": "assumed",
            "iops": "Amazon EBS gp3, baseline",
            "bandwidth_mb_s": "Amazon EBS gp3, baseline: 125 MiB/s",
            "latency_us": 'assumed; the provider says "single-digit millisecond"',
            "spread": "assumed: one read in 100 takes twice the median",
        },
    ),
}


def find(name: str) -> Model:
    """A preset by name, or else a model file; TraceError if it is neither."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if not path.exists():
        raise TraceError(f"no model {name}; there are {', '.join(PRESETS)}, and files made by --calibrate")
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
        device: Disk | Parallel
        if content.model == "disk":
            device = msgspec.convert(content.parameters, Disk)
        else:
            device = msgspec.convert(content.parameters, Parallel)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{name} is no model file: {error}") from None
    return Model(path.name, device, content.sources)


def change(model: Model, settings: Sequence[str]) -> Model:
    """The model with parameters set by "name=value"; TraceError if there is none of that name."""
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

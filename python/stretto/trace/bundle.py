"""A recording as the bundle that the viewer reads: columns, each as narrow as it can be, deflated.

`viewer/FORMAT.md` is the contract. `stretto.trace.view` is the only user.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from stretto.errors import InvalidArgument
from stretto.trace.columns import SpanIndex
from stretto.trace.model import Columns, Recording

MAGIC = b"STRETVIW"
SUFFIX = ".stretview"
VERSION = 1
MAX_PAYLOAD = 1 << 32
# Whole numbers up to here are exact in a double.
_EXACT = 1 << 53
_TEXT = frozenset({"function", "data_type", "algorithm", "protocol", "op", "kernel_variant"})
_HEXADECIMAL = frozenset({"communicator", "tag", "mask"})

Column = npt.NDArray[np.generic]
Mask = npt.NDArray[np.bool_]


class _Area:
    """The columns' bytes, and what the header says of them."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0

    def add(self, data: bytes) -> int:
        at = self.bytes
        padded = data + bytes(-len(data) % 8)
        self.parts.append(padded)
        self.bytes += len(padded)
        return at

    def column(self, name: str, values: Column, absent: Mask | None, delta: bool = False) -> dict[str, Any] | None:
        """Stores one column; None when there is nothing in it."""
        none = absent is not None and bool(absent.any())
        empty = values == 0 if values.dtype.kind == "u" and name != "type" else absent
        if empty is not None and bool(empty.all()):
            return None
        stored, base, kind = _narrow(values, absent if none else None, delta)
        data = stored.tobytes() if kind != "u64" else _planes(stored)
        return {
            "name": name,
            "type": kind,
            "offset": self.add(data),
            "base": str(base),
            "none": none,
            "delta": delta,
            "text": name in _TEXT,
        }


def _planes(stored: Column) -> bytes:
    """Low words, then high words: alike bytes lie together, and deflate better."""
    wide = stored.astype(np.uint64)
    low = (wide & np.uint64(0xFFFFFFFF)).astype("<u4")
    high = (wide >> np.uint64(32)).astype("<u4")
    return low.tobytes() + high.tobytes()


def _narrow(values: Column, absent: Mask | None, delta: bool) -> tuple[Column, int, str]:
    """The numbers as they are stored, their base and their type."""
    present = values if absent is None else values[~absent]
    first = int(present[0]) if delta else int(present.min())
    # Wrapping arithmetic on 64 bits: a difference of two 64-bit numbers is right however large they are.
    wide = values.astype(np.int64, copy=False).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    stored = np.diff(wide, prepend=wide[:1]) if delta else wide - np.uint64(first % (1 << 64))
    if absent is not None:
        stored = np.where(absent, np.uint64(0), stored + np.uint64(1))
    largest = int(stored.max())
    for kind, limit, narrow in (("u8", 1 << 8, "<u1"), ("u16", 1 << 16, "<u2"), ("u32", 1 << 32, "<u4")):
        if largest < limit:
            return stored.astype(narrow), first, kind
    if largest < _EXACT:
        return stored.astype("<f8"), first, "f64"
    # All ones are "not recorded" here: -1 is that already.
    return wide, 0, "u64"


def parent_rows(recording: Recording) -> npt.NDArray[np.int64]:
    """The row of each span's parent; -1 where it has none, or where that is not in the recording."""
    rows = np.arange(len(recording.spans["id"]))
    found = SpanIndex(recording, range(256)).parents(rows)
    return np.where((found == rows) | (recording.spans["parent"] == 0), -1, found)


def _table(area: _Area, columns: Columns, rows: int) -> dict[str, Any]:
    """All columns of one table. In signed columns -1 says "not recorded", as the model has it."""
    described = []
    for name, values in columns.items():
        if len(values) != rows:
            raise InvalidArgument(f"column {name} of the recording has {len(values)} rows, others have {rows}")
        if rows == 0:
            continue
        ordered = name in ("start", "time") and bool((np.diff(values.astype(np.int64)) >= 0).all())
        absent = values == -1 if values.dtype.kind == "i" and name not in ("start", "time", "duration") else None
        if name == "duration":
            absent = values == np.iinfo(np.int64).min
        one = area.column(name, values, absent, delta=ordered)
        if one is not None:
            described.append(one)
    return {"rows": rows, "columns": described}


def _plain(value: object, name: str) -> object:
    """One field of a dataclass as JSON can hold it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.generic):
        value = value.item()
    if name in _HEXADECIMAL and isinstance(value, int):
        return f"0x{value % (1 << 64):x}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _EXACT:
        return str(value)
    return value


def _records(items: list[Any]) -> list[dict[str, object]]:
    return [{f.name: _plain(getattr(item, f.name), f.name) for f in dataclasses.fields(item)} for item in items]


def _spans(recording: Recording) -> Columns:
    spans = dict(recording.spans)
    start, stop = spans["start"].astype(np.int64), spans.pop("stop").astype(np.int64)
    spans["duration"] = np.where(stop == -1, np.iinfo(np.int64).min, stop - start)
    spans["parent_row"] = parent_rows(recording)
    return spans


def encode(recording: Recording, title: str = "") -> bytes:
    """The bundle of a recording."""
    area = _Area()
    header = {
        "schema": "stretto.view/1",
        "title": title,
        "origin_realtime_ns": str(recording.origin_realtime_ns),
        "processes": _records(recording.processes),
        "threads": _records(recording.threads),
        "contexts": _records(recording.contexts),
        "quality": _records([recording.quality])[0],
        "strings": recording.strings,
        "spans": _table(area, _spans(recording), len(recording.spans["start"])),
        "states": _table(area, recording.states, len(recording.states["time"])),
    }
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    payload = struct.pack("<I", len(text)) + text
    payload += bytes(-len(payload) % 8)
    size = len(payload) + area.bytes
    if size > MAX_PAYLOAD:
        raise InvalidArgument(
            f"the recording takes {size >> 20} MB as a page; choose a part of it with --from and --to"
        )
    packer = zlib.compressobj(4)
    parts = [struct.pack("<8sIIQ", MAGIC, VERSION, 0, size), packer.compress(payload)]
    parts += [packer.compress(part) for part in area.parts]
    return b"".join([*parts, packer.flush()])

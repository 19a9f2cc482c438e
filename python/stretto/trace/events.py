"""Single events as Python values, for converters: groups of the same kind and type, decoded by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stretto.trace import layout
from stretto.trace.job import Source
from stretto.trace.model import EventType
from stretto.trace.stream import Piece

# What people read in hexadecimal, and programs would round.
HEXADECIMAL = frozenset(
    ("id", "parent", "parent_group", "send_buffer", "receive_buffer", "buffer", "stream", "user_tag", "data")
)
Values = list[Any]  # int, or str of a text, or bytes, or None where it was not recorded


@dataclass
class Group:
    """Events of one kind and type in a piece: `rows` of it, and their fields, each a list as long."""

    kind: int
    type: int
    rows: npt.NDArray[np.int64]
    names: tuple[str, ...]
    columns: list[Values]


def _values(source: Source, strings: list[str], name: str, values: npt.NDArray[Any]) -> Values:
    if name in layout.TEXT:
        return [strings[number] for number in source.strings(values).tolist()]
    if values.dtype.kind == "V":
        return [bytes(value) for value in values]
    listed: Values = values.tolist()
    if values.dtype.kind == "u":
        ones = (1 << 8 * values.dtype.itemsize) - 1
        if (values == ones).any():
            return [None if value == ones else value for value in listed]
    return listed


_FIELDS: dict[int, np.dtype[np.void]] = {layout.STOP: layout.STOP_FIELDS, layout.STATE: layout.STATE_FIELDS}
_HIDDEN = ("threads", "_pad", "_0")


def groups(piece: Piece, strings: list[str]) -> Iterator[Group]:
    """All events of a piece, by kind and type."""
    block = piece.block
    keys = block.kind.astype(np.int64) << 8 | block.type
    for key in np.unique(keys).tolist():
        kind, number = key >> 8, key & 0xFF
        rows = np.flatnonzero(keys == key)
        if kind == layout.START:
            dtype = layout.STARTS.get(number, layout.STARTS[EventType.UNKNOWN])
        elif kind in _FIELDS:
            dtype = _FIELDS[kind]
        else:
            yield Group(kind, number, rows, (), [])
            continue
        fields = block.fields(rows, dtype)
        names = tuple(name for name in fields.dtype.names or () if name not in _HIDDEN)
        yield Group(kind, number, rows, names, [_values(piece.source, strings, name, fields[name]) for name in names])


def shown(name: str, value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, bytes):
        return value.hex()
    return f"0x{value:x}" if name in HEXADECIMAL and value is not None else value

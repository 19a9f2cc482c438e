"""Many protocol-buffer messages of one shape at once. Every row has the same length, since numbers take as many bytes
as the largest of their column; a reader takes leading zeros of a number as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stretto.trace.columns import Id
from stretto.trace.protobuf import key, varint

Rows = npt.NDArray[np.uint8]
_LENGTH = 2  # bytes of a message's own length
_WORD = 8
_HEX = np.array([list(f"{value:02x}".encode()) for value in range(256)], np.uint8)


def width(values: Id) -> int:
    """How many bytes the largest of these takes."""
    return max(1, -(-int(values.max()).bit_length() // 7)) if len(values) else 1


def long_varint(value: int, size: int) -> bytes:
    """A number in just so many bytes."""
    return bytes(value >> 7 * place & 127 | 128 * (place < size - 1) for place in range(size))


@dataclass
class Shape:
    """Parts of a message, one after the other: bytes that are the same in every row, or columns of bytes."""

    count: int
    parts: list[bytes | Rows] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(part) if isinstance(part, bytes) else part.shape[1] for part in self.parts)

    def same(self, *parts: bytes) -> None:
        self.parts.append(b"".join(parts))

    def number(self, values: Id, size: int = 0) -> None:
        """A number that differs from row to row, without its field."""
        size = size or width(values)
        made = np.empty((self.count, size), np.uint8)
        rest = values.astype(np.uint64, copy=False)
        for place in range(size):
            low = (rest & np.uint64(127)).astype(np.uint8)
            made[:, place] = low | np.uint8(128) if place < size - 1 else low
            rest = rest >> np.uint64(7)
        self.parts.append(made)

    def fixed(self, values: Id) -> None:
        """Eight bytes a row, without their field."""
        made = np.ascontiguousarray(values.astype("<u8")).view(np.uint8)
        self.parts.append(made.reshape(self.count, 8))

    def hexadecimal(self, data: Rows) -> None:
        """Bytes as text, without their field."""
        self.parts.append(_HEX[data].reshape(self.count, -1))

    def message(self, number: int, inner: Shape) -> None:
        """Another shape as a message in this one."""
        self.same(key(number, 2), long_varint(inner.size, _LENGTH))
        self.parts += inner.parts

    def rows(self) -> Rows:
        made = np.empty((self.count, self.size), np.uint8)
        at = 0
        for part in self.parts:
            if isinstance(part, bytes):
                made[:, at : at + len(part)] = np.frombuffer(part, np.uint8)
                at += len(part)
            else:
                made[:, at : at + part.shape[1]] = part
                at += part.shape[1]
        return made


def padding(size: int) -> int:
    """How many bytes a row of that size lacks to whole words."""
    return -size % _WORD


def annotation(name: int, kind: int, values: Id, count: int) -> Shape:
    """A DebugAnnotation with an interned name whose value, a number of field `kind`, differs from row to row."""
    made = Shape(count)
    made.same(key(1, 0), varint(name), key(kind, 0))
    made.number(values)
    return made


def in_order(parts: list[tuple[npt.NDArray[np.int64], Rows]]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Rows of all parts by their places, as one text, and where each row ends in it. Rows are whole words long."""
    if not parts:
        return b"", np.zeros(0, np.int64)
    place = np.concatenate([at for at, _ in parts])
    sizes = np.concatenate([np.full(len(at), rows.shape[1] // _WORD, np.int64) for at, rows in parts])
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(sizes[order])
    begin = np.empty(len(order), np.int64)
    begin[order] = ends - sizes[order]
    made = np.empty(int(ends[-1]) if len(ends) else 0, np.uint64)
    first = 0
    for at, rows in parts:
        words = np.ascontiguousarray(rows).view(np.uint64)
        for number in range(words.shape[1]):
            made[begin[first : first + len(at)] + number] = words[:, number]
        first += len(at)
    return made.tobytes(), ends * _WORD

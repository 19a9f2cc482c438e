"""Protocol buffers, the few bytes of them that a trace needs: fields to bytes."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_SMALL = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    """A number as it is without its field; negative ones in two's complement."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= _MASK
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    return key(field, 0) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    return key(field, 1) + (value & _MASK).to_bytes(8, "little")


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def message(field: int, body: bytes) -> bytes:
    """A message in a field of another; also text and bytes."""
    return key(field, 2) + varint(len(body)) + body

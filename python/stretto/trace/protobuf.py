"""Protocol buffers, the few bytes of them that a trace needs: fields to bytes."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_PAIR = 1 << 14


def _plain(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


# All of two bytes, as the last of a number and as a part with more behind it.
_LAST = [_plain(value) for value in range(_PAIR)]
_MORE = [bytes([value & 127 | 128, value >> 7 | 128]) for value in range(_PAIR)]


def varint(value: int) -> bytes:
    """A number as it is without its field; negative ones in two's complement."""
    if 0 <= value < _PAIR:
        return _LAST[value]
    value &= _MASK
    made = b""
    while value >= _PAIR:
        made += _MORE[value & _PAIR - 1]
        value >>= 14
    return made + _LAST[value]


def key(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    return key(field, 0) + varint(value)


def fixed64(value: int) -> bytes:
    """Eight bytes as they are without their field."""
    return (value & _MASK).to_bytes(8, "little")


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def message(field: int, body: bytes) -> bytes:
    """A message in a field of another; also text and bytes."""
    return key(field, 2) + varint(len(body)) + body

"""What is measured: collectives, element types, sizes. Plain facts, no processes.

Sizes are nccl-tests' "size": bytes of the larger of a rank's two buffers. Bandwidths are its algbw (size over
time) and busbw (algbw times the part of the size that crosses between ranks).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

ELEMENT_BYTES = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float8e4m3": 1,
    "float8e5m2": 1,
}
# Names that nccl-tests takes for the same types.
TYPE_ALIASES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "f8e4m3": "float8e4m3",
    "f8e5m2": "float8e5m2",
}
OPERATORS = ("sum", "prod", "max", "min", "avg")


@dataclass(frozen=True)
class Collective:
    """`split`: the size is that of all ranks' blocks together. `bus`: busbw / algbw for n ranks."""

    split: bool
    reduces: bool
    rooted: bool
    bus: Callable[[int], float]


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {
    "all_reduce": Collective(False, True, False, lambda ranks: 2 * _others(ranks)),
    "reduce_scatter": Collective(True, True, False, _others),
    "all_gather": Collective(True, False, False, _others),
    "all_to_all": Collective(True, False, False, _others),
    "broadcast": Collective(False, False, True, lambda ranks: 1.0),
    "reduce": Collective(False, True, True, lambda ranks: 1.0),
    "gather": Collective(True, False, True, _others),
    "scatter": Collective(True, False, True, _others),
    "send_recv": Collective(False, False, False, lambda ranks: 1.0),
}

_SIZE = re.compile(r"(\d+)\s*([kmgKMG]?)[iI]?[bB]?")
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes from "8", "64K", "1M" or "2GiB"; K, M and G are powers of 1024. ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size: write bytes, or a whole number with K, M or G")
    return int(match[1]) * _FACTORS[match[2].lower()]


def format_size(size: int) -> str:
    """The shortest exact form: 8, 64K, 1M, or plain bytes where none is exact."""
    for suffix, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{suffix}"
    return str(size)


def sweep(smallest: int, largest: int, factor: int) -> list[int]:
    """smallest, smallest * factor, ... up to and with largest where it is hit."""
    if smallest < 1 or largest < smallest or factor < 2:
        raise ValueError("sizes need 1 <= smallest <= largest and a factor of at least 2")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


def elements_per_rank(collective: str, size: int, element_bytes: int, ranks: int) -> int:
    """The count that NCCL's function is called with; 0 where the size is too small for one element a rank."""
    parts = ranks if COLLECTIVES[collective].split else 1
    return size // (element_bytes * parts)


def bytes_of(collective: str, count: int, element_bytes: int, ranks: int) -> int:
    """The size that a count really has: elements_per_rank rounds down."""
    return count * element_bytes * (ranks if COLLECTIVES[collective].split else 1)

"""Words that ranks send each other, and what is wrong with those that arrive."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

Words = NDArray[numpy.uint64]
Reply = dict[str, Any]
_FACTOR = numpy.uint64(0x9E3779B97F4A7C15)


def pattern(count: int, source: int, target: int, generation: int) -> Words:
    """Words that differ by place, by pair and by generation: what is old, misplaced or another's is told from these."""
    seed = numpy.uint64((source << 48) | (target << 40) | generation)
    return (numpy.arange(count, dtype=numpy.uint64) + seed) * _FACTOR


def mistakes(got: Words, wanted: Words, before: Words) -> Reply | None:
    """What is wrong with an array; `stale`: how many of the wrong words are those of the generation before."""
    wrong = numpy.flatnonzero(got != wanted)
    if not len(wrong):
        return None
    first = int(wrong[0])
    return {
        "wrong": len(wrong),
        "words": len(got),
        "first": first,
        "got": f"{int(got[first]):#x}",
        "wanted": f"{int(wanted[first]):#x}",
        "stale": int(numpy.count_nonzero(got[wrong] == before[wrong])),
    }

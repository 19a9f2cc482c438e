"""Numbers as the report writes them."""

from __future__ import annotations

import math


def duration(ns: float) -> str:
    """Nanoseconds as people write them, three digits."""
    if not math.isfinite(ns):
        return "?"
    for limit, unit, scale in ((1e3, "ns", 1.0), (1e6, "µs", 1e3), (1e9, "ms", 1e6), (math.inf, "s", 1e9)):
        if abs(ns) < limit:
            value = ns / scale
            digits = 0 if unit == "ns" or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
            return f"{value:.{digits}f} {unit}"
    return "?"


def amount(size: int) -> str:
    """Bytes with the largest unit that is exact to three digits."""
    if size < 0:
        return "?"
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g}{unit}"
    return f"{size} B"


def number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "?"


def share(part: float) -> str:
    return f"{100 * part:.1f} %" if math.isfinite(part) else "?"


def plural(count: int, word: str, ending: str = "s") -> str:
    return f"{count:,} {word}{'' if count == 1 else ending}"

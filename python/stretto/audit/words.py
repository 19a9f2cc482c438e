"""Numbers as people read them."""

from __future__ import annotations

# What says that data are there, which a rank puts into another's window.
ORDERS = {
    "signal": "a put, and its own signal",
    "later signal": "a put, and a signal that was sent after it",
    "flag": "a put, and a word that was put after it",
}


def bytes_text(number: float) -> str:
    """ "24 GB", by powers of 1024."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(number) < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TB"


def significant(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def microseconds(value: float) -> str:
    """ "1.2 µs", "3.4 ms", "1.1 s"."""
    if value < 1000:
        return f"{significant(value)} µs"
    return f"{significant(value / 1000)} ms" if value < 1e6 else f"{significant(value / 1e6)} s"

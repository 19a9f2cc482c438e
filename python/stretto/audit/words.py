"""Numbers as people read them."""

from __future__ import annotations

from dataclasses import dataclass

# What says that data are there, which a rank puts into another's window.
ORDERS = {
    "signal": "a put, and its own signal",
    "later signal": "a put, and a signal that was sent after it",
    "flag": "a put, and a word that was put after it",
}


@dataclass(frozen=True)
class Mechanism:
    """A way from one rank to another. `beside`: the plain copy in turns with it, of which it makes `copies`."""

    name: str
    beside: str
    copies: int
    cause: str
    next_step: str


MECHANISMS = {
    "message": Mechanism(
        "a message",
        "memcpy between a rank's own arrays",
        2,
        "the hand-over of chunks waits for something, or a library in between does more than it should",
        "unset LD_PRELOAD and STRETTO_ALGO, and compare; latency.last says whether a rank is late",
    ),
    "mapped": Mechanism(
        "a put into memory that is mapped",
        "memcpy into shared memory",
        1,
        "the window's pages are small, new or of another NUMA node, or a library in between does more than it should",
        "see machine.numa and machine.huge-pages; unset LD_PRELOAD, and compare",
    ),
    "kernel": Mechanism(
        "a put by the kernel",
        "process_vm_writev",
        1,
        "a security module that looks at each call, or a library in between does more than it should",
        "see machine.ptrace and machine.seccomp; unset LD_PRELOAD, and compare",
    ),
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

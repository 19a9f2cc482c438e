"""Checks of what the platform costs. Each stands beside its peer, measured in the same rounds."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, note, ok, warning
from stretto.audit.words import significant


@check("platform.clock", "reading the clock, against a system call", Severity.WARNING)
def clock(context: Context) -> Iterator[Finding]:
    """The library and every profiler read it around each operation. Read without the kernel it costs a fraction of a
    system call."""
    platform = context.measured.platform
    own, call = platform.best("clock_gettime(MONOTONIC)"), platform.best("getpid, as a system call")
    text = f"{significant(own)} ns; a system call takes {significant(call)} ns"
    if own > call:
        yield warning(
            text,
            "less than a system call",
            certainty="likely",
            cause="the clock is read by a system call: a clocksource without a user's page, or a filter on "
            "clock_gettime",
            next_step="see machine.clocksource",
        )
    else:
        yield ok(text)


@check("platform.wake", "waking another thread", Severity.NOTE)
def wake(context: Context) -> Iterator[Finding]:
    """Ranks without a core of their own sleep and are woken; deep sleep states of cores make that long."""
    platform = context.measured.platform
    futex, thread = platform.best("futex"), platform.best("thread create and join")
    text = f"futex {significant(futex)} µs, a cache line between cores {significant(platform.line)} µs"
    if futex > 2 * thread:
        yield note(
            text,
            f"less than twice what starting and joining a thread takes ({significant(thread)} µs)",
            certainty="possible",
            cause="deep sleep states of the cores, or a hypervisor that parks them",
            next_step="cpupower idle-info; disable states with long latencies",
        )
    else:
        yield ok(text)


@check("platform.memory", "copies, and first touches with huge pages", Severity.NOTE)
def memory(context: Context) -> Iterator[Finding]:
    """What the bandwidth section is measured against, and what huge pages are worth to buffers that are new."""
    platform = context.measured.platform
    copy = platform.large_copy
    small, huge = platform.best("private, small pages"), platform.best("private, huge pages asked for")
    yield ok(
        f"{copy.case}: {significant(copy.best)} GB/s, all cores at once "
        f"{significant(platform.best('memcpy, all cores at once'))} GB/s; first touch {significant(small)} "
        "µs/MB, with huge "
        f"pages {significant(huge)}"
    )


@check("platform.sockets", "sockets by size of writes and of buffers", Severity.NOTE)
def sockets(context: Context) -> Iterator[Finding]:
    """What a path over sockets could reach at best between two processes of this host."""
    rates = [one for one in context.measured.platform.series if one.probe == "socket"]
    best = {
        kind: max((one for one in rates if one.case.startswith(kind)), key=lambda one: one.best, default=None)
        for kind in ("AF_UNIX", "TCP")
    }
    words = [f"{one.case}: {significant(one.best)} GB/s" for one in best.values() if one is not None]
    yield ok("; ".join(words) or "no sockets")


@check("platform.noise", "how much the machine's speed changes within the audit", Severity.NOTE)
def noise(context: Context) -> Iterator[Finding]:
    """The usual value of wake-ups, copies and sockets over their best: by this factor a measurement must differ more
    before it is told of."""
    factor = context.measured.platform.noise
    if factor > 2:
        yield note(
            f"usual values are {factor:.1f} times the best ones",
            "less than 2 on an idle machine",
            certainty="likely",
            cause="other programs, or a host that is shared with other machines",
            next_step="differences of less than that are not told of in this audit; measure again when it is quiet",
        )
    else:
        yield ok(f"usual values are {factor:.2f} times the best ones")

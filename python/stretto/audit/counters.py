"""Checks of what operations take once a communicator has run for a while: nothing that the kernel or the library would
have to give for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.words import bytes_text

_CALLS = {"quick": 1800, "default": 18000, "full": 180000}
# What an interpreter may come to need by itself, however many operations there are.
_BY_ITSELF = {"descriptors": 2, "threads": 2, "mappings": 8, "bytes": 2 << 20}
# Of each thing so many an operation are a leak.
_LEAK = {"descriptors": 1e-4, "threads": 1e-4, "mappings": 1e-3, "bytes": 64}
# More sleeps an operation are no chance.
_SLEEPS = 0.1


def _replies(context: Context) -> list[dict[str, Any]]:
    count = _CALLS[context.level.name]
    command = f"steady count={count} for={context.level.share}"
    return context.measured.ask(f"counting what {count:,} operations take", command, 2 * context.level.share)


@check("counters.allocations", "memory that the library allocates for operations", Severity.WARNING)
def allocations(context: Context) -> Iterator[Finding]:
    """strettoCommCounters says it. A communicator that has seen an operation once has all the memory for it; an
    allocation takes microseconds, and may take a lock that other threads hold."""
    replies = _replies(context)
    made = [reply["counted"]["allocations"] for reply in replies]
    most = max(made)
    calls = replies[0]["calls"]
    text = f"{most:,} allocations in {calls:,} operations, after {replies[0]['settled']:,} of the same kinds"
    if most:
        rank = made.index(most)
        yield warning(
            f"{text}, on rank {rank}",
            "none: memory is kept from the first operation of a kind on",
            subject=f"rank {rank}",
            certainty="possible",
            cause="a library that allocates for each operation, or arrays that lie elsewhere each time",
            next_step="`stretto doctor --nccl` says which library ran; report it with this audit's JSON",
        )
    else:
        yield ok(text, "none")


@check("counters.kernel", "descriptors, threads, mappings and memory that operations leave", Severity.ERROR)
def kernel(context: Context) -> Iterator[Finding]:
    """A job makes millions of operations: what one of a thousand of them leaves behind ends it after hours. Counted in
    /proc before and after operations of a communicator that has made all of them before."""
    replies, found = _replies(context), False
    for rank, reply in enumerate(replies):
        grown, calls = reply["grown"], reply["calls"]
        left = {name: grown[name] for name in _LEAK if grown[name] > max(_BY_ITSELF[name], _LEAK[name] * calls)}
        if not left:
            continue
        found = True
        yield error(
            f"{calls:,} operations left {' and '.join(_amount(name, value) for name, value in left.items())} behind "
            f"on rank {rank}",
            "nothing that grows with operations: what they need is made with the communicator",
            subject=f"rank {rank}",
            certainty="possible",
            cause="a leak in the library, in a plugin that it loads, or in what is preloaded",
            next_step="unset LD_PRELOAD and NCCL_PROFILER_PLUGIN and compare; ls -l /proc/PID/fd shows descriptors",
        )
    if not found:
        most = {name: max(reply["grown"][name] for reply in replies) for name in _LEAK}
        words = ", ".join(_amount(name, max(0, value)) for name, value in most.items())
        yield ok(f"{replies[0]['calls']:,} operations left {words}", "nothing for each of them")


@check("counters.waits", "how often ranks sleep, wake and are interrupted for operations", Severity.NOTE)
def waits(context: Context) -> Iterator[Finding]:
    """A rank with a core of its own looks for its peer's data until they are there. One that sleeps has to be woken:
    two system calls and a switch of threads in the way of every operation. Other programs on the ranks' cores make
    them sleep as well, so this is never more than a note."""
    replies = _replies(context)
    calls = replies[0]["calls"]
    total = {name: max(reply["counted"][name] for reply in replies) for name in replies[0]["counted"]}
    text = (
        f"in {calls:,} operations a rank found its peer not ready {total['slow_waits']:,} times, slept "
        f"{total['sleeps']:,} times and woke others {total['wakeups']:,} times; the kernel switched it "
        f"{total['switches']:,} times at its own wish and {total['interruptions']:,} times at others'"
    )
    own_core = context.ranks <= len(context.facts.cores_allowed)
    if total["sleeps"] > _SLEEPS * calls and own_core:
        yield note(
            text,
            f"fewer sleeps than one in {1 / _SLEEPS:.0f} operations, where each rank has a core",
            certainty="likely",
            cause="a rank that is late to most operations, other programs on the ranks' cores, or a short STRETTO_SPIN",
            next_step="see latency.last and machine.pressure; give the ranks cores of their own; unset STRETTO_SPIN",
        )
    else:
        yield ok(text)


def _amount(name: str, value: float) -> str:
    return f"{bytes_text(value)} of memory" if name == "bytes" else f"{value:,} {name}"

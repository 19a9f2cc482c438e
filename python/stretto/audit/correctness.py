"""Checks of data: every element of every result, for each pair, direction and mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, ok
from stretto.audit.words import ORDERS


def wrong_data(failures: list[dict[str, Any]], where: str) -> Iterator[Finding]:
    """One finding for each pair or collective that had wrong results."""
    told = set()
    for failure in failures:
        pair = "from" in failure
        subject = (
            f"{failure['from']} to {failure['to']}"
            if pair
            else f"{failure['collective']} {failure['algorithm']}".strip()
        )
        if subject in told:
            continue
        told.add(subject)
        stale = failure["stale"] == failure["wrong"]
        what = f"rank {subject}" if pair else f"{subject} on rank {failure['rank']}"
        yield error(
            f"{where}, {what}, {failure['bytes']} bytes: {failure['wrong']} of {failure['words']} words wrong, "
            "the first at "
            f"{failure['first']}: {failure['got']} instead of {failure['wanted']}",
            "every word as it was sent",
            subject=subject,
            certainty="possible",
            cause="stale data: the receiver read before the data were there, or they were never written"
            if stale
            else "data are changed on their way: memory, or a library that is not the one that it claims to be",
            next_step="run it again with --full; test the memory (memtester); `stretto doctor --nccl` says which "
            "library ran",
        )


def judged(checked: str, failures: list[dict[str, Any]], where: str) -> Iterator[Finding]:
    """`where`: the operations whose results were checked."""
    if failures:
        yield from wrong_data(failures, where)
    else:
        yield ok(f"{where}: {checked}, all whole")


def _generations(context: Context) -> int:
    return {"quick": 2, "default": 5, "full": 50}[context.level.name]


@check("correctness.pairs", "data between each pair of ranks, each direction, and both at once", Severity.ERROR)
def pairs(context: Context) -> Iterator[Finding]:
    """Rates say nothing of data: links that are fast and wrong exist. Words differ by place, pair and generation, so
    that what is old, misplaced or another rank's is told apart."""
    command = f"pairs generations={_generations(context)}"
    yield from judged(*context.measured.checked("moving patterns between pairs", command), "send and receive")


@check("correctness.order", "whether data are there when what says so is seen", Severity.ERROR)
def order(context: Context) -> Iterator[Finding]:
    """A rank puts data into a window of another, which looks at them as soon as it has seen the put's signal, a signal
    that was sent later, or a word that was put later; and so for each pair and direction, in memory that peers map and
    in memory that the kernel writes to. Data of before the put mean that the flag overtook them."""
    generations = {"quick": 10, "default": 40, "full": 400}[context.level.name]
    command = f"order generations={generations}"
    checked, failures = context.measured.checked("putting data before flags", command)
    yield from _disorder(failures)
    if not failures:
        yield ok(f"puts, looked at when their flags were seen: {checked}, all whole")


def _disorder(failures: list[dict[str, Any]]) -> Iterator[Finding]:
    """One finding for each pair and way."""
    told = set()
    for one in failures:
        subject = f"{one['from']} to {one['to']}, {one['order']}"
        if subject in told:
            continue
        told.add(subject)
        stale = one["stale"] == one["wrong"]
        memory = "memory of ncclMemAlloc" if one["made"] else "memory of the process"
        yield error(
            f"rank {one['from']} to {one['to']}, {ORDERS[one['order']]}, {one['bytes']} bytes in {memory}: "
            f"{one['wrong']} of {one['words']} words wrong, the first at {one['first']}: {one['got']} instead of "
            f"{one['wanted']}",
            "every word of the put, as its receiver had seen what comes after it",
            subject=subject,
            certainty="possible",
            cause="the flag overtook the data: they are those of before the put. A library in between sends them in "
            "another order, or a copy was not over when the flag was set"
            if stale
            else "data are changed on their way: memory, or a library that is not the one that it claims to be",
            next_step="unset LD_PRELOAD and compare; run it again with --full, which puts ten times as often",
        )


@check("correctness.collectives", "collectives by each of their algorithms and protocols", Severity.ERROR)
def collectives(context: Context) -> Iterator[Finding]:
    """Each algorithm and protocol moves data by another mechanism: lines with flags in them, chunks with a signal,
    direct reads."""
    command = f"collectives generations={_generations(context)}"
    yield from judged(*context.measured.checked("checking collectives", command), "collectives of processes")


@check("correctness.windows", "collectives in registered windows", Severity.ERROR)
def windows(context: Context) -> Iterator[Finding]:
    """Memory of ncclMemAlloc is mapped by the peers, which read it where it lies; other memory is read through the
    kernel. Both the planner's choice and the algorithm that reads directly have to be right there."""
    command = f"windows generations={_generations(context)}"
    yield from judged(*context.measured.checked("checking collectives in windows", command), "collectives in windows")


@check("correctness.streams", "collectives on a stream", Severity.ERROR)
def streams(context: Context) -> Iterator[Finding]:
    """A thread of the library carries them out, one after the other, while the caller goes on: what it is given has to
    be kept until then."""
    command = f"streams generations={_generations(context)}"
    yield from judged(*context.measured.checked("checking collectives on a stream", command), "collectives on a stream")


@check("correctness.loaded", "pairs and collectives while all cores are busy", Severity.ERROR)
def loaded(context: Context) -> Iterator[Finding]:
    """A thread that copies memory takes each rank's core and caches in turns with it: a rank is then stopped between a
    write and its flag, which a quiet machine hardly ever does."""
    command = f"loaded generations={_generations(context)}"
    checked, failures = context.measured.checked("moving patterns on busy cores", command)
    yield from judged(checked, failures, "send, receive and collectives on busy cores")


@check("correctness.threads", "the same between rank threads of one process", Severity.ERROR)
def threads(context: Context) -> Iterator[Finding]:
    """Threads share their memory, and take other ways than processes do."""
    command = f"threads ranks={context.ranks}"
    yield from judged(*context.measured.checked("checking collectives of threads", command), "collectives of threads")

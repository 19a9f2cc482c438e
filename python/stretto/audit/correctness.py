"""Checks of data: every element of every result, for each pair, direction and mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, ok


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
        yield ok(f"{checked} of {where}, all whole")


def _generations(context: Context) -> int:
    return {"quick": 2, "default": 5, "full": 50}[context.level.name]


@check("correctness.pairs", "data between each pair of ranks, each direction, and both at once", Severity.ERROR)
def pairs(context: Context) -> Iterator[Finding]:
    """Rates say nothing of data: links that are fast and wrong exist. Words differ by place, pair and generation, so
    that what is old, misplaced or another rank's is told apart."""
    command = f"pairs generations={_generations(context)}"
    yield from judged(*context.measured.checked("moving patterns between pairs", command), "send and receive")


@check("correctness.collectives", "collectives by each of their algorithms", Severity.ERROR)
def collectives(context: Context) -> Iterator[Finding]:
    """Each algorithm moves data by another mechanism: lines with flags in them, chunks with a signal, direct reads."""
    command = f"collectives generations={_generations(context)}"
    yield from judged(*context.measured.checked("checking collectives", command), "collectives of processes")


@check("correctness.threads", "the same between rank threads of one process", Severity.ERROR)
def threads(context: Context) -> Iterator[Finding]:
    """Threads share their memory, and take other ways than processes do."""
    command = f"threads ranks={context.ranks}"
    yield from judged(*context.measured.checked("checking collectives of threads", command), "collectives of threads")

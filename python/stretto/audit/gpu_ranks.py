"""Checks of what ranks on GPUs do: the section "gpus". What the driver says of the GPUs is in `gpu_checks`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from stretto.audit.context import Context
from stretto.audit.finding import NOT_MEASURED, Finding, Severity, check, error, note, ok, warning
from stretto.audit.implementations import Contest
from stretto.audit.words import bytes_text, microseconds, significant
from stretto.bench.measure import SUBJECT

Rows = dict[int, dict[str, Any]]
# How many times slower than another NCCL in turns with it nothing but a machine's fault makes this one.
_BESIDE = 3.0
_LEAST = 0.1
# How much faster the other pairs of GPUs may be than the slowest one, where nothing else varies.
_PAIRS_APART = 1.15
_NO_GPUS = "no GPUs here"


def rows_by_size(rows: list[dict[str, Any]]) -> Rows:
    """Each implementation's row, by size."""
    found: Rows = {}
    for row in rows:
        found.setdefault(row["bytes"], {})[row["implementation"]] = row
    return found


def other_of(rows: list[dict[str, Any]]) -> str | None:
    """The implementation beside ours."""
    return next((row["implementation"] for row in rows if row["implementation"] != SUBJECT), None)


def _contest(context: Context) -> Contest | None:
    return context.on_gpus if context.facts.gpus else None


@check("gpus.data", "all-reduces of all GPUs, each result verified", Severity.ERROR)
def data(context: Context) -> Iterator[Finding]:
    """Rates say nothing of data. Each rank fills its buffer with values of its own, and checks every word."""
    contest = _contest(context)
    if contest is None:
        yield ok(_NO_GPUS)
        return
    for row in contest.rows:
        if row["wrong"]:
            which = f"{row['implementation']} {bytes_text(row['bytes'])}"
            yield error(
                f"{which}: {row['wrong']} wrong elements in all-reduces",
                "none",
                subject=which,
                certainty="possible",
                cause="memory or links of a GPU that change data, or a mistake of that library",
                next_step="see machine.gpu-errors and machine.gpu-links; try other GPUs (CUDA_VISIBLE_DEVICES)",
            )
    if all(row["wrong"] == 0 for row in contest.rows):
        ranks = contest.rows[0]["ranks"]
        where = "on one GPU" if contest.shared else f"on {ranks} GPUs"
        yield ok(f"{len(contest.rows)} sizes by {ranks} ranks {where}, all right")


@check("gpus.speed", "all-reduces of all GPUs, from 1 KB on", Severity.NOTE)
def speed(context: Context) -> Iterator[Finding]:
    """In CUDA graphs, as inference runs them; single calls are mostly the cost of a launch."""
    contest = _contest(context)
    if contest is None:
        yield ok(_NO_GPUS)
        return
    own = [row for row in contest.rows if row["implementation"] == SUBJECT]
    small, large = own[0], own[-1]
    yield ok(
        f"{bytes_text(small['bytes'])} takes {microseconds(small['us_median'])}, {bytes_text(large['bytes'])} "
        f"{microseconds(large['us_median'])}, {significant(large['busbw_gbps'])} GB/s of bus bandwidth"
    )


@check("gpus.pairs", "large messages of each GPU and the next one, against the other pairs", Severity.WARNING)
def pairs(context: Context) -> Iterator[Finding]:
    """The slowest link decides how fast a collective of all GPUs is. Looked at where there are three GPUs or four, and
    with --full where there are more."""
    rates = context.gpu_pairs if context.facts.gpus else {}
    if not rates:
        yield ok("one pair, or none" if len(context.facts.gpus) < 3 else "not looked at: see --full")
        return
    best = {pair: rate for pair, (rate, _) in rates.items()}
    room = max(_PAIRS_APART * rate / usual for rate, usual in rates.values())
    slow = min(best, key=lambda pair: best[pair])
    usual = statistics.median(rate for pair, rate in best.items() if pair != slow)
    text = ", ".join(f"GPU {first} and {second} {significant(rate)} GB/s" for (first, second), rate in best.items())
    if usual / best[slow] > room:
        yield warning(
            f"GPUs {slow[0]} and {slow[1]}: {1 - best[slow] / usual:.0%} below the other pairs' median; {text}",
            f"pairs within {room - 1:.0%} of each other",
            subject=f"GPU {slow[0]} and {slow[1]}",
            certainty="likely",
            cause="NVLinks that are off, or fewer of them, between these two; or another job on one of them",
            next_step="nvidia-smi topo -m and nvidia-smi nvlink -s; machine.gpu-links says which GPU",
        )
    else:
        yield ok(text)


@check("gpus.beside", "this library and another NCCL, in turns", Severity.WARNING)
def beside(context: Context) -> Iterator[Finding]:
    """The other one is that of --library, or the one that pip has installed. Both run in one audit, in turns, on the
    same GPUs and by the same program; what differs is the library."""
    contest = _contest(context)
    if contest is None:
        yield (
            ok(_NO_GPUS)
            if context.library is None
            else note(
                f"{NOT_MEASURED}{_NO_GPUS}, and ranks in host memory are Stretto's alone: "
                f"{context.library} is measured on a machine with GPUs"
            )
        )
        return
    other = other_of(contest.rows)
    for name, reason in contest.failures.items():
        failed = context.library is not None and not contest.shared
        yield (warning if failed else note)(
            f"without {name}: {reason.splitlines()[0]}",
            "a libnccl.so.2 that runs here, to compare with",
            subject=name,
            certainty="possible",
            cause="it is not installed, does not fit this driver, or cannot run on these GPUs",
            next_step="NCCL_DEBUG=INFO shows why; --library FILE names another one",
        )
    if other is None:
        return
    sizes = [(size, rows[SUBJECT], rows[other]) for size, rows in rows_by_size(contest.rows).items() if other in rows]
    times = {size: own["us_min"] / theirs["us_min"] for size, own, theirs in sizes}
    text = ", ".join(
        f"{bytes_text(size)} {microseconds(own['us_median'])} against {microseconds(theirs['us_median'])}"
        for size, own, theirs in sizes
    )
    about = f"{SUBJECT} {contest.versions[SUBJECT]} against {other} {contest.versions[other]}"
    worst = max(times, key=lambda size: times[size])
    if times[worst] > _BESIDE:
        yield warning(
            f"{about}: {text}; {times[worst]:.1f} times at {bytes_text(worst)}",
            f"no more than {_BESIDE:g} times the other's time at any size",
            subject=bytes_text(worst),
            certainty="likely",
            cause="no peer access between these GPUs, so that data go through the host; or a forced algorithm",
            next_step="stretto topo; stretto explain all_reduce SIZE; unset STRETTO_ALGO and STRETTO_PROTO",
        )
    elif times[worst] > 1 + _LEAST:
        slower = ", ".join(bytes_text(size) for size, ratio in times.items() if ratio > 1 + _LEAST)
        yield note(
            f"{about}: {text}",
            f"within {_LEAST:.0%} of the other at each size; slower at {slower}",
            cause="another algorithm serves these GPUs better at that size",
            next_step="stretto tune measures all algorithms, and writes a table that STRETTO_TABLE names",
            certainty="likely",
        )
    else:
        yield ok(f"{about}: {text}")

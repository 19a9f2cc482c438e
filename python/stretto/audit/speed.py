"""Checks of speed, against what this machine's own pieces cost in the same run. What is judged is the best of many,
which a busy machine worsens least, and by how much it must differ grows with how noisy the machine is now.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from stretto.audit.causes import Cause, chosen, in_between, of_memory, of_waits
from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.ladder import Step
from stretto.audit.measurements import Platform
from stretto.audit.words import MECHANISMS, bytes_text, microseconds, significant
from stretto.bench.measure import SUBJECT
from stretto.bench.rows import FLOOR

# By how much the best of many may differ from the model before anything is said, on a quiet machine.
SLACK = 6.0
# The same for one pair against another, or against a copy that is made in turns with it.
_SLACK_OF_PAIRS = 3.0
_MOST_NOISE = 5.0
_SLOW_CALLS = Cause(
    "ranks that wait for the scheduler, or a library that does more than it should: the environment, the clock and "
    "the machine's facts say nothing",
    "stretto explain all_reduce 8 says what is chosen; `stretto doctor --nccl` says which library ran",
)
_SLOW_COPIES = Cause(
    "ranks that wait for each other, or a library that does more than it should: the environment and the machine's "
    "facts say nothing",
    "stretto bench all_reduce -b 1M shows which sizes; stretto explain; bandwidth.mechanisms says what is slow",
)
_SLOW_PAIR = "all ways of this pair are slow: cores of different sockets, a throttled core, or other programs on one"
_MOVE = "audit again with other cores (taskset -c), and see whether the pair or the cores stay slow"


def expected_us(platform: Platform, ranks: int, cores: int, bytes: int) -> float:
    """The model of an all-reduce: a round of hand-overs up and one down a tree of ranks, each by a cache line between
    cores, or by a wake-up where ranks share cores; and each byte copied in, over and out of shared memory.
    """
    hops = 2 * max(1, math.ceil(math.log2(ranks)))
    hop = platform.line if ranks <= cores else platform.wake * math.ceil(ranks / cores)
    clock = 2 * platform.best("clock_gettime(MONOTONIC)") / 1000
    copies = 4 * max(1, math.ceil(ranks / cores)) * bytes / platform.best("memcpy into shared memory") / 1000
    return hops * hop + clock + copies


def noise_of(platform: Platform) -> float:
    """By how much more it may differ here."""
    return min(_MOST_NOISE, platform.noise)


@check("latency.small", "all-reduces of 8 B to 1 MB, against a model of this machine", Severity.WARNING)
def small(context: Context) -> Iterator[Finding]:
    """The model: hand-overs up and down a tree of ranks, each as long as a cache line takes between these cores, and
    copies as fast as memcpy into shared memory, both measured in the same run."""
    measured, cores = context.measured, len(context.facts.cores_allowed)
    platform, ladder = measured.platform, measured.ladder
    for step in ladder:
        if step.wrong:
            yield error(
                f"{step.wrong} wrong elements in all-reduces of {bytes_text(step.bytes)}",
                "none",
                subject=bytes_text(step.bytes),
                certainty="certain",
                cause="data are changed on their way; see the correctness section",
                next_step="do not use this machine for anything that counts",
            )
    models = {step.bytes: expected_us(platform, context.ranks, cores, step.bytes) for step in ladder}
    worst = max(ladder, key=lambda step: step.best / models[step.bytes])
    ratio = worst.best / models[worst.bytes]
    text = (
        f"{bytes_text(worst.bytes)} takes {microseconds(worst.best)} at best, {microseconds(worst.p50)} in the median"
    )
    model = f"{microseconds(models[worst.bytes])} by the model"
    if ratio > SLACK * noise_of(platform):
        cause, next_step, certainty = chosen([*of_waits(context), *in_between(context)], _SLOW_CALLS)
        yield warning(
            text,
            f"{model}, and no more than {SLACK:g} times that (machine noise {noise_of(platform):.1f})",
            certainty=certainty,
            cause=cause,
            next_step=next_step,
        )
    else:
        yield ok(
            f"{text}; that is {ratio:.1f} times the model's {microseconds(models[worst.bytes])}, its worst size", model
        )


@check("latency.tail", "how far the slowest calls are from the usual ones", Severity.NOTE)
def tail(context: Context) -> Iterator[Finding]:
    """A job of a thousand operations meets the slowest of a thousand. What interrupts a rank for milliseconds is mostly
    another program on its core, so this is never more than a note."""
    steps = context.measured.ladder
    worst = max(steps, key=lambda step: step.p99 / step.p50)
    text = (
        f"{bytes_text(worst.bytes)}: p99 {microseconds(worst.p99)} and at most {microseconds(worst.most)}, "
        f"median {microseconds(worst.p50)}"
    )
    if worst.p99 > 20 * worst.p50:
        yield note(
            text,
            "a 99th percentile within 20 times the median",
            certainty="likely",
            cause="ranks are interrupted: other programs on their cores, a quota, or a hypervisor",
            next_step="see the machine's pressure and steal; give the ranks cores of their own",
        )
    else:
        yield ok(text)


def straggler(steps: list[Step], wake: float) -> tuple[int, Step] | None:
    """The rank that came last to nearly all calls of a size, and so late in three quarters of these that no scheduler's
    whim explains it. Where a core is shared for a while, most calls see nothing of it.
    """
    for step in steps:
        for rank, share in enumerate(step.last_share):
            if share > 0.8 and step.late_quarter[rank] > max(20 * step.quickest, 10 * wake):
                return rank, step
    return None


@check("latency.last", "which rank comes last", Severity.WARNING)
def last(context: Context) -> Iterator[Finding]:
    """All ranks are as slow as their last one. A rank that is last to nearly every call, by much, is slow itself."""
    steps = context.measured.ladder
    found = straggler(steps, context.measured.platform.wake)
    text = ", ".join(f"rank {rank} {share:.0%}" for rank, share in enumerate(steps[0].last_share))
    if found is not None and context.ranks <= len(context.facts.cores_allowed):
        rank, step = found
        yield warning(
            f"rank {rank} came last to {step.last_share[rank]:.0%} of the calls of {bytes_text(step.bytes)}, by "
            f"{microseconds(step.late_quarter[rank])} or more in three quarters of them",
            "each rank about equally often, and by less than a wake-up takes",
            subject=f"rank {rank}",
            certainty="likely",
            cause=f"what rank {rank} runs on is slower: its core is taken or throttled, or its process does "
            "something else",
            next_step="top -1 shows the core; audit again with other cores (taskset), and see whether the rank "
            "or the core stays",
        )
    else:
        waited = max(step.waited for step in steps)
        yield ok(f"last to calls of 8 B: {text}; waiting for the last took {waited:.0%} of the time at most")


@check("bandwidth.collective", "large all-reduces, against memcpy in turns with them", Severity.WARNING)
def collective(context: Context) -> Iterator[Finding]:
    """An all-reduce reads and writes every byte at least once, and memcpy by as many threads says how fast that can be
    here. The fastest batch of each is compared. Where others fill the caches, memcpy stays in them and an all-reduce
    does not: it is slow only if the model of latency.small, which copies through memory, says so too."""
    rows, platform, cores = context.measured.large, context.measured.platform, len(context.facts.cores_allowed)
    slack = SLACK * noise_of(platform)
    times = {(row["implementation"], row["bytes"]): row for row in rows}
    for size in sorted({row["bytes"] for row in rows}):
        own, floor = times.get((SUBJECT, size)), times.get((FLOOR, size))
        if own is None or floor is None:
            continue
        if own["wrong"]:
            yield error(
                f"{own['wrong']} wrong elements at {bytes_text(size)}",
                "none",
                subject=bytes_text(size),
                certainty="possible",
                cause="data are changed on their way; see the correctness section",
                next_step="do not use this machine for anything that counts",
            )
        share = floor["us_min"] / own["us_min"]
        shared = context.ranks > cores
        model = expected_us(platform, context.ranks, cores, size)
        most = max(2 * slack * floor["us_min"], slack * model)
        expected = (
            f"no more than {microseconds(most)}: {2 * slack:.0f} times memcpy's {microseconds(floor['us_min'])}, or "
            f"{slack:.0f} times the model's {microseconds(model)}"
        )
        text = f"{bytes_text(size)}: {significant(own['busbw_gbps'])} GB/s, at best {share:.0%} of memcpy's speed"
        if own["us_min"] <= most:
            yield ok(text, expected, subject=bytes_text(size))
        elif shared:
            yield note(text, f"{expected}, where each rank has a core", subject=bytes_text(size), cause="shared cores")
        else:
            seen = [*of_memory(context), *of_waits(context), *in_between(context)]
            cause, next_step, certainty = chosen(seen, _SLOW_COPIES)
            yield warning(
                text,
                expected,
                subject=bytes_text(size),
                certainty=certainty,
                cause=cause,
                next_step=next_step,
            )


Rates = dict[str, dict[str, float]]


def measured_rates(context: Context) -> tuple[Rates, Rates]:
    """GB/s by way and pair, at best of all turns until now; and of the copies beside them."""
    found: dict[str, Rates] = {"rates": {}, "limits": {}}
    for command, replies in context.measured.replies.items():
        if command.startswith("rates "):
            for kind, best in found.items():
                for way, pairs in (one for reply in replies for one in reply[kind].items()):
                    own = best.setdefault(way, {})
                    own.update({pair: max(rate, own.get(pair, rate)) for pair, rate in pairs.items()})
    return found["rates"], found["limits"]


def _turns_of_rates(context: Context) -> Iterator[tuple[Rates, Rates]]:
    """Once more for each time that it is asked for, and three times at most."""
    count = {"quick": 5, "default": 15, "full": 50}[context.level.name]
    for turn in range(3):
        words = f"rates bytes={4 << 20} count={count + turn} for={2 * context.measured.share}"
        context.measured.ask("measuring each pair", words, 2 * context.measured.share)
        yield measured_rates(context)


@check("bandwidth.pairs", "large messages of each pair and direction, against the other pairs", Severity.WARNING)
def pairs(context: Context) -> Iterator[Finding]:
    """Pairs of one machine are alike; one that is slow has its ranks far apart, or something wrong between them. Where
    one seems slow, all are measured up to three times, and the best counts."""
    noise = noise_of(context.measured.platform)
    for found, _ in _turns_of_rates(context):
        rates = found.get("message", {})
        if not rates:
            return
        slow, fast = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        if rates[fast] / rates[slow] <= _SLACK_OF_PAIRS * noise:
            break
    all = context.ranks * (context.ranks - 1)
    cut = f"; {len(rates)} of {all} pairs, cut short by the time" if len(rates) < all else ""
    text = (
        f"{_pair(slow)} {significant(rates[slow])} GB/s, {_pair(fast)} {significant(rates[fast])} GB/s, 4 MB each{cut}"
    )
    if rates[fast] / rates[slow] > _SLACK_OF_PAIRS * noise and context.ranks <= len(context.facts.cores_allowed):
        yield warning(
            text,
            f"all pairs within {_SLACK_OF_PAIRS * noise:.1f} times of each other",
            subject=_pair(slow),
            certainty="possible",
            cause=f"the way from {_pair(slow)}: cores of different sockets, a throttled core, or a library in between; "
            "bandwidth.mechanisms says whether all ways of that pair are slow",
            next_step=_MOVE,
        )
    else:
        yield ok(text)


def _slowest(rates: dict[str, float], limits: dict[str, float]) -> tuple[str, float]:
    """The pair that is furthest from what stands beside it, and how many times."""
    times = {pair: limits[pair] / rate for pair, rate in rates.items() if pair in limits}
    pair = max(times, key=times.__getitem__)
    return pair, times[pair]


@check("bandwidth.mechanisms", "large data of each pair by each mechanism, against a plain copy", Severity.WARNING)
def mechanisms(context: Context) -> Iterator[Finding]:
    """A message is copied into shared memory and out of it, by two ranks at once; a put goes into memory that the peer
    has mapped, or by the kernel into the peer's own. In turns with each, the same rank makes such a copy without the
    library: by memcpy between its own arrays, by memcpy into shared memory, by process_vm_writev into the same peer.
    What seems slow is measured three times, and the best counts."""
    most = _SLACK_OF_PAIRS * noise_of(context.measured.platform)
    for rates, limits in _turns_of_rates(context):
        worst = {way: _slowest(rates[way], limits[way]) for way in rates if rates[way]}
        if all(times <= most * MECHANISMS[way].copies for way, (_, times) in worst.items()):
            break
    for way, (pair, times) in worst.items():
        mechanism = MECHANISMS[way]
        text = (
            f"{mechanism.name}, {_pair(pair)}: {significant(rates[way][pair])} GB/s, where {mechanism.beside} makes "
            f"{significant(limits[way][pair])} GB/s, 4 MB each"
        )
        least = limits[way][pair] / most / mechanism.copies
        expected = (
            f"{significant(least)} GB/s or more: {'one such copy' if mechanism.copies == 1 else 'two such copies'}, "
            f"within {most:.1f} times"
        )
        if times <= most * mechanism.copies or context.ranks > len(context.facts.cores_allowed):
            yield ok(text, expected, subject=f"{way}, {_pair(pair)}")
            continue
        others = [one for one in worst if one != way and worst[one][1] <= most * MECHANISMS[one].copies]
        alone = f"{' and '.join(MECHANISMS[one].name for one in others)} is as fast as it should be, so it is no core: "
        yield warning(
            text,
            expected,
            subject=f"{way}, {_pair(pair)}",
            certainty="likely",
            cause=f"{alone if others else ''}{mechanism.cause if others else _SLOW_PAIR}",
            next_step=mechanism.next_step if others else _MOVE,
        )


def _pair(name: str) -> str:
    return "rank " + name.replace(">", " to ")


def ladder_rows(context: Context) -> list[dict[str, Any]]:
    """For the tables: each size beside the model."""
    cores = len(context.facts.cores_allowed)
    platform = context.measured.platform
    return [
        {**vars(step), "model": expected_us(platform, context.ranks, cores, step.bytes)}
        for step in context.measured.ladder
    ]

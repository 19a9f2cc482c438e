"""Whether a rank stands out: late to its communicators' operations beyond chance, always, in phases, or more and more.

Communicators of the same ranks are judged together. An operation counts if one rank came last to it and made the others
wait for at least half as long as usual: half of the median of such waits; and where nobody stands out so, half of their
mean, for ranks that are late seldom and by much. If no rank differs from the others, each is as likely as any other to
be the last, whatever the waits are. A rank stands out if it was last more often than a binomial distribution of share
1/n explains at the level `LEVEL`, over all ranks, groups and ways of counting (Bonferroni). The tail is bounded by
Chernoff's inequality. Neighbouring operations may depend on each other, so what counts is their effective number:
M (1 - r) / (1 + r), with the correlation r of who is last from one operation to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretto.trace.attribution import Lateness, Timeline
from stretto.trace.columns import NONE, Bool, Float, Int
from stretto.trace.meeting import LEVEL
from stretto.trace.operations import Operations

MATTERS = 0.01  # of the time: who cost less does not stand out
_RANDOM = 0.02  # of the time: what lateness costs in sum before a job without a straggler is worth a word
_FEW_UNSEEN = 0.1  # of the operations that are judged: with more that are not, nobody can be said not to stand out
_FEWEST = 5  # operations: fewer that waited for a rank are no pattern
_COUNTED = 0.5  # of the usual lead
_WINDOWS = 20
_WINDOW = 10  # operations at least
_UNSTEADY = 4.0  # standard deviations
_LOW = 0.25  # of what a rank cost in other parts: where it cost less, it was not late
_FEW_LOW = 0.1  # of the windows
_OUTLIER = 4  # times the median: how much one operation counts for at most
_TREND = 0.7  # of the variance of a rank's lateness, by window, explained by a line
_CHANGE = 0.5  # and how much of its greatest lateness that line gains or loses
_FEWEST_WINDOWS = 8  # for a line

STEADY, DRIFT, PHASES = "steady", "drift", "phases"


@dataclass(frozen=True)
class Phase:
    """A part of the run in which a rank was late."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Finding:
    """A rank that stands out among the ranks that it shares communicators with."""

    communicators: list[str]
    worker: str
    worker_number: int
    rank: int
    shape: str  # steady, drift or phases
    certain: bool  # no rank was missing, and arrivals are when ranks began their operations
    by_calls: bool  # they are when ranks called, and what followed shows that the others waited: at most for that long
    ranks: int  # of its communicators, without those that came last mostly to operations that are not judged
    operations: int  # compared
    counted: int  # of those to which one rank came last and that cost the most
    last: int  # of these, to how many it came last
    chance: float  # how likely that is without a difference between ranks, at most, for all tests together
    median_ns: float  # how late it was to these
    cost_ns: int
    share: float  # of the time of these communicators
    phases: list[Phase] = field(default_factory=list)
    first_ns: float | None = None  # of a drift: its lateness at the beginning and at the end of the run
    last_ns: float | None = None


@dataclass(frozen=True)
class Verdict:
    """`shape`: "none" nobody stands out; "random" nobody, but lateness costs; "steady", "drift", "phases" of one rank
    or one after the other; "several" ranks; "unknown" nothing could be compared, or nothing says whether ranks waited.
    """

    shape: str = "unknown"
    certain: bool = False
    findings: list[Finding] = field(default_factory=list)  # the costliest first
    share: float = 0.0  # of the time, that the others waited for the last rank of each operation
    level: float = LEVEL
    tests: int = 0
    missing: list[str] = field(default_factory=list)  # what the recording lacks, in words
    startup: int = 0  # operations of ranks that had not met before
    startup_ns: int = 0  # the longest wait in one of these
    by_calls: bool = False  # of some operations it is known when ranks called, and from what followed that they waited
    held: int = 0  # operations whose last rank was held up in another communicator
    unseen: int = 0  # operations of which calls alone are known, and not whether anybody waited: they are not judged


@dataclass(frozen=True)
class _Group:
    """Communicators of the same workers: their operations in the order of time."""

    workers: Int
    ranks: int  # of those, how many can come last: of the others most operations are not judged
    operations: Int
    loser: Int  # which of the workers came last to a counted one; -1 others
    lead: Int  # 0 of those that nobody is blamed for
    counted: int
    lasted: int
    certain: bool
    by_calls: bool


def judge(operations: Operations, timeline: Timeline, late: Lateness, missing: list[str]) -> Verdict:
    """Looks for ranks that stand out in a job."""
    parts = _by_workers(operations, late)
    unjudged = np.flatnonzero(late.excused.unseen & (late.last >= 0) & ~late.excused.startup)
    unjudged = unjudged[np.argsort(operations.communicator[unjudged], kind="stable")]
    fair = [_fair(operations, late, workers, rows, unjudged) for workers, rows in parts]
    groups = [
        _group(operations, timeline, late, rows, workers, ranks, np.median)
        for (workers, rows), ranks in zip(parts, fair, strict=True)
    ]
    tests = 2 * sum(len(one.workers) for one in groups if one.counted)
    findings = []
    for one, (workers, rows), ranks in zip(groups, parts, fair, strict=True):
        found = _findings(one, operations, timeline, late, tests)
        if not found and one.counted:
            found = _findings(
                _group(operations, timeline, late, rows, workers, ranks, np.mean), operations, timeline, late, tests
            )
        findings += found
    findings.sort(key=lambda item: -item.cost_ns)
    lasted = sum(one.lasted for one in groups)
    share = sum(int(one.lead.sum()) for one in groups) / lasted if lasted else 0.0
    compared = late.last >= 0
    startup = late.excused.startup & compared
    unseen = int((late.excused.unseen & compared & ~startup).sum())
    judged = sum(len(one.operations) for one in groups)
    linked = np.isfinite(late.error)
    known = bool((linked & compared & ~startup & ~late.excused.unseen).any())
    known = known and (bool(findings) or unseen <= _FEW_UNSEEN * judged)
    costs = sum(one.counted for one in groups) >= _FEWEST
    return Verdict(
        shape=_shape(findings, share if costs else 0.0) if known else "unknown",
        certain=bool(groups) and not missing and not unseen and all(one.certain for one in groups),
        findings=findings,
        share=share,
        tests=tests,
        missing=missing,
        startup=int(startup.sum()),
        startup_ns=int(late.lead[startup & linked].max(initial=0)),
        held=int((late.excused.held & compared).sum()),
        by_calls=any(one.by_calls for one in groups),
        unseen=unseen,
    )


def _shape(findings: list[Finding], share: float) -> str:
    if not findings:
        return "random" if share >= _RANDOM else "none"
    if len({item.worker_number for item in findings}) == 1 or all(item.shape == PHASES for item in findings):
        return findings[0].shape
    return "several"


def _by_workers(operations: Operations, late: Lateness) -> list[tuple[Int, Int]]:
    """The workers of each group and its operations that can be judged."""
    compared = np.flatnonzero((late.last >= 0) & ~late.excused.startup & ~late.excused.unseen)
    if len(compared) == 0:
        return []
    communicator = operations.communicator[compared]
    order = compared[np.argsort(communicator, kind="stable")]
    ends = np.flatnonzero(np.diff(operations.communicator[order])) + 1
    members: dict[tuple[int, ...], list[Int]] = {}
    for rows in np.split(order, ends):
        low, high = operations.first[rows[0]], operations.first[rows[0] + 1]
        key = tuple(sorted(operations.worker[low:high].tolist()))
        members.setdefault(key, []).append(rows[operations.sizes[rows] == len(key)])
    return [(np.array(key, np.int64), np.concatenate(parts)) for key, parts in members.items()]


def _fair(operations: Operations, late: Lateness, workers: Int, rows: Int, unjudged: Int) -> int:
    """How many of the workers have a fair chance to come last to these operations: not those that did so mostly to
    operations of the same communicators that are not judged; `unjudged` are all of these, in order of communicator.
    """
    numbers, of = np.unique(operations.communicator[rows]), operations.communicator[unjudged]
    low, high = np.searchsorted(of, numbers), np.searchsorted(of, numbers, "right")
    here = [unjudged[begin:end] for begin, end in zip(low.tolist(), high.tolist(), strict=True) if begin < end]
    if not here:
        return len(workers)
    places = (np.searchsorted(workers, operations.worker[late.last[some]]) for some in (np.concatenate(here), rows))
    unseen, judged = (np.bincount(some, minlength=len(workers) + 1)[: len(workers)] for some in places)
    return int((unseen <= judged).sum())


def _group(
    operations: Operations,
    timeline: Timeline,
    late: Lateness,
    rows: Int,
    workers: Int,
    ranks: int,
    usual: Callable[[Int], Any],
) -> _Group:
    parts = operations.worker[operations.first[rows][:, None] + np.arange(len(workers))]
    rows = rows[(np.sort(parts, axis=1) == workers).all(axis=1)]
    rows = rows[np.argsort(timeline.begin[rows], kind="stable")]
    lead = np.where(late.blamed[rows], late.lead[rows], 0)
    blamed = lead > 0
    counted = blamed & (lead >= _COUNTED * float(usual(lead[blamed]))) if blamed.any() else blamed
    loser = np.where(counted, np.searchsorted(workers, operations.worker[late.last[rows]]), -1)
    end = np.maximum(timeline.begin[rows], timeline.finish[rows])
    members = [operations.communicators[number] for number in np.unique(operations.communicator[rows])]
    return _Group(
        workers=workers,
        ranks=ranks,
        operations=rows,
        loser=loser,
        lead=lead,
        counted=int(counted.sum()),
        lasted=int(end.max() - timeline.arrive[late.last[rows[0]]]),
        certain=bool(timeline.exact[rows].all()) and all(item.complete for item in members),
        by_calls=not timeline.exact[rows].all(),
    )


def tail(last: float, counted: float, ranks: int) -> float:
    """A bound on the chance that one of `ranks` equal ranks comes last to that many of `counted` operations or more."""
    if counted <= 0 or ranks < 2 or last / counted <= 1 / ranks:
        return 1.0
    share = min(1.0, last / counted)
    rest = (1 - share) * math.log((1 - share) * ranks / (ranks - 1)) if share < 1 else 0.0
    return math.exp(-counted * (share * math.log(share * ranks) + rest))


def independent(loser: Int) -> float:
    """Of so many operations in a row, as how many independent ones they count."""
    count = len(loser)
    if count < 2:
        return float(count)
    alike = float(((np.bincount(loser) / count) ** 2).sum())
    repeated = float((loser[1:] == loser[:-1]).mean())
    correlation = min(max(0.0, (repeated - alike) / (1 - alike)), 1.0) if alike < 1 else 0.0
    return max(1.0, count * (1 - correlation) / (1 + correlation))


def _chances(loser: Int, ranks: int) -> Float:
    """Of each rank: how likely it is without a difference that it was last as often."""
    counts = np.bincount(loser, minlength=ranks)
    effective = independent(loser)
    return np.array([tail(count / len(loser) * effective, effective, ranks) for count in counts.tolist()])


def _findings(group: _Group, operations: Operations, timeline: Timeline, late: Lateness, tests: int) -> list[Finding]:
    known, ranks = group.loser[group.loser >= 0], group.ranks
    if len(known) == 0 or tests * ranks ** -float(len(known)) > LEVEL:
        return []
    chances = np.minimum(1.0, _chances(known, ranks) * tests)
    outstanding = {int(one): float(chances[one]) for one in np.flatnonzero(chances <= LEVEL)}
    in_phases: dict[int, Bool] = {}
    if not outstanding:
        outstanding, in_phases = _changing(group, tests)
    found = []
    for one, chance in outstanding.items():
        hit = group.loser == one
        cost = int(group.lead[hit].sum())
        if group.lasted <= 0 or cost < MATTERS * group.lasted:
            continue
        trend = None
        shape, parts = PHASES, in_phases.get(one, hit)
        if one not in in_phases:
            shape, parts, trend = _steadiness(group, operations, late, one)
        rows = group.operations[hit]
        row = int(late.last[rows[0]])
        labels = dict.fromkeys(operations.communicators[number].label for number in operations.communicator[rows])
        found.append(
            Finding(
                communicators=list(labels),
                worker=operations.workers[int(group.workers[one])],
                worker_number=int(group.workers[one]),
                rank=int(operations.rank[row]),
                shape=shape,
                certain=group.certain,
                by_calls=group.by_calls,
                ranks=ranks,
                operations=len(group.operations),
                counted=group.counted,
                last=int(hit.sum()),
                chance=chance,
                median_ns=float(np.median(late.late[rows])),
                cost_ns=cost,
                share=cost / group.lasted,
                phases=_phases(group, timeline, parts) if shape == PHASES else [],
                first_ns=trend[0] if trend else None,
                last_ns=trend[1] if trend else None,
            )
        )
    return found


def _changing(group: _Group, tests: int) -> tuple[dict[int, float], dict[int, Bool]]:
    """Ranks that stand out in parts of the run, where these are most of it: their chances, and operations of the group
    in these parts. Windows are as long as a test needs where one rank is last to all of their operations.
    """
    ranks, at = group.ranks, np.flatnonzero(group.loser >= 0)
    enough = 2 * math.log(ranks * _WINDOWS * max(1, tests) / LEVEL) / math.log(ranks)
    windows = int(min(_WINDOWS, len(at) // enough))
    if windows < 2:
        return {}, {}
    winners = np.full(windows, -1, np.int64)
    best: dict[int, float] = {}
    parts = np.array_split(at, windows)
    for number, part in enumerate(parts):
        chances = _chances(group.loser[part], ranks) * tests * windows
        first = int(chances.argmin())
        if chances[first] <= LEVEL:
            winners[number] = first
            best[first] = min(best.get(first, 1.0), float(chances[first]))
    if (winners >= 0).sum() * 2 < windows:
        return {}, {}
    masks = {one: np.zeros(len(group.loser), np.bool_) for one in best}
    for number, part in enumerate(parts):
        if winners[number] >= 0:
            end = parts[number + 1][0] if number + 1 < windows else len(group.loser)
            masks[int(winners[number])][part[0] : end] = True
    return best, masks


def _steadiness(
    group: _Group, operations: Operations, late: Lateness, one: int
) -> tuple[str, Bool, tuple[float, float] | None]:
    """Whether a rank was late all the time, more and more (or less and less), or in parts of the run. These parts, and
    the lateness at both ends of a drift.
    """
    count = len(group.operations)
    everywhere = np.ones(count, np.bool_)
    windows = int(min(_WINDOWS, count // _WINDOW))
    if windows < 2:
        return STEADY, everywhere, None
    parts = np.array_split(np.arange(count), windows)
    behind = _behind(group, operations, late, one)
    trend = _trend(np.array([np.median(behind[part]) for part in parts])) if windows >= _FEWEST_WINDOWS else None
    if trend:
        return DRIFT, everywhere, trend
    low = _low(group, one, parts)
    if low.sum() < max(2, _FEW_LOW * windows):
        return STEADY, everywhere, None
    late_in = everywhere.copy()
    for part, nothing in zip(parts, low.tolist(), strict=True):
        late_in[part] = not nothing
    return PHASES, late_in, None


def _low(group: _Group, one: int, parts: list[Int]) -> Bool:
    """Windows in which a rank cost next to nothing, if its lateness is not the same in all of them."""
    hits = group.loser == one
    lead = np.where(hits, np.minimum(group.lead, _OUTLIER * np.median(group.lead[hits])), 0.0)
    cost = np.array([lead[part].mean() for part in parts])
    low = cost < _LOW * np.median(np.sort(cost)[len(cost) // 2 :])
    # Where it was late it was so by more than elsewhere: by that, and not by who came last to what cost nothing.
    high = np.concatenate([part for part, nothing in zip(parts, low.tolist(), strict=True) if not nothing])
    costly = hits & (group.lead >= _LOW * np.median(lead[high][hits[high]]))
    sizes, shares = np.array([len(part) for part in parts]), np.array([costly[part].mean() for part in parts])
    return low if _dispersion(sizes, shares, float(costly.mean())) >= _UNSTEADY else np.zeros(len(parts), np.bool_)


def _behind(group: _Group, operations: Operations, late: Lateness, one: int) -> Float:
    """How long after the median of the others one worker came to each operation of its group."""
    first, size = operations.first[group.operations], len(group.workers)
    rows = first[:, None] + np.arange(size)
    mine = operations.worker[rows] == group.workers[one]
    return np.asarray(np.where(mine, late.behind[rows], NONE).max(axis=1), np.float64)


def _trend(usual: Float) -> tuple[float, float] | None:
    """A rank's lateness at the beginning and the end, if a line says more about it than one step does, and rises or
    falls by much.
    """
    place = np.arange(len(usual), dtype=np.float64)
    whole = float(((usual - usual.mean()) ** 2).sum())
    if whole <= 0:
        return None
    slope, base = np.polyfit(place, usual, 1)
    line = base + slope * place
    by_line = 1 - float(((usual - line) ** 2).sum()) / whole
    by_step = max(
        1 - float(((left - left.mean()) ** 2).sum() + ((right - right.mean()) ** 2).sum()) / whole
        for left, right in (np.split(usual, [cut]) for cut in range(1, len(usual)))
    )
    first, last = float(line[0]), float(line[-1])
    much = abs(last - first) >= _CHANGE * float(np.abs(line).max())
    return (first, last) if by_line >= _TREND and by_line >= by_step and much else None


def _dispersion(sizes: Int, shares: Float, share: float) -> float:
    """By how many standard deviations the windows' shares differ more than chance has it (chi-square, by Wilson and
    Hilferty's approximation).
    """
    if not 0 < share < 1:
        return 0.0
    freedom = len(sizes) - 1
    square = float((sizes * (shares - share) ** 2).sum()) / (share * (1 - share))
    usual = 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - (1 - usual)) / math.sqrt(usual))


def _phases(group: _Group, timeline: Timeline, parts: Bool) -> list[Phase]:
    """Neighbouring operations of these as phases."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], parts.astype(np.int64), [0]))))
    begin = timeline.begin[group.operations]
    finish = np.maximum(begin, timeline.finish[group.operations])
    return [Phase(int(begin[low]), int(finish[low:high].max())) for low, high in edges.reshape(-1, 2).tolist()]

"""The chain of ranks that decided how long the job took, and how much shorter it had been without a rank's lateness.

An operation moves data from its last rank's arrival on. That rank was held up by what it did since its own last
operation, and so on back to the beginning: that is the critical path. What-if plays the job again with everything as it
was, except that a rank arrives with the median of the others where it was last; nobody else is faster than it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stretto.trace.attribution import Lateness, Timeline
from stretto.trace.columns import NONE, Bool, Float, Int, latest_before
from stretto.trace.operations import Operations

MOST_PLAYED = 60_000
_CANDIDATES = 8


@dataclass(frozen=True)
class WhatIf:
    """The job without the lateness of one worker; of all of them where that is -1."""

    worker: int
    saved_ns: int
    share: float


@dataclass(frozen=True)
class CriticalPath:
    """Where the time of the job went, by the chain that decided it. `reason` says why there is none."""

    reason: str = ""
    duration_ns: int = 0
    transfer_ns: int = 0
    operations: int = 0
    # Of each worker: how long the path ran through its own work, and through how many operations it came last to; those
    # are not counted of which nothing says whether anybody waited.
    own_ns: dict[int, int] = field(default_factory=dict)
    gates: dict[int, int] = field(default_factory=dict)
    what_if: list[WhatIf] = field(default_factory=list)
    played: int = 0  # operations that what-if looked at


@dataclass(frozen=True)
class _Chain:
    """Operations in order of time, with what each row followed. Row and operation numbers are those of `Operations`."""

    order: Int
    before: Int  # of a row: the row of its worker that ended before it arrived; -1 none
    usable: Bool  # of an operation


def critical_path(operations: Operations, timeline: Timeline, late: Lateness) -> CriticalPath:
    """The critical path of a recording and what would have shortened it."""
    if any(item.every > 1 for item in operations.communicators):
        return CriticalPath(
            reason="not every operation was recorded, so nobody knows what ranks did between two of them"
        )
    if not all(item.complete for item in operations.communicators):
        return CriticalPath(reason="ranks are missing from the recording, and each may have been the last")
    chain = _chain(operations, timeline)
    if not chain.usable.any():
        return CriticalPath(
            reason="the recording does not say when operations ended (kernel channels were not recorded)"
        )
    own: dict[int, int] = {}
    gates: dict[int, int] = {}
    finish = np.where(chain.usable, timeline.finish, NONE)
    operation, transfer, count, start = int(np.argmax(finish)), 0, 0, 0
    end = int(timeline.finish[operation])
    moment = end
    while True:
        # Along a path later operations begin before the one that they gate ends, or they would not gate it.
        begin = int(timeline.begin[operation])
        transfer += max(0, moment - begin)
        row = int(_last_row(operations, timeline, operation))
        worker, before = int(operations.worker[row]), int(chain.before[row])
        gates[worker] = gates.get(worker, 0) + int(not late.excused.unseen[operation])
        count, start = count + 1, begin
        if before < 0:
            break
        moment = int(timeline.end[before])
        own[worker] = own.get(worker, 0) + max(0, begin - moment)
        operation = int(operations.operation[before])
    path = CriticalPath("", end - start, transfer, count, own, gates)
    return _with_what_if(path, operations, timeline, late, chain)


def _last_row(operations: Operations, timeline: Timeline, operation: int) -> int:
    low, high = operations.first[operation], operations.first[operation + 1]
    return int(low + np.argmax(timeline.arrive[low:high]))


def _chain(operations: Operations, timeline: Timeline) -> _Chain:
    usable = (timeline.begin > NONE) & (timeline.finish >= timeline.begin)
    rows = np.flatnonzero(usable[operations.operation]).astype(np.int64) if operations.count else np.zeros(0, np.int64)
    before = np.full(len(operations.operation), -1, np.int64)
    worker, arrive, end = operations.worker[rows], timeline.arrive[rows], timeline.end[rows]
    spot = latest_before(worker, end, worker, arrive)
    found = spot >= 0
    found[found] &= end[spot[found]] <= arrive[found]
    # Time goes forward along a chain, whatever clocks say.
    earlier = np.zeros(len(rows), np.bool_)
    of = operations.operation
    earlier[found] = timeline.begin[of[rows[spot[found]]]] < timeline.begin[of[rows[found]]]
    before[rows[earlier]] = rows[spot[earlier]]
    order = np.flatnonzero(usable)
    return _Chain(order[np.argsort(timeline.begin[order], kind="stable")].astype(np.int64), before, usable)


def _with_what_if(
    path: CriticalPath, operations: Operations, timeline: Timeline, late: Lateness, chain: _Chain
) -> CriticalPath:
    """Plays the job without the lateness of those workers that cost most, one at a time, and without any."""
    named = np.flatnonzero(late.named & chain.usable)
    relief = np.zeros(len(operations.operation))
    relief[late.last[named]] = np.maximum(late.late[named], 0)
    cost = np.bincount(operations.worker, weights=relief) if len(relief) else np.zeros(0)
    workers = [int(worker) for worker in np.argsort(-cost, kind="stable")[:_CANDIDATES] if cost[worker] > 0]
    if not workers:
        return path
    played = chain.order[:MOST_PLAYED]
    masks = [operations.worker == worker for worker in workers] + [np.ones(len(relief), np.bool_)]
    reliefs = np.vstack([np.zeros(len(relief))] + [np.where(mask, relief, 0.0) for mask in masks])
    ends = _play(operations, timeline, chain, played, reliefs)
    # From when the first rank came to the first operation.
    rows = np.isin(operations.operation, played)
    whole = float(ends[0] - timeline.arrive[rows].min())
    answers = []
    for number, worker in enumerate([*workers, -1]):
        saved = max(0.0, float(ends[0] - ends[number + 1]))
        answers.append(WhatIf(worker, round(saved), saved / whole if whole > 0 else 0.0))
    return CriticalPath(
        path.reason, path.duration_ns, path.transfer_ns, path.operations, path.own_ns, path.gates, answers, len(played)
    )


def _play(operations: Operations, timeline: Timeline, chain: _Chain, played: Int, reliefs: Float) -> Float:
    """When the job ends in each world: a worker's next arrival follows its last end by as much as it did, less its
    relief; nobody arrives before the median of the others, since relief takes no more than that.
    """
    origin = int(timeline.begin[played[0]])
    worlds = len(reliefs)
    arrive, end = (timeline.arrive - origin).astype(np.float64), (timeline.end - origin).astype(np.float64)
    before = chain.before
    gap = arrive - np.where(before >= 0, end[before], 0.0)
    tail = end - (timeline.begin - origin)[operations.operation]
    ended = np.zeros((worlds, len(arrive) + 1))
    latest = np.zeros(worlds)
    first = operations.first
    steps = gap - reliefs
    for operation in played.tolist():
        low, high = int(first[operation]), int(first[operation + 1])
        begin = (ended[:, before[low:high]] + steps[:, low:high]).max(axis=1)
        now = begin[:, None] + tail[low:high]
        ended[:, low:high] = now
        np.maximum(latest, now.max(axis=1), out=latest)
    return latest + origin

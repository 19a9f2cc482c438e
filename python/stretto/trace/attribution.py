"""Who came last to each collective operation, by how much, and where that rank lost the time.

A rank arrives at the last stage that the recording knows of all ranks: kernel start, launch, or call; on CPU ranks when
the operation begins, as nothing is handed over. Nobody is named whose lead over the others could be an error of the
clocks. Lateness is split by what each rank took from one stage to the next: a call that came late is the program's own
doing (upstream), a launch that came late after its call is the library's or the CPU's, a kernel that started late after
its launch waited for other work of its GPU (stream).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stretto.trace.align import Alignment
from stretto.trace.columns import NONE, Bool, Float, Int
from stretto.trace.operations import Operations

STAGES = ("unknown", "call", "start", "launch", "kernel")
UNKNOWN, CALL, START, LAUNCH, KERNEL = range(5)
CAUSES = ("", "upstream", "launch", "stream", "unclear")
NOBODY, UPSTREAM, LATE_LAUNCH, STREAM, UNCLEAR = range(5)

# Less than this is not worth anybody's time, and near what stamps are good for.
FLOOR_NS = 1000.0


@dataclass(frozen=True)
class Timeline:
    """Times of all rows on one clock; NONE unknown."""

    called: Int
    launched: Int
    arrive: Int
    end: Int
    clock: Int  # of the arrival
    error: Float  # of that clock
    home: Int  # arrivals with the same home can be compared
    stage: Int  # of an operation
    begin: Int  # of an operation: when its last rank arrived
    finish: Int  # when its last rank ended; NONE where some rank's end is unknown


@dataclass(frozen=True)
class Lateness:
    """Of each operation. Rows are -1, times 0 where ranks cannot be compared."""

    last: Int  # row that came last
    lead: Int  # by how much, before the one before last
    late: Int  # and before the median of the others
    error: Float  # how far the clocks can be wrong about that
    named: Bool  # whether it was that rank for certain
    cause: Int
    behind: Int  # of a row: how long after the median of its operation it arrived
    wait: Int  # of a row: from its arrival to the last one's; NONE unknown


def place(operations: Operations, alignment: Alignment) -> Timeline:
    """All stamps on one clock, and which of them say when a rank arrived."""
    process, context = operations.process, operations.context
    called, launched, began, host_end, proxy_end = (
        alignment.host_time(process, moments)
        for moments in (
            operations.called,
            operations.launched,
            operations.began,
            operations.host_end,
            operations.proxy_end,
        )
    )
    kernel = alignment.gpu_time(context, operations.gpu_start)
    kernel_end = alignment.gpu_time(context, operations.gpu_stop)
    of = operations.operation
    host_end = np.where(alignment.synchronous[context], host_end, NONE)
    # A host that runs the operation itself says when that began; where it hands over, the last stage says most.
    in_time = _all(operations, host_end > NONE)
    stage = np.select(
        [
            in_time & _all(operations, began > NONE),
            in_time & _all(operations, called > NONE),
            _all(operations, kernel > NONE),
            _all(operations, launched > NONE),
            _all(operations, began > NONE),
            _all(operations, called > NONE),
        ],
        [START, CALL, KERNEL, LAUNCH, START, CALL],
        UNKNOWN,
    ).astype(np.int64)
    nothing = np.full(len(called), NONE, np.int64)
    arrive = np.choose(stage[of], [nothing, called, began, launched, kernel])
    on_gpu = stage[of] == KERNEL
    hosts, gpus = alignment.host_of[process], alignment.gpu_of[context]
    end = np.where(host_end > NONE, host_end, np.where(kernel_end > NONE, kernel_end, proxy_end))
    return Timeline(
        called=called,
        launched=np.where(launched > NONE, launched, began),
        arrive=arrive,
        end=end,
        clock=np.where(on_gpu, -1 - gpus, hosts),
        error=np.where(on_gpu, alignment.gpu_error[gpus], alignment.host_error[hosts]),
        home=np.where(on_gpu, -1 - alignment.gpu_home[gpus], alignment.host_home[hosts]),
        stage=stage,
        begin=np.where(stage == UNKNOWN, NONE, per_operation(np.maximum, arrive, operations)),
        finish=np.where(_all(operations, end > NONE), per_operation(np.maximum, end, operations), NONE),
    )


def _all(operations: Operations, rows: Bool) -> Bool:
    if operations.count == 0:
        return np.zeros(0, np.bool_)
    return np.logical_and.reduceat(rows, operations.first[:-1])


def per_operation(how: np.ufunc, rows: Int, operations: Operations) -> Int:
    """A row's values taken together for each operation."""
    if operations.count == 0:
        return np.zeros(0, np.int64)
    return np.asarray(how.reduceat(rows, operations.first[:-1]), np.int64)


def lateness(operations: Operations, timeline: Timeline, alignment: Alignment) -> Lateness:
    """Who was late to each operation."""
    of, first, sizes = operations.operation, operations.first[:-1], operations.sizes
    rows = len(of)
    order = np.lexsort((timeline.arrive, of))
    # A rank of which this operation was lost, or that has not come yet, might be the last.
    recorded = np.array([item.recorded for item in operations.communicators] or [0], np.int64)
    whole = sizes == recorded[operations.communicator]
    comparable = (sizes >= 2) & whole & (timeline.stage != UNKNOWN)
    tail = first + sizes - 1
    last = np.where(comparable, order[tail], -1) if rows else tail
    safe = np.where(last >= 0, last, first)
    second = order[np.maximum(tail - 1, 0)] if rows else tail
    middle = order[first + np.maximum(sizes - 2, 0) // 2] if rows else tail
    lead = np.where(comparable, timeline.arrive[safe] - timeline.arrive[second], 0) if rows else tail
    late = np.where(comparable, timeline.arrive[safe] - timeline.arrive[middle], 0) if rows else tail
    margin, error = _margins(operations, timeline, safe)
    named = comparable & (margin > FLOOR_NS)
    wait = np.where(comparable[of], timeline.arrive[safe[of]] - timeline.arrive, NONE)
    behind = np.where(comparable[of], timeline.arrive - timeline.arrive[middle[of]] if rows else 0, 0)
    cause = _causes(operations, timeline, alignment, safe, late)
    return Lateness(
        last=last,
        lead=lead,
        late=late,
        error=error,
        named=named,
        cause=np.where(named, cause, NOBODY),
        behind=behind,
        wait=wait,
    )


def _margins(operations: Operations, timeline: Timeline, last: Int) -> tuple[Float, Float]:
    """By how much more than the clocks' errors the last row came after the others, and the largest of these errors."""
    of, first = operations.operation, operations.first[:-1]
    if len(of) == 0:
        return np.zeros(0), np.zeros(0)
    mate = last[of]
    same = timeline.clock == timeline.clock[mate]
    error = np.where(same, 0.0, timeline.error + timeline.error[mate])
    error = np.where(timeline.home == timeline.home[mate], error, np.inf)
    after = (timeline.arrive[mate] - timeline.arrive).astype(np.float64) - error
    after[np.arange(len(of)) == mate] = np.inf
    return np.minimum.reduceat(after, first), np.maximum.reduceat(error, first)


def others_median(operations: Operations, values: Int, known: Bool, last: Int) -> Float:
    """The median of the other rows of each operation; NaN where there is none."""
    use = known.copy()
    use[last] = False
    rows = np.flatnonzero(use)
    rows = rows[np.lexsort((values[rows], operations.operation[rows]))]
    counts = np.bincount(operations.operation[rows], minlength=operations.count)
    begins = np.concatenate(([0], np.cumsum(counts)))[:-1]
    result = np.full(operations.count, np.nan)
    there = counts > 0
    low, high = begins + (np.maximum(counts, 1) - 1) // 2, begins + counts // 2
    if there.any():
        ordered = values[rows].astype(np.float64)
        result[there] = (ordered[low[there]] + ordered[high[there]]) / 2
    return result


def _causes(operations: Operations, timeline: Timeline, alignment: Alignment, last: Int, late: Int) -> Int:
    """The stage before which the last row lost most, compared with the others of its operation."""
    if len(operations.operation) == 0:
        return np.zeros(0, np.int64)

    def more(begin: Int, end: Int) -> Float:
        known = (begin > NONE) & (end > NONE)
        took = np.where(known, end - begin, 0)
        excess = took[last] - others_median(operations, took, known, last)
        return np.where(known[last] & ~np.isnan(excess), excess, np.nan)

    kernel = timeline.stage == KERNEL
    to_launch = more(timeline.called, np.where(kernel[operations.operation], timeline.launched, timeline.arrive))
    to_start = np.where(kernel, more(timeline.launched, timeline.arrive), 0.0)
    # From a launch to the kernel is from a host's clock to a GPU's.
    doubt = np.where(kernel, 2 * alignment.gpu_host_error[alignment.gpu_of[operations.context[last]]], 0.0)
    lost = late.astype(np.float64)
    before = lost - np.nan_to_num(to_launch) - np.nan_to_num(to_start)
    parts = np.vstack((before, np.nan_to_num(to_launch), np.nan_to_num(to_start)))
    worst = np.argmax(parts, axis=0)
    clear = np.take_along_axis(parts, worst[None], axis=0)[0] - doubt > 0.4 * lost
    known = ~np.isnan(to_start) & ~np.isnan(to_launch)
    return np.where(known & clear, 1 + worst, UNCLEAR).astype(np.int64)

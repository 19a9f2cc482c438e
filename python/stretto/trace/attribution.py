"""Who came last to each collective operation, by how much, and where that rank lost the time.

A rank arrives at the last stage that the recording knows of all ranks: kernel start, launch, or call; on CPU ranks when
the operation begins, as nothing is handed over. Nobody is named whose lead over the others could be an error of the
clocks, who was held up in an operation of other ranks, or who had not met the others before (jobs start at different
times); and nobody where only calls are known, unless it shows that the others waited (`meeting`).

Lateness is split by what each rank took from one stage to the next: a call that came late is the program's own doing
(upstream), a launch that came late after its call is the library's or the CPU's, a kernel that started late after its
launch waited for other work of its GPU (stream).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stretto.trace.align import Alignment
from stretto.trace.columns import NONE, Bool, Float, Int, dense, ints, latest_before, times
from stretto.trace.meeting import Arrivals, waited
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import Operations

STAGES = ("unknown", "call", "start", "launch", "kernel")
UNKNOWN, CALL, START, LAUNCH, KERNEL = range(5)
CAUSES = ("", "upstream", "launch", "stream", "unclear")
NOBODY, UPSTREAM, LATE_LAUNCH, STREAM, UNCLEAR = range(5)

# Less than this is not worth anybody's time, and near what stamps are good for.
FLOOR_NS = 1000.0
_HELD = 0.5  # a rank that was held up elsewhere for this part of its lateness is not to blame for it
_BLOCKED_NS = 10_000  # a send or receive that took longer waited for its peer


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
    exact: Bool  # of an operation: arrivals are when its ranks began it; else ranks began no earlier than that
    begin: Int  # of an operation: when its last rank arrived
    finish: Int  # when its last rank ended; NONE where some rank's end is unknown

    def chosen(self, keep: Bool, rows: Bool) -> Timeline:
        """Some of the operations, and their rows."""
        of_operation = ("stage", "exact", "begin", "finish")
        return Timeline(**{name: value[keep if name in of_operation else rows] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Excuses:
    """Why nobody is to blame for an operation that waited."""

    startup: Bool  # its ranks had not met before
    held: Bool  # the last rank was held up in an operation of other ranks
    unseen: Bool  # when ranks began it is not recorded, and nothing shows that they waited for the last call

    def chosen(self, keep: Bool) -> Excuses:
        """Those of some of the operations."""
        return Excuses(**{name: value[keep] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Lateness:
    """Of each operation. Rows are -1, times 0 where ranks cannot be compared."""

    last: Int  # row that came last
    lead: Int  # by how much, before the one before last
    late: Int  # and before the median of the others
    error: Float  # how far the clocks can be wrong about that
    clear: Bool  # whether they tell that it was that row, and it is excused by neither start-up nor other ranks
    named: Bool  # whether it was that rank for certain: no rank of the communicator is missing
    blamed: Bool  # whether it was that rank among those that are recorded, and the others waited for it
    excused: Excuses
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
    exact = in_time | (stage == KERNEL)
    hosts, gpus = alignment.host_of[process], alignment.gpu_of[context]
    end = np.where(host_end > NONE, host_end, np.where(kernel_end > NONE, kernel_end, proxy_end))
    arrive = np.where(exact[of] | (arrive == NONE), arrive, np.maximum(arrive, _queue_end(operations, arrive, end)))
    return Timeline(
        called=called,
        launched=np.where(launched > NONE, launched, began),
        arrive=arrive,
        end=end,
        clock=np.where(on_gpu, -1 - gpus, hosts),
        error=np.where(on_gpu, alignment.gpu_error[gpus], alignment.host_error[hosts]),
        home=np.where(on_gpu, -1 - alignment.gpu_home[gpus], alignment.host_home[hosts]),
        stage=stage,
        exact=exact,
        begin=np.where(stage == UNKNOWN, NONE, per_operation(np.maximum, arrive, operations)),
        finish=np.where(_all(operations, end > NONE), per_operation(np.maximum, end, operations), NONE),
    )


def _queue_end(operations: Operations, handed_over: Int, end: Int) -> Int:
    """When the operation ended that each row queued behind: the one before it of its communicator, or of its stream.
    NONE where there is none, or its end is not known.
    """
    known = operations.stream >= 0
    streams = dense(operations.worker, np.where(known, operations.stream, -1 - operations.context))
    result = np.full(len(end), NONE, np.int64)
    for queue in (operations.context, streams):
        order = np.lexsort((handed_over, queue))
        here, before = order[1:], order[:-1]
        same = queue[here] == queue[before]
        result[here[same]] = np.maximum(result[here[same]], end[before[same]])
    return result


def _all(operations: Operations, rows: Bool) -> Bool:
    if operations.count == 0:
        return np.zeros(0, np.bool_)
    return np.logical_and.reduceat(rows, operations.first[:-1])


def per_operation(how: np.ufunc, rows: Int, operations: Operations) -> Int:
    """A row's values taken together for each operation."""
    if operations.count == 0:
        return np.zeros(0, np.int64)
    return np.asarray(how.reduceat(rows, operations.first[:-1]), np.int64)


@dataclass(frozen=True)
class _Order:
    """Rows of each operation by arrival: the last, the one before it, and the median of all but the last."""

    comparable: Bool
    last: Int  # the first row where ranks cannot be compared
    second: Int
    middle: Int

    @staticmethod
    def of(operations: Operations, timeline: Timeline) -> _Order:
        first, sizes = operations.first[:-1], operations.sizes
        order = np.lexsort((timeline.arrive, operations.operation)).astype(np.int64)
        # A rank of which this operation was lost, or that has not come yet, might be the last.
        recorded = np.array([item.recorded for item in operations.communicators] or [0], np.int64)
        whole = sizes == recorded[operations.communicator]
        comparable = (sizes >= 2) & whole & (timeline.stage != UNKNOWN)
        if operations.count == 0:
            return _Order(comparable, first, first, first)
        tail = first + sizes - 1
        last = np.where(comparable, order[tail], first)
        return _Order(comparable, last, order[np.maximum(tail - 1, 0)], order[first + np.maximum(sizes - 2, 0) // 2])

    def after(self, timeline: Timeline, other: Int) -> Int:
        """How long after another row the last one came; 0 where nobody can say."""
        return np.where(self.comparable, timeline.arrive[self.last] - timeline.arrive[other], 0)


def excuses(recording: Recording, operations: Operations, timeline: Timeline, alignment: Alignment) -> Excuses:
    """Operations whose last rank is not to blame. It takes all communicators of a job to see that."""
    order = _Order.of(operations, timeline)
    held = np.zeros(operations.count, np.bool_)
    if operations.count:
        waits = _Waits.of(recording, operations, timeline, alignment)
        held = _held(operations, timeline, waits, order.last, order.after(timeline, order.middle))
    startup = _startup(operations, timeline)
    by_calls = ~timeline.exact
    queued = timeline.arrive > np.maximum(timeline.called, timeline.launched)
    arrivals = Arrivals(timeline.arrive, queued, timeline.end, timeline.home)
    met = waited(operations, order.comparable & by_calls & ~startup, arrivals)
    return Excuses(startup=startup, held=held & order.comparable, unseen=by_calls & ~met)


def lateness(operations: Operations, timeline: Timeline, alignment: Alignment, excused: Excuses) -> Lateness:
    """Who was late to each operation."""
    of = operations.operation
    order = _Order.of(operations, timeline)
    comparable, last = order.comparable, order.last
    lead, late = order.after(timeline, order.second), order.after(timeline, order.middle)
    margin, error = _margins(operations, timeline, last)
    clear = comparable & (margin > FLOOR_NS) & ~excused.startup & ~excused.held
    blamed = clear & ~excused.unseen
    complete = np.array([item.complete for item in operations.communicators] or [False], np.bool_)
    named = blamed & complete[operations.communicator]
    waits = comparable & ~excused.unseen
    wait = np.where(waits[of], timeline.arrive[last[of]] - timeline.arrive, NONE)
    behind = np.where(comparable[of], timeline.arrive - timeline.arrive[order.middle[of]], 0)
    cause = _causes(operations, timeline, alignment, last, late)
    return Lateness(
        last=np.where(comparable, last, -1),
        lead=lead,
        late=late,
        error=error,
        clear=clear,
        named=named,
        blamed=blamed,
        excused=excused,
        cause=np.where(blamed, cause, NOBODY),
        behind=behind,
        wait=wait,
    )


def _startup(operations: Operations, timeline: Timeline) -> Bool:
    """The first operation of each communicator whose ranks were not all together in an earlier one. Of a recording that
    begins later than the job there is none.
    """
    result = np.zeros(operations.count, np.bool_)
    known = np.flatnonzero(timeline.begin > NONE)
    order = known[np.lexsort((timeline.begin[known], operations.communicator[known]))]
    first = order[np.unique(operations.communicator[order], return_index=True)[1]]
    met: dict[int, set[frozenset[int]]] = {}
    for number in first[np.argsort(timeline.begin[first], kind="stable")].tolist():
        low, high = operations.first[number], operations.first[number + 1]
        here = frozenset(operations.worker[low:high].tolist())
        together = met.setdefault(next(iter(here)), set())
        if here in together or any(here <= one for one in together):
            continue
        # Kernels count from 1.
        result[number] = operations.sequence[number] == operations.replay[number]
        for worker in here:
            met.setdefault(worker, set()).add(here)
    return result


@dataclass(frozen=True)
class _Waits:
    """When workers were inside operations: of all rows of collectives, then of sends and receives that took long."""

    worker: Int
    place: Int  # the communicator; -1 of sends and receives
    enter: Int
    leave: Int  # NONE unknown

    @staticmethod
    def of(recording: Recording, operations: Operations, timeline: Timeline, alignment: Alignment) -> _Waits:
        # Where its end is not known, a rank was inside until the last one came, and until its own call returned.
        begin = timeline.begin[operations.operation] if operations.count else timeline.end
        returned = alignment.host_time(operations.process, operations.host_end)
        leave = np.where(timeline.end > NONE, timeline.end, np.maximum(begin, returned))
        spans = recording.spans
        context, stop = ints(spans, "context"), times(spans, "stop")
        chosen = np.isin(spans["type"], (EventType.P2P, EventType.P2P_API)) & (context >= 0)
        chosen &= (context < len(recording.contexts)) & (stop - ints(spans, "start") > _BLOCKED_NS)
        rows = np.flatnonzero(chosen)
        process = ints(spans, "process")[rows]
        return _Waits(
            np.concatenate((operations.worker, operations.worker_of[context[rows]])),
            np.concatenate((operations.communicator[operations.operation], np.full(len(rows), -1))),
            np.concatenate((timeline.arrive, alignment.host_time(process, ints(spans, "start")[rows]))),
            np.concatenate((leave, alignment.host_time(process, stop[rows]))),
        )


def _held(operations: Operations, timeline: Timeline, waits: _Waits, last: Int, late: Int) -> Bool:
    """Operations to which the last rank came from one of other ranks that had kept it for most of its lateness, and not
    the others of this operation.
    """
    rows = len(operations.operation)
    known = np.flatnonzero((waits.leave > NONE) & (waits.enter > NONE))
    spot = latest_before(waits.worker[known], waits.leave[known], operations.worker, timeline.arrive)
    before = np.where(spot >= 0, known[np.maximum(spot, 0)] if len(known) else spot, 0)
    usable = (spot >= 0) & (waits.leave[before] <= timeline.arrive) & (before != np.arange(rows))
    left = np.where(usable, waits.leave[before], NONE)
    kept = np.where(usable, waits.leave[before] - waits.enter[before], 0)
    elsewhere = usable & (waits.place[before] != waits.place[:rows])
    behind = left[last] - others_median(operations, left, usable, last)
    excuse = np.fmin(kept[last].astype(np.float64), behind)
    return np.asarray(elsewhere[last] & (excuse >= _HELD * late) & (late > 0), np.bool_)


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

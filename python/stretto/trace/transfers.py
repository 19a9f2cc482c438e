"""How long operations moved data once all ranks were there, at what bandwidth, and which proxy held a slow one up.

Bandwidths are nccl-tests': algorithm bandwidth is the operation's bytes over its time, bus bandwidth that times the
factor by which an ideal algorithm sends more over each rank's link. The time here is the transfer alone, without the
wait for the last rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from stretto.trace.attribution import Timeline
from stretto.trace.columns import NONE, Bool, Float, Int, SpanIndex, dense, ints, take, times
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import Operations

# States of a proxy step, by NCCL's number: what it waits for, and whether that is the rank's own doing.
STEP_STATES = {
    8: ("SendGPUWait", True),
    20: ("SendPeerWait", False),
    9: ("SendWait", True),
    10: ("RecvWait", False),
    11: ("RecvFlushWait", True),
    12: ("RecvGPUWait", True),
}
_STATES = list(STEP_STATES)
FOR_ROOM, FOR_DATA = _STATES.index(20), _STATES.index(10)  # columns of `step_times`: waits for the other side
_OWN = np.array([STEP_STATES[state][1] for state in _STATES])
_SLOW_SHARE = 0.2  # a transfer that takes this much longer than its like, and
_SLOW_NS = 10_000.0  # at least this much, is slow
_EXPLAINS = 0.3  # a state that took at least this part of the excess explains it

_SIZES = {"char": 1, "int": 4, "float": 4, "double": 8, "half": 2, "bool": 1}


@dataclass(frozen=True)
class Transfers:
    """Of each operation; NaN and -1 where the recording does not say."""

    bytes: Int
    ns: Float
    algorithm_bandwidth: Float  # GB/s
    bus_bandwidth: Float
    excess: Float  # over the median of its like: 0 unless it is slow
    slow_row: Int  # row whose proxy held it up
    slow_state: Int  # in which state
    bound: Bool  # nobody knows when it began: it took no longer than that


def type_bytes(name: str) -> int:
    """Bytes of a data type as NCCL writes its name; 0 unknown."""
    word = name.removeprefix("nccl").lower()
    if "e4m3" in word or "e5m2" in word:
        return 1
    bits = re.search(r"(?:float|int)(\d+)", word)
    return int(bits[1]) // 8 if bits else _SIZES.get(word, 0)


def bus_factor(function: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests has it."""
    word = function.removeprefix("nccl").lower()
    if word == "allreduce":
        return 2 * (ranks - 1) / ranks
    if word in ("allgather", "reducescatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def operation_bytes(operations: Operations, recording: Recording) -> Int:
    """The bytes that nccl-tests says an operation has: those of all ranks where each has a part. -1 unknown."""
    if operations.count == 0:
        return np.zeros(0, np.int64)
    spans, first = recording.spans, operations.first[:-1]
    source = np.where(operations.coll >= 0, operations.coll, operations.api)[first]
    widths = np.array([type_bytes(text) for text in recording.strings] or [0], np.int64)
    parts = [
        text.removeprefix("nccl").lower() in ("allgather", "reducescatter", "alltoall", "gather", "scatter")
        for text in recording.strings
    ]
    ranks = np.array([item.ranks for item in operations.communicators] or [1], np.int64)[operations.communicator]
    count = take(ints(spans, "count"), source)
    width = widths[take(ints(spans, "data_type"), source)]
    whole = np.where(np.array(parts)[operations.function], ranks, 1)
    fits = (count >= 0) & (width > 0) & (count < (1 << 62) // np.maximum(width * whole, 1))
    return np.where(fits, np.where(fits, count, 0) * width * whole, -1)


def transfers(recording: Recording, operations: Operations, timeline: Timeline) -> Transfers:
    """Transfer time, bandwidth, and what slowed the slow ones."""
    size = operation_bytes(operations, recording)
    known = (timeline.begin > NONE) & (timeline.finish > timeline.begin)
    took = np.where(known, timeline.finish - np.where(known, timeline.begin, 0), -1).astype(np.float64)
    took[~known] = np.nan
    algorithm = np.where(size >= 0, size / took, np.nan)
    factor = np.array(
        [
            bus_factor(recording.strings[function], operations.communicators[communicator].ranks)
            for function, communicator in zip(operations.function, operations.communicator, strict=True)
        ]
        or [1.0]
    )[: operations.count]
    like = size
    if operations.count:
        like = dense(operations.communicator, operations.function, operations.replay, size)
    excess = _excess(took, like)
    row, state = _proxies(recording, operations, timeline, excess, like)
    complete = np.array([item.complete for item in operations.communicators] or [True], np.bool_)
    bound = ~timeline.exact | ~complete[operations.communicator]
    return Transfers(size, took, algorithm, algorithm * factor, excess, row, state, bound)


def group_median(values: Float, groups: Int) -> Float:
    """The lower median of the known values of each value's group; NaN where none is known."""
    result = np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    if len(known) == 0:
        return result
    order = known[np.lexsort((values[known], groups[known]))]
    counts = np.bincount(groups[known], minlength=int(groups.max()) + 1)
    begins = np.concatenate(([0], np.cumsum(counts)))[:-1]
    there = counts[groups] > 0
    spot = begins[groups] + (np.maximum(counts[groups], 1) - 1) // 2
    result[there] = values[order[spot[there]]]
    return result


def _excess(took: Float, like: Int) -> Float:
    usual = group_median(took, like)
    spread = 1.4826 * group_median(np.abs(took - usual), like)
    over = took - usual
    slow = over > np.maximum(np.maximum(_SLOW_NS, _SLOW_SHARE * usual), 4 * spread)
    return np.where(slow, over, 0.0)


def _proxies(
    recording: Recording, operations: Operations, timeline: Timeline, excess: Float, like: Int
) -> tuple[Int, Int]:
    """The row and state that took most more than usual in each slow operation, if that explains it."""
    slow_row = np.full(operations.count, -1, np.int64)
    slow_state = np.full(operations.count, -1, np.int64)
    spent = _spent(recording, operations) if (excess > 0).any() else None
    if spent is None:
        return slow_row, slow_state
    of = operations.operation
    more = np.empty_like(spent)
    for column in range(len(_STATES)):
        values = spent[:, column]
        more[:, column] = values - np.nan_to_num(group_median(values, like[of]))
    for operation in np.flatnonzero(excess > 0):
        low, high = operations.first[operation], operations.first[operation + 1]
        part = np.nan_to_num(np.where(_OWN, more[low:high], 0.0))
        place, column = divmod(int(np.argmax(part)), len(_STATES))
        if part[place, column] >= _EXPLAINS * excess[operation]:
            slow_row[operation], slow_state[operation] = low + place, _STATES[column]
    return slow_row, slow_state


def step_times(recording: Recording) -> tuple[Int, Float] | None:
    """The steps, and how long each was in each state (`_STATES`); None where no step is recorded."""
    spans, states = recording.spans, recording.states
    kind, stop = ints(spans, "type"), times(spans, "stop")
    span, number = ints(states, "span"), ints(states, "state")
    rows = np.flatnonzero(np.isin(number, _STATES) & (take(kind, span) == EventType.PROXY_STEP))
    if len(rows) == 0:
        return None
    at, when = span[rows], ints(states, "time")[rows]
    order = np.lexsort((when, at))
    rows, at, when = rows[order], at[order], when[order]
    until = stop[at]
    follows = at[1:] == at[:-1]
    until[:-1] = np.where(follows, when[1:], until[:-1])
    took = np.where(until > when, until - when, 0).astype(np.float64)
    steps = np.unique(at)
    column = np.searchsorted(np.sort(_STATES), number[rows])
    column = np.argsort(_STATES, kind="stable")[column]
    spent = np.zeros((len(steps), len(_STATES)))
    np.add.at(spent, (np.searchsorted(steps, at), column), took)
    return steps, spent


def _spent(recording: Recording, operations: Operations) -> Float | None:
    """How long the steps of each row were in each state; None where no step is recorded."""
    found = step_times(recording)
    if found is None:
        return None
    steps, each = found
    index = SpanIndex(recording, (EventType.PROXY_OP, EventType.COLL))
    coll = index.parents(index.parents(steps))
    row_of = np.full(len(recording.spans["type"]) + 1, -1, np.int64)
    row_of[operations.coll[operations.coll >= 0]] = np.flatnonzero(operations.coll >= 0)
    owner = take(row_of, coll)
    spent = np.zeros((len(operations.operation), len(_STATES)))
    here = owner >= 0
    np.add.at(spent, owner[here], each[here])
    return spent

"""Whether a communicator's events end with the operation, as CPU ranks' do, or when it was handed over, as GPUs' do.

The same event means either, and nothing in a recording says which. Time tells: if ends are those of operations, no rank
ends before the last began; and early ranks are seen to wait for a late one, or ends lie closer together than starts, or
ranks spend most of their time inside.
"""

from __future__ import annotations

import numpy as np

from stretto.trace.columns import NONE, Bool, Float, Int, dense, runs
from stretto.trace.operations import Operations

_TOLERANCE_NS = 2000
_BROKEN = 0.05  # more than this share of impossible orders, and ends are not those of operations
_CLOSER = 0.7  # ends are closer together than starts if they differ by less than this part of it
_APART_NS = 50_000  # who hands over does not take that long
_INSIDE = 0.5  # of the time from one operation to the next
_FEW = 4


def synchronous(operations: Operations, usable: Bool, clock: Int) -> Bool:
    """Of each communicator, by the rows that are `usable`: those of operations that none leaves before all came."""
    count = len(operations.communicators)
    start = np.where(operations.began > NONE, operations.began, operations.called)
    rows = np.flatnonzero(usable & (operations.host_end > NONE) & (start > NONE)).astype(np.int64)
    if len(rows) == 0:
        return np.zeros(count, np.bool_)
    start, end = start[rows], operations.host_end[rows]
    operation = operations.operation[rows]
    communicator = operations.communicator[operation]
    closer = _closer(operations, rows, start, end)
    inside = _inside(operations, rows, start, end)
    waited, wrong = _order(operation, clock[rows], start, end, communicator, count)
    return np.asarray((closer | inside | waited) & ~wrong, np.bool_)


def _median(values: Float, groups: Int, count: int) -> Float:
    """Of each group; NaN where it has too few."""
    result = np.full(count, np.nan)
    order = np.lexsort((values, groups))
    sizes = np.bincount(groups, minlength=count)
    begins = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    enough = sizes >= _FEW
    result[enough] = values[order[begins[enough] + sizes[enough] // 2]]
    return result


def _closer(operations: Operations, rows: Int, start: Int, end: Int) -> Bool:
    """Whether ranks' ends wander less against each other than their starts. From one operation to the next, so that
    what clocks differ by drops out.
    """
    count = len(operations.communicators)
    operation = operations.operation[rows]
    first = runs(operation)
    hub = np.repeat(first, np.diff(np.append(first, len(operation))))
    others = np.flatnonzero(hub != np.arange(len(hub)))
    if len(others) == 0:
        return np.zeros(count, np.bool_)
    hub = hub[others]
    communicator = operations.communicator[operation[others]]
    rank, base = operations.rank[rows][others], operations.rank[rows][hub]
    order = np.lexsort((start[others], base, rank, communicator))
    pair = dense(communicator, rank, base)[order]
    apart = [(moments[others] - moments[hub])[order] for moments in (start, end)]
    same = np.flatnonzero(pair[1:] == pair[:-1])
    group = communicator[order][same]
    wander = [_median(np.abs(np.diff(values)[same]).astype(np.float64), group, count) for values in apart]
    return np.asarray(wander[1] < _CLOSER * wander[0], np.bool_)


def _inside(operations: Operations, rows: Int, start: Int, end: Int) -> Bool:
    """Whether ranks are inside operations for most of the time. Only an event of the operation itself says so: a call
    that hands over takes its time too.
    """
    count = len(operations.communicators)
    own = np.flatnonzero(operations.coll[rows] >= 0)
    communicator = operations.communicator[operations.operation[rows[own]]]
    order = np.lexsort((start[own], operations.rank[rows[own]], communicator))
    own, communicator = own[order], communicator[order]
    rank = operations.rank[rows[own]]
    next_ = np.flatnonzero((rank[1:] == rank[:-1]) & (communicator[1:] == communicator[:-1]))
    took = (end[own] - start[own])[next_].astype(np.float64)
    period = np.diff(start[own])[next_].astype(np.float64)
    spent = _median(took, communicator[next_], count)
    # Of a sample, the next one that is recorded is so many later.
    every = np.array([item.every for item in operations.communicators], np.float64)
    return np.asarray(spent > _INSIDE * _median(period, communicator[next_], count) / every, np.bool_)


def _order(operation: Int, clock: Int, start: Int, end: Int, communicator: Int, count: int) -> tuple[Bool, Bool]:
    """Communicators where, on one and the same clock, a rank was inside until one came that was much later; and those
    where ranks ended before others began.
    """
    key = dense(operation, clock)
    order = np.argsort(key, kind="stable")
    first = runs(key[order])
    latest = np.maximum.reduceat(start[order], first)
    earliest = np.minimum.reduceat(end[order], first)
    spread = latest - np.minimum.reduceat(start[order], first)
    of = communicator[order[first]]
    apart = np.bincount(of, spread > _APART_NS, count)
    waited = np.bincount(of, (spread > _APART_NS) & (earliest >= latest), count)
    broken = np.bincount(of, earliest < latest - _TOLERANCE_NS, count)
    few = np.maximum(np.bincount(of, minlength=count), 1)
    return np.asarray(waited > (1 - _BROKEN) * apart, np.bool_), np.asarray(broken > _BROKEN * few, np.bool_)

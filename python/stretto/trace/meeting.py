"""Whether ranks waited for the last one of operations of which only the calls are known, not when each rank began them.

On a GPU a call returns before its operation runs. Who called last made the others wait only if their queues were empty;
if calls run ahead of the GPUs, nobody waited, however late a call was. One thing tells the two apart. If ranks waited,
then what follows an operation came later by just as much as its last call did: its end, or, where no end is recorded,
the first call of the next operation, as in a program that waits for every result. So of each communicator this fits a
line: x is by how much the last rank came after the first, y how long after the first one the end (or the next call)
came. Of ranks that waited its slope is 1. Of calls that run ahead it is 0, as nothing follows the last one.

Of calls that something else paces, such as a full queue, the slope lies between, as a rank that came early by chance
makes both x and y longer: it is the part of x that is the first rank's noise. The other part is the last rank's own: it
is the slope, over x, of the time from the last call before. So only where both slopes together are clearly above 1 did
ranks wait. Where the first rank came when the operation before had ended, its noise is that of the stamp of that end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stretto.trace.columns import NONE, Bool, Int
from stretto.trace.operations import Operations

_FEWEST = 20  # operations
_SLOPE = 0.6  # of what followed, at least; and
_ABOVE = 0.05  # more than the first rank's noise explains; and no more than
_HIGHEST = 1.1  # which is not a wait; all by
_ERRORS = 2.5  # standard errors
_LONG = 5.0  # standard deviations: an operation that is so far above the others does not tell what the others are like,
_RARE = 0.2  # unless there are more of them than this
_MOST = 0.9  # of the operations
_AHEAD = 0.02  # of the operations: if a rank called the next one before the last had come to more, it did not wait


@dataclass(frozen=True)
class Arrivals:
    """Of rows: when they came at the earliest, whether that is when the operation before had ended, when they ended,
    and what their clock is; ends NONE unknown.
    """

    at: Int
    queued: Bool
    end: Int
    clock: Int


def waited(operations: Operations, usable: Bool, arrivals: Arrivals) -> Bool:
    """Of each communicator, whether its ranks waited for the last one of its `usable` operations, which have a row of
    every rank that is recorded.
    """
    found = np.zeros(len(operations.communicators), np.bool_)
    chosen = np.flatnonzero(usable)
    communicator = operations.communicator[chosen]
    for number in np.unique(communicator).tolist():
        ops = chosen[communicator == number]
        rows = operations.first[ops][:, None] + np.arange(operations.communicators[number].recorded)
        rows = rows[np.argsort(arrivals.at[rows].max(axis=1), kind="stable")]
        # Calls of one group are handed over together: the first of them stands for all.
        group = operations.group[rows[:, 0]]
        rows = rows[np.concatenate(([True], (group[1:] != group[:-1]) | (group[1:] < 0)))]
        if len(rows) > _FEWEST and (arrivals.clock[rows] == arrivals.clock[rows[0, 0]]).all():
            found[number] = _waited(arrivals, rows)
    return found


def _waited(arrivals: Arrivals, rows: Int) -> bool:
    """Rows of operations by rank, in the order of time."""
    calls, ends = arrivals.at[rows], arrivals.end[rows]
    known = (ends > NONE).all(axis=1)
    if known.mean() < _MOST:
        ahead = calls[1:].min(axis=1) < calls[:-1].max(axis=1)
        return ahead.mean() <= _AHEAD and _follows(calls[:-1], calls[1:].min(axis=1), None)
    calls, ends, queued = calls[known], ends[known], arrivals.queued[rows][known]
    first, last = (
        np.take_along_axis(queued, column[:, None], axis=1).mean() for column in (calls.argmin(1), calls.argmax(1))
    )
    # Where the last rank's call was early too, nothing says when its GPU was done with other work.
    if last > 1 - _MOST:
        return False
    return _follows(calls, ends.max(axis=1), float(ends.var(axis=1, ddof=1).mean()) if first >= _MOST else None)


def _follows(calls: Int, after: Int, noise: float | None) -> bool:
    """Whether what came `after` each operation came later by as much as its last call did, by more than chance; the
    variance of the first rank's noise, if it is known.
    """
    first, last = calls.min(axis=1), calls.max(axis=1)
    late, own, followed = (last - first)[1:], np.diff(last), (after - first)[1:]
    usual = (late <= max(_far(late), np.quantile(late, 1 - _RARE))) & (followed - late <= _far(followed - late))
    late, own, followed = late[usual], own[usual], followed[usual]
    slope, error = _line(late, followed)
    share, share_error = _line(late, own)
    if noise is not None and len(late) and late.var() > 0:
        share, share_error = 1 - noise / float(late.var()), 0.0
    above = slope - (1 - share) - _ERRORS * math.hypot(error, share_error)
    return slope - _ERRORS * error >= _SLOPE and slope - _ERRORS * error <= _HIGHEST and above >= _ABOVE


def _far(values: Int) -> float:
    middle = np.median(values)
    return float(middle + _LONG * 1.4826 * np.median(np.abs(values - middle)))


def _line(of: Int, values: Int) -> tuple[float, float]:
    """The slope of a line through the values, and its standard error, for noise that need not be alike everywhere;
    0 and infinity where there is no line.
    """
    if len(of) < _FEWEST:
        return 0.0, math.inf
    x, y = of - of.mean(), values - values.mean()
    whole = float((x * x).sum())
    if whole <= 0:
        return 0.0, math.inf
    slope = float((x * y).sum()) / whole
    rest = y - slope * x
    return slope, math.sqrt(float((x * x * rest * rest).sum())) / whole

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
By chance alone a communicator passes as seldom as `verdict` names a rank by chance alone: `LEVEL` is for the whole
report and divided by the number of communicators that are tested (Bonferroni). Slopes have Student's t.

That ranks waited in some operations does not say that they did in all: a rank that is always late may be hidden by the
GPUs' work while others, now and then, are later than that. So an operation counts only if y is longer than x by as much
as in those with the longest waits, and none of a rank's do if a line through those to which it came last has no slope.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from stretto.trace.columns import NONE, Bool, Int
from stretto.trace.operations import Operations

LEVEL = 0.001  # how likely chance alone passes a test, at most, over all tests of one kind in a report

_FEWEST = 20  # operations
_SLOPE = 0.6  # the least slope of the line of a communicator whose ranks waited
_ABOVE = 0.05  # by so much both slopes together must be above 1, what the first rank's noise alone explains
_HIGHEST = 1.1  # a slope that is surely larger is no wait
_ERRORS = 2.5  # so many standard errors make sure that a communicator, or a rank, is to be left out
_LONG = 5.0  # standard deviations: an operation that is so far above the others does not tell what the others are like,
_RARE = 0.2  # unless there are more of them than this
_MOST = 0.9  # of the operations
_UPPER = 0.75  # of the operations have shorter waits than those that say what follows a wait
_FLOOR_NS = 1000.0  # stamps are no better
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
    """Of each operation, whether its ranks waited for the last one. Only `usable` ones are looked at: they have a row
    of every rank that is recorded.
    """
    found = np.zeros(operations.count, np.bool_)
    chosen = np.flatnonzero(usable)
    communicator = operations.communicator[chosen]
    tested = []
    for number in np.unique(communicator).tolist():
        ops = chosen[communicator == number]
        rows = operations.first[ops][:, None] + np.arange(operations.communicators[number].recorded)
        order = np.argsort(arrivals.at[rows].max(axis=1), kind="stable")
        ops, rows = ops[order], rows[order]
        # Calls of one group are handed over together: the first of them stands for all.
        group = operations.group[rows[:, 0]]
        leads = np.concatenate(([True], (group[1:] != group[:-1]) | (group[1:] < 0)))
        rows = rows[leads]
        if len(rows) > _FEWEST and (arrivals.clock[rows] == arrivals.clock[rows[0, 0]]).all():
            tested.append((ops, rows, np.cumsum(leads) - 1))
    for ops, rows, place in tested:
        found[ops] = _waited(arrivals, rows, LEVEL / len(tested))[place]
    return found


def _waited(arrivals: Arrivals, rows: Int, level: float = LEVEL) -> Bool:
    """Of each operation; rows are those of operations by rank, in the order of time. `level`: of this test."""
    calls, ends = arrivals.at[rows], arrivals.end[rows]
    known = (ends > NONE).all(axis=1)
    noise = None
    if known.mean() < _MOST:
        ahead = calls[1:].min(axis=1) < calls[:-1].max(axis=1)
        if ahead.mean() > _AHEAD:
            return np.zeros(len(rows), np.bool_)
        known = np.arange(len(rows)) < len(rows) - 1
        after = calls[1:].min(axis=1)
    else:
        queued, some = arrivals.queued[rows][known], calls[known]
        first, last = (
            np.take_along_axis(queued, column[:, None], axis=1).mean() for column in (some.argmin(1), some.argmax(1))
        )
        # Where the last rank's call was early too, nothing says when its GPU was done with other work.
        if last > 1 - _MOST:
            return np.zeros(len(rows), np.bool_)
        after = ends[known].max(axis=1)
        noise = float(ends[known].var(axis=1, ddof=1).mean()) if first >= _MOST else None
    found = np.zeros(len(rows), np.bool_)
    found[known] = _met(calls[known], after, noise, level)
    # Those that nothing follows are like most others to which the same rank came last.
    who = calls.argmax(axis=1)
    for number in np.flatnonzero(~known).tolist():
        alike = known & (who == who[number])
        found[number] = alike.any() and found[alike].mean() > _MOST
    return found


def _met(calls: Int, after: Int, noise: float | None, level: float) -> Bool:
    """Of each operation, whether what came `after` it came later by as much as its last call did; the variance of the
    first rank's noise, if it is known.
    """
    first, last = calls.min(axis=1), calls.max(axis=1)
    late, followed = last - first, after - first
    if not _follows(late[1:], np.diff(last), followed[1:], noise, level):
        return np.zeros(len(calls), np.bool_)
    rest = followed - late
    usual = rest[late >= np.quantile(late, _UPPER)]
    middle = np.median(usual)
    found = np.abs(rest - middle) <= max(_FLOOR_NS, float(_far(usual) - middle))
    who = calls.argmax(axis=1)
    for rank in np.unique(who).tolist():
        mine = who == rank
        mine &= late <= _far(late[mine])
        slope, error = _line(late[mine], followed[mine])
        if slope + _ERRORS * error < _SLOPE:
            found &= who != rank
    return np.asarray(found, np.bool_)


def _follows(late: Int, own: Int, followed: Int, noise: float | None, level: float) -> bool:
    """Whether what followed operations came later by as much as their last calls did, by more than chance explains at
    this level.
    """
    usual = (late <= max(_far(late), np.quantile(late, 1 - _RARE))) & (followed - late <= _far(followed - late))
    late, own, followed = late[usual], own[usual], followed[usual]
    slope, error = _line(late, followed)
    share, share_error = _line(late, own)
    if noise is not None and len(late) and late.var() > 0:
        share, share_error = 1 - noise / float(late.var()), 0.0
    sure = _errors(level, len(late))
    above = slope - (1 - share) - sure * math.hypot(error, share_error)
    return slope - sure * error >= _SLOPE and slope - _ERRORS * error <= _HIGHEST and above >= _ABOVE


def _errors(level: float, points: int) -> float:
    """So many standard errors lie between a line's slope and the truth, on one side, no more often than the level says:
    Student's t by Wallace's approximation.
    """
    freedom = max(1, points - 2)
    z = -NormalDist().inv_cdf(level) * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(z * z / freedom))


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

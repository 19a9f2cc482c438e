"""Levels for many spans at once: which row of its lane each is drawn on. Where all spans of a lane nest, as calls of a
thread do, that is one row, and it takes no loop to see it.
"""

from __future__ import annotations

import numpy as np

from stretto.trace.columns import Int
from stretto.trace.levels import Row

_LAST = 255  # the level that takes what finds no other


def _each(lane: Int, chosen: Int) -> list[Int]:
    """The chosen rows of each lane."""
    order = chosen[np.argsort(lane[chosen], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(lane[order])) + 1) if len(order) else []


def nested(lane: Int, at: Int, until: Int) -> Int:
    """Levels of calls, which are over in the opposite order in which they began, but for those that are not. `at` and
    `until` are places in the order of all that happened, no two alike.
    """
    count = len(lane)
    level = np.zeros(count, np.int64)
    crossing = _crossing(lane, at, until)
    for rows in _each(lane, np.flatnonzero(np.isin(lane, np.unique(lane[crossing]))).astype(np.int64)):
        rows = rows[np.argsort(at[rows], kind="stable")]
        level[rows] = _stacked(at[rows].tolist(), until[rows].tolist())
    return level


def _crossing(lane: Int, at: Int, until: Int) -> Int:
    """Spans that do not nest in their lane: at one depth, what begins is not what ends next."""
    count = len(lane)
    span = np.tile(np.arange(count), 2)
    order = np.lexsort((np.concatenate((at, until)), lane[span]))
    begins = order < count
    depth = np.cumsum(np.where(begins, 1, -1)) + ~begins
    span = span[order]
    by_depth = np.lexsort((depth, lane[span]))
    ordered = span[by_depth]
    return np.asarray(ordered[::2][ordered[::2] != ordered[1::2]], np.int64)


def _stacked(starts: list[int], ends: list[int]) -> list[int]:
    """Each on the first level where it lies within what is open there, or nothing is."""
    levels: list[list[int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        for number, stack in enumerate(levels):
            while stack and stack[-1] < start:
                stack.pop()
            if not stack or stack[-1] > end or number == _LAST:
                break
        else:
            number, stack = len(levels), []
            levels.append(stack)
        stack.append(end)
        found.append(number)
    return found


def side_by_side(lane: Int, start: Int, end: Int) -> Int:
    """Levels of what does not nest: spans of one level do not touch. Times may be equal."""
    level = np.zeros(len(lane), np.int64)
    order = np.lexsort((start, lane))
    touching = (lane[order[1:]] == lane[order[:-1]]) & (start[order[1:]] <= end[order[:-1]])
    busy = np.unique(lane[order[1:][touching]])
    for rows in _each(lane, np.flatnonzero(np.isin(lane, busy)).astype(np.int64)):
        row = Row(_LAST)
        rows = rows[np.argsort(start[rows], kind="stable")]
        level[rows] = [row.level(*one) for one in zip(start[rows].tolist(), end[rows].tolist(), strict=True)]
    return level

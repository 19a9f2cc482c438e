"""Columns of a recording with their element types said, and the few joins that the analyses share: spans by id, the
latest event before another. Pure functions; whoever analyses a `Recording` may use them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stretto.trace.model import Columns, Process, Recording

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Id = npt.NDArray[np.uint64]

NONE = -(1 << 62)  # no such time: less than any that is; times before a recording's origin are negative

_TAG_SHIFT, _TAG_MASK = np.uint64(40), np.uint64(0xFFFF)
_TAGS = 1 << 16
_FEW = 1 << 22


def ints(columns: Columns, name: str) -> Int:
    """A column of numbers below 2^63."""
    return columns[name].astype(np.int64, copy=False)


def ids(columns: Columns, name: str) -> Id:
    """A column of ids."""
    return columns[name].astype(np.uint64, copy=False)


def times(columns: Columns, name: str) -> Int:
    """A column of times, of which -1 says that there is none."""
    values = ints(columns, name)
    return np.where(values == -1, NONE, values)


def empty() -> Int:
    return np.zeros(0, np.int64)


def take(values: Int, rows: Int, default: int = -1) -> Int:
    """`values[rows]`, and `default` where a row is -1."""
    if len(values) == 0:
        return np.full(len(rows), default, np.int64)
    return np.where(rows >= 0, values[rows], default)


def runs(keys: Int) -> Int:
    """Where each run of equal neighbours begins."""
    if len(keys) == 0:
        return empty()
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))).astype(np.int64)


def dense(*keys: Int) -> Int:
    """One number for each distinct combination of keys, in their order."""
    if len(keys[0]) == 0:
        return empty()
    order = np.lexsort(keys[::-1])
    changed = np.zeros(len(order), np.bool_)
    for key in keys:
        sorted_key = key[order]
        changed[1:] |= sorted_key[1:] != sorted_key[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(changed)
    return numbers


def distinct(values: Int) -> tuple[Int, Int]:
    """The different values in their order, and the place of each value among them. Small ones need no sorting."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > _FEW:
        some, inverse = np.unique(values, return_inverse=True)
        return some, inverse.ravel().astype(np.int64)
    some = np.flatnonzero(np.bincount(values - low)).astype(np.int64) if len(values) else values
    places = np.zeros(high - low + 1, np.int64)
    places[some] = np.arange(len(some))
    return some + low, places[values - low]


def ordinals(keys: Int, times: Int) -> Int:
    """How many rows of the same key come before each row, by time."""
    order = np.lexsort((times, keys))
    first = runs(keys[order])
    counts = np.diff(np.append(first, len(keys)))
    result = np.empty(len(keys), np.int64)
    result[order] = np.arange(len(keys)) - np.repeat(first, counts)
    return result


def latest_before(keys: Int, times: Int, asked_keys: Int, asked_times: Int) -> Int:
    """For each question the row with its key and the greatest time that is not later; the key's first row where all are
    later; -1 where the key has none.
    """
    if len(keys) == 0:
        return np.full(len(asked_keys), -1, np.int64)
    every = dense(np.concatenate((keys, asked_keys)))
    moments = np.concatenate((times, asked_times))
    ranks = np.unique(moments, return_inverse=True)[1].astype(np.int64)
    size = len(moments) + 1
    have = every[: len(keys)] * size + ranks[: len(keys)]
    want = every[len(keys) :] * size + ranks[len(keys) :]
    order = np.argsort(have, kind="stable")
    spot = np.searchsorted(have[order], want, side="right") - 1
    own = every[: len(keys)][order]
    hit = (spot >= 0) & (own[np.maximum(spot, 0)] == every[len(keys) :])
    first = np.searchsorted(own, every[len(keys) :], side="left")
    later = ~hit & (first < len(own)) & (own[np.minimum(first, len(own) - 1)] == every[len(keys) :])
    chosen = np.where(hit, np.maximum(spot, 0), np.minimum(first, len(own) - 1))
    return np.where(hit | later, order[chosen], -1).astype(np.int64)


class Owners:
    """Which process an id is of. An id says that by a tag of 16 bits, which is all but unique on one host, and is not
    among the thousands of processes of a job. What names an id of another process (a proxy with PXN, a forked child) is
    on that one's host, so that only processes of a host are looked through, and a process itself first.
    """

    def __init__(self, processes: list[Process]) -> None:
        hosts = [process.boot if any(process.boot) else process.host for process in processes]
        numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
        self._homes = [numbers[host] for host in hosts]
        self._tags = [process.tag & _TAGS - 1 for process in processes]
        self._first: dict[tuple[int, int], int] = {}
        for number, key in enumerate(zip(self._homes, self._tags, strict=True)):
            self._first.setdefault(key, number)
        self._bases = np.array(self._homes or [0], np.int64) * _TAGS
        self._own = np.array(self._tags or [0], np.int64)
        keys = sorted((home * _TAGS + tag, number) for (home, tag), number in self._first.items())
        self._keys, self._numbers = np.array(keys or [(-1, -1)], np.int64).T.copy()

    @property
    def ambiguous(self) -> bool:
        """Whether two processes of a host have the same tag."""
        return len(self._first) < len(self._homes)

    def one(self, tag: int, process: int) -> int:
        """The process with that tag, seen from `process`; -1 where it is not there."""
        return process if self._tags[process] == tag else self._first.get((self._homes[process], tag), -1)

    def __call__(self, tags: Int, processes: Int) -> Int:
        """The same for many."""
        wanted = self._bases[processes] + tags
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        found = np.where(self._keys[place] == wanted, self._numbers[place], -1)
        return np.where(self._own[processes] == tags, processes, found)


class SpanIndex:
    """Finds the parents of spans: by their ids, and the process that these are of."""

    def __init__(self, recording: Recording, types: Iterable[int]) -> None:
        self._spans = recording.spans
        self._process = ints(self._spans, "process")
        self._parent = ids(self._spans, "parent")
        self._count = max(1, len(recording.processes))
        self._owners = Owners(recording.processes)
        rows = np.flatnonzero(np.isin(self._spans["type"], list(types))).astype(np.int64)
        own = ids(self._spans, "id")[rows]
        self._ids, numbers = np.unique(own, return_inverse=True)
        keys = numbers.astype(np.int64) * self._count + self._process[rows]
        order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[order], rows[order]

    def parents(self, rows: Int) -> Int:
        """The span that each of these has as its parent; -1 where it has none or the recording lacks it."""
        known = rows >= 0
        result = np.full(len(rows), -1, np.int64)
        if len(self._keys) == 0 or not known.any():
            return result
        wanted, process = self._parent[rows[known]], self._process[rows[known]]
        home = self._owners(((wanted >> _TAG_SHIFT) & _TAG_MASK).astype(np.int64), process)
        number = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1).astype(np.int64)
        keys = number * self._count + home
        spot = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = (self._ids[number] == wanted) & (self._keys[spot] == keys) & (home >= 0)
        result[known] = np.where(found, self._rows[spot], -1)
        return result

"""All spans of one process in columns, with everything that their descriptors say: for converters that look at many
spans at once. Memory is about ten times that of the process's events.

Events have a place in the order of calls: times do not tell equal ones apart, and a run of callbacks has one time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stretto.trace import layout
from stretto.trace.columns import Id, Int
from stretto.trace.job import Source
from stretto.trace.model import EventType
from stretto.trace.raw import Block

Fields = npt.NDArray[np.void]


@dataclass(frozen=True)
class States:
    """States of spans that are there, in the order of time."""

    span: Int
    at: Int
    time: Int
    state: Int
    argument: Id


@dataclass(frozen=True)
class Slices:
    """Rows are spans in the order of their starts as they were read. `at` and `until` are places in the order of calls,
    no two alike; of a span that never stopped, `until` and `end` are those of the last that is known of it.
    """

    type: Int
    thread: Int
    context: Int
    id: Id
    parent: Id
    start: Int
    end: Int
    stopped: npt.NDArray[np.bool_]
    at: Int
    until: Int
    fields: dict[int, tuple[Int, Fields]]  # of each type: its rows, and their descriptors
    states: States
    events: int

    def __len__(self) -> int:
        return len(self.type)


@dataclass(frozen=True)
class _Read:
    """Events of one block: which are of what kind, by their place among all."""

    first: int
    thread: int
    block: Block
    times: Int
    context: Int

    def rows(self, kind: int) -> Int:
        return np.flatnonzero(self.block.kind == kind).astype(np.int64)


def _blocks(source: Source) -> Iterator[_Read]:
    """Threads one after the other. One whose clock goes backwards stands still until it is right again."""
    first = 0
    for segments in source.file.events.values():
        last = -(1 << 62)
        for segment in segments:
            for block in source.file.blocks(segment):
                times = np.maximum.accumulate(np.maximum(source.times(block.ticks), last))
                last = int(times[-1])
                yield _Read(first, source.thread(block.thread), block, times, source.contexts(block.context))
                first += len(times)


def _joined(parts: list[npt.NDArray[np.generic]], kind: type[np.generic]) -> npt.NDArray[np.generic]:
    return np.concatenate(parts) if parts else np.zeros(0, kind)


class _Gathered:
    """What all blocks say, part by part."""

    def __init__(self) -> None:
        self._parts: dict[str, list[npt.NDArray[np.generic]]] = {}

    def add(self, **values: npt.NDArray[np.generic]) -> None:
        for name, value in values.items():
            self._parts.setdefault(name, []).append(value)

    def ints(self, name: str) -> Int:
        return _joined(self._parts.get(name, []), np.int64).astype(np.int64, copy=False)

    def ids(self, name: str) -> Id:
        return _joined(self._parts.get(name, []), np.uint64).astype(np.uint64, copy=False)


def read(source: Source) -> Slices:
    """Reads the events of one process."""
    gathered = _Gathered()
    fields: dict[int, tuple[list[Int], list[Fields]]] = {}
    begun, events = 0, 0
    for one in _blocks(source):
        gathered.add(times=one.times)
        rows = one.rows(layout.START)
        types = one.block.type[rows]
        gathered.add(
            type=types, thread=np.full(len(rows), one.thread), context=one.context[rows], start_at=one.first + rows
        )
        for number in np.unique(types).tolist():
            here = np.flatnonzero(types == number).astype(np.int64)
            kept = fields.setdefault(number, ([], []))
            kept[0].append(begun + here)
            kept[1].append(one.block.fields(rows[here], layout.STARTS.get(number, layout.STARTS[EventType.UNKNOWN])))
        begun += len(rows)
        stops, states = one.rows(layout.STOP), one.rows(layout.STATE)
        events += len(rows) + len(stops) + len(states)
        if len(stops):
            gathered.add(stop_at=one.first + stops, stop_id=one.block.fields(stops, layout.STOP_FIELDS)["id"])
        if len(states):
            said = one.block.fields(states, layout.STATE_FIELDS)
            gathered.add(state_at=one.first + states, state_id=said["id"])
            gathered.add(state=said["state"].astype(np.int64), argument=said["argument"])
    return _made(gathered, {kind: (np.concatenate(a), np.concatenate(b)) for kind, (a, b) in fields.items()}, events)


def _made(gathered: _Gathered, fields: dict[int, tuple[Int, Fields]], events: int) -> Slices:
    times = gathered.ints("times")
    order = np.argsort(times, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start_at, state_at = gathered.ints("start_at"), gathered.ints("state_at")
    count = len(start_at)
    own, parent = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for rows, said in fields.values():
        own[rows], parent[rows] = said["id"], np.where(said["parent"] == layout.NONE64, 0, said["parent"])
    finder = _Finder(own)
    # The last that is known of a span: its start, then a state, then its stop.
    last = start_at.copy()
    of_state = finder(gathered.ids("state_id"))
    known = of_state >= 0
    np.maximum.at(last, of_state[known], _by_place(place, state_at[known], start_at[of_state[known]]))
    of_stop, stop_at = finder(gathered.ids("stop_id")), gathered.ints("stop_at")
    stopped = np.zeros(count, np.bool_)
    found = np.flatnonzero(of_stop >= 0)[::-1]
    last[of_stop[found]] = _by_place(place, stop_at[found], start_at[of_stop[found]])
    stopped[of_stop[found]] = True
    kept = np.flatnonzero(known)
    kept = kept[np.argsort(place[state_at[kept]], kind="stable")]
    states = States(
        of_state[kept],
        2 * place[state_at[kept]],
        times[state_at[kept]],
        gathered.ints("state")[kept],
        gathered.ids("argument")[kept],
    )
    return Slices(
        type=gathered.ints("type"),
        thread=gathered.ints("thread"),
        context=gathered.ints("context"),
        id=own,
        parent=parent,
        start=times[start_at] if count else start_at,
        end=times[last] if count else last,
        stopped=stopped,
        at=2 * place[start_at] if count else start_at,
        until=2 * place[last] + 1 if count else last,
        fields=fields,
        states=states,
        events=events,
    )


def _by_place(place: Int, event: Int, start: Int) -> Int:
    """The later of two events: nothing ends before it began, whatever its stamps say."""
    return np.where(place[event] > place[start], event, start)


class _Finder:
    """Rows by their ids; the first of those that have the same one, -1 where there is none."""

    def __init__(self, ids: Id) -> None:
        self._order = np.argsort(ids, kind="stable").astype(np.int64)
        self._sorted = ids[self._order]

    def __call__(self, wanted: Id) -> Int:
        if len(self._order) == 0:
            return np.full(len(wanted), -1, np.int64)
        spot = np.minimum(np.searchsorted(self._sorted, wanted), len(self._order) - 1)
        return np.where(self._sorted[spot] == wanted, self._order[spot], -1)

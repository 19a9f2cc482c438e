"""The events of a job in the order of time, in memory that does not grow with the recording: for converters of files
that are larger than memory.

Each thread is a cursor over its segments, which it reads a window of records at a time; the earliest end of what they
have read is how far events can be given out, sorted. The thread that ends earliest reads on until enough can be. A
window is smaller the more threads there are.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from stretto.trace import layout
from stretto.trace.clock import Times
from stretto.trace.job import Job, Source
from stretto.trace.raw import SMALLEST_WINDOW, Block, Segment

_BUDGET = 4 << 20  # bytes of the windows of all threads together; more where these are thousands
_LARGEST_WINDOW = 1 << 20
_NEVER, _FOREVER = -(1 << 63), (1 << 63) - 1
_EVENTS = (layout.START, layout.STOP, layout.STATE, layout.INIT, layout.FINALIZE)


@dataclass
class Piece:
    """Events of one thread. `times` are the recording's, and do not decrease."""

    source: Source
    thread: int
    block: Block
    times: Times

    def part(self, first: int, last: int) -> Piece:
        return Piece(self.source, self.thread, self.block.part(first, last), self.times[first:last])


@dataclass
class Batch:
    """Events of all threads, in order: event i is row `row[i]` of `pieces[piece[i]]`."""

    pieces: list[Piece]
    piece: Times
    row: Times


class _Cursor:
    """One thread, as far as it has been read. `pieces` are held, in order; `last` is the time of their last event."""

    def __init__(self, source: Source, number: int, window: int) -> None:
        self._source, self._window = source, window
        self._blocks = self._read(source.file.events[number])
        segments = source.file.events[number]
        hint = np.array([min(one.first_ticks for one in segments)], np.uint64)
        self.next = int(source.times(hint)[0])  # what is not read yet is believed to be no earlier
        self.pieces: deque[Piece] = deque()
        self.last = _NEVER

    def _read(self, segments: list[Segment]) -> Iterator[Block]:
        for segment in segments:
            yield from self._source.file.blocks(segment, self._window)

    def fill(self) -> int:
        """Reads on by a window; returns how many bytes are held more, 0 at the end."""
        for block in self._blocks:
            events = np.isin(block.kind, _EVENTS)
            if not events.any():
                continue
            block = block if events.all() else block.chosen(np.flatnonzero(events))
            times = self._source.times(block.ticks)
            times[0] = max(int(times[0]), self.last)
            times = np.maximum.accumulate(times)
            self.last = int(times[-1])
            self.pieces.append(Piece(self._source, self._source.thread(block.thread), block, times))
            return block.words.nbytes
        return 0

    def take(self, until: int) -> Iterator[Piece]:
        """What is held up to that time."""
        while self.pieces and int(self.pieces[0].times[0]) <= until:
            piece = self.pieces.popleft()
            count = int(np.searchsorted(piece.times, until, side="right"))
            if count < len(piece.times):
                self.pieces.appendleft(piece.part(count, len(piece.times)))
                piece = piece.part(0, count)
            yield piece


def _batch(pieces: list[Piece]) -> Batch:
    times = np.concatenate([piece.times for piece in pieces])
    piece = np.repeat(np.arange(len(pieces)), [len(piece.times) for piece in pieces])
    row = np.concatenate([np.arange(len(piece.times)) for piece in pieces])
    order = np.argsort(times, kind="stable")
    return Batch(pieces, piece[order], row[order])


class _Merge:
    """All cursors. Those that have been read from are in a heap, the one that is behind the others first."""

    def __init__(self, cursors: list[_Cursor]) -> None:
        self._sleeping = sorted(cursors, key=lambda one: -one.next)
        self._heap: list[tuple[int, int, _Cursor]] = []
        self._ended: list[_Cursor] = []
        self._count = itertools.count()  # tells equal times apart
        self.held = 0

    def horizon(self) -> int:
        """How far events can be given out: nothing that comes later is earlier than this."""
        while self._sleeping and (not self._heap or self._sleeping[-1].next <= self._heap[0][0]):
            self._add(self._sleeping.pop())
        return self._heap[0][0] if self._heap else _FOREVER

    def read_on(self) -> None:
        """Reads on where that moves the horizon."""
        if self._heap:
            self._add(heappop(self._heap)[2])

    def _add(self, cursor: _Cursor) -> None:
        more = cursor.fill()
        self.held += more
        if more:
            heappush(self._heap, (cursor.last, next(self._count), cursor))
        else:
            self._ended.append(cursor)

    def take(self, until: int) -> list[Piece]:
        """All that is held up to that time."""
        taken = [piece for cursor in self._ended for piece in cursor.take(until)]
        taken += [piece for _, _, cursor in self._heap for piece in cursor.take(until)]
        self._ended = [one for one in self._ended if one.pieces]
        self.held = sum(piece.block.words.nbytes for _, _, one in self._heap for piece in one.pieces)
        return taken


def batches(job: Job) -> Iterator[Batch]:
    """All events. A thread whose clock goes backwards is taken as standing still until it is right again."""
    every = [(source, number) for source in job.sources for number in source.file.events]
    window = min(_LARGEST_WINDOW, max(SMALLEST_WINDOW, _BUDGET // max(1, len(every))))
    # A batch looks at every thread once, so it has to be worth that.
    budget = window * len(every) * 3 // 2
    merge = _Merge([_Cursor(source, number, window) for source, number in every])
    while True:
        horizon = merge.horizon()
        while merge.held < budget and horizon != _FOREVER:
            merge.read_on()
            horizon = merge.horizon()
        taken = merge.take(horizon)
        if taken:
            yield _batch(taken)
        if horizon == _FOREVER:
            return
        merge.read_on()

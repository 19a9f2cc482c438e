"""The events of a job in the order of time, in memory that does not grow with the recording: for converters of files
that are larger than memory.

Each thread is a cursor over its segments and holds one window of records; the earliest end of all windows is how far
events can be given out, sorted. A window is smaller the more threads there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stretto.trace import layout
from stretto.trace.clock import Times
from stretto.trace.job import Job, Source
from stretto.trace.raw import Block, Segment

_BUDGET = 16 << 20  # bytes of records that are held, of all threads together
_LARGEST_WINDOW = 1 << 20
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
    """One thread, as far as it has been read."""

    def __init__(self, source: Source, number: int, window: int) -> None:
        self._source, self._window = source, window
        self._blocks = self._read(source.file.events[number])
        self._latest: int | None = None
        segments = source.file.events[number]
        hint = np.array([min(one.first_ticks for one in segments)], np.uint64)
        self.piece: Piece | None = None
        self.next = int(source.times(hint)[0])  # what is not read yet is believed to be no earlier

    def _read(self, segments: list[Segment]) -> Iterator[Block]:
        for segment in segments:
            yield from self._source.file.blocks(segment, self._window)

    def fill(self) -> bool:
        """Reads on, where nothing is held; False at the end."""
        while self.piece is None:
            block = next(self._blocks, None)
            if block is None:
                return False
            events = np.isin(block.kind, _EVENTS)
            if not events.any():
                continue
            block = block if events.all() else block.chosen(np.flatnonzero(events))
            times = self._source.times(block.ticks)
            if self._latest is not None:
                times[0] = max(int(times[0]), self._latest)
            times = np.maximum.accumulate(times)
            self._latest = int(times[-1])
            self.piece = Piece(self._source, self._source.thread(block.thread), block, times)
        return True

    def take(self, until: int) -> Piece | None:
        """What is held up to that time."""
        assert self.piece is not None
        count = int(np.searchsorted(self.piece.times, until, side="right"))
        if count == 0:
            return None
        taken = self.piece.part(0, count)
        self.piece = None if count == len(self.piece.times) else self.piece.part(count, len(self.piece.times))
        return taken


def _batch(pieces: list[Piece]) -> Batch:
    times = np.concatenate([piece.times for piece in pieces])
    piece = np.repeat(np.arange(len(pieces)), [len(piece.times) for piece in pieces])
    row = np.concatenate([np.arange(len(piece.times)) for piece in pieces])
    order = np.argsort(times, kind="stable")
    return Batch(pieces, piece[order], row[order])


def batches(job: Job) -> Iterator[Batch]:
    """All events. A thread whose clock goes backwards is taken as standing still until it is right again."""
    cursors = [(source, number) for source in job.sources for number in source.file.events]
    window = min(_LARGEST_WINDOW, _BUDGET // max(1, len(cursors)))
    sleeping = sorted((_Cursor(source, number, window) for source, number in cursors), key=lambda one: -one.next)
    awake: list[_Cursor] = []
    while awake or sleeping:
        horizon = min((int(one.piece.times[-1]) for one in awake if one.piece), default=None)
        # A thread that begins within what could be given out has its say first.
        while sleeping and (horizon is None or sleeping[-1].next <= horizon):
            one = sleeping.pop()
            if one.fill() and one.piece is not None:
                awake.append(one)
                last = int(one.piece.times[-1])
                horizon = last if horizon is None else min(horizon, last)
        if horizon is None:
            continue
        taken = [piece for one in awake if (piece := one.take(horizon)) is not None]
        yield _batch(taken)
        awake = [one for one in awake if one.fill()]

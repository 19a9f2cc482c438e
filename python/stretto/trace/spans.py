"""Spans of a job in the order of their ends: starts joined with their stops while the events stream by. Memory holds
what is open, and of that no more than `MOST_OPEN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stretto.trace import layout
from stretto.trace.events import Group, groups
from stretto.trace.job import Job
from stretto.trace.stream import Batch, batches

MOST_OPEN = 200_000  # spans; the oldest then counts as never stopped
MOST_STATES = 1_000  # of one span that are kept


@dataclass(slots=True)
class Span:
    """One event from its start to its stop. Times are the recording's; `stop` is None where none came."""

    type: int
    id: int
    parent: int
    process: int
    thread: int
    context: int
    start: int
    names: tuple[str, ...]
    values: tuple[Any, ...]
    stop: int | None = None
    number: int = -1  # for whoever sees starts and ends
    # Places in the order of calls, which equal times do not tell: of its start, and of the last that came.
    at: int = 0
    until: int = 0
    # Time, state, how often in a row, argument (None: none).
    states: list[tuple[int, int, int, int | None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The stop, or the last that is known of it."""
        if self.stop is not None:
            return self.stop
        return self.states[-1][0] if self.states else self.start

    def fields(self) -> dict[str, Any]:
        """What the descriptor says, without ids."""
        return dict(zip(self.names, self.values, strict=True))

    def value(self, name: str) -> Any:
        return self.values[self.names.index(name)] if name in self.names else None


_DETAILS = 3  # id, parent and rank come first among the names of a start


class Joiner:
    """Takes events, gives spans. `on_start` sees each span when it begins."""

    def __init__(self, job: Job, on_start: Callable[[Span], None] | None = None) -> None:
        self._job = job
        self._open: dict[tuple[int, int], Span] = {}
        self._on_start = on_start
        self._place = 0
        self.events = 0

    def spans(self) -> Iterator[Span]:
        for batch in batches(self._job):
            yield from self.add(batch)
        yield from self._open.values()
        self._open.clear()

    def add(self, batch: Batch) -> Iterator[Span]:
        rows = [self._rows(batch, number) for number in range(len(batch.pieces))]
        for piece, row in zip(batch.piece.tolist(), batch.row.tolist(), strict=True):
            event = rows[piece][row]
            self._place += 1
            if isinstance(event, Span):
                event.at = event.until = self._place
                yield from self._started(event)
            elif event is not None:
                process, time, what = event
                if len(what) == 1:
                    span = self._open.pop((process, what[0]), None)
                    if span is not None:
                        span.stop, span.until = time, self._place
                        yield span
                elif span := self._open.get((process, what[0])):
                    span.until = self._place
                    if len(span.states) < MOST_STATES:
                        span.states.append((time, what[1], what[2], what[3]))
        self.events += len(batch.row)

    def _started(self, span: Span) -> Iterator[Span]:
        key = span.process, span.id
        if key in self._open:
            yield self._open.pop(key)
        elif len(self._open) >= MOST_OPEN:
            yield self._open.pop(next(iter(self._open)))
        self._open[key] = span
        if self._on_start is not None:
            self._on_start(span)

    def _rows(self, batch: Batch, number: int) -> list[Any]:
        piece = batch.pieces[number]
        rows: list[Any] = [None] * len(piece.times)
        for group in groups(piece, self._job.strings):
            where = group.rows.tolist()
            times = piece.times[group.rows].tolist()
            if group.kind == layout.START:
                contexts = piece.source.contexts(piece.block.context[group.rows]).tolist()
                self._fill_starts(group, (piece.source.number, piece.thread), (where, times, contexts), rows)
            elif group.kind in (layout.STOP, layout.STATE):
                for row, time, what in zip(where, times, zip(*group.columns, strict=True), strict=True):
                    rows[row] = (piece.source.number, time, what)
        return rows

    def _fill_starts(
        self, group: Group, who: tuple[int, int], lists: tuple[list[int], list[int], list[int]], rows: list[Any]
    ) -> None:
        names = group.names[_DETAILS:]
        for row, time, context, values in zip(*lists, zip(*group.columns, strict=True), strict=True):
            rows[row] = Span(
                group.type, values[0], values[1] or 0, *who, context, time, names, tuple(values[_DETAILS:])
            )

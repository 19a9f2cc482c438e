"""A recording as a table: one row a span, in the order of their ends, with a column for each field of any type."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any, TextIO

from stretto.trace import layout
from stretto.trace.events import HEXADECIMAL, shown
from stretto.trace.job import Job
from stretto.trace.spans import Joiner, Span

_WHO = ("host", "pid", "tid", "thread", "comm", "comm_name", "rank", "nranks")
_WHAT = ("type", "id", "parent", "start_ns", "stop_ns", "duration_ns", "states")
_HIDDEN = ("id", "parent", "rank", "threads", "_pad", "_0")
FIELDS = tuple(
    dict.fromkeys(name for kind in layout.STARTS.values() for name in kind.names or () if name not in _HIDDEN)
)
COLUMNS = (*_WHO, *_WHAT, *FIELDS, "gpu_stop_ns")
_BLANK = [""] * (len(FIELDS) + 1)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _safe(text: str) -> str:
    """Names in a recording are anybody's; a spreadsheet must not take one for a formula."""
    return "'" + text if text.startswith(_FORMULA) else text


def _states(span: Span) -> str:
    return " ".join(f"{layout.state_name(state)}@{time}" for time, state, _, _ in span.states)


class _Rows:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._who: dict[tuple[int, int], list[Any]] = {}
        self._known: dict[tuple[str, ...], list[tuple[int, Callable[[Any], str] | None]]] = {}

    def who(self, span: Span) -> list[Any]:
        key = span.thread, span.context
        if key not in self._who:
            process, thread = self._job.processes[span.process], self._job.threads[span.thread]
            made: list[Any] = [_safe(process.host), process.pid, thread.tid, _safe(thread.name)]
            if span.context >= 0:
                one = self._job.contexts[span.context]
                made += [f"0x{one.communicator:x}", _safe(one.name), one.rank, one.ranks]
            self._who[key] = made + [""] * (len(_WHO) - len(made))
        return self._who[key]

    def row(self, span: Span) -> list[Any]:
        length = "" if span.stop is None else span.stop - span.start
        stop = "" if span.stop is None else span.stop
        what = [layout.type_name(span.type), f"0x{span.id:x}", f"0x{span.parent:x}", span.start, stop, length]
        row: list[Any] = [*self.who(span), *what, _states(span) if span.states else "", *_BLANK]
        for (place, show), value in zip(self._places(span.names), span.values, strict=True):
            row[place] = value if show is None or value is None else show(value)
        for _, state, _, argument in span.states:
            if state in (22, 31):
                row[-1] = argument
        return row

    def _places(self, names: tuple[str, ...]) -> list[tuple[int, Callable[[Any], str] | None]]:
        """Where the fields of a type stand in a row, and how they are written."""
        if names not in self._known:
            first = len(_WHO) + len(_WHAT)
            self._known[names] = [(first + FIELDS.index(name), _writer(name)) for name in names]
        return self._known[names]


def _writer(name: str) -> Callable[[Any], str] | None:
    if name in layout.TEXT:
        return _safe
    return (lambda value: str(shown(name, value))) if name in HEXADECIMAL else None


def write(job: Job, file: TextIO, progress: Callable[[int], None]) -> int:
    """Returns the number of spans. Times are nanoseconds from the recording's origin."""
    rows = _Rows(job)
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    joiner = Joiner(job)
    count = 0
    for count, span in enumerate(joiner.spans(), 1):
        table.writerow(rows.row(span))
        if count % 1000 == 0:
            progress(joiner.events)
    progress(joiner.events)
    return count

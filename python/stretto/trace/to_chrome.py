"""A recording in Chrome's JSON trace format, for the viewers that read nothing newer. A process of the recording is a
process; a thread is there once for each communicator it worked for, and once more for each level of spans that overlap,
as bars of one thread must nest; a channel of a GPU's kernels is a thread as well. Arrows lead from parents to children,
and along the ranks of one collective.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TextIO

from stretto.trace import layout
from stretto.trace.bars import Bar, Place, draw
from stretto.trace.events import HEXADECIMAL
from stretto.trace.job import Job
from stretto.trace.naming import (
    PARENTS,
    Links,
    collective,
    communicator_name,
    process_name,
    span_name,
    thread_name,
)
from stretto.trace.spans import Span

_MOST_REMEMBERED = 100_000  # parents that are done, parents that are not, and collectives
_MOST_WAITING = 1_000  # children of one parent


def _limited(known: OrderedDict[int, Any]) -> None:
    while len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)


class _Writer:
    def __init__(self, job: Job, file: TextIO) -> None:
        self._job, self._file, self._links = job, file, Links(job)
        self._threads: dict[tuple[Place, int], int] = {}
        self._seen: OrderedDict[int, tuple[int, int, str]] = OrderedDict()  # parents: process, thread, when
        self._waiting: OrderedDict[int, list[int]] = OrderedDict()  # children of parents that are still open
        self._collectives: OrderedDict[int, int] = OrderedDict()  # how many ranks came so far
        self._texts: dict[str, str] = {}
        self._lines: list[str] = []

    def begin(self) -> None:
        self._file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        self._file.write(json.dumps({"ph": "M", "name": "recording", "pid": 0, "args": self._about()}))
        for number, process in enumerate(self._job.processes):
            name = f"{process.host}: {process_name(self._job, number)}"
            self._metadata("process_name", number + 1, 0, {"name": name})
            self._metadata("process_sort_index", number + 1, 0, {"sort_index": number})

    def _about(self) -> dict[str, Any]:
        return {"origin_realtime_ns": self._job.origin_realtime_ns}

    def end(self) -> None:
        self.flush()
        self._file.write("\n]}\n")

    def flush(self) -> None:
        self._file.write("".join(self._lines))
        self._lines.clear()

    def _event(self, **fields: Any) -> None:
        self._lines.append(",\n" + json.dumps(fields))

    def _metadata(self, name: str, pid: int, tid: int, args: dict[str, Any]) -> None:
        self._event(ph="M", name=name, pid=pid, tid=tid, args=args)

    def _thread(self, span: Span, bar: Bar) -> int:
        key = bar.place, bar.level
        if key not in self._threads:
            tid = self._threads[key] = len(self._threads) + 1
            channel = bar.place[2]
            row = f"GPU channel {channel}" if channel >= 0 else thread_name(self._job, span.thread)
            name = f"{communicator_name(self._job, span.context)}: {row}" + (f" ({bar.level + 1})" if bar.level else "")
            self._metadata("thread_name", span.process + 1, tid, {"name": name})
            rank = self._job.contexts[span.context].rank if span.context >= 0 else -1
            order = (rank + 1 << 20) + (1 << 19 if channel >= 0 else 0) + span.thread * 256 + bar.level
            self._metadata("thread_sort_index", span.process + 1, tid, {"sort_index": order})
        return self._threads[key]

    def span(self, span: Span, bar: Bar) -> None:
        pid, tid = span.process + 1, self._thread(span, bar)
        args = f'"id": "0x{span.id:x}", "parent": "0x{span.parent:x}"'
        for name, value in zip(span.names, span.values, strict=True):
            if value is not None:
                args += f', "{name}": {self._json(name, value)}'
        if span.states:
            states = [
                {"ts_us": time / 1000, "state": layout.state_name(state), "count": count, "argument": argument}
                for time, state, count, argument in span.states
            ]
            args += f', "states": {json.dumps(states)}'
        if span.stop is None:
            args += ', "never_stopped": true'
        if bar.clock_error is not None:
            args += f', "seen_start_us": {_us(span.start)}, "seen_stop_us": {_us(span.end)}'
            args += f', "gpu_clock_error_ns": {bar.clock_error}'
        name, kind = self._json("function", span_name(span)), layout.type_name(span.type)
        when = f'"ts": {_us(bar.start)}, "dur": {_us(bar.end - bar.start)}'
        self._lines.append(
            f',\n{{"ph": "X", "name": {name}, "cat": "{kind}", "pid": {pid}, "tid": {tid}, {when}, "args": {{{args}}}}}'
        )
        for time, state, _, _ in span.states if bar.clock_error is None else ():
            self._lines.append(
                f',\n{{"ph": "i", "s": "t", "name": "{layout.state_name(state)}", "pid": {pid}, "tid": {tid}, '
                f'"ts": {_us(time)}}}'
            )
        self._link(span, (pid, tid, _us(bar.start)))

    def _json(self, name: str, value: Any) -> str:
        if isinstance(value, int):
            return f'"0x{value:x}"' if name in HEXADECIMAL else str(value)
        if isinstance(value, bytes):
            return f'"{value.hex()}"'
        if value not in self._texts:
            self._texts[value] = json.dumps(value)
        return self._texts[value]

    def _link(self, span: Span, place: tuple[int, int, str]) -> None:
        if span.parent:
            self._to_parent(span, place)
        if span.type in PARENTS:
            mine = self._links.number(span.id, span.process)
            self._seen[mine] = place
            for child in self._waiting.pop(mine, ()):
                self._arrow("s", "parent", child, place)
            _limited(self._seen)
        same = collective(self._job, span)
        if same is not None:
            came = self._collectives.pop(same, 0) + 1
            all_came = 0 < self._job.contexts[span.context].ranks <= came
            if came > 1 or not all_came:
                self._arrow("s" if came == 1 else "f" if all_came else "t", "collective", same, place)
            if not all_came:
                self._collectives[same] = came
                _limited(self._collectives)

    def _to_parent(self, span: Span, place: tuple[int, int, str]) -> None:
        """The arrow's tip is known; its root may be that of a span which is still open."""
        parent = self._links.number(span.parent, span.process)
        mine = self._links.number(span.id, span.process)
        waiting = self._waiting.setdefault(parent, []) if parent not in self._seen else None
        if waiting is None:
            self._arrow("s", "parent", mine, self._seen[parent])
        elif len(waiting) < _MOST_WAITING:
            waiting.append(mine)
            _limited(self._waiting)
        self._arrow("f", "parent", mine, place)

    def _arrow(self, phase: str, kind: str, number: int, place: tuple[int, int, str]) -> None:
        more = ', "bp": "e"' if phase != "s" else ""
        self._lines.append(
            f',\n{{"ph": "{phase}", "cat": "{kind}", "name": "{kind}", "id": "0x{number:x}", '
            f'"pid": {place[0]}, "tid": {place[1]}, "ts": {place[2]}{more}}}'
        )


def _us(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:.3f}"


def write(job: Job, file: TextIO, progress: Callable[[int], None]) -> int:
    """Returns the number of spans."""
    writer = _Writer(job, file)
    writer.begin()
    count = draw(job, writer.span, writer.flush, progress)
    writer.end()
    return count

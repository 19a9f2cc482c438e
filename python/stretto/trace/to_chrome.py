"""A recording in Chrome's JSON trace format, for the viewers that read nothing newer. A process of the recording is a
process, and a thread a thread, whose calls nest in the order in which they were made; spans that overlap lie on more of
them, as those of one thread must nest. A channel of a GPU's kernels is a thread as well. Arrows lead from parents to
children, and along the ranks of one collective. Reads the recording twice, as `bars.Plan` says why.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TextIO

from stretto.trace import layout
from stretto.trace.bars import KERNELS, NEVER, Place, Plan
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
from stretto.trace.spans import Joiner, Span

_MOST_REMEMBERED = 100_000  # parents, and collectives


def _limited(known: OrderedDict[int, Any]) -> None:
    while len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)


class _Writer:
    def __init__(self, job: Job, plan: Plan, file: TextIO) -> None:
        self._job, self._plan, self._file, self._links = job, plan, file, Links(job)
        self._threads: dict[tuple[Place, int], int] = {}
        self._seen: OrderedDict[int, tuple[int, int, str]] = OrderedDict()  # parents: process, thread, when
        self._collectives: OrderedDict[int, int] = OrderedDict()  # how many ranks came so far
        self._texts: dict[str, str] = {}
        self._communicators: dict[int, str] = {}
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

    def _thread(self, span: Span, level: int) -> int:
        place = self._plan.place(span)
        key = place, level
        if key not in self._threads:
            tid = self._threads[key] = len(self._threads) + 1
            thread, context, channel = place
            name = f"GPU channel {channel}" if channel >= 0 else thread_name(self._job, thread)
            if context >= 0:
                name = f"{communicator_name(self._job, context)}: {name}"
            name += " (never stopped)" if level == NEVER else f" ({level + 1})" if level else ""
            self._metadata("thread_name", span.process + 1, tid, {"name": name})
            order = (thread * 2 + (channel >= 0)) * 256 + level
            self._metadata("thread_sort_index", span.process + 1, tid, {"sort_index": order})
        return self._threads[key]

    def start(self, span: Span) -> None:
        """A call's bar begins with its start; where it ends comes later."""
        level = self._plan.begin(span)
        if span.type not in KERNELS and level != NEVER:
            self._bar("B", span, level, span.start, None, self._said(span))

    def stop(self, span: Span) -> None:
        """A call's bar ends; kernels and what never stopped are bars at once."""
        level = self._plan.level(span)
        if span.type in KERNELS and span.stop is not None:
            level, start, end, error = self._plan.kernel(self._job, span)
            args = self._said(span) + self._states(span)
            if error is not None:
                args += f', "seen_start_us": {_us(span.start)}, "seen_stop_us": {_us(span.end)}'
                args += f', "gpu_clock_error_ns": {error}'
            self._bar("X", span, level, start, end - start, args)
            if error is not None:
                return
        elif level == NEVER:
            last = f', "never_stopped": true, "last_seen_us": {_us(span.end)}'
            self._bar("X", span, NEVER, span.start, 0, self._said(span) + self._states(span) + last)
        else:
            where = f'"pid": {span.process + 1}, "tid": {self._thread(span, level)}, "ts": {_us(span.end)}'
            args = self._states(span)[2:]
            self._lines.append(f',\n{{"ph": "E", {where}, "args": {{{args}}}}}')
        pid, tid = span.process + 1, self._thread(span, level)
        for time, state, _, _ in span.states:
            self._lines.append(
                f',\n{{"ph": "i", "s": "t", "name": "{layout.state_name(state)}", "pid": {pid}, "tid": {tid}, '
                f'"ts": {_us(time)}}}'
            )

    def _bar(self, phase: str, span: Span, level: int, start: int, lasted: int | None, args: str) -> None:
        pid, tid = span.process + 1, self._thread(span, level)
        name, kind = self._json("function", span_name(span)), layout.type_name(span.type)
        when = f'"ts": {_us(start)}' + ("" if lasted is None else f', "dur": {_us(lasted)}')
        self._lines.append(
            f',\n{{"ph": "{phase}", "name": {name}, "cat": "{kind}", "pid": {pid}, "tid": {tid}, {when},'
            f' "args": {{{args}}}}}'
        )
        self._link(span, (pid, tid, _us(start)))

    def _said(self, span: Span) -> str:
        """What a span's start says of it."""
        if span.context not in self._communicators:
            self._communicators[span.context] = json.dumps(communicator_name(self._job, span.context))
        said = f'"id": "0x{span.id:x}", "parent": "0x{span.parent:x}"'
        said += f', "communicator": {self._communicators[span.context]}'
        for name, value in zip(span.names, span.values, strict=True):
            if value is not None:
                said += f', "{name}": {self._json(name, value)}'
        return said

    def _states(self, span: Span) -> str:
        if not span.states:
            return ""
        states = [
            {"ts_us": time / 1000, "state": layout.state_name(state), "count": count, "argument": argument}
            for time, state, count, argument in span.states
        ]
        return f', "states": {json.dumps(states)}'

    def _json(self, name: str, value: Any) -> str:
        if isinstance(value, int):
            return f'"0x{value:x}"' if name in HEXADECIMAL else str(value)
        if isinstance(value, bytes):
            return f'"{value.hex()}"'
        if value not in self._texts:
            self._texts[value] = json.dumps(value)
        return self._texts[value]

    def _link(self, span: Span, place: tuple[int, int, str]) -> None:
        parent = self._seen.get(self._links.number(span.parent, span.process)) if span.parent else None
        if parent is not None:
            mine = self._links.number(span.id, span.process)
            self._arrow("s", "parent", mine, parent)
            self._arrow("f", "parent", mine, place)
        if span.type in PARENTS:
            self._seen[self._links.number(span.id, span.process)] = place
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
    writer = _Writer(job, Plan(job, progress), file)
    writer.begin()
    joiner, count = Joiner(job, writer.start), 0
    for count, span in enumerate(joiner.spans(), 1):
        writer.stop(span)
        if count % 1000 == 0:
            writer.flush()
            progress(joiner.events)
    writer.end()
    progress(joiner.events)
    return count

"""A recording as a Perfetto trace: tracks for host, process, communicator and rank, and thread; a slice a span, with
what its descriptor says; instants for its states. Slices of one collective have one correlation id on all ranks, and a
flow joins them; another flow leads from a span to those that name it as their parent.

Spans that overlap on one thread lie on tracks of the same name side by side, which the viewer draws as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from stretto.trace import layout
from stretto.trace.events import shown
from stretto.trace.job import Job
from stretto.trace.levels import Lane
from stretto.trace.naming import (
    PARENTS,
    Links,
    collective,
    communicator_name,
    process_name,
    span_name,
    thread_name,
)
from stretto.trace.protobuf import fixed64, key, message, number, text, varint
from stretto.trace.spans import Joiner, Span

_SEQUENCE = number(10, 1)  # TracePacket.trusted_packet_sequence_id
_CLEARED, _NEEDS = number(13, 1), number(13, 2)  # TracePacket.sequence_flags
_BEGIN, _END, _INSTANT = number(9, 1), number(9, 2), number(9, 3)  # TrackEvent.type
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_TIMESTAMP = key(8, 0)
_TRACK = key(11, 0)
_FLOW = 47
_CORRELATION = 52
_BASE = 10**9  # times begin here, as a trace has none below zero
_CHRONOLOGICAL, _EXPLICIT = 2, 3  # TrackDescriptor.child_ordering
_MOST_CACHED = 200_000


class _Interned:
    """Texts of one field of InternedData; what is new since the last packet stands in `fresh`."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._known: dict[str, int] = {}
        self.fresh = b""

    def __call__(self, value: str) -> int:
        if value not in self._known:
            self._known[value] = len(self._known) + 1
            self.fresh += message(self._field, number(1, self._known[value]) + text(2, value))
        return self._known[value]


class _Writer:
    def __init__(self, job: Job, file: BinaryIO) -> None:
        self._job, self._file, self._links = job, file, Links(job)
        self._tracks: dict[tuple[Any, ...], int] = {}
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._names, self._categories = _Interned(2), _Interned(1)
        self._keys, self._texts = _Interned(3), _Interned(29)
        self._annotations: dict[tuple[str, Any], bytes] = {}
        self._flags = _CLEARED
        self._packets: list[bytes] = []

    def flush(self) -> None:
        self._file.write(b"".join(self._packets))
        self._packets.clear()

    def _packet(self, body: bytes) -> None:
        """Sends a packet, with the texts that it is the first to need."""
        fresh = self._names.fresh + self._categories.fresh + self._keys.fresh + self._texts.fresh
        if fresh:
            body += message(12, fresh)
            self._names.fresh = self._categories.fresh = self._keys.fresh = self._texts.fresh = b""
        self._packets.append(message(1, body + _SEQUENCE + self._flags))
        self._flags = _NEEDS

    def clocks(self) -> None:
        """Says which moment of the world the times begin at."""
        world = max(0, self._job.origin_realtime_ns)
        both = [(_BOOTTIME, _BASE), (_REALTIME, world)]
        body = b"".join(message(1, number(1, clock) + number(2, time)) for clock, time in both)
        self._packet(number(8, _BASE) + message(6, body + number(2, _BOOTTIME)))

    def _track(self, path: tuple[Any, ...], parent: int, name: str, ordering: int, rank: int = 0) -> int:
        if path not in self._tracks:
            uuid = self._tracks[path] = len(self._tracks) + 1
            body = number(1, uuid) + text(2, name) + number(11, ordering) + number(12, rank)
            self._packet(message(60, body + (number(5, parent) if parent else b"")))
        return self._tracks[path]

    def _lane(self, span: Span) -> int:
        """The track of a span."""
        place = span.thread, span.context
        level = self._lanes.setdefault(place, Lane()).level(span.start, span.end)
        if (*place, level) in self._tracks:
            return self._tracks[(*place, level)]
        job = self._job
        about = job.processes[span.process]
        host = self._track(("host", about.host), 0, f"host {about.host}", _EXPLICIT)
        name = process_name(job, span.process)
        process = self._track(("process", span.process), host, name, _EXPLICIT, span.process)
        rank = job.contexts[span.context].rank if span.context >= 0 else -1
        name = communicator_name(job, span.context)
        ranked = self._track(("context", span.process, span.context), process, name, _EXPLICIT, rank)
        name = thread_name(job, span.thread)
        return self._track((*place, level), ranked, name, _CHRONOLOGICAL, span.thread)

    def _annotation(self, name: str, value: Any) -> bytes:
        cached = self._annotations.get((name, value))
        if cached is not None:
            return cached
        said = shown(name, value)
        body = number(1, self._keys(name))
        if isinstance(said, int):
            body += number(4, said) if said < 1 << 63 else number(3, said)
        elif name in layout.TEXT:
            body += number(17, self._texts(said))
        else:
            body += text(6, said)
        made = message(4, body)
        if len(self._annotations) > _MOST_CACHED:
            self._annotations.clear()
        self._annotations[name, value] = made
        return made

    def _event(self, time: int, kind: bytes, track: bytes, body: bytes) -> None:
        event = kind + track + body
        self._packet(_TIMESTAMP + varint(max(0, time + _BASE)) + message(11, event))

    def span(self, span: Span) -> None:
        track = _TRACK + varint(self._lane(span))
        body = number(10, self._names(span_name(span)))
        body += number(3, self._categories(layout.type_name(span.type)))
        if span.type in PARENTS:
            body += fixed64(_FLOW, self._links.number(span.id, span.process))
        if span.parent:
            body += fixed64(_FLOW, self._links.number(span.parent, span.process))
        same = collective(self._job, span)
        if same is not None:
            body += fixed64(_FLOW, same) + number(_CORRELATION, same)
        body += self._details(span)
        self._event(span.start, _BEGIN, track, body)
        for time, state, _, argument in span.states:
            if span.start <= time <= span.end:
                said = b"" if argument is None else self._annotation("argument", argument)
                self._event(time, _INSTANT, track, number(10, self._names(layout.state_name(state))) + said)
        self._event(span.end, _END, track, b"")

    def _details(self, span: Span) -> bytes:
        body = message(4, number(1, self._keys("id")) + text(6, f"0x{span.id:x}"))
        if span.parent:
            body += message(4, number(1, self._keys("parent")) + text(6, f"0x{span.parent:x}"))
        for name, value in zip(span.names, span.values, strict=True):
            if value is not None and value != "":
                body += self._annotation(name, value)
        for _, state, _, argument in span.states:
            if state in (22, 31) and argument is not None:
                body += self._annotation("gpu_stop_ns", argument)
        if span.stop is None:
            body += self._annotation("never_stopped", 1)
        return body


def write(job: Job, file: BinaryIO, progress: Callable[[int], None]) -> int:
    """Returns the number of spans."""
    writer = _Writer(job, file)
    writer.clocks()
    joiner = Joiner(job)
    count = 0
    for count, span in enumerate(joiner.spans(), 1):
        writer.span(span)
        if count % 1000 == 0:
            writer.flush()
            progress(joiner.events)
    writer.flush()
    progress(joiner.events)
    return count

"""A recording as a Perfetto trace: tracks for host, process, communicator and rank, thread and channel; a slice a span,
with what its descriptor says; instants for its states. Slices of one collective have one correlation id on all ranks,
and a flow joins them; another flow leads from a span to those that name it as their parent.

Spans that overlap on one thread lie on tracks of the same name side by side, which the viewer draws as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from stretto.trace import layout
from stretto.trace.bars import Bar, Place, draw
from stretto.trace.events import shown
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
from stretto.trace.protobuf import fixed64, key, message, number, text, varint
from stretto.trace.spans import Span

_SEQUENCE = number(10, 1)  # TracePacket.trusted_packet_sequence_id
_CLEARED, _NEEDS = number(13, 1), number(13, 2)  # TracePacket.sequence_flags
_PACKET = key(1, 2)
_EVENT = key(11, 2)
_BEGIN, _END, _INSTANT = number(9, 1), number(9, 2), number(9, 3)  # TrackEvent.type
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_TIMESTAMP = key(8, 0)
_TRACK = key(11, 0)
_FLOW = key(47, 1)
_CORRELATION = key(52, 0)
_BASE = 10**9  # times begin here, as a trace has none below zero
_CHRONOLOGICAL, _EXPLICIT = 2, 3  # TrackDescriptor.child_ordering
_MOST_CACHED = 50_000  # of one field
_AFTER_THREADS = 1 << 24


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
        self._names, self._categories = _Interned(2), _Interned(1)
        self._keys, self._texts = _Interned(3), _Interned(29)
        self._interned = (self._names, self._categories, self._keys, self._texts)
        self._id_starts: dict[str, bytes] = {}
        self._titles: dict[str, bytes] = {}
        self._annotations: dict[str, dict[Any, bytes]] = {}
        self._fields: dict[tuple[str, ...], list[dict[Any, bytes]]] = {}
        self._lanes: dict[tuple[Place, int], bytes] = {}
        self._tail = _SEQUENCE + _CLEARED
        self._packets: list[bytes] = []

    def flush(self) -> None:
        self._file.write(b"".join(self._packets))
        self._packets.clear()

    def _packet(self, body: bytes) -> None:
        """Sends a packet, with the texts that it is the first to need."""
        if any(one.fresh for one in self._interned):
            body += message(12, b"".join(one.fresh for one in self._interned))
            for one in self._interned:
                one.fresh = b""
        body += self._tail
        self._tail = _SEQUENCE + _NEEDS
        self._packets.append(_PACKET + varint(len(body)) + body)

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

    def _lane(self, span: Span, bar: Bar) -> bytes:
        """The track of a span, as a field."""
        key = bar.place, bar.level
        made = self._lanes.get(key)
        if made is None:
            made = self._lanes[key] = _TRACK + varint(self._make_lane(span, bar))
        return made

    def _make_lane(self, span: Span, bar: Bar) -> int:
        job, channel = self._job, bar.place[2]
        about = job.processes[span.process]
        host = self._track(("host", about.host), 0, f"host {about.host}", _EXPLICIT)
        name = process_name(job, span.process)
        process = self._track(("process", span.process), host, name, _EXPLICIT, span.process)
        rank = job.contexts[span.context].rank if span.context >= 0 else -1
        name = communicator_name(job, span.context)
        ranked = self._track(("context", span.process, span.context), process, name, _EXPLICIT, rank)
        name = f"GPU channel {channel}" if channel >= 0 else thread_name(job, span.thread)
        order = _AFTER_THREADS + channel if channel >= 0 else span.thread
        return self._track((bar.place, bar.level), ranked, name, _CHRONOLOGICAL, order)

    def _annotation(self, name: str, value: Any) -> bytes:
        """One field of a descriptor; nothing for what was not recorded."""
        if value is None or value == "":
            return b""
        said = shown(name, value)
        body = number(1, self._keys(name))
        if isinstance(said, int):
            body += number(4, said) if said < 1 << 63 else number(3, said)
        elif name in layout.TEXT:
            body += number(17, self._texts(said))
        else:
            body += text(6, said)
        return message(4, body)

    def _id(self, name: str, value: int) -> bytes:
        """The same for an id; all are of one length."""
        said = f"0x{value:016x}".encode()
        start = self._id_starts.get(name)
        if start is None:
            body = number(1, self._keys(name)) + key(6, 2) + varint(len(said))
            start = self._id_starts[name] = key(4, 2) + varint(len(body) + len(said)) + body
        return start + said

    def _known(self, name: str) -> dict[Any, bytes]:
        known = self._annotations.setdefault(name, {})
        if len(known) > _MOST_CACHED:
            known.clear()
        return known

    def _event(self, time: int, event: bytes) -> None:
        self._packet(_TIMESTAMP + varint(max(0, time + _BASE)) + _EVENT + varint(len(event)) + event)

    def span(self, span: Span, bar: Bar) -> None:
        track = self._lane(span, bar)
        parts = [_BEGIN, track, self._title(span)]
        if span.type in PARENTS:
            parts.append(_FLOW + fixed64(self._links.number(span.id, span.process)))
        if span.parent:
            parts.append(_FLOW + fixed64(self._links.number(span.parent, span.process)))
        same = collective(self._job, span)
        if same is not None:
            parts += (_FLOW + fixed64(same), _CORRELATION + varint(same))
        if bar.clock_error is not None:
            seen = (("seen_start_ns", span.start), ("seen_stop_ns", span.end), ("gpu_clock_error_ns", bar.clock_error))
            parts += [self._annotation(name, value) for name, value in seen]
        self._event(bar.start, b"".join(parts) + self._details(span))
        for time, state, _, argument in span.states:
            if bar.clock_error is None and span.start <= time <= span.end:
                said = number(10, self._names(layout.state_name(state))) + self._annotation("argument", argument)
                self._event(time, _INSTANT + track + said)
        self._event(bar.end, _END + track)

    def _title(self, span: Span) -> bytes:
        name = span_name(span)
        made = self._titles.get(name)
        if made is None:
            category = number(3, self._categories(layout.type_name(span.type)))
            made = self._titles[name] = number(10, self._names(name)) + category
        return made

    def _details(self, span: Span) -> bytes:
        parts = [self._id("id", span.id)]
        if span.parent:
            parts.append(self._id("parent", span.parent))
        known = self._fields.get(span.names)
        if known is None:
            known = self._fields[span.names] = [self._known(name) for name in span.names]
        for number_, (cache, value) in enumerate(zip(known, span.values, strict=True)):
            said = cache.get(value)
            if said is None:
                name = span.names[number_]
                said = self._known(name)[value] = self._annotation(name, value)
            parts.append(said)
        for _, state, _, argument in span.states:
            if state in (22, 31):
                parts.append(self._annotation("gpu_stop_ns", argument))
        if span.stop is None:
            parts.append(self._annotation("never_stopped", 1))
        return b"".join(parts)


def write(job: Job, file: BinaryIO, progress: Callable[[int], None]) -> int:
    """Returns the number of spans."""
    writer = _Writer(job, file)
    writer.clocks()
    return draw(job, writer.span, writer.flush, progress)

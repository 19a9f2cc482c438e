"""A recording as a Perfetto trace: a row for each thread of a process, and for each channel of a communicator's
kernels; a slice a span, with what its descriptor says; instants for its states. Slices of one collective have one
correlation id on all ranks, and a flow joins them; another flow leads from a span to its children.

Calls of a thread nest in the order in which they were made. Spans that overlap lie on rows of the same name, which the
viewer draws as one. Packets are compressed. One process of the recording is in memory at a time.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import numpy as np

from stretto.trace import layout
from stretto.trace.bars import KERNEL_STOPS, KERNELS
from stretto.trace.columns import Id, Int, Owners, distinct
from stretto.trace.events import HEXADECIMAL
from stretto.trace.job import Job, Source
from stretto.trace.model import EventType
from stretto.trace.naming import PARENTS, communicator_name, mixed, process_name, thread_name
from stretto.trace.packets import Rows, Shape, annotation, in_order, padding
from stretto.trace.protobuf import key, message, number, text, varint
from stretto.trace.reader import check_memory
from stretto.trace.rows import nested, side_by_side
from stretto.trace.slices import Fields, Slices, read

_SEQUENCE = number(10, 1)  # TracePacket.trusted_packet_sequence_id
_CLEARED, _NEEDS = number(13, 1), number(13, 2)  # TracePacket.sequence_flags
_PACKET = 1  # Trace.packet
_EVENT, _COMPRESSED = 11, 50  # of a TracePacket
_BEGIN, _END, _INSTANT = number(9, 1), number(9, 2), number(9, 3)  # TrackEvent.type
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock
_TIMESTAMP = key(8, 0)
_TRACK, _NAME, _CATEGORY = key(11, 0), key(10, 0), 3
_FLOW, _CORRELATION, _ANNOTATION = key(47, 1), key(52, 0), 4
_UINT, _INT, _TEXT, _POINTER, _TEXT_IID = 3, 4, 6, 7, 17  # DebugAnnotation's values
_BASE = 10**9  # times begin here, as a trace has none below zero
_TIME_BYTES, _TRACK_BYTES = 9, 3
_CHRONOLOGICAL, _EXPLICIT = 2, 3  # TrackDescriptor.child_ordering
_LEVELS, _CHANNEL_BITS = 256, 32
_AT_ONCE = 250_000  # rows of one shape
_COMPRESS_AT_ONCE = 2 << 20
_WAITING = 8  # compressed parts that are not written yet
_MEMORY_FOR_A_BYTE = 10


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

    def column(self, values: Int, texts: list[str]) -> Id:
        """The same for indices into texts."""
        some, inverse = distinct(values)
        return np.array([self(texts[one]) for one in some.tolist()], np.uint64)[inverse]


class _File:
    """Packets on their way into the file: compressed by other threads, written in order."""

    def __init__(self, file: BinaryIO, pool: ThreadPoolExecutor) -> None:
        self._file, self._pool = file, pool
        self._waiting: deque[Future[bytes]] = deque()

    def add(self, packets: bytes) -> None:
        self._waiting.append(self._pool.submit(_compressed, packets))
        if len(self._waiting) > _WAITING:
            self._file.write(self._waiting.popleft().result())

    def end(self) -> None:
        for one in self._waiting:
            self._file.write(one.result())
        self._waiting.clear()


def _compressed(packets: bytes) -> bytes:
    return message(_PACKET, message(_COMPRESSED, zlib.compress(packets, 1)))


def _mixed(values: Id) -> Id:
    """`naming.mixed` of many."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.maximum(values ^ values >> np.uint64(31), np.uint64(1))


class _Writer:
    def __init__(self, job: Job, file: _File) -> None:
        self._job, self._file = job, file
        self._owners = Owners(job.processes)
        self._tracks: dict[tuple[Any, ...], int] = {}
        self._names, self._categories = _Interned(2), _Interned(1)
        self._keys, self._texts = _Interned(3), _Interned(29)
        self._interned = (self._names, self._categories, self._keys, self._texts)
        self._tail = _SEQUENCE + _CLEARED
        self._packets: list[bytes] = []

    def _packet(self, body: bytes) -> None:
        body += self._tail
        self._tail = _SEQUENCE + _NEEDS
        self._packets.append(message(_PACKET, body))

    def clocks(self) -> None:
        """Says which moment of the world the times begin at."""
        world = max(0, self._job.origin_realtime_ns)
        both = [(_BOOTTIME, _BASE), (_REALTIME, world)]
        body = b"".join(message(1, number(1, clock) + number(2, time)) for clock, time in both)
        self._packet(number(8, _BASE) + message(6, body + number(2, _BOOTTIME)))

    def flush(self) -> None:
        """Sends single packets, with the texts that came up since; they are needed from then on."""
        if any(one.fresh for one in self._interned):
            self._packet(message(12, b"".join(one.fresh for one in self._interned)))
            for one in self._interned:
                one.fresh = b""
        if self._packets:
            self._file.add(b"".join(self._packets))
            self._packets.clear()

    def _track(self, path: tuple[Any, ...], parent: int, name: str, ordering: int, rank: int = 0) -> int:
        if path not in self._tracks:
            uuid = self._tracks[path] = len(self._tracks) + 1
            body = number(1, uuid) + text(2, name) + number(11, ordering) + number(12, rank)
            self._packet(message(60, body + (number(5, parent) if parent else b"")))
        return self._tracks[path]

    def _row(self, source: Source, thread: int, context: int, channel: int, level: int) -> int:
        """The track of one row; context and channel are -1 but for kernels."""
        job, about = self._job, self._job.processes[source.number]
        host = self._track(("host", about.host), 0, f"host {about.host}", _EXPLICIT)
        name = process_name(job, source.number)
        process = self._track(("process", source.number), host, name, _EXPLICIT, source.number)
        if channel < 0:
            return self._track(("thread", thread, level), process, thread_name(job, thread), _CHRONOLOGICAL, thread)
        rank = job.contexts[context].rank if context >= 0 else -1
        path = ("context", source.number, context)
        ranked = self._track(path, process, communicator_name(job, context), _EXPLICIT, len(job.threads) + rank + 1)
        return self._track((*path, channel, level), ranked, f"GPU channel {channel}", _CHRONOLOGICAL, channel)

    def source(self, source: Source) -> tuple[int, int]:
        """All spans of one process; returns their number and that of its events."""
        found = read(source)
        spans = _Spans(self._job, source, found, self._owners)
        track = self._rows_of(source, spans)
        parts = [part for kind in distinct(found.type)[0].tolist() for part in self._begins(spans, kind, track)]
        parts += self._instants(spans, track) + self._ends(spans, track)
        self.flush()
        packets, ends = in_order(parts)
        cut = 0
        while cut < len(packets):
            until = int(ends[min(int(np.searchsorted(ends, cut + _COMPRESS_AT_ONCE)), len(ends) - 1)])
            self._file.add(packets[cut:until])
            cut = until
        return len(found), found.events

    def _rows_of(self, source: Source, spans: _Spans) -> Id:
        """The track of each span."""
        found, kernel = spans.found, spans.kernel
        level = np.zeros(len(found), np.int64)
        calls, kernels = np.flatnonzero(~kernel), np.flatnonzero(kernel)
        level[calls] = nested(found.thread[calls], found.at[calls], found.until[calls])
        lanes, lane = distinct((found.context[kernels] << _CHANNEL_BITS) + spans.channel[kernels])
        level[kernels] = side_by_side(lane, spans.start[kernels], spans.end[kernels])
        track = np.zeros(len(found), np.uint64)
        rows, row = distinct(found.thread[calls] * _LEVELS + level[calls])
        made = [self._row(source, one // _LEVELS, -1, -1, one % _LEVELS) for one in rows.tolist()]
        track[calls] = np.array(made, np.uint64)[row] if made else []
        rows, row = distinct(lane * _LEVELS + level[kernels])
        channels = [(lanes[one // _LEVELS], one % _LEVELS) for one in rows.tolist()]
        mask = (1 << _CHANNEL_BITS) - 1
        made = [self._row(source, -1, int(one) >> _CHANNEL_BITS, int(one) & mask, depth) for one, depth in channels]
        track[kernels] = np.array(made, np.uint64)[row] if made else []
        return track

    def _event(self, kind: bytes, time: Int, track: Id, rest: Shape) -> Rows:
        """Packets of one shape, whole words long: the track's number takes the bytes that are left."""
        made = self._shape(kind, time, track, rest, _TRACK_BYTES)
        short = padding(made.size)
        return (self._shape(kind, time, track, rest, _TRACK_BYTES + short) if short else made).rows()

    def _shape(self, kind: bytes, time: Int, track: Id, rest: Shape, size: int) -> Shape:
        event, body, made = Shape(rest.count), Shape(rest.count), Shape(rest.count)
        event.same(kind, _TRACK)
        event.number(track, size)
        event.parts += rest.parts
        body.same(_TIMESTAMP)
        body.number(np.maximum(time + _BASE, 0).astype(np.uint64), _TIME_BYTES)
        body.message(_EVENT, event)
        body.same(_SEQUENCE, _NEEDS)
        made.message(_PACKET, body)
        return made

    def _begins(self, spans: _Spans, kind: int, track: Id) -> list[tuple[Int, Rows]]:
        rows, fields = spans.found.fields[kind]
        shapes = spans.shapes(kind)
        made = []
        for shape in distinct(shapes)[0].tolist():
            alike = np.flatnonzero(shapes == shape)
            for first in range(0, len(alike), _AT_ONCE):
                here = alike[first : first + _AT_ONCE]
                chosen = rows[here]
                rest = self._described(spans, kind, chosen, fields[here])
                made.append((spans.found.at[chosen], self._event(_BEGIN, spans.start[chosen], track[chosen], rest)))
        return made

    def _described(self, spans: _Spans, kind: int, rows: Int, fields: Fields) -> Shape:
        """What a slice says of its span. All of these rows say the same things, by their shape."""
        made = Shape(len(rows))
        made.same(_NAME)
        made.number(spans.names(self._names, kind, fields))
        made.same(number(_CATEGORY, self._categories(layout.type_name(kind))))
        if kind in PARENTS:
            made.same(_FLOW)
            made.fixed(spans.link[rows])
        parent = spans.found.parent[rows]
        if parent[0]:
            made.same(_FLOW)
            made.fixed(spans.links(parent))
        same = spans.collective(kind, rows, fields)
        if same is not None:
            made.same(_FLOW)
            made.fixed(same)
            made.same(_CORRELATION)
            made.number(same)
        for name, field, values in spans.said(kind, rows, fields, self._texts):
            if field == _TEXT:
                digits = values.view(np.uint8).reshape(len(rows), -1)
                one = Shape(len(rows))
                one.same(number(1, self._keys(name)), key(_TEXT, 2), varint(2 * digits.shape[1]))
                one.hexadecimal(digits)
            else:
                one = annotation(self._keys(name), field, values, len(rows))
            made.message(_ANNOTATION, one)
        return made

    def _instants(self, spans: _Spans, track: Id) -> list[tuple[Int, Rows]]:
        found, states = spans.found, spans.found.states
        inside = (states.time >= found.start[states.span]) & (states.time <= found.end[states.span])
        shown = inside & (spans.error[states.span] < 0)
        said = states.argument != np.uint64(layout.NONE64)
        made = []
        for number_ in np.unique(states.state[shown]).tolist():
            for argued in (True, False):
                rows = np.flatnonzero(shown & (states.state == number_) & (said == argued))
                if len(rows) == 0:
                    continue
                rest = Shape(len(rows))
                rest.same(number(10, self._names(layout.state_name(number_))))
                if argued:
                    values = states.argument[rows]
                    field = _INT if int(values.max()) < 1 << 63 else _UINT
                    rest.message(_ANNOTATION, annotation(self._keys("argument"), field, values, len(rows)))
                made.append((states.at[rows], self._event(_INSTANT, states.time[rows], track[states.span[rows]], rest)))
        return made

    def _ends(self, spans: _Spans, track: Id) -> list[tuple[Int, Rows]]:
        made = []
        for first in range(0, len(spans.found), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            rest = Shape(len(track[rows]))
            made.append((spans.found.until[rows], self._event(_END, spans.end[rows], track[rows], rest)))
        return made


class _Spans:
    """The spans of one process, where they are drawn, and what they say."""

    def __init__(self, job: Job, source: Source, found: Slices, owners: Owners) -> None:
        self.found = found
        self._job, self._source, self._owners = job, source, owners
        self.kernel = np.isin(found.type, list(KERNELS))
        self.channel = np.full(len(found), -1, np.int64)
        self.start, self.end = found.start.copy(), found.end.copy()
        self.error = np.full(len(found), -1, np.int64)  # of the GPU's clock, where that says when
        self._gpu_stop = np.full(len(found), layout.NONE64, np.uint64)
        stops = np.flatnonzero(np.isin(found.states.state, KERNEL_STOPS))[::-1]
        self._gpu_stop[found.states.span[stops]] = found.states.argument[stops]
        for kind in KERNELS:
            if kind in found.fields:
                self._place(*found.fields[kind])
        self.link = self.links(found.id)
        names = [communicator_name(job, context) for context in range(len(job.contexts))]
        self._communicators = [*names, communicator_name(job, -1)]

    def _place(self, rows: Int, fields: Fields) -> None:
        """Kernels: their channel, and when the GPU says that they ran."""
        self.channel[rows] = fields["channel"]
        began, ended = fields["gpu_ns"], self._gpu_stop[rows]
        none = np.uint64(layout.NONE64)
        good = (began > 0) & (began != none) & (ended != none) & (ended >= began) & (ended < np.uint64(1 << 63))
        context = self.found.context[rows]
        for one in np.unique(context[good]).tolist():
            clock = self._job.gpus.get(one)
            if clock is not None:
                here = good & (context == one)
                self.start[rows[here]] = clock.to_recording(began[here].astype(np.int64))
                self.end[rows[here]] = clock.to_recording(ended[here].astype(np.int64))
                self.error[rows[here]] = clock.error_ns

    def links(self, ids: Id) -> Id:
        """Numbers for links from spans to their children, as `naming.Links` has them."""
        tags, inverse = distinct((ids >> np.uint64(40) & np.uint64(0xFFFF)).astype(np.int64))
        own = self._source.number
        owners = [self._owners.one(tag, own) for tag in tags.tolist()]
        salts = np.array([mixed(owner if owner >= 0 else own) for owner in owners], np.uint64)
        return _mixed(ids ^ salts[inverse]) if len(ids) else ids

    def names(self, interned: _Interned, kind: int, fields: Fields) -> Id:
        """Names of slices, for example "Coll AllReduce"."""
        what = np.zeros(len(fields), np.int64)
        texts = [""]
        if kind == EventType.PROXY_OP:
            what, texts = (fields["is_send"] == 1).astype(np.int64), ["Receive", "Send"]
        for name in ("function", "phase_name"):
            if name in (fields.dtype.names or ()):
                what, texts = self._source.strings(fields[name]), self._job.strings
        word = layout.type_name(kind)
        return interned.column(what, [f"{word} {one}" if one else word for one in texts])

    def collective(self, kind: int, rows: Int, fields: Fields) -> Id | None:
        """The number that all ranks of each collective have, as `naming.collective` has it."""
        context = self.found.context[rows]
        if "sequence" not in (fields.dtype.names or ()) or fields["sequence"][0] == layout.NONE64 or context[0] < 0:
            return None
        texts = len(self._job.strings)
        keys, inverse = distinct(context * texts + self._source.strings(fields["function"]))
        base = [self._collective_base(*divmod(one, texts)) for one in keys.tolist()]
        return _mixed(np.array(base, np.uint64)[inverse] + fields["sequence"])

    def _collective_base(self, context: int, function: int) -> int:
        named = zlib.crc32(self._job.strings[function].encode())
        return mixed(mixed(self._job.contexts[context].communicator) ^ named)

    def shapes(self, kind: int) -> Int:
        """Equal numbers for spans of one type that say the same things."""
        rows, fields = self.found.fields[kind]
        facts = [
            self.found.parent[rows] != 0,
            self.found.context[rows] >= 0,
            self.error[rows] >= 0,
            self._gpu_stop[rows] != np.uint64(layout.NONE64),
            self.found.stopped[rows],
        ]
        facts += [self._known(name, fields[name]) for name in _shown_fields(fields)]
        bits = np.zeros(len(rows), np.int64)
        for place, fact in enumerate(facts):
            bits |= fact.astype(np.int64) << place
        return bits

    def _known(self, name: str, values: Any) -> Any:
        if name in layout.TEXT:
            empty = np.array([not one for one in self._job.strings], np.bool_)
            return ~empty[self._source.strings(values)]
        if values.dtype.kind == "u":
            return values != (1 << 8 * values.dtype.itemsize) - 1
        return np.ones(len(values), np.bool_)

    def said(self, kind: int, rows: Int, fields: Fields, texts: _Interned) -> list[tuple[str, int, Any]]:
        """Name, field of a DebugAnnotation and values of all that spans of one shape say."""
        found = self.found
        made: list[tuple[str, int, Any]] = []

        def plain(name: str, values: Any) -> None:
            """A number; of negative ones all bytes."""
            wide = values.astype(np.uint64) if values.dtype.kind == "u" else values.astype(np.int64).view(np.uint64)
            large = values.dtype.kind == "u" and int(wide.max()) >= 1 << 63
            made.append((name, _UINT if large else _INT, wide))

        if self.error[rows[0]] >= 0:
            plain("seen_start_ns", found.start[rows])
            plain("seen_stop_ns", found.end[rows])
            plain("gpu_clock_error_ns", self.error[rows])
        made.append(("id", _POINTER, found.id[rows]))
        if found.parent[rows[0]]:
            made.append(("parent", _POINTER, found.parent[rows]))
        if found.context[rows[0]] >= 0:
            made.append(("communicator", _TEXT_IID, texts.column(found.context[rows], self._communicators)))
        for name in _shown_fields(fields):
            values = fields[name]
            if not self._known(name, values[:1])[0]:
                continue
            if name in layout.TEXT:
                made.append((name, _TEXT_IID, texts.column(self._source.strings(values), self._job.strings)))
            elif values.dtype.kind == "V":
                made.append((name, _TEXT, np.ascontiguousarray(values)))
            elif name in HEXADECIMAL:
                made.append((name, _POINTER, values.astype(np.uint64)))
            else:
                plain(name, values)
        if self._gpu_stop[rows[0]] != np.uint64(layout.NONE64):
            plain("gpu_stop_ns", self._gpu_stop[rows])
        if not found.stopped[rows[0]]:
            plain("never_stopped", np.ones(len(rows), np.int64))
        return made


_HIDDEN = ("id", "parent", "rank", "threads", "_pad", "_0")


def _shown_fields(fields: Fields) -> list[str]:
    return [name for name in fields.dtype.names or () if name not in _HIDDEN]


def write(job: Job, file: BinaryIO, progress: Callable[[int], None]) -> int:
    """Returns the number of spans."""
    with ThreadPoolExecutor(2) as pool:
        made = _File(file, pool)
        writer = _Writer(job, made)
        writer.clocks()
        writer.flush()
        spans = events = 0
        for source in job.sources:
            size = sum(one.committed for thread in source.file.events.values() for one in thread)
            check_memory(size, _MEMORY_FOR_A_BYTE)
            some, more = writer.source(source)
            spans, events = spans + some, events + more
            progress(events)
        made.end()
    return spans

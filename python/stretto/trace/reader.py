"""Makes a `Recording` of files: every event of all of them, in columns. For recordings that fit in memory; what is
larger is streamed (`stream`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stretto.errors import InvalidUsage
from stretto.trace import layout
from stretto.trace.clock import Times
from stretto.trace.columns import ids, ints
from stretto.trace.job import Job, Source, open_job
from stretto.trace.model import SPAN_COLUMNS, STATE_COLUMNS, Columns, EventType, Quality, Recording
from stretto.trace.part import WHOLE, Chosen, Part, segments
from stretto.trace.raw import Block, Segment, note

Ids = npt.NDArray[np.uint64]

# The model's column of a field that it names otherwise.
_COLUMN = {
    "root": "peer",
    "channels": "channel",
    "buffer": "send_buffer",
    "parent_group": "group",
    "gpu_ns": "gpu_start",
    "phase_name": "function",
    "sync_strategy": "protocol",
    "chunk_bytes": "count",
    "bytes": "count",
    **dict.fromkeys(("steps", "step", "depth", "plugin", "phase", "ce_sequence", "operations", "ranks"), "detail"),
    **dict.fromkeys(
        ("is_symmetric", "graph_captured", "is_send", "intra_batch_sync", "is_complete", "use_intra_sync"), "flag"
    ),
}
_GPU_STOPS = (22, 31)  # KernelChStop, KernelPhaseStop
_DAY_NS = 86400 * 10**9
_MEMORY_FOR_A_BYTE = 6  # of events, as measured at the end of a report
UNALIGNED = "several hosts, whose clocks are joined by realtime alone"


def _number(values: npt.NDArray[np.generic], into: type[np.generic]) -> npt.NDArray[np.generic]:
    """All ones, which is "not recorded", becomes -1, and 0 among ids; what is too large becomes the largest."""
    wanted = np.dtype(into)
    if values.dtype.kind != "u":
        return values.astype(wanted)
    ones = (1 << 8 * values.dtype.itemsize) - 1
    missing, wide = values == ones, values.astype(np.uint64)
    if wanted.kind == "u":
        return np.where(missing, 0, wide).astype(wanted)
    largest = np.uint64((1 << 8 * wanted.itemsize - 1) - 1)
    return np.where(missing, -1, np.minimum(wide, largest).astype(np.int64)).astype(wanted)


def _empty(columns: dict[str, type[np.generic]], rows: int) -> Columns:
    return {
        name: np.full(rows, 0 if np.dtype(kind).kind == "u" else -1, np.dtype(kind)) for name, kind in columns.items()
    }


def _joined(columns: dict[str, type[np.generic]], parts: list[Columns]) -> Columns:
    if not parts:
        return _empty(columns, 0)
    return {name: np.concatenate([part[name] for part in parts]) for name in columns}


def _starts(job: Job, source: Source, thread: int, block: Block, times: Times) -> Columns:
    """The spans that begin in this block."""
    rows = np.flatnonzero(block.kind == layout.START)
    made = _empty(SPAN_COLUMNS, len(rows))
    types = block.type[rows]
    made["type"][:] = types
    made["process"][:] = source.number
    made["thread"][:] = thread
    made["start"][:] = times[rows]
    made["context"][:] = source.contexts(block.context[rows])
    for number in np.unique(types).tolist():
        here = np.flatnonzero(types == number)
        fields = block.fields(rows[here], layout.STARTS.get(number, layout.STARTS[EventType.UNKNOWN]))
        for name in fields.dtype.names or ():
            column = _COLUMN.get(name, name)
            if column in made and name in layout.TEXT:
                made[column][here] = source.strings(fields[name])
            elif column in made:
                made[column][here] = _number(fields[name], SPAN_COLUMNS[column])
        if number == EventType.PROXY_OP:
            way = np.array([job.intern("Receive"), job.intern("Send")], np.uint32)
            made["function"][here] = way[(fields["is_send"] == 1).astype(np.int64)]
    return made


@dataclass
class _Ends:
    """Stops and states of one process, before they find their starts."""

    stop_ids: list[Ids] = field(default_factory=list)
    stop_times: list[Times] = field(default_factory=list)
    state_ids: list[Ids] = field(default_factory=list)
    states: list[Columns] = field(default_factory=list)

    def add(self, block: Block, times: Times) -> None:
        rows = np.flatnonzero(block.kind == layout.STOP)
        if len(rows):
            self.stop_ids.append(block.fields(rows, layout.STOP_FIELDS)["id"])
            self.stop_times.append(times[rows])
        rows = np.flatnonzero(block.kind == layout.STATE)
        if len(rows):
            fields = block.fields(rows, layout.STATE_FIELDS)
            made = _empty(STATE_COLUMNS, len(rows))
            made["time"][:] = times[rows]
            for name in ("state", "count", "argument", "argument2"):
                made[name][:] = _number(fields[name], STATE_COLUMNS[name])
            self.state_ids.append(fields["id"])
            self.states.append(made)


def _ids(parts: list[Ids]) -> Ids:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


@dataclass
class _Finder:
    """Rows of ids; the first of those that have the same one."""

    ids: Ids

    def __post_init__(self) -> None:
        self._order = np.argsort(self.ids, kind="stable")
        self._sorted = self.ids[self._order]

    def duplicates(self) -> int:
        return int(np.count_nonzero(self._sorted[1:] == self._sorted[:-1]))

    def rows(self, wanted: Ids) -> Times:
        """-1 where there is none."""
        if len(self.ids) == 0:
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(self._sorted, wanted), len(self.ids) - 1)
        return np.where(self._sorted[place] == wanted, self._order[place], -1)


def _join(spans: Columns, ends: _Ends, quality: Quality) -> Columns:
    """Gives the spans of one process their stops, and returns its states with their spans."""
    finder = _Finder(ids(spans, "id"))
    if finder.duplicates():
        note(quality, f"{finder.duplicates()} starts have the id of another")
    stop_ids = _ids(ends.stop_ids)
    times = np.concatenate(ends.stop_times) if ends.stop_times else np.zeros(0, np.int64)
    order = np.lexsort((times, stop_ids))
    first = np.ones(len(order), np.bool_)
    first[1:] = stop_ids[order][1:] != stop_ids[order][:-1]
    quality.duplicate_stops += int(len(order) - np.count_nonzero(first))
    order = order[first]
    rows = finder.rows(stop_ids[order])
    found = rows >= 0
    quality.unmatched_stops += int(np.count_nonzero(~found))
    rows, stops = rows[found], times[order][found]
    starts = ints(spans, "start")[rows]
    quality.suspect_stamps += int(np.count_nonzero(stops < starts))
    spans["stop"][rows] = np.where(np.maximum(stops, starts) == -1, 0, np.maximum(stops, starts))
    quality.unmatched_starts += int(np.count_nonzero(spans["stop"] == -1))
    states = _joined(STATE_COLUMNS, ends.states)
    of = finder.rows(_ids(ends.state_ids))
    gpu = np.isin(states["state"], _GPU_STOPS) & (of >= 0)
    spans["gpu_stop"][of[gpu]] = states["argument"][gpu]
    states["span"] = of
    return states


def _note_memberships(job: Job, source: Source, block: Block, times: Times) -> None:
    for kind in (layout.INIT, layout.FINALIZE):
        rows = np.flatnonzero(block.kind == kind)
        contexts = source.contexts(block.context[rows])
        for context, time in zip(contexts.tolist(), times[rows].tolist(), strict=True):
            if context >= 0 and kind == layout.INIT:
                job.contexts[context].init_ns = time
            elif context >= 0:
                job.contexts[context].finalize_ns = time


def _days(source: Source) -> tuple[int, int]:
    """Times before and after which no event of the recording can be."""
    ticks = [one[0] for one in source.file.definitions.anchors]
    if not ticks:
        return -(1 << 63), (1 << 63) - 1
    first, last = (source.clock.one(tick) + source.shift for tick in (min(ticks), max(ticks)))
    return first - _DAY_NS, last + _DAY_NS


def _suspects(block: Block, times: Times, before: int, days: tuple[int, int]) -> int:
    """Records of a thread that lie before the one before them, and times on no day of the recording."""
    ticks = block.ticks
    backwards = np.count_nonzero(ticks[1:] < ticks[:-1]) + int(int(ticks[0]) < before)
    return int(backwards + np.count_nonzero((times < days[0]) | (times > days[1])))


def _read(job: Job, source: Source, chosen: Iterable[list[Segment]]) -> tuple[Columns, Columns]:
    parts: list[Columns] = []
    ends = _Ends()
    days = _days(source)
    for of_thread in chosen:
        before = 0
        for segment in of_thread:
            for block in source.file.blocks(segment):
                times = source.times(block.ticks)
                parts.append(_starts(job, source, source.thread(block.thread), block, times))
                ends.add(block, times)
                _note_memberships(job, source, block, times)
                job.quality.suspect_stamps += _suspects(block, times, before, days)
                before = int(block.ticks[-1])
    spans = _joined(SPAN_COLUMNS, parts)
    states = _join(spans, ends, job.quality)
    return spans, states


def _with_ranks(job: Job, spans: Columns) -> None:
    """A context knows its rank; the descriptors of many types do not."""
    if job.contexts:
        ranks = np.array([context.rank for context in job.contexts], np.int32)
        contexts = ints(spans, "context")
        spans["rank"] = np.where(contexts >= 0, ranks[contexts], spans["rank"]).astype(np.int32)


def _sorted(spans: Columns, states: Columns) -> tuple[Columns, Columns]:
    order = np.argsort(spans["start"], kind="stable")
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1
    states["span"] = place[ints(states, "span")]
    by_time = np.argsort(states["time"], kind="stable")
    return {name: values[order] for name, values in spans.items()}, {
        name: values[by_time] for name, values in states.items()
    }


def load(paths: Path | str | Sequence[Path | str], *, align: bool = True, part: Part = WHOLE) -> Recording:
    """Reads a recording: a file, or a folder of *.rec files, or several of both.

    `align` brings the clocks of several hosts together (`stretto.trace.align`); without it they are as far apart as
    the hosts' own clocks. Of a `part` somewhat more is read than lies in it. Raises `BadRecording` where nothing can be
    read, `InvalidUsage` where it does not fit into memory; what is wrong with some of it is in the recording's
    `quality`. Nothing that a file says is believed unchecked, and no path in it is opened.
    """
    job = open_job(paths)
    chosen = segments(job, part)
    check_memory(sum(one.committed for lists in chosen for thread in lists for one in thread), _MEMORY_FOR_A_BYTE)
    if not align and len({id(source.clock) for source in job.sources}) > 1:
        note(job.quality, UNALIGNED)
    recording = read_job(job, chosen)
    if not part.is_whole:
        # What lies across the edges has only one of its ends here.
        recording.quality.unmatched_starts = recording.quality.unmatched_stops = 0
        note(recording.quality, "a part of the recording, by time: what begins before it is not in it")
    if align:
        from stretto.trace.align import align as aligned

        return aligned(recording)
    return recording


def read_job(job: Job, chosen: Chosen) -> Recording:
    """The events of an opened job that lie in these segments."""
    spans: list[Columns] = []
    states: list[Columns] = []
    rows = 0
    for source in job.sources:
        of_spans, of_states = _read(job, source, chosen[source.number])
        of_states["span"] = np.where(ints(of_states, "span") >= 0, ints(of_states, "span") + rows, -1)
        rows += len(of_spans["id"])
        spans.append(of_spans)
        states.append(of_states)
    all_spans, all_states = _sorted(_joined(SPAN_COLUMNS, spans), _joined(STATE_COLUMNS, states))
    _with_ranks(job, all_spans)
    return Recording(
        job.processes,
        job.threads,
        job.contexts,
        job.strings,
        all_spans,
        all_states,
        job.origin_realtime_ns,
        job.gather_quality(),
    )


def check_memory(size: int, factor: int) -> None:
    """Better a sentence now than the kernel's end of the process later: so many bytes of events, and how many bytes of
    memory each of them takes.
    """
    free = free_memory()
    if factor * size > free:
        raise InvalidUsage(
            f"{size / 1e9:.3g} GB of events take about {factor * size / 1e9:.3g} GB of memory, and "
            f"{free / 1e9:.3g} GB are free: take a part with --from and --to (seconds); `trace convert` to jsonl, csv, "
            "chrome or otf2 takes any size"
        )


def free_memory() -> int:
    """Bytes that this process may still take, as the kernel says it for the machine and for its container."""
    free = 1 << 62
    with contextlib.suppress(OSError, ValueError, IndexError):
        said = Path("/proc/meminfo").read_text()
        free = int(said.split("MemAvailable:")[1].split()[0]) << 10
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        used = int((group / "memory.stat").read_text().split("anon ")[1].split()[0])
        free = min(free, max(0, most - used))
    return free


def ends(job: Job, budget: int) -> Chosen:
    """The segments that began first and those that ended last by each clock, of `budget` bytes or, where there is
    memory, what two segments of every thread take; all, if they are no more.
    """
    every = segments(job, WHOLE)
    threads = [(source, thread) for source, lists in zip(job.sources, every, strict=True) for thread in lists]
    wanted = 2 * sum(max(one.committed for one in thread) for _, thread in threads)
    budget = max(budget, min(wanted, free_memory() // (2 * _MEMORY_FOR_A_BYTE)))
    order = [item for source, thread in threads for item in _when(source, thread)]
    if sum(item.size for item in order) <= budget:
        return every
    kept = _ends_of(order, budget)
    count = itertools.count()
    return [[[one for one in thread if next(count) in kept] for thread in lists] for lists in every]


@dataclass(frozen=True)
class _When:
    """A segment in time. When a thread's last one ended is a guess: as fast as the one before."""

    clock: int
    began: int
    ended: int
    size: int


def _when(source: Source, thread: list[Segment]) -> list[_When]:
    began = source.times(np.array([one.first_ticks for one in thread], np.uint64)).tolist()
    last = began[-1]
    if len(thread) > 1:
        last += (began[-1] - began[-2]) * thread[-1].committed // max(1, thread[-2].committed)
    ended = [*began[1:], last]
    places = zip(began, ended, thread, strict=True)
    return [_When(id(source.clock), one, end, segment.committed) for one, end, segment in places]


def _ends_of(order: list[_When], budget: int) -> set[int]:
    """Which segments are first and last; by each clock for itself, as these may be far apart."""
    kept: set[int] = set()
    for moments in ([item.began for item in order], [-item.ended for item in order]):
        first: dict[int, int] = {}
        for item, moment in zip(order, moments, strict=True):
            first[item.clock] = min(first.get(item.clock, moment), moment)
        room = budget // 2
        for number in sorted(range(len(order)), key=lambda one: moments[one] - first[order[one].clock]):
            room -= order[number].size
            if room < 0:
                break
            kept.add(number)
    return kept

"""A whole recording analysed: what `stretto trace report` shows. `analyse` is the entrance; everything it gives is
plain data, times in nanoseconds on the clock of the recording's first process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stretto.errors import StrettoError
from stretto.trace.align import UNKNOWN_ERROR, Alignment, clocks_of
from stretto.trace.attribution import CAUSES, Lateness, Timeline, excuses, lateness, place
from stretto.trace.columns import NONE, Float, Int, dense, times
from stretto.trace.critical_path import CriticalPath, critical_path
from stretto.trace.model import Recording
from stretto.trace.operations import Operations, join, only
from stretto.trace.pairs import Pair, pairs
from stretto.trace.progress import Progress, missing, progress
from stretto.trace.proxies import ProxyWait, proxy_waits
from stretto.trace.reader import UNALIGNED
from stretto.trace.transfers import STEP_STATES, Transfers, transfers
from stretto.trace.verdict import Verdict, judge


@dataclass(frozen=True)
class Clock:
    """One process's clock: what takes it to the first one's, how far that can be wrong if ranks of several hosts end
    operations together, and how far at most, by what came before what alone; -1 unknown.
    """

    host: str
    pid: int
    offset_ns: int
    drift_ppm: float
    error_ns: int
    most_ns: int


@dataclass(frozen=True)
class Kind:
    """The operations of a communicator that have the same function and size, graphs' replays apart. Bandwidths in GB/s;
    NaN unknown.
    """

    communicator: str
    function: str
    bytes: int
    replay: bool  # of graphs
    ranks: int
    count: int
    algorithm: str
    protocol: str
    transfer_ns: float
    transfer_p99_ns: float
    wait_ns: float  # median over operations of the mean wait of their ranks
    algorithm_bandwidth: float
    bus_bandwidth: float
    bus_bandwidth_p10: float
    bound: bool  # nobody knows when they began: transfers took no longer than that, bandwidths were no lower


@dataclass(frozen=True)
class Straggler:
    """How often one rank came last, and what that cost: in one communicator, or in all where that is empty. A worker is
    the same one in all its communicators and goes by its rank in the largest.
    """

    communicator: str
    rank: int
    worker: str
    worker_number: int
    host: str
    pid: int
    operations: int  # in which ranks could be compared
    last: int  # times it was named
    median_ns: float  # of its lateness when it was
    p99_ns: float
    cost_ns: int  # by how much it came after the last but one, in sum; of calls, the others waited at most that
    causes: dict[str, int]
    evidence: str  # "certain"; "ranks missing": of those that are recorded; "calls": when ranks began was not recorded


@dataclass(frozen=True)
class SlowProxy:
    """Slow transfers that one rank's proxy explains, by the state that it was in."""

    communicator: str
    rank: int
    state: str
    count: int
    excess_ns: float  # median


@dataclass(frozen=True)
class Overhead:
    """What the recording itself took of a process; NaN where the plugin took no samples."""

    host: str
    pid: int
    callbacks: int
    callback_ns: float
    total_ns: float
    share: float


@dataclass(frozen=True)
class Report:
    """Everything."""

    recording: Recording
    operations: Operations
    alignment: Alignment
    timeline: Timeline
    lateness: Lateness
    transfers: Transfers
    clocks: list[Clock]
    kinds: list[Kind]
    workers: list[Straggler]  # over all communicators
    stragglers: list[Straggler]  # of each communicator
    slow_proxies: list[SlowProxy]
    slow_transfers: int
    path: CriticalPath
    pairs: list[Pair]
    proxy_waits: list[ProxyWait]
    progress: Progress
    verdict: Verdict
    overhead: list[Overhead]
    duration_ns: int
    runs: int = 1  # jobs, one after the other
    notes: list[str] = field(default_factory=list)
    inputs: tuple[str, ...] = ()  # what `stretto trace view` takes to show the same: files, folders, and the part


class UnknownCommunicator(StrettoError):
    """The recording has no communicator of that name."""


def analyse(recording: Recording, communicator: str | None = None, *, whole: bool = True) -> Report:
    """Analyses a recording as it was read, clocks aligned or not: of all operations, or of those of one communicator,
    which goes by its name or its id. Where it is a part of a longer one, it does not say how far ranks came. About 5 s
    for a million spans.
    """
    operations = join(recording)
    alignment = clocks_of(recording, operations)
    timeline = place(operations, alignment)
    excused = excuses(recording, operations, timeline, alignment)
    if communicator is not None:
        numbers = _chosen(operations, communicator)
        keep = np.isin(operations.communicator, numbers)
        timeline = timeline.chosen(keep, keep[operations.operation])
        excused = excused.chosen(keep)
        operations = only(operations, numbers, keep)
    late = lateness(operations, timeline, alignment, excused)
    moved = transfers(recording, operations, timeline)
    return Report(
        recording=recording,
        operations=operations,
        alignment=alignment,
        timeline=timeline,
        lateness=late,
        transfers=moved,
        clocks=_clocks(recording, alignment),
        kinds=_kinds(recording, operations, late, moved),
        workers=_stragglers(recording, operations, timeline, late, by_worker=True),
        stragglers=_stragglers(recording, operations, timeline, late, by_worker=False),
        slow_proxies=_slow_proxies(operations, moved),
        slow_transfers=int((moved.excess > 0).sum()),
        path=critical_path(operations, timeline, late),
        pairs=[
            item
            for item in pairs(recording, alignment)
            if communicator is None or item.communicator in {one.label for one in operations.communicators}
        ],
        proxy_waits=[
            item
            for item in proxy_waits(recording)
            if communicator is None or item.communicator in {one.label for one in operations.communicators}
        ],
        progress=progress(recording, operations) if whole else Progress(),
        verdict=judge(operations, timeline, late, missing(recording, operations)),
        overhead=_overhead(recording),
        duration_ns=_duration(recording, alignment),
        runs=_runs(recording, alignment),
        notes=_notes(recording, operations, alignment),
    )


def _notes(recording: Recording, operations: Operations, alignment: Alignment) -> list[str]:
    """All that is to be said; clocks that were read as they were are aligned here."""
    own = [text for text in recording.quality.notes if text != UNALIGNED]
    return list(dict.fromkeys(own + operations.samples + operations.notes + alignment.notes))


def _chosen(operations: Operations, name: str) -> list[int]:
    chosen = [number for number, item in enumerate(operations.communicators) if item.goes_by(name)]
    if not chosen:
        known = ", ".join(item.label for item in operations.communicators[:10]) or "it has none"
        raise UnknownCommunicator(f"the recording has no communicator {name} ({known})")
    return chosen


def _duration(recording: Recording, alignment: Alignment) -> int:
    process = recording.spans["process"].astype(np.int64)
    if len(process) == 0:
        return 0
    start = alignment.host_time(process, recording.spans["start"].astype(np.int64))
    stop = alignment.host_time(process, times(recording.spans, "stop"))
    return max(0, int(max(start.max(), stop.max()) - start.min()))


def _runs(recording: Recording, alignment: Alignment) -> int:
    """How many jobs these are: processes that share no communicator, not even through others, and were not there at the
    same time.
    """
    process = recording.spans["process"].astype(np.int64)
    if len(process) == 0:
        return 1
    count = len(recording.processes)
    begin, end = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    start = alignment.host_time(process, recording.spans["start"].astype(np.int64))
    np.minimum.at(begin, process, start)
    np.maximum.at(end, process, np.maximum(start, alignment.host_time(process, times(recording.spans, "stop"))))
    job = list(range(count))  # of each process, one that is in the same; itself at last

    def root(number: int) -> int:
        while job[number] != number:
            job[number] = number = job[job[number]]
        return number

    first: dict[int, int] = {}
    for context in recording.contexts:
        job[root(context.process)] = root(first.setdefault(context.communicator, context.process))
    roots = np.array([root(number) for number in range(count)], np.int64)
    there = np.flatnonzero(end > NONE)
    begins, ends = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    np.minimum.at(begins, roots[there], begin[there])
    np.maximum.at(ends, roots[there], end[there])
    order = np.flatnonzero(ends > NONE)
    order = order[np.argsort(begins[order], kind="stable")]
    return 1 + int((begins[order[1:]] > np.maximum.accumulate(ends[order])[:-1]).sum())


def _clocks(recording: Recording, alignment: Alignment) -> list[Clock]:
    found = []
    for number, item in enumerate(recording.processes):
        clock = int(alignment.host_of[number])
        own, linked = alignment.hosts[clock], alignment.host_home[clock] == 0
        error, most = (
            int(np.ceil(value)) if linked and np.isfinite(value) else UNKNOWN_ERROR
            for value in (alignment.host_error[clock], alignment.host_most[clock])
        )
        offset, drift = item.offset_ns + own.offset_ns, item.drift_ppm + own.slope * 1e6
        found.append(Clock(item.host, item.pid, offset, drift, error, most))
    return found


def quantile(values: Float | Int, share: float) -> float:
    """Linear between the two nearest; NaN of nothing. NumPy's own takes half a millisecond however few there are."""
    known = np.sort(values[~np.isnan(values)] if values.dtype.kind == "f" else values)
    if len(known) == 0:
        return float("nan")
    place = share * (len(known) - 1)
    low = int(place)
    high = min(low + 1, len(known) - 1)
    return float(known[low]) + (place - low) * float(known[high] - known[low])


def _kinds(recording: Recording, operations: Operations, late: Lateness, moved: Transfers) -> list[Kind]:
    if operations.count == 0:
        return []
    first = operations.first[:-1]
    waits = np.add.reduceat(np.where(late.wait > NONE, late.wait, 0), first) / operations.sizes
    source = np.where(operations.coll >= 0, operations.coll, operations.api)[first]
    texts = [recording.spans[name].astype(np.int64)[source] for name in ("algorithm", "protocol")]
    group = dense(operations.communicator, operations.function, operations.replay, moved.bytes)
    order = np.argsort(group, kind="stable")
    found = []
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        one = int(rows[0])
        item = operations.communicators[int(operations.communicator[one])]
        words = [recording.strings[int(np.bincount(text[rows]).argmax())] for text in texts]
        known = (late.last[rows] >= 0) & ~late.excused.unseen[rows]
        found.append(
            Kind(
                communicator=item.label,
                function=recording.strings[int(operations.function[one])],
                bytes=int(moved.bytes[one]),
                replay=bool(operations.replay[one]),
                ranks=item.ranks,
                count=len(rows),
                algorithm=words[0],
                protocol=words[1],
                transfer_ns=quantile(moved.ns[rows], 0.5),
                transfer_p99_ns=quantile(moved.ns[rows], 0.99),
                wait_ns=quantile(waits[rows][known], 0.5),
                algorithm_bandwidth=quantile(moved.algorithm_bandwidth[rows], 0.5),
                bus_bandwidth=quantile(moved.bus_bandwidth[rows], 0.5),
                bus_bandwidth_p10=quantile(moved.bus_bandwidth[rows], 0.1),
                bound=bool(moved.bound[rows].any()),
            )
        )
    return sorted(found, key=lambda kind: -kind.count)


def _evidence(operations: Operations, timeline: Timeline, which: Int) -> str:
    """What it stands on that this rank came last to these operations."""
    if not all(operations.communicators[one].complete for one in np.unique(operations.communicator[which])):
        return "ranks missing"
    return "certain" if timeline.exact[which].all() else "calls"


def _stragglers(
    recording: Recording, operations: Operations, timeline: Timeline, late: Lateness, by_worker: bool
) -> list[Straggler]:
    """Ranks that came last at least once, the costliest first: of each communicator, or workers over all."""
    named = np.flatnonzero(late.blamed).astype(np.int64)
    rows = late.last[named]
    context = operations.context[rows]
    compared = np.flatnonzero(late.last >= 0)
    per_communicator = np.bincount(operations.communicator[compared], minlength=len(operations.communicators))
    key = operations.worker[rows] if by_worker else context
    found = []
    order = np.argsort(key, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []
    for part in parts:
        which, row = named[part], int(rows[part[0]])
        item = recording.contexts[int(context[part[0]])]
        process = recording.processes[item.process]
        communicator = int(operations.communicator[which[0]])
        causes = np.bincount(late.cause[which], minlength=len(CAUSES))
        found.append(
            Straggler(
                communicator="" if by_worker else operations.communicators[communicator].label,
                rank=item.rank,
                worker=operations.workers[int(operations.worker[row])],
                worker_number=int(operations.worker[row]),
                host=process.host,
                pid=process.pid,
                operations=len(compared) if by_worker else int(per_communicator[communicator]),
                last=len(part),
                median_ns=quantile(late.late[which], 0.5),
                p99_ns=quantile(late.late[which], 0.99),
                cost_ns=int(late.lead[which].sum()),
                causes={name: int(count) for name, count in zip(CAUSES, causes, strict=True) if name and count},
                evidence=_evidence(operations, timeline, which),
            )
        )
    return sorted(found, key=lambda item: -item.cost_ns)


def _slow_proxies(operations: Operations, moved: Transfers) -> list[SlowProxy]:
    slow = np.flatnonzero(moved.slow_row >= 0)
    keys: dict[tuple[str, int, int], list[float]] = {}
    for number in slow:
        label = operations.communicators[int(operations.communicator[number])].label
        key = (label, int(operations.rank[moved.slow_row[number]]), int(moved.slow_state[number]))
        keys.setdefault(key, []).append(float(moved.excess[number]))
    found = [
        SlowProxy(label, rank, STEP_STATES[state][0], len(excess), float(np.median(excess)))
        for (label, rank, state), excess in keys.items()
    ]
    return sorted(found, key=lambda item: -item.count * item.excess_ns)


def _overhead(recording: Recording) -> list[Overhead]:
    """A span is two callbacks, or one if it never stopped; a state is as many as it counts."""
    spans, states = recording.spans, recording.states
    count = len(recording.processes)
    process = spans["process"].astype(np.int64)
    begin, end = spans["start"].astype(np.int64), times(spans, "stop")
    calls = np.bincount(process, minlength=count) + np.bincount(process[end > NONE], minlength=count)
    span = states["span"].astype(np.int64)
    known = span >= 0
    repeats = np.maximum(states["count"].astype(np.int64)[known], 1)
    calls = calls + np.bincount(process[span[known]], repeats, minlength=count).astype(np.int64)
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    np.minimum.at(low, process, begin)
    np.maximum.at(high, process, np.maximum(begin, end))
    found = []
    for number, item in enumerate(recording.processes):
        each = item.self_ns if item.self_ns > 0 else float("nan")
        total, lasted = each * int(calls[number]), int(high[number]) - int(low[number])
        share = total / lasted if lasted > 0 else float("nan")
        found.append(Overhead(item.host, item.pid, int(calls[number]), each, total, share))
    return found

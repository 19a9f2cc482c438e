"""Recordings of jobs that never ran, of which everything is known: true times, clocks, who was late and why.

True time counts from 0; host 0's clock shows it, the others' are offset and drift. All ranks of a job do the same
operations one after the other: each works for a while, comes, waits for the last one, and ends with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from stretto.trace.model import SPAN_COLUMNS, STATE_COLUMNS, Context, EventType, Process, Recording, Thread

EPOCH = 1_750_000_000_000_000_000
STRINGS = ["", "AllReduce", "AllGather", "ncclFloat32", "RING", "SIMPLE", "Send", "Recv", "Broadcast"]
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Job:
    """What to make. `style`: "cpu" calls return when the operation is over; "gpu" launch kernels that stamp themselves;
    "api" as "gpu", but no more than the calls is recorded; "net" as "gpu" with the proxies of a network.
    """

    ranks: int = 8
    hosts: int = 2
    operations: int = 500
    style: str = "cpu"
    seed: int = 1
    late_ns: int = 200_000
    cause: str = "upstream"  # or launch, stream, none
    clock_offset_ns: int = 1_000_000_000
    drift_ppm: float = 50.0
    jitter_ns: int = 3_000
    gap_ns: int = 300_000
    transfer_ns: int = 40_000
    skew_ns: int = 1_000  # one rank's ends are later than another's by up to this much, always
    channels: int = 2
    threads: bool = False  # ranks of a host are threads of one process
    communicators: int = 1  # the same ranks in each, operations in turn
    stalled: float = 0.0  # share of operations that one rank's proxy holds up by 300 us


@dataclass
class Made:
    """A recording and the truth about it. Arrays are (operations, ranks)."""

    job: Job
    recording: Recording
    late: Array  # (operations,) the rank that was made late; -1 none
    arrive: Array
    begin: Array
    end: Array
    host_offset: Array  # of each host, at true time 0
    host_drift: Array
    host_of: Array
    stalled: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def shown(self, rank: Array, moment: Array) -> Array:
        """What the clock of a rank's host shows at a true time."""
        host = self.host_of[rank]
        return moment + self.host_offset[host] + np.rint(moment * self.host_drift[host]).astype(np.int64)


class _Blocks:
    """Spans in the making, a block of rows at a time."""

    def __init__(self, tags: Array) -> None:
        self.columns: dict[str, list[Array]] = {name: [] for name in SPAN_COLUMNS}
        self.count = 0
        self._tags = tags

    def add(self, kind: EventType, process: Array, **given: Any) -> tuple[Array, Array]:
        """Adds as many rows as `process` has; gives their ids and numbers."""
        shape = process.shape
        rows = self.count + np.arange(process.size).reshape(shape)
        unsaid = {name: 0 if np.issubdtype(dtype, np.unsignedinteger) else -1 for name, dtype in SPAN_COLUMNS.items()}
        head = np.uint64((int(kind) + 1) << 56)
        ids = head | (self._tags[process].astype(np.uint64) << np.uint64(40)) | (rows + 1).astype(np.uint64)
        values = {**unsaid, **given, "type": int(kind), "process": process, "id": ids}
        for name, dtype in SPAN_COLUMNS.items():
            self.columns[name].append(np.broadcast_to(np.asarray(values[name]), shape).astype(dtype).ravel())
        self.count += process.size
        return ids, rows

    def spans(self, order: Array) -> dict[str, Array]:
        return {name: np.concatenate(parts)[order] for name, parts in self.columns.items()}


def make(job: Job) -> Made:
    rng = np.random.default_rng(job.seed)
    n, ranks = job.operations, job.ranks
    host_of = np.arange(ranks) * job.hosts // ranks
    offset = rng.integers(-job.clock_offset_ns, job.clock_offset_ns + 1, job.hosts)
    drift = rng.uniform(-job.drift_ppm, job.drift_ppm, job.hosts) * 1e-6
    offset[0], drift[0] = 0, 0.0
    late = rng.integers(0, ranks, n) if job.cause != "none" else np.full(n, -1)
    stalled = np.where(rng.random(n) < job.stalled, rng.integers(0, ranks, n), -1)
    times = _times(job, rng, late, stalled)
    made = Made(job, _frame(job, host_of), late, times["arrive"], times["begin"], times["end"], offset, drift, host_of)
    made.stalled = stalled
    _fill(made, times, rng)
    return made


def _times(job: Job, rng: np.random.Generator, late: Array, stalled: Array) -> dict[str, Array]:
    """True times; every operation's are relative to the end of the one before, so all are made at once."""
    shape = (job.operations, job.ranks)
    extra = np.where(np.arange(job.ranks) == late[:, None], job.late_ns, 0)
    tail = rng.integers(0, job.skew_ns + 1, job.ranks) + np.abs(rng.normal(0, job.jitter_ns / 2, shape)).astype(
        np.int64
    )
    before = np.vstack((np.zeros((1, job.ranks), np.int64), tail[:-1]))
    called = before + job.gap_ns + rng.normal(0, job.jitter_ns, shape).astype(np.int64)
    called += extra * (job.cause == "upstream")
    launched = called + 8_000 + rng.integers(0, 500, shape) + extra * (job.cause == "launch")
    free = before + 100_000 + (job.gap_ns + extra) * ((job.cause == "stream") & (extra > 0))
    arrive = called if job.style == "cpu" else np.maximum(launched + 3_000, free)
    moved = rng.integers(job.transfer_ns, job.transfer_ns * 11 // 10, job.operations) + 300_000 * (stalled >= 0)
    last = arrive.max(axis=1)
    origin = np.concatenate(([0], np.cumsum(last + moved)[:-1]))[:, None] + 1_000_000
    begin = origin + last[:, None]
    end = begin + moved[:, None] + tail
    return {
        "called": origin + called,
        "launched": origin + launched,
        "arrive": origin + arrive,
        "begin": begin,
        "end": end,
    }


def _frame(job: Job, host_of: Array) -> Recording:
    """Processes, threads and contexts; no events yet."""
    per_host = np.bincount(host_of, minlength=job.hosts)
    processes, threads, contexts, of_rank = [], [], [], []
    for rank in range(job.ranks):
        host = int(host_of[rank])
        if not job.threads or rank == 0 or host != host_of[rank - 1]:
            processes.append(_process(job, host, len(processes)))
        of_rank.append(len(processes) - 1)
        threads.append(Thread(len(processes) - 1, 1000 + rank, f"rank {rank}"))
    for communicator in range(job.communicators):
        for rank in range(job.ranks):
            name = f"dp{communicator}"
            facts = (0xABC0 + communicator, name, rank, job.ranks, job.hosts)
            contexts.append(Context(of_rank[rank], *facts, init_ns=0, finalize_ns=-1))
    assert per_host.sum() == job.ranks
    nothing = {name: np.zeros(0, dtype) for name, dtype in SPAN_COLUMNS.items()}
    states = {name: np.zeros(0, dtype) for name, dtype in STATE_COLUMNS.items()}
    return Recording(processes, threads, contexts, list(STRINGS), nothing, states, EPOCH)


def _process(job: Job, host: int, number: int) -> Process:
    boot = bytes([host + 1]) * 16
    path = f"host{host}.{number}.rec"
    mask = 4095 if job.style != "api" else 1792
    return Process(
        f"host{host}", 100 + number, 7 + 3 * number, "train", boot, 5, 22809, mask, False, True, "", path, self_ns=40.0
    )


def _fill(made: Made, times: dict[str, Array], rng: np.random.Generator) -> None:
    job, recording = made.job, made.recording
    shape = (job.operations, job.ranks)
    rank = np.broadcast_to(np.arange(job.ranks), shape)
    turn = np.broadcast_to((np.arange(job.operations) % job.communicators)[:, None], shape)
    thread_process = np.array([item.process for item in recording.threads])
    context = turn * job.ranks + rank
    process = thread_process[rank]
    blocks = _Blocks(np.array([item.tag for item in recording.processes]))

    def show(moment: Array, who: Array = rank) -> Array:
        return made.shown(who, moment)

    common: dict[str, Any] = {"thread": rank, "context": context, "rank": rank}
    what = {"function": 1, "data_type": 3, "count": 1 << 18}
    called, cpu = times["called"], job.style == "cpu"
    over = times["end"] if cpu else times["launched"] + 6_000
    group, _ = blocks.add(
        EventType.GROUP_API, process, **common, start=show(called - 800), stop=show(over + 700), detail=1
    )
    stream = 0 if cpu else 0x7F00
    api, _ = blocks.add(
        EventType.COLL_API,
        process,
        **common,
        **what,
        parent=group,
        start=show(called),
        stop=show(over + 300 if cpu else called + 2_000),
        stream=stream,
    )
    states: list[tuple[Array, Array, int]] = []
    if job.style != "api":
        number = np.broadcast_to((np.arange(job.operations) // job.communicators)[:, None], shape)
        work = {"algorithm": 4, "protocol": 5, "sequence": number, "parent": api, "channel": job.channels}
        begun = called + 400 if cpu else times["launched"] + 4_000
        coll, _ = blocks.add(
            EventType.COLL,
            process,
            **common,
            **what,
            **work,
            start=show(begun),
            stop=show(over if cpu else begun + 900),
        )
        if not cpu:
            start, stop = show(times["launched"]), show(times["launched"] + 3_000)
            blocks.add(EventType.KERNEL_LAUNCH, process, **common, parent=group, start=start, stop=stop, stream=stream)
            _kernels(made, blocks, coll, times, rng, common, process)
        if job.style == "net":
            states = _proxies(made, blocks, coll, times, common, process)
    start_column = np.concatenate(blocks.columns["start"])
    order = np.argsort(start_column, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    recording.spans = blocks.spans(order)
    if states:
        _states(recording, states, place)


def _kernels(
    made: Made,
    blocks: _Blocks,
    coll: Array,
    times: dict[str, Array],
    rng: np.random.Generator,
    common: dict[str, Any],
    process: Array,
) -> None:
    """Kernel channels with the stamps of GPU clocks that are of no host; the host sees them some time later."""
    job = made.job
    clock = EPOCH + rng.integers(-(10**9), 10**9, job.ranks)
    rate = rng.uniform(-20e-6, 20e-6, job.ranks)
    rank = common["rank"]
    for channel in range(job.channels):
        first = times["arrive"] + channel * 50
        last = times["end"] - channel * 30
        raw = [moment + clock[rank] + np.rint(moment * rate[rank]).astype(np.int64) for moment in (first, last)]
        seen = rng.integers(2_000, 40_000, first.shape)
        blocks.add(
            EventType.KERNEL_CH,
            process,
            **common,
            parent=coll,
            channel=channel,
            start=made.shown(rank, first + seen),
            stop=made.shown(rank, last + rng.integers(2_000, 40_000, first.shape)),
            gpu_start=raw[0],
            gpu_stop=raw[1],
        )


def _proxies(
    made: Made,
    blocks: _Blocks,
    coll: Array,
    times: dict[str, Array],
    common: dict[str, Any],
    process: Array,
) -> list[tuple[Array, Array, int]]:
    """One send and one receive of one step; a stalled rank's network takes 300 us more, and its neighbours wait."""
    job, rank = made.job, common["rank"]
    states: list[tuple[Array, Array, int]] = []
    slow = rank == made.stalled[:, None]
    for send in (1, 0):
        begin, end = times["begin"], times["end"]
        peer = (rank + 1) % job.ranks if send else (rank - 1) % job.ranks
        facts = {"channel": 0, "peer": peer, "detail": 1}
        op, _ = blocks.add(
            EventType.PROXY_OP,
            process,
            **common,
            **facts,
            parent=coll,
            start=made.shown(rank, begin),
            stop=made.shown(rank, end),
        )
        start, stop = made.shown(rank, begin + 500), made.shown(rank, end - 500)
        step, rows = blocks.add(EventType.PROXY_STEP, process, **common, parent=op, detail=0, start=start, stop=stop)
        assert step.shape == rank.shape
        # SendGPUWait, then SendPeerWait until the network has it in SendWait; RecvWait until it is there, RecvGPUWait.
        if send:
            waits = made.stalled[:, None] >= 0
            sending = np.where(slow | ~waits, begin + 3_000, end - 20_000)
            states += [
                (rows, start, 8),
                (rows, made.shown(rank, begin + 2_000), 20),
                (rows, made.shown(rank, sending), 9),
            ]
        else:
            states += [(rows, start, 10), (rows, made.shown(rank, end - 2_000), 12)]
    return states


def _states(recording: Recording, states: list[tuple[Array, Array, int]], place: Array) -> None:
    span = np.concatenate([place[rows].ravel() for rows, _, _ in states])
    time = np.concatenate([moment.ravel() for _, moment, _ in states])
    state = np.concatenate([np.full(rows.size, number) for rows, _, number in states])
    order = np.argsort(time, kind="stable")
    unsaid = np.full(len(span), -1)
    columns = {"span": span, "time": time, "state": state, "count": np.ones(len(span))}
    recording.states = {name: columns.get(name, unsaid)[order].astype(dtype) for name, dtype in STATE_COLUMNS.items()}


def keep(recording: Recording, mask: Array) -> None:
    """Takes all other spans out of a recording."""
    place = np.where(mask, np.cumsum(mask) - 1, -1)
    recording.spans = {name: column[mask] for name, column in recording.spans.items()}
    span = recording.states["span"].astype(np.int64)
    recording.states = dict(recording.states) | {"span": np.where(span >= 0, place[span], -1)}

"""Recordings of jobs that never ran, written as files, of which it is known who was late: what the report must find.

    python tests/python/verdict_jobs.py --jobs 200 --output FOLDER

makes that many jobs, reports on each, and writes what was right into FOLDER. The kinds of `KINDS` take turns; sizes and
times are drawn at random, by the number of the job. True time counts from 0, and every rank does the operations of its
communicators one after the other: it works, comes, waits for the last rank, moves data.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from recording_writer import ThreadWriter, Writer
from stretto.trace.analysis import Report, analyse
from stretto.trace.reader import load

US, MS = 1_000, 1_000_000
GPU_EPOCH = 10**15
REPLAYED, KERNEL_STOP = 1000, 22
FACTS: dict[str, int | str] = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 1 << 18}
ON_CPU = ("cpu", "blocking")
LateBy = Callable[[int, int], int]  # of a rank, before an operation


@dataclass
class Job:
    """What to make, and the truth about it. `late` is a rank's own delay before its operation of that number."""

    kind: str
    seed: int
    ranks: int
    operations: int
    communicators: list[list[int]]  # the ranks of each; they take turns, as ranks come to them
    late: LateBy
    guilty: set[int]
    shapes: set[str]  # those that the verdict may have
    style: str = "cpu"  # or gpu: kernels are recorded; net: proxies; calls: neither; graph: replays; blocking: calls
    known: bool = True  # whether anything that is recorded depends on who is guilty
    hosts: int = 1
    jitter: int = 3 * US
    hiccups: float = 0.0  # share of a rank's operations before which the scheduler takes it for milliseconds
    work: int = 300 * US
    transfer: int = 60 * US
    # Of asynchronous calls: a rank's own delay, its noise, how many operations lie between a call and the one whose end
    # it waits for (none, if empty), and whether it is the host that works between operations and waits for each.
    host_late: LateBy = field(default=lambda rank, number: 0)
    host_noise: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    stepped: bool = False
    skew: int = 400 * MS  # processes start at different times
    lose: dict[int, str] = field(default_factory=dict)  # ranks whose file is gone or damaged


# ---- what happens ------------------------------------------------------------------------------------------------


@dataclass
class Event:
    """One rank's part in one operation, in true time."""

    communicator: int
    sequence: int
    called: int
    arrive: int
    end: int


def played(job: Job, chance: random.Random) -> list[list[Event]]:
    """What each rank did."""
    free = [chance.randrange(job.skew) for _ in range(job.ranks)]
    host = list(free)
    done: list[list[Event]] = [[] for _ in range(job.ranks)]
    sequences = [0] * len(job.communicators)
    for number in range(job.operations):
        for communicator in turn(job, number):
            members = job.communicators[communicator]
            arrivals, calls = {}, {}
            for rank in members:
                work = job.work + round(chance.gauss(0, job.jitter)) + job.late(rank, number)
                taken = chance.randrange(4 * MS) if chance.random() < job.hiccups else 0
                work += 0 if job.host_noise else taken
                if job.style in ON_CPU or job.stepped:
                    calls[rank] = free[rank] + max(0, work)
                    arrivals[rank] = calls[rank] + (5 if job.stepped else 1) * US
                else:
                    if job.depths and job.depths[rank] <= len(done[rank]):
                        host[rank] = max(host[rank], done[rank][-job.depths[rank]].end)
                    host[rank] += 20 * US + chance.randrange(2 * US) + job.host_late(rank, number)
                    if job.host_noise:
                        host[rank] += round(abs(chance.gauss(0, job.host_noise[rank]))) + taken
                    calls[rank] = host[rank]
                    arrivals[rank] = max(calls[rank] + 5 * US, free[rank] + max(0, work))
            begin = max(arrivals.values())
            over = begin + job.transfer + chance.randrange(job.transfer // 10)
            for rank in members:
                end = over + chance.randrange(2 * US)
                done[rank].append(Event(communicator, sequences[communicator], calls[rank], arrivals[rank], end))
                free[rank] = end
            sequences[communicator] += 1
    return done


def waits(job: Job, done: list[list[Event]]) -> list[float]:
    """For which share of the time the others waited for each rank, in truth; of jobs with one communicator."""
    lost = [0] * job.ranks
    for events in list(zip(*done, strict=True))[1:]:
        arrivals = [event.arrive for event in events]
        *_, second, last = sorted(arrivals)
        lost[arrivals.index(last)] += last - second
    lasted = max(events[-1].end for events in done) - max(events[0].arrive for events in done)
    return [each / lasted for each in lost]


def turn(job: Job, number: int) -> list[int]:
    """The communicators of one step: all of one dimension of a grid, then all of the other."""
    if len(job.communicators) == 1:
        return [0]
    size = len(job.communicators[0])
    split = [one for one, members in enumerate(job.communicators) if len(members) == size and adjacent(members)]
    rest = [one for one in range(len(job.communicators)) if one not in split]
    return split if number % 2 == 0 else rest


def adjacent(members: list[int]) -> bool:
    return members == list(range(members[0], members[0] + len(members)))


# ---- how it is recorded ------------------------------------------------------------------------------------------


class Clock:
    """What a host's clock shows."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self._offset = 10**9 + (chance.randrange(10**9) if number else 0)
        self._drift = chance.uniform(-40e-6, 40e-6) if number else 0.0

    def __call__(self, moment: int) -> int:
        return moment + self._offset + round(moment * self._drift)


def write(job: Job, folder: Path) -> None:
    """Leaves one file for each rank in the folder, but for those that are lost."""
    chance = random.Random(job.seed)
    done = played(job, chance)
    clocks = [Clock(number, chance) for number in range(job.hosts)]
    for rank, events in enumerate(done):
        number = rank * job.hosts // job.ranks
        clock = clocks[number]
        ends = [(clock(at), clock(at), 10**18 + clock(at), 50) for at in (0, events[-1].end)]
        made = Writer(
            pid=100 + rank, host=f"host{number}", boot=bytes([65 + number]) * 16, anchors=ends, segment_bytes=1 << 18
        )
        _fill(job, made, rank, events, clock)
        path = made.write(folder)
        damage = job.lose.get(rank, "")
        if damage == "gone":
            path.unlink()
        elif damage == "torn":
            path.write_bytes(path.read_bytes()[:1000])


def _fill(job: Job, made: Writer, rank: int, events: list[Event], clock: Clock) -> None:
    contexts = {
        number: made.context(members.index(rank), len(members), communicator=0xC0 + number, name=f"comm{number}")
        for number, members in enumerate(job.communicators)
        if rank in members
    }
    caller, worker = made.thread(1000 + rank, "main"), made.thread(2000 + rank, "NCCL Progress")
    if job.style in ON_CPU:
        for event in events:
            _on_cpu(caller, contexts[event.communicator], event, clock, bare=job.style == "blocking")
        return
    gpu = Clock(1, random.Random(job.seed * 100 + rank))
    if job.style == "graph":
        _graph(caller, worker, contexts[0], events, clock, gpu)
        return
    colls = [_enqueued(caller, contexts[event.communicator], event, clock) for event in events]
    for event, coll in zip(events, colls, strict=True):
        if job.style == "gpu":
            _kernel(worker, coll, event, clock, gpu)
        elif job.style == "net":
            _proxy(worker, coll, contexts[event.communicator], event, clock)


def _on_cpu(thread: ThreadWriter, context: int, event: Event, clock: Clock, bare: bool) -> None:
    api = thread.start(9, clock(event.called), context=context, **FACTS)
    if not bare:
        number = {"sequence": event.sequence, "parent": api}
        coll = thread.start(1, clock(event.arrive), context=context, algorithm="RING", **number, **FACTS)
        thread.stop(coll, clock(event.end))
    thread.stop(api, clock(event.end) + 200)


def _enqueued(thread: ThreadWriter, context: int, event: Event, clock: Clock) -> int:
    at = clock(event.called)
    group = thread.start(8, at - 500, context=context, depth=1)
    api = thread.start(9, at, context=context, parent=group, stream=0x7F00, **FACTS)
    thread.stop(api, at + 1 * US)
    launch = thread.start(11, at + 2 * US, context=context, parent=group, stream=0x7F00)
    thread.stop(launch, at + 3 * US)
    coll = thread.start(1, at + 3500, context=context, parent=api, sequence=event.sequence, **FACTS)
    thread.stop(coll, at + 4 * US)
    thread.stop(group, at + 4500)
    return coll


def _kernel(thread: ThreadWriter, parent: int, event: Event, clock: Clock, gpu: Clock, replay: int = 0) -> None:
    seen = clock(event.end) + 5 * US
    kernel = thread.start(6, seen, parent=parent, channel=0, gpu=GPU_EPOCH + gpu(event.arrive))
    if replay:
        thread.state(kernel, seen, REPLAYED, replay)
    thread.state(kernel, seen, KERNEL_STOP, GPU_EPOCH + gpu(event.end))
    thread.stop(kernel, seen)


def _proxy(thread: ThreadWriter, parent: int, context: int, event: Event, clock: Clock) -> None:
    begin = max(clock(event.arrive), thread.ticks[-1] if thread.ticks else 0)
    proxy = thread.start(3, begin, context=context, parent=parent, channel=0, peer=1, steps=1, is_send=1)
    thread.stop(proxy, max(begin, clock(event.end)))


def _graph(
    caller: ThreadWriter, worker: ThreadWriter, context: int, events: list[Event], clock: Clock, gpu: Clock
) -> None:
    captured = caller.start(9, clock(events[0].called) - 50 * US, context=context, captured=1, stream=1, **FACTS)
    caller.stop(captured, clock(events[0].called) - 49 * US)
    for number, event in enumerate(events, 1):
        _kernel(worker, captured, event, clock, gpu, replay=number)


# ---- kinds of jobs -----------------------------------------------------------------------------------------------


def nobody(rank: int, number: int) -> int:
    return 0


def one_late(chance: random.Random, rank: int) -> LateBy:
    share, by = chance.uniform(0.4, 1.0), chance.randrange(60, 500) * US
    drawn = [chance.random() < share for _ in range(4000)]
    return lambda who, number: by if who == rank and drawn[number] else 0


def at_random(chance: random.Random, ranks: int) -> LateBy:
    share, by = chance.uniform(0.5, 1.0), chance.randrange(60, 500) * US
    drawn = [chance.randrange(ranks) if chance.random() < share else -1 for _ in range(4000)]
    return lambda who, number: by if who == drawn[number] else 0


def drifting(chance: random.Random, rank: int, operations: int) -> LateBy:
    most, falls = chance.randrange(150, 800) * US, chance.random() < 0.3
    return lambda who, number: (
        round(most * ((operations - number) if falls else number) / operations) if who == rank else 0
    )


def in_phases(chance: random.Random, ranks: int, operations: int) -> tuple[LateBy, set[int]]:
    """One rank after the other for a part of the run; or one, for a part in the middle."""
    by = chance.randrange(100, 500) * US
    if chance.random() < 0.3:
        rank, begin = chance.randrange(ranks), chance.uniform(0.2, 0.4)
        end = begin + chance.uniform(0.25, 0.4)
        return lambda who, number: by if who == rank and begin * operations <= number < end * operations else 0, {rank}
    order = [chance.randrange(ranks)]
    for _ in range(chance.randrange(1, 4)):
        order.append(chance.choice([one for one in range(ranks) if one != order[-1]]))
    return lambda who, number: by if who == order[number * len(order) // operations] else 0, set(order)


def _base(kind: str, seed: int, chance: random.Random) -> Job:
    ranks = chance.choice((2, 3, 4, 8))
    operations = chance.randrange(200, 500)
    job = Job(kind, seed, ranks, operations, [list(range(ranks))], nobody, set(), {"none"})
    if chance.random() < 0.25:
        job.hiccups, job.shapes = 0.02, {"none", "random"}
    return job


def _guilty(job: Job, chance: random.Random) -> Job:
    """Nobody, one rank or changing ranks are late."""
    draw = chance.randrange(3)
    if draw == 1:
        rank = chance.randrange(job.ranks)
        job.late, job.guilty, job.shapes = one_late(chance, rank), {rank}, {"steady"}
    elif draw == 2:
        job.late, job.shapes = at_random(chance, job.ranks), {"random"}
    return job


def balanced(job: Job, chance: random.Random) -> Job:
    job.jitter = chance.randrange(1, 6) * US
    return job


def one(job: Job, chance: random.Random) -> Job:
    rank = chance.randrange(job.ranks)
    job.late, job.guilty, job.shapes = one_late(chance, rank), {rank}, {"steady"}
    return job


def changing(job: Job, chance: random.Random) -> Job:
    job.late, job.shapes = at_random(chance, job.ranks), {"random"}
    return job


def drift(job: Job, chance: random.Random) -> Job:
    rank = chance.randrange(job.ranks)
    job.late, job.guilty, job.shapes = drifting(chance, rank, job.operations), {rank}, {"drift"}
    return job


def phases(job: Job, chance: random.Random) -> Job:
    job.late, job.guilty = in_phases(chance, job.ranks, job.operations)
    job.shapes = {"phases"}
    return job


def missing(job: Job, chance: random.Random) -> Job:
    """A file is gone or torn, of the guilty rank or of another: nobody in its communicators is guilty beyond doubt."""
    if chance.random() < 0.4:
        grid(job, chance)
    else:
        job.ranks = max(3, job.ranks)
        job.communicators = [list(range(job.ranks))]
    job = _guilty(job, chance)
    lost = chance.randrange(job.ranks)
    job.lose = {lost: chance.choice(("gone", "torn"))}
    job.guilty -= {lost}
    job.shapes = {"none", "random"} if not job.guilty else {"steady"}
    return job


def skewed(job: Job, chance: random.Random) -> Job:
    """Clocks of several hosts, up to a second apart and drifting by up to 40 ppm."""
    job.hosts = min(job.ranks, chance.choice((2, 3, 4)))
    return _guilty(job, chance)


def grid(job: Job, chance: random.Random) -> None:
    """Communicators along both dimensions of a grid of ranks: who waits in one is late to the other."""
    rows, columns = 2, chance.choice((2, 3, 4))
    job.ranks = rows * columns
    job.communicators = [[row * columns + column for column in range(columns)] for row in range(rows)]
    job.communicators += [[row * columns + column for row in range(rows)] for column in range(columns)]


def several(job: Job, chance: random.Random) -> Job:
    grid(job, chance)
    return _guilty(job, chance)


def graphs(job: Job, chance: random.Random) -> Job:
    job.style = "graph"
    return _guilty(job, chance)


def queued(job: Job, chance: random.Random) -> Job:
    """Calls that run ahead of the GPUs. One rank may call late without anybody waiting, as its queue is never empty."""
    job.style = chance.choice(("gpu", "net", "calls"))
    if chance.random() < 0.5:
        slow = chance.randrange(job.ranks)
        job.host_late = lambda who, number: 150 * US if who == slow else 0
    elif job.style == "gpu":
        job = _guilty(job, chance)
    return job if job.style == "gpu" else _unknown(job)


def _unknown(job: Job) -> Job:
    job.known, job.shapes = False, {"unknown"}
    return job


def _slow_host(job: Job, chance: random.Random, low: int, high: int) -> int:
    slow, by = chance.randrange(job.ranks), chance.randrange(low, high) * US
    job.host_late = lambda who, number: by if who == slow else 0
    return slow


def ahead(job: Job, chance: random.Random) -> Job:
    """Calls run ahead of the GPUs; one rank calls late without anybody waiting, or GPUs are late."""
    if chance.random() < 0.5:
        _slow_host(job, chance, 20, 200)
        return _unknown(job)
    return _unknown(_guilty(job, chance))


def full(job: Job, chance: random.Random) -> Job:
    """The same with queues that are full: a call waits for the end of an operation that lies further back."""
    job.depths = [chance.choice((4, 16, 64))] * job.ranks
    return ahead(job, chance)


def watching(job: Job, chance: random.Random) -> Job:
    """The same, but one rank waits for each result, as one that writes a log does. Its GPU works as long as others'."""
    job.hiccups, job.depths = 0.0, [64] * job.ranks
    job.depths[chance.randrange(job.ranks)] = 1
    return _unknown(_guilty(job, chance))


def stepped(job: Job, chance: random.Random) -> Job:
    """Programs that wait for each result before they work: who calls late keeps the others waiting."""
    job.stepped, job.host_noise = True, []
    return _guilty(job, chance)


def behind(job: Job, chance: random.Random) -> Job:
    """Programs that wait for each result, and GPUs that work longer than the hosts take to call."""
    job.depths = [1] * job.ranks
    if chance.random() < 0.5:
        _slow_host(job, chance, 20, 200)
        return _unknown(job)
    return _unknown(_guilty(job, chance))


def starved(job: Job, chance: random.Random) -> Job:
    """Calls run ahead on all ranks but one, whose GPU is idle until it calls: with proxies, ends say so."""
    job.skew = 50 * US
    job.guilty, job.shapes = {_slow_host(job, chance, 450, 900)}, {"steady"}
    return job if job.style == "net" else _unknown(job)


def _asynchronous(job: Job, chance: random.Random, style: str) -> Job:
    """Host's noise differs from rank to rank: who is calm is late by the same each time, and others are early by more
    and less.
    """
    job.style = style
    job.host_noise = [chance.randrange(1, 20) * US for _ in range(job.ranks)]
    return chance.choice((ahead, full, watching, stepped, stepped, stepped, behind, starved))(job, chance)


def proxies(job: Job, chance: random.Random) -> Job:
    return _asynchronous(job, chance, "net")


def calls(job: Job, chance: random.Random) -> Job:
    return _asynchronous(job, chance, "calls")


def blocking(job: Job, chance: random.Random) -> Job:
    """Calls alone, of CPU ranks: they return when the operation is over."""
    job.style = "blocking"
    return _guilty(job, chance)


def hidden(job: Job, chance: random.Random) -> Job:
    """Programs that wait for each result. One rank always calls late and GPUs work longer, so nobody waits for it; now
    and then another rank, or any, is held up for longer than that. No rank costs more than others that are held up.
    """
    job.style, job.ranks, job.hiccups = chance.choice(("net", "calls")), chance.choice((4, 8)), 0.0
    job.communicators, job.depths = [list(range(job.ranks))], [1] * job.ranks
    job.host_noise = [chance.randrange(1, 10) * US] * job.ranks
    job.shapes = {"unknown", "random"}
    slow, by, share = chance.randrange(job.ranks), chance.randrange(60, 200) * US, chance.uniform(0.2, 0.5)
    if chance.random() < 0.3:
        job.hiccups, share = chance.uniform(0.05, 0.15), 0.0
    others = [rank for rank in range(job.ranks) if rank != slow]
    held = [(chance.choice(others) if chance.random() < share else -1, chance.randrange(4 * MS)) for _ in range(4000)]
    job.host_late = lambda who, number: by if who == slow else held[number][1] if who == held[number][0] else 0
    return job


KINDS: dict[str, Callable[[Job, random.Random], Job]] = {
    one_kind.__name__: one_kind
    for one_kind in (
        *(balanced, one, changing, drift, phases, missing, skewed, several, graphs),
        *(queued, proxies, calls, blocking, hidden),
    )
}


def draw(number: int, kind: str = "") -> Job:
    """Job `number` of the table, always the same; of another kind than its own, if that is named."""
    kind = kind or list(KINDS)[number % len(KINDS)]
    chance = random.Random(number)
    return KINDS[kind](_base(kind, number, chance), chance)


# ---- whether the report is right ---------------------------------------------------------------------------------


@dataclass
class Answer:
    """What the report said of a job; `wrong` is empty if that is true, `innocent` if nobody else is beyond doubt."""

    number: int
    kind: str
    style: str
    ranks: int
    operations: int
    guilty: list[int]
    known: bool
    said: str
    found: list[int]
    certain: bool
    wrong: list[str]
    innocent: list[str]


def answer(number: int, folder: Path, kind: str = "") -> Answer:
    """Makes a job in an empty folder and reports on it."""
    job = draw(number, kind)
    write(job, folder)
    report = analyse(load(folder, align=False))
    verdict = report.verdict
    found = {rank_of(report, item.worker_number): item.certain for item in verdict.findings}
    innocent = [f"rank {rank} beyond doubt" for rank, certain in found.items() if certain and rank not in job.guilty]
    wrong = list(innocent)
    sure = job.style not in ("net", "calls") and not job.lose
    expected = job.guilty if job.known else set()
    if job.lose:
        wrong += [] if verdict.missing else ["does not say what is missing"]
        innocent += _named_without_evidence(report)
    wrong += [] if set(found) == expected else [f"found {sorted(found)} where {sorted(expected)} was right"]
    wrong += [] if verdict.shape in job.shapes else [f"shape {verdict.shape} is none of {sorted(job.shapes)}"]
    if verdict.certain != sure:
        wrong.append("certain" if verdict.certain else "not certain")
    return Answer(
        *(number, job.kind, job.style, job.ranks, job.operations, sorted(job.guilty), job.known),
        *(verdict.shape, sorted(found), verdict.certain, wrong, innocent),
    )


def _named_without_evidence(report: Report) -> list[str]:
    """Operations that name a rank for certain though a rank of their communicator is missing."""
    operations = report.operations
    lacking = [number for number, item in enumerate(operations.communicators) if item.recorded < item.ranks]
    named = int(report.lateness.named[np.isin(operations.communicator, lacking)].sum())
    return [f"{named} operations name a rank"] if named else []


def rank_of(report: Report, worker: int) -> int:
    """The rank in the whole job: by the process, which the generator numbers so."""
    context = int((report.operations.worker_of == worker).argmax())
    return report.recording.processes[report.recording.contexts[context].process].pid - 100


def table(answers: list[Answer]) -> str:
    """Markdown: one row for each kind."""
    names = ("jobs", "a rank is guilty", "cannot be known", "verdict right", "an innocent rank named", "beyond doubt")
    lines = [f"| kind | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for kind in [*KINDS, "all"]:
        mine = [one for one in answers if kind in (one.kind, "all")]
        if not mine:
            continue
        counts = (
            [bool(one.guilty) for one in mine],
            [not one.known for one in mine],
            [not one.wrong for one in mine],
            [bool(set(one.found) - set(one.guilty)) for one in mine],
            [bool(one.innocent) for one in mine],
        )
        lines.append(f"| {kind} | {len(mine)} | {' | '.join(str(sum(count)) for count in counts)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    asked = argparse.ArgumentParser(description="Says how often the report is right about jobs whose truth is known.")
    asked.add_argument("--jobs", type=int, default=200)
    asked.add_argument("--first", type=int, default=0, help="number of the first job")
    asked.add_argument("--kind", choices=list(KINDS), default="", help="all of this kind, in place of each in turn")
    asked.add_argument("--output", type=Path, help="folder for table.md and jobs.json")
    options = asked.parse_args()
    answers = []
    for number in range(options.first, options.first + options.jobs):
        with tempfile.TemporaryDirectory() as folder:
            answers.append(answer(number, Path(folder), options.kind))
        if answers[-1].wrong or answers[-1].innocent:
            print(asdict(answers[-1]), file=sys.stderr)
    print(table(answers))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "table.md").write_text(table(answers), encoding="utf-8")
        listed = ",\n".join(json.dumps(asdict(one)) for one in answers)
        (options.output / "jobs.json").write_text(f"[\n{listed}\n]\n", encoding="utf-8")
    return 0 if not any(one.innocent for one in answers) else 1


if __name__ == "__main__":
    sys.exit(main())

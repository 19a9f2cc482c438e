"""Puts the clocks of all hosts and GPUs of a recording on one: that of the recording's first process.

Processes of one boot of one host share a clock. Clocks of several hosts, and of GPUs, are linked by the operations that
no rank can end before the last began: an end on one is later than any start on the other, which bounds the offset; and
all end at nearly the same time, which finds it within these bounds. A GPU's clock is linked to its host's by causality
alone: a kernel starts after its launch and is seen after it stopped. `align` gives the recording with all times moved;
`clocks_of` says how, and how well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from stretto.trace.clock_fit import IDENTITY, ClockMap, Evidence, Fit, chain, fit, reach
from stretto.trace.columns import NONE, Bool, Float, Int, dense, ints, runs, times
from stretto.trace.model import Columns, Process, Recording
from stretto.trace.operations import Operations, join
from stretto.trace.synchrony import synchronous

UNKNOWN_ERROR = -1  # of a process whose clock nothing links to the first one's
_BROKEN = 0.05  # more than this share of impossible orders, and the link stands on ends that are none


@dataclass(frozen=True)
class Alignment:
    """Maps to the recording's clock. Errors are half-widths in ns; infinite where nothing links a clock to others."""

    host_of: Int  # the host clock of each process
    hosts: list[ClockMap]
    host_error: Float  # if ranks of several hosts end operations together
    host_most: Float  # by what came before what alone
    host_home: Int  # clocks with the same home can be compared
    gpu_of: Int  # the GPU clock of each context
    gpus: list[ClockMap]
    gpu_error: Float  # between GPUs
    gpu_home: Int
    gpu_host_error: Float  # between a GPU and the hosts
    synchronous: Bool  # of each context: its events end with the operation
    notes: list[str] = field(default_factory=list)

    def host_time(self, process: Int, moments: Int) -> Int:
        """Host times of these processes on the recording's clock; NONE stays."""
        return _mapped(self.hosts, self.host_of[process] if len(self.host_of) else process, moments)

    def gpu_time(self, context: Int, moments: Int) -> Int:
        """GPU times of these contexts on the recording's clock; NONE stays."""
        return _mapped(self.gpus, self.gpu_of[context] if len(self.gpu_of) else context, moments)


def align(recording: Recording) -> Recording:
    """The recording with every time on the clock of its first process; `Process` says what was added, and the error."""
    return moved(recording, clocks_of(recording, join(recording)))


def clocks_of(recording: Recording, operations: Operations) -> Alignment:
    """How the clocks relate, by what `join` found."""
    host_of = _host_clocks(recording.processes)
    gpu_of = _gpu_clocks(recording)
    answer, host_links = _host_links(operations, host_of)
    gpu_links = _gpu_links(operations, gpu_of)
    hosts, gpus = int(host_of.max(initial=-1)) + 1, int(gpu_of.max(initial=-1)) + 1
    gpu_spans = _spans(gpu_of[operations.context], (operations.gpu_start, operations.gpu_stop), gpus)
    gpu_maps, gpu_error, _, gpu_home = reach(gpus, gpu_links, gpu_spans, list(range(gpus)))
    # GPUs that are linked to each other are one clock to the hosts: the first one's. Its number comes after the hosts'.
    bridges = _bridges(operations, host_of, gpu_of, gpu_maps, gpu_home)
    count = hosts + gpus
    links = {**host_links, **{(host, hosts + gpu): found for (host, gpu), found in bridges.items()}}
    host_spans = _spans(host_of[ints(recording.spans, "process")], _stamps(recording), hosts)
    maps, error, most, home = reach(count, links, host_spans + gpu_spans, list(range(count)))
    roots = hosts + gpu_home
    return Alignment(
        host_of=host_of,
        hosts=maps[:hosts],
        host_error=error[:hosts],
        host_most=most[:hosts],
        host_home=home[:hosts],
        gpu_of=gpu_of,
        gpus=[chain(own, maps[root], span) for own, root, span in zip(gpu_maps, roots, gpu_spans, strict=True)],
        gpu_error=gpu_error,
        gpu_home=gpu_home,
        gpu_host_error=np.where(home[roots] < hosts, error[roots] + gpu_error, np.inf),
        synchronous=_of_contexts(recording, operations, answer),
        notes=_unlinked(recording, host_of, home),
    )


def _of_contexts(recording: Recording, operations: Operations, answers: Bool) -> Bool:
    result = np.zeros(max(1, len(recording.contexts)), np.bool_)
    for item, answer in zip(operations.communicators, answers, strict=True):
        result[list(item.contexts)] = answer
    return result


def _host_clocks(processes: list[Process]) -> Int:
    """Processes of one boot have one clock. A boot id of zeros says nothing."""
    keys = [item.boot if any(item.boot) else (number, item.host) for number, item in enumerate(processes)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _gpu_clocks(recording: Recording) -> Int:
    """A worker's contexts are on one GPU. Where a process has several workers, its contexts are taken one by one."""
    mates: dict[tuple[int, int], int] = {}
    for context in recording.contexts:
        key = (context.process, context.communicator)
        mates[key] = mates.get(key, 0) + 1
    crowded = {process for (process, _), count in mates.items() if count > 1}
    keys = [(item.process, number if item.process in crowded else -1) for number, item in enumerate(recording.contexts)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def _synchronising(operations: Operations) -> Bool:
    """Rows of operations that none leaves before all came, as far as one can tell by the function. Of those that are
    made of sends and receives every rank's part has to be there.
    """
    complete = (
        operations.sizes == np.array([item.ranks for item in operations.communicators] or [0])[operations.communicator]
    )
    whole = np.isin(operations.function, operations.exchanging) & complete
    return np.asarray((np.isin(operations.function, operations.synchronising) | whole)[operations.operation], np.bool_)


def _host_links(operations: Operations, host_of: Int) -> tuple[Bool, dict[tuple[int, int], Fit]]:
    """Which communicators' events end with the operation, and the links between hosts that these give. Of others the
    proxies of a network do, where there are some.
    """
    usable = _synchronising(operations)
    clock = host_of[operations.process]
    answer = synchronous(operations, usable, clock)
    links: dict[tuple[int, int], Fit] = {}
    # A second time without those communicators whose ends, by several clocks, cannot be what they were taken for.
    for _ in range(2):
        own = answer[operations.communicator][operations.operation]
        end = np.where(own, operations.host_end, operations.proxy_end)
        start = np.where(own & (operations.began > NONE), operations.began, operations.called)
        links = _links(operations, usable & (end > NONE) & (start > NONE), clock, start, end)
        bad = {pair for pair, found in links.items() if found.broken > _BROKEN}
        if not bad:
            break
        links = {pair: found for pair, found in links.items() if pair not in bad}
        involved = usable & np.isin(clock, list({side for pair in bad for side in pair}))
        answer[np.unique(operations.communicator[operations.operation[involved]])] = False
    return answer, links


def _gpu_links(operations: Operations, gpu_of: Int) -> dict[tuple[int, int], Fit]:
    usable = _synchronising(operations) & (operations.gpu_stop > NONE)
    if not usable.any():
        return {}
    return _links(operations, usable, gpu_of[operations.context], operations.gpu_start, operations.gpu_stop)


def _links(operations: Operations, usable: Bool, clock: Int, start: Int, end: Int) -> dict[tuple[int, int], Fit]:
    """Links from each operation's clocks to the lowest one among them, with all operations that two clocks share."""
    rows = np.flatnonzero(usable).astype(np.int64)
    if len(rows) == 0 or clock[rows].min() == clock[rows].max():
        return {}
    operation, own = operations.operation[rows], clock[rows]
    lasted = np.full(operations.count, np.iinfo(np.int64).max)
    np.minimum.at(lasted, operation, end[rows] - start[rows])
    order = np.lexsort((own, operation))
    key = dense(operation, own)[order]
    first = runs(key)
    latest = np.maximum.reduceat(start[rows][order], first)
    earliest = np.minimum.reduceat(end[rows][order], first)
    operation, own = operation[order][first], own[order][first]
    begins = runs(operation)
    hub = np.repeat(begins, np.diff(np.append(begins, len(operation))))
    other = np.flatnonzero(hub != np.arange(len(hub)))
    hub = hub[other]
    pair = dense(own[other], own[hub])
    links: dict[tuple[int, int], Fit] = {}
    for rows in _each(pair):
        mine, theirs = other[rows], hub[rows]
        evidence = Evidence(
            before=(latest[mine], earliest[theirs]),
            after=(earliest[mine], latest[theirs]),
            same=(earliest[mine], earliest[theirs]),
            lasted=lasted[operation[mine]],
        )
        found = fit(evidence)
        if found is not None:
            links[int(own[mine[0]]), int(own[theirs[0]])] = found
    return links


def _bridges(
    operations: Operations, host_of: Int, gpu_of: Int, maps: list[ClockMap], home: Int
) -> dict[tuple[int, int], Fit]:
    """Links from host clocks to the clocks of the first GPUs of those that are linked."""
    bridges: dict[tuple[int, int], Fit] = {}
    rows = np.flatnonzero(operations.gpu_stop > NONE).astype(np.int64)
    if len(rows) == 0:
        return bridges
    gpu, host = gpu_of[operations.context[rows]], host_of[operations.process[rows]]
    start = _mapped(maps, gpu, operations.gpu_start[rows])
    stop = _mapped(maps, gpu, operations.gpu_stop[rows])
    launch = np.where(operations.launched[rows] > NONE, operations.launched[rows], operations.called[rows])
    seen = operations.seen[rows]
    for here in _each(dense(host, home[gpu])):
        early, late = here[launch[here] > NONE], here[seen[here] > NONE]
        found = fit(Evidence(before=(launch[early], start[early]), after=(seen[late], stop[late])))
        if found is not None:
            bridges[int(host[here[0]]), int(home[gpu[here[0]]])] = found
    return bridges


def _each(keys: Int) -> list[Int]:
    """The rows of each key."""
    order = np.argsort(keys, kind="stable").astype(np.int64)
    return np.split(order, runs(keys[order])[1:]) if len(keys) else []


def _spans(clock: Int, stamps: tuple[Int, ...], count: int) -> list[tuple[int, int]]:
    """From the first to the last time that each clock said."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    for values in stamps:
        there = values > NONE
        np.minimum.at(low, clock[there], values[there])
        np.maximum.at(high, clock[there], values[there])
    return [(int(a), int(b)) if b > NONE else (0, 1) for a, b in zip(low, high, strict=True)]


def _stamps(recording: Recording) -> tuple[Int, ...]:
    return (ints(recording.spans, "start"), times(recording.spans, "stop"))


def _unlinked(recording: Recording, host_of: Int, home: Int) -> list[str]:
    notes = []
    for clock in range(int(host_of.max(initial=-1)) + 1):
        if home[clock] != 0:
            names = sorted({recording.processes[item].host for item in np.flatnonzero(host_of == clock)})
            other = recording.processes[int(np.argmax(host_of == home[clock]))].host if home[clock] != clock else ""
            tied = f"; it is aligned with that of {other}" if other else ""
            notes.append(f"nothing links the clock of {', '.join(names)} to that of the first process{tied}")
    return notes


def _mapped(maps: list[ClockMap], clock: Int, moments: Int) -> Int:
    result = moments.copy()
    for here in _each(clock):
        item = maps[int(clock[here[0]])] if maps else IDENTITY
        if item is not IDENTITY:
            there = here[moments[here] > NONE]
            result[there] = item(moments[there])
    return result


def moved(recording: Recording, alignment: Alignment) -> Recording:
    """The recording on one clock; it begins no later than its first event."""
    spans, states = dict(recording.spans), dict(recording.states)
    process = ints(spans, "process")
    start = alignment.host_time(process, ints(spans, "start"))
    stop = alignment.host_time(process, times(spans, "stop"))
    at = ints(states, "span")
    owner = np.where(at >= 0, process[at], -1) if len(process) else at
    time = ints(states, "time").copy()
    time[owner >= 0] = alignment.host_time(owner[owner >= 0], time[owner >= 0])
    early = min(0, int(start.min(initial=0)))
    spans["start"], spans["stop"] = start - early, np.where(stop > NONE, np.maximum(stop - early, 0), -1)
    states["time"] = time - early
    spans, states = _sorted(spans, states)
    contexts = [
        replace(
            item,
            init_ns=_one(alignment, item.process, item.init_ns) - early,
            finalize_ns=_last(alignment, item.process, item.finalize_ns, early),
        )
        for item in recording.contexts
    ]
    return replace(
        recording,
        processes=[_told(alignment, number, item) for number, item in enumerate(recording.processes)],
        contexts=contexts,
        spans=spans,
        states=states,
        origin_realtime_ns=recording.origin_realtime_ns + early,
        quality=replace(recording.quality, notes=recording.quality.notes + alignment.notes),
    )


def _one(alignment: Alignment, process: int, moment: int) -> int:
    return int(alignment.host_time(np.array([process]), np.array([moment]))[0])


def _last(alignment: Alignment, process: int, moment: int, early: int) -> int:
    return -1 if moment == -1 else _one(alignment, process, moment) - early


def _told(alignment: Alignment, number: int, process: Process) -> Process:
    clock = int(alignment.host_of[number])
    found, error = alignment.hosts[clock], float(alignment.host_error[clock])
    known = alignment.host_home[clock] == 0 and np.isfinite(error)
    return replace(
        process,
        offset_ns=process.offset_ns + found.offset_ns,
        drift_ppm=process.drift_ppm + found.slope * 1e6,
        error_ns=int(np.ceil(error)) if known else UNKNOWN_ERROR,
    )


def _sorted(spans: Columns, states: Columns) -> tuple[Columns, Columns]:
    order = np.argsort(ints(spans, "start"), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    at = ints(states, "span")
    states["span"] = np.where(at >= 0, place[at], -1) if len(order) else at
    by_time = np.argsort(ints(states, "time"), kind="stable")
    return (
        {name: column[order] for name, column in spans.items()},
        {name: column[by_time] for name, column in states.items()},
    )

"""Collective operations of a recording, joined across ranks by (communicator, function, sequence).

One row is one rank's part in one operation: when its API was called, when its kernel was launched, when the operation
began on it and ended. Host times are on the clock of the row's process, GPU times raw: nothing here compares clocks, so
that `align` can stand on it. Rows of an operation are neighbours, ordered by rank.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stretto.trace.columns import (
    NONE,
    Bool,
    Int,
    SpanIndex,
    dense,
    empty,
    ints,
    latest_before,
    ordinals,
    runs,
    take,
    times,
)
from stretto.trace.model import EventType, Recording
from stretto.trace.naming import nth

_SYNCHRONISING = ("AllReduce", "AllGather", "ReduceScatter", "AllReduceAddRmsNorm")
_EXCHANGING = ("AlltoAll", "AllToAll")
_NEVER = 1 << 62  # more than there are numbers
_GROUP_END = 24  # NCCL's state "GroupEndApiStart"
_REPLAYED = 1000  # Stretto's own, of a KernelCh: which operation of the communicator's kernels this replay is
_PARENTS = (EventType.GROUP_API, EventType.COLL_API, EventType.COLL, EventType.CE_COLL, EventType.PROXY_OP)


@dataclass(frozen=True)
class Communicator:
    """What the contexts of a communicator agree on."""

    number: int
    name: str
    ranks: int
    contexts: tuple[int, ...]
    recorded: int  # ranks of which there is a file
    counted: bool = True  # whether the files say how many ranks it has
    every: int = 1  # of each function's operations all ranks recorded those whose number is a multiple of it
    label: str = ""  # its name, or a part of its id, or both: no two have the same

    @property
    def complete(self) -> bool:
        """Whether there is a file of every rank."""
        return self.counted and self.recorded == self.ranks

    def goes_by(self, text: str) -> bool:
        """Whether someone who says `text` means this one."""
        try:
            number = int(text, 0)
        except ValueError:
            return text in (self.name, self.label)
        return text in (self.name, self.label) or _digits(number) == _digits(self.number)


@dataclass(frozen=True)
class Operations:
    """`first[i]:first[i + 1]` are the rows of operation i."""

    communicators: list[Communicator]
    # Of an operation.
    communicator: Int
    function: Int
    sequence: Int
    replay: Int  # 1 where a graph replayed it: the sequence is then counted by the kernels, in numbers of their own
    first: Int
    # Of a row.
    operation: Int
    context: Int
    process: Int
    rank: Int
    worker: Int
    coll: Int  # row in spans, -1 none
    api: Int
    group: Int
    stream: Int  # as the call names it; -1 unknown
    called: Int  # when the API was called; NONE unknown, as below
    launched: Int
    began: Int
    host_end: Int  # when the host's events of it were over: the operation too, where they are synchronous
    seen: Int  # when the host saw the kernel's end
    gpu_start: Int
    gpu_stop: Int
    proxy_end: Int
    pending: Int  # 1 where the recording ends before the call does
    alone: Int  # 1 where the row's group holds nothing else
    synchronising: Int  # functions after which no rank can end before the last one began
    exchanging: Int  # those of which this is so when all ranks take part
    workers: list[str] = field(default_factory=list)
    worker_of: Int = field(default_factory=empty)  # of each context
    samples: list[str] = field(default_factory=list)  # in words, where not every operation was recorded
    notes: list[str] = field(default_factory=list)
    suspects: int = 0  # kernel stamps that cannot be

    @property
    def count(self) -> int:
        return len(self.communicator)

    @property
    def sizes(self) -> Int:
        return np.diff(self.first)


_OF_OPERATION = ("communicator", "function", "sequence", "replay")
_OF_ROW = (
    *("context", "process", "rank", "worker", "coll", "api", "group", "stream", "called", "launched", "began"),
    *("host_end", "seen", "gpu_start", "gpu_stop", "proxy_end", "pending", "alone"),
)


def only(operations: Operations, communicators: list[int], keep: Bool) -> Operations:
    """The operations of some communicators, which are numbered anew; `keep` says which of all these are."""
    number = np.full(len(operations.communicators), -1, np.int64)
    number[communicators] = np.arange(len(communicators))
    kept = chosen(operations, keep)
    return replace(
        kept,
        communicators=[operations.communicators[item] for item in communicators],
        communicator=number[kept.communicator],
    )


def chosen(operations: Operations, keep: Bool) -> Operations:
    """Some of the operations, of the same communicators."""
    rows = keep[operations.operation] if operations.count else np.zeros(0, np.bool_)
    changed: dict[str, Any] = {name: getattr(operations, name)[keep] for name in _OF_OPERATION}
    changed |= {name: getattr(operations, name)[rows] for name in _OF_ROW}
    sizes = operations.sizes[keep]
    return replace(
        operations,
        first=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        operation=np.repeat(np.arange(len(sizes)), sizes),
        **changed,
    )


def join(recording: Recording) -> Operations:
    """All collectives of a recording."""
    communicators, of_context = communicators_of(recording)
    notes: list[str] = []
    index = SpanIndex(recording, _PARENTS)
    coll, api, sequence = _shared(recording, communicators, of_context, _rows(recording, of_context, index, notes))
    calls, replay, numbers = _replays(recording, index)
    coll = np.concatenate((coll, np.full(len(calls), -1, np.int64)))
    api, sequence = np.concatenate((api, calls)), np.concatenate((sequence, numbers))
    replay = np.concatenate((np.full(len(coll) - len(calls), -1, np.int64), replay))
    source = np.where(coll >= 0, coll, api)
    spans = recording.spans
    context, function = take(ints(spans, "context"), source), take(ints(spans, "function"), source)
    ranks = np.array([item.rank for item in recording.contexts] or [0], np.int64)
    kind = take(ints(spans, "type"), np.where(replay >= 0, replay, source))
    communicator, rank = of_context[context], ranks[context]
    called = take(ints(spans, "start"), np.where(replay >= 0, replay, np.where(api >= 0, api, coll)))
    repeat = ordinals(dense(communicator, rank, kind, function, sequence), called)
    order = np.lexsort((rank, repeat, sequence, function, kind, communicator))
    coll, api, source, replay = coll[order], api[order], source[order], replay[order]
    number = dense(communicator[order], kind[order], function[order], sequence[order], repeat[order])
    first = runs(number)
    stamps, suspects = _stamps(recording, coll, np.where(replay >= 0, -1, api), index)
    for name, column in (("gpu_start", "gpu_start"), ("gpu_stop", "gpu_stop"), ("seen", "stop")):
        stamps[name] = np.where(replay >= 0, take(ints(spans, column), replay), stamps[name])
    workers, names = workers_of(recording, communicators)
    return Operations(
        communicators=communicators,
        communicator=communicator[order][first],
        function=function[order][first],
        sequence=sequence[order][first],
        replay=(replay[first] >= 0).astype(np.int64),
        first=np.append(first, len(number)).astype(np.int64),
        operation=number,
        context=context[order],
        process=take(ints(spans, "process"), source),
        rank=rank[order],
        worker=workers[context[order]],
        coll=coll,
        api=api,
        synchronising=_functions(recording, _SYNCHRONISING),
        exchanging=_functions(recording, _EXCHANGING),
        workers=names,
        worker_of=workers,
        samples=_sample_notes(recording, communicators),
        notes=notes,
        suspects=suspects,
        **stamps,
    )


def _functions(recording: Recording, names: tuple[str, ...]) -> Int:
    known = [number for number, text in enumerate(recording.strings) if text.removeprefix("nccl") in names]
    return np.array(known, np.int64)


def communicators_of(recording: Recording) -> tuple[list[Communicator], Int]:
    """The communicators in order of their first context, and each context's number among them."""
    members: dict[int, list[int]] = {}
    for number, context in enumerate(recording.contexts):
        members.setdefault(context.communicator, []).append(number)
    found, of_context = [], np.zeros(max(1, len(recording.contexts)), np.int64)
    for place, (number, contexts) in enumerate(members.items()):
        of_context[contexts] = place
        facts = [recording.contexts[context] for context in contexts]
        name = next((fact.name for fact in facts if fact.name), "")
        ranks = max(1, *(fact.ranks for fact in facts), *(1 + fact.rank for fact in facts))
        recorded = len({fact.rank for fact in facts})
        every = min(math.lcm(*{fact.every for fact in facts}), _NEVER)
        counted = any(fact.ranks > 0 for fact in facts)
        found.append(Communicator(number, name, ranks, tuple(contexts), recorded, counted, every))
    return _labelled(found), of_context


def _labelled(communicators: list[Communicator]) -> list[Communicator]:
    names = Counter(item.name for item in communicators)
    short = Counter(_digits(item.number)[:8] for item in communicators)
    made = []
    for item in communicators:
        part = _digits(item.number)[:8] if short[_digits(item.number)[:8]] == 1 else _digits(item.number)
        label = part if not item.name else item.name if names[item.name] == 1 else f"{item.name}@{part}"
        made.append(replace(item, label=label))
    return made


def _digits(number: int) -> str:
    return f"{number & 0xFFFFFFFFFFFFFFFF:016x}"


def _rows(recording: Recording, of_context: Int, index: SpanIndex, notes: list[str]) -> tuple[Int, Int, Int]:
    """(Coll, CollApi, sequence) of every row. Calls of functions without Coll in a communicator are counted."""
    spans = recording.spans
    kind, context, function = ints(spans, "type"), ints(spans, "context"), ints(spans, "function")
    known = (context >= 0) & (context < len(recording.contexts)) & (function > 0)
    sequence = ints(spans, "sequence")
    is_coll = (kind == EventType.COLL) | (kind == EventType.CE_COLL)
    coll = np.flatnonzero(known & is_coll & (sequence >= 0)).astype(np.int64)
    calls = np.flatnonzero(known & (kind == EventType.COLL_API)).astype(np.int64)
    parent = index.parents(coll)
    parent = np.where(take(kind, parent) == EventType.COLL_API, parent, -1)
    functions = len(recording.strings) + 1
    pair = of_context[np.maximum(context, 0)] * functions + function
    bare = calls[~np.isin(pair[calls], np.unique(pair[coll]))]
    bare = bare[_countable(recording, notes)[ints(spans, "process")[bare]]] if len(bare) else bare
    every = every_of(recording)
    # What is captured into a graph runs when that is replayed, not when it is called.
    bare = bare[ints(spans, "flag")[bare] != 1]
    count = ordinals(context[bare] * functions + function[bare], ints(spans, "start")[bare]) * every[context[bare]]
    return (
        np.concatenate((coll, np.full(len(bare), -1, np.int64))),
        np.concatenate((parent, bare)),
        np.concatenate((sequence[coll], count)),
    )


def _replays(recording: Recording, index: SpanIndex) -> tuple[Int, Int, Int]:
    """(CollApi that was captured, KernelCh, number) of every replay of a graph. Of the operation's first block: the
    communicator's first, which is part of all operations, or one of several that share a launch. Its numbers are the
    communicator's; those of others are their own.
    """
    spans, states = recording.spans, recording.states
    rows = np.flatnonzero((ints(states, "state") == _REPLAYED) & (ints(states, "span") >= 0)).astype(np.int64)
    kernel, number = ints(states, "span")[rows], ints(states, "argument")[rows]
    kind, context = ints(spans, "type"), ints(spans, "context")
    call = index.parents(kernel)
    begin, end = ints(spans, "gpu_start")[kernel], ints(spans, "gpu_stop")[kernel]
    of = take(context, call)
    channel = ints(spans, "channel")[kernel]
    good = (kind[kernel] == EventType.KERNEL_CH) & (number > 0) & (channel >= 0)
    good &= (begin > 0) & (end >= begin) & (take(kind, call) == EventType.COLL_API)
    first = np.full(len(kind), np.iinfo(np.int64).max)
    np.minimum.at(first, call[good], channel[good])
    good &= channel == take(first, call)
    good &= (of >= 0) & (of < len(recording.contexts)) & (take(ints(spans, "function"), call) > 0)
    return call[good], kernel[good], number[good]


def every_of(recording: Recording) -> Int:
    """Of each context, that one operation of each function is recorded in so many."""
    return np.array([item.every for item in recording.contexts] or [1], np.int64)


def _shared(
    recording: Recording, communicators: list[Communicator], of_context: Int, rows: tuple[Int, Int, Int]
) -> tuple[Int, Int, Int]:
    """The rows of operations that all ranks of their communicator recorded, where these recorded different samples."""
    coll, api, sequence = rows
    context = take(ints(recording.spans, "context"), np.where(coll >= 0, coll, api))
    every = np.array([item.every for item in communicators] or [1], np.int64)
    kept = sequence % every[of_context[context]] == 0
    return coll[kept], api[kept], sequence[kept]


def _sample_notes(recording: Recording, communicators: list[Communicator]) -> list[str]:
    """What there is to say of communicators of which not every operation was recorded."""
    alike: dict[tuple[int, ...], list[Communicator]] = {}
    for item in communicators:
        every = {recording.contexts[context].every for context in item.contexts}
        alike.setdefault(tuple(sorted(every)), []).append(item)
    notes = []
    for recorded, items in alike.items():
        names = ", ".join(item.label for item in items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
        where = f" on {names}" if len(alike) > 1 else ""
        if len(recorded) > 1:
            others = " and ".join(f"every {nth(number)}" for number in recorded)
            common = f"every {nth(items[0].every)}" if items[0].every < _NEVER else "the first"
            notes.append(
                f"ranks recorded different samples{where} ({others}): {common} operation of each function is looked at"
            )
        elif recorded[0] > 1:
            notes.append(f"every {nth(recorded[0])} operation of each function was recorded{where}")
    return notes


def _countable(recording: Recording, notes: list[str]) -> Bool:
    """Processes whose calls can be counted: none of them is lost."""
    lost = recording.quality.overwritten > 0
    good = np.array([item.dropped == 0 and not (item.flight and lost) for item in recording.processes], np.bool_)
    if not good.all():
        notes.append(
            f"{int((~good).sum())} processes lost events: their calls without a sequence number are not joined"
        )
    return good


def _stamps(recording: Recording, coll: Int, api: Int, index: SpanIndex) -> tuple[dict[str, Int], int]:
    spans = recording.spans
    kind, start, stop = ints(spans, "type"), ints(spans, "start"), times(spans, "stop")
    group = index.parents(np.where(api >= 0, api, coll))
    group = np.where(take(kind, group) == EventType.GROUP_API, group, -1)
    called, began = take(start, api, NONE), take(start, coll, NONE)
    launched = _launches(recording, index, group, np.where(coll >= 0, coll, api))
    kernel, suspects = _kernels(recording, index, coll)
    rows, children = _children(recording, index, coll, EventType.PROXY_OP)
    proxy_end = np.full(len(coll), NONE, np.int64)
    np.maximum.at(proxy_end, rows, stop[children])
    issued = _issued(recording, group)
    ended = [take(stop, item, NONE) for item in (coll, api, group)]
    # The event of the operation itself ends with it if any does; else the call, or a group that has no other.
    alone = _alone(group) & _is_whole(recording, group)
    end = np.where(coll >= 0, ended[0], np.where(alone, np.maximum(ended[1], ended[2]), ended[1]))
    pending = ((coll >= 0) & (ended[0] == NONE)) | ((api >= 0) & (ended[1] == NONE))
    return {
        "group": group,
        "stream": take(ints(spans, "stream"), api),
        "called": called,
        "launched": launched,
        "began": np.where(coll >= 0, began, np.where(issued > called, issued, NONE)),
        "host_end": np.where(pending, NONE, end),
        "proxy_end": proxy_end,
        "pending": pending.astype(np.int64),
        "alone": alone.astype(np.int64),
        **kernel,
    }, suspects


def _alone(group: Int) -> Bool:
    """Rows whose group holds nothing else, or that have none."""
    _, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    return np.asarray((counts[inverse] == 1) | (group < 0), np.bool_)


def _is_whole(recording: Recording, group: Int) -> Bool:
    """Whether all that a row's group holds is recorded: of a sample, only where the call is a group of its own."""
    spans = recording.spans
    every = every_of(recording)[np.maximum(take(ints(spans, "context"), group), 0)]
    return np.asarray((every == 1) | (take(ints(spans, "detail"), group) == 1), np.bool_)


def _issued(recording: Recording, group: Int) -> Int:
    """When the outermost group of each row was ended: only then do its operations begin."""
    states = recording.states
    chosen = (ints(states, "state") == _GROUP_END) & (ints(states, "span") >= 0)
    moments = np.full(len(recording.spans["type"]), NONE, np.int64)
    moments[ints(states, "span")[chosen]] = ints(states, "time")[chosen]
    return take(moments, group, NONE)


def _launches(recording: Recording, index: SpanIndex, group: Int, source: Int) -> Int:
    """The start of the launch that brought each row to its stream: the group's latest of that context before it."""
    spans = recording.spans
    start, context = ints(spans, "start"), ints(spans, "context")
    launches = np.flatnonzero(spans["type"] == EventType.KERNEL_LAUNCH).astype(np.int64)
    parents = index.parents(launches)
    launches, parents = launches[parents >= 0], parents[parents >= 0]
    width = len(recording.contexts) + 1
    spot = latest_before(
        parents * width + context[launches] + 1,
        start[launches],
        np.where(group >= 0, group * width + take(context, source) + 1, -1),
        take(start, source),
    )
    return take(start, take(launches, spot), NONE)


def _children(recording: Recording, index: SpanIndex, coll: Int, kind: EventType) -> tuple[Int, Int]:
    """(row, span) of all spans of a type whose parent is a row's Coll."""
    children = np.flatnonzero(recording.spans["type"] == kind).astype(np.int64)
    if len(children) == 0 or len(coll) == 0:
        return empty(), empty()
    row_of = np.full(len(recording.spans["type"]) + 1, -1, np.int64)
    row_of[coll[coll >= 0]] = np.flatnonzero(coll >= 0)
    rows = take(row_of, index.parents(children))
    return rows[rows >= 0], children[rows >= 0]


def _kernels(recording: Recording, index: SpanIndex, coll: Int) -> tuple[dict[str, Int], int]:
    """First channel's start to last channel's stop, as the GPU stamped them; NONE where a stamp is suspect."""
    spans, count = recording.spans, len(coll)
    rows, children = _children(recording, index, coll, EventType.KERNEL_CH)
    begin, end = ints(spans, "gpu_start")[children], ints(spans, "gpu_stop")[children]
    good = (begin > 0) & (end >= begin)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, NONE, np.int64)
    np.minimum.at(first, rows[good], begin[good])
    np.maximum.at(last, rows[good], end[good])
    bad = np.zeros(count, np.bool_)
    bad[rows[~good]] = True
    bad |= last == NONE
    seen = np.full(count, NONE, np.int64)
    np.maximum.at(seen, rows, times(spans, "stop")[children])
    bad |= _overlapping(take(ints(spans, "context"), coll), take(ints(spans, "start"), coll), first, last, bad)
    suspects = int((bad & (seen > NONE)).sum())
    return {"gpu_start": np.where(bad, NONE, first), "gpu_stop": np.where(bad, NONE, last), "seen": seen}, suspects


def _overlapping(context: Int, start: Int, first: Int, last: Int, bad: Bool) -> Bool:
    """A communicator's kernels run one after the other: where one begins before the last ended, one of the two has a
    stamp of another. Operations of one batch share both stamps.
    """
    result = np.zeros(len(context), np.bool_)
    order = np.lexsort((start, context))
    order = order[~bad[order]]
    here, before = order[1:], order[:-1]
    same = (first[here] == first[before]) & (last[here] == last[before])
    wrong = (context[here] == context[before]) & (first[here] < last[before]) & ~same
    result[here[wrong]] = True
    result[before[wrong]] = True
    return result


def workers_of(recording: Recording, communicators: list[Communicator]) -> tuple[Int, list[str]]:
    """A number for the rank behind each context, the same in all its communicators, and the numbers' names.

    A process with one rank in each communicator is one worker. Of a process with several, each thread is one if every
    rank calls from its own; else ranks are told apart by their order.
    """
    several, threads = _several(recording), _threads(recording)
    crowded = {process for (process, _), mates in several.items() if len(mates) > 1}
    shared = {process for (process, _), mates in several.items() if not _own_threads(mates, threads)}
    places = {mate: place for mates in several.values() for place, mate in enumerate(mates)}
    keys: list[tuple[int, int]] = []
    for number, context in enumerate(recording.contexts):
        place = 0
        if context.process in crowded:
            place = places[number] if context.process in shared else int(threads[number])
        keys.append((context.process, place))
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    workers = np.array([numbers[key] for key in keys] or [0], np.int64)
    return workers, _names(recording, communicators, workers, len(numbers))


def _own_threads(mates: list[int], threads: Int) -> bool:
    callers = {int(threads[mate]) for mate in mates}
    return len(callers) == len(mates) and (-1 not in callers or len(mates) == 1)


def _several(recording: Recording) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for number, context in enumerate(recording.contexts):
        found.setdefault((context.process, context.communicator), []).append(number)
    return found


def _threads(recording: Recording) -> Int:
    """The thread that called first for each context; -1 where none did."""
    spans = recording.spans
    result = np.full(max(1, len(recording.contexts)), -1, np.int64)
    context = ints(spans, "context")
    kinds = (EventType.COLL_API, EventType.COLL, EventType.P2P_API, EventType.P2P)
    rows = np.flatnonzero(np.isin(spans["type"], kinds) & (context >= 0) & (context < len(recording.contexts)))
    result[context[rows][::-1]] = ints(spans, "thread")[rows][::-1]
    return result


def _names(recording: Recording, communicators: list[Communicator], workers: Int, count: int) -> list[str]:
    """Each worker by its rank in the largest communicator that it is in."""
    names, size = [""] * count, [0] * count
    main = max((item.ranks for item in communicators), default=0)
    for item in communicators:
        for context in item.contexts:
            worker = int(workers[context])
            if item.ranks > size[worker]:
                suffix = "" if item.ranks == main else f" of {item.label}"
                names[worker] = f"rank {recording.contexts[context].rank}{suffix}"
                size[worker] = item.ranks
    return names

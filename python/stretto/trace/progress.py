"""How far each rank came: who has not entered an operation that others have, who is still inside one, whose recording
is not there, and whether all ranks called the same. The answer to "why does the job hang".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from stretto.trace.columns import Int, dense, ints, ordinals, runs, take
from stretto.trace.model import Recording
from stretto.trace.operations import Communicator, Operations, chosen
from stretto.trace.transfers import operation_bytes, type_bytes

_MOST = 20
_MOST_ABSENT = 64
_MOST_SAID = 4
_SAME_COUNT = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall")


@dataclass(frozen=True)
class Standing:
    """A function of a communicator that not all ranks have called as often. `last` says the last sequence of the ranks
    that are behind `sequence`; -1 never.
    """

    communicator: str
    function: str
    sequence: int
    last: dict[int, int]
    inside: list[int]  # ranks that entered the operation `sequence` and are in it as the recording ends


@dataclass(frozen=True)
class Mismatch:
    """Ranks that called different things where they should have called the same."""

    communicator: str
    position: int
    what: str


@dataclass(frozen=True)
class Progress:
    """What is uneven; all lists are empty after a job that ended well."""

    behind: list[Standing] = field(default_factory=list)
    absent: dict[str, list[int]] = field(default_factory=dict)  # the first ranks of a communicator that no file is of
    mismatches: list[Mismatch] = field(default_factory=list)
    incomplete: int = 0  # operations in the middle of the run that lack a rank: its events were lost
    unfinished: list[str] = field(default_factory=list)  # processes whose recording was not closed
    sentence: str = ""


def progress(recording: Recording, operations: Operations) -> Progress:
    """How far all ranks came. Of graphs' replays only those are known whose stamps were not lost."""
    operations = chosen(operations, operations.replay == 0)
    absent = {item.label: missing for item in operations.communicators if (missing := _absent(recording, item))}
    behind = _behind(recording, operations)
    recorded = np.array([item.recorded for item in operations.communicators] or [0], np.int64)
    short = operations.sizes < recorded[operations.communicator]
    tails = {(item.communicator, item.function): min(item.last.values(), default=0) for item in behind}
    inner = [
        number
        for number in np.flatnonzero(short)
        if operations.sequence[number]
        <= tails.get(_name(recording, operations, int(number)), int(operations.sequence[number]))
    ]
    unfinished = [
        f"{item.host}:{item.pid}" + (f" ({item.error})" if item.error else "")
        for item in recording.processes
        if not item.closed
    ]
    mismatches = _counts(recording, operations) + _order(recording, operations)
    said = _sentence(recording, operations, behind, mismatches)
    return Progress(behind, absent, mismatches, len(inner), unfinished, said)


def missing(recording: Recording, operations: Operations) -> list[str]:
    """What the recording lacks of whole ranks, in words."""
    said = []
    files = recording.quality.unreadable
    if files:
        said.append(f"{files} file{'s' * (files > 1)} of the recording cannot be read")
    lacking = [item for item in operations.communicators if not item.complete]
    for item in lacking[:_MOST_SAID]:
        ranks = _absent(recording, item)
        if not item.counted:
            said.append(f"nothing says how many ranks {item.label} has")
        elif ranks:
            listed = ", ".join(str(rank) for rank in ranks[:16]) + (" and others" if len(ranks) > 16 else "")
            said.append(f"no recording of rank{'s' * (len(ranks) > 1)} {listed} of {item.label}")
    if len(lacking) > _MOST_SAID:
        said.append(f"{len(lacking) - _MOST_SAID} more communicators lack ranks")
    return said


def _absent(recording: Recording, item: Communicator) -> list[int]:
    """The first ranks that no file is of. How many a communicator has is what a file says: it can say anything."""
    seen = {recording.contexts[one].rank for one in item.contexts}
    if len(seen) >= item.ranks:
        return []
    missing = (rank for rank in range(item.ranks) if rank not in seen)
    return list(itertools.islice(missing, _MOST_ABSENT))


def _name(recording: Recording, operations: Operations, number: int) -> tuple[str, str]:
    label = operations.communicators[int(operations.communicator[number])].label
    return label, recording.strings[int(operations.function[number])]


def _behind(recording: Recording, operations: Operations) -> list[Standing]:
    if operations.count == 0:
        return []
    pair = dense(operations.communicator, operations.function)
    top = np.full(int(pair.max()) + 1, -1, np.int64)
    np.maximum.at(top, pair, operations.sequence)
    of = operations.operation
    key = dense(pair[of], operations.rank)
    reached = np.full(int(key.max()) + 1, -1, np.int64)
    np.maximum.at(reached, key, operations.sequence[of])
    first = np.unique(key, return_index=True)[1]
    own_pair, rank = pair[of[first]], operations.rank[first]
    lowest = np.full(len(top), np.iinfo(np.int64).max)
    np.minimum.at(lowest, own_pair, reached)
    one = np.unique(pair, return_index=True)[1]
    counts = np.bincount(own_pair, minlength=len(top))
    found = []
    for number in range(len(top)):
        communicator = operations.communicators[int(operations.communicator[one[number]])]
        members = {recording.contexts[item].rank for item in communicator.contexts}
        if lowest[number] == top[number] and counts[number] == len(members):
            continue
        mine = own_pair == number
        last = dict(zip(rank[mine].tolist(), reached[mine].tolist(), strict=True))
        late = {item: last.get(item, -1) for item in sorted(members) if last.get(item, -1) < top[number]}
        found.append(_standing(recording, operations, int(one[number]), int(top[number]), late))
        if len(found) == _MOST:
            break
    return found


def _standing(recording: Recording, operations: Operations, example: int, top: int, late: dict[int, int]) -> Standing:
    label, function = _name(recording, operations, example)
    same = (operations.communicator == operations.communicator[example]) & (
        operations.function == operations.function[example]
    )
    number = int(np.flatnonzero(same & (operations.sequence == top))[0])
    low, high = operations.first[number], operations.first[number + 1]
    inside = operations.rank[low:high][operations.pending[low:high] == 1].tolist()
    return Standing(label, function, top, late, inside)


def _sources(operations: Operations) -> Int:
    return np.where(operations.coll >= 0, operations.coll, operations.api)


def _counts(recording: Recording, operations: Operations) -> list[Mismatch]:
    """Operations whose ranks do not agree on how much data they have."""
    if operations.count == 0:
        return []
    spans, first = recording.spans, operations.first[:-1]
    widths = np.array([type_bytes(text) for text in recording.strings], np.int64)
    source = _sources(operations)
    size = take(ints(spans, "count"), source) * widths[take(ints(spans, "data_type"), source)]
    same = np.array([text.removeprefix("nccl").lower() in _SAME_COUNT for text in recording.strings])
    known = (operation_bytes(operations, recording) >= 0) & same[operations.function]
    differ = known & (np.minimum.reduceat(size, first) != np.maximum.reduceat(size, first))
    found = []
    for number in np.flatnonzero(differ)[:_MOST]:
        low, high = operations.first[number], operations.first[number + 1]
        label, function = _name(recording, operations, int(number))
        values = ", ".join(
            f"rank {rank}: {size}" for rank, size in zip(operations.rank[low:high], size[low:high], strict=True)
        )
        position = int(operations.sequence[number])
        found.append(Mismatch(label, position, f"{function} #{position} has different bytes ({values})"))
    return found


def _order(recording: Recording, operations: Operations) -> list[Mismatch]:
    """The first call of each communicator that is not the same function on all ranks."""
    spans, quality = recording.spans, recording.quality
    if operations.count == 0 or quality.dropped or quality.overwritten or quality.damaged_segments:
        return []
    # All calls of a rank in order of time: also those that found no partner.
    communicator = operations.communicator[operations.operation]
    called = take(ints(spans, "start"), np.where(operations.api >= 0, operations.api, operations.coll))
    function = operations.function[operations.operation]
    position = ordinals(dense(communicator, operations.rank), called)
    order = np.lexsort((position, communicator))
    key = dense(communicator, position)[order]
    first = runs(key)
    low = np.minimum.reduceat(function[order], first)
    high = np.maximum.reduceat(function[order], first)
    found, seen = [], set()
    for number in np.flatnonzero(low != high):
        rows = order[first[number] : first[number + 1] if number + 1 < len(first) else len(order)]
        own = int(communicator[rows[0]])
        if own in seen:
            continue
        seen.add(own)
        rows = rows[np.argsort(operations.rank[rows], kind="stable")]
        calls = ", ".join(f"rank {operations.rank[row]}: {recording.strings[int(function[row])]}" for row in rows)
        place = int(position[rows[0]])
        found.append(Mismatch(operations.communicators[own].label, place, f"call {place} differs ({calls})"))
        if len(found) == _MOST:
            break
    return found


def _died(recording: Recording, operations: Operations, item: Standing) -> list[int]:
    """Of the ranks that are behind, those whose process did not end in order, while others did or went on."""
    contexts = next(one.contexts for one in operations.communicators if one.label == item.communicator)
    closed = {
        context.rank: recording.processes[context.process].closed
        for context in (recording.contexts[number] for number in contexts)
    }
    ahead = [rank for rank in closed if rank not in item.last]
    return [rank for rank in item.last if not closed[rank] and (item.inside or any(closed[one] for one in ahead))]


def _sentence(recording: Recording, operations: Operations, behind: list[Standing], mismatches: list[Mismatch]) -> str:
    """What most likely keeps the job from going on."""
    if mismatches:
        return f"on {mismatches[0].communicator}, {mismatches[0].what}"
    stuck = [item for item in behind if item.inside] or behind
    if not stuck:
        return ""
    item = stuck[0]
    ranks = ", ".join(str(rank) for rank in item.last)
    who = f"rank {ranks} has" if len(item.last) == 1 else f"ranks {ranks} have"
    waiting = f"; {len(item.inside)} ranks are inside and wait" if item.inside else ""
    died = _died(recording, operations, item)
    cut = ""
    if died:
        whose = "it" if len(item.last) == 1 else f"rank{'s' * (len(died) > 1)} {', '.join(map(str, died))}"
        their = "its" if len(died) == 1 else "their"
        cut = f"; {whose} did not close {their} recording: killed, ended by _exit, or still running"
    return f"{who} not entered {item.function} #{item.sequence} of {item.communicator}{cut}{waiting}"

"""Sends and receives between pairs of ranks: matched by order, and which side the other waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stretto.trace.align import Alignment
from stretto.trace.columns import NONE, Float, Int, SpanIndex, dense, ints, ordinals, runs, take
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import communicators_of, every_of
from stretto.trace.transfers import FOR_DATA, FOR_ROOM, step_times, type_bytes


@dataclass(frozen=True)
class Pair:
    """All messages from one rank to another in one communicator."""

    communicator: str
    source: int
    destination: int
    messages: int
    bytes: int
    unmatched: int  # sends without a receive, or receives without a send
    sender_late_ns: float  # median of what the send was called after the receive; negative: the receiver was later
    error_ns: float  # of the clocks
    chunks: int  # steps of the proxies of both sides; 0 where none is recorded
    sender_waited_ns: float  # for room, which the receiver makes, in sum
    receiver_waited_ns: float  # for data


def pairs(recording: Recording, alignment: Alignment) -> list[Pair]:
    """Every pair of ranks that sent, most bytes first."""
    spans = recording.spans
    ways = {text: way for text, way in (("Send", 0), ("Recv", 1), ("ncclSend", 0), ("ncclRecv", 1))}
    way_of = np.array([ways.get(text, -1) for text in recording.strings] or [-1], np.int64)
    context = ints(spans, "context")
    rows = np.flatnonzero(
        (spans["type"] == EventType.P2P)
        & (context >= 0)
        & (context < len(recording.contexts))
        & (way_of[ints(spans, "function")] >= 0)
    ).astype(np.int64)
    if len(rows) == 0:
        return []
    communicators, of_context = communicators_of(recording)
    way = way_of[ints(spans, "function")[rows]]
    ranks = np.array([item.rank for item in recording.contexts], np.int64)
    own, peer = ranks[context[rows]], ints(spans, "peer")[rows]
    source, destination = np.where(way == 0, own, peer), np.where(way == 0, peer, own)
    communicator = of_context[context[rows]]
    called = _called(recording, rows)
    # The number of the message between the two: of a sample every so many are there.
    ordinal = ordinals(dense(communicator, source, destination, way), called) * every_of(recording)[context[rows]]
    every = np.array([item.every for item in communicators], np.int64)[communicator]
    kept = ordinal % every == 0
    rows, communicator, source, destination = rows[kept], communicator[kept], source[kept], destination[kept]
    way, called, ordinal = way[kept], called[kept], ordinal[kept]
    order = np.lexsort((way, ordinal, destination, source, communicator))
    message = dense(communicator, source, destination, ordinal)[order]
    first = runs(message)
    size = np.diff(np.append(first, len(message)))
    whole = size == 2
    send, receive = order[first], order[np.minimum(first + 1, len(order) - 1)]
    process = ints(spans, "process")[rows]
    moment = alignment.host_time(process, called)
    late = np.where(whole, moment[send] - moment[receive], NONE)
    errors = alignment.host_error[alignment.host_of[process]]
    same = alignment.host_of[process[send]] == alignment.host_of[process[receive]]
    doubt = np.where(same, 0.0, errors[send] + errors[receive])
    widths = np.array([type_bytes(text) for text in recording.strings], np.int64)
    count = np.maximum(take(ints(spans, "count"), rows), 0)
    bytes_ = count * widths[ints(spans, "data_type")[rows]]
    chunks, waited = _of_chunks(recording, rows)
    other = np.where(whole, receive, send)
    both = chunks[send] + np.where(whole, chunks[receive], 0)
    for_room = np.where(way[send] == 0, waited[send, 0], 0.0)
    for_data = np.where(way[other] == 1, waited[other, 1], 0.0)
    return _gathered(
        [item.label for item in communicators],
        (communicator[send], source[send], destination[send]),
        (late, whole.astype(np.int64), bytes_[send], both),
        (doubt, for_room, for_data),
    )


def _of_chunks(recording: Recording, rows: Int) -> tuple[Int, Float]:
    """How many chunks the proxies of these messages moved, and how long they waited for room and for data."""
    chunks, waited = np.zeros(len(rows), np.int64), np.zeros((len(rows), 2))
    found = step_times(recording)
    if found is not None:
        steps, each = found
        index = SpanIndex(recording, (EventType.PROXY_OP, EventType.P2P))
        row_of = np.full(len(recording.spans["type"]) + 1, -1, np.int64)
        row_of[rows] = np.arange(len(rows))
        owner = take(row_of, index.parents(index.parents(steps)))
        here = owner >= 0
        np.add.at(chunks, owner[here], 1)
        np.add.at(waited, owner[here], each[here][:, [FOR_ROOM, FOR_DATA]])
    return chunks, waited


def _called(recording: Recording, rows: Int) -> Int:
    """When the program called, if that is recorded, else when the library went to work."""
    start = ints(recording.spans, "start")
    call = SpanIndex(recording, (EventType.P2P_API,)).parents(rows)
    return np.where(call >= 0, take(start, call), start[rows])


def _gathered(
    labels: list[str], key: tuple[Int, Int, Int], facts: tuple[Int, Int, Int, Int], times: tuple[Float, Float, Float]
) -> list[Pair]:
    (late, whole, size, chunks), (doubt, for_room, for_data) = facts, times
    group = dense(*key)
    order = np.argsort(group, kind="stable")
    found = []
    for rows in np.split(order, runs(group[order])[1:]):
        matched = rows[whole[rows] == 1]
        one = rows[0]
        found.append(
            Pair(
                communicator=labels[int(key[0][one])],
                source=int(key[1][one]),
                destination=int(key[2][one]),
                messages=len(rows),
                bytes=int(size[rows].sum()),
                unmatched=len(rows) - len(matched),
                sender_late_ns=float(np.median(late[matched])) if len(matched) else 0.0,
                error_ns=float(doubt[matched].max()) if len(matched) else float("inf"),
                chunks=int(chunks[rows].sum()),
                sender_waited_ns=float(for_room[rows].sum()),
                receiver_waited_ns=float(for_data[rows].sum()),
            )
        )
    return sorted(found, key=lambda pair: -pair.bytes)

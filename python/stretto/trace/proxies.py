"""Which rank of a collective waited for which other one, by the steps of the proxies that moved its chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stretto.trace.columns import SpanIndex, dense, ints, runs, take
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import communicators_of
from stretto.trace.transfers import FOR_DATA, FOR_ROOM, step_times


@dataclass(frozen=True)
class ProxyWait:
    """All waits of one rank for one other, in the collectives of a communicator."""

    communicator: str
    rank: int
    peer: int
    operations: int
    chunks: int
    for_data_ns: float  # in sum: until chunks had come from the peer
    for_room_ns: float  # until the peer had made room for chunks to it


def proxy_waits(recording: Recording) -> list[ProxyWait]:
    """Every pair of ranks between which collectives moved chunks over a net, the longest waits first."""
    found = step_times(recording)
    if found is None:
        return []
    steps, spent = found
    spans = recording.spans
    index = SpanIndex(recording, (EventType.PROXY_OP, EventType.COLL))
    op = index.parents(steps)
    coll = index.parents(op)
    context = np.where(coll >= 0, take(ints(spans, "context"), coll), -1)
    kept = (take(ints(spans, "type"), coll) == EventType.COLL) & (context >= 0) & (context < len(recording.contexts))
    op, coll, context, spent = op[kept], coll[kept], context[kept], spent[kept]
    if len(op) == 0:
        return []
    communicators, of_context = communicators_of(recording)
    ranks = np.array([item.rank for item in recording.contexts], np.int64)
    communicator, rank, peer = of_context[context], ranks[context], ints(spans, "peer")[op]
    group = dense(communicator, rank, peer)
    order = np.argsort(group, kind="stable")
    made = [
        ProxyWait(
            communicator=communicators[int(communicator[rows[0]])].label,
            rank=int(rank[rows[0]]),
            peer=int(peer[rows[0]]),
            operations=len(np.unique(coll[rows])),
            chunks=len(rows),
            for_data_ns=float(spent[rows, FOR_DATA].sum()),
            for_room_ns=float(spent[rows, FOR_ROOM].sum()),
        )
        for rows in np.split(order, runs(group[order])[1:])
    ]
    return sorted(made, key=lambda item: -(item.for_data_ns + item.for_room_ns))

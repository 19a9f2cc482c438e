"""One size of the latency ladder: single calls, and who came last to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# The first calls after a pause are those of cold caches.
_WARM = 5


@dataclass(frozen=True)
class Step:
    """Microseconds. A call lasts on a rank from its entry to its return; `best` is from the last entry to the last
    return, which no rank's lateness is part of, and `quickest` to the first return. `last_share`: for each rank the
    share of calls that it entered last; `late_quarter`: by how much, or more, in three quarters of these.
    """

    bytes: int
    calls: int
    best: float
    quickest: float
    p50: float
    p99: float
    most: float
    last_share: tuple[float, ...]
    late_quarter: tuple[float, ...]
    waited: float  # share of the time in which the others waited for the last one
    wrong: int = 0


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * (len(values) - 1))]


def steps_of(bytes: int, replies: list[dict[str, Any]], wrong: int) -> Step:
    """From the stamps of all ranks, in nanoseconds of one clock."""
    began = [reply["began"][_WARM:] for reply in replies]
    ended = [reply["ended"][_WARM:] for reply in replies]
    calls = range(len(began[0]))
    entries = [sorted((rank_began[call], rank) for rank, rank_began in enumerate(began)) for call in calls]
    lateness: dict[int, list[float]] = {rank: [] for rank in range(len(replies))}
    for entry in entries:
        # Of one rank there is nobody before it.
        behind = (entry[-1][0] - entry[-2][0]) / 1000 if len(entry) > 1 else 0.0
        lateness[entry[-1][1]].append(behind)
    singles = [
        max(rank_ended[call] - rank_began[call] for rank_began, rank_ended in zip(began, ended, strict=True)) / 1000
        for call in calls
    ]
    moved = [(max(rank_ended[call] for rank_ended in ended) - entries[call][-1][0]) / 1000 for call in calls]
    returned = [(min(rank_ended[call] for rank_ended in ended) - entries[call][-1][0]) / 1000 for call in calls]
    span = (max(rank_ended[-1] for rank_ended in ended) - min(rank_began[0] for rank_began in began)) / 1000
    return Step(
        bytes,
        len(calls),
        max(min(moved), 0.001),
        max(min(returned), 0.001),
        quantile(singles, 0.5),
        quantile(singles, 0.99),
        max(singles),
        tuple(len(late) / len(calls) for late in lateness.values()),
        tuple(quantile(late, 0.25) if late else 0.0 for late in lateness.values()),
        sum(sum(late) for late in lateness.values()) / max(span, 0.001),
        wrong + sum(int(reply["wrong"]) for reply in replies),
    )

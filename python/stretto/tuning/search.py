"""Who is fastest at one size: every candidate in turns, and a margin that noise does not pass.

The planner's own choice is the defending champion. Another candidate takes its place only if its median over
all turns is lower by more than the margin *and* it was faster in at least two of three turns; so a table
holds a row that differs from the model only where the difference can be measured again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stretto.bench.job import Job, JobError, Unsupported
from stretto.bench.workload import elements_per_rank

MARGIN = 0.03
_WINS = 2 / 3
_BATCHES = 5
_ELEMENT = 4  # float32
_TURN_TIMEOUT = 60.0


@dataclass
class Candidate:
    """One way to run an operation, and what its turns took (medians over batches, microseconds)."""

    algorithm: str
    protocol: str
    turns: list[float] = field(default_factory=list)
    batch: int = 1
    blocks: int = 0  # on GPUs; 0: the planner's

    @property
    def name(self) -> str:
        return f"{self.algorithm}/{self.protocol}" + (f" x {self.blocks}" if self.blocks else "")

    @property
    def microseconds(self) -> float:
        return statistics.median(self.turns)

    def beats(self, champion: Candidate, margin: float = MARGIN) -> bool:
        wins = sum(mine < other for mine, other in zip(self.turns, champion.turns, strict=True))
        return self.microseconds < champion.microseconds * (1 - margin) and wins >= _WINS * len(self.turns)


@dataclass(frozen=True)
class Winner:
    """One row of the table, and what it was chosen from. `bytes` counts as the planner does."""

    bytes: int
    best: Candidate
    model: Candidate
    candidates: tuple[Candidate, ...]
    on_gpu: bool = False

    def row(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "algorithm": self.best.algorithm,
            "protocol": self.best.protocol,
            "chunk_bytes": 0,
            **({"blocks": self.best.blocks} if self.on_gpu else {}),
            "us": max(0.001, round(self.best.microseconds, 4)),
        }


class WrongResult(RuntimeError):
    """A candidate's result was not the right one: no table is made of such a library."""


class Search:
    """Measures on a running job. `say` gets what a person should know (a candidate that failed)."""

    def __init__(self, job: Job, ranks: int, rounds: int, turn_ms: float, say: Callable[[str], None]) -> None:
        self._job = job
        self._ranks = ranks
        self._rounds = rounds
        self._turn_us = turn_ms * 1000
        self._say = say
        self.machine: dict[str, Any] = {}

    def measure(self, collective: str, size: int) -> Winner | None:
        """None where there is nothing to choose: too small for one element a rank, or one candidate alone."""
        count = elements_per_rank(collective, size, _ELEMENT, self._ranks)
        if count == 0:
            return None
        # Unforced, so that its explanation lists what could run, and what the planner takes.
        how = self._prepare(collective, count, None)["how"]
        self.machine = how["machine"]
        candidates = [Candidate(one["algorithm"], one["protocol"]) for one in how["candidates"] if one["possible"]]
        candidates = [one for one in candidates if self._start(collective, count, one)]
        if len(candidates) < 2:
            return None
        for _ in range(self._rounds):
            for one in candidates:
                self._prepare(collective, count, one, check=False)
                one.turns.append(self._time(one.batch, _BATCHES))
        model = self._model(how, candidates)
        best = min(candidates, key=lambda one: one.microseconds)
        return Winner(how["request"]["bytes"], best if best.beats(model) else model, model, tuple(candidates))

    @staticmethod
    def _model(how: dict[str, Any], candidates: list[Candidate]) -> Candidate:
        chosen = how["chosen"] or {}
        for one in candidates:
            if (one.algorithm, one.protocol) == (chosen.get("algorithm"), chosen.get("protocol")):
                return one
        return min(candidates, key=lambda one: one.microseconds)

    def _prepare(self, collective: str, count: int, one: Candidate | None, check: bool = True) -> dict[str, Any]:
        words = (
            f"prepare collective={collective} type=float32 op=sum count={count} root=0 in_place=0 check={int(check)}"
        )
        if one is not None:
            words += f" algorithm={one.algorithm} protocol={one.protocol}"
        replies = self._job.ask(words, _TURN_TIMEOUT)
        wrong = sum(int(reply.get("wrong", 0)) for reply in replies)
        if wrong:
            who = "the planner's choice" if one is None else one.name
            raise WrongResult(f"{collective} of {count} elements by {who} has {wrong} wrong elements")
        return replies[0]

    def _start(self, collective: str, count: int, one: Candidate) -> bool:
        """One verified call, and about how long a call takes; False for a candidate that does not run after
        all.
        """
        try:
            self._prepare(collective, count, one)
        except (JobError, Unsupported) as error:
            self._prepare(collective, count, None, check=False)  # Raises if it is the job that failed.
            self._say(f"{collective}, {count} elements: {one.name} left out: {error}")
            return False
        estimate = self._time(1, 3)
        if estimate < 200:
            estimate = self._time(max(1, int(1000 / max(estimate, 0.1))), 2)
        one.batch = max(1, int(self._turn_us / _BATCHES / max(estimate, 0.05)))
        return True

    def _time(self, batch: int, batches: int) -> float:
        """The median over batches of the slowest rank's mean, in microseconds."""
        replies = self._job.ask(f"measure warmup=2 batch={batch} batches={batches} samples=0", _TURN_TIMEOUT)
        return statistics.median(
            float(max(times)) for times in zip(*(reply["batch_us"] for reply in replies), strict=True)
        )

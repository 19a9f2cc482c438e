"""What communicators of two libraries cost on the same GPUs: the time to make one, what an open one holds, what a call
costs its caller. The same program (benchmarks/cuda/costs.hpp) asks both, in turns, so that what differs is the library.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.bench.job import Job, JobError, Unsupported
from stretto.bench.measure import SUBJECT

if TYPE_CHECKING:
    from stretto.audit.context import Level

_ROUNDS = 2
_MADE = {"quick": 1, "default": 2, "full": 5}  # communicators, in each round
_OPEN = {"quick": 2, "default": 4, "full": 16}
_BATCHES = {"quick": 10, "default": 30, "full": 200}
_CALLS_OF_A_BATCH = 64  # fewer than a stream has room for: a call never waits for the GPU
_SAID = re.compile(r"Init timings\b.*?\brank (\d+) nranks (\d+) total [\d.]+ \(([^)]*)\)")


@dataclass
class Costs:
    """Of one library. `makings`: by number of ranks, milliseconds of rank 0. `phases`: milliseconds of a communicator
    of all ranks, as the library itself says (Stretto of its fastest one, NVIDIA's of others, as it writes a log for
    it); nothing where it does not. `each` and `left`: what an open communicator
    holds of a rank's process and GPU, and what one that was destroyed has left. `calls`: nanoseconds by way of
    calling, for each batch. `startup_seconds`: from the start of the ranks' processes until each has a communicator;
    whoever starts them fills it in. `problem`: why the rest is missing.
    """

    name: str
    version: str = ""
    startup_seconds: float = 0.0
    makings: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    each: dict[str, float] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    calls: dict[str, list[float]] = field(default_factory=dict)
    problem: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def best(self, ranks: int) -> dict[str, float]:
        return min(self.makings[ranks], key=lambda one: one["init"])


def says_phases(folder: Path) -> dict[str, str]:
    """The environment in which NVIDIA's NCCL writes how long each phase of an init took, into files of that folder."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,PROFILE", "NCCL_DEBUG_FILE": str(folder / "said.%p")}


def said_phases(folder: Path, ranks: int) -> dict[str, float]:
    """What it wrote there: of rank 0 in communicators of that many ranks, the median of each phase, in milliseconds
    (NCCL rounds to ten)."""
    found: dict[str, list[float]] = {}
    for file in folder.glob("said.*"):
        for rank, nranks, phases in _SAID.findall(file.read_text(errors="replace")):
            if (int(rank), int(nranks)) != (0, ranks):
                continue
            for phase in phases.split(", "):
                name, _, seconds = phase.rpartition(" ")
                found.setdefault(name, []).append(1e3 * float(seconds))
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def own_phases(best: dict[str, float]) -> dict[str, float]:
    """What Stretto's counters say of the fastest one."""
    if best["meeting"] == 0:
        return {}
    rest = best["init"] - best["meeting"] - best["connecting"]
    return {"meeting": best["meeting"], "connecting": best["connecting"], "elsewhere": max(0.0, rest)}


def measure(jobs: dict[str, Job], ranks: int, level: Level, left: Callable[[], float]) -> list[Costs]:
    """`jobs`: by library, ours among them. `left`: seconds of the audit, as far as which it is measured last how time
    grows with ranks. Raises JobError where ours fails.
    """
    found = {name: Costs(name, job.version) for name, job in jobs.items()}

    def ask(words: str) -> dict[str, dict[str, Any]]:
        """Rank 0's answer, of each library that still answers."""
        replies: dict[str, dict[str, Any]] = {}
        for name, job in jobs.items():
            if found[name].problem:
                continue
            try:
                replies[name] = job.ask(words, level.patience)[0]
            except (JobError, Unsupported) as error:
                if name == SUBJECT:
                    raise
                found[name].problem = str(error)
                job.kill()
        return replies

    def make(count: int) -> None:
        for _ in range(_ROUNDS):
            for name, reply in ask(f"makings count={_MADE[level.name]} ranks={count}").items():
                found[name].makings.setdefault(count, []).extend(reply["makings"])

    make(ranks)
    for name, reply in ask(f"opened count={_OPEN[level.name]}").items():
        found[name].each, found[name].left = reply["each"], reply["left"]
    for name, reply in ask(f"calls calls={_CALLS_OF_A_BATCH} batches={_BATCHES[level.name]}").items():
        found[name].calls = {way: reply[way] for way in ("empty", "call", "group")}
    for count in (1, 2, 4, 8):
        if count < ranks and (left() > 0 or level.name == "full"):
            make(count)
    for costs in found.values():
        if ranks in costs.makings:
            costs.phases = own_phases(costs.best(ranks))
    return list(found.values())

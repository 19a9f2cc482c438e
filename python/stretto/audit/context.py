"""What checks look at: options, facts and measurements, each read or measured when the first check asks for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stretto.audit import facts as reading
from stretto.audit import libraries
from stretto.audit.progress import HANGS_AFTER

if TYPE_CHECKING:
    from stretto.audit.beside import Costs
    from stretto.audit.implementations import Contest
    from stretto.audit.measurements import Measurements
    from stretto.audit.network import Network


@dataclass(frozen=True)
class Level:
    """How thorough an audit is. `seconds`: all of it, however busy the machine is. What has begun by then is ended."""

    name: str
    seconds: float
    rounds: int  # of the platform's costs
    samples: int  # single calls of each size
    turns: int  # of large operations, against memcpy
    communicators: int  # made and destroyed, for leaks
    share: float  # seconds for each kind of work of the ranks: one that takes longer is cut short
    patience: float  # seconds for an answer: after these the ranks hang

    @property
    def ending(self) -> float:
        """Of these seconds those that are kept for ending the ranks."""
        return min(3.0, self.seconds / 10)

    @property
    def over(self) -> str:
        """Why there was no time."""
        more = "see --only" if self.name == "full" else "see --only and --full"
        return f"the {self.seconds:.0f} s of this audit are over ({more})"


LEVELS = {
    level.name: level
    for level in (
        Level("quick", 15, 3, 100, 2, 12, 0.4, 20),
        Level("default", 60, 5, 400, 5, 90, 4, 60),
        Level("full", 600, 15, 2000, 15, 1000, 40, 120),
    )
}


def _nothing(text: str) -> None:
    """Nobody wants to know."""


@dataclass
class Context:
    """`say`: is told what is done now. `given`: facts of a machine that is not this one, for tests. `network`: what
    was gathered of several hosts, where there are several.
    """

    ranks: int = 2
    level: Level = LEVELS["default"]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    given: reading.Facts | None = None
    more_pythons: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()
    library: Path | None = None
    network: Network | None = None
    say: Callable[[str], None] = _nothing
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def facts(self) -> reading.Facts:
        return reading.read() if self.given is None else self.given

    @cached_property
    def pythons(self) -> list[libraries.Python]:
        self.say("looking for Pythons")
        return libraries.pythons(self.more_pythons, sys.executable, self.environment.get("PATH", ""))

    @cached_property
    def measured(self) -> Measurements:
        from stretto.audit.measurements import Measurements

        return Measurements(self.ranks, self.level, self.say, lambda: self.seconds_left, lambda: self.facts.memory_room)

    @cached_property
    def on_gpus(self) -> Contest:
        return self.measured.on_gpus(self.library)

    @cached_property
    def beside_on_cpus(self) -> Contest | None:
        """Of another build of this library alone: NVIDIA's NCCL has no ranks in host memory."""
        if self.library is None or not libraries.kind_of(self.library).stretto:
            return None
        return self.measured.beside_on_cpus(self.library)

    @cached_property
    def costs(self) -> list[Costs]:
        if self.library is None:
            return []
        return self.measured.beside(self.library)

    @cached_property
    def eager_on_gpus(self) -> Contest:
        return self.measured.eager_on_gpus()

    @cached_property
    def gpu_pairs(self) -> dict[tuple[int, int], tuple[float, float]]:
        return self.measured.gpu_pairs()

    @property
    def seconds_left(self) -> float:
        """Until what is looked at is ended."""
        return self.level.seconds - self.level.ending - (time.monotonic() - self.began)

    def quiet(self, most: float) -> float:
        """Seconds without a sign of work after which a program hangs: early enough for the rest of the audit."""
        return max(HANGS_AFTER, min(most, self.seconds_left / 4))

    def close(self) -> None:
        """Ends the ranks that measurements have started."""
        if "measured" in self.__dict__:
            self.measured.close()

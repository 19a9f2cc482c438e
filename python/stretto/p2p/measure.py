"""Turns: each implementation at each size, one way, both ways and there and back, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stretto.p2p.driver import Driver

SUBJECT = "stretto"
FLOOR = "sockets"  # and a number of flows
WAYS = ("there", "both", "pingpong")  # one way, both ways at a time, and one message there and back
_MOST_FOOTPRINT = 256 << 20  # bytes in flight one way: what a benchmark may take of a machine's memory
_MOST_SAMPLES = 2000  # round trips of a turn
_MOST_MESSAGES = 1 << 20  # of a turn
_FIRST = 4  # messages of the first turn that says how many fit
_GROWTH = 16  # at most so many times the messages of the turn before
_SLOWEST = 1e6  # bytes a second, for deadlines
_START_SECONDS = 60.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """`floor`: numbers of flows of the plain sockets; `ways`: of WAYS."""

    least: int = 4 << 10
    most: int = 256 << 20
    factor: int = 4
    rounds: int = 7
    budget_ms: float = 100.0
    in_flight: int = 8
    floor: tuple[int, ...] = (1, 2, 4, 8)
    ways: tuple[str, ...] = WAYS

    def sizes(self) -> list[int]:
        found = []
        size = self.least
        while size <= self.most:
            found.append(size)
            size *= self.factor
        return found


@dataclass
class Implementation:
    """`number`: which of its driver's ends it is."""

    name: str
    driver: Driver
    number: int


@dataclass
class _Cell:
    """One implementation, at one size, one way."""

    implementation: Implementation
    way: str
    size: int
    in_flight: int
    count: int = _FIRST
    rates: list[float] = field(default_factory=list)  # GB/s
    halves: list[float] = field(default_factory=list)
    wrong: int = 0

    def messages(self) -> int:
        """Of a turn: each buffer is used."""
        return max(self.count, self.in_flight)

    def turn(self) -> float:
        """Seconds of a message."""
        count = self.messages()
        command = f"turn {self.implementation.number} {self.way} {self.size} {count} {self.in_flight}"
        answer = self.implementation.driver.ask(command, 240 + self.size * count / _SLOWEST)
        self.wrong += int(answer["wrong"])
        seconds = float(answer["seconds"]) / count
        self.rates.append(self.size * (2 if self.way == "both" else 1) / seconds / 1e9)
        self.halves += answer["halves"]
        return seconds

    def warm_up(self, budget: float) -> None:
        """Finds how many messages fill a turn of `budget` seconds, by turns that grow until one takes half of it.

        The first messages alone would mislead: they touch new memory, and a shaped link lets a burst through at once.
        These turns touch the buffers and are not counted; but what arrives wrong is.
        """
        most = _MOST_SAMPLES if self.way == "pingpong" else _MOST_MESSAGES
        full = False
        while not full:
            seconds = self.turn()
            fits = max(1, min(most, int(budget / seconds)))
            full = fits <= 2 * self.messages()
            self.count = fits if full else min(fits, _GROWTH * self.messages())
        self.rates.clear()
        self.halves.clear()

    def row(self) -> Row:
        row: Row = {
            "implementation": self.implementation.name,
            "way": self.way,
            "bytes": self.size,
            "in_flight": self.in_flight,
            "messages_a_turn": self.messages(),
            "rounds": len(self.rates),
            "wrong": self.wrong,
        }
        if self.way == "pingpong":
            ordered = sorted(self.halves)
            row["us_best"] = ordered[0]
            row["us_median"] = statistics.median(ordered)
            row["us_p99"] = ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]
            row["samples"] = len(ordered)
        else:
            ordered = sorted(self.rates)
            row["gbps_best"] = ordered[-1]
            row["gbps_median"] = statistics.median(ordered)
            row["gbps_low"], row["gbps_high"] = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
        return row


def opened(asker: Driver, plan: Plan) -> list[Implementation]:
    """Stretto's net and the plain sockets, between the two ends of a driver. Raises `Failed`."""
    found = [Implementation(SUBJECT, asker, int(asker.ask("open net 1", _START_SECONDS)["end"]))]
    for flows in plan.floor:
        name = f"{FLOOR} {flows} flow{'s' if flows > 1 else ''}"
        found.append(Implementation(name, asker, int(asker.ask(f"open plain {flows}", _START_SECONDS)["end"])))
    return found


def sweep(implementations: list[Implementation], plan: Plan, tell: Callable[[str], None]) -> Iterator[list[Row]]:
    """The rows of each size, as soon as it is measured. Raises `Failed`."""
    for size in plan.sizes():
        cells = []
        for way in plan.ways:
            tell(f"{size} bytes, {way}")
            # As many as have room in a quarter of the memory, each way.
            in_flight = 1 if way == "pingpong" else max(1, min(plan.in_flight, _MOST_FOOTPRINT // size))
            mine = [_Cell(one, way, size, in_flight) for one in implementations]
            for cell in mine:
                cell.warm_up(plan.budget_ms * 1e-3)
            for _ in range(plan.rounds):
                for cell in mine:
                    cell.turn()
            cells += mine
        yield [cell.row() for cell in cells]

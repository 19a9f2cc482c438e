"""Who is fastest between GPUs at each size, found within a given time.

The driver does the measuring (benchmarks/cuda/contest.hpp): it records each way to run an operation as a CUDA graph and
replays the graphs in turns. What is decided here is who takes part. First those that the model predicts to be near the
fastest, with as many blocks as the model would take, and what won at the neighbouring sizes; then the best of them with
more blocks and with fewer, as long as that helps; last the winner against the model's own choice, which only falls to
who is faster by `MARGIN` in most turns. Every other size is measured so, over all collectives; the sizes between them
follow, where there are fewer to choose from: a search that runs out of time has a coarser table, not half of one.

Which algorithms there are, and which can run, is the library's to say: it explains, and refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stretto.bench.job import Job, JobError
from stretto.bench.workload import COLLECTIVES, ELEMENT_BYTES, elements_per_rank
from stretto.tuning.search import Candidate, Winner, WrongResult

MARGIN = 0.02
# Who is predicted to take longer than the best prediction times this does not take part.
_NEAR = 3.0
_MOST_ENTRANTS, _MOST_BETWEEN = 9, 4
# More blocks and fewer: by halves and doubles as long as that helps, then by less.
_DOUBLING, _BETWEEN = (0.5, 2.0), (0.75, 1.5)
_MOST_DOUBLINGS = 7
# The runner-up may win with another number of blocks, if it is not this far behind; a step must gain this much.
_RUNNER_UP = 1.2
_GAIN = 0.01
_REPLY_SECONDS = 40.0
# Of the time that was given, to end the ranks and write the table.
_CLOSING_SECONDS = 1.5

Way = tuple[str, str, int]  # algorithm, protocol, blocks


@dataclass(frozen=True)
class Case:
    """What one entry of the table is for; `reduction` as the table has it, `dtype` to measure it with."""

    collective: str
    reduction: str | None
    dtype: str

    @property
    def name(self) -> str:
        return self.collective + (" (others)" if self.reduction == "others" else "")


@dataclass(frozen=True)
class Rules:
    """How a contest goes, as benchmarks/cuda/contest.hpp has it."""

    rounds: int
    turn_us: int
    drop: float


_FIRST = Rules(2, 500, 1.3)
_STEP = Rules(3, 600, 1.2)
_LAST = Rules(7, 1500, 0)


class Clock:
    """Says whether there is time for another cell; cells of one size take about as long."""

    def __init__(self, seconds: float, began: float | None = None) -> None:
        self._end = (time.monotonic() if began is None else began) + seconds - _CLOSING_SECONDS if seconds else None
        self._took: dict[int, float] = {}

    def has_time(self, size: int) -> bool:
        if self._end is None or not self._took:
            return True
        nearest = min(self._took, key=lambda known: abs(known.bit_length() - size.bit_length()))
        growth = max(1.0, size / nearest) if size > nearest else 1.0
        return time.monotonic() + 1.3 * self._took[nearest] * min(growth, 2.0) < self._end

    def took(self, size: int, seconds: float) -> None:
        self._took[size] = max(seconds, self._took.get(size, 0.0))


def cases(collectives: Iterable[str]) -> list[Case]:
    """Sums of floats have kernels of their own, every other reduction shares one; what moves bytes has one for all."""
    found = []
    for name in collectives:
        if COLLECTIVES[name].reduces:
            found += [Case(name, "float_sums", "bfloat16"), Case(name, "others", "int32")]
        else:
            found.append(Case(name, None, "bfloat16"))
    return found


def cells(cases: Sequence[Case], sizes: Sequence[int], quick: bool) -> list[tuple[Case, int, bool]]:
    """What to measure, in order, and whether it lies between sizes that were measured before."""
    coarse = sorted({*sizes[::2], sizes[-1]})
    between = [size for size in sizes if size not in coarse]
    first = [case for case in cases if case.reduction != "others"]
    others = [case for case in cases if case.reduction == "others"]
    order = [(case, size, False) for group in (first, others) for size in coarse for case in group]
    return order if quick else order + [(case, size, True) for size in between for case in first]


@dataclass
class _Cell:
    """One size of one case: what the library says of it, and how often it is called with."""

    case: Case
    count: int
    bytes: int = 0
    champion: Way = ("", "", 0)
    planned: dict[tuple[str, str], int] = field(default_factory=dict)  # blocks, by the model
    predicted: dict[tuple[str, str], float] = field(default_factory=dict)


class GpuSearch:
    """Measures on a running job. `say` gets what a person should know (a candidate that does not run)."""

    def __init__(self, job: Job, ranks: int, say: Callable[[str], None]) -> None:
        self._job = job
        self._ranks = ranks
        self._say = say
        self._wins: dict[Case, dict[int, Way]] = {}
        self._told: set[str] = set()
        self.machine: dict[str, Any] = {}

    def measure(self, case: Case, size: int, between: bool) -> Winner | None:
        """None where there is nothing to choose: too small for one element a rank, or one candidate alone."""
        cell = self._open(case, size)
        if cell is None:
            return None
        field = self._contest(cell, self._entrants(cell, size, between), _FIRST)
        best = self._climb(cell, field, between)
        last = self._contest(cell, list(dict.fromkeys([cell.champion, _way(best)])), _LAST)
        champion = next((one for one in last if _way(one) == cell.champion), None)
        if champion is None:
            raise JobError(f"{case.name} of {cell.bytes} bytes: the planner's own choice is refused when it is forced")
        winner = last[-1] if last[-1].beats(champion, MARGIN) else champion
        self._wins.setdefault(case, {})[size] = _way(winner)
        return Winner(cell.bytes, winner, champion, tuple(field), on_gpu=True)

    def _open(self, case: Case, size: int) -> _Cell | None:
        cell = _Cell(case, elements_per_rank(case.collective, size, ELEMENT_BYTES[case.dtype], self._ranks))
        if cell.count == 0:
            return None
        replies = self._job.ask(f"prepare {self._request(cell)} in_place=0 graph=1", _REPLY_SECONDS)
        self._refuse_wrong(cell, "the planner's choice", sum(int(reply.get("wrong", 0)) for reply in replies))
        how = replies[0].get("how")
        if not isinstance(how, dict) or "candidates" not in how:
            raise JobError("the library explains nothing: it is not Stretto's")
        self.machine = how["machine"]
        if not self.machine.get("gpu"):
            raise JobError("the ranks are not on GPUs of one kind, which a table could be kept by")
        cell.bytes = int(how["request"]["bytes"])
        for one in how["candidates"]:
            if one["possible"]:
                way = (one["algorithm"], one["protocol"])
                cell.planned[way] = int(one["blocks"])
                cell.predicted[way] = float(one["predicted_us"])
        if how["chosen"] is None or len(cell.planned) < 2:
            return None
        cell.champion = (how["chosen"]["algorithm"], how["chosen"]["protocol"], 0)
        return cell

    def _entrants(self, cell: _Cell, size: int, between: bool) -> list[Way]:
        most = _MOST_BETWEEN if between else _MOST_ENTRANTS
        ranked = sorted(cell.predicted, key=lambda way: cell.predicted[way])
        best = cell.predicted[ranked[0]]
        near = [(*way, 0) for way in ranked[:most] if cell.predicted[way] <= _NEAR * best]
        wins = self._wins.get(cell.case, {})
        neighbours = sorted(wins, key=lambda known: abs(known.bit_length() - size.bit_length()))[:2]
        hints = [wins[known] for known in neighbours if wins[known][:2] in cell.planned]
        return list(dict.fromkeys([cell.champion, *near, *hints]))

    def _climb(self, cell: _Cell, field: list[Candidate], between: bool) -> Candidate:
        """The best of the field, with as many blocks as suit it."""
        leaders = sorted(field, key=_time)[:2]
        leaders = [one for one in leaders if one.microseconds <= _RUNNER_UP * leaders[0].microseconds]
        known = {self._counted(cell, _way(one)) for one in field}
        for _ in range(1 if between else _MOST_DOUBLINGS):
            before, leaders = leaders, self._step(cell, leaders, _DOUBLING, known)
            if leaders[0] in before:
                break
        return (leaders if between else self._step(cell, leaders, _BETWEEN, known))[0]

    def _step(
        self, cell: _Cell, leaders: list[Candidate], factors: tuple[float, float], known: set[Way]
    ) -> list[Candidate]:
        """The leader after one contest: one of the new ones, or the same as before."""
        ways = [way for one in leaders for way in self._variants(cell, one, factors)]
        ways = [way for way in dict.fromkeys(ways) if way not in known]
        known.update(ways)
        if not ways:
            return leaders
        tried = self._contest(cell, [*map(_way, leaders), *ways], _STEP, quiet=True)
        best = min(tried, key=_time)
        stays = min((one for one in tried if _way(one) not in ways), key=_time, default=None)
        if stays is None or best.microseconds < stays.microseconds * (1 - _GAIN):
            return [best]
        return [one for one in leaders if _way(one) == _way(stays)]

    def _variants(self, cell: _Cell, one: Candidate, factors: Iterable[float]) -> list[Way]:
        blocks = self._counted(cell, _way(one))[2]
        most = int(self.machine["lanes"])
        numbers = {min(most, max(1, round(blocks * factor))) for factor in factors} - {blocks}
        return [(one.algorithm, one.protocol, number) for number in sorted(numbers)]

    @staticmethod
    def _counted(cell: _Cell, way: Way) -> Way:
        """With the number of blocks in place of "the planner's"."""
        return (*way[:2], way[2] or cell.planned[way[:2]])

    def _request(self, cell: _Cell) -> str:
        case = cell.case
        return f"collective={case.collective} type={case.dtype} op=sum count={cell.count} root=0 check=1"

    def _contest(self, cell: _Cell, ways: list[Way], rules: Rules, quiet: bool = False) -> list[Candidate]:
        """Those that were in to the end, in the order given."""
        entrants = ",".join(f"{algorithm}:{protocol}::{blocks or ''}" for algorithm, protocol, blocks in ways)
        replies = self._job.ask(
            f"contest {self._request(cell)} entrants={entrants} rounds={rules.rounds} turn_us={rules.turn_us} "
            f"drop={rules.drop}",
            _REPLY_SECONDS,
        )
        lasted = []
        for number, (algorithm, protocol, blocks) in enumerate(ways):
            one = Candidate(algorithm, protocol, blocks=blocks)
            told = [reply["entrants"][number] for reply in replies]
            self._refuse_wrong(cell, one.name, sum(int(each["wrong"]) for each in told))
            if told[0]["refused"]:
                self._tell_refused(cell, one, told[0]["refused"], quiet)
            elif len(told[0]["us"]) == rules.rounds:
                one.turns = [float(turn) for turn in told[0]["us"]]
                lasted.append(one)
        if not lasted:
            raise JobError(f"{cell.case.name} of {cell.bytes} bytes: nothing runs, of {entrants}")
        return lasted

    def _tell_refused(self, cell: _Cell, one: Candidate, why: str, quiet: bool) -> None:
        key = f"{cell.case.name} {one.name}"
        if not quiet and key not in self._told:
            self._told.add(key)
            self._say(f"{cell.case.name} of {cell.bytes} bytes: {one.name} left out: {why}")

    def _refuse_wrong(self, cell: _Cell, who: str, wrong: int) -> None:
        if wrong:
            raise WrongResult(f"{cell.case.name} of {cell.count} elements by {who} has {wrong} wrong elements")


def _way(one: Candidate) -> Way:
    return (one.algorithm, one.protocol, one.blocks)


def _time(one: Candidate) -> float:
    return one.microseconds

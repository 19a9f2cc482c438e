"""Measuring one size: all implementations in turns, A B A B ..., and what their times say.

A batch is many calls back to back with the clock read once at each end; its time is that of the slowest rank.
Medians and minima are over batches, p99 over single calls (of the rank where it is largest). How often an
operation is called follows from a budget of time for each turn, so that a size takes as long on a fast
machine as on a slow one.

On GPUs a batch is one replay of a CUDA graph, or as many eager calls, and p99 is over batches: a single call there is
mostly the cost of starting it.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from stretto.bench.job import Job, JobError, Reply, Unsupported
from stretto.bench.options import Options
from stretto.bench.workload import bytes_of, elements_per_rank

SUBJECT = "stretto"
_BATCHES = 10
_MOST_BATCHES = 60
# Above this a single call is its own batch: the clock's cost is nothing beside it.
_LONG_MICROSECONDS = 500.0
# The events at a graph's ends and the ranks' last differences take 8 us or so: less than half a percent of a graph
# this long. More operations than this it need not hold.
_GRAPH_MICROSECONDS = 2000.0
_MOST_IN_GRAPH = 1000
_LEAST_REPLAYS, _MOST_REPLAYS = 5, 500


@dataclass(frozen=True)
class Schedule:
    """How one turn goes. `singles` single calls follow the batches; a batch of one call counts as one."""

    warmup: int
    batch: int
    batches: int
    singles: int

    @property
    def calls(self) -> int:
        return self.warmup + self.batch * self.batches + self.singles

    def command(self) -> str:
        return f"measure warmup={self.warmup} batch={self.batch} batches={self.batches} samples={self.singles}"


@dataclass
class Cell:
    """All that was measured of one implementation at one size. Times in microseconds."""

    implementation: str
    size: int
    how: dict[str, object] = field(default_factory=dict)
    schedule: Schedule | None = None
    turns: list[list[float]] = field(default_factory=list)
    host: list[float] = field(default_factory=list)  # what a call cost its caller, where the driver says
    wrong: int = 0
    p99: float = 0.0
    single_calls: int = 0

    @property
    def times(self) -> list[float]:
        return [time for turn in self.turns for time in turn]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half of the turns' medians: how much the machine's mood changed between turns."""
        medians = [statistics.median(turn) for turn in self.turns]
        if len(medians) < 2:
            return medians[0], medians[0]
        quarter, _, three_quarters = statistics.quantiles(medians, n=4, method="inclusive")
        return quarter, three_quarters


def plan(options: Options, estimate: float) -> Schedule:
    """A turn that fits the budget, given about how long a call takes; or what -n asks for."""
    if options.on_gpu:
        return _plan_on_gpu(options, estimate)
    if options.iterations:
        batches = min(_BATCHES, options.iterations)
        singles = 0 if options.iterations == batches else options.iterations
        return Schedule(options.warmup, math.ceil(options.iterations / batches), batches, singles)
    budget = options.budget_ms * 1000
    if estimate > _LONG_MICROSECONDS:
        batches = max(2, min(_MOST_BATCHES, int(budget / estimate)))
        return Schedule(min(options.warmup, max(1, int(budget / 4 / estimate))), 1, batches, 0)
    batch = max(1, int(budget * 0.6 / _BATCHES / estimate))
    return Schedule(options.warmup, batch, _BATCHES, max(100, int(budget * 0.4 / estimate)))


def _plan_on_gpu(options: Options, estimate: float) -> Schedule:
    batch = max(1, min(_MOST_IN_GRAPH, math.ceil(_GRAPH_MICROSECONDS / estimate)))
    if options.iterations:
        batch = min(batch, options.iterations)
        return Schedule(options.warmup, batch, math.ceil(options.iterations / batch), 0)
    batches = int(options.budget_ms * 1000 / (batch * estimate))
    return Schedule(options.warmup, batch, max(_LEAST_REPLAYS, min(_MOST_REPLAYS, batches)), 0)


# How a turn goes, given about how long a call takes.
Planner = Callable[[Options, float], Schedule]


class Turns:
    """Runs one size after the other on a set of jobs. A job that fails is ended and left out from then on."""

    def __init__(
        self, options: Options, jobs: dict[str, Job], unverified: frozenset[str], planner: Planner = plan
    ) -> None:
        self._options = options
        self._planner = planner
        self._jobs = jobs
        self._unverified = unverified
        self._count = 0
        self.failures: dict[str, str] = {}
        self.unsupported: dict[str, str] = {}

    @property
    def live(self) -> list[str]:
        return [name for name in self._jobs if name not in self.failures and name not in self.unsupported]

    def measure(self, size: int) -> list[Cell]:
        """Cells of every implementation that lasted to the end of this size, in the order of the jobs."""
        options = self._options
        self._count = elements_per_rank(options.collective, size, options.element_bytes, options.ranks)
        real = bytes_of(options.collective, self._count, options.element_bytes, options.ranks)
        cells = {name: Cell(name, real) for name in self.live}
        for name, cell in cells.items():
            self._attempt(name, cell, self._prepare)
        for _ in range(options.rounds):
            for name in self.live:
                self._attempt(name, cells[name], self._turn)
        for name in self.live:
            self._attempt(name, cells[name], self._finish)
        return [cells[name] for name in self.live]

    def _attempt(self, name: str, cell: Cell, step: Callable[[Job, Cell], None]) -> None:
        try:
            step(self._jobs[name], cell)
        except Unsupported as reason:
            self.unsupported[name] = str(reason)
        except (JobError, OSError) as error:
            self.failures[name] = f"at {cell.size} bytes: {error}"
            self._jobs[name].kill()

    def _ask(self, job: Job, cell: Cell, command: str, expected_us: float) -> list[Reply]:
        replies = job.ask(command, self._options.timeout + 10 * expected_us / 1e6)
        cell.wrong += sum(int(reply.get("wrong", 0)) for reply in replies)
        return replies

    def _prepare(self, job: Job, cell: Cell) -> None:
        """The first checked call, and then enough calls to know about how long one takes."""
        how = self._ask(job, cell, self._request(job), 0)[0].get("how")
        cell.how = how if isinstance(how, dict) else {}
        if self._options.on_gpu:
            cell.schedule = self._planner(self._options, self._estimate_on_gpu(job, cell))
            return
        estimate = self._estimate(job, cell, Schedule(1, 1, 3, 0))
        if estimate < _LONG_MICROSECONDS:
            calls = max(1, min(1000, int(1000 / max(estimate, 0.01))))
            estimate = self._estimate(job, cell, Schedule(1, calls, 3, 0))
        cell.schedule = self._planner(self._options, max(estimate, 0.001))

    def _request(self, job: Job) -> str:
        options = self._options
        verifies = job.name not in self._unverified
        words = [
            f"prepare collective={options.collective} type={options.dtype} op={options.op}",
            f"count={self._count} root={options.root}",
            f"in_place={int(options.in_place and verifies)}",
            f"check={int(options.check and verifies)}",
        ]
        if options.on_gpu:
            words += [f"graph={int(options.in_graph)}"]
        if job.name == SUBJECT:  # peers are measured as they are
            words += [f"algorithm={options.algorithm}"] if options.algorithm else []
            words += [f"protocol={options.protocol}"] if options.protocol else []
            words += [f"chunk={options.chunk_bytes}"] if options.chunk_bytes else []
        return " ".join(words)

    def _estimate(self, job: Job, cell: Cell, schedule: Schedule) -> float:
        return statistics.median(slowest(self._ask(job, cell, schedule.command(), 0)))

    def _estimate_on_gpu(self, job: Job, cell: Cell) -> float:
        """By the fastest of a few replays: of one operation, whose time holds that of a launch, then of more."""
        estimate = min(slowest(self._ask(job, cell, Schedule(5, 1, 5, 0).command(), 0)))
        batch = min(20, math.ceil(_GRAPH_MICROSECONDS / estimate))
        if batch > 1:
            estimate = min(slowest(self._ask(job, cell, Schedule(5, batch, 3, 0).command(), 0)))
        return estimate

    def _turn(self, job: Job, cell: Cell) -> None:
        assert cell.schedule is not None, "prepared before its first turn"
        # A turn is planned to fit the budget unless calls are long or counted: allow for those.
        expected = max(self._options.budget_ms * 1000, cell.schedule.calls * (cell.median if cell.turns else 0))
        replies = self._ask(job, cell, cell.schedule.command(), expected)
        cell.turns.append(slowest(replies))
        cell.host += slowest(replies, "host_us")

    def _finish(self, job: Job, cell: Cell) -> None:
        replies = self._ask(job, cell, "finish", 0)
        if self._options.on_gpu:
            cell.p99 = quantile(cell.times, 0.99)
            return
        cell.p99 = max(float(reply["p99"]) for reply in replies)
        cell.single_calls = int(replies[0]["samples"])


def slowest(replies: list[Reply], key: str = "batch_us") -> list[float]:
    """The batches' times, each that of the rank that took longest."""
    return [max(times) for times in zip(*(reply.get(key, []) for reply in replies), strict=True)]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * (len(values) - 1))]

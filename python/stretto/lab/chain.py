"""`stretto lab chain`: n all-reduces, each of the result of the one before, with and without work between them.

A chain's time is that of the slowest rank, from a barrier to the end of the work after the last operation. What is
reported of one operation is that time, less the work, over the length.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stretto.bench.crew import Crew, say, temporary_folder
from stretto.bench.job import terminable
from stretto.bench.measure import Cell, Schedule, Turns, quantile
from stretto.bench.options import Options, UsageError
from stretto.bench.peers import Stretto
from stretto.bench.rows import Row, row_of
from stretto.bench.run import expect_targets
from stretto.bench.workload import format_size, parse_size
from stretto.lab import document, plots
from stretto.lab.contenders import contenders

# Annotations stay real types here: the command line reads them.
_LEAST, _MOST = 3, 200  # chains in a turn
# Inputs are at most this; each all-reduce of a chain multiplies by the number of ranks.
_LARGEST_INPUT = 63
_LARGEST_FLOAT = 3e38
# What two kinds differ in, so that their difference is its cost.
PAIRS = {
    "end barrier, one stage": ("1stage-2buf", "1stage-nosync"),
    "end barrier, two stages": ("2stage", "2stage-nosync"),
    "second buffer": ("1stage-2buf", "1stage"),
}


@dataclass(frozen=True)
class ChainOptions:
    ranks: int = 2
    device: str = "cpu"
    peers: str = "all"
    sizes: str = "8K,32K,128K,512K"
    length: int = 8
    work_us: str = "0,20"
    jitter_us: float = 0.0
    rounds: int = 7
    budget_ms: float = 50.0
    timeout: float = 60.0
    json: Path | None = None
    plot: Path | None = None


@dataclass(frozen=True)
class ChainSchedule(Schedule):
    """A turn of chains: `batches` of them."""

    words: str = ""

    def command(self) -> str:
        return f"chain {self.words} warmup={self.warmup} batches={self.batches}"


def run(options: ChainOptions) -> int:
    """The exit status: 0, or 1 where a result is wrong or this library failed. Raises UsageError and Failed."""
    sizes, works = numbers("sizes", options.sizes, parse_size), numbers("work-us", options.work_us, float)
    check_chain(options.device, options.ranks, options.length, "chain")
    bench = bench_options(options, max(sizes))
    expect_targets(bench)
    found = [Stretto(), *(peer for peer in contenders(options.peers, options.device) if peer.verifies)]
    with temporary_folder() as folder, terminable():
        crew = Crew(bench, folder)
        try:
            crew.start(found, must=found[0])
            return _measure(options, bench, crew, sizes, works)
        finally:
            crew.kill()


def check_chain(device: str, ranks: int, length: int, command: str) -> None:
    """Raises UsageError where the drivers cannot run such a chain."""
    if device != "cpu":
        raise UsageError(f"--device {device}: lab {command} is built for CPU ranks; lab all-reduce also for GPUs")
    if length < 1:
        raise UsageError(f"--length {length}: at least 1")
    if _LARGEST_INPUT * float(ranks) ** length > _LARGEST_FLOAT:
        raise UsageError(
            f"--length {length}: sums of sums over {ranks} ranks leave float32's range; take a shorter chain"
        )


def numbers(flag: str, text: str, parse: Callable[[str], Any]) -> list[Any]:
    """What a list with commas says, in its order."""
    try:
        found = list(dict.fromkeys(parse(word) for word in text.split(",") if word.strip()))
    except ValueError:
        found = []
    if not found or not all(0 <= one < math.inf for one in found):
        raise UsageError(f"--{flag} {text}: numbers with commas between them, none below 0")
    return found


def bench_options(options: Any, largest: int) -> Options:
    """What drivers and turns need to know, validated."""
    made = Options(
        ranks=options.ranks,
        device=options.device,
        min_bytes=str(largest),
        max_bytes=str(largest),
        rounds=options.rounds,
        budget_ms=options.budget_ms,
        timeout=options.timeout,
        json=options.json,
        plot=options.plot,
    )
    made.validate()
    return made


def _planner(options: ChainOptions, work: float) -> Callable[[Options, float], Schedule]:
    words = f"length={options.length} work={int(work * 1000)} jitter={int(options.jitter_us * 1000)}"

    def plan(bench: Options, estimate: float) -> Schedule:
        chains = int(bench.budget_ms * 1000 / (options.length * (estimate + work)))
        return ChainSchedule(1, 1, max(_LEAST, min(_MOST, chains)), 0, words)

    return plan


def _measure(options: ChainOptions, bench: Options, crew: Crew, sizes: list[int], works: list[float]) -> int:
    facts, rows = document.machine_now(), []
    failures: dict[str, str] = {}
    for work in works:
        turns = Turns(bench, crew.jobs, frozenset(), _planner(options, work))
        turns.failures.update(failures)
        for size in sizes:
            rows += [_row(cell, bench, options, work) for cell in turns.measure(size)]
        failures = {**turns.failures, **turns.unsupported}
    for name, reason in failures.items():
        say(f"{name} was left out: {reason}")
    crew.failures.update(failures)
    crew.close([name for name in crew.jobs if name not in failures])
    record = document.record("chain", options, crew, rows, facts)
    _show(record, options)
    document.write(record, options.json)
    if options.plot:
        plots.chain(record, options.plot)
        print(f"plot: {options.plot}")
    return document.status(record)


def _row(cell: Cell, bench: Options, options: ChainOptions, work: float) -> Row:
    cell.p99 = quantile(cell.times, 0.99)
    row = row_of(cell, bench)
    each = (cell.median - options.length * work) / options.length
    return {
        **row,
        **{"algbw_gbps": None, "busbw_gbps": None},  # of one call: a chain has none
        **{"chain_length": options.length, "work_us": work, "jitter_us": options.jitter_us},
        "us_per_operation": each,
    }


def _show(record: dict[str, Any], options: ChainOptions) -> None:
    rows: list[Row] = record["rows"]
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    cells = {(row["implementation"], row["work_us"], row["bytes"]): row for row in rows}
    jitter = f" and up to {options.jitter_us:g} more" if options.jitter_us else ""
    print(
        f"chains of {options.length} all-reduces of float32 sums, {options.ranks} CPU ranks as processes: µs of one"
        f" all-reduce, less the work after it{jitter}"
    )
    pairs = {what: pair for what, pair in PAIRS.items() if set(pair) <= set(names)}
    table = document.table("work µs", "size", *names, *pairs)
    for work, size in dict.fromkeys((row["work_us"], row["bytes"]) for row in rows):
        at = {name: cells[name, work, size]["us_per_operation"] for name in names if (name, work, size) in cells}
        costs = [at[one] - at[other] if one in at and other in at else None for one, other in pairs.values()]
        table.add_row(
            f"{work:g}",
            format_size(size),
            *(document.number(at.get(name)) for name in names),
            *(document.signed(cost) for cost in costs),
        )
    document.print_table(table)
    wrong = {row["implementation"]: row["wrong"] for row in rows if row["wrong"]}
    for name, count in wrong.items():
        print(f"WRONG {name}: {count} elements are not what they must be{document.excuse(name)}")

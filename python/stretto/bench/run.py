"""One run of the benchmark, from options to exit status: start, measure in turns, show, record, clean up."""

import contextlib
import dataclasses
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stretto.bench import compare
from stretto.bench.crew import Crew, Failed, say, temporary_folder
from stretto.bench.drivers import Missing
from stretto.bench.gpu import need_gpus
from stretto.bench.job import terminable
from stretto.bench.limits import run_limits
from stretto.bench.measure import Turns
from stretto.bench.options import Options, UsageError
from stretto.bench.peers import Peer, Stretto, chosen_peers
from stretto.bench.plot import save_plot
from stretto.bench.rows import SCHEMA, Row, machine, row_of, summary, write_csv
from stretto.bench.table import Table
from stretto.bench.workload import elements_per_rank, format_size

STDOUT = Path("-")
# As `stretto doctor` ends where a job is not well: all went as it should, and the answer is no.
REGRESSION = 3


def run(options: Options, subject: Peer | None = None, peers: list[Peer] | None = None) -> int:
    """Runs the benchmark and prints its table. 0: all is well; 1: wrong results, or Stretto itself failed; 3: slower
    than the run to compare with.

    `subject` and `peers` are for tests; the options choose otherwise. Raises UsageError and Failed.
    """
    began = time.monotonic()
    options.validate()
    expect_targets(options)
    try:
        if options.on_gpu:
            need_gpus(options)
        if options.limits:
            return run_limits(options)
    except Missing as reason:
        raise Failed(str(reason)) from reason
    sizes = _usable_sizes(options)
    earlier = _earlier(options)
    subject = subject or Stretto()
    everyone = [subject, *(chosen_peers(options.peers, options.device) if peers is None else peers)]
    with temporary_folder() as folder, terminable():
        crew = Crew(options, folder)
        try:
            crew.start(everyone, must=subject)
            return _measure(options, sizes, crew, subject, began, earlier)
        finally:
            crew.kill()


def expect_targets(options: Options) -> None:
    """What will be written can be, before a sweep of minutes and not after it. Leaves no file that was not there."""
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install matplotlib")
    for path in (options.json, options.csv, options.plot):
        if path is None or path == STDOUT:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            path.open("a").close()
            if new:
                path.unlink()
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _earlier(options: Options) -> list[Row]:
    """The rows to compare with; none if nobody asked."""
    if options.compare is None:
        return []
    before = compare.read(options.compare)
    compare.expect_alike(before, compare.expected_row(options), options.compare)
    return before


def _usable_sizes(options: Options) -> list[int]:
    """Sizes that give every rank an element; says which do not."""
    usable: list[int] = []
    dropped: list[int] = []
    for size in options.sizes:
        count = elements_per_rank(options.collective, size, options.element_bytes, options.ranks)
        (usable if count else dropped).append(size)
    if dropped:
        names = ", ".join(format_size(size) for size in dropped)
        say(f"left out, less than one {options.dtype} for each rank: {names}")
    if not usable:
        raise UsageError("every size is too small for one element on each rank")
    return usable


def _measure(options: Options, sizes: list[int], crew: Crew, subject: Peer, began: float, earlier: list[Row]) -> int:
    table = Table(options, list(crew.jobs))
    turns = Turns(options, crew.jobs, frozenset(crew.unverified))
    facts = machine()
    if facts["load_before"] > facts["cores_allowed"] / 2:
        say(f"this machine is busy (load {facts['load_before']:.1f}): times are those of a crowd, not of a machine")
    print(table.head(), flush=True)
    rows: list[Row] = []
    clock = _Clock(options, began)
    with _progress(len(sizes)) as progress:
        task = progress.add_task("", total=len(sizes))
        for size in sizes:
            if not clock.has_time(size):
                break
            progress.update(task, description=format_size(size), refresh=True)
            before = {**turns.failures, **turns.unsupported}
            measured = [row_of(cell, options) for cell in turns.measure(size)]
            if measured:
                print(table.line(measured), flush=True)
            rows += measured
            for name, reason in {**turns.failures, **turns.unsupported}.items():
                if name not in before:
                    say(f"{name} is left out from here: {reason}")
            progress.update(task, advance=1, refresh=True)
            # Time on GPUs is dear: what the peers need is worth knowing even when Stretto has failed.
            if subject.name not in turns.live and not (options.on_gpu and turns.live):
                break
    crew.failures.update(turns.failures)
    crew.close(turns.live + list(turns.unsupported))
    record = _record(options, rows, crew, turns, facts)
    return _report(options, table, record, subject, earlier)


class _Clock:
    """Says when to stop, where --seconds limits the run: no size is likely to take more than twice the one before."""

    def __init__(self, options: Options, began: float) -> None:
        self._limit = options.seconds
        self._began = began
        self._last = time.monotonic()

    def has_time(self, size: int) -> bool:
        now = time.monotonic()
        likely, self._last = 2 * (now - self._last), now
        if not self._limit or now - self._began + likely < self._limit:
            return True
        say(f"{now - self._began:.0f} of {self._limit:.0f} s are over: {format_size(size)} and larger are left out")
        return False


def _record(options: Options, rows: list[Row], crew: Crew, turns: Turns, facts: dict[str, Any]) -> dict[str, Any]:
    given = {
        name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(options).items()
    }
    return {
        "schema": SCHEMA,
        "machine": facts,
        "options": {name: value for name, value in given.items() if name not in ("json", "csv", "plot", "compare")},
        "implementations": crew.facts,
        "rows": rows,
        "summary": summary(rows),
        "failures": crew.failures,
        "unsupported": turns.unsupported,
    }


def _report(options: Options, table: Table, record: dict[str, Any], subject: Peer, earlier: list[Row]) -> int:
    """Says what it all comes down to, writes the files, and decides the exit status."""
    rows: list[Row] = record["rows"]
    closing = table.closing(rows)
    if closing:
        print("\n" + closing)
    for name, facts in record["implementations"].items():
        if facts["note"]:
            print(f"{name} {facts['version']}: {facts['note']}")
    for name, reason in record["failures"].items():
        print(f"FAILED {name}: {reason}")
    wrong = record["summary"]["wrong"]
    if wrong:
        print(f"WRONG: {wrong} elements of the results above are not what they must be")
    compared = _compare(options, record, earlier)
    try:
        _write(options, record)
    except OSError as error:
        raise Failed(f"cannot write {error.filename}: {error.strerror}") from error
    if wrong or not rows or subject.name in {*record["failures"], *record["unsupported"]}:
        return 1
    return compared


def _compare(options: Options, record: dict[str, Any], earlier: list[Row]) -> int:
    """The status by the comparison alone; says what has changed, and notes it in the record."""
    if options.compare is None:
        return 0
    threshold = options.threshold / 100
    found = compare.changes(earlier, record["rows"], threshold)
    if not found:
        print(f"FAILED --compare: no size of this run is in {options.compare}")
        return 1
    print(compare.in_words(found, threshold, options.compare))
    record["compared"] = compare.document(found, threshold, options.compare)
    return REGRESSION if any(change.verdict == "slower" for change in found) else 0


def _write(options: Options, record: dict[str, Any]) -> None:
    """The files that were asked for; what goes to stdout has it for itself alone."""
    for path, kind in ((options.json, "json"), (options.csv, "csv")):
        if path is None:
            continue
        with contextlib.ExitStack() as files:
            file = sys.__stdout__ if path == STDOUT else files.enter_context(path.open("w", newline=""))
            assert file is not None
            if kind == "csv":
                write_csv(record["rows"], file)
            else:
                file.write(json.dumps(record, indent=1) + "\n")
        if path != STDOUT:
            print(f"rows: {path}")
    if options.plot and record["rows"]:
        _plot(record, options.plot)


def _plot(record: dict[str, Any], path: Path) -> None:
    try:
        save_plot(record, path)
    except ImportError as error:
        raise Failed(f"--plot needs matplotlib ({error}): pip install matplotlib") from error
    print(f"plot: {path}")


def _progress(total: int) -> Progress:
    """Redraws only when told to: a thread that redraws would take time from the ranks."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:>6}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=not console.is_terminal or total < 2,
        redirect_stdout=sys.stdout.isatty(),
    )

"""`stretto tune`: measures which algorithm is fastest at which size here, and writes the planner's table."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from stretto.bench.drivers import Missing
from stretto.bench.job import Job, JobError
from stretto.bench.options import Options, UsageError
from stretto.cli.flags import flag, with_flags
from stretto.cli.hosts import REMOTE_SHELL
from stretto.cli.output import console, emit, examples, expect_writable, progress, size, size_text, stop, table
from stretto.cli.reach import HOSTS_PANEL, REACH_FLAGS, Reach, refuse_reach_options
from stretto.cli.working import steps
from stretto.errors import StrettoError

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")
_SIZES = {"cpu": "64:16M", "cuda": "1K:512M"}
_SECONDS = {"cpu": 0.0, "cuda": 60.0}
# These decide what is to be measured.
_FORCING = ("STRETTO_ALGO", "STRETTO_PROTO", "STRETTO_BLOCKS")

Entries = list[dict[str, Any]]


@dataclass(frozen=True)
class Given:
    """What the command line says."""

    ranks: int = 2
    device: str = "cpu"
    threads: bool = False
    shared_device: bool = False
    quick: bool = False
    seconds: float | None = None
    collective: list[str] | None = None
    sizes: str | None = None
    library: Path | None = None
    hosts: str | None = None
    env: list[str] | None = None
    remote_shell: str = REMOTE_SHELL
    remote_python: str = sys.executable
    reach: float = 30.0
    output: Path | None = None
    json: str | None = None


_JOB, _SEARCH, _OUTPUT = "The job", "What is measured", "What comes out"


FLAGS: dict[str, Any] = {
    "ranks": flag(_JOB, "--ranks", "-n", metavar="N", min=2, max=64, help="How many ranks."),
    "device": flag(_JOB, "--device", metavar="KIND", help="cpu, or cuda: a GPU for each rank."),
    "threads": flag(_JOB, "--threads", help="Ranks as threads of one process."),
    "shared_device": flag(_JOB, "--shared-device", help="All ranks on GPU 0: to try the command, not for times."),
    "quick": flag(_SEARCH, "--quick", help="Fewer sizes, fewer and shorter turns."),
    "seconds": flag(
        _SEARCH, "--seconds", metavar="S", min=0, help="For everything; 0: no limit (default: 60 on GPUs, else 0)."
    ),
    "collective": flag(
        _SEARCH,
        "--collective",
        metavar="NAME",
        help=f"Only this one; again for more. All: {', '.join(COLLECTIVES)}.",
        autocompletion=lambda: list(COLLECTIVES),
    ),
    "sizes": flag(
        _SEARCH, "--sizes", metavar="FROM:TO", help="Of the larger buffer (default: 64:16M, on GPUs 1K:512M)."
    ),
    "library": flag(_JOB, "--library", metavar="FILE", help="Stretto's libnccl.so.2 on GPUs, if not the one found."),
    "hosts": flag(
        HOSTS_PANEL,
        "--hosts",
        metavar="A,B,...",
        help="Measure the links between these hosts instead, for the planner's model.",
    ),
    **REACH_FLAGS,
    "output": flag(
        _OUTPUT,
        "--output",
        metavar="FILE",
        help="The table (default: ~/.cache/stretto/table-HOST.json, of hosts table-hosts.json).",
    ),
    "json": flag(_OUTPUT, "--json", metavar="FILE", help="Write the result as JSON to FILE; - is stdout."),
}
SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto tune --ranks 4 --output table.json",
        "stretto tune --quick --collective all_reduce --sizes 64:1M",
        "stretto tune --device cuda --ranks 2",
        "stretto tune --hosts node1,node2",
    )
}


def _say(text: str) -> None:
    progress.print(f"stretto tune: {text}", soft_wrap=True)


def _sizes(text: str, factor: int) -> list[int]:
    """Sizes from "64:16M"."""
    from stretto.bench.workload import sweep

    smallest, colon, largest = text.partition(":")
    try:
        return sweep(size(smallest), size(largest if colon else smallest), factor)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _tell_left_out(left: int, seconds: float) -> None:
    if left:
        _say(f"{seconds:g} s are over: {left} of the sizes are left out, where the planner goes by their neighbours")


def _measure_on_cpu(job: Job, options: Options, chosen: list[str], sizes: list[int], quick: bool) -> Entries:
    from stretto.tuning.gpu_search import Clock
    from stretto.tuning.search import Search
    from stretto.tuning.table import entry

    search = Search(job, options.ranks, 3 if quick else 7, 4 if quick else 15, _say)
    entries, clock, left = [], Clock(options.seconds), 0
    with steps(len(chosen) * len(sizes)) as step:
        for collective in chosen:
            winners = []
            for bytes in sizes:
                step(f"{collective} {size_text(bytes)}")
                began = time.monotonic()
                if not clock.has_time(bytes):
                    left += 1
                    continue
                winners.append(search.measure(collective, bytes))
                clock.took(bytes, time.monotonic() - began)
            found = [one for one in winners if one is not None]
            if found:
                rows = [one.row() for one in found]
                entries.append(entry(collective, options.ranks, search.machine, rows) | {"winners": found})
    _tell_left_out(left, options.seconds)
    return entries


def _measure_on_gpus(
    job: Job, options: Options, chosen: list[str], sizes: list[int], quick: bool, began: float
) -> tuple[Entries, dict[str, Any]]:
    from stretto.tuning.gpu_search import Clock, GpuSearch, cases, cells
    from stretto.tuning.table import entry, gpu_facts

    search = GpuSearch(job, options.ranks, _say)
    clock, left = Clock(options.seconds, began), 0
    order = cells(cases(chosen), sizes, quick)
    winners: dict[Any, list[Any]] = {case: [] for case in cases(chosen)}
    with steps(len(order)) as step:
        for case, bytes, between in order:
            step(f"{case.name} {size_text(bytes)}")
            if not clock.has_time(bytes):
                left += 1
                continue
            start = time.monotonic()
            winners[case].append(search.measure(case, bytes, between))
            clock.took(bytes, time.monotonic() - start)
    _tell_left_out(left, options.seconds)
    entries = []
    for case, all_found in winners.items():
        found = sorted((one for one in all_found if one is not None), key=lambda one: one.bytes)
        if found:
            rows = [one.row() for one in found]
            made = entry(case.collective, options.ranks, search.machine, rows, case.reduction)
            entries.append(made | {"winners": found})
    return entries, gpu_facts(search.machine) if search.machine else {}


def _measure(options: Options, chosen: list[str], sizes: list[int], quick: bool) -> tuple[Entries, dict[str, Any]]:
    """The entries of the table, each with its winners for people, and what to say of the machine."""
    from stretto.tuning.ranks import running
    from stretto.tuning.table import host_facts

    began = time.monotonic()
    with running(options, sizes[-1], _say) as job:
        if options.on_gpu:
            return _measure_on_gpus(job, options, chosen, sizes, quick, began)
        return _measure_on_cpu(job, options, chosen, sizes, quick), host_facts()


def _show(entries: Entries, path: Path) -> None:
    rows = table("collective", "bytes", "fastest", "µs", "planner", "µs", right=(1, 3, 5))
    for one in entries:
        others = " (others)" if one.get("reduction") == "others" else ""
        for winner in one["winners"]:
            changed = winner.best is not winner.model
            rows.add_row(
                one["collective"] + others,
                size_text(winner.bytes),
                winner.best.name,
                f"{winner.best.microseconds:.2f}",
                winner.model.name if changed else "the same",
                f"{winner.model.microseconds:.2f}" if changed else "",
                style="bold" if changed else None,
            )
    console.print(rows)
    console.print(f"Written to {path}. Use it:", soft_wrap=True)
    console.print(f"export STRETTO_TABLE={path}", soft_wrap=True)


def _refuse_options(context: typer.Context, given: Given) -> None:
    """Those that say nothing where links between hosts are measured, or where they are not."""
    if given.hosts is None:
        refuse_reach_options("tune", context)
        if given.env:
            stop("tune: --env is for ranks on other hosts, and there is no --hosts")
        return
    for name in ("ranks", "device", "threads", "shared_device", "seconds", "collective", "sizes", "library"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            stop(f"tune: --hosts measures the links between hosts, for which --{name.replace('_', '-')} says nothing")


def _check(given: Given) -> None:
    unknown = [one for one in given.collective or [] if one not in COLLECTIVES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]}: choose from {', '.join(COLLECTIVES)}")
    if given.device not in _SIZES:
        raise typer.BadParameter(f"--device {given.device}: choose from {', '.join(_SIZES)}")
    for name in _FORCING:
        if os.environ.get(name):
            stop(f"tune: {name} is set, and would decide what is to be measured: unset it")


def _expect_targets(given: Given) -> None:
    """Before a search of minutes; the folder of the default table is made when that is written."""
    for target in (given.output, given.json):
        if target is not None and target != "-":
            expect_writable("tune", target)


def _options(given: Given) -> Options:
    # Not bound to cores: a bound rank counts its own core as all there are, and so would the table.
    options = Options(
        ranks=given.ranks,
        device=given.device,
        threads=given.threads,
        shared_device=given.shared_device,
        library=given.library,
        bind="none",
        seconds=_SECONDS[given.device] if given.seconds is None else given.seconds,
        timeout=20.0,
    )
    options.validate()
    return options


def _tune_links(given: Given) -> None:
    from stretto.cli.tune_hosts import tune_links

    reach = Reach(given.hosts or "", given.env or [], given.remote_shell, given.remote_python, given.reach)
    try:
        tune_links(reach, given.quick, given.output, given.json)
    except KeyboardInterrupt:
        stop("tune: interrupted; nothing runs on any host any more, and the table was not written everywhere", 130)


@with_flags(Given, FLAGS, context=True)
def tune(context: typer.Context, **flags: Any) -> None:
    """Measure each algorithm at each size, in turns, and write the fastest into the planner's table.

    Every result is verified. Where nothing is faster than the planner's own choice by more than 3 % (on GPUs: 2 %), in
    most turns, the choice stays. Entries that the file has for other cases (other numbers of ranks, other GPUs) stay in
    it. On GPUs the number of thread blocks is chosen too.

    With --hosts messages between each host and the next are timed by one CPU rank on each: a small one, each further
    chunk of a long one, and how many bytes pass in a microsecond. The slowest link's numbers are written into the
    table, here and on each host, because ranks with different tables are refused. From them the planner's model
    predicts operations over several hosts and chooses between rings, trees and stages.
    """
    from stretto.tuning import table as tables
    from stretto.tuning.search import WrongResult

    given = Given(**flags)
    _refuse_options(context, given)
    _check(given)
    path = given.output or tables.default_path()
    _expect_targets(given)
    if given.hosts is not None:
        _tune_links(given)
        return
    try:
        options = _options(given)
        before = tables.read(path)
        factor = 2 if options.on_gpu else 16 if given.quick else 4
        sizes = _sizes(given.sizes or _SIZES[given.device], factor)
        entries, facts = _measure(options, given.collective or list(COLLECTIVES), sizes, given.quick)
    except (UsageError, Missing) as error:
        stop(f"tune: {error}", 2)
        return
    except (JobError, WrongResult, StrettoError) as error:
        stop(f"tune: {error}", 1)
        return
    except KeyboardInterrupt:
        stop("tune: interrupted; all ranks are ended and no table was written", 130)
        return
    plain = [{key: value for key, value in one.items() if key != "winners"} for one in entries]
    document = tables.with_entries(before, plain, facts)
    try:
        tables.write(path, document)
    except OSError as error:
        stop(f"tune: cannot write {path}: {error.strerror}", 1)
    emit(document, given.json, lambda: _show(entries, path))

"""What profiler plugins cost an operation of 64 bytes between two GPUs: in NCCL and Stretto, eager and in CUDA graphs.

A wave is a few plugins and no plugin at all, each under both libraries, each with rank processes of its own that start
together and then take turns: A B A B. No plugin is in every wave, so that a cell is compared with turns of the same
minute and of processes as old. Passes over all plugins follow each other until the time is over, in another order each.
While ranks are timed, the thread that calls has a core of its own and everybody else's threads have others.

`tools/profiler_overhead` calls this, and says what has to be where.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stretto.bench import gpu
from stretto.bench.drivers import Missing
from stretto.bench.job import Job, JobError, Launch, terminable
from stretto.bench.measure import Cell, Schedule, Turns, plan
from stretto.bench.options import Options
from stretto.bench.profiler_table import NOTHING, ONE_CLASS, SCHEMA, Key, Plugin, known_plugins, tables
from stretto.bench.rows import machine

RANKS = 2
COLLECTIVES = ("all_reduce", "send_recv")
LIBRARIES = ("nccl", "stretto")
_START_SECONDS = 90.0
# A wave that is likely to end this much later than the longest so far is not begun.
_SLACK = 1.2
_LEAST_BATCHES, _MOST_BATCHES = 3, 20
# A plugin may take milliseconds a call: then an eager batch is shorter.
_LONGEST_BATCH_MS = 50.0


@dataclass(frozen=True)
class Place:
    """Where one rank runs: its calling thread, and all other threads of its process."""

    core: int
    helpers: tuple[int, ...]


@dataclass(frozen=True)
class Ask:
    """What one call measures. `libraries` are paths by name; no places: nobody is bound."""

    programs: Path
    libraries: dict[str, Path]
    plugins: list[Plugin]
    scratch: Path
    places: list[Place]
    seconds: float = 390.0
    passes: int = 0  # as many as there is time for
    rounds: int = 5
    at_once: int = 4
    calls: int = 1000
    budget_ms: float = 20.0
    size: int = 64
    timeout: float = 30.0


@dataclass
class Series:
    """All turns of one cell, in microseconds a call: each a median of batches, of the slowest rank."""

    us: list[float] = field(default_factory=list)
    none_us: list[float] = field(default_factory=list)  # of the turn without a plugin in the same round
    host_us: list[float] = field(default_factory=list)  # what an eager call cost its caller, a median for each wave
    wrong: int = 0


def places(ranks: int, groups: list[list[int]]) -> list[Place]:
    """Two or more groups of `groups`, cores that share one's hardware, for each rank; one is left to everybody else.

    Raises Missing where there are too few.
    """
    each = (len(groups) - 1) // ranks
    if each < 2:
        needed = 2 * ranks + 1
        raise Missing(f"binding {ranks} ranks needs {needed} cores and here are {len(groups)}; --no-pin does without")
    found = []
    for rank in range(ranks):
        own = groups[1 + rank * each : 1 + (rank + 1) * each]
        # The caller's sibling stays idle.
        found.append(Place(own[0][0], tuple(sorted(core for group in own[1:] for core in group))))
    return found


def core_groups() -> list[list[int]]:
    """The cores that this process may use; those that are threads of one core together."""
    allowed = os.sched_getaffinity(0)
    groups: dict[str, list[int]] = {}
    for core in sorted(allowed):
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        name = path.read_text().strip() if path.exists() else str(core)
        groups.setdefault(name, []).append(core)
    return list(groups.values())


def schedule(calls: int) -> Callable[[Options, float], Schedule]:
    """Eager batches of so many calls, since short ones measure a first call's way to the GPU; graphs as ever."""

    def planner(options: Options, estimate: float) -> Schedule:
        if options.in_graph:
            return plan(options, estimate)
        batch = max(1, min(calls, int(_LONGEST_BATCH_MS * 1000 / estimate)))
        batches = int(options.budget_ms * 1000 / (batch * estimate))
        return Schedule(batch, batch, max(_LEAST_BATCHES, min(_MOST_BATCHES, batches)), 0)

    return planner


class Study:
    """Measures, and keeps what was found."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._nothing = known_plugins()[NOTHING]
        self._waves = 0
        self._longest = 0.0
        self._began = time.monotonic()
        self._machine = machine()  # before it is busy with us
        self.series: dict[Key, Series] = {}
        self.written: dict[str, list[int]] = {}
        self.failures: dict[str, list[str]] = {}
        self.versions: dict[str, str] = {}
        self.gpu = ""

    def run(self, after_wave: Callable[[], object]) -> None:
        ask = self._ask
        plugins = [plugin for plugin in ask.plugins if plugin.name != NOTHING]
        # Should there be no time for all, then classes of events are what is least missed.
        plugins.sort(key=lambda plugin: plugin.name in ONE_CLASS)
        passes = 0
        while not ask.passes or passes < ask.passes:
            order = random.Random(passes).sample(plugins, len(plugins)) if passes else plugins
            # Without any plugin but none there is one wave, of none.
            for first in range(0, max(1, len(order)), ask.at_once):
                if not self._has_time():
                    return
                self._wave(order[first : first + ask.at_once])
                after_wave()  # a call that is ended later has not measured in vain
            passes += 1

    def _has_time(self) -> bool:
        spent = time.monotonic() - self._began
        return self._waves == 0 or spent + _SLACK * self._longest < self._ask.seconds

    def _wave(self, plugins: list[Plugin]) -> None:
        began = time.monotonic()
        folder = self._ask.scratch / f"wave-{self._waves}"
        jobs: dict[str, Job] = {}
        try:
            for plugin in [self._nothing, *plugins]:
                for library in self._ask.libraries:
                    self._start(library, plugin, folder, jobs)
            self._wait(jobs)
            for collective in COLLECTIVES:
                for graph in (True, False):
                    self._measure(collective, graph, jobs)
            with ThreadPoolExecutor(max(1, len(jobs))) as pool:
                ends = list(pool.map(Job.close, jobs.values()))
            for name, problem in zip(jobs, ends, strict=True):
                if problem:
                    self._fail(name, f"at its end: {problem}")
                self.written.setdefault(name, []).append(_bytes_below(folder / name / "out"))
        finally:
            for job in jobs.values():
                job.kill()
            shutil.rmtree(folder, ignore_errors=True)
        self._waves += 1
        took = time.monotonic() - began
        self._longest = max(self._longest, took)
        names = " ".join(plugin.name for plugin in plugins)
        print(f"profilers: {time.monotonic() - self._began:.0f} s: {took:.0f} s for {names}", flush=True)

    def _start(self, library: str, plugin: Plugin, folder: Path, jobs: dict[str, Job]) -> None:
        """All start at once; _wait() sees what becomes of them."""
        name = f"{library}/{plugin.name}"
        if name in self.failures and plugin != self._nothing:
            return  # it would cost every pass the time that it takes to fail
        own = folder / name
        (own / "out").mkdir(parents=True)
        launch = gpu.launch_library(
            "job", self._ask.libraries[library], self._options(COLLECTIVES[0], False), own, self._ask.size
        )
        commands = [command + self._binding(rank) for rank, command in enumerate(launch.commands)]
        environment = plugin.environment(self._ask.programs, own / "out")
        try:
            jobs[name] = Job(name, Launch(commands, {**launch.environment, **environment}), RANKS, own)
        except (OSError, JobError) as error:
            self._fail(name, str(error))

    def _binding(self, rank: int) -> list[str]:
        """The ranks' calling threads by rank, and where the other threads of this one go."""
        if not self._ask.places:
            return []
        cores = ",".join(str(place.core) for place in self._ask.places)
        return ["--cores", cores, "--helpers", ",".join(str(core) for core in self._ask.places[rank].helpers)]

    def _wait(self, jobs: dict[str, Job]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        for name, job in list(jobs.items()):
            try:
                job.wait_ready(max(1.0, deadline - time.monotonic()))
                self._must_have_loaded(name, job)
            except JobError as error:
                self._fail(name, str(error))
                jobs.pop(name).kill()
                continue
            self.versions[name.split("/")[0]] = job.version
            self.gpu = job.gpu

    def _must_have_loaded(self, name: str, job: Job) -> None:
        """A library goes on without a plugin that it cannot load; then the cell would be one without."""
        file = known_plugins()[name.split("/")[1]].file
        for pid in job.pids:
            mapped = Path(f"/proc/{pid}/maps").read_text()
            if file and f"/{file}\n" not in mapped:
                raise JobError(f"{file} was not loaded: NCCL_DEBUG=INFO says why")
            if not file and "libnccl-profiler" in mapped:
                raise JobError("a profiler plugin was loaded where none was asked for")

    def _options(self, collective: str, graph: bool) -> Options:
        ask = self._ask
        return Options(
            collective=collective,
            ranks=RANKS,
            device="cuda",
            graph=graph,
            min_bytes=str(ask.size),
            max_bytes=str(ask.size),
            rounds=ask.rounds,
            budget_ms=ask.budget_ms,
            timeout=ask.timeout,
        )

    def _measure(self, collective: str, graph: bool, jobs: dict[str, Job]) -> None:
        options = self._options(collective, graph)
        turns = Turns(options, jobs, frozenset(), schedule(self._ask.calls))
        cells = {cell.implementation: cell for cell in turns.measure(self._ask.size)}
        for name, cell in cells.items():
            library, plugin = name.split("/")
            none = cells.get(f"{library}/{NOTHING}")
            self._keep(Key(library, plugin, collective, graph), cell, none)
        for name, reason in {**turns.unsupported, **turns.failures}.items():
            self._fail(name, f"{collective}, {'in a graph' if graph else 'eager'}: {reason}")
        for name in turns.failures:  # Turns has ended them
            jobs.pop(name)

    def _keep(self, key: Key, cell: Cell, none: Cell | None) -> None:
        series = self.series.setdefault(key, Series())
        series.wrong += cell.wrong
        if none is None:  # nothing to compare with in this wave
            return
        series.us += _medians(cell)
        series.none_us += _medians(none)
        series.host_us += [statistics.median(cell.host)] if cell.host else []

    def _fail(self, name: str, reason: str) -> None:
        print(f"profilers: FAILED {name}: {reason}", file=sys.stderr, flush=True)
        self.failures.setdefault(name, []).append(reason)

    def record(self) -> dict[str, Any]:
        ask = self._ask
        return {
            "schema": SCHEMA,
            "machine": {**self._machine, "gpu": self.gpu},
            "versions": self.versions,
            "options": {
                "bytes": ask.size,
                "ranks": RANKS,
                "rounds": ask.rounds,
                "at_once": ask.at_once,
                "calls": ask.calls,
                "budget_ms": ask.budget_ms,
                "places": [asdict(place) for place in ask.places],
            },
            "waves": self._waves,
            "seconds": round(time.monotonic() - self._began, 1),
            "rows": [{**asdict(key), **asdict(series)} for key, series in self.series.items()],
            "written_bytes": self.written,
            "failures": self.failures,
        }


def _medians(cell: Cell) -> list[float]:
    return [round(statistics.median(turn), 3) for turn in cell.turns]


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _choose(plugins: Iterable[Plugin], names: str, programs: Path) -> list[Plugin]:
    """Those named, all by default; raises Missing for names that are none, and for files that are not there."""
    known = {plugin.name: plugin for plugin in plugins}
    chosen = names.split(",") if names else list(known)
    for name in chosen:
        if name not in known:
            raise Missing(f"--plugins {name}: choose from {', '.join(known)}")
        file = known[name].file
        if file and not (programs / file).exists():
            raise Missing(f"{programs} has no {file}: `tools/profiler_overhead --pack` makes it, or leave out {name}")
    return [known[name] for name in chosen]


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="profilers", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--programs", type=Path, help="folder of nccl_driver, Stretto's libnccl.so.2 and the plugins")
    parser.add_argument("--out", type=Path, default=Path("profiler-overhead"), help="where rows.json and tables.md go")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: print the tables of a rows.json")
    parser.add_argument("--seconds", type=float, default=390.0, help="for everything (default 390)")
    parser.add_argument("--passes", type=int, default=0, help="over all plugins, at most (default: what time allows)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of a cell in a wave (default 5)")
    parser.add_argument("--at-once", type=int, default=4, help="plugins in a wave, beside none (default 4)")
    parser.add_argument("--size", type=int, default=64, help="bytes of an operation, a multiple of 4 (default 64)")
    parser.add_argument("--calls", type=int, default=1000, help="eager calls in a batch (default 1000)")
    parser.add_argument("--budget-ms", type=float, default=20.0, help="of timed calls in a turn (default 20)")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds until a rank counts as hung (default 30)")
    parser.add_argument("--plugins", default="", help=f"of {', '.join(known_plugins())} (default: all)")
    parser.add_argument("--libraries", default=",".join(LIBRARIES), help="nccl, stretto or both (default)")
    parser.add_argument("--nccl", type=Path, help="NVIDIA's libnccl.so.2 (default: that of this Python's wheel)")
    parser.add_argument("--scratch", type=Path, help="where plugins write (default: a folder for temporary files)")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler decide which cores the ranks run on")
    options = parser.parse_args(words)
    if options.programs is None and options.table is None:
        parser.error("--programs says what to measure with, --table which file to print again")
    if min(options.rounds, options.at_once, options.calls) < 1 or min(options.seconds, options.budget_ms) <= 0:
        parser.error("rounds, calls, plugins at once, seconds and the budget are more than 0")
    if options.size < 4 or options.size % 4:
        parser.error(f"--size {options.size}: floats have 4 bytes")
    for name in options.libraries.split(","):
        if name not in LIBRARIES:
            parser.error(f"--libraries {name}: choose from {', '.join(LIBRARIES)}")
    return options


def _ask_of(options: argparse.Namespace, scratch: Path) -> Ask:
    programs = options.programs.resolve()
    os.environ["STRETTO_BENCH_DRIVERS"] = str(programs)
    wanted = Options(device="cuda", ranks=RANKS, nccl=options.nccl, library=programs / "libnccl.so.2")
    gpu.need_gpus(wanted)
    find = {"nccl": gpu.find_nccl, "stretto": gpu.find_stretto}
    names = ("seconds", "passes", "rounds", "at_once", "calls", "budget_ms", "size", "timeout")
    return Ask(
        programs=programs,
        libraries={name: find[name](wanted) for name in options.libraries.split(",")},
        plugins=_choose(known_plugins().values(), options.plugins, programs),
        scratch=scratch,
        places=[] if options.no_pin else places(RANKS, core_groups()),
        **{name: getattr(options, name) for name in names},
    )


def _save(study: Study, out: Path) -> str:
    out.mkdir(parents=True, exist_ok=True)
    record = study.record()
    text = tables(record)
    (out / "rows.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "tables.md").write_text(text + "\n")
    return text


def main(words: list[str] | None = None) -> int:
    options = _parse(words)
    if options.table is not None:
        print(tables(json.loads(options.table.read_text())))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="stretto-profilers-", dir=options.scratch))
    try:
        study = Study(_ask_of(options, scratch))
        with terminable():
            study.run(lambda: _save(study, options.out))
    except Missing as reason:
        print(f"profilers: {reason}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(_save(study, options.out))
    return 1 if study.failures or any(series.wrong for series in study.series.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

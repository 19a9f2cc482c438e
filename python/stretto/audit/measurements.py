"""What is measured, each once and when the first check asks for it. Ranks run in processes of their own: one that
crashes or hangs is what the audit is there to find.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.audit import beside, child
from stretto.audit.implementations import Contest, OnePair, OtherBuild, other
from stretto.audit.ladder import Step, steps_of
from stretto.audit.progress import HANGS_AFTER, Progress, waited_for
from stretto.bench.drivers import Missing, find_driver
from stretto.bench.gpu import count_gpus
from stretto.bench.job import Job, JobError, Launch, Reply, Unsupported
from stretto.bench.measure import SUBJECT, Turns
from stretto.bench.options import MOST_GPU_RANKS, Options
from stretto.bench.peers import Memcpy, Nccl, Peer, Stretto
from stretto.bench.rows import FLOOR, Row, row_of

if TYPE_CHECKING:
    from stretto.audit.context import Level

_LADDER = {"quick": 32, "default": 8, "full": 2}  # from 8 B to 1 MB by this factor
_LARGE = {"quick": ("4M", "4M"), "default": ("1M", "16M"), "full": ("1M", "64M")}
_FIVE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
_LARGEST_BESIDE = {"quick": "256K", "default": "4M", "full": "64M"}
_LARGEST_ON_GPUS = {"quick": "4M", "default": "64M", "full": "1G"}
_MOST_PAIRS = {"quick": 0, "default": 4, "full": MOST_GPU_RANKS}  # each takes some seconds to start
_KILLED_SECONDS = 1.0  # until a process that was killed is left behind, at the end
_START_SECONDS = 90.0  # CUDA and NCCL are gigabytes to read
_CREW = "ranks"
_FEW = 3
_CALLS_OF_A_BATCH = 96
_LITTLE = 4096  # bytes of a rank's buffers where nothing large is moved
_BATCHES = {"quick": 30, "default": 100, "full": 1000}  # of calls: tens of microseconds each
_MOST_NOISE = 10.0
# Ranks of the audit that are killed are no job that `stretto doctor` should tell of. As long as they live their flight
# recorders can be read by process; a folder would keep one of each of a thousand communicators.
_NO_TRACES = {"STRETTO_FLIGHT_DIR": "none", "STRETTO_FLIGHT_LATE": "0"}
# The same for what runs on GPUs as HANGS_AFTER for the rest: a driver takes its time.
_GPU_HANGS_AFTER = 10.0
# Of the memory that is free, what measuring the platform may take.
_SHARE_OF_MEMORY = 8


class Unmeasured(Exception):
    """There is no number, and why. `failed`: the ranks did not do what was asked of them; else it was not asked."""

    def __init__(self, reason: str, failed: bool = False) -> None:
        super().__init__(reason)
        self.failed = failed


@dataclass(frozen=True)
class Series:
    """One case of the platform's costs, a value for each round. `best`: of rates the highest, else the lowest."""

    probe: str
    case: str
    unit: str
    values: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.values) if self.unit == "GB/s" else min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def noise(self) -> float:
        """How many times worse than the best the usual one is: 1 on a machine that does nothing else."""
        return max(self.best, self.median) / min(self.best, self.median)


class Platform:
    """All cases, by name."""

    def __init__(self, series: list[Series]) -> None:
        self.series = series
        self._by_name = {one.case: one for one in series}

    @property
    def large_copy(self) -> Series:
        """Its size depends on the memory that was free."""
        for one in self.series:
            if one.case.startswith("memcpy, ") and one.case.endswith(" MB"):
                return one
        raise Unmeasured("this machine has no large memcpy")

    def best(self, case: str) -> float:
        if case not in self._by_name:
            raise Unmeasured(f"this machine has no '{case}'")
        return self._by_name[case].best

    @property
    def wake(self) -> float:
        """Microseconds until a thread that sleeps is woken, by the quickest of all ways."""
        ways = [one.best for one in self.series if one.probe == "wake" and not one.case.startswith("cache line")]
        if not ways:
            raise Unmeasured("no thread could be started to be woken")
        return min(ways)

    @property
    def line(self) -> float:
        """Microseconds that a cache line takes from one rank's core to another's: the slowest pair's. Never more than a
        wake-up: on a busy machine the two cores may not be there at once.
        """
        lines = [one.best for one in self.series if one.case.startswith("cache line")]
        return min(max(lines, default=self.wake), self.wake)

    @property
    def noise(self) -> float:
        """By the costs that a crowd changes most, by how late a sleep of a millisecond ends at best, and no more
        than ten."""
        found = [one.noise for one in self.series if one.probe in ("wake", "copy", "socket")]
        if any(len(one.values) < _FEW for one in self.series):
            return _MOST_NOISE  # There was no time for more: nobody knows.
        late = [one.best / 1000 for one in self.series if one.case == "sleep of 1000 us"]
        return min(_MOST_NOISE, max(1.0, statistics.median(found or [1.0]), *late))


class Measurements:
    """`left`: seconds until the audit should end; `room`: bytes that may still be allocated. What fails once is not
    asked again: the reason stays.
    """

    def __init__(
        self,
        ranks: int,
        level: Level,
        say: Callable[[str], None],
        left: Callable[[], float],
        room: Callable[[], int],
    ) -> None:
        self.ranks, self.level = ranks, level
        self._tell, self._left, self._room = say, left, room
        self._doing = ""
        self._jobs: dict[str, Job] = {}
        self._watched: dict[str, Progress] = {}  # by the same names
        self._broken = ""
        self._platform_failure: Unmeasured | None = None
        self.replies: dict[str, list[dict[str, Any]]] = {}

    def close(self) -> None:
        """Asks the ranks to end, so that they close their communicators, and kills what does not. Half of the time that
        is kept for the end is for asking.
        """
        try:
            for job in self._jobs.values():
                job.close(max(0.1, (self._left() + self.level.ending / 2) / 2))
        finally:
            for job in self._jobs.values():
                job.kill(_KILLED_SECONDS)
            if "_folder" in self.__dict__:
                self._folder.cleanup()

    def end_now(self) -> tuple[str, bool]:
        """At the end of the audit's time: ends what has not answered. What was being done, with what the flight
        recorders say of ranks that were asked; and whether these hang.
        """
        words, hang = self._doing, False
        for use, job in self._jobs.items():
            progress = self._watched.get(use)
            if not job.unanswered or progress is None:
                continue
            progress()
            if progress.hangs:
                hang = True
                words += f", and {progress.what}"
            if progress.hangs or job.pids:
                words += waited_for(job.pids or job.started)
        words += self._kill_all()
        self._broken = "the time of this audit is over"
        return words, hang

    def _kill_all(self) -> str:
        """Which processes are left behind, in words."""
        left = []
        for job in self._jobs.values():
            job.kill(_KILLED_SECONDS)
            left += job.left_behind
        self._jobs.clear()
        return f"; process {', '.join(map(str, left))} does not end although it was killed" if left else ""

    def _say(self, doing: str) -> None:
        self._doing = doing
        self._tell(doing)

    def _ask(self, use: str, words: str, more_seconds: float = 0) -> list[Reply]:
        """The answers of a job's ranks, which are waited for as long as they begin operations."""
        job, patience = self._jobs[use], self.level.patience + more_seconds
        self._watch(use, job.pids, patience)
        return job.ask(words, patience)

    def _watch(
        self, use: str, pids: list[int], most: float, hangs_after: float = HANGS_AFTER, by_memory: bool = False
    ) -> None:
        """From now on it is looked whether that job hangs: early enough for the rest of the audit."""
        patience = max(hangs_after, min(most, self._left() / 4))
        progress = Progress(pids, patience, most, by_memory, hangs_after)
        self._jobs[use].watcher = self._watched[use] = progress

    # ---- The platform -------------------------------------------------------------------------------------------

    @cached_property
    def platform(self) -> Platform:
        if self._platform_failure is not None:
            raise self._platform_failure
        if self._left() <= 0:
            raise Unmeasured(f"left out: {self.level.over}")
        try:
            return self._measure_platform()
        except Unmeasured as failure:
            self._platform_failure = Unmeasured(f"left out: {failure}")
            raise

    def _measure_platform(self) -> Platform:
        self._say("measuring what the platform costs")
        try:
            words = ["--rounds", str(self.level.rounds), "--seconds", str(self.level.seconds / 5)]
            words += ["--bytes", str(self._room() // _SHARE_OF_MEMORY)]
            done = child.run([str(find_driver("platform_driver")), *words], 120 + self.level.seconds)
        except Missing as reason:
            raise Unmeasured(str(reason)) from reason
        except subprocess.TimeoutExpired as error:
            raise Unmeasured(f"the platform's costs took more than {error.timeout:.0f} s", failed=True) from error
        if done.returncode == -signal.SIGKILL:
            raise Unmeasured("platform_driver was killed by signal 9: no memory, here or in the cgroup", failed=True)
        if done.returncode != 0:
            raise Unmeasured(f"platform_driver ended with status {done.returncode}: {done.stderr[-300:]}", failed=True)
        found = []
        for line in done.stdout.splitlines():
            one = json.loads(line)
            values = tuple(value for value in one["values"] if value is not None)
            if values:
                found.append(Series(one["probe"], one["case"], one["unit"], values))
        return Platform(found)

    # ---- Native drivers: the ladder and large operations --------------------------------------------------------

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        try:
            return tempfile.TemporaryDirectory(prefix="stretto-audit-")
        except OSError as error:
            raise Unmeasured(f"there is no folder for temporary files: {error}") from error

    def _own_folder(self, use: str) -> Path:
        folder = Path(self._folder.name) / use
        folder.mkdir(exist_ok=True)
        return folder

    def _start(self, use: str, launch: Launch, ranks: int, peer: Peer | None = None, on_gpu: bool = False) -> Job:
        """`launch` is told the same folder, `_own_folder(use)`, and the same number of ranks."""
        launch = Launch(launch.commands, {**launch.environment, **_NO_TRACES})
        job = Job(peer.name if peer else use, launch, ranks, self._own_folder(use))
        self._jobs[use] = job
        hangs_after = _GPU_HANGS_AFTER if on_gpu else HANGS_AFTER
        self._watch(use, job.started, _START_SECONDS, hangs_after, by_memory=True)
        job.wait_ready(_START_SECONDS)
        # Other libraries have no flight recorder.
        self._watch(use, job.pids, self.level.patience, hangs_after, not isinstance(peer, Stretto | None))
        return job

    def _start_peer(self, use: str, peer: Peer, options: Options, most: int) -> Job:
        launch = peer.launch(options, self._own_folder(use), most + 4096)
        return self._start(use, launch, options.ranks, peer, options.on_gpu)

    @cached_property
    def ladder(self) -> list[Step]:
        """All-reduces of 8 B to 1 MB: single calls with both ends' times on every rank."""
        self._expect_whole()
        self._say("climbing the latency ladder")
        options = Options(ranks=self.ranks, rounds=1)
        factor = _LADDER[self.level.name]
        try:
            self._start_peer("ladder", Stretto(), options, 1 << 20)
            found = []
            for size in [*(8 * factor**step for step in range(17) if 8 * factor**step < 1 << 20), 1 << 20]:
                words = f"prepare collective=all_reduce type=float32 op=sum count={size // 4} root=0 in_place=0 check=1"
                prepared = self._ask("ladder", words)
                wrong = sum(int(reply["wrong"]) for reply in prepared)
                samples = max(20, self.level.samples // (1 + size // (256 << 10)))
                replies = self._ask("ladder", f"stamps count={samples}")
                found.append(steps_of(size, replies, wrong))
        except (Missing, Unsupported) as reason:
            raise Unmeasured(str(reason)) from reason
        except JobError as error:
            raise self._failure("all-reduces of the latency ladder", str(error), "ladder") from error
        self._end("ladder")
        return found

    @cached_property
    def launch(self) -> dict[str, list[float]]:
        """What a call costs one rank by itself, by the way of calling: nanoseconds, for each batch of calls."""
        self._expect_whole()
        self._say("measuring what a call costs")
        words = f"launch calls={_CALLS_OF_A_BATCH} batches={_BATCHES[self.level.name]}"
        try:
            self._start_peer("launch", Stretto(), Options(ranks=1, rounds=1, bind="none"), 4096)
            (reply,) = self._ask("launch", words)
        except (Missing, Unsupported) as reason:
            raise Unmeasured(str(reason)) from reason
        except JobError as error:
            raise self._failure("calls of one rank", str(error), "launch") from error
        self._end("launch")
        return {way: list(values) for way, values in reply.items() if way != "ok"}

    @cached_property
    def large(self) -> list[Row]:
        """Large all-reduces and memcpy in turns, as `stretto bench` measures them."""
        self._expect_whole()
        self._say("measuring large operations against memcpy")
        least, most = _LARGE[self.level.name]
        options = Options(
            ranks=self.ranks,
            min_bytes=least,
            max_bytes=most,
            factor=4,
            rounds=self.level.turns,
            timeout=3 * self.level.patience,
        )
        found = self._contest("large operations", options, [Stretto(), Memcpy()])
        if SUBJECT in found.failures:
            raise self._failure("large all-reduces", found.failures[SUBJECT])
        return found.rows

    def beside_on_cpus(self, library: Path) -> Contest:
        """Five collectives of ranks in host memory by this package's library and by another build of it, in turns."""
        self._expect_whole()
        self._say("measuring five collectives of two libraries")
        options = Options(
            ranks=self.ranks,
            min_bytes="1K",
            max_bytes=_LARGEST_BESIDE[self.level.name],
            factor=16,
            rounds=self.level.turns,
            budget_ms=8,
            timeout=self.level.patience,
        )
        found = self._contest("two libraries", options, [Stretto(), OtherBuild(library)], _FIVE)
        if SUBJECT in found.failures:
            raise self._failure("collectives beside another library", found.failures[SUBJECT])
        return found

    def on_gpus(self, library: Path | None) -> Contest:
        """All-reduces between all GPUs, in CUDA graphs: this package's library and another one in turns."""
        self._expect_whole()
        options = dataclasses.replace(self._gpu_options(), nccl=library)
        self._say(f"measuring all-reduces of {options.ranks} ranks on GPUs")
        found = self._contest("GPUs", options, [Stretto(), other(library)])
        if SUBJECT in found.failures:
            raise self._failure("all-reduces between GPUs", found.failures[SUBJECT])
        return found

    def beside(self, library: Path) -> list[beside.Costs]:
        """What communicators of this package's library and of another cost, on the same GPUs in turns. On one GPU these
        have one rank, as NVIDIA's does not put two ranks on one.
        """
        self._expect_whole()
        options = dataclasses.replace(self._gpu_options(), nccl=library, shared_device=False)
        ranks = options.ranks if count_gpus() > 1 else 1
        self._say(f"measuring what communicators of two libraries cost, with {ranks} rank{'s' * (ranks > 1)}")
        options = dataclasses.replace(options, ranks=ranks)
        jobs: dict[str, Job] = {}
        startups: dict[str, float] = {}
        failed: list[beside.Costs] = []
        for peer in (Stretto(), other(library)):
            use = f"costs of {peer.name}"
            try:
                launch = peer.launch(options, self._own_folder(use), _LITTLE)
                began = time.monotonic()
                jobs[peer.name] = self._start(use, launch, ranks, peer, on_gpu=True)
                startups[peer.name] = time.monotonic() - began
            except Missing as reason:
                raise Unmeasured(str(reason)) from reason
            except JobError as error:
                if peer.name == SUBJECT:
                    raise self._failure("starting for what communicators cost", str(error), use) from error
                failed.append(beside.Costs(peer.name, problem=str(error)))
                self._jobs.pop(use).kill()
        try:
            found = beside.measure(jobs, ranks, self.level, self._left)
            for costs in found:
                costs.startup_seconds = startups[costs.name]
        except (JobError, Unsupported) as error:
            raise self._failure("what communicators cost", str(error), f"costs of {SUBJECT}") from error
        for name in jobs:
            self._end(f"costs of {name}")
        for costs in found:
            if costs.name != SUBJECT and not costs.problem:
                costs.phases = self._said_phases(other(library), options) or costs.phases
        return found + failed

    def _said_phases(self, peer: Peer, options: Options) -> dict[str, float]:
        """Of communicators that are made for this: a library that writes down its phases takes longer. Nothing where it
        does not say them, or does not run so.
        """
        if not isinstance(peer, Nccl):
            return {}
        use = f"phases of {peer.name}"
        folder = self._own_folder(use)
        launch = peer.launch(options, folder, _LITTLE)
        says = Launch(launch.commands, {**launch.environment, **beside.says_phases(folder)})
        try:
            self._start(use, says, options.ranks, peer, on_gpu=True).ask(
                f"makings count=1 ranks={options.ranks}", self.level.patience
            )
        except (JobError, Unsupported):
            self._jobs.pop(use).kill()
            return {}
        self._end(use)
        return beside.said_phases(folder, options.ranks)

    def eager_on_gpus(self) -> Contest:
        """The smallest of these all-reduces by this package's library, each launched by the host for itself."""
        self._expect_whole()
        self._say("measuring what a launch costs")
        found = self._contest(
            "launches", dataclasses.replace(self._gpu_options(), max_bytes="1K", graph=False), [Stretto()]
        )
        if SUBJECT in found.failures:
            raise self._failure("launches on GPUs", found.failures[SUBJECT])
        return found

    def _gpu_options(self) -> Options:
        """All-reduces of all GPUs, from 1 KB on."""
        try:
            gpus = min(count_gpus(), MOST_GPU_RANKS)
        except Missing as reason:
            raise Unmeasured(str(reason)) from reason
        return Options(
            device="cuda",
            ranks=max(2, gpus),
            shared_device=gpus == 1,
            datatype="bfloat16",
            min_bytes="1K",
            max_bytes=_LARGEST_ON_GPUS[self.level.name],
            factor=16,
            rounds=self.level.turns,
            budget_ms=15,
            timeout=self.level.patience,
        )

    def gpu_pairs(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Of each GPU and the next one: GB/s of large messages both ways at once, at best and usually. Nothing where
        there is one pair, or no time for all.
        """
        self._expect_whole()
        gpus = count_gpus()
        if gpus < 3 or gpus > _MOST_PAIRS[self.level.name]:
            return {}
        names = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
        options = Options(
            collective="send_recv",
            device="cuda",
            datatype="bfloat16",
            min_bytes="64M",
            max_bytes="64M",
            rounds=self.level.turns,
            budget_ms=15,
            timeout=self.level.patience,
        )
        found = {}
        for first in range(gpus):
            second = (first + 1) % gpus
            self._say(f"measuring GPUs {first} and {second}")
            pair = OnePair(f"{names[first]},{names[second]}")
            (row,) = self._contest(f"GPUs {first} and {second}", dataclasses.replace(options, ranks=2), [pair]).rows
            rate = row["busbw_gbps"]
            found[first, second] = rate * row["us_median"] / row["us_min"], rate
        return found

    def _contest(self, use: str, options: Options, peers: list[Peer], collectives: tuple[str, ...] = ()) -> Contest:
        """The first peer must start; another that is not here, or does not start, is left out and told of.
        `collectives`: more than that of the options.
        """
        jobs: dict[str, Job] = {}
        failures: dict[str, str] = {}
        for peer in peers:
            try:
                jobs[peer.name] = self._start_peer(f"{peer.name} of {use}", peer, options, options.sizes[-1])
            except Missing as reason:
                if peer is peers[0]:
                    raise Unmeasured(str(reason)) from reason
                failures[peer.name] = str(reason)
            except JobError as error:
                if peer is peers[0]:
                    raise self._failure(f"starting for {use}", str(error), f"{peer.name} of {use}") from error
                failures[peer.name] = str(error)
                self._jobs.pop(f"{peer.name} of {use}").kill()
        for peer in peers:
            if isinstance(peer, OtherBuild) and peer.name in jobs and not peer.runs(jobs[peer.name]):
                failures[peer.name] = "its ranks have not loaded that file"
                self._end(f"{peer.name} of {use}")
                del jobs[peer.name]
        rows = []
        for collective in collectives or (options.collective,):
            own = dataclasses.replace(options, collective=collective)
            left = {name: job for name, job in jobs.items() if name not in failures}
            turns = Turns(own, left, frozenset((FLOOR,)))
            rows += [row_of(cell, own) for size in own.sizes for cell in turns.measure(size)]
            failures |= {**turns.unsupported, **turns.failures}
        versions = {name: job.version for name, job in jobs.items()}
        for name in jobs:
            self._end(f"{name} of {use}")
        return Contest(rows, versions, failures, options.shared_device)

    def _end(self, name: str) -> None:
        job = self._jobs[name]
        try:
            job.close()
        finally:  # also when the audit's time ends meanwhile
            job.kill(_KILLED_SECONDS)
            del self._jobs[name]

    # ---- Ranks in Python ----------------------------------------------------------------------------------------

    def _crew(self) -> Job:
        if _CREW not in self._jobs:
            self._say(f"starting {self.ranks} ranks")
            folder = self._own_folder(_CREW)
            command = [sys.executable, "-m", "stretto.audit.rank", "--folder", str(folder), "--ranks", str(self.ranks)]
            commands = [[*command, "--rank", str(rank)] for rank in range(self.ranks)]
            self._start(_CREW, Launch(commands, {"STRETTO_DEVICE": "cpu", "OPENBLAS_NUM_THREADS": "1"}), self.ranks)
        return self._jobs[_CREW]

    def ask(self, doing: str, command: str, extra_seconds: float = 0) -> list[dict[str, Any]]:
        """The ranks' answers to a command, which is carried out once however often it is asked."""
        if command not in self.replies:
            self._expect_whole()
            try:
                self._crew()
                self._say(doing)
                self.replies[command] = self._ask(_CREW, command, extra_seconds)
            except (JobError, Unsupported, OSError) as error:
                raise self._failure(doing, str(error), _CREW) from error
        return self.replies[command]

    def _expect_whole(self) -> None:
        if self._left() <= 0:
            raise Unmeasured(f"left out: {self.level.over}")
        if self._broken:
            raise Unmeasured(f"left out: {self._broken}")

    def _failure(self, doing: str, reason: str, job: str = "") -> Unmeasured:
        """Ends the ranks that failed, when they have said what they wait for."""
        self._broken = f"the ranks failed at {doing}"
        words = ""
        if job in self._jobs:
            late = self._jobs.pop(job)
            words = waited_for(late.pids or late.started) if "took more than" in reason else ""
            late.kill()
        return Unmeasured(f"{doing}: {reason}{words}", failed=True)

    def communicators(self, ranks: int, count: int) -> list[dict[str, float]]:
        """Inits of communicators of that many ranks, as rank 0 saw them: milliseconds by phase."""
        replies = self.ask(
            f"making communicators of {ranks} ranks", f"inits count={count} ranks={ranks} for={self.share}"
        )
        if not replies[0]["inits"]:
            raise Unmeasured(f"no communicator of {ranks} ranks was made within {self.share:g} s")
        return list(replies[0]["inits"])

    def checked(self, doing: str, command: str, seconds: float | None = None) -> tuple[str, list[dict[str, Any]]]:
        """How many results were checked, in words, and those that were wrong. `seconds`: for which the ranks check, if
        it is not as for other kinds of work.
        """
        share = self.share if seconds is None else seconds
        replies = self.ask(doing, f"{command} for={share}", 2 * share)
        wrong = [failure for reply in replies for failure in reply["failures"]]
        count = sum(reply["checked"] for reply in replies)
        cut = ", cut short by the time" if any(reply.get("cut_short") for reply in replies) else ""
        left_out = next((f", without {reply['left_out']}" for reply in replies if reply.get("left_out")), "")
        return f"{count} results{cut}{left_out}", wrong

    @property
    def share(self) -> float:
        """Seconds for one kind of work of the ranks."""
        return self.level.share

"""`stretto lab straggler`: one rank is made late in a chain of all-reduces. What does each kind do with it, and does
the report of a recording name the right rank?

The rank is late at one operation of every chain: before it calls, or inside, between the start barrier and its reads
of the others' data. The latter only the lab's baselines can be told to be; it is what a rank does that loses its core
there. Chains with a late rank and without alternate.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stretto.bench.crew import Crew, Failed, say, temporary_folder
from stretto.bench.job import Job, JobError, Unsupported, terminable
from stretto.bench.options import Options, UsageError
from stretto.bench.peers import Stretto
from stretto.bench.rows import Row
from stretto.bench.run import expect_targets
from stretto.bench.workload import ELEMENT_BYTES, format_size, parse_size
from stretto.lab import document, plots
from stretto.lab.chain import bench_options, check_chain
from stretto.lab.contenders import Recorded, contenders
from stretto.trace.words import plural

# Annotations stay real types here: the command line reads them.
PLACES = ("before", "inside")
_RECORDED_CHAINS = 60


@dataclass(frozen=True)
class StragglerOptions:
    ranks: int = 2
    device: str = "cpu"
    peers: str = "all"
    size: str = "64K"
    length: int = 8
    work_us: float = 50.0
    jitter_us: float = 0.0
    late_rank: int = 1
    late_us: float = 200.0
    late_at: int = 3
    place: str = "both"
    rounds: int = 15
    timeout: float = 60.0
    json: Path | None = None
    plot: Path | None = None
    recording: Path | None = None

    @property
    def places(self) -> tuple[str, ...]:
        return PLACES if self.place == "both" else (self.place,)

    @property
    def budget_ms(self) -> float:
        return 50.0  # bench's turns are not used

    def words(self, late: bool, place: str, chains: int) -> str:
        """The drivers' command for so many chains."""
        words = f"chain length={self.length} work={int(self.work_us * 1000)} jitter={int(self.jitter_us * 1000)}"
        words += f" warmup=1 batches={chains}"
        if late:
            words += f" late={int(self.late_us * 1000)} late_rank={self.late_rank} late_at={self.late_at}"
        return f"{words} inside={int(late and place == 'inside')}"


def run(options: StragglerOptions) -> int:
    """The exit status: 0, or 1 where a result is wrong, this library failed or the report named another rank."""
    size = _size(options)
    bench = bench_options(options, size)
    _expect_recordable(options.recording)
    expect_targets(bench)
    peers = [Stretto(), *(peer for peer in contenders(options.peers, options.device) if peer.verifies)]
    with temporary_folder() as folder, terminable():
        crew = Crew(bench, folder)
        try:
            crew.start(peers, must=peers[0])
            facts = document.machine_now()
            rows = [row for name in crew.jobs for row in _Trial(options, size, crew, name).rows()]
            crew.close([name for name in crew.jobs if name not in crew.failures])
        finally:
            crew.kill()
        record = document.record("straggler", options, crew, rows, facts)
        record["report"] = _named(options, bench, size, folder)
    _show(record, options)
    document.write(record, options.json)
    if options.plot:
        plots.straggler(record, options.plot)
        print(f"plot: {options.plot}")
    return document.status(record) or int(record["report"]["named"] != options.late_rank)


def _expect_recordable(folder: Path | None) -> None:
    """The folder of the recording is made before chains are measured; raises UsageError where it cannot be."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}") from error


def _size(options: StragglerOptions) -> int:
    check_chain(options.device, options.ranks, options.length, "straggler")
    for name, value, end in (
        ("late-rank", options.late_rank, options.ranks),
        ("late-at", options.late_at, options.length),
    ):
        if not 0 <= value < end:
            raise UsageError(f"--{name} {value}: from 0 to {end - 1}")
    if options.place not in (*PLACES, "both"):
        raise UsageError(f"--place {options.place}: choose from {', '.join(PLACES)}, both")
    if options.ranks < 2 or options.late_us <= 0:
        raise UsageError("a late rank needs --ranks of at least 2 and a --late-us above 0")
    try:
        return parse_size(options.size)
    except ValueError as error:
        raise UsageError(f"--size: {error}") from error


def _prepare(size: int) -> str:
    count = size // ELEMENT_BYTES["float32"]
    return f"prepare collective=all_reduce type=float32 op=sum count={count} root=0 in_place=0 check=1"


class _Trial:
    """One implementation, in each place. A failure is noted with the crew, and ends its job."""

    def __init__(self, options: StragglerOptions, size: int, crew: Crew, name: str) -> None:
        self._options, self._size, self._crew, self._name = options, size, crew, name
        self._others = [rank for rank in range(options.ranks) if rank != options.late_rank]

    def rows(self) -> list[Row]:
        made = []
        try:
            job = self._crew.jobs[self._name]
            job.ask(_prepare(self._size), self._options.timeout)
            for place in self._options.places:
                try:
                    made.append(self._row(job, place))
                except Unsupported:
                    continue  # of the baselines alone it can be chosen where they are late
        except (JobError, OSError, Unsupported) as error:
            self._crew.failures[self._name] = str(error)
            say(f"{self._name} is left out: {error}")
            self._crew.jobs[self._name].kill()
        return made

    def _row(self, job: Job, place: str) -> Row:
        options = self._options
        seen: dict[bool, list[list[Any]]] = {False: [], True: []}
        for _ in range(options.rounds):
            for late in (False, True):
                seen[late].append(job.ask(options.words(late, place, 5), options.timeout))
        usual, delayed = (self._times(seen[late]) for late in (False, True))
        others = max(delayed[rank] - usual[rank] for rank in self._others)
        waits = [self._longer(seen, operation) for operation in range(options.length)]
        most = max(range(options.length), key=waits.__getitem__)
        return {
            **{"implementation": self._name, "collective": "all_reduce", "dtype": "float32", "op": "sum"},
            **{"ranks": options.ranks, "device": "cpu", "bytes": self._size, "rounds": options.rounds},
            "place": place,
            "us_median": max(delayed),
            "us_without": max(usual),
            "us_others_later": others,
            "us_late_rank_later": delayed[options.late_rank] - usual[options.late_rank],
            "us_longer_by_operation": waits,
            "waits_in": most,
            "stamps": [{key: reply[key] for key in ("began", "ended")} for reply in seen[True][-1]],
            "verified": True,
            "wrong": sum(int(reply["wrong"]) for replies in (*seen[False], *seen[True]) for reply in replies),
        }

    def _times(self, seen: list[list[Any]]) -> list[float]:
        """Of each rank, the median time of a chain."""
        ranks = range(self._options.ranks)
        return [statistics.median(time for replies in seen for time in replies[rank]["batch_us"]) for rank in ranks]

    def _longer(self, seen: dict[bool, list[list[Any]]], operation: int) -> float:
        """By how many microseconds an operation took the others longer."""

        def median(late: bool) -> float:
            taken: list[float] = [
                (replies[rank]["ended"][operation] - replies[rank]["began"][operation]) / 1000
                for replies in seen[late]
                for rank in self._others
            ]
            return statistics.median(taken)

        return median(True) - median(False)


def _named(options: StragglerOptions, bench: Options, size: int, folder: Path) -> dict[str, Any]:
    """Chains of this library with the late rank, recorded; the rank that the report of the recording names."""
    from stretto.library import profiler_plugin_path
    from stretto.trace.analysis import analyse
    from stretto.trace.reader import load
    from stretto.trace.verdict_text import said

    recording = (options.recording or folder / "recording").absolute()
    recording.mkdir(parents=True, exist_ok=True)
    own = folder / "recorded"
    own.mkdir()
    launch = Recorded(profiler_plugin_path(), recording).launch(bench, own, size + 4096)
    job = Job("stretto, recorded", launch, options.ranks, own)
    try:
        job.wait_ready(options.timeout)
        job.ask(_prepare(size), options.timeout)
        job.ask(options.words(True, "before", _RECORDED_CHAINS), options.timeout)
        problem = job.close()
    except (JobError, OSError, Unsupported) as error:
        problem = str(error)
    finally:
        job.kill()
    if problem:
        raise Failed(f"the recorded run: {problem}")
    report = analyse(load([recording]))
    findings = report.verdict.findings
    return {
        "named": findings[0].rank if findings else None,
        "late": options.late_rank,
        "median_us": findings[0].median_ns / 1000 if findings else None,
        "operations": findings[0].operations if findings else 0,
        "last": findings[0].last if findings else 0,
        "said": said(report),
    }


def _show(record: dict[str, Any], options: StragglerOptions) -> None:
    print(
        f"chains of {options.length} all-reduces of {format_size(parse_size(options.size))}, {options.ranks} CPU ranks,"
        f" {options.work_us:g} µs of work after each; rank {options.late_rank} is {options.late_us:g} µs late at"
        f" operation {options.late_at}"
    )
    headings = ("without µs", "with µs", "others later", "it later", "they wait in", "wrong")
    table = document.table("kind", "late", *headings, left=2)
    for row in record["rows"]:
        wait = row["us_longer_by_operation"][row["waits_in"]]
        table.add_row(
            row["implementation"],
            row["place"],
            document.number(row["us_without"]),
            document.number(row["us_median"]),
            document.signed(row["us_others_later"]),
            document.signed(row["us_late_rank_later"]),
            f"#{row['waits_in']} ({document.signed(wait)})",
            str(row["wrong"]),
        )
    document.print_table(table)
    for row in record["rows"]:
        if row["wrong"]:
            print(
                f"WRONG {row['implementation']}, late {row['place']}: {row['wrong']} elements"
                + document.excuse(row["implementation"])
            )
    report = record["report"]
    chains = plural(_RECORDED_CHAINS, "chain")
    who = "no rank" if report["named"] is None else f"rank {report['named']}"
    verdict = "right" if report["named"] == report["late"] else "WRONG"
    print(f"the report of a recording of {chains} names {who}; rank {report['late']} was late: {verdict}")
    for sentence in report["said"]:
        print(f"  {sentence}")
    if options.recording:
        print(f"recording: {options.recording} (stretto trace report, view)")

"""All files of a recording, opened: processes, threads, contexts, strings and clocks in one numbering, which the model
and every converter share. No event has been read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stretto.trace.clock import Clock, Times, clocks
from stretto.trace.clock_fit import ClockMap
from stretto.trace.columns import Owners
from stretto.trace.model import Context, Process, Quality, Thread
from stretto.trace.raw import BadRecording, RawFile, note

MOST_FILES = 100_000
_Numbers = npt.NDArray[np.uint32]


class Numbering:
    """From the numbers of one file to those of the job; vectorised, and any number may come."""

    def __init__(self, known: dict[int, int], missing: int) -> None:
        self._from = np.array(sorted(known), np.uint32)
        self._to = np.array([*(known[number] for number in sorted(known)), missing], np.int64)

    def __call__(self, numbers: _Numbers) -> Times:
        place = np.searchsorted(self._from, numbers)
        if len(self._from) == 0:
            return np.full(len(numbers), self._to[-1])
        found = self._from[np.minimum(place, len(self._from) - 1)] == numbers
        return np.asarray(self._to[np.where(found, place, len(self._from))])


@dataclass
class Source:
    """One process: its file, and where its numbers lie in the job's."""

    number: int
    file: RawFile
    clock: Clock
    shift: int  # added to the clock's nanoseconds to come to the recording's
    contexts: Numbering
    threads: dict[int, int]
    strings: Numbering
    job: Job
    adjust: Callable[[Times], Times] | None = None  # to the clock of the first process, where that is another

    def thread(self, number: int) -> int:
        """The job's number of a thread of this file; a thread that nothing defines gets one when it is first met."""
        if number not in self.threads:
            self.threads[number] = len(self.job.threads)
            self.job.threads.append(Thread(self.number, 0, f"undefined {number}"))
            note(self.file.quality, f"{self.file.path.name}: nothing says who some of its threads are")
        return self.threads[number]

    def times(self, ticks: npt.NDArray[np.uint64]) -> Times:
        times = self.clock.ns(ticks) + self.shift
        return times if self.adjust is None else self.adjust(times)


@dataclass(frozen=True)
class GpuClock:
    """What takes a GPU's stamps to the recording's time, and how far that can be wrong."""

    to_recording: ClockMap
    error_ns: int


@dataclass
class Job:
    """What all files say before any event. Strings number 0 is the empty one."""

    sources: list[Source] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)
    strings: list[str] = field(default_factory=lambda: [""])
    origin_realtime_ns: int = 0
    quality: Quality = field(default_factory=Quality)
    gpus: dict[int, GpuClock] = field(default_factory=dict)  # of contexts; those whose clock is known
    _interned: dict[str, int] = field(default_factory=lambda: {"": 0})
    _own: list[dict[int, int]] = field(default_factory=list)  # contexts by number, of each source

    def intern(self, text: str) -> int:
        if text not in self._interned:
            self._interned[text] = len(self.strings)
            self.strings.append(text)
        return self._interned[text]

    def gather_quality(self) -> Quality:
        """The job's, with what reading the files found so far."""
        total = Quality(**{**vars(self.quality), "notes": list(self.quality.notes)})
        for source in self.sources:
            for name, value in vars(source.file.quality).items():
                if name == "notes":
                    for text in value:
                        note(total, text)
                else:
                    setattr(total, name, getattr(total, name) + value)
        return total

    def _add(self, file: RawFile, clock: Clock) -> None:
        number = len(self.sources)
        shift = clock.to_realtime - self.origin_realtime_ns
        known = file.definitions
        strings = {mine: self.intern(text) for mine, text in known.strings.items()}
        contexts = {}
        for mine, one in sorted(known.contexts.items()):
            contexts[mine] = len(self.contexts)
            began = clock.one(one.ticks) + shift
            name = known.strings.get(one.name, "")
            member = (number, one.communicator, name, one.rank, one.ranks, one.nodes)
            self.contexts.append(Context(*member, init_ns=began, finalize_ns=-1, every=known.samples.get(mine, 1)))
        threads = {}
        for mine, (tid, called) in sorted(known.threads.items()):
            threads[mine] = len(self.threads)
            self.threads.append(Thread(number, tid, known.strings.get(called, "")))
        numberings = Numbering(contexts, -1), threads, Numbering(strings, 0)
        self.processes.append(_process(file, clock))
        self.sources.append(Source(number, file, clock, shift, *numberings, self))
        self._own.append(contexts)
        self._note_losses(file)

    def _adopt(self) -> None:
        """Finds the contexts of other processes that some serve: proxies with PXN, and forked children."""
        owners = Owners(self.processes)
        if owners.ambiguous:
            note(self.quality, "some processes of a host share a tag: links between them may lead to the wrong one")
        for source, own in zip(self.sources, self._own, strict=True):
            others = {
                number: self._own[owner][theirs]
                for number, (tag, theirs) in source.file.definitions.foreign.items()
                if (owner := owners.one(tag, source.number)) >= 0 and theirs in self._own[owner]
            }
            if len(others) < len(source.file.definitions.foreign):
                note(
                    source.file.quality, f"{source.file.path.name}: serves communicators of processes that are not here"
                )
            if others:
                source.contexts = Numbering({**others, **own}, -1)

    def _note_losses(self, file: RawFile) -> None:
        process = self.processes[-1]
        self.quality.dropped += process.dropped
        overwritten = sum(segments[0].sequence for segments in file.events.values())
        if overwritten and process.flight:
            self.quality.overwritten += overwritten
        elif overwritten:
            note(self.quality, f"{file.path.name}: the first {overwritten} segments of its threads are missing")
        if process.error:
            note(self.quality, f"{file.path.name}: recording ended early: {process.error}")
        if not process.closed:
            note(self.quality, f"{file.path.name}: not closed in order: the process was killed, or still runs")


def _process(file: RawFile, clock: Clock) -> Process:
    header = file.header
    samples = int(header["self_samples"])
    inside = 0.0
    if samples:
        at = int(header["self_ticks"])
        inside = at / samples * (1.0 if clock.identity else float(clock.slope[0]))
    return Process(
        host=file.text("host"),
        pid=int(header["pid"]),
        tag=int(header["tag"]),
        program=file.text("program"),
        boot=bytes(header["boot"]),
        abi=int(header["abi"]),
        nccl_version=int(header["nccl_version"]),
        stretto=file.text("stretto"),
        mask=int(header["mask"]),
        flight=int(header["mode"]) == 2,
        closed=int(header["state"]) == 1,
        error=file.text("error"),
        path=str(file.path),
        dropped=int(header["dropped"]),
        unmatched=int(header["unmatched"]),
        self_ns=inside,
    )


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix == ".rec")
            if not inside:
                raise BadRecording(f"{path}: no recording (*.rec) in this folder")
            found += inside
        else:
            found.append(path)
    if len(found) > MOST_FILES:
        raise BadRecording(f"{len(found)} files: more than {MOST_FILES} processes in one recording are not read")
    return sorted(dict.fromkeys(found), key=_order)


def _order(path: Path) -> tuple[str, int, str]:
    """By host, then by the number of the process."""
    host, _, rest = path.name.removesuffix(".rec").rpartition(".")[0].rpartition(".")
    return host, int(rest) if rest.isdecimal() and len(rest) < 12 else 0, path.name


def open_job(paths: Path | str | Sequence[Path | str]) -> Job:
    """Opens a file, or a folder of *.rec files, or several of both.

    Raises `BadRecording` where none can be read; what is wrong with some of them is in the job's quality.
    """
    listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
    job = Job()
    files: list[RawFile] = []
    wrong: list[BadRecording] = []
    for path in _files([Path(one) for one in listed]):
        try:
            files.append(RawFile(path))
        except BadRecording as error:
            wrong.append(error)
            job.quality.unreadable += 1
            note(job.quality, f"left out: {error}")
    if not files:
        raise wrong[0] if len(wrong) == 1 else BadRecording(f"none of {len(wrong)} files can be read: {wrong[0]}")
    timed = clocks(files, job.quality)
    starts = [
        clock.one(min(one[0] for one in file.definitions.anchors)) + clock.to_realtime
        for file, clock in zip(files, timed, strict=True)
        if file.definitions.anchors
    ]
    job.origin_realtime_ns = max(0, min(starts, default=0))
    for file, clock in zip(files, timed, strict=True):
        job._add(file, clock)
    job._adopt()
    return job

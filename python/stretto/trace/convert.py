"""Converters of recordings to what other tools read. All of them stream: memory does not grow with the recording."""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stretto.drafts import drafted
from stretto.errors import InvalidArgument, InvalidUsage, StrettoError
from stretto.trace.job import GpuClock, Job, open_job
from stretto.trace.model import EventType, Recording
from stretto.trace.raw import RawFile, note
from stretto.trace.reader import ends, read_job

_ALIGN_BY = 64 << 20  # bytes of events
_STAMPED = 1 << EventType.KERNEL_CH | 1 << EventType.KERNEL_PHASE


@dataclass(frozen=True)
class Format:
    """`module` has `write(job, file, progress)`."""

    module: str
    suffix: str
    kind: str  # text, binary or folder
    rows: str  # what `write` counts
    help: str
    draws: bool = False  # kernels at the times of their GPUs


FORMATS: dict[str, Format] = {
    "jsonl": Format("to_jsonl", ".jsonl", "text", "lines", "one callback a line"),
    "perfetto": Format("to_perfetto", ".pftrace", "binary", "slices", "for ui.perfetto.dev and its tools", draws=True),
    "chrome": Format(
        "to_chrome", ".json", "text", "slices", "for chrome://tracing and what reads the same", draws=True
    ),
    "otf2": Format(
        "to_otf2", ".otf2", "folder", "regions", "a folder, for Vampir and what else reads OTF2", draws=True
    ),
    "csv": Format("to_csv", ".csv", "text", "rows", "one row a span"),
}


@dataclass(frozen=True)
class Converted:
    """What a conversion made: `path` is None for stdout."""

    path: Path | None
    format: str
    rows: int
    seconds: float
    job: Job


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Converters make millions of small objects and no cycles of them: looking for some took a third of their time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def default_output(paths: Sequence[Path], suffix: str) -> Path:
    """Beside the recording, by its name."""
    first = paths[0].resolve() if paths[0].name in ("", "..") else paths[0].absolute()
    if not first.name:
        raise InvalidArgument(f"{paths[0]} has no name to call the output by: give one")
    return first.with_name((first.name if first.is_dir() else first.stem) + suffix)


@contextlib.contextmanager
def _output(path: Path | None, kind: str) -> Iterator[Any]:
    """The file, which has its name only once it is whole; for a folder, the path."""
    if path is None:
        if kind == "folder":
            raise InvalidArgument("this format is a folder, which stdout cannot be")
        yield sys.stdout if kind == "text" else sys.stdout.buffer
        return
    if kind == "folder" and path.exists() and any(path.iterdir() if path.is_dir() else [path]):
        raise InvalidUsage(f"{path}: is there already; this format is a new folder")
    with drafted(path) as draft:
        if kind == "folder":
            yield draft
        else:
            with _opened(draft, kind) as file:
                yield file


def _opened(path: Path, kind: str) -> IO[Any]:
    return path.open("w", encoding="utf-8", newline="") if kind == "text" else path.open("wb")


def convert(
    paths: Sequence[Path], to: str, output: Path | None, progress: Callable[[int], None] = lambda done: None
) -> Converted:
    """Converts a recording; `output` None is stdout. `progress` is told how many events are done.

    Raises `BadRecording` where there is nothing to read, `InvalidArgument` for a format that is none, and OSError where
    the output cannot be written.
    """
    if to not in FORMATS:
        raise InvalidArgument(f"no format {to}: choose from {', '.join(FORMATS)}")
    how = FORMATS[to]
    if output is not None and how.kind != "folder" and output.is_dir():
        raise InvalidArgument(f"{output} is a folder; {to} is a file")
    began = time.monotonic()
    job = open_job(paths)
    _keep_inputs(job, output)
    _align(job, how.draws)
    module = _module(how)
    with _output(output, how.kind) as file, _no_collector():
        rows = int(module.write(job, file, progress))
    return Converted(output, to, rows, time.monotonic() - began, job)


def _align(job: Job, draws: bool) -> None:
    """Brings the clocks of several hosts together, and those of GPUs where they are drawn, by what the beginning and
    the end of the recording say of them.
    """
    hosts = len({id(source.clock) for source in job.sources}) > 1
    gpus = draws and any(process.mask & _STAMPED for process in job.processes)
    if not hosts and not gpus:
        return
    from stretto.trace.align import clocks_of
    from stretto.trace.operations import join

    sample = _sample(job)
    found = clocks_of(sample, join(sample))
    if hosts:
        for source in job.sources:
            source.adjust = found.hosts[int(found.host_of[source.number])]
        for text in found.notes:
            note(job.quality, text)
    for context, gpu in enumerate(found.gpu_of.tolist() if gpus else []):
        if math.isfinite(found.gpu_host_error[gpu]):
            job.gpus[context] = GpuClock(found.gpus[gpu], math.ceil(found.gpu_host_error[gpu]))


def _sample(job: Job) -> Recording:
    """The beginning and the end of it. What is wrong with these is found once more, and counted then."""
    holders: list[Job | RawFile] = [job, *(source.file for source in job.sources)]
    before = [copy.deepcopy(one.quality) for one in holders]
    try:
        return read_job(job, ends(job, _ALIGN_BY))
    finally:
        for one, quality in zip(holders, before, strict=True):
            one.quality = quality


def _keep_inputs(job: Job, output: Path | None) -> None:
    for source in job.sources:
        if output is not None and output.exists() and output.samefile(source.file.path):
            raise InvalidArgument(f"{output}: is the recording itself; give another output")


def _module(how: Format) -> Any:
    try:
        return importlib.import_module(f"stretto.trace.{how.module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("stretto"):
            raise
        raise StrettoError(
            f"this format needs the Python package {error.name}: pip install 'stretto[trace]'"
        ) from error

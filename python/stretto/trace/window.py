"""`stretto trace window`: records a while of a job that runs with the plugin already. The request lies in the header of
each process's file, which the process has mapped and looks at every second.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import typer

from stretto.cli.flags import MOST_SECONDS, finite, flag
from stretto.cli.output import examples, progress
from stretto.errors import InvalidUsage, SystemCallError
from stretto.trace import layout

# Words of the header behind what a reader needs: nanoseconds of CLOCK_MONOTONIC.
_FROM, _TO, _EACH = 496, 504, 512
_NEVER = (1 << 64) - 1
# Until then every process has looked: all ranks begin at one moment.
SECONDS_AHEAD = 1.5
_WORD = struct.Struct("<Q")


@dataclass(frozen=True)
class Window:
    """What was asked for: seconds from now, and in how many processes."""

    begins: float
    ends: float
    processes: int


def _is_running(header: np.void) -> bool:
    """Whether the process that has the file open lives: told apart from a later one of its number by its start."""
    try:
        fields = Path(f"/proc/{header['pid']}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and int(fields[19]) == int(header["process_start"])


def _running(folder: Path) -> Iterator[IO[bytes]]:
    """The recordings of processes that live, open for writing."""
    for path in sorted(folder.glob("*.rec")):
        with path.open("r+b") as file:
            data = file.read(layout.HEADER_BYTES)
            if len(data) < layout.HEADER_BYTES or not data.startswith(layout.MAGIC):
                continue
            if _is_running(np.frombuffer(data, layout.HEADER, 1)[0]):
                yield file


def _write(header: mmap.mmap, begin: int, end: int) -> None:
    """The end first, as 0: a process that looks in between sees a window that is over."""
    for place, value in ((_TO, 0), (_EACH, 0), (_FROM, begin), (_TO, end)):
        header[place : place + 8] = _WORD.pack(value)


def _shorten(header: mmap.mmap, moment: int) -> None:
    """Ends the window that is open or comes before the moment, there; others do not come any more."""
    begin, end, each = (int(_WORD.unpack(header[place : place + 8])[0]) for place in (_FROM, _TO, _EACH))
    if each and moment > begin:
        passed = (moment - begin) // each * each
        begin, end = begin + passed, end + passed
    _write(header, begin, min(end, moment) if begin < moment else 0)


def _change(folder: Path, change: Callable[[mmap.mmap], None]) -> int:
    """Of the recordings of all processes that run, the header; returns how many they are. Raises `InvalidUsage` where
    none runs.
    """
    if not folder.is_dir():
        raise InvalidUsage(f"{folder} is no folder with a recording")
    count = 0
    try:
        for file in _running(folder):
            with mmap.mmap(file.fileno(), layout.HEADER_BYTES) as header:
                change(header)
            count += 1
    except PermissionError as error:
        raise SystemCallError(f"cannot write {error.filename}: run as the user of the job, or as root") from error
    if count == 0:
        raise InvalidUsage(
            f"no process that records into {folder} runs on this host and in this container: start the job with "
            "`stretto trace record --on-demand`"
        )
    return count


def request(folder: Path, after: float, seconds: float) -> Window:
    """Asks all processes that record into `folder` on this host to record `seconds` (0: to their end), `after` seconds
    from now but not before all of them know it. Raises `InvalidUsage` where none runs.
    """
    begins = max(after, SECONDS_AHEAD)
    begin = time.monotonic_ns() + round(begins * 1e9)
    end = begin + round(seconds * 1e9) if seconds > 0 else _NEVER
    count = _change(folder, lambda header: _write(header, begin, end))
    return Window(begins, begins + seconds if seconds > 0 else float("inf"), count)


def stop(folder: Path) -> int:
    """Ends the recording of all processes that record into `folder` on this host at one moment, as soon as all of them
    know of it, and returns how many they are. Raises `InvalidUsage` where none runs.
    """
    moment = time.monotonic_ns() + round(SECONDS_AHEAD * 1e9)
    return _change(folder, lambda header: _shorten(header, moment))


SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto trace window run1 --for 5",
        "stretto trace window run1 --after 60 --for 5",
        "stretto trace window run1 --stop",
    )
}


def window(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that the job records into.")],
    seconds: Annotated[
        float,
        flag(
            None,
            "--for",
            metavar="S",
            min=0.0,
            max=MOST_SECONDS,
            callback=finite,
            help="How long; 0: to the end of the job.",
        ),
    ] = 5.0,
    after: Annotated[
        float,
        flag(
            None,
            "--after",
            metavar="S",
            min=0.0,
            max=MOST_SECONDS,
            callback=finite,
            help="From so many seconds on.",
        ),
    ] = 0.0,
    ends: Annotated[bool, typer.Option("--stop", help="End what is being recorded instead.")] = False,
) -> None:
    """Record a while of a job that runs with the plugin already, as one does that `stretto trace record` started.

    All its processes on this host begin and end at the same moments, 1.5 s from now at the earliest. A job that is to
    be recorded only when asked is started with `stretto trace record --on-demand`; outside of its windows it pays
    nothing but a look at a word. May be asked for again and again.
    """
    if ends:
        say(f"{_processes(stop(folder))} will end recording in {SECONDS_AHEAD:g} s")
        return
    asked = request(folder, after, seconds)
    end = f"for {seconds:g} s" if seconds > 0 else "to the end of the job"
    say(f"{_processes(asked.processes)} will record from {asked.begins:g} s on, {end}")


def say(text: str) -> None:
    progress.print(f"stretto trace: {text}", markup=False)


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


class Toggle:
    """Begins to record, or ends that, each time that it is called: what a signal does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records = False

    def __call__(self) -> None:
        try:
            count = stop(self._folder) if self._records else request(self._folder, 0, 0).processes
        except (InvalidUsage, SystemCallError) as error:
            say(str(error))
            return
        self._records = not self._records
        what = "begin to record" if self._records else "end recording"
        say(f"{_processes(count)} will {what} in {SECONDS_AHEAD:g} s")

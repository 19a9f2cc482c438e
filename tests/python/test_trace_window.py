"""Recordings of a while of a job: from the beginning, and when asked."""

from __future__ import annotations

import mmap
import signal
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from jobs import STRETTO, started, stretto, wait_for
from stretto.trace import layout
from stretto.trace.model import EventType, Recording
from stretto.trace.reader import load
from stretto.trace.window import _shorten

# Operations without an end but the test's.
JOB = """
import pathlib, sys, time, numpy, stretto
began = time.monotonic_ns()
comm = stretto.init()
over = numpy.zeros(1, "float32")
(pathlib.Path(sys.argv[1]) / f"began{comm.rank}").write_text(str(began))
(pathlib.Path(sys.argv[1]) / f"ready{comm.rank}").touch()
while comm.all_reduce(over)[0] == 0:
    over[0] = (pathlib.Path(sys.argv[1]) / "over").exists()
    time.sleep(0.005)
"""


def window_of(recording: Recording, rank: int) -> int:
    """Nanoseconds of CLOCK_MONOTONIC at which the rank's first window began."""
    process = recording.processes[next(one.process for one in recording.contexts if one.rank == rank)]
    header = np.frombuffer(Path(process.path).read_bytes()[: layout.HEADER_BYTES], layout.HEADER, 1)[0]
    return int(header["window"][0])


def opened(recording: Recording, rank: int) -> int:
    """The same by the recording's clock, within some milliseconds."""
    return window_of(recording, rank) + time.time_ns() - time.monotonic_ns() - recording.origin_realtime_ns


def spans_of(recording: Recording, rank: int) -> np.ndarray:
    spans = recording.spans
    return spans["start"][(spans["type"] == EventType.COLL) & (spans["rank"] == rank)].astype(np.int64)


def record(folder: Path, *options: object) -> list[object]:
    script = folder / "script.py"
    script.write_text(JOB)
    return ["trace", "record", "-o", folder / "run", *options, "--", *STRETTO, "run", "-n", 2, script, folder]


def wait_until_ready(folder: Path) -> None:
    wait_for(lambda: all((folder / f"ready{rank}").exists() for rank in range(2)), 60, "ranks start")


def test_a_window_from_the_beginning(tmp_path: Path) -> None:
    with started(*record(tmp_path, "--after", 1, "--for", 1)) as job:
        wait_until_ready(tmp_path)
        time.sleep(6)
        (tmp_path / "over").touch()
        job.communicate(timeout=60)
    recording = load([tmp_path / "run"])
    for rank in range(2):
        starts = spans_of(recording, rank)
        assert len(starts) > 5
        # A rank takes longer to begin on a full machine, and an operation that has begun ends.
        assert starts[-1] - starts[0] < 4e9
        assert starts[0] - opened(recording, rank) > -1e8, "nothing before the window"
        began = int((tmp_path / f"began{rank}").read_text())
        assert window_of(recording, rank) - began > 0.99e9, "a second after the rank's file was made, which was later"
    assert recording.quality.unmatched_stops == 0


def test_windows_that_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(*record(tmp_path, "--on-demand")) as job:
        wait_until_ready(tmp_path)
        time.sleep(1)
        for _ in range(2):
            done = stretto("trace", "window", folder, "--for", 0.5)
            assert done.returncode == 0 and "2 processes" in done.stderr, done.stderr
            time.sleep(4)
        (tmp_path / "over").touch()
        job.communicate(timeout=60)
    recording = load([folder])
    first = [spans_of(recording, rank) for rank in range(2)]
    for starts in first:
        gaps = np.diff(starts)
        assert np.sum(gaps > 1.5e9) == 1, "two windows, and nothing between them"
        assert starts[-1] - starts[0] > 3e9
    # The same operations on both ranks, but for the edges.
    sequences = [
        set(
            recording.spans["sequence"][(recording.spans["type"] == EventType.COLL) & (recording.spans["rank"] == rank)]
        )
        for rank in range(2)
    ]
    assert len(sequences[0] & sequences[1]) > 0.5 * len(sequences[0] | sequences[1])
    done = stretto("trace", "window", folder)
    assert done.returncode == 1 and "--on-demand" in done.stderr, "the job has ended"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((5, 20, 0), (5, 10, 0)),  # open
        ((5, 8, 0), (5, 8, 0)),  # over by then
        ((0, 0, 0), (0, 0, 0)),  # nothing was asked for
        ((15, 20, 0), (15, 0, 0)),  # does not come any more
        ((0, (1 << 64) - 1, 0), (0, 10, 0)),  # all the time
        ((1, 3, 4), (9, 10, 0)),  # in its third turn
        ((3, 4, 5), (8, 9, 0)),
        ((30, 31, 4), (30, 0, 0)),
    ],
)
def test_an_end_opens_nothing(before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    with mmap.mmap(-1, 4096) as header:
        header[496:520] = struct.pack("<QQQ", *before)
        _shorten(header, 10)
        assert struct.unpack("<QQQ", header[496:520]) == after


def test_windows_that_come_again(tmp_path: Path) -> None:
    with started(*record(tmp_path, "--for", 1, "--each", 3)) as job:
        wait_until_ready(tmp_path)
        time.sleep(12)
        (tmp_path / "over").touch()
        job.communicate(timeout=60)
    recording = load([tmp_path / "run"])
    for rank in range(2):
        starts = spans_of(recording, rank)
        # Where a window begins: a rank may be held up for long within one on a full machine, but not be early.
        begins = starts[1:][np.diff(starts) > 1.2e9]
        assert 2 <= len(begins) <= 5
        assert starts[-1] - starts[0] > 5e9
        phase = (starts - opened(recording, rank)) % 3_000_000_000
        assert np.mean(phase < 1.5e9) > 0.8, "a third of the time is recorded"


def test_signals_begin_and_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(*record(tmp_path, "--signal", "USR2")) as job:
        wait_until_ready(tmp_path)
        job.send_signal(signal.SIGUSR2)
        time.sleep(4)
        job.send_signal(signal.SIGUSR2)
        time.sleep(4)
        done = stretto("trace", "window", folder, "--stop")
        assert done.returncode == 0 and "2 processes will end" in done.stderr, done.stderr
        (tmp_path / "over").touch()
        _, error = job.communicate(timeout=60)
    assert job.returncode == 0, "the job has had no signal"
    assert "2 processes will begin to record" in error and "2 processes will end recording" in error
    recording = load([folder])
    for rank in range(2):
        starts = spans_of(recording, rank)
        assert len(starts) > 5
        assert starts[0] - recording.contexts[0].init_ns > 1e9, "nothing before the signal"
        assert starts[-1] - starts[0] < 6.5e9, "nothing after the second"


def test_the_signal_of_a_job_that_has_not_begun(tmp_path: Path) -> None:
    words = ["trace", "record", "-o", tmp_path / "run", "--signal", "USR2", "--"]
    with started(*words, "sh", "-c", 'touch "$0"/ready && sleep 3', tmp_path) as job:
        wait_for((tmp_path / "ready").exists, 60, "the command starts")
        job.send_signal(signal.SIGUSR2)
        _, error = job.communicate(timeout=60)
    assert job.returncode == 0 and "no process that records" in error, error


@pytest.mark.parametrize(
    "options",
    [
        ["--on-demand", "--for", "3"],
        ["--after", "3", "--chain", "libc.so.6"],
        ["--for", "-1"],
        ["--each", "3"],
        ["--each", "3", "--for", "3"],
        ["--signal", "USR2", "--for", "3"],
        ["--signal", "KILL"],
    ],
)
def test_windows_that_cannot_be(tmp_path: Path, options: list[str]) -> None:
    assert stretto("trace", "record", "-o", tmp_path / "run", *options, "--", "true").returncode == 2

"""Recordings of a while of a job: from the beginning, and when asked."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from jobs import STRETTO, started, stretto, wait_for
from stretto.trace.model import EventType, Recording
from stretto.trace.reader import load

# Operations without an end but the test's.
JOB = """
import pathlib, sys, time, numpy, stretto
comm = stretto.init()
over = numpy.zeros(1, "float32")
(pathlib.Path(sys.argv[1]) / f"ready{comm.rank}").touch()
while comm.all_reduce(over)[0] == 0:
    over[0] = (pathlib.Path(sys.argv[1]) / "over").exists()
    time.sleep(0.005)
"""


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
        assert starts[0] - recording.contexts[0].init_ns > 0.9e9
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
    "options", [["--on-demand", "--for", "3"], ["--after", "3", "--chain", "libc.so.6"], ["--for", "-1"]]
)
def test_windows_that_cannot_be(tmp_path: Path, options: list[str]) -> None:
    assert stretto("trace", "record", "-o", tmp_path / "run", *options, "--", "true").returncode == 2
    assert stretto("trace", "window", tmp_path / "nowhere").returncode == 2

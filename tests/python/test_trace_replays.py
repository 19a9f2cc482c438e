"""Replays of CUDA graphs: joined across ranks by the number that their kernels count, whatever else was lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recording_writer import ThreadWriter, Writer
from stretto.trace.analysis import Report, analyse
from stretto.trace.reader import load
from stretto.trace.report_text import sections

REPLAYED, KERNEL_STOP = 1000, 22
GPU_EPOCH = (10**15, 10**15 + 5 * 10**9)  # the GPUs' clocks differ by seconds
EAGER, REPLAYS, STEP = 40, 200, 1_000_000
FACTS = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 1024}


def late_of(number: int) -> tuple[int, int]:
    """When each rank's kernel of an operation starts; which one is late changes."""
    return (300_000, 0) if number % 3 == 0 else (0, 200_000)


def kernel(thread: ThreadWriter, rank: int, number: int, parent: int, channels: int, replay: bool) -> None:
    """The kernel of the communicator's operation `number`, seen by the host when both ranks are done."""
    begin = STEP * (number + 1)
    start, stop = begin + late_of(number)[rank], begin + max(late_of(number)) + 40_000
    for channel in range(channels):
        seen = stop + 30_000
        event = thread.start(6, seen, parent=parent, channel=channel, gpu=GPU_EPOCH[rank] + start + channel)
        if replay:
            # The second block was no part of the operations before: its numbers are others.
            thread.state(event, seen, REPLAYED, number - 7 * channel)
        thread.state(event, seen, KERNEL_STOP, GPU_EPOCH[rank] + stop)
        thread.stop(event, seen)


def written(folder: Path, lost: tuple[set[int], set[int]] = (set(), set())) -> Report:
    """Two ranks: operations outside of graphs, then one that is captured, then its replays but for those lost."""
    for rank in (0, 1):
        made = Writer(pid=20 + rank)
        context, thread = made.context(rank, 2), made.thread(1)
        for number in range(1, EAGER + 1):
            at = STEP * (number + 1) - 50_000
            call = thread.start(9, at, context=context, **FACTS)
            thread.stop(call, at + 1000)
            coll = thread.start(1, at + 2000, context=context, parent=call, sequence=number - 1, channels=1, **FACTS)
            thread.stop(coll, at + 3000)
            kernel(thread, rank, number, coll, 1, replay=False)
        captured = thread.start(9, STEP * (EAGER + 1) + 700_000, context=context, captured=1, **FACTS)
        thread.stop(captured, STEP * (EAGER + 1) + 701_000)
        for number in range(EAGER + 1, EAGER + REPLAYS + 1):
            if number not in lost[rank]:
                kernel(thread, rank, number, captured, 2, replay=True)
        made.write(folder)
    return analyse(load(folder, align=False))


def replays_of(report: Report) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.flatnonzero(report.operations.replay == 1)


def text(report: Report) -> str:
    made = sections(report, 300)
    return "\n".join(line for one in made for line in (*one.sentences, *(" ".join(row) for row in one.rows)))


def test_replays_are_joined_and_their_stragglers_named(tmp_path: Path) -> None:
    report = written(tmp_path)
    rows = replays_of(report)
    operations, late = report.operations, report.lateness
    assert operations.count == EAGER + REPLAYS and len(rows) == REPLAYS
    assert operations.sequence[rows].tolist() == list(range(EAGER + 1, EAGER + REPLAYS + 1))
    assert (operations.sizes == 2).all()
    named = operations.rank[late.last]
    assert late.named[rows].all()
    assert named[rows].tolist() == [0 if number % 3 == 0 else 1 for number in operations.sequence[rows].tolist()]
    assert report.transfers.ns[rows] == pytest.approx(40_000, abs=100)
    assert {(kind.replay, kind.count, kind.bytes) for kind in report.kinds} == {(True, 200, 4096), (False, 40, 4096)}
    assert not report.progress.behind and not report.progress.mismatches and report.progress.incomplete == 0
    assert "AllReduce in graphs" in text(report) and "AllReduce replay #" in text(report)
    assert report.path.reason == "" and report.path.operations == EAGER + REPLAYS


def test_what_is_lost_shifts_nothing(tmp_path: Path) -> None:
    lost = set(range(60, 75)) | {101, 150}
    report = written(tmp_path, (lost, {61, 180}))
    operations, late = report.operations, report.lateness
    rows = replays_of(report)
    assert len(rows) == REPLAYS - 1  # number 61 is nowhere
    alone = operations.sequence[rows[operations.sizes[rows] == 1]].tolist()
    assert alone == sorted((lost | {180}) - {61})
    assert not late.named[rows[operations.sizes[rows] == 1]].any()
    both = rows[operations.sizes[rows] == 2]
    wanted = [0 if number % 3 == 0 else 1 for number in operations.sequence[both].tolist()]
    assert operations.rank[late.last[both]].tolist() == wanted
    assert not report.progress.behind and report.progress.incomplete == 0


def test_a_number_without_a_call_is_no_operation(tmp_path: Path) -> None:
    made = Writer()
    context, thread = made.context(0, 1), made.thread(1)
    group = thread.start(8, 1000, context=context)
    for parent in (0, group, 1 << 60):
        event = thread.start(6, 2000, parent=parent, channel=0, gpu=GPU_EPOCH[0])
        thread.state(event, 2000, REPLAYED, 1)
        thread.state(event, 2000, KERNEL_STOP, GPU_EPOCH[0] + 10)
        thread.stop(event, 2000)
    thread.state(group, 3000, REPLAYED, 2)
    thread.stop(group, 3000)
    made.write(tmp_path)
    assert analyse(load(tmp_path, align=False)).operations.count == 0

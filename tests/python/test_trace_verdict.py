"""The verdict is true: of jobs whose truth is known, and of its own statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recording_writer import Writer
from stretto.trace.analysis import analyse
from stretto.trace.reader import load
from stretto.trace.verdict import independent, tail
from verdict_jobs import KINDS, answer


@pytest.mark.parametrize("number", range(2 * len(KINDS)))
def test_the_verdict_is_what_happened(number: int, tmp_path: Path) -> None:
    """Two jobs of each kind; `verdict_jobs.py --jobs 200` makes the table of docs/results."""
    found = answer(number, tmp_path)
    assert not found.innocent, found
    assert not found.wrong, found


@pytest.mark.parametrize(("ranks", "counted", "last"), [(2, 30, 29), (4, 100, 45), (8, 40, 20), (3, 500, 220)])
def test_the_bound_is_above_the_chance_and_not_far(ranks: int, counted: int, last: int) -> None:
    exact = binomial_tail(ranks, counted, last)
    assert exact <= tail(last, counted, ranks) <= 30 * exact


def binomial_tail(ranks: int, counted: int, last: int) -> float:
    weights = np.ones(1)
    for _ in range(counted):
        weights = np.convolve(weights, [1 - 1 / ranks, 1 / ranks])
    return float(weights[last:].sum())


def test_who_is_last_no_more_often_than_others_has_no_small_chance() -> None:
    assert tail(25, 100, 4) == tail(0, 100, 4) == tail(0, 0, 4) == 1.0


def test_operations_that_follow_each_other_count_less() -> None:
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 4, 400)
    assert 300 < independent(drawn) <= 400
    assert independent(np.repeat(drawn, 10)) == pytest.approx(4000 * 0.1 / 1.9, rel=0.2)
    assert independent(np.zeros(50, np.int64)) == 50


def pipeline(folder: Path, *, waits: bool) -> None:
    """Ranks 0 and 1 reduce. Before that rank 1 receives from rank 2 for 300 us, which sends late; or works so long."""
    for rank in range(3):
        made = Writer(pid=100 + rank, segment_bytes=1 << 16)
        pair = made.context(rank, 2, communicator=5, name="pair") if rank < 2 else -1
        line = made.context(rank - 1, 2, communicator=6, name="line") if rank > 0 else -1
        thread = made.thread(1)
        for number in range(100):
            at = 1_000_000 * (number + 1)
            if rank > 0:
                begin = at if waits or rank == 2 else at + 280_000
                facts = {"function": "Recv" if rank == 1 else "Send", "data_type": "ncclFloat32", "count": 8}
                message = thread.start(2, begin, context=line, peer=2 - rank, **facts)
                thread.stop(message, at + 300_000)
            if rank < 2:
                facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 8, "sequence": number}
                call = thread.start(1, at + 310_000 * rank, context=pair, **facts)
                thread.stop(call, at + 330_000)
        made.write(folder)


@pytest.mark.parametrize("waits", [True, False])
def test_who_waited_for_a_message_is_not_to_blame(tmp_path: Path, waits: bool) -> None:
    pipeline(tmp_path, waits=waits)
    report = analyse(load(tmp_path, align=False))
    assert [item.worker for item in report.verdict.findings] == ([] if waits else ["rank 1"])
    assert report.verdict.held == (100 if waits else 0)


def test_one_communicator_is_judged_by_what_happened_in_all(tmp_path: Path) -> None:
    """Who was held up elsewhere is innocent also where only its communicator is asked for."""
    pipeline(tmp_path, waits=True)
    assert not analyse(load(tmp_path, align=False), "pair").verdict.findings

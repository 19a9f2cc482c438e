"""Whether ranks waited for the last call: of calls that were drawn so that it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording_writer import Writer
from stretto.trace.analysis import analyse
from stretto.trace.columns import NONE
from stretto.trace.meeting import LEVEL, Arrivals, _errors, _waited
from stretto.trace.reader import load

US = 1_000
COUNT = 300
Times = np.ndarray[Any, np.dtype[np.int64]]


def each(calls: Times, ends: Times | None = None, queued: Times | None = None, level: float = LEVEL) -> Times:
    """What is concluded of each operation (rows) from its calls by each rank (columns)."""
    rows = np.arange(calls.size).reshape(calls.shape)
    end = np.full(calls.shape, NONE) if ends is None else ends
    late = np.zeros(calls.shape, np.bool_) if queued is None else queued
    return _waited(Arrivals(calls.ravel(), late.ravel(), end.ravel(), np.zeros(calls.size, np.int64)), rows, level)


def seen(calls: Times, ends: Times | None = None, queued: Times | None = None) -> bool:
    """The same, where it is to be the same of all but a few."""
    found = each(calls, ends, queued)
    assert not found.any() or found.mean() > 0.9
    return bool(found.any())


def noise(rng: np.random.Generator, *sigma: float) -> Times:
    return np.rint(np.abs(rng.normal(0, sigma, (COUNT, len(sigma)))) * US).astype(np.int64)


def meeting(rng: np.random.Generator, *sigma: float, late: float = 0.0) -> tuple[Times, Times]:
    """Ranks work for 300 us and this noise, rank 1 for longer, and wait for all: calls and ends."""
    work = 300 * US + noise(rng, *sigma)
    work[:, 1] += round(late * US)
    moved = 60 * US + noise(rng, 2.0)
    end = np.cumsum(work.max(axis=1, keepdims=True) + moved, axis=0)
    before = np.concatenate((np.zeros((1, 1), np.int64), end[:-1]))
    return before + work, np.broadcast_to(end, work.shape) + noise(rng, *(0.5 for _ in sigma))


def paced(rng: np.random.Generator, *sigma: float, late: float) -> tuple[Times, Times]:
    """Something else lets ranks call every 360 us, after this noise, rank 1 later; the ends do not depend on that."""
    ticks = np.cumsum(360 * US + noise(rng, 2.0), axis=0)
    calls = ticks + noise(rng, *sigma)
    calls[:, 1] += round(late * US)
    return calls, np.broadcast_to(ticks + 350 * US, calls.shape) + noise(rng, *(0.5 for _ in sigma))


@pytest.mark.parametrize("sigma", [(5, 5), (5, 5, 5, 5, 5, 5, 5, 5), (2, 20), (20, 20, 3)])
@pytest.mark.parametrize("late", [0, 100])
@pytest.mark.parametrize("ends", [True, False])
def test_ranks_that_meet_are_seen_to(sigma: tuple[float, ...], late: float, ends: bool) -> None:
    calls, over = meeting(np.random.default_rng(1), *sigma, late=late)
    assert seen(calls, over if ends else None)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sigma", [(5, 5), (5, 5, 5, 5), (30, 1), (30, 30, 1)])
@pytest.mark.parametrize("ends", [True, False])
def test_ranks_that_something_else_paces_are_not(sigma: tuple[float, ...], seed: int, ends: bool) -> None:
    """Also where the last rank is calm and the others come early by chance, which is half of what a wait looks like."""
    calls, over = paced(np.random.default_rng(seed), *sigma, late=100)
    assert not seen(calls, over if ends else None)


def test_calls_that_run_ahead_do_not_meet() -> None:
    calls = np.cumsum(20 * US + noise(np.random.default_rng(2), 2, 2), axis=0) + np.array([0, 5 * US])
    assert not seen(calls)


def test_a_few_long_delays_do_not_decide_for_all() -> None:
    """The GPUs work for longer than the hosts take to call, but for one call in fifty."""
    rng = np.random.default_rng(3)
    calls, ends = np.zeros((COUNT, 2), np.int64), np.zeros((COUNT, 2), np.int64)
    host = 20 * US + noise(rng, 5, 5) + np.where(rng.random((COUNT, 2)) < 0.02, 3000 * US, 0)
    host[:, 1] += 100 * US
    now = 0
    for number in range(COUNT):
        calls[number] = now + host[number]
        now = max(now + 300 * US, int(calls[number].max())) + 60 * US
        ends[number] = now
    assert not seen(calls) and not seen(calls, ends)


@pytest.mark.parametrize("by", [100, 270])
@pytest.mark.parametrize("ends", [True, False])
def test_a_rank_whose_lateness_is_hidden_does_not_count_where_others_are_waited_for(by: float, ends: bool) -> None:
    """Rank 0 is always late by less than the GPUs work; every third operation waits for another, for milliseconds."""
    rng = np.random.default_rng(9)
    host = 20 * US + noise(rng, 3, 3, 3, 3)
    host[:, 0] += round(by * US)
    host[::3, 1:] += np.where(np.arange(3) == rng.integers(0, 3, (len(host[::3]), 1)), 1000 * US, 0)
    host[::3, 1:] += rng.integers(0, 3000 * US, (len(host[::3]), 1)) * (host[::3, 1:] > 900 * US)
    took = np.maximum(host.max(axis=1, keepdims=True), 300 * US) + 60 * US + noise(rng, 2)
    begin = np.cumsum(np.concatenate((np.zeros((1, 1), np.int64), took[:-1])), axis=0)
    found = each(begin + host, np.broadcast_to(begin + took, host.shape) if ends else None)
    assert found[::3].mean() > 0.9
    assert not found[1::3].any() and not found[2::3].any()


def test_calls_that_are_waited_for_in_part_do_not_count() -> None:
    """Rank 1 calls 500 us late to every other operation, of which other work of the GPUs hides 300."""
    rng = np.random.default_rng(7)
    late = np.where(rng.random((COUNT, 1)) < 0.5, 500 * US, 0) + 20 * US + noise(rng, 5)
    took = np.maximum(late, 300 * US) + 60 * US + noise(rng, 2)
    first = np.cumsum(np.concatenate((np.zeros((1, 1), np.int64), took[:-1])), axis=0)
    calls = np.concatenate((first, first + late), axis=1)
    assert not seen(calls) and not seen(calls, np.broadcast_to(first + took, calls.shape))


def test_who_calls_the_next_operation_before_the_last_rank_has_come_did_not_wait() -> None:
    calls, _ = meeting(np.random.default_rng(8), 100, 100)
    assert seen(calls)
    calls[10::20, 0] = calls[9:-1:20].max(axis=1) - US
    assert not seen(calls)


def test_where_the_last_call_was_early_too_its_gpu_may_have_been_late() -> None:
    """All calls ran ahead; what ranks came after is the end of other work, which was late to others."""
    calls, ends = meeting(np.random.default_rng(4), 5, 5)
    assert seen(calls, ends) and not seen(calls, ends, np.ones(calls.shape, np.bool_))


def test_what_takes_longer_than_the_wait_is_not_the_wait() -> None:
    """Ends that are later by five times what the last call was."""
    calls, _ = meeting(np.random.default_rng(5), 5, 5)
    late = calls.max(axis=1, keepdims=True) - calls.min(axis=1, keepdims=True)
    assert not seen(calls, np.broadcast_to(calls.min(axis=1, keepdims=True) + 5 * late + 60 * US, calls.shape))


def test_few_operations_and_calls_that_are_all_alike_say_nothing() -> None:
    calls, ends = meeting(np.random.default_rng(6), 5, 5)
    assert not seen(calls[:15], ends[:15])
    alike = np.arange(1, COUNT + 1)[:, None] * 360 * US + np.array([0, 100 * US])
    assert not seen(alike) and not seen(alike, alike + 200 * US)


@pytest.mark.parametrize(("points", "level", "known"), [(20, 0.001, 3.610), (32, 0.01, 2.457), (1002, 1e-5, 4.286)])
def test_a_slope_of_few_points_needs_more_standard_errors(points: int, level: float, known: float) -> None:
    """Student's t of two degrees less, from a table."""
    assert _errors(level, points) == pytest.approx(known, rel=0.002)


def test_of_many_communicators_none_is_believed_by_chance(tmp_path: Path) -> None:
    """Calls that something else paces, of so many communicators that one passes by chance if each is tested alone."""
    rng = np.random.default_rng(10)
    parts = [paced(rng, 5, 5, late=100)[0][:25] for _ in range(64)]
    assert [bool(each(calls).any()) for calls in parts].count(True) == 1
    assert not any(each(calls, level=LEVEL / len(parts)).any() for calls in parts)
    for rank in range(2):
        made = Writer(pid=100 + rank, segment_bytes=1 << 18)
        thread, at = made.thread(1), US
        for number, calls in enumerate(parts):
            context = made.context(rank, 2, communicator=500 + number)
            for moment in (at + calls[:, rank]).tolist():
                facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 1 << 20}
                call = thread.start(9, moment, context=context, **facts)
                thread.stop(call, moment + US)
            at += int(calls.max()) + 400 * US
        made.write(tmp_path)
    report = analyse(load(tmp_path, align=False))
    assert len(report.operations.communicators) == len(parts) and report.operations.count == 25 * len(parts)
    assert not report.lateness.blamed.any() and report.verdict.unseen == report.operations.count - 1

"""The verdict is true: of jobs whose truth is known, and of its own statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
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

"""How many reports of many communicators take ranks that did not wait for ranks that did, by three rules.

    PYTHONPATH=tests/python python docs/results/2026-11-28-report-level/communicators.py

Each report has 64 communicators of two ranks with 25 operations each, whose calls something else paces.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
from stretto.trace import meeting
from test_trace_meeting import each, paced

REPORTS, COMMUNICATORS, OPERATIONS = 200, 64, 25
RULES = {"2.5 standard errors each": 0.0, "0.1 % each": meeting.LEVEL, "0.1 % in all": meeting.LEVEL / COMMUNICATORS}


def believed(parts: list[np.ndarray], level: float) -> bool:
    """Whether any of a report's communicators passes; level 0 stands for the first rule."""
    if level > 0:
        return any(each(calls, level=level).any() for calls in parts)
    with mock.patch.object(meeting, "_errors", return_value=2.5):
        return any(each(calls).any() for calls in parts)


def main() -> None:
    for noise in ((5, 5), (30, 1)):
        wrong = dict.fromkeys(RULES, 0)
        for seed in range(REPORTS):
            chance = np.random.default_rng(seed)
            parts = [paced(chance, *noise, late=100)[0][:OPERATIONS] for _ in range(COMMUNICATORS)]
            for name, level in RULES.items():
                wrong[name] += believed(parts, level)
        print(f"noise of {noise[0]} and {noise[1]} µs, {REPORTS} reports:", wrong)


if __name__ == "__main__":
    main()

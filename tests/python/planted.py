"""A library that does wrong, put before the package's in the ranks of an audit (audit_shim.c): for tests that plant
faults.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from jobs import GUARD, environment
from stretto.audit.context import LEVELS, Context
from stretto.audit.measurements import Platform, Series
from stretto.bench.drivers import Missing, find_driver

HERE = Path(__file__).parent
# Fewer repetitions than --quick has, as a fault that is planted is there each time; and more time, should the machine
# be starved.
LEVEL = dataclasses.replace(
    LEVELS["quick"], seconds=600, rounds=1, turns=1, samples=30, communicators=12, share=20, patience=30
)


def around(**variables: str) -> Context:
    return Context(environment={**environment(), **variables}, level=LEVEL)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        find_driver("stretto_driver")
    except Missing as reason:
        pytest.skip(str(reason))
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = HERE / "audit_shim.c"
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        "-I",
        package.include_path(),
        source,
        "-o",
        library,
        "-ldl",
        "-pthread",
    ]
    subprocess.run(command, check=True, timeout=GUARD)
    return library


# What a quiet machine measures: a fault is found beside it however busy this machine is.
QUIET = Platform(
    [
        Series("calls", "clock_gettime(MONOTONIC)", "ns", (20.0,) * 3),
        Series("calls", "futex wake of nobody", "ns", (300.0,) * 3),
        Series("locks", "std::mutex", "ns", (4.0,) * 3),
        Series("locks", "atomic add", "ns", (4.0,) * 3),
        Series("threads", "thread create and join", "us", (20.0,) * 3),
        Series("wake", "cache line, core 0 to 1", "us", (0.2,) * 3),
        Series("wake", "futex", "us", (15.0,) * 3),
        Series("wake", "TCP loopback", "us", (20.0,) * 3),
        Series("copy", "memcpy into shared memory", "GB/s", (10.0,) * 3),
    ]
)

Faulty = Callable[..., Context]


@pytest.fixture
def faulty(shim: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """Contexts whose ranks run with a fault."""
    made = []

    def make(fault: str, rank: int = 1, **changes: Any) -> Context:
        for name in [name for name in os.environ if name.startswith("STRETTO_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LD_PRELOAD", str(shim))
        monkeypatch.setenv("AUDIT_FAULT", fault)
        monkeypatch.setenv("AUDIT_RANK", str(rank))
        context = Context(ranks=2, level=dataclasses.replace(LEVEL, **changes))
        vars(context.measured)["platform"] = QUIET
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


def two_cores() -> bool:
    return len(os.sched_getaffinity(0)) >= 2

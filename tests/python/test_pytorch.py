"""The PyTorch backend: every operation against plain arithmetic, on two and three ranks, and what faults do to it.

Runs where PyTorch is installed, which the development requirements do not have (no wheel for Linux without CUDA's
libraries can be had by name, and with them it takes 5 GB): `python -m pip install torch` into an environment that has
this package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from jobs import environment, stretto

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: the backend is not tested here", allow_module_level=True)

import pytorch_main

SCRIPT = Path(pytorch_main.__file__)
SECONDS = 180


def run(ranks: int, *names: str) -> subprocess.CompletedProcess[str]:
    with TemporaryDirectory() as folder:
        return stretto("run", "-n", ranks, SCRIPT, Path(folder, "meeting"), *names, seconds=SECONDS)


@cache
def all_cases(ranks: int) -> subprocess.CompletedProcess[str]:
    return run(ranks, "all")


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", list(pytorch_main.CASES))
def test_operations(name: str, ranks: int) -> None:
    done = all_cases(ranks)
    for rank in range(ranks):
        assert f"ok {name} {rank}\n" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_job_ends_in_peace(ranks: int) -> None:
    done = all_cases(ranks)
    assert done.returncode == 0, done.stderr[-6000:]
    for rank in range(ranks):
        assert f"ended {rank}\n" in done.stdout
    assert "Traceback" not in done.stderr and "STRETTO WARN" not in done.stderr, done.stderr[-6000:]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", list(pytorch_main.ALONE))
def test_faults(name: str) -> None:
    done = run(2, name)
    survivors = [0] if "dead_peer" in name else [0, 1]
    for rank in survivors:
        assert f"ok {name} {rank}\n" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]


def test_the_package_announces_the_backend() -> None:
    found = importlib.metadata.entry_points(group="torch.distributed.backends", name="stretto")
    assert [entry.value for entry in found] == ["stretto.pytorch:register"]


def test_missing_ranks_are_named() -> None:
    text = """
import sys, datetime, torch.distributed as dist, stretto.pytorch
stretto.pytorch.register()
dist.init_process_group("stretto", init_method=sys.argv[1], rank=0, world_size=3, timeout=datetime.timedelta(seconds=1))
"""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-c", text, f"file://{folder}/meeting"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 1
    assert "DistBackendError: stretto: rank 0 of 3 waited 1 s" in done.stderr
    assert "did not see ranks 1, 2" in done.stderr


def test_ctrl_c_ends_a_wait() -> None:
    text = """
import os, signal, sys, threading, torch, torch.distributed as dist, stretto.pytorch
signal.signal(signal.SIGINT, signal.default_int_handler)
stretto.pytorch.register()
rank = int(os.environ["STRETTO_RANK"])
dist.init_process_group("stretto", init_method=sys.argv[1], rank=rank, world_size=2)
if rank == 0:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        dist.all_reduce(torch.ones(3))
    except KeyboardInterrupt:
        print("interrupted")
        dist.group.WORLD.abort()
else:
    try:
        dist.recv(torch.ones(3), 0)
    except dist.DistBackendError as error:
        print("told:", error)
"""
    with TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(text)
        done = stretto("run", "-n", 2, script, f"file://{folder}/meeting")
    assert "interrupted" in done.stdout, done.stdout + done.stderr
    assert "told: stretto group" in done.stdout and "rank 0" in done.stdout, done.stdout + done.stderr

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
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from jobs import environment, stretto

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: the backend is not tested here", allow_module_level=True)

import pytorch_main
import torch

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
def test_ranks_of_several_hosts() -> None:
    """Each rank says that it is on a host of its own, so that all links go over sockets."""
    text = """
import os, sys, torch, torch.distributed as dist, stretto.pytorch
rank = int(os.environ["STRETTO_RANK"])
os.environ["NCCL_HOSTID"] = f"host {rank}"
os.environ["NCCL_SOCKET_IFNAME"] = "lo"
stretto.pytorch.register()
dist.init_process_group("stretto", init_method=sys.argv[1], rank=rank, world_size=3)
for count in (1, 1000, 1 << 20):
    x = torch.full((count,), float(rank + 1))
    dist.all_reduce(x)
    assert (x == 6).all()
if rank == 0:
    got = torch.empty(1 << 18)
    for _ in range(4):
        source = dist.recv(got)
        assert (got == source).all()
else:
    for _ in range(2):
        dist.send(torch.full((1 << 18,), float(rank)), 0)
module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
module(torch.full((4, 64), float(rank))).sum().backward()
assert (module.module.weight.grad == 4).all()
dist.destroy_process_group()
print(f"ok {rank}\\n", end="", flush=True)
"""
    with TemporaryDirectory() as folder:
        script = Path(folder, "hosts.py")
        script.write_text(text)
        done = stretto("run", "-n", 3, script, f"file://{folder}/meeting", seconds=SECONDS)
    for rank in range(3):
        assert f"ok {rank}\n" in done.stdout, done.stdout[-2000:] + done.stderr[-6000:]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", list(pytorch_main.ALONE))
def test_faults(name: str) -> None:
    ranks = range(3 if name in pytorch_main.THREE else 2)
    done = run(len(ranks), name)
    for rank in ranks:
        if rank == 1 and "dead_peer" in name:
            continue
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


def _queue() -> tuple[Any, Callable[[Callable[[], None]], Any]]:
    """A queue of operations, and what makes an operation of it."""
    from stretto.pytorch.lane import Lane
    from stretto.pytorch.work import Work

    lane = Lane("a queue", lambda: None)
    return lane, lambda job: Work(lane, job, 10.0, [])


def test_what_is_left_when_a_queue_closes_is_done() -> None:
    lane, make = _queue()
    futures = []
    with lane._driving:  # so that nothing has run before the end
        for _ in range(3):
            futures.append(lane.submit(make(lambda: None)).get_future())
        lane.close()
        time.sleep(0.2)
    until = time.monotonic() + 30
    while not all(future.done() for future in futures):
        assert time.monotonic() < until, "it is never done"
        time.sleep(0.01)


def test_ctrl_c_during_the_work_of_another_is_raised_where_it_was_pressed() -> None:
    lane, make = _queue()

    def interrupted() -> None:
        raise KeyboardInterrupt

    lane._worker = threading.Thread()  # never started: this thread drives
    first, second = lane.submit(make(interrupted)), lane.submit(make(lambda: None))
    with pytest.raises(KeyboardInterrupt):
        second.wait()
    assert isinstance(first.exception(), torch.distributed.DistBackendError)
    assert second.wait()


def test_a_forked_child_keeps_its_own_deadlines_and_completes_its_own_futures() -> None:
    text = """
import os, threading
from stretto.pytorch import lane, work

def of_the_parent():
    raise RuntimeError("called in the child")

inherited = lane.Lane("the parent's", of_the_parent)
work._pool().submit(int).result(20)
child = os.fork()
if child == 0:
    inherited._deadline = 0.0  # as if it had run in the parent when that forked
    ended = threading.Event()
    lane.Lane("the child's", ended.set).run(lambda: ended.wait(20), 0.3)
    print("deadline", ended.is_set(), flush=True)
    print("future", work._pool().submit(int).result(20), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=90, env=environment())
    assert "deadline True" in done.stdout and "future 0" in done.stdout, done.stdout + done.stderr


def test_a_future_is_completed_while_the_interpreter_ends() -> None:
    text = """
import atexit, threading, time
from stretto.pytorch.lane import Lane
from stretto.pytorch.work import Work

ending = threading.Event()
lane = Lane("a queue", ending.set)
work = lane.submit(Work(lane, lambda: ending.wait(20), 30.0, []))
future = work.get_future()

def at_the_end():
    ending.set()
    until = time.monotonic() + 20
    while not future.done() and time.monotonic() < until:
        time.sleep(0.01)
    print("completed" if future.done() else "never completed", flush=True)

atexit.register(at_the_end)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=90, env=environment())
    assert done.stdout == "completed\n" and "Exception" not in done.stderr, done.stdout + done.stderr

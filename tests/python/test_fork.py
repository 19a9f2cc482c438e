"""A forked child, such as a data loader's worker, has a copy of every handle, and breaks nothing with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import environment, run_script

PARENT = """
import gc, os, signal, sys, time, numpy, stretto
signal.alarm(20)  # of a child that hangs, too: it ends by a signal, which is not what is expected of it
comm = stretto.init()
comm.barrier()
stream = stretto.Stream()
kept = numpy.zeros(4)
comm.all_reduce(kept, stream=stream)
stream.synchronize()
child = -1

def fork():
    global child
    sys.stdout.flush()
    child = os.fork() if comm.rank == 1 else 1
    if child == 0:
        signal.alarm(5)
    return child == 0

def refused(call):
    try:
        call()
    except stretto.InvalidUsage as error:
        assert "fork" in str(error), error
        assert str(os.getpid()) not in str(error)
    else:
        print("NOT REFUSED")
        os._exit(99)
"""

AFTER = """
if comm.rank == 1:
    _, status = os.waitpid(child, 0)
    print("CHILD", os.waitstatus_to_exitcode(status), flush=True)
for turn in range(20):
    x = comm.all_reduce(numpy.full(1000, turn + comm.rank, "float32"))
    assert (x == 2 * turn + 1).all(), x
comm.all_reduce(kept, stream=stream)
stream.close()
comm.close()
"""

CHILDREN = {
    "ends": "if fork(): sys.exit(0)",
    "ends by an error": "if fork(): raise SystemExit(0) from ValueError()",
    "forgets": """
if fork():
    del comm, stream
    gc.collect()
    sys.exit(0)
""",
    "calls": """
if fork():
    x = numpy.zeros(4)
    for call in (comm.close, comm.abort, comm.finalize, comm.barrier, lambda: comm.all_reduce(x),
                 lambda: comm.split(0), lambda: comm.shrink([0], abort=True), comm._native.revoke, comm.counters,
                 lambda: comm.pre_mul_sum(2.0), lambda: comm.force("all_reduce", None), lambda: comm.send(x, 0),
                 lambda: comm.explain("all_reduce", 4), comm._native.async_error,
                 stream.synchronize, stream.idle, stream.close):
        refused(call)
    sys.exit(0)
""",
    "leaves a block": """
with comm.pre_mul_sum(2.0) as op, stretto.Stream() as other:
    # The block of the communicator itself stays open in the parent, by a trick: only the child leaves it.
    if fork():
        with comm:
            sys.exit(0)
""",
    "leaves a group": """
with stretto.group():
    if fork():
        sys.exit(0)
    comm.all_reduce(kept)
""",
    "leaves a group well": """
def leave():
    with stretto.group():
        comm.all_reduce(kept)
        if not fork():
            return
    print("NOT REFUSED")
    os._exit(99)
try:
    leave()
except stretto.InvalidUsage as error:
    assert "fork" in str(error) and child == 0
    sys.exit(0)
""",
    "has its own": """
if fork():
    mine = stretto.init(rank=0, ranks=1, unique_id=stretto.unique_id())
    assert mine.all_reduce(numpy.ones(4))[0] == 1
    with stretto.group():
        mine.all_reduce(kept)
    with stretto.Stream() as own:
        mine.all_reduce(kept, stream=own)
    left = stretto.init(rank=0, ranks=1, unique_id=stretto.unique_id())
    mine.close()
    assert not left.closed
    sys.exit(0)
""",
    "is a worker": """
import multiprocessing
if comm.rank == 1:
    worker = multiprocessing.get_context("fork").Process(target=lambda: (globals().pop("comm"), gc.collect()))
    worker.start()
    worker.join()
    time.sleep(0.5)  # rank 0 waits meanwhile, and looks whether rank 1 has left
    child = os.fork()
    if child == 0:
        os._exit(worker.exitcode)
""",
}


@pytest.mark.parametrize("how", list(CHILDREN))
def test_a_forked_child_disturbs_nothing(tmp_path: Path, how: str) -> None:
    done = run_script(tmp_path, 2, PARENT + CHILDREN[how] + AFTER, seconds=40)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "CHILD 0\n"
    assert done.stderr == ""


def test_a_child_that_a_rank_thread_forks_ends_with_its_own_status(tmp_path: Path) -> None:
    text = """
if fork():
    sys.exit(3)
"""
    parent = PARENT.replace("signal.alarm(20)", "pass").replace("global child", "global child, comm")
    done = run_script(tmp_path, 2, parent + text + AFTER, "--threads", seconds=40)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "CHILD 3\n"


def test_interrupt_of_a_child_with_communicators_of_its_own() -> None:
    """Its parent listened for Ctrl-C by a thread, which the child has not."""
    text = """
import numpy, os, signal, stretto, sys, threading, time
parent = stretto.init(rank=0, ranks=1, unique_id=stretto.unique_id())
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(10)
first, second = stretto.init_all(2)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    first.all_reduce(numpy.zeros(4))
except KeyboardInterrupt:
    first.abort()
    second.abort()
    os._exit(0)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", text], env=environment(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr

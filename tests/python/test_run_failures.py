"""`stretto run` when a rank fails: the cause is named and gives the status, whoever ends first, and the job ends."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from jobs import alive, run_script, started, stretto, wait_for

# Rank 1 fails in the way that its argument names, with `late` seconds between that and its end; the others learn of
# it from the library and end with a status of their own, or by the uncaught error.
CAUSE = """
import atexit, os, signal, sys, time, numpy, stretto
how, peers, late = sys.argv[1], sys.argv[2], float(sys.argv[3])

def main():
    comm = stretto.init()
    comm.barrier()
    if comm.rank == 1:
        if how == "raise":
            raise ValueError("on purpose")
        if how == "block":
            with comm:
                raise ValueError("on purpose")
        if how == "exit":
            sys.exit(7)
        comm.abort()
        time.sleep(late)
        if how == "_exit":
            os._exit(7)
        if how == "abort and exit":
            sys.exit(7)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(numpy.zeros(4))
    except stretto.RemoteError as error:
        if peers == "raise":
            raise
        if peers == "other":
            raise RuntimeError("the training stopped")
        if peers == "_exit":
            os._exit(5)
        said = str(error)
    sys.exit(5)

if os.environ["STRETTO_RANK"] == "1":
    class Slow:  # collected when the modules go: after all that atexit does
        def __del__(self, sleep=time.sleep, late=late):
            sleep(late)
    sys.slow = Slow()
main()
"""


def judge(folder: Path, how: str, peers: str, late: float, *options: object) -> tuple[int, int, str]:
    """The rank that the launcher calls the first failure, its status, and what was said."""
    report = folder / "report.json"
    done = run_script(folder, 3, CAUSE, "--json", report, *options, arguments=(how, peers, late))
    document = json.loads(report.read_text())
    assert document["exit_status"] == done.returncode
    return document["first_failure"], done.returncode, done.stderr


STATUS = {"raise": 1, "block": 1, "exit": 7, "_exit": 7, "abort and exit": 7, "kill": 137}


@pytest.mark.parametrize("peers", ["raise", "other", "exit", "_exit"])
@pytest.mark.parametrize("how", list(STATUS))
def test_the_cause_is_named_though_it_ends_last(tmp_path: Path, how: str, peers: str) -> None:
    rank, status, said = judge(tmp_path, how, peers, 0.2)
    assert (rank, status) == (1, STATUS[how]), said
    assert "stretto run: rank 1 (pid" in said
    assert "stretto run: rank 0" not in said and "stretto run: rank 2" not in said, said
    if how in ("raise", "block"):
        assert "ended with status 1 (ValueError: on purpose)" in said


@pytest.mark.parametrize(("how", "late"), [("raise", 0.0), ("exit", 0.2)])
def test_the_cause_is_named_twenty_times_of_twenty(tmp_path: Path, how: str, late: float) -> None:
    verdicts = [judge(tmp_path, how, "exit", late)[:2] for _ in range(20)]
    assert verdicts == [(1, STATUS[how])] * 20


def test_without_grace_the_cause_is_known_by_what_it_wrote_down(tmp_path: Path) -> None:
    """Rank 1 is ended by the launcher, long before it would have ended by itself."""
    rank, status, said = judge(tmp_path, "raise", "raise", 30.0, "--grace", 0)
    assert (rank, status) == (1, 1), said


def test_who_lost_a_peer_that_ended_well_is_the_first_failure(tmp_path: Path) -> None:
    text = """
import sys, numpy, stretto
comm = stretto.init()
if comm.rank == 0:
    sys.exit(0)
comm.all_reduce(numpy.zeros(4))
"""
    report = tmp_path / "report.json"
    done = run_script(tmp_path, 2, text, "--json", report)
    assert done.returncode == 1 and json.loads(report.read_text())["first_failure"] == 1, done.stderr
    assert "stretto run: rank 1 (pid" in done.stderr


@pytest.mark.parametrize(("signal_name", "rank", "status"), [("KILL", 1, 137), ("SEGV", 1, 139), ("ABRT", 0, 3)])
def test_programs_that_write_nothing_down(tmp_path: Path, signal_name: str, rank: int, status: int) -> None:
    """Who dies by a signal is the cause, but for the one that programs send themselves when a call has failed."""
    report = tmp_path / "report.json"
    # Rank 1 dies soon after rank 0, and not when a busy machine has started it at last.
    command = f"""
awaited() {{ while [ ! -e {tmp_path}/$1 ]; do sleep 0.01; done; }}
if [ "$STRETTO_RANK" = 0 ]; then awaited up; touch {tmp_path}/go; exit 3; fi
touch {tmp_path}/up; awaited go; sleep 0.05; kill -{signal_name} $$
"""
    done = stretto("run", "-n", 2, "--json", report, "--", "sh", "-c", command)
    assert (json.loads(report.read_text())["first_failure"], done.returncode) == (rank, status), done.stderr


def test_a_rank_that_writes_nonsense_into_the_log_harms_nobody(tmp_path: Path) -> None:
    text = """
import os, stretto, sys
lines = [
    b'\\xff{[', b'[]', b'{"rank": 99}', b'{"rank": 0, "what": "failed", "moment": "soon", "blame": 7}',
    b'{"rank": 77, "what": "failed", "moment": 0, "blame": 0, "status": 9, "words": ""}', b"[" * 100000,
]
with open(os.environ["STRETTO_RUN_LOG"], "ab") as log:
    log.write(b"\\n".join(lines) + b"\\n" + b"x" * 200000)
sys.exit(7 if os.environ["STRETTO_RANK"] == "1" else 0)
"""
    report = tmp_path / "report.json"
    done = run_script(tmp_path, 2, text, "--json", report)
    assert (json.loads(report.read_text())["first_failure"], done.returncode) == (1, 7), done.stderr


def test_a_loss_that_was_overcome_is_no_excuse(tmp_path: Path) -> None:
    """Rank 0 survives the loss of rank 2, and then makes a mistake of its own; rank 1 loses rank 0."""
    text = """
import sys, time, numpy, stretto
comm = stretto.init()
comm.barrier()
if comm.rank == 2:
    comm.abort()
    sys.exit(0)
try:
    comm.all_reduce(numpy.zeros(4))
except stretto.RemoteError:
    comm = comm.shrink([2], abort=True)
comm.barrier()
if comm.rank == 0:
    raise KeyError("my own")
comm.all_reduce(numpy.zeros(4))
"""
    report = tmp_path / "report.json"
    done = run_script(tmp_path, 3, text, "--json", report)
    assert json.loads(report.read_text())["first_failure"] == 0, done.stderr
    assert "KeyError: 'my own'" in done.stderr


# --- Ranks as threads. ---

THREADS = """
import os, pathlib, sys, threading, time, numpy, stretto
how, folder = sys.argv[1], pathlib.Path(sys.argv[2])
"""


def run_threads(folder: Path, text: str, how: str, *options: object) -> tuple[int, str, float]:
    """The status, what was said on stderr, and the seconds from the failure to the end."""
    report = folder / "report.json"
    done = run_script(
        folder, 3, THREADS + text, "--threads", "--json", report, *options, arguments=(how, folder), seconds=60
    )
    ended = time.time()
    document = json.loads(report.read_text())
    assert (document["exit_status"], document["first_failure"]) == (done.returncode, 1), done.stderr
    return done.returncode, done.stderr, ended - float((folder / "failed").read_text())


FAIL = """
def fail():
    (folder / "failed").write_text(str(time.time()))
    if how == "raise":
        raise ValueError("on purpose")
    if how == "exit":
        sys.exit(7)
    sys.exit("words")
"""


@pytest.mark.parametrize(("how", "status"), [("raise", 1), ("exit", 7), ("words", 1)])
def test_a_thread_that_fails_ends_the_others(tmp_path: Path, how: str, status: int) -> None:
    text = """
comm = stretto.init()
half = comm.split(0, 0)
comm.barrier()
if comm.rank == 1:
    fail()
# One waits in the communicator that stretto.init() made, the other in a child of it.
try:
    (comm if comm.rank == 0 else half).all_reduce(numpy.zeros(4))
except stretto.RemoteError:
    (folder / f"told{comm.rank}").touch()
    raise
"""
    got, said, seconds = run_threads(tmp_path, FAIL + text, how, "--grace", 60)
    assert got == status, said
    assert seconds < 20, "nobody waits for the grace"
    assert (tmp_path / "told0").exists() and (tmp_path / "told2").exists()
    assert "stretto run: rank 1 failed (" in said and "its communicators are aborted" in said
    assert "stretto run: rank 1 (a thread of pid" in said and "rank 0 (" not in said
    if how == "raise":
        assert said.count("Traceback (most recent call last)") == 1
        assert said.count("ValueError: on purpose\n") == 1 and "on rank 1 of 3" in said
    else:
        assert "Traceback" not in said
    assert ("words\n" in said) == (how == "words")


def test_a_thread_that_fails_before_it_has_joined_ends_the_others(tmp_path: Path) -> None:
    text = """
if threading.current_thread().name.endswith("-1"):
    time.sleep(0.2)
    fail()
stretto.init()
"""
    status, said, seconds = run_threads(tmp_path, FAIL + text, "raise", "--grace", 60)
    assert status == 1 and "ValueError: on purpose" in said and seconds < 20, "nobody waits for the grace"


def test_a_thread_that_is_stuck_does_not_hold_up_the_end(tmp_path: Path) -> None:
    text = """
comm = stretto.init()
comm.barrier()
if comm.rank == 1:
    fail()
if comm.rank == 2:
    while True:
        pass
comm.all_reduce(numpy.zeros(4))
"""
    status, said, seconds = run_threads(tmp_path, FAIL + text, "exit", "--grace", 4)
    assert status == 7, said
    assert 4 <= seconds < 20, "it has its grace, which is 3 s as it comes, and does not run for ever"
    assert "rank 2" in said  # which is still running, is said


def test_threads_that_the_script_left_running_do_not_hold_up_the_end(tmp_path: Path) -> None:
    text = """
comm = stretto.init()
if comm.rank == 1:
    threading.Thread(target=time.sleep, args=(1000,)).start()
    fail()
comm.all_reduce(numpy.zeros(4))
"""
    status, said, seconds = run_threads(tmp_path, FAIL + text, "exit", "--grace", 0.5)
    assert status == 7, said
    assert seconds < 20, "the thread would sleep for 1000 s"


def test_a_thread_that_ends_without_closing_parts_from_the_others(tmp_path: Path) -> None:
    """As a process would: it is not waited for."""
    text = """
import numpy, stretto
comm = stretto.init()
def cycle(): return comm
if comm.rank == 0:
    comm.all_reduce(numpy.zeros(4))
"""
    done = run_script(tmp_path, 2, text, "--threads", seconds=30)
    assert done.returncode == 1 and "has finalised" in done.stderr


def test_interrupt_of_threads_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        THREADS
        + """
comm = stretto.init()
comm.barrier()
if comm.rank == 1:
    (folder / "draft").write_text(str(os.getpid()))
    (folder / "draft").rename(folder / "pids")
    while True:
        pass
comm.all_reduce(numpy.zeros(4))
"""
    )
    before = {path.name for path in Path("/dev/shm").iterdir() if "stretto" in path.name}
    with started("run", "-n", 3, "--threads", "--grace", 1, script, "", tmp_path) as job:
        wait_for((tmp_path / "pids").exists, 20, "the ranks start")
        pid = int((tmp_path / "pids").read_text())
        time.sleep(0.2)
        os.kill(job.pid, signal.SIGINT)
        _, said = job.communicate(timeout=60)  # a rank would run for ever
        assert job.returncode == 130, said
        assert not alive(pid)
        assert "Traceback" not in said, said
    assert {path.name for path in Path("/dev/shm").iterdir() if "stretto" in path.name} <= before

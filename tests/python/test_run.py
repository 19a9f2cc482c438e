"""`stretto run`: ranks as processes and as threads, and that nothing is left, whatever ends the job."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from jobs import alive, run_script, started, stretto, wait_for

SUM = """
import numpy, stretto
comm = stretto.init()
x = comm.all_reduce(numpy.full(4, comm.rank, "float32"))
print(f"rank {comm.rank} of {comm.size}: {x.tolist()}\\n", end="")  # one write, as threads share stdout
"""

SLEEP = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
child = os.fork()
if child == 0:
    time.sleep(1000)
draft = folder / f"draft{os.environ['STRETTO_RANK']}"
draft.write_text(f"{os.getpid()} {child}")
draft.rename(folder / f"pids{os.environ['STRETTO_RANK']}")
time.sleep(1000)
"""


def pids_in(folder: Path, ranks: int) -> list[int]:
    """Those of all ranks and of what they started, once all are there."""
    files = [folder / f"pids{rank}" for rank in range(ranks)]
    wait_for(lambda: all(file.exists() for file in files), 40, "ranks start")
    return [int(pid) for file in files for pid in file.read_text().split()]


def segments() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "stretto" in path.name}


@pytest.mark.parametrize("options", [(), ("--threads",)])
def test_ranks_meet(tmp_path: Path, options: tuple[str, ...]) -> None:
    before = segments()
    done = run_script(tmp_path, 3, SUM, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 3: [3.0, 3.0, 3.0, 3.0]" for rank in range(3)]
    assert segments() <= before


def test_init_again_and_again(tmp_path: Path) -> None:
    text = """
import numpy, stretto
for turn in range(3):
    with stretto.init(name=f"turn {turn}") as comm:
        assert comm.all_reduce(numpy.ones(3))[0] == comm.size
"""
    for options in ((), ("--threads",)):
        done = run_script(tmp_path, 3, text, *options)
        assert done.returncode == 0, done.stderr


def test_tags_arguments_and_environment(tmp_path: Path) -> None:
    text = """
import os, sys
print("out", sys.argv[1:], os.environ["MINE"])
print("err", file=sys.stderr)
sys.stdout.write("no newline")
"""
    script = tmp_path / "script.py"
    script.write_text(text)
    done = stretto("run", "-n", 2, "--tag", script, "--tag", "-n", "7", MINE="yes")
    assert done.returncode == 0
    for rank in range(2):
        assert f"[{rank}] out ['--tag', '-n', '7'] yes" in done.stdout.splitlines()
        assert f"[{rank}] no newline" in done.stdout.splitlines()
        assert f"[{rank}] err" in done.stderr.splitlines()


@pytest.mark.parametrize(("wrong", "meant"), [("--rnaks", "--ranks"), ("--time=3", "--timeout"), ("-q", "")])
def test_an_unknown_option_is_told(wrong: str, meant: str) -> None:
    done = stretto("run", wrong, 4, "x.py")
    assert done.returncode == 2 and f"there is no option {wrong}" in done.stderr
    assert f"did you mean {meant}?" in done.stderr if meant else "mean" not in done.stderr


def test_any_program_after_two_dashes() -> None:
    done = stretto("run", "-n", 3, "--tag", "--", "sh", "-c", "echo $STRETTO_RANK/$STRETTO_RANKS")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank}/3" for rank in range(3)]


def test_lines_of_threads_stay_whole(tmp_path: Path) -> None:
    script = """
import sys
sys.stdout.reconfigure(line_buffering=True)
assert sys.stdout.writable() and sys.stdout.encoding
for n in range(300):
    print('out', n)
    print(str(n % 10) * 20000)
print('err', file=sys.stderr)
"""
    done = run_script(tmp_path, 4, script, "--threads")
    assert done.returncode == 0, done.stderr
    wanted = [f"out {n}" for n in range(300)] + [str(n % 10) * 20000 for n in range(300)]
    assert sorted(done.stdout.splitlines()) == sorted(wanted * 4)
    assert done.stderr.splitlines() == ["err"] * 4


def test_a_line_without_an_end_is_not_lost_with_its_thread(tmp_path: Path) -> None:
    done = run_script(tmp_path, 3, "print('begun', end='')", "--threads")
    assert (done.returncode, done.stdout) == (0, "begun" * 3)
    helper = "import threading\nt = threading.Thread(target=lambda: print('x' * 70000, end='y'))\nt.start()\nt.join()"
    done = run_script(tmp_path, 2, helper, "--threads")
    assert (done.returncode, sorted(done.stdout)) == (0, sorted("x" * 140000 + "yy"))


def test_variables_of_the_command_line(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $MINE $YOURS"]
    done = stretto("run", "-n", 2, "--env", "MINE=1 2", "--env", "YOURS", "--", *command, YOURS="3")
    assert done.stdout.splitlines() == ["1 2 3"] * 2
    done = run_script(tmp_path, 2, "import os; print(os.environ['MINE'])", "--threads", "--env", "MINE=5")
    assert done.stdout.split() == ["5", "5"]


@pytest.mark.parametrize("option", [("--reach", 3), ("--remote-python", "python"), ("--remote-shell", "ssh")])
def test_options_of_hosts_without_hosts_are_refused(option: tuple[str, object]) -> None:
    done = stretto("run", "-n", 1, *option, "--", "true")
    assert done.returncode == 2 and f"{option[0]} says how hosts are reached" in done.stderr
    assert stretto("run", "-n", 1, "--", "true", STRETTO_REMOTE_SHELL="ssh").returncode == 0


def test_wrong_command_lines() -> None:
    assert "nothing to run" in stretto("run", "-n", 2).stderr
    done = stretto("run", "-n", 2, "no_such_program_here")
    assert done.returncode == 127 and "no_such_program_here" in done.stderr
    assert stretto("run", "-n", 0, "true").returncode == 2
    assert "Python script" in stretto("run", "--threads", "true").stderr


@pytest.mark.parametrize("wrong", ["inf", "nan", "-1", "1e300", "soon"])
@pytest.mark.parametrize("option", ["--timeout", "--grace"])
def test_times_that_are_none_are_refused(option: str, wrong: str) -> None:
    done = stretto("run", "-n", 2, option, wrong, "--", "true")
    assert done.returncode == 2 and option in done.stderr and "Traceback" not in done.stderr


def test_a_long_time_is_taken() -> None:
    assert stretto("run", "-n", 2, "--timeout", 1e8, "--grace", 1e8, "--", "true").returncode == 0


def test_a_report_that_cannot_be_written_is_told_before_the_job_runs(tmp_path: Path) -> None:
    done = stretto("run", "-n", 1, "--json", "/nonexistent/report.json", "--", "touch", tmp_path / "ran")
    assert done.returncode == 2 and "cannot write /nonexistent/report.json" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_threads_of_a_script_that_is_none(tmp_path: Path) -> None:
    done = stretto("run", "--threads", tmp_path / "missing.py")
    assert done.returncode == 2 and "cannot read" in done.stderr and "Traceback" not in done.stderr
    done = run_script(tmp_path, 2, "def (", "--threads")
    assert done.returncode == 1 and "SyntaxError" in done.stderr and "Traceback" not in done.stderr


def test_first_failure_is_named_and_ends_the_rest(tmp_path: Path) -> None:
    text = """
import os, sys, time
if os.environ["STRETTO_RANK"] == "1":
    sys.exit(7)
time.sleep(1000)
"""
    began = time.monotonic()
    report = tmp_path / "report.json"
    done = run_script(tmp_path, 3, text, "--grace", 0.2, "--json", report)
    assert done.returncode == 7
    assert "rank 1 (pid" in done.stderr and "ended with status 7" in done.stderr
    assert time.monotonic() - began < 20
    document = json.loads(report.read_text())
    assert document["schema"] == "stretto.run/1"
    assert (document["first_failure"], document["exit_status"]) == (1, 7)
    assert [row["status"] for row in document["ranks"]] == [None, 7, None]
    assert [row["signal"] for row in document["ranks"]] == [15, None, 15]


def test_killed_rank_gives_the_status_of_its_signal(tmp_path: Path) -> None:
    text = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    done = run_script(tmp_path, 1, text)
    assert done.returncode == 137 and "was killed by signal 9 (SIGKILL)" in done.stderr


def test_timeout(tmp_path: Path) -> None:
    done = run_script(tmp_path, 2, "import time; time.sleep(1000)", "--timeout", 0.7)
    assert done.returncode == 124 and "--timeout" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLEEP)
    with started("run", "-n", 3, "--grace", 1, script, tmp_path) as job:
        pids = pids_in(tmp_path, 3)
        os.kill(job.pid, number)
        _, said = job.communicate(timeout=20)
        assert job.returncode == 128 + number, said
        assert number.name in said
        wait_for(lambda: not any(alive(pid) for pid in pids), 5, "all ranks and their children end")


FLOOD = """
import os, pathlib, sys
(pathlib.Path(sys.argv[1]) / f"pids{os.environ['STRETTO_RANK']}").write_text(str(os.getpid()))
for number in range(60000):
    print("x" * 50, number)
"""


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("options", "status"), [((), 128 + signal.SIGTERM), (("--timeout", 6), 124)])
def test_an_end_is_heard_though_nobody_reads(
    tmp_path: Path, far: bool, options: tuple[object, ...], status: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(FLOOD)
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    shell.chmod(0o755)
    where = ("--hosts", "a,b", "--remote-shell", shell, "--env", "NCCL_SOCKET_IFNAME=lo") if far else ("--tag",)
    with started("run", "-n", 1 if far else 2, "--grace", 0.2, *where, *options, script, tmp_path) as launcher:
        if not options:
            pids_in(tmp_path, 2)
            time.sleep(4.0)
            launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(60) == status


def test_a_late_reader_gets_everything(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(FLOOD)
    with started("run", "-n", 2, "--tag", script, tmp_path) as launcher:
        pids_in(tmp_path, 2)
        time.sleep(4.0)
        assert launcher.poll() is None
        assert len(launcher.communicate(timeout=60)[0].splitlines()) == 120000
        assert launcher.returncode == 0


def test_ranks_that_ignore_signals_are_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal\nfor one in (signal.SIGINT, signal.SIGTERM): signal.signal(one, signal.SIG_IGN)\n" + SLEEP
    )
    with started("run", "-n", 2, "--grace", 0.2, script, tmp_path) as job:
        pids = pids_in(tmp_path, 2)
        os.kill(job.pid, signal.SIGINT)
        job.communicate(timeout=20)
        wait_for(lambda: not any(alive(pid) for pid in pids), 5, "all ranks end")


def test_a_killed_launcher_takes_its_ranks_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLEEP)
    with started("run", "-n", 2, script, tmp_path) as job:
        pids = pids_in(tmp_path, 2)
        ranks, started_by_ranks = pids[::2], pids[1::2]
        os.kill(job.pid, signal.SIGKILL)
        try:
            wait_for(lambda: not any(alive(pid) for pid in ranks), 5, "the ranks end")
        finally:
            for pid in started_by_ranks:  # these the kernel cannot know
                os.kill(pid, signal.SIGKILL)


def test_interrupt_while_ranks_wait_in_an_operation(tmp_path: Path) -> None:
    """Rank 1 never comes; rank 0 is deep in the library when Ctrl-C arrives."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, pathlib, os, time, numpy, stretto\ncomm = stretto.init()\n"
        "(pathlib.Path(sys.argv[1]) / f'pids{comm.rank}').write_text(str(os.getpid()))\n"
        "if comm.rank == 1: time.sleep(1000)\n"
        "comm.all_reduce(numpy.zeros(4))\n"
    )
    before = segments()
    with started("run", "-n", 2, "--grace", 1, script, tmp_path) as job:
        pids = pids_in(tmp_path, 2)
        time.sleep(0.3)
        os.kill(job.pid, signal.SIGINT)
        job.communicate(timeout=20)
        assert job.returncode == 130
        assert not any(alive(pid) for pid in pids)
    assert segments() <= before


LATE = """
import time, numpy, stretto
comm = stretto.init()
comm.barrier()
if comm.rank == 1:
    time.sleep(1.5)
comm.all_reduce(numpy.zeros(4, "float32"))
"""


@pytest.mark.parametrize("options", [(), ("--threads",)])
def test_a_job_that_waits_for_long_says_for_whom(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run_script(tmp_path, 3, LATE, *options, STRETTO_WARN_AFTER="0.3")
    assert done.returncode == 0, done.stderr
    # On a busy machine ranks may begin so far apart that the barrier is told of as well.
    waits = [line for line in done.stderr.splitlines() if "has waited" in line and "in #2 all_reduce" in line]
    assert sorted(int(re.findall(r"rank (\d) has waited", line)[0]) for line in waits) == [0, 2], done.stderr
    assert "all_reduce float32 x 4 sum (not entered by rank 1)" in done.stderr


@pytest.mark.parametrize("quiet", [{"NCCL_DEBUG": "VERSION"}, {"STRETTO_WARN_AFTER": "0"}])
def test_a_job_that_waits_is_quiet_where_somebody_says_so(tmp_path: Path, quiet: dict[str, str]) -> None:
    done = run_script(tmp_path, 3, LATE, **{"STRETTO_WARN_AFTER": "0.3", **quiet})
    assert (done.returncode, done.stderr) == (0, "")


def test_a_variable_that_nothing_reads_is_told_once_for_all_ranks(tmp_path: Path) -> None:
    done = run_script(tmp_path, 3, "import stretto; stretto.init().barrier()", STRETTO_WARM_AFTER="1")
    assert done.returncode == 0 and done.stderr.count("STRETTO_WARM_AFTER") == 1, done.stderr
    assert "is STRETTO_WARN_AFTER meant?" in done.stderr

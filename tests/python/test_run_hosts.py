"""`stretto run --hosts`, over a stand-in for ssh that enters network namespaces (tests/python/namespaces.py)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import alive, hanging, started, stretto, wait_for
from namespaces import Network, can_be_made, network
from stretto.cli import host_agent
from stretto.cli.frames import NoFrame, Reader, pack
from stretto.cli.hosts import Host, parse_hosts
from stretto.errors import InvalidArgument

SUMS = """
import os, numpy, stretto
comm = stretto.init()
result = comm.all_reduce(numpy.full(1000, comm.rank + 1, "float32"))
again = stretto.init()  # not by the launcher's id
again.barrier()
print(os.environ["NCCL_HOSTID"], comm.rank, comm.size, os.environ["MY_OWN"], result[7], os.getcwd(), flush=True)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path) as made:
        yield made


def write(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(text)
    return script


def pids_in(folder: Path, ranks: int) -> list[int]:
    files = [folder / f"ready{rank}" for rank in range(ranks)]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files), 60, "ranks are ready")
    return [int(file.read_text()) for file in files]


def test_ranks_on_two_hosts_meet(hosts: Network, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    first, second = hosts.names
    place = hosts.options()
    place[1] = f"{first}:2,{second}"
    done = stretto("run", "-n", 1, *place, "--env", "MY_OWN=x y", "--json", report, write(tmp_path, SUMS))
    assert done.returncode == 0, done.stderr
    wanted = [
        f"[{host} {rank}] {host} {rank} 3 x y 6.0 {Path.cwd()}" for rank, host in enumerate((first, first, second))
    ]
    assert sorted(done.stdout.splitlines()) == wanted
    assert "STRETTO_RENDEZVOUS_SECRET" not in done.stderr
    rows = json.loads(report.read_text())["ranks"]
    assert [(row["rank"], row["host"], row["status"]) for row in rows] == [(0, first, 0), (1, first, 0), (2, second, 0)]
    if not can_be_made():
        pytest.skip("ran on loopback: no network namespaces can be made here, so nothing crossed a network")


def test_variables_of_the_launcher_alone_stay_here(hosts: Network) -> None:
    place = hosts.options()
    place[2:4] = []
    own = {"NCCL_HOSTID": "mine", "STRETTO_REMOTE_SHELL": str(hosts.shell)}
    command = ["sh", "-c", "echo $NCCL_HOSTID ${STRETTO_REMOTE_SHELL-none}"]
    # As the stand-in's environment comes from here, it takes away what ssh would not bring.
    hosts.shell.write_text(hosts.shell.read_text().replace("export NCCL", "unset STRETTO_REMOTE_SHELL\nexport NCCL"))
    done = stretto("run", "-n", 1, "--no-tag", *place, "--", *command, **own)
    assert sorted(done.stdout.splitlines()) == [f"{name} none" for name in hosts.names], done.stderr


def test_the_first_failure_is_named_once_with_its_host(hosts: Network, tmp_path: Path) -> None:
    text = """
import numpy, stretto
comm = stretto.init()
comm.all_reduce(numpy.zeros(10, "float32"))
if comm.rank == 1:
    raise ValueError("gone")
comm.barrier()
"""
    done = stretto("run", "-n", 1, *hosts.options(), write(tmp_path, text))
    assert done.returncode == 1
    named = [line for line in done.stderr.splitlines() if line.startswith("stretto run: ")]
    assert len(named) == 1 and f"rank 1 on {hosts.names[1]} (pid " in named[0]
    assert "ended with status 1 (ValueError: gone)" in named[0]


def test_the_status_is_that_of_the_first_failure(hosts: Network) -> None:
    command = ["sh", "-c", "test $STRETTO_RANK = 1 && exit 7; exec sleep 600"]
    done = stretto("run", "-n", 1, *hosts.options(), "--grace", "0.2", "--", *command)
    assert done.returncode == 7 and f"rank 1 on {hosts.names[1]}" in done.stderr


def test_a_rank_that_is_killed(hosts: Network) -> None:
    done = stretto("run", "-n", 1, *hosts.options(), "--grace", "0.2", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + 9 and "was killed by signal 9 (SIGKILL)" in done.stderr


@pytest.mark.parametrize(
    ("more", "words", "reason", "mend"),
    [
        ("unreachable", [], "No route to host", "unreachable true` must end by itself and without a question"),
        ("silent", ["--reach", "2"], "it did not answer within 2 s (--reach)", "--remote-shell"),
        ("third", ["--remote-python", "/no/python"], "/no/python", "install it at that path"),
        ("third", ["--remote-python", sys.executable + " -S"], "", "--remote-python"),
    ],
)
def test_a_host_that_cannot_be_used_is_named(
    hosts: Network, tmp_path: Path, more: str, words: list[str], reason: str, mend: str
) -> None:
    ran = tmp_path / "ran"
    done = stretto("run", "-n", 1, *hosts.options(more), *words, "--", "touch", ran)
    assert done.returncode == 127
    assert f"host {more}: " in done.stderr and reason in done.stderr and mend in done.stderr
    assert not ran.exists(), "ranks ran though one host was missing"


def test_a_rank_that_floods_the_log_harms_nobody(hosts: Network, tmp_path: Path) -> None:
    text = """
import os
with open(os.environ["STRETTO_RUN_LOG"], "ab", buffering=0) as log:
    log.write(b"x" * (3 << 20) + b"\\n")
if os.environ["STRETTO_RANK"] == "1":
    raise ValueError("mine")
"""
    done = stretto("run", "-n", 1, *hosts.options(), write(tmp_path, text))
    assert done.returncode == 1 and f"rank 1 on {hosts.names[1]} " in done.stderr, done.stderr


def test_a_program_that_a_host_does_not_have(hosts: Network) -> None:
    done = stretto("run", "-n", 1, *hosts.options(), "--", "no-such-program")
    assert done.returncode == 127
    assert ": it cannot start no-such-program: No such file or directory" in done.stderr
    assert any(f"host {name}: " in done.stderr for name in hosts.names)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(hosts: Network, tmp_path: Path, number: signal.Signals) -> None:
    with started("run", "-n", 1, *hosts.options(), write(tmp_path, hanging(0)), tmp_path) as launcher:
        pids = pids_in(tmp_path, 2)
        launcher.send_signal(number)
        assert launcher.wait(60) == 128 + number
        assert not [pid for pid in pids if alive(pid)]


def test_a_signal_while_a_host_is_waited_for(hosts: Network) -> None:
    with started("run", "-n", 1, *hosts.options("silent"), "--", "true") as launcher:
        wait_for(hosts.asked.exists, 60, "it is asked")
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(60) == 128 + signal.SIGINT


def test_a_killed_launcher_leaves_nothing_behind(hosts: Network, tmp_path: Path) -> None:
    with started("run", "-n", 1, *hosts.options(), write(tmp_path, hanging(0)), tmp_path) as launcher:
        pids = pids_in(tmp_path, 2)
        launcher.kill()
        wait_for(lambda: not [pid for pid in pids if alive(pid)], 30, "the ranks have ended")


def test_a_host_that_is_lost(hosts: Network, tmp_path: Path) -> None:
    """Its agent is killed, as when the host goes down: its ranks and what they started end with it, and the others
    are ended.
    """
    text = """
import os, pathlib, subprocess, sys, time
ready = pathlib.Path(sys.argv[1]) / ("ready" + os.environ["STRETTO_RANK"])
ready.with_suffix(".child").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
ready.with_suffix(".agent").write_text(str(os.getppid()))
ready.write_text(str(os.getpid()))
time.sleep(600)
"""
    script = write(tmp_path, text)
    with started("run", "-n", 1, "--grace", "0.5", *hosts.options(), script, tmp_path) as launcher:
        pids = pids_in(tmp_path, 2)
        os.kill(int((tmp_path / "ready1.agent").read_text()), signal.SIGKILL)
        _, said = launcher.communicate(timeout=60)
        assert launcher.returncode == 255
        assert f"rank 1 on {hosts.names[1]} (pid {pids[1]}) was lost with its host: its remote shell ended" in said
        assert said.count("stretto run: ") == 1
        pids += [int(file.read_text()) for file in tmp_path.glob("ready*.child")]
        assert len(pids) == 4
        wait_for(lambda: not [pid for pid in pids if alive(pid)], 30, "the ranks have ended, and their children")


def test_the_unique_id_is_in_no_list_of_processes(hosts: Network, tmp_path: Path) -> None:
    text = """
import os, pathlib
secret = os.environ["STRETTO_UNIQUE_ID"].encode()
for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        assert secret not in entry.read_bytes(), entry
    except (FileNotFoundError, ProcessLookupError):
        pass
"""
    done = stretto("run", "-n", 1, *hosts.options(), write(tmp_path, text))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("came", ["127.0.0.1 40000 127.0.0.1 22", "::1 40000 ::1 22", ""])
def test_loopback_is_no_interface_that_others_reach(monkeypatch: pytest.MonkeyPatch, came: str) -> None:
    """As with `--hosts localhost,node2`: the id that the first host makes must not name its loopback."""
    monkeypatch.setenv("SSH_CONNECTION", came)
    chosen = host_agent._arrival()
    assert chosen.startswith("^") and "lo" in chosen[1:].split(",")


def test_the_interface_of_a_second_address(hosts: Network) -> None:
    if not hosts.spaces:
        pytest.skip("no network namespaces can be made here")
    space = hosts.spaces[hosts.names[0]]
    added = subprocess.run(["ip", "-n", space, "addr", "add", "10.77.0.9/24", "dev", "eth0"], timeout=30)
    assert added.returncode == 0
    program = """
from stretto.interfaces import interface_of
print(interface_of("10.77.0.9"), interface_of("10.77.0.1"), interface_of("9.9.9.9"))
"""
    done = subprocess.run(
        [*hosts.inside(hosts.names[0]), sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["eth0", "eth0", "None"], done.stderr


def test_hosts_as_people_write_them() -> None:
    assert parse_hosts("a, me@b:3", 2) == [Host("a", 2), Host("me@b", 3)]
    assert parse_hosts("fe80::1,[fe80::1]:4", 2) == [Host("fe80::1", 2), Host("fe80::1", 4)]
    assert parse_hosts("me@[fe80::1]:3,me@fe80::1", 2) == [Host("me@fe80::1", 3), Host("me@fe80::1", 2)]


@pytest.mark.parametrize("wrong", ["", "a,,b", "a:0", "a:x", ":3", "-oProxyCommand=x"])
def test_what_is_no_list_of_hosts(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="is no host"):
        parse_hosts(wrong, 2)


@pytest.mark.parametrize(("hosts", "words"), [("a:65,b:2", "--ranks 65"), (",".join("a" * 17), "1088 ranks; 1024")])
def test_more_ranks_than_a_communicator_has(hosts: str, words: str) -> None:
    done = stretto("run", "--hosts", hosts, "-n", 64, "x.py")
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_what_cannot_go_together() -> None:
    assert stretto("run", "--hosts", "a", "--threads", "x.py").returncode == 2
    assert "--env NO_SUCH" in stretto("run", "--hosts", "a", "--env", "NO_SUCH", "x.py").stderr


def test_frames_in_pieces() -> None:
    stream = pack("printed", b"one\ntwo", rank=3) + pack("alive") + pack("noted", b"")
    reader = Reader()
    found = [frame for at in range(len(stream)) for frame in reader.feed(stream[at : at + 1])]
    assert [(head["what"], data) for head, data in found] == [("printed", b"one\ntwo"), ("alive", b""), ("noted", b"")]


@pytest.mark.parametrize(
    "wrong", [b"hello\n", b"[]\n", b'{"what": 1, "bytes": 0}\n', b'{"what": "x", "bytes": -1}\n', b"{" * 99999 + b"\n"]
)
def test_what_is_no_frame(wrong: bytes) -> None:
    with pytest.raises(NoFrame):
        list(Reader().feed(wrong))

"""`stretto top --hosts`: what several hosts say of a job is merged; on network namespaces with processes of their own,
and on made-up samples.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import STRETTO, environment, hanging, started, stretto, wait_for
from namespaces import Network, can_be_made, network
from stretto import processes
from stretto.top.merge import merged
from stretto.top.watcher import ending
from test_top import Terminal

# ---- Made-up samples --------------------------------------------------------------------------------------------


def member(rank: int, number: int | None, *, running: bool = True, since: float = 5.0) -> dict[str, Any]:
    operation = {"text": f"#{number} all_reduce", "sequence": number, "state": "running" if running else "done"}
    return {
        "rank": rank,
        "host": "vm",
        "pid": 100 + rank,
        "process": "runs",
        "state": "ok",
        "awaits": [],
        "waited": 0.5,
        "waited_for": [{"rank": 0, "share": 0.5}],
        "late": 0.1,
        "followed_s": 1.0,
        "operation": None if number is None else {**operation, "since_s": since},
    }


def view(*members: dict[str, Any], verdict: str = "working", sentences: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": "1a", "ranks": 4, "verdict": verdict, "sentences": [*sentences], "members": [*members]}


def test_ranks_of_two_hosts_are_one_communicator() -> None:
    seen = {"a": [view(member(0, 5), member(1, 5))], "b": [view(member(2, 5), member(3, 5))]}
    before = copy.deepcopy(seen)
    (one,) = merged(seen, 0.1)
    assert seen == before
    assert [(each["rank"], each["host"]) for each in one["members"]] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    # Of clocks that cannot be compared nobody says who waited how long.
    assert {(each["waited"], each["late"], each["followed_s"]) for each in one["members"]} == {(None, None, 0.0)}
    assert not any(each["awaits"] for each in one["members"]) and one["verdict"] == "working"


def test_who_has_not_entered_is_known_across_hosts() -> None:
    only = "no recorder of ranks 2, 3 was read: of another process or host, or gone"
    local = view(member(0, 5), member(1, 5), verdict="waiting", sentences=("ranks 0 and 1 are in #5", only))
    far = view(member(2, 5), member(3, 4, running=False), sentences=("rank 3 idles",))
    (one,) = merged({"a": [local], "b": [far]}, 0.1)
    assert [each["awaits"] for each in one["members"]] == [[3], [3], [], []]
    assert one["verdict"] == "waiting"
    assert one["sentences"] == [
        "rank 3 on b has not entered #5 all_reduce; ranks 0, 1 on a wait since 5 s",
        "a: ranks 0 and 1 are in #5",
        "b: rank 3 idles",
    ]


@pytest.mark.parametrize(
    ("waiting", "other", "why"),
    [
        (member(0, 5, since=0.05), member(2, 4), "it may have entered while the hosts were asked"),
        (member(0, 5), member(2, 0), "its last operation was a message, which has no such number"),
        (member(0, 5, running=False), member(2, 4), "nobody is inside"),
        (member(0, 5), member(2, 5, running=False), "it has been there and is done"),
    ],
)
def test_what_is_not_known_is_not_said(waiting: dict[str, Any], other: dict[str, Any], why: str) -> None:
    (one,) = merged({"a": [view(waiting)], "b": [view(other)]}, 0.1)
    assert one["members"][0]["awaits"] == [] and one["verdict"] == "working", why


def test_a_rank_that_nobody_read_is_said_and_one_of_no_operation_is_behind() -> None:
    (one,) = merged({"a": [view(member(0, 5))], "b": [view(member(2, None))]}, 0.1)
    assert one["members"][0]["awaits"] == [2]
    assert one["sentences"][-1] == "no recorder of ranks 1, 3 was read: on another host, or gone"


def test_one_host_alone_is_as_it_was_and_the_same_host_twice_is_said() -> None:
    whole = view(member(0, 5), member(1, 5), sentences=("fine",))
    (one,) = merged({"a": [whole]}, 0.1)
    assert one["members"][0]["waited"] == 0.5 and one["sentences"] == ["fine"]
    (one,) = merged({"a": [whole], "b": [whole]}, 0.1)
    assert [each["host"] for each in one["members"]] == ["a", "a"]
    assert one["sentences"][-1].startswith("b shows ranks that a host before it has shown")


def test_a_job_whose_hosts_are_all_lost_has_not_ended_well() -> None:
    hosts = [{"name": "a", "reached": False, "why": "silence"}]
    end = ending({"hosts": hosts, "communicators": [], "problems": ["host a: silence"]})
    assert end == "no host answers any more: host a: silence"


# ---- Hosts that have processes of their own ---------------------------------------------------------------------


@dataclass(frozen=True)
class Rooms:
    """A network whose hosts do not see each other's processes, as real ones do not."""

    network: Network
    holders: dict[str, subprocess.Popen[bytes]]

    def options(self, *more: str) -> list[str]:
        return self.network.options(*more)

    def watching(self, name: str) -> list[int]:
        """What `stretto top` has started on a host."""
        room = os.readlink(f"/proc/{_child(self.holders[name].pid)}/ns/pid")  # noqa: PTH115
        found = []
        for pid in processes.everybody():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"stretto.top.member" in words and os.readlink(f"/proc/{pid}/ns/pid") == room:  # noqa: PTH115
                    found.append(pid)
        return found


def _hold(space: str) -> subprocess.Popen[bytes]:
    """A process that is the first of a host's."""
    words = ["ip", "netns", "exec", space, "unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return subprocess.Popen([*words, "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    if not can_be_made():
        pytest.skip("no network namespaces can be made here, and on one host all see all processes")
    with network(tmp_path) as made, contextlib.ExitStack() as stack:
        holders = {}
        for name, space in made.spaces.items():
            holders[name] = _hold(space)
            stack.callback(holders[name].wait)
            stack.callback(holders[name].kill)
            out = holders[name].stdout
            assert out is not None
            if out.readline() != b"\n":
                pytest.skip("no namespaces of processes can be made here (unshare)")
        text = made.shell.read_text()
        for name, space in made.spaces.items():
            text = text.replace(f"space={space} ", f"space={_child(holders[name].pid)} ")
        made.shell.write_text(text.replace('ip netns exec "$space"', 'nsenter -t "$space" --net --pid --mount'))
        yield Rooms(made, holders)


@contextlib.contextmanager
def job(rooms: Rooms, folder: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    script = folder / "script.py"
    script.write_text(text)
    with started("run", "-n", 2, *rooms.options(), script, folder) as process:
        wait_for(lambda: all((folder / f"ready{rank}").exists() for rank in range(4)), 60, "ranks start")
        yield process


BUSY = """
import pathlib, sys, numpy, stretto
comm = stretto.init()
array = numpy.ones(4096, "float32")
(pathlib.Path(sys.argv[1]) / f"ready{comm.rank}").write_text("1")
while True:
    comm.all_reduce(array)
"""


def options(rooms: Rooms, *more: str) -> list[str]:
    return [*rooms.options(*more), "-d", "0.5"]


def test_a_job_on_two_hosts_is_one_table(rooms: Rooms, tmp_path: Path) -> None:
    first, second = rooms.network.names
    with job(rooms, tmp_path, BUSY) as running:
        done = stretto("top", *options(rooms), "--once", "--json", tmp_path / "top.json")
        assert done.returncode == 0, done.stderr
        document = json.loads((tmp_path / "top.json").read_text())
        (communicator,) = document["communicators"]
        places = [(one["rank"], one["host"]) for one in communicator["members"]]
        assert places == [(0, first), (1, first), (2, second), (3, second)]
        assert all(one["calls_per_s"] > 0 for one in communicator["members"])
        assert [(one["name"], one["reached"]) for one in document["hosts"]] == [(first, True), (second, True)]
        assert "HOST" in done.stdout and done.stdout.count(first) == done.stdout.count(second) == 2, done.stdout
        assert running.poll() is None, "the job was not disturbed"


def test_a_rank_of_another_host_that_does_not_come_is_named(rooms: Rooms, tmp_path: Path) -> None:
    second = rooms.network.names[1]
    with job(rooms, tmp_path, hanging(3)):
        time.sleep(1.5)  # ranks are given a second before a wait is one
        document = json.loads(stretto("top", *options(rooms), "--once", "--json", "-").stdout)
        (communicator,) = document["communicators"]
        assert communicator["verdict"] == "waiting", communicator
        assert [one["awaits"] for one in communicator["members"]] == [[3], [3], [3], []]
        assert communicator["sentences"][0].startswith(f"rank 3 on {second} has not entered #")
        shown = stretto("top", *options(rooms), "--once", "--filter", f"host:{second}").stdout
        assert f"rank 3 on {second} has not entered" in shown and "2 shown" in shown, shown


def test_a_host_that_cannot_be_reached_hides_no_other(rooms: Rooms, tmp_path: Path) -> None:
    with job(rooms, tmp_path, BUSY):
        place = options(rooms, "unreachable", "silent")
        done = stretto("top", *place, "--reach", "15", "--once", "--json", tmp_path / "top.json")
        assert done.returncode == 0, done.stderr
        document = json.loads((tmp_path / "top.json").read_text())
        assert len(document["communicators"][0]["members"]) == 4
        reasons = {one["name"]: one["why"] for one in document["hosts"]}
        assert "No route to host" in reasons["unreachable"] and "within 15 s" in reasons["silent"]
        assert "not read: host unreachable: " in done.stdout and "not read: host silent: " in done.stdout


def test_a_host_that_is_lost_is_said_and_the_others_go_on(rooms: Rooms, tmp_path: Path) -> None:
    second = rooms.network.names[1]
    with job(rooms, tmp_path, BUSY), Terminal("top", *options(rooms)) as terminal:
        wait_for(terminal.shows("4 processes"), 60, "both hosts are shown")
        at = len(terminal.text())
        (member,) = rooms.watching(second)
        os.kill(member, signal.SIGKILL)
        wait_for(terminal.shows(f"host {second}: ", at), 60, "the loss is said")
        wait_for(terminal.shows("2 of them seen", at), 60, "the others' ranks are shown")
        terminal.type("q")
        assert terminal.end() == 0
        terminal.expect_restored()


def test_hosts_without_a_job_and_wrong_command_lines(rooms: Rooms) -> None:
    first = rooms.network.names[0]
    done = stretto("top", *options(rooms), "--once")
    assert done.returncode == 1 and done.stderr.count("has a communicator of Stretto now") == 2, done.stderr
    done = stretto("top", "--hosts", "unreachable", "--remote-shell", rooms.network.shell, "--once")
    assert done.returncode == 1 and "No route to host" in done.stderr
    for words, said in (
        ([os.getpid(), "--hosts", first], "is a process of this host"),
        (["--hosts", f"{first},{first}"], "each host once"),
        (["--hosts", f"{first}:2"], "without a number of ranks"),
        (["--reach", "3"], "there is no --hosts"),
    ):
        done = stretto("top", *words, "--once")
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = stretto("top", "--hosts", first, "--remote-shell", "/no/such/shell", "--once")
    assert done.returncode == 1 and "cannot start /no/such/shell" in done.stderr


def test_nothing_is_left_on_the_hosts_when_it_is_killed(rooms: Rooms, tmp_path: Path) -> None:
    with job(rooms, tmp_path, BUSY):
        command = [*STRETTO, "top", *rooms.options(), "-d", "30", "--once"]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) as process:
            wait_for(lambda: all(rooms.watching(name) for name in rooms.network.names), 60, "it watches")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 128 + signal.SIGTERM
        wait_for(lambda: not any(rooms.watching(name) for name in rooms.network.names), 30, "the members end")

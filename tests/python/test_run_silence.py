"""When `stretto run --hosts` gives a host up, told by agents that are scripts."""

from __future__ import annotations

import contextlib
import selectors
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from jobs import wait_for
from stretto import __version__
from stretto.cli import hosts
from stretto.cli.hosts import Host, Hosts, Launch

# Gets as far as a started rank; `say(what, **facts)` says a frame.
AGENT = f"""
import json, os, time
def say(what, **facts):
    os.write(1, json.dumps({{"what": what, "bytes": 0, **facts}}).encode() + b"\\n")
os.write(1, b"stretto run: agent, protocol 1\\n")
say("hello", version={__version__!r})
say("prepared")
say("made", unique_id="ab")
say("began", rank=0, pid=1)
"""


class Job:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def began(self, number: int, pid: int) -> None:
        self.told.append(("began", number))

    def printed(self, number: int, stream: int, data: bytes) -> None:
        self.told.append(("printed", number, data))

    def ended(self, number: int, status: int) -> None:
        self.told.append(("ended", number, status))

    def noted(self, lines: bytes, later: float = 0.0) -> None:
        self.told.append(("noted", lines))

    def lost(self, numbers: Sequence[int], why: str) -> None:
        self.told.append(("lost", *numbers))


Round = Callable[[], None]


@contextlib.contextmanager
def running(folder: Path, then: str) -> Iterator[tuple[Job, Round]]:
    """A job of one rank whose agent goes on as `then` says; what it was told, and a round of the launcher."""
    script = folder / "agent.py"
    script.write_text(AGENT + then)
    job = Job()
    where = Hosts([Host("a", 1)], Launch(["true"], {}, "/", [sys.executable, str(script)], "python", 30.0))
    with selectors.DefaultSelector() as selector:

        def one_round() -> None:
            where.act()
            for key, _ in selector.select(0.05):
                key.data()

        try:
            where.start(selector, job)
            wait_for(lambda: one_round() or ("began", 0) in job.told, 30, "the rank has begun")
            yield job, one_round
        finally:
            for connection in where._connections:
                connection.shell.kill()
            where.kill_all()
            where.close()


def rounds(one_round: Round, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one_round()


def test_what_waits_to_be_read_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher was held up, and reads what came meanwhile only after it has asked who is silent."""
    monkeypatch.setattr(hosts, "_SILENCE", 2.0)
    monkeypatch.setattr(hosts, "_AWAY", 1000.0, raising=False)
    with running(tmp_path, "while True: say('alive'); time.sleep(0.2)") as (job, one_round):
        time.sleep(3.0)
        rounds(one_round, 1.0)
        assert ("lost", 0) not in job.told


def test_time_in_which_nobody_listened_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_SILENCE", 5.0)
    with running(tmp_path, "time.sleep(600)") as (job, one_round):
        time.sleep(6.0)
        one_round()
        assert ("lost", 0) not in job.told
        wait_for(lambda: one_round() or ("lost", 0) in job.told, 30, "the silent host is given up")


def test_what_a_host_says_after_it_was_given_up_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_SILENCE", 1.0)
    go, gone = tmp_path / "go", tmp_path / "gone"
    then = f"""
while not os.path.exists({str(go)!r}): time.sleep(0.05)
say("ended", rank=0, status=0)
open({str(gone)!r}, "w")
time.sleep(600)
"""
    with running(tmp_path, then) as (job, one_round):
        wait_for(lambda: one_round() or ("lost", 0) in job.told, 30, "the silent host is given up")
        go.touch()
        wait_for(gone.exists, 30, "it has said the end of its rank")
        rounds(one_round, 0.5)
        assert ("ended", 0, 0) not in job.told

"""`stretto top` on real jobs, in a pseudo-terminal too; and what it shows of made-up samples."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import STRETTO, environment, hanging, started, stretto, wait_for
from stretto import processes
from stretto.top import screen, table, watcher
from stretto.top.terminal import stretched

STRAGGLER = """
import os, pathlib, sys, time, numpy, stretto
comm = stretto.init()
folder = pathlib.Path(sys.argv[1])
array, over = numpy.ones(4096, "float32"), numpy.zeros(1, "float32")
(folder / f"ready{comm.rank}").write_text(str(os.getpid()))
while True:
    if comm.rank == 2:
        time.sleep(0.02)
    comm.all_reduce(array)
    over[0] = (folder / "over").exists()
    if comm.all_reduce(over)[0] > 0:
        break
"""


@contextlib.contextmanager
def job(folder: Path, text: str, ranks: int = 3, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """A job whose ranks have all come to their work."""
    script = folder / "script.py"
    script.write_text(text)
    with started("run", "-n", ranks, script, folder, **extra) as process:
        wait_for(lambda: all((folder / f"ready{rank}").exists() for rank in range(ranks)), 60, "ranks start")
        yield process


def rank_pid(folder: Path, rank: int) -> int:
    return int((folder / f"ready{rank}").read_text())


def once(*arguments: object) -> Any:
    done = stretto("top", *arguments, "--once", "--json", "-")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "stretto.top/1"
    return document


def test_the_straggler_is_who_the_others_wait_for(tmp_path: Path) -> None:
    with job(tmp_path, STRAGGLER) as running:
        (communicator,) = once(running.pid, "-d", 2)["communicators"]
        members = communicator["members"]
        assert [member["rank"] for member in members] == [0, 1, 2] and communicator["ranks"] == 3
        for member in members:
            assert member["calls_per_s"] > 0
            # Of two operations one has 4096 elements and one has 1.
            assert member["bytes_per_s"] / member["calls_per_s"] == pytest.approx(16388 / 2, rel=0.2)
            assert member["operation"]["algorithm"] and member["pid"] == rank_pid(tmp_path, member["rank"])
        assert max(members, key=lambda member: member["late"])["rank"] == 2
        assert members[0]["waited_for"][0]["rank"] == 2
        assert members[0]["waited"] > members[2]["waited"]
        # A rank leads to all of its job, and so does nothing at all.
        assert len(once(rank_pid(tmp_path, 1), "-d", 0.2)["communicators"][0]["members"]) == 3
        assert communicator["id"] in [one["id"] for one in once("-d", 0.2)["communicators"]]
        shown = stretto("top", running.pid, "--once", "--filter", "rank:2", "--sort", "late").stdout
        assert "all_reduce" in shown and "1 shown" in shown
        assert running.poll() is None, "the job was not disturbed"


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    with job(tmp_path, hanging(1)) as running:
        # Ranks are given a second before a wait is one.
        wait_for(lambda: once(running.pid, "-d", 0.2)["communicators"][0]["verdict"] == "waiting", 60, "a verdict")
        (communicator,) = once(running.pid, "-d", 0.2)["communicators"]
        assert communicator["verdict"] == "waiting"
        assert communicator["members"][0]["awaits"] == [1]
        assert communicator["members"][0]["waited"] == pytest.approx(1, abs=0.01)
        assert communicator["members"][1]["late"] == pytest.approx(1, abs=0.01)
        shown = stretto("top", running.pid, "--once", "-d", 0.2).stdout
        assert "rank 1" in shown and "now 1" in shown


def test_several_communicators(tmp_path: Path) -> None:
    split = STRAGGLER.replace("comm = stretto.init()", "whole = stretto.init()\ncomm = whole.split(whole.rank % 2)")
    # The ranks of each half are told apart by their number in the whole.
    with job(tmp_path, split.replace("ready{comm.rank}", "ready{whole.rank}"), 4) as running:
        found = once(running.pid, "-d", 0.2)["communicators"]
        assert sorted(one["ranks"] for one in found) == [2, 2, 4]


def test_ranks_that_are_threads(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STRAGGLER)
    with started("run", "-n", 3, "--threads", script, tmp_path) as running:
        wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in range(3)), 60, "ranks start")
        (communicator,) = once(running.pid, "-d", 0.5)["communicators"]
        assert len(communicator["members"]) == 3 and len({one["pid"] for one in communicator["members"]}) == 1


def test_what_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    done = stretto("top", 2**22 - 1)
    assert done.returncode == 1 and "there is no process 4194303" in done.stderr
    done = stretto("top", os.getpid(), "--once")
    assert done.returncode == 1 and "no communicator of Stretto" in done.stderr
    assert "doctor --nccl" in done.stderr, "a job on another library is a likely cause"
    done = stretto("top", "--sort", "wait")
    assert done.returncode == 2 and "did you mean waited?" in done.stderr
    done = stretto("top", "--filter", "rnak:2")
    assert done.returncode == 2 and "did you mean rank?" in done.stderr
    assert stretto("top", "--json", "-").returncode == 2, "a display and JSON at once"

    def refuse(_path: str) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(processes.os, "listdir", refuse)
    with pytest.raises(watcher.NoJob, match="belongs to somebody else"):
        watcher.find(1)


def test_a_display_needs_a_terminal(tmp_path: Path) -> None:
    with job(tmp_path, STRAGGLER) as running:
        done = stretto("top", running.pid)
        assert done.returncode == 2 and "--once" in done.stderr
        with Terminal("top", running.pid, TERM="made-up") as terminal:
            assert terminal.end() == 2
            assert "made-up" in terminal.text()


class Terminal:
    """`stretto ARGUMENTS` at a pseudo-terminal of 24 lines and 100 columns."""

    def __init__(self, *arguments: object, **extra: str) -> None:
        self.output = b""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        outer = {
            name: value
            for name, value in environment(**{"TERM": "xterm-256color", **extra}).items()
            if name != "COLUMNS"
        }
        command = [*STRETTO, *(str(one) for one in arguments)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=outer, start_new_session=True
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)

    def read(self) -> None:
        while select.select([self.master], [], [], 0.02)[0]:
            self.output += os.read(self.master, 65536)

    def text(self) -> str:
        self.read()
        return self.output.decode(errors="replace")

    def shows(self, words: str, since: int = 0) -> Callable[[], bool]:
        return lambda: words in self.text()[since:]

    def type(self, keys: str) -> int:
        """Returns where in `text` what follows begins."""
        at = len(self.text())
        os.write(self.master, keys.encode())
        return at

    def end(self) -> int:
        wait_for(lambda: (self.read(), self.process.poll() is not None)[1], 60, "it ends")
        return self.process.wait()

    def expect_restored(self) -> None:
        """The screen from before, the cursor, and the line discipline."""
        assert termios.tcgetattr(self.slave) == self.before
        text = self.text()
        assert text.rindex("\x1b[?1049l") > text.rindex("\x1b[?1049h")


@pytest.mark.parametrize("leave", ["q", "\x03", "terminate"])
def test_the_display_leaves_the_terminal_as_it_was(tmp_path: Path, leave: str) -> None:
    with job(tmp_path, STRAGGLER) as running, Terminal("top", running.pid, "-d", 0.2) as terminal:
        wait_for(terminal.shows("calls/s"), 60, "rates are shown")
        if leave == "terminate":
            terminal.process.terminate()
        elif leave == "\x03":
            # The terminal would signal its foreground processes; this one is of no session.
            terminal.process.send_signal(signal.SIGINT)
        else:
            terminal.type(leave)
        assert terminal.end() == 0
        terminal.expect_restored()
        assert "Traceback" not in terminal.text() and running.poll() is None


def test_keys(tmp_path: Path) -> None:
    with job(tmp_path, STRAGGLER) as running, Terminal("top", running.pid, "-d", 0.2) as terminal:
        wait_for(terminal.shows("calls/s"), 60, "rates are shown")
        at = terminal.type("/rnak:2\n")
        wait_for(terminal.shows("did you mean rank?", at), 60, "a filter that is wrong says so")
        terminal.type("\x7f" * 6)
        at = terminal.type("rank:2\n")
        wait_for(terminal.shows("1 shown", at), 60, "one that is right holds")
        at = terminal.type("?")
        wait_for(terminal.shows("scroll", at), 60, "help is shown")
        terminal.type("q")
        assert terminal.end() == 0
        terminal.expect_restored()


def test_a_display_takes_no_more_than_its_share_of_the_machine() -> None:
    assert stretched(1.0, 0.001) == 1.0
    cores = len(os.sched_getaffinity(0))
    assert 1.0 / (stretched(0.1, 1.0) * cores) < 0.005
    assert "every 12 s" in text_of(screen.compose(sample([member(0)]), screen.View(stretched=12.3), 80, 9))


@pytest.mark.parametrize(("killed", "status", "words"), [(False, 0, "all ranks have finalized"), (True, 3, "died")])
def test_a_job_that_ends_while_it_is_watched(tmp_path: Path, killed: bool, status: int, words: str) -> None:
    # Ranks that lost one would end after it by themselves; here all are killed at one moment.
    with job(tmp_path, STRAGGLER) as running, Terminal("top", running.pid, "-d", 0.2) as terminal:
        wait_for(terminal.shows("calls/s"), 60, "rates are shown")
        if killed:
            for rank in range(3):
                os.kill(rank_pid(tmp_path, rank), signal.SIGKILL)
        else:
            (tmp_path / "over").touch()
        assert terminal.end() == status, terminal.text()[-2000:]
        terminal.expect_restored()
        assert words in terminal.text()[terminal.text().rindex("\x1b[?1049l") :]


# --- what is on the screen ---


def member(rank: int, **extra: Any) -> dict[str, Any]:
    operation = {
        "text": f"#{rank} all_reduce float32 x 4096",
        "algorithm": "two_shot",
        "state": "running",
        "since_s": 0.003,
    }
    return {
        "rank": rank,
        "host": "h",
        "pid": 1000 + rank,
        "state": "alive",
        "process": "running",
        "error": "",
        "awaits": [],
        "calls": 10,
        "bytes": 1000,
        "calls_per_s": 1000.0 * rank,
        "bytes_per_s": 4e6,
        "waited": 0.5,
        "waited_for": [{"rank": 3, "share": 0.4}],
        "late": 0.1,
        "operation": operation,
        **extra,
    }


def sample(*communicators: list[dict[str, Any]], verdict: str = "working") -> dict[str, Any]:
    return {
        "schema": "stretto.top/1",
        "communicators": [
            {
                "id": f"{number:016x}",
                "ranks": len(members),
                "verdict": verdict,
                "sentences": ["so it is"],
                "members": members,
            }
            for number, members in enumerate(communicators, 1)
        ],
        "problems": [],
    }


def text_of(lines: list[screen.Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def test_every_width_and_height_fits_and_keeps_what_matters() -> None:
    job = sample([member(rank) for rank in range(64)])
    for width in range(1, 200, 3):
        lines = screen.compose(job, screen.View(), width, 30)
        assert len(lines) == 30
        assert max(sum(len(text) for text, _ in line) for line in lines) <= width
    narrow = text_of(screen.compose(job, screen.View(), 50, 30))
    for name in ("RANK", "STATE", "WAITED"):
        assert name in narrow
    assert "ALGORITHM" not in narrow and "ALGORITHM" in text_of(screen.compose(job, screen.View(), 140, 30))
    for height in range(4):
        assert len(screen.compose(job, screen.View(), 80, height)) == height


def test_64_ranks_are_scrolled_through() -> None:
    job = sample([member(rank) for rank in range(64)])
    view = screen.View(scroll=10**6)
    last = text_of(screen.compose(job, view, 120, 24))
    assert " 63  1063 " in last.replace("  63", "  63") and "#0 " not in last
    assert view.scroll < 64, "no further than the last line"


def test_sorting() -> None:
    rows = table.rows_of(sample([member(0, late=0.2), member(1, late=None), member(2, late=0.9)])["communicators"][0])
    late = table.column_named("late")
    assert [row.member["rank"] for row in table.sort(rows, late, False)] == [2, 0, 1]
    assert [row.member["rank"] for row in table.sort(rows, late, True)] == [1, 0, 2]
    assert [row.member["rank"] for row in table.sort(rows, table.column_named("rank"), False)] == [0, 1, 2]


def test_filters() -> None:
    rows = table.rows_of(sample([member(1), member(11, awaits=[3]), member(2, process="gone")])["communicators"][0])

    def matching(text: str) -> list[int]:
        return [row.member["rank"] for row in rows if table.filter_of(text)(row)]

    assert matching("rank:1") == [1]
    assert matching("state:wait") == [11] and matching("GONE") == [2]
    assert matching("all_reduce state:run") == [1]
    assert matching("") == [1, 11, 2]
    for wrong, words in (("rank:", "rank:3"), ("stat:run", "did you mean state?")):
        with pytest.raises(ValueError, match=words.replace("?", r"\?")):
            table.filter_of(wrong)


def test_one_communicator_alone() -> None:
    job = sample([member(0)], [member(0), member(1)])
    assert text_of(screen.body(job, screen.View(), 120)).count("communicator") == 2
    alone = text_of(screen.compose(job, screen.View(communicator="0000000000000002"), 120, 20))
    assert "00000000  2 ranks" in alone and "communicator 2 of 2" in alone and "1 rank " not in alone


def test_trouble_stands_out() -> None:
    job = sample([member(0, awaits=[1, 2, 3, 4, 5]), member(1)], verdict="waiting")
    job["communicators"][0]["members"][0]["operation"]["since_s"] = 12.0
    lines = screen.body(job, screen.View(), 140)
    assert ("waiting", "warning") in lines[0] and "so it is" in text_of(lines)
    assert "now 1, 2, 3, 4 …" in text_of(lines) and any(
        ("12 s" in text, style) == (True, "warning") for text, style in lines[3]
    )


def test_what_others_wrote_cannot_steer_the_terminal() -> None:
    wild = member(0, host="\x1b[2J")
    wild["operation"]["text"] = "a\x1b[31mb\nc"
    assert "\x1b" not in text_of(screen.body(sample([wild, member(1)]), screen.View(), 200))


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0, "0"), (7.25, "7.25"), (999.4, "999"), (1234567, "1.23 M"), (5e12, "5 T")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert table.number(value).replace("5.00 T", "5 T") == text


def test_how_a_job_ends() -> None:
    assert watcher.ending(sample([member(0)])) is None
    assert "finalized" in str(watcher.ending(sample([member(0, process="gone", state="finalized")])))
    assert "so it is" in str(watcher.ending(sample([member(0, process="gone")], verdict="died")))

"""Tracebacks of ranks that fail alike are shown once; what else a rank prints is passed on as it comes."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from jobs import run_script, stretto
from stretto.cli.outputs import Output, Tracebacks, ranks_text

TRACEBACK = b'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\nValueError: no\n'


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([1], "rank 1"), ([3, 0, 1, 2], "ranks 0-3"), ([0, 2, 3, 7], "ranks 0, 2-3, 7"), ([0, 1], "ranks 0-1")],
)
def test_ranks_in_words(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text


def tag_of(ranks: list[int]) -> bytes:
    return f"[{ranks_text(ranks).partition(' ')[2]}] ".encode()


class Rank:
    """What a rank prints, in pieces."""

    def __init__(self, number: int, target: io.BytesIO, tracebacks: Tracebacks | None, tag: bool = False) -> None:
        self.output = Output(number, target, tag_of([number]) if tag else b"", tracebacks)

    def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.output.take(piece)

    def end(self) -> None:
        self.output.take(b"")


@pytest.mark.parametrize("tag", [False, True])
def test_alike_ones_are_shown_once(tag: bool) -> None:
    target = io.BytesIO()
    tracebacks = Tracebacks(target, tag_of) if tag else Tracebacks(target)
    ranks = [Rank(number, target, tracebacks, tag) for number in range(4)]
    for rank in ranks:
        text = TRACEBACK if rank.output.rank != 2 else TRACEBACK.replace(b"no", b"another")
        rank.write(b"before\n", text[:7], text[7:30], text[30:])
    assert target.getvalue().count(b"before") == 4 and b"Traceback" not in target.getvalue()
    for rank in ranks:
        rank.end()
    target.truncate(0)
    target.seek(0)
    tracebacks.show()
    said = target.getvalue().decode()
    assert said.count("Traceback") == 2 and said.count("ValueError: no\n") == 1
    if tag:
        assert said.startswith("[0-1, 3] Traceback") and "[2] ValueError: another\n" in said
    else:
        assert said.startswith("ranks 0-1, 3:\nTraceback") and "rank 2:\nTraceback" in said


def test_a_late_one_is_named_beside_the_first() -> None:
    target = io.BytesIO()
    tracebacks = Tracebacks(target)
    for number in (1, 5):
        rank = Rank(number, target, tracebacks)
        rank.write(TRACEBACK)
        rank.end()
        assert tracebacks.due() is not None
        tracebacks.show()
        assert tracebacks.due() is None
    assert target.getvalue() == b"rank 1:\n" + TRACEBACK + b"rank 5: the same as rank 1, above\n"


def test_what_is_no_traceback_is_passed_on_at_once() -> None:
    target = io.BytesIO()
    rank = Rank(0, target, Tracebacks(target))
    rank.write(b"progress 10 %\r")
    assert target.getvalue() == b"progress 10 %\r", "no newline is waited for"
    rank.write(b"progress 20 %\rTrace", b"d\n", b"Trac", b"tor\n")
    assert target.getvalue() == b"progress 10 %\rprogress 20 %\rTraced\nTractor\n"
    rank.end()


def test_tagged_progress_is_shown_as_it_comes() -> None:
    target = io.BytesIO()
    rank = Rank(0, target, Tracebacks(target), tag=True)
    rank.write(b"10 %\r20", b" %\r")
    assert target.getvalue() == b"[0] 10 %\r[0] 20 %\r"
    rank.write(b"\nwindows\r\nlast")
    rank.end()
    assert target.getvalue() == b"[0] 10 %\r[0] 20 %\r\n[0] windows\r\n[0] last\n"


def test_a_line_without_an_end_is_passed_on_in_parts_and_in_time() -> None:
    target = io.BytesIO()
    rank = Rank(0, target, Tracebacks(target), tag=True)
    began = time.process_time()
    for _ in range(1 << 20):
        rank.output.take(b"x" * 8)
    assert len(target.getvalue()) > 7 << 20 and len(rank.output._pending) < 1 << 17
    assert time.process_time() - began < 20, "each piece was looked at with all before it"


def test_a_rank_that_goes_on_shows_its_traceback_after_a_moment() -> None:
    target = io.BytesIO()
    tracebacks = Tracebacks(target)
    rank = Rank(0, target, tracebacks)
    rank.write(TRACEBACK, b"caught, goes on\n")
    due = rank.output.due()
    assert due is not None and due < time.monotonic() + 1
    rank.output.let_go()
    tracebacks.show()
    rank.write(b"more\n")
    assert target.getvalue().endswith(b"ValueError: no\ncaught, goes on\nmore\n")
    rank.end()


def test_much_that_follows_a_traceback_is_not_held_for_ever() -> None:
    target = io.BytesIO()
    tracebacks = Tracebacks(target)
    rank = Rank(0, target, tracebacks)
    rank.write(TRACEBACK, *([b"x" * 50000] * 6))
    assert tracebacks.due() is not None
    rank.end()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import stretto\ncomm = stretto.init()\ncomm.barrier()\nraise ValueError('all')", "ValueError: all"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_of_a_job(text: str, error: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, 4, text)
    assert done.returncode == 1
    assert done.stderr.count(error + ("\n" if error.startswith("Value") else ":")) == 1, done.stderr
    # Ranks that come to it much later than the first are told in a line of their own.
    told = re.findall(r"^ranks? ([\d, -]+)(?::$|: the same as rank \d, above$)", done.stderr, re.MULTILINE)
    assert len(told) < 4, done.stderr
    runs = [[int(end) for end in run.split("-")] for text in told for run in text.split(", ")]
    assert sorted(rank for run in runs for rank in range(run[0], run[-1] + 1)) == [0, 1, 2, 3], done.stderr


def test_a_job_of_one_rank_prints_as_it_would_alone(tmp_path: Path) -> None:
    done = run_script(tmp_path, 1, "raise ValueError('alone')")
    assert done.stderr.startswith("Traceback"), done.stderr


def test_what_outlives_its_rank_does_not_hold_the_launcher() -> None:
    """A process in a session of its own that has the rank's stderr, as a daemon does."""
    began = time.monotonic()
    done = stretto("run", "-n", 2, "--tag", "--", "sh", "-c", "setsid sleep 15 & echo done >&2")
    assert done.returncode == 0 and done.stderr.count("done") == 2
    assert time.monotonic() - began < 10

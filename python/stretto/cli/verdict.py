"""Which rank of a job failed first, from what the ranks wrote down (`stretto.failures`) and how they ended."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

from stretto.failures import Blame

_MAX_LOG = 16 << 20
_MAX_WORDS = 300


@dataclass
class Story:
    """What one rank wrote down. `status` is what it means to end with."""

    lost: bool = False
    failed: float | None = None
    blame: Blame = Blame.UNCLEAR
    status: int = 1
    words: str = ""


@dataclass(frozen=True)
class Suspect:
    """A rank that failed. `silent`: it wrote nothing, as a program without `import stretto` does."""

    number: int
    blame: Blame
    moment: float
    ended: bool
    silent: bool = False

    @property
    def order(self) -> tuple[Blame, float]:
        return self.blame, self.moment

    @property
    def certain(self) -> bool:
        """Whether no rank that ends later can be the cause instead."""
        return self.blame == Blame.CAUSE and self.ended


class Log:
    """A file that only the job's processes on this host know of, and that goes with the last of them. Ranks add lines
    to it.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("stretto-run-log")
        self._read = 0
        self._rest = b""

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def close(self) -> None:
        os.close(self._file)

    def fresh(self) -> bytes:
        """Whole lines that were not handed out before; empty if there are none."""
        while self._read < _MAX_LOG and (data := os.pread(self._file, 1 << 16, self._read)):
            self._read += len(data)
            lines, end, self._rest = (self._rest + data).rpartition(b"\n")
            if end:
                return lines + end
        return b""


class Stories:
    """What the ranks of a job have written down, by rank."""

    def __init__(self) -> None:
        self._stories: dict[int, Story] = {}
        self.verdict: tuple[int, Story] | None = None  # of ranks that are threads, by their process

    def get(self, rank: int) -> Story | None:
        """None of a rank that has written nothing until now."""
        return self._stories.get(rank)

    def take(self, lines: bytes, later: float = 0.0) -> None:
        """`later`: seconds by which this host's clock is ahead of the one that the lines were written by."""
        for line in lines.split(b"\n"):
            try:
                self._take(json.loads(line), later)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue  # Not written by us: a rank's process can write there what it likes.

    def _take(self, line: dict[str, object], later: float) -> None:
        rank, what = int(str(line["rank"])), line["what"]
        if what == "verdict":
            self.verdict = rank, self._told(Story(), line, later)
        elif what == "lost":
            self._stories.setdefault(rank, Story()).lost = True
        elif what == "failed":
            self._told(self._stories.setdefault(rank, Story()), line, later)
        elif what == "hello":
            self._stories.setdefault(rank, Story())

    @staticmethod
    def _told(story: Story, line: dict[str, object], later: float) -> Story:
        moment, blame, status = float(str(line["moment"])), Blame(line["blame"]), int(str(line["status"]))  # type: ignore[arg-type]
        story.failed, story.blame, story.status = moment + later, blame, status
        story.words = str(line["words"])[:_MAX_WORDS]
        return story


def suspect(number: int, story: Story | None, ended: float | None, by_signal: bool) -> Suspect | None:
    """`ended`: when the rank failed by itself, None if it has not. `by_signal`: by one that nobody sends himself, as
    programs do with SIGABRT when a call has failed. None if nothing speaks against the rank.
    """
    if story is None:
        if ended is None:
            return None
        return Suspect(number, Blame.CAUSE if by_signal else Blame.UNCLEAR, ended, True, silent=True)
    if story.failed is not None:
        return Suspect(number, story.blame, story.failed, ended is not None)
    if ended is None:
        return None
    # It ended by sys.exit, os._exit or a signal, of which nothing is written down.
    return Suspect(number, Blame.UNCLEAR if story.lost else Blame.CAUSE, ended, True)


def first(suspects: Iterable[Suspect | None]) -> Suspect | None:
    """The one to blame."""
    return min((one for one in suspects if one is not None), key=lambda one: one.order, default=None)

"""What a rank knows of its own failure, and how `stretto run` learns of it.

When a rank fails, its communicators are aborted, and its peers, which then fail as well, often end before it does. So
the order in which processes end does not tell which failure was the cause. Each rank therefore notes two things here:
that the library reported the loss of a peer to it, and the error that it ended by. `stretto run` reads both from a log
of its own (`STRETTO_RUN_LOG`) before it names the first failure.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

LOG_VARIABLE = "STRETTO_RUN_LOG"
_MAX_WORDS = 300
_MAX_FAILURES = 64  # of one rank: a program that overcomes its failures for ever does not fill the log


class Blame(IntEnum):
    """How likely a failure is the cause of the others: the least is looked for."""

    CAUSE = 0  # the rank had lost nobody
    UNCLEAR = 1  # it had lost a peer before, or nothing is known of it
    CONSEQUENCE = 2  # it failed by the loss of a peer


def add_note(error: BaseException, text: str) -> None:
    """A line under the error's traceback; Python 3.10 has no such lines."""
    if sys.version_info >= (3, 11):
        error.add_note(text)


@dataclass(eq=False)
class RankRecord:
    """One rank that runs in this process: the process itself, or one of its threads.

    `communicators` are those that it made, as long as they live and whatever they came from.
    """

    rank: int | None
    communicators: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    lost: bool = False
    ending: bool = False
    joining: bool = False  # waits in stretto.init() for ranks that may never come
    _noted: int = 0
    _last: tuple[int, str] | None = None

    def blame(self, error: BaseException) -> Blame:
        if _follows_a_loss(error):
            return Blame.CONSEQUENCE
        return Blame.UNCLEAR if self.lost else Blame.CAUSE

    def note_loss(self) -> None:
        """The library has told this rank that a peer is gone. What it is told while it ends is no excuse."""
        if not self.lost and not self.ending:
            self.lost = True
            _write(self.rank, what="lost")

    def note_failure(self, error: BaseException) -> None:
        """Before the communicators are aborted for `error`, so before any peer can know. Again: does nothing."""
        status = exit_code(error)
        this = (id(error), words_of(error))
        if status == 0 or self._last == this or self._noted >= _MAX_FAILURES:
            return
        self._last = this
        self._noted += 1
        _write(self.rank, what="failed", blame=int(self.blame(error)), status=status, words=this[1])


class _Here(threading.local):
    record: RankRecord | None = None


def _rank_of_process() -> int | None:
    text = os.environ.get("STRETTO_RANK", "")
    return int(text) if text.isdigit() else None


_here = _Here()
_process = RankRecord(_rank_of_process())
_owner = os.getpid()


def current() -> RankRecord:
    """That of the rank whose thread this is, or that of the process."""
    return _here.record if _here.record is not None else _process


def enter(record: RankRecord | None) -> None:
    """Makes this thread a rank's own."""
    _here.record = record


def exit_code(error: BaseException) -> int:
    """The status that a Python ends with after `error`."""
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def words_of(error: BaseException) -> str:
    """One line."""
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r})"[:_MAX_WORDS]
    try:
        text = str(error)
    except Exception:  # a user's own __str__
        text = ""
    name = type(error).__name__
    return " ".join(f"{name}: {text}".split())[:_MAX_WORDS] if text else name


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that it was raised from or during, `from None` or not."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [other for other in (one.__cause__, one.__context__) if other is not None]


def _follows_a_loss(error: BaseException) -> bool:
    from stretto.errors import RemoteError, Timeout

    return any(isinstance(one, RemoteError | Timeout) for one in _chain(error))


def _write(rank: int | None, **facts: object) -> None:
    """One line at the end of the log, in one write; the launcher looks at lines of the ranks that it started."""
    path = os.environ.get(LOG_VARIABLE)
    # A forked child runs nobody's rank.
    if not path or rank is None or os.getpid() != _owner:
        return
    line = json.dumps({"rank": rank, "moment": time.monotonic(), **facts}) + "\n"
    try:
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return  # Out of the launcher's sight (a container): to the launcher this is a program that writes nothing.
    try:
        os.write(log, line.encode())
    except OSError:
        pass
    finally:
        os.close(log)


def note_verdict(rank: int, error: BaseException) -> None:
    """Ranks that are threads are judged in their own process, which says here whom it found."""
    _write(rank, what="verdict", blame=int(Blame.CAUSE), status=exit_code(error), words=words_of(error))


def note_end() -> None:
    """The process ends, by itself or by an error that was noted."""
    _process.ending = True


_write(_process.rank, what="hello")

"""What ranks print, on its way to the launcher's own stdout and stderr: with their numbers before it where that is
wanted, and the tracebacks of ranks that fail alike once.

A rank's stderr from a traceback on is held back until the rank has ended or been quiet for a moment, and then until
those of the others can have come. What is not a traceback is passed on at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

# A traceback, one of a group of errors, and a syntax error of the script itself, which has no first line of its own.
_BEGIN = re.compile(
    rb'^(?:Traceback \(most recent call last\):|  \+ Exception Group Traceback|  File "[^"\n]*", line \d+$)',
    re.MULTILINE,
)
_FIRST_LINE = b"Traceback (most recent call last):\n"
_QUIET_SECONDS = 0.3
_OTHERS_SECONDS = 0.5
_MOST_HELD = 1 << 18
_MOST_LINE = 1 << 16  # what is longer is passed on in parts
_LINE_END = re.compile(rb"[\r\n]")


def ranks_text(ranks: Iterable[int]) -> str:
    """ "rank 1", "ranks 0-3", "ranks 0, 2-5"."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"rank{'s' if len(ordered) > 1 else ''} {', '.join(words)}"


class Target(Protocol):
    def write(self, data: bytes, /) -> object: ...


@dataclass
class Tracebacks:
    """Tracebacks of all ranks, by text. `tag`: what stands before each line that these ranks print, instead of a line
    above; empty for a line above.
    """

    target: Target
    tag: Callable[[list[int]], bytes] = lambda _: b""
    _waiting: dict[bytes, list[int]] = field(default_factory=dict)
    _shown: dict[bytes, int] = field(default_factory=dict)  # and the first rank that had it
    _due: float | None = None

    def add(self, rank: int, text: bytes) -> None:
        self._waiting.setdefault(text, []).append(rank)
        if self._due is None:
            self._due = time.monotonic() + _OTHERS_SECONDS

    def due(self) -> float | None:
        """When to show what waits; None while nothing does."""
        return self._due

    def show(self) -> None:
        waiting, self._waiting, self._due = self._waiting, {}, None
        for text, ranks in waiting.items():
            who, before = ranks_text(ranks), self.tag(ranks)
            if text in self._shown:
                lines = [f"{who}: the same as rank {self._shown[text]}, above".encode()]
            else:
                self._shown[text] = min(ranks)
                lines = ([] if before else [f"{who}:".encode()]) + text.removesuffix(b"\n").split(b"\n")
            self.target.write(b"".join(before + line + b"\n" for line in lines))


@dataclass
class Output:
    """One rank's stdout or stderr, passed on as it comes; with a `tag` line by line behind it.

    `tracebacks`: where those that are in it go.
    """

    rank: int
    target: Target
    tag: bytes
    tracebacks: Tracebacks | None = None
    _pending: bytearray = field(default_factory=bytearray)  # the beginning of a line that is not passed on yet
    _held: bytearray = field(default_factory=bytearray)  # from a traceback on
    _touched: float = 0.0
    _returned: bool = False  # the last line ended with a \r, which a \n may follow

    def take(self, data: bytes) -> None:
        """More of it; empty at the end."""
        if data and self._held:
            self._hold(data)
            return
        if self._goes_on(data):
            self._pending += data
            return
        text = bytes(self._pending) + data
        found = _BEGIN.search(text) if self.tracebacks is not None else None
        keeps = self._kept(text) if data and found is None else 0
        passed = text[: found.start()] if found is not None else text[: len(text) - keeps]
        self._pending = bytearray() if found is not None else bytearray(text[len(text) - keeps :])
        self._pass_on(passed)
        if found is not None:
            self._hold(text[found.start() :])
        if not data:
            self.let_go()

    def due(self) -> float | None:
        """When what is held back is all that comes for now; None while nothing is."""
        return self._touched + _QUIET_SECONDS if self._held else None

    def let_go(self) -> None:
        """Hands what is held back to the others' tracebacks."""
        held, self._held = bytes(self._held), bytearray()
        if held and self.tracebacks is not None:
            self.tracebacks.add(self.rank, held)

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._touched = time.monotonic()
        if len(self._held) > _MOST_HELD:
            self.let_go()

    def _goes_on(self, data: bytes) -> bool:
        """Whether this only makes the line longer that waits already."""
        waits = self._pending and (self.tag != b"" or self._pending[:1] == b" ")
        fits = len(self._pending) + len(data) < _MOST_LINE
        return bool(data and waits and fits) and _LINE_END.search(data) is None

    def _kept(self, text: bytes) -> int:
        """Bytes at the end that wait for the rest of their line: tags need whole lines, and a traceback may begin."""
        last = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
        begins = self.tracebacks is not None and last != b"" and (_FIRST_LINE.startswith(last) or last[:1] == b" ")
        return len(last) if len(last) < _MOST_LINE and (self.tag != b"" or begins) else 0

    def _pass_on(self, text: bytes) -> None:
        if not text:
            return
        if self.tag:
            text = self._tagged(text)
        self.target.write(text)

    def _tagged(self, text: bytes) -> bytes:
        """Of whole lines: what has no end gets one. Progress that is drawn over itself has \\r at its ends."""
        begin = b""
        if self._returned and text[:1] == b"\n":
            begin, text = b"\n", text[1:]
        self._returned = text[-1:] == b"\r"
        lines = text.splitlines(keepends=True)
        return begin + b"".join(self.tag + (line if line[-1:] in b"\r\n" else line + b"\n") for line in lines)

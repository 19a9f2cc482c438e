"""What `stretto run` and its agents on other hosts say to each other: frames of a line of JSON and bytes behind it,
over the stdin and stdout of a remote shell.

An agent says GREETING first. What comes before it was printed by the shell's own start-up files, and is no part of the
conversation.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import time
from collections.abc import Iterator
from typing import Any

GREETING = b"stretto run: agent, protocol 1\n"
ALIVE_EVERY = 2.0  # seconds, each side to the other
_MOST_HEAD = 8 << 20  # a command and variables are in it
MOST_DATA = 1 << 20

Frame = tuple[dict[str, Any], bytes]


class NoFrame(ValueError):
    """What came is none."""


def pack(what: str, data: bytes = b"", **facts: object) -> bytes:
    return json.dumps({"what": what, "bytes": len(data), **facts}).encode() + b"\n" + data


class Reader:
    """Frames of a stream that is read as it comes."""

    def __init__(self) -> None:
        self._text = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole by now. Raises `NoFrame`."""
        self._text += data
        while (end := self._text.find(b"\n")) >= 0:
            head = self._head(self._text[:end])
            begin, size = end + 1, int(head["bytes"])
            if len(self._text) < begin + size:
                return
            payload, self._text = self._text[begin : begin + size], self._text[begin + size :]
            yield head, payload
        if len(self._text) > _MOST_HEAD:
            raise NoFrame("a line without an end")

    @staticmethod
    def _head(line: bytes) -> dict[str, Any]:
        try:
            head = json.loads(line)
            if isinstance(head["what"], str) and 0 <= head["bytes"] <= MOST_DATA:
                return dict(head)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise NoFrame(line[:80].decode(errors="replace"))


class Writer:
    """Bytes on their way into a pipe that may be full: what does not fit waits until the selector says that it does."""

    def __init__(self, selector: selectors.BaseSelector, target: int) -> None:
        os.set_blocking(target, False)
        self._selector = selector
        self._target = target
        self._pending = b""
        self._broken = False

    def write(self, data: bytes) -> None:
        """Nobody reads it any more: then it is dropped. Who reads ends says so in the other direction."""
        if self._broken:
            return
        waited = bool(self._pending)
        self._pending += data
        if not waited:
            self._flush()
            if self._pending:
                self._selector.register(self._target, selectors.EVENT_WRITE, self._continue)

    def drain(self, most: int, seconds: float) -> bool:
        """Waits until at most so many bytes are left. False if that takes longer."""
        deadline = time.monotonic() + seconds
        while len(self._pending) > most:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            select.select([], [self._target], [], left)
            self._flush()
            self._settle()
        return True

    def close(self) -> None:
        """Drops what waits; the descriptor is its owner's to close."""
        self._broken, self._pending = True, b""
        self._settle()

    def _continue(self) -> None:
        self._flush()
        self._settle()

    def _settle(self) -> None:
        if not self._pending and self._target in self._selector.get_map():
            self._selector.unregister(self._target)

    def _flush(self) -> None:
        try:
            while self._pending and not self._broken:
                self._pending = self._pending[os.write(self._target, self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            self._broken = True
        if self._broken:
            self._pending = b""

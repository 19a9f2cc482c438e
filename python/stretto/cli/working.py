"""Shows that a command is at work, on a terminal's stderr alone, once that takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

_AFTER_S = 1.0
_EVERY_S = 0.5


class Working:
    """A line that says what is being done, for how long, and how many events are; it goes when the work ends."""

    def __init__(self, doing: str, stream: TextIO | None = None) -> None:
        self.doing, self.done = doing, 0
        self._stream = stream or sys.stderr
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __call__(self, done: int) -> None:
        self.done = done

    def __enter__(self) -> Working:
        if self._stream.isatty():
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        if self._ended.wait(_AFTER_S):
            return
        while True:
            count = f", {self.done:,} events" if self.done else ""
            self._stream.write(f"\r\033[K{self.doing}: {time.monotonic() - self._began:.0f} s{count}")
            self._stream.flush()
            if self._ended.wait(_EVERY_S):
                break
        self._stream.write("\r\033[K")
        self._stream.flush()

"""Shows that a command is at work, on a terminal's stderr alone: a line once that takes longer than a second, or a
bar where it is known how many steps there are.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stretto.cli.output import progress

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


@contextlib.contextmanager
def steps(total: int) -> Iterator[Callable[..., None]]:
    """A function that is told what comes next; with 0 as its second argument that belongs to the same step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=progress, transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def step(text: str, advance: int = 1) -> None:
            nonlocal begun
            bar.update(task, description=text, completed=max(0, begun + advance - 1), refresh=True)
            begun += advance

        yield step

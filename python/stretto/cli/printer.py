"""Printing for somebody who may not read for long (a pager, a terminal that was stopped), without waiting for him."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

MOST_WAITING = 1 << 20  # bytes, before those that print should wait
_PIECE = 1 << 16


class Printer:
    """Bytes on their way to a descriptor, which a thread writes. The descriptor is not made non-blocking, as that would
    hold for ranks that print to it themselves as well.

    `wake` is called by the thread when what `waits` was asked about has come, or writing has failed. After that
    `error` says how, and what is written is dropped. `lossy`: so is what MOST_WAITING leaves no room for.
    """

    def __init__(self, target: int) -> None:
        self.error: OSError | None = None
        self.lossy = False
        self.wake: Callable[[], None] = lambda: None
        self._target = target
        self._waiting = bytearray()
        self._size = 0  # with what the thread has taken and not written yet
        self._asked: int | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        with self._changed:
            if self.error is not None or (self.lossy and self._size > MOST_WAITING):
                return
            self._waiting += data
            self._size += len(data)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def waits(self, most: int) -> bool:
        """Whether more than `most` bytes wait to be read; `wake` is called when they do not any more."""
        with self._changed:
            self._asked = most if self._size > most else None
            return self._asked is not None

    def _work(self) -> None:
        while self.error is None:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                data, self._waiting = self._waiting, bytearray()
            left = memoryview(data)
            while left and self.error is None:
                left = left[self._put(left[:_PIECE]) :]

    def _put(self, piece: memoryview) -> int:
        done, error = 0, None
        try:
            done = os.write(self._target, piece)
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._target, select.POLLOUT)
            poll.poll()
        except OSError as failed:
            error = failed
        with self._changed:
            self.error = error
            self._size = 0 if error is not None else self._size - done
            come = error is not None or (self._asked is not None and self._size <= self._asked)
        if come:
            with contextlib.suppress(OSError):
                self.wake()
        return done

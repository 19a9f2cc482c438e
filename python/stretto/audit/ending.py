"""The end of an audit's time, at which whatever is waited for is ended."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

# Python drops what a signal raises in some places, such as a destructor: it is raised again until the block is left.
_AGAIN_SECONDS = 2.0


class OutOfTime(BaseException):
    """The time is over. It is no Exception, so that nothing takes it for a failure of its own."""


@contextlib.contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block once it has taken that long, whatever the block waits for in Python: a program, a
    rank, a file. A call of C that does not return is not interrupted. Signals reach the main thread alone; in another
    one the block has no end but its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    within = True

    def over(_number: int, _frame: FrameType | None) -> None:
        if within:
            raise OutOfTime

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, over)
    timer = signal.setitimer(signal.ITIMER_REAL, max(1e-3, seconds), _AGAIN_SECONDS)
    try:
        try:
            yield
        finally:
            within = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        left, again = timer
        if left > 0:  # Somebody else's timer goes on.
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - began)), again)

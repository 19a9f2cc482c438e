"""What PyTorch gets for an operation, to wait for."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from stretto.pytorch.lane import Lane

_MOST_CALLBACKS = 64

_callbacks: ThreadPoolExecutor | None = None
_lock = threading.Lock()


class Work(dist.Work):  # type: ignore[misc]
    """An operation on its way, of a `Lane`; `results` are the tensors that its future gives."""

    def __init__(self, lane: Lane, job: Callable[[], None], seconds: float, results: Any, source: int = -1) -> None:
        super().__init__()
        self.job = job
        self.seconds = seconds
        self.deadline = math.inf  # of one that is waited for, in a patient lane
        self.done = False
        self.source = source
        self._lane = lane
        self._results = results
        self._error: Exception | None = None
        self._future: Any = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when the operation is done, and raises what befell it.

        With a `timeout`, other than zero, raises `DistBackendError` if it is not done by then; the operation goes on.
        """
        if not self.done:
            seconds = timeout.total_seconds() if timeout else 0
            self._lane.help(self, seconds if seconds > 0 else None)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.done

    def is_success(self) -> bool:
        return self.done and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> Any:
        self.wait()
        return self._results

    def source_rank(self) -> int:
        return self.source

    def _source_rank(self) -> int:
        return self.source

    def get_future(self) -> Any:
        """A `torch.futures.Future` of the results."""
        self._lane.await_from_now(self)
        with self._lane._changed:
            if self._future is None:
                self._future = torch.futures.Future()
                if self.done:
                    _complete(self._future, self._results, self._error)
            return self._future

    # --- For the lane. ---

    def finish(self, error: Exception | None) -> Any:
        """With the lane's lock held. Returns the future that is to be completed, if there is one."""
        self._error = error
        self.done = True
        self.job = _nothing
        return self._future

    def complete(self, future: Any) -> None:
        """What waits for a future may submit more and wait for it, so it runs on a thread that nobody waits for."""
        try:
            _pool().submit(_complete, future, self._results, self._error)
        except RuntimeError:  # No thread can be had any more, as the interpreter ends.
            _complete(future, self._results, self._error)


class Finished(dist.Work):  # type: ignore[misc]
    """Of an operation that was done before its call returned."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return None


FINISHED = Finished()


def _nothing() -> None:
    pass


def _complete(future: Any, results: Any, error: Exception | None) -> None:
    if error is None:
        future.set_result(results)
    else:
        future.set_exception(error)


def _forget() -> None:
    """In a forked child, which has none of the threads."""
    global _callbacks, _lock
    _callbacks, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _pool() -> ThreadPoolExecutor:
    global _callbacks
    with _lock:
        if _callbacks is None:
            _callbacks = ThreadPoolExecutor(_MOST_CALLBACKS, thread_name_prefix="stretto future")
        return _callbacks

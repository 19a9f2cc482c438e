"""In which thread and in which order operations run.

A lane is one communicator's queue. What is submitted to it runs in order, on whichever thread drives the lane: the
caller's own if it waits anyway and nobody else drives (so a synchronous operation changes no thread), the lane's worker
if not (so an asynchronous one goes on while the caller computes). One thread drives at a time, which is also what a
communicator asks for.

Every operation has a deadline, which begins when it runs, or, in a patient lane, when somebody waits for it. One thread
of the process looks at all lanes' deadlines; the first that is missed ends the lane's communicator, which makes the
operation fail.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

import torch.distributed as dist

from stretto.errors import InvalidArgument, StrettoError
from stretto.pytorch.work import Work

_LOOK_EVERY = 0.1  # seconds

Job = Callable[[], None]


class Lane:
    """`what`: how errors call it. `abort` ends what runs, from any thread. `any_order`: who waits for an operation may
    run it before those that were submitted earlier. `words`: makes the library's words those of the group.
    """

    def __init__(
        self,
        what: str,
        abort: Callable[[], None],
        any_order: bool = False,
        patient: bool = False,
        words: Callable[[str], str] = str,
    ) -> None:
        self._any_order = any_order
        self._patient = patient
        self._words = words
        self.what = what
        self._abort = abort
        self._pending: deque[Work] = deque()
        self._driving = threading.Lock()
        self._changed = threading.Condition()
        self._wake = threading.Semaphore(0)
        self._worker: threading.Thread | None = None
        self._closed = False
        self._deadline = math.inf
        self._seconds = math.inf
        self._missed = ""
        watch(self)

    # --- For the group. ---

    def run(self, job: Job, seconds: float) -> None:
        """Runs `job` after what was submitted before, and returns when it is done."""
        if self._pending or not self._driving.acquire(blocking=False):
            self.submit(Work(self, job, seconds, [])).wait()
            return
        try:
            self._execute(job, seconds)
        finally:
            self._driving.release()

    def attempt(self, job: Job, seconds: float) -> None:
        """Runs `job` now, unless another thread drives."""
        if not self._driving.acquire(blocking=False):
            return
        try:
            self._execute(job, seconds)
        finally:
            self._give_way()

    def submit(self, work: Work) -> Work:
        """Has it run after what was submitted before, and returns at once."""
        with self._changed:
            if self._closed:
                raise dist.DistBackendError(f"{self.what}: the group was shut down")
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name=f"stretto {self.what}", daemon=True)
                self._worker.start()
            self._pending.append(work)
        self._wake.release()
        return work

    def drain(self) -> None:
        """Returns when everything that was submitted has ended."""
        for work in list(self._pending):
            self.help(work, None)

    def close(self) -> None:
        """Lets the worker end, when it has run what is left. Nothing can be submitted afterwards."""
        with self._changed:
            self._closed = True
        self._wake.release()

    # --- For Work. ---

    def help(self, work: Work, seconds: float | None) -> None:
        """Returns when `work` is done. Drives the lane if nobody does and there is no limit to the time."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        if seconds is None:
            self.await_from_now(work)
        while not work.done:
            if seconds is None and self._driving.acquire(blocking=False):
                self._drive_until(work)
                continue
            with self._changed:
                left = until - time.monotonic()
                if left <= 0 and not work.done:
                    raise dist.DistBackendError(
                        f"{self.what}: not done within the {seconds:g} s that wait() was given; it goes on"
                    )
                if not work.done:
                    self._changed.wait(None if math.isinf(left) else left)

    def await_from_now(self, work: Work) -> None:
        """Somebody waits for it, for as long as it takes."""
        if self._patient and math.isinf(work.deadline):
            work.deadline = time.monotonic() + work.seconds

    def finished(self, work: Work, error: Exception | None) -> None:
        """`work` has ended, by its own job or by what another thread did for it. The first word of that counts."""
        with self._changed:
            if work.done:
                return
            future = work.finish(error)
            self._changed.notify_all()
        if future is not None:
            work.complete(future)

    # --- Driving: by one thread at a time. ---

    def _drive_until(self, work: Work) -> None:
        try:
            while not work.done and self._pending:
                self._step(work if self._any_order else self._pending[0])
        finally:
            self._give_way()

    def _give_way(self) -> None:
        self._driving.release()
        with self._changed:
            self._changed.notify_all()
        if self._pending:
            self._wake.release()

    def _work(self) -> None:
        closed = False
        while not closed:
            self._wake.acquire()
            closed = self._closed
            with self._driving:
                while self._pending:
                    self._step(self._pending[0])

    def _step(self, work: Work) -> None:
        """Raises what is no failure of the work's: Ctrl-C is for the thread that drives, whosever work it ends."""
        error: Exception | None = None
        interrupt: BaseException | None = None
        try:
            if not work.done:
                self._execute(work.job, math.inf if self._patient else work.seconds)
        except Exception as raised:
            error = raised
        except BaseException as raised:
            interrupt = raised
            error = dist.DistBackendError(f"{self.what}: ended by {type(raised).__name__}")
        self._pending.remove(work)
        if not work.done:
            self.finished(work, error)
        if interrupt is not None:
            raise interrupt

    def _execute(self, job: Job, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        try:
            job()
        except StrettoError as error:
            raise self._as_pytorch_says(error) from error
        finally:
            self._deadline = math.inf

    # --- What can go wrong. ---

    def expire(self, now: float) -> None:
        """For the watch: ends what runs if its deadline has passed."""
        seconds = self._missed_timeout(now)
        if seconds is None or self._missed:
            return
        self._missed = f"{self.what}: an operation was not done within its timeout of {seconds:g} s"
        self._abort()

    def _missed_timeout(self, now: float) -> float | None:
        """The timeout of an operation that has missed its deadline."""
        if now >= self._deadline:
            return self._seconds
        waiting = list(self._pending) if self._patient else []
        return next((work.seconds for work in waiting if now >= work.deadline and not work.done), None)

    def _as_pytorch_says(self, error: StrettoError) -> Exception:
        words = self._words(str(error))
        if isinstance(error, InvalidArgument) and not self._missed:
            return ValueError(words)
        context = f"{self._missed};" if self._missed else f"{self.what}:"
        failure: Exception = dist.DistBackendError(f"{context} {words}")
        return failure


_lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
_lock = threading.Lock()
_watcher: threading.Thread | None = None


def _forget() -> None:
    """In a forked child: the lanes and their threads are the parent's, and the lock may be held for ever."""
    global _lanes, _lock, _watcher
    _lanes, _lock, _watcher = weakref.WeakSet(), threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def watch(lane: Lane) -> None:
    """Has the deadlines of `lane` kept for as long as it lives."""
    global _watcher
    with _lock:
        _lanes.add(lane)
        if _watcher is None or not _watcher.is_alive():
            _watcher = threading.Thread(target=_look, name="stretto deadlines", daemon=True)
            _watcher.start()


def _look() -> None:
    while True:
        time.sleep(_LOOK_EVERY)
        with _lock:
            lanes = list(_lanes)
        now = time.monotonic()
        for lane in lanes:
            lane.expire(now)
        del lanes

"""Ranks as threads of this process: the place of each, the end of all when one fails, and which failure was first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeVar

from stretto import _native, failures
from stretto.errors import StrettoError
from stretto.failures import Blame, RankRecord

T = TypeVar("T")
# Once a rank has failed, those that wait in stretto.init() are given up after so many seconds: that call has no other
# end than its own timeout, and the rank it waits for may be the one that failed.
_JOINING_SECONDS = 0.5


@dataclass
class _Ids:
    """The unique ids that threads of one process share: the first to ask makes it, as the process that
    answers is the same for all of them.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_generation: dict[int, bytes] = field(default_factory=dict)

    def get(self, generation: int) -> bytes:
        with self.lock:
            if generation not in self.by_generation:
                self.by_generation[generation] = _native.make_unique_id()
            return self.by_generation[generation]


@dataclass
class ThreadPlace:
    """What `stretto.init()` needs to know in a rank's thread."""

    record: RankRecord
    rank: int
    ranks: int
    ids: _Ids
    calls: int = 0


class _Here(threading.local):
    place: ThreadPlace | None = None


_here = _Here()


def current_place() -> ThreadPlace | None:
    """That of the rank whose thread this is."""
    return _here.place


@contextlib.contextmanager
def _in_place(place: ThreadPlace) -> Iterator[None]:
    _here.place = place
    failures.enter(place.record)
    try:
        yield
    finally:
        _here.place = None
        failures.enter(None)


@dataclass(frozen=True)
class Failure:
    """How one rank's thread ended, when it did not end well."""

    blame: Blame
    moment: float
    rank: int
    error: BaseException

    @property
    def order(self) -> tuple[Blame, float]:
        return self.blame, self.moment


class RankThreads(Generic[T]):
    """`ranks` threads that each run `body(rank)`, and whose `init()` joins one job.

    When a body raises, the living communicators of its rank are aborted at once, so that its peers' calls end with an
    error. `report` is called with each failure before that, in the thread of its rank.
    """

    def __init__(
        self, ranks: int, body: Callable[[int], T], report: Callable[[Failure], None] = lambda failure: None
    ) -> None:
        ids = _Ids()
        self.results: dict[int, T] = {}
        self._failures: list[Failure] = []
        self._body = body
        self._report = report
        self._places = [ThreadPlace(RankRecord(rank), rank, ranks, ids) for rank in range(ranks)]
        self._running = set(range(ranks))
        self._changed = threading.Condition()
        self._owner = os.getpid()
        self._threads = [
            threading.Thread(target=self._run, args=(place,), name=f"stretto-rank-{place.rank}", daemon=True)
            for place in self._places
        ]

    def run(self, grace: float | None = None) -> None:
        """Returns when all ranks have ended; after a failure at the latest when `grace` seconds have passed.

        None waits for all. Ctrl-C aborts every communicator of every rank, and raises.
        """
        try:
            for thread in self._threads:
                thread.start()
            with self._changed:
                while (seconds := self._seconds_to_wait(grace)) > 0:
                    self._changed.wait(None if seconds == float("inf") else seconds)
        except BaseException:
            self.abort()
            raise
        left = self.running()
        for place, thread in zip(self._places, self._threads, strict=True):
            if place.rank not in left:
                thread.join()

    def wait(self, seconds: float) -> None:
        """For the threads that still run, without looking at what befell them."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._running and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def running(self) -> list[int]:
        """The ranks whose threads have not ended."""
        with self._changed:
            return sorted(self._running)

    def first_failure(self) -> Failure | None:
        """The cause, as far as it can be told: those that only lost a rank are not it, though they may have been told
        before the cause had unwound.
        """
        with self._changed:
            return min(self._failures, key=lambda failure: failure.order, default=None)

    def abort(self) -> None:
        """Aborts all communicators of all ranks."""
        for place in self._places:
            _abort_all(place.record)

    def _seconds_to_wait(self, grace: float | None) -> float:
        if not self._running:
            return 0.0
        if not self._failures or grace is None:
            return float("inf")
        since = time.monotonic() - self._failures[0].moment
        if all(self._places[rank].record.joining for rank in self._running):
            return min(grace, _JOINING_SECONDS) - since
        # Looks again from time to time, as nobody says when a rank begins to join.
        return min(grace - since, _JOINING_SECONDS)

    def _run(self, place: ThreadPlace) -> None:
        try:
            with _in_place(place):
                result = self._body(place.rank)
                self._leave_if_forked(None)
                self.results[place.rank] = result
        except BaseException as error:
            self._leave_if_forked(error)
            self._fail(place, error)
        finally:
            with self._changed:
                self._running.discard(place.rank)
                self._changed.notify_all()

    def _fail(self, place: ThreadPlace, error: BaseException) -> None:
        failure = Failure(place.record.blame(error), time.monotonic(), place.rank, error)
        with self._changed:
            self._failures.append(failure)
            self._changed.notify_all()
        self._report(failure)
        _abort_all(place.record)

    def _leave_if_forked(self, error: BaseException | None) -> None:
        """A child that was forked by a rank's thread unwinds a copy of it: it ends here, and is no rank."""
        if os.getpid() != self._owner:
            _leave(error)


def _abort_all(record: RankRecord) -> None:
    for communicator in list(record.communicators):
        try:
            communicator.abort()
        except StrettoError as error:
            print(f"stretto: aborting {communicator!r}: {error}", file=sys.stderr)


def _leave(error: BaseException | None) -> NoReturn:
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    elif isinstance(error, SystemExit) and isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0 if error is None else failures.exit_code(error))


def run_threads(ranks: int, body: Callable[[int], T]) -> list[T]:
    """Runs `body(rank)` on `ranks` threads that are the ranks of one job, and returns their results in order of rank.

    If one raises, its communicators are aborted; when all have ended, the first failure is raised.
    """
    threads = RankThreads(ranks, body)
    threads.run()
    first = threads.first_failure()
    if first is not None:
        failures.add_note(first.error, f"on rank {first.rank} of {ranks} (a thread of this process)")
        raise first.error
    return [threads.results[rank] for rank in range(ranks)]

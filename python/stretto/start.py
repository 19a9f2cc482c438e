"""Becoming a rank: from a launcher's environment, from explicit arguments, or as threads of this process."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from stretto import _native, launch, rendezvous
from stretto.communicator import Communicator
from stretto.errors import InvalidArgument, RemoteError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Ids:
    """The unique ids that threads of one process share: the first to ask makes it, as the process that
    answers is the same for all of them.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_generation: dict[int, bytes] = field(default_factory=dict)
    joined: list[Communicator] = field(default_factory=list)

    def get(self, generation: int) -> bytes:
        with self.lock:
            if generation not in self.by_generation:
                self.by_generation[generation] = _native.make_unique_id()
            return self.by_generation[generation]


@dataclass
class _ThreadPlace:
    rank: int
    ranks: int
    ids: _Ids
    calls: int = 0


class _Here(threading.local):
    place: _ThreadPlace | None = None


_here = _Here()
_generations = itertools.count()


def unique_id() -> bytes:
    """Makes the name of one new communicator: 128 bytes, a secret, to be handed to every rank's `init`.

    The process that calls this answers the ranks that join, and must live until they have.
    """
    return _native.make_unique_id()


def init(
    *, rank: int | None = None, ranks: int | None = None, unique_id: bytes | None = None, name: str = ""
) -> Communicator:
    """Joins the job as one rank, and returns when all ranks have joined.

    Without arguments the rank comes from the launcher: a thread of `stretto.threads` or `stretto run
    --threads`, then the environment of `stretto run`, torchrun, mpirun, mpiexec or srun, in that order
    (`stretto.launch` has the table). All ranks call `init` equally often; each call makes a new
    communicator.

    With arguments all three are needed: `rank`, 0 to ranks - 1, and the same `unique_id` on every rank, made
    by `stretto.unique_id()` on one of them and handed on by means of your own.

    The unique id travels with `stretto run`, in its environment. Under other launchers rank 0 makes it and
    hands it over through a file that only this user can read when all ranks are on one host, and by TCP at
    MASTER_ADDR, authenticated, when not (`stretto.rendezvous` says how and why).

    `name` is shown in logs, traces and errors.

    Raises `InvalidUsage` if no launcher can be seen, `Timeout` if rank 0 is not found and `RemoteError` if a
    rank does not come within STRETTO_INIT_TIMEOUT seconds.
    """
    given = [argument is not None for argument in (rank, ranks, unique_id)]
    if any(given):
        if rank is None or ranks is None or unique_id is None:
            raise InvalidArgument("init: give all of rank=, ranks= and unique_id=, or none of them")
        return Communicator(_native.join(ranks, unique_id, rank, name))
    if _here.place is not None:
        return _join_thread(_here.place, name)
    place = launch.place()
    generation = next(_generations)
    if place.unique_id is not None:
        if generation == 0:
            return Communicator(_native.join(place.ranks, place.unique_id, place.rank, name))
        place = replace(place, unique_id=None)
    return _meet(place, generation, name)


def _meet(place: launch.Place, generation: int, name: str) -> Communicator:
    if place.rank == 0:
        made = _native.make_unique_id()
        with rendezvous.publish(place, generation, made):
            return Communicator(_native.join(place.ranks, made, 0, name))
    learned = rendezvous.learn(place, generation, init_timeout())
    return Communicator(_native.join(place.ranks, learned, place.rank, name))


def _join_thread(place: _ThreadPlace, name: str) -> Communicator:
    generation, place.calls = place.calls, place.calls + 1
    made = Communicator(_native.join(place.ranks, place.ids.get(generation), place.rank, name))
    place.ids.joined.append(made)
    return made


def init_timeout() -> float:
    """Seconds that ranks wait for each other when they join: STRETTO_INIT_TIMEOUT, as the library reads
    it.
    """
    for parameter in json.loads(_native.parameters())["parameters"]:
        if parameter["name"] == "STRETTO_INIT_TIMEOUT":
            return float(parameter["value"])
    raise AssertionError("the library has no STRETTO_INIT_TIMEOUT")


def init_all(ranks: int) -> list[Communicator]:
    """Makes all communicators of a job of `ranks` ranks in this process; item i is rank i.

    One thread can drive them all, inside `with stretto.group():`; or each gets a thread of its own.
    """
    return [Communicator(native) for native in _native.init_all(ranks)]


@contextlib.contextmanager
def thread_place(rank: int, ranks: int, ids: _Ids) -> Iterator[None]:
    """Makes `init()` in this thread join as that rank, for as long as the block lasts."""
    _here.place = _ThreadPlace(rank, ranks, ids)
    try:
        yield
    finally:
        _here.place = None


def threads(
    ranks: int, function: Callable[Concatenate[Communicator, P], T], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Runs `function(comm, ...)` on `ranks` threads, each of them a rank, and returns their results in order
    of rank.

    If one raises, its communicator is aborted, so that the others' operations fail and do not wait for it;
    when all have ended, the error that began it is raised. Communicators are closed at the end.
    """
    if ranks < 1:
        raise InvalidArgument(f"ranks={ranks}: at least 1")

    def body(rank: int, comm: Communicator) -> T:
        with comm:
            return function(comm, *args, **kwargs)

    return run_threads(ranks, lambda rank: body(rank, init()))


def run_threads(ranks: int, body: Callable[[int], T]) -> list[T]:
    """Runs `body(rank)` on threads whose `init()` joins one job. Raises the first error that is no `RemoteError`, or
    the first.
    """
    ids = _Ids()
    results: dict[int, T] = {}
    errors: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        try:
            with thread_place(rank, ranks, ids):
                results[rank] = body(rank)
        except BaseException as error:
            errors.append((rank, error))

    running = [
        threading.Thread(target=run, args=(rank,), name=f"stretto-rank-{rank}", daemon=True) for rank in range(ranks)
    ]
    for thread in running:
        thread.start()
    try:
        for thread in running:
            thread.join()
    except BaseException:  # Ctrl-C: the ranks' operations end, and the threads with them.
        for comm in ids.joined:
            comm.abort()
        raise
    if errors:
        # Those that only lost a rank are not the cause, even if they were told before the cause had unwound.
        rank, first = min(errors, key=lambda one: isinstance(one[1], RemoteError))
        first.add_note(f"on rank {rank} of {ranks} (a thread of this process)")
        raise first
    return [results[rank] for rank in range(ranks)]


__all__ = ["Any", "init", "init_all", "threads", "unique_id"]

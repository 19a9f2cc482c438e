"""Becoming a rank: from a launcher's environment, from explicit arguments, or as threads of this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from stretto import _native, launch, rendezvous
from stretto.communicator import Communicator
from stretto.errors import InvalidArgument
from stretto.patience import seconds_of
from stretto.rank_threads import ThreadPlace, current_place, run_threads
from stretto.values import shown, text, whole_number

P = ParamSpec("P")
T = TypeVar("T")


_generations = itertools.count()
# Above what the library takes, which has its own words for that; below what only allocating would take for ever.
_MAX_RANKS = 4096


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
    name = text(name, "name")
    given = [argument is not None for argument in (rank, ranks, unique_id)]
    if any(given):
        if rank is None or ranks is None or unique_id is None:
            raise InvalidArgument("init: give all of rank=, ranks= and unique_id=, or none of them")
        if not isinstance(unique_id, bytes | bytearray | memoryview):
            raise InvalidArgument(f"unique_id={shown(unique_id)}: it must be the bytes that stretto.unique_id() made")
        numbers = whole_number(ranks, "ranks", 1), whole_number(rank, "rank")
        return Communicator(_native.join(numbers[0], bytes(unique_id), numbers[1], name))
    here = current_place()
    if here is not None:
        return _join_thread(here, name)
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


def _join_thread(place: ThreadPlace, name: str) -> Communicator:
    generation, place.calls = place.calls, place.calls + 1
    place.record.joining = True
    try:
        return Communicator(_native.join(place.ranks, place.ids.get(generation), place.rank, name))
    finally:
        place.record.joining = False


def init_timeout() -> float:
    """Seconds that ranks wait for each other when they join: STRETTO_INIT_TIMEOUT, as the library reads
    it.
    """
    return seconds_of("STRETTO_INIT_TIMEOUT")


def init_all(ranks: int) -> list[Communicator]:
    """Makes all communicators of a job of `ranks` ranks in this process; item i is rank i.

    One thread can drive them all, inside `with stretto.group():`; or each gets a thread of its own.
    """
    return [Communicator(native) for native in _native.init_all(whole_number(ranks, "ranks", 1, _MAX_RANKS))]


def threads(
    ranks: int, function: Callable[Concatenate[Communicator, P], T], *args: P.args, **kwargs: P.kwargs
) -> list[T]:
    """Runs `function(comm, ...)` on `ranks` threads, each of them a rank, and returns their results in order
    of rank.

    If one raises, its communicator and all that were made of it are aborted, so that the others' operations
    fail and do not wait for it; when all have ended, the error that began it is raised: the first that is no
    consequence of a lost rank. Communicators are closed at the end.
    """
    ranks = whole_number(ranks, "ranks", 1, _MAX_RANKS)
    if not callable(function):
        raise InvalidArgument(f"function={shown(function)}: it must be a function of a communicator")

    def body(rank: int, comm: Communicator) -> T:
        with comm:
            return function(comm, *args, **kwargs)

    return run_threads(ranks, lambda rank: body(rank, init()))


__all__ = ["Any", "init", "init_all", "threads", "unique_id"]

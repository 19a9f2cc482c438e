"""Sends and receives, with tags.

PyTorch promises of them what it does not of collectives: they match by rank and tag alone, in whatever order and
thread they are called, and one that waits holds up no other. So each ordered pair of ranks has a communicator of its
own, made when both have first asked for it, on which data goes one way, and a lane for it on both sides.

A message is a header, then the tensor's bytes. A receiver that meets a message of another tag than it waits for gives
it to the receive that waits for that one, or keeps it until there is one. A receive from any rank looks in turns at the
ways from all ranks that send to this one. Before its first message to another rank, a rank says so in the store.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import itertools
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from stretto import _native
from stretto.communicator import Communicator
from stretto.errors import RemoteError, StrettoError
from stretto.pytorch.join import await_keys
from stretto.pytorch.lane import Lane
from stretto.pytorch.tensors import bytes_of
from stretto.pytorch.work import Work

_HEADER = struct.Struct("<qq")  # tag, bytes
_RANK_OF_PAIR = re.compile(r"\brank ([01])\b")
_SLICE = 0.1  # seconds
_OWN = -1


class Link:
    """The communicator of an ordered pair of the group's ranks, made at first use: in it the first, who sends, is rank
    0, and the second is rank 1. `rank`: which of them this is.

    Each side leaves a mark in the store and waits for the other's, without holding on to the store: other threads may
    need it to get as far. `check_peer` raises when the other one may never come.
    """

    def __init__(
        self, store: Any, group: str, pair: tuple[int, int], rank: int, check_peer: Callable[[], None]
    ) -> None:
        self._store = store
        self._check_peer = check_peer
        self._group = group
        self._pair = pair
        self._key = f"{group}/{pair[0]}-{pair[1]}"
        self._rank = rank
        self._communicator: Communicator | None = None
        self._given_up = False

    @property
    def given_up(self) -> bool:
        return self._given_up

    def is_at_hand(self) -> bool:
        """Whether the way is made, or the other side waits for this one to make it."""
        return self._communicator is not None or bool(self._store.check([f"{self._key}/{1 - self._rank}"]))

    def native(self) -> _native.Communicator:
        """Waits for the other side. Raises `RemoteError` once this side has given up."""
        if self._communicator is None and not self._given_up:
            self._communicator = Communicator(self._join())
        if self._given_up:  # also while it joined
            self.abort()
            raise RemoteError("this rank has given up the way between the two")
        assert self._communicator is not None
        return self._communicator._native

    def abort(self) -> None:
        """From any thread."""
        self._given_up = True
        if self._communicator is not None:
            self._communicator.abort()

    def close(self) -> None:
        if self._communicator is not None:
            self._communicator.close()

    def in_ranks_of_group(self, text: str) -> str:
        """Words of the pair's communicator, which knows of two ranks alone."""
        return _RANK_OF_PAIR.sub(lambda found: f"rank {self._pair[int(found[1])]}", text)

    def _join(self) -> _native.Communicator:
        self._store.set(f"{self._key}/{self._rank}", b"")
        if self._rank == 0:
            announce(self._store, self._group, self._pair)
        self._await(f"{self._key}/{1 - self._rank}")
        if self._rank == 0:
            unique_id = _native.make_unique_id()
            self._store.set(f"{self._key}/id", unique_id)
        else:
            self._await(f"{self._key}/id")
            unique_id = self._store.get(f"{self._key}/id")
        return _native.join(2, bytes(unique_id), self._rank, self._key, host=True)

    def _await(self, key: str) -> None:
        """In slices, as the lane's deadline or an abort may end it."""
        try:
            while not await_keys(self._store, [key], time.monotonic() + _SLICE):
                self._check_peer()
                if self._given_up:
                    raise RemoteError(f"the peer has not called {'send' if self._rank else 'recv'}")
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self._store.delete_key(f"{self._key}/{self._rank}")  # or the peer would join, and wait for this side
            raise


class Outbox:
    """The way from this rank to one peer."""

    def __init__(self, link: Link, what: str) -> None:
        self.link = link
        self.lane = Lane(what, link.abort, patient=True, words=link.in_ranks_of_group)

    def send(self, tensor: Any, tag: int, seconds: float) -> Work:
        """`tensor`: plain; not to be written to until the work is done."""
        header = bytearray(_HEADER.pack(tag, tensor.numel() * tensor.element_size()))
        data = bytes_of(tensor)

        def job() -> None:
            native = self.link.native()
            native.send(header, header, 1, _OWN, None)
            if tensor.numel():
                native.send(data, data, 1, _OWN, None)

        return self.lane.submit(Work(self.lane, job, seconds, [tensor]))

    def abort(self) -> None:
        self.link.abort()

    def end(self) -> None:
        """Returns when everything is sent."""
        self.lane.drain()
        self.lane.close()
        self.link.close()


def announce(store: Any, group: str, pair: tuple[int, int]) -> None:
    """Says that the first rank of the pair sends to the second, for receives from any rank."""
    number = store.add(f"{group}/to/{pair[1]}", 1)
    store.set(f"{group}/to/{pair[1]}/{number}", str(pair[0]))


@dataclass(eq=False)
class _Awaited:
    """A receive that is under way, from `peer` or, if that is None, any rank: `tensor` is plain. `finish` is called
    when the data is in it.
    """

    peer: int | None
    tag: int
    tensor: Any
    finish: Callable[[], None]
    lane: Lane
    number: int = 0  # in the order of the calls
    work: Work = field(init=False)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def size(self) -> int:
        return int(self.tensor.numel() * self.tensor.element_size())

    def takes(self, peer: int, tag: int) -> bool:
        return self.tag == tag and self.peer in (None, peer)

    def end(self, peer: int, message: Any | None, size: int) -> None:
        """With a message of `peer`, which is None if it is in the tensor already."""
        error: Exception | None = dist.DistBackendError(f"{self.lane.what}: ended by an interrupt")
        try:
            if size != self.size:
                raise ValueError(
                    f"{self.lane.what}: a message of {size} bytes with tag {self.tag} came from rank {peer} for a "
                    f"tensor of {self.size} bytes: both sides must name tensors of one size"
                )
            if message is not None:
                ctypes.memmove(self.tensor.data_ptr(), message.data_ptr(), size)
            self.finish()
            error = None
        except Exception as raised:
            error = raised
        finally:
            self.work.source = peer
            try:
                self.lane.finished(self.work, error)
            finally:
                self.over.set()


class Receives:
    """What waits for a message at this rank, and messages that nothing waited for, each in the order of the calls. Any
    thread.

    A receive is awaited until a thread that has a message for it takes it off the list. If the data are at hand, the
    thread ends it at once. A thread that receives into the tensor itself ends the receive later, or puts it back when
    the message breaks off. Only the thread that drives the receive's own lane does that, so that no thread has to wait
    for the message of another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = itertools.count()
        self._awaited: list[_Awaited] = []
        self._taken: dict[int, _Awaited] = {}  # off the list, by the rank whose message it is; one thread each
        self._kept: list[tuple[int, int, Any]] = []  # peer, tag, bytes

    def begin(self, one: _Awaited) -> bool:
        """False if a message was there for it, with which it has ended."""
        one.number = next(self._calls)
        return self._await(one)

    def reserve(self, peer: int, tag: int, size: int, also_any: bool) -> Any | None:
        """The tensor that such a message is for. None if there is none, or it is of another size, or its receive names
        no rank and may not be had. `end` or `put_back` follows.
        """
        with self._lock:
            one = self._first(peer, tag)
            if one is None or one.size != size or (one.peer is None and not also_any):
                return None
            self._take_off(one, peer)
            return one.tensor

    def end(self, peer: int, tag: int, message: Any | None, size: int) -> None:
        """Ends the receive that the message is for, or keeps that. None: it is in the tensor that was reserved."""
        with self._lock:
            if message is not None:
                one = self._first(peer, tag)
                if one is None:
                    self._kept.append((peer, tag, message))
                    return
                self._take_off(one, peer)
        try:
            self._taken[peer].end(peer, message, size)
        finally:
            del self._taken[peer]

    def put_back(self, peer: int) -> None:
        """The message did not come; nothing may have been reserved for it."""
        one = self._taken.pop(peer, None)
        if one is not None:
            self._await(one)

    def withdraw(self, one: _Awaited) -> None:
        """No message ends it any more. Returns, if a thread has one for it, when that has ended it."""
        with self._lock:
            is_awaited = one in self._awaited
            if is_awaited:
                self._awaited.remove(one)
        if not is_awaited:
            one.over.wait()

    def awaits(self, one: _Awaited) -> bool:
        return one in self._awaited

    def awaits_from(self, peer: int | None) -> bool:
        """Whether any names that rank, or, for None, any rank."""
        with self._lock:
            return any(one.peer == peer for one in self._awaited)

    def _first(self, peer: int, tag: int) -> _Awaited | None:
        return next((one for one in self._awaited if one.takes(peer, tag)), None)

    def _take_off(self, one: _Awaited, peer: int) -> None:
        self._taken[peer] = one
        self._awaited.remove(one)

    def _await(self, one: _Awaited) -> bool:
        with self._lock:
            at = next((at for at, (peer, tag, _) in enumerate(self._kept) if one.takes(peer, tag)), None)
            if at is None:
                bisect.insort(self._awaited, one, key=lambda other: other.number)
                return True
            peer, _, message = self._kept.pop(at)
        one.end(peer, message, message.numel())
        return False


class Inbox:
    """The way from one peer to this rank."""

    def __init__(self, link: Link, what: str, peer: int, receives: Receives) -> None:
        self.link = link
        self._peer = peer
        self._receives = receives
        self._is_busy = False
        self.lane = Lane(what, link.abort, any_order=True, patient=True, words=link.in_ranks_of_group)

    def receive(self, tensor: Any, tag: int, seconds: float, finish: Callable[[], None], results: Any) -> Work:
        one = _Awaited(self._peer, tag, tensor, finish, self.lane)
        one.work = Work(self.lane, lambda: self._until_done(one), seconds, results, self._peer)
        return _submit(one, self._receives)

    def take_if_come(self, seconds: float, begins: Callable[[], None]) -> None:
        """For receives from any rank: takes the next message if there is one, and no other thread takes messages from
        here. `begins` is called before that. The message, and the way if it is not made yet, may take so many seconds.
        """

        def job() -> None:
            self._is_busy = True
            try:
                if self.link.native().probe(0):
                    begins()
                    self._take_message(also_any=True)
            finally:
                self._is_busy = False

        self.lane.attempt(job, seconds)

    def abort(self) -> None:
        self.link.abort()

    def end(self) -> None:
        """What is awaited will not come any more."""
        if self._receives.awaits_from(self._peer) or self._is_busy:
            self.link.abort()
        self.lane.close()
        self.link.close()

    # --- On the thread that drives the lane. ---

    def _until_done(self, one: _Awaited) -> None:
        """What comes for other receives is theirs, and they are then done."""
        try:
            while self._receives.awaits(one):
                self._take_message(also_any=False)
        finally:
            self._receives.withdraw(one)

    def _take_message(self, also_any: bool) -> None:
        """Gives the next message to the receive that it is for, or keeps it."""
        native = self.link.native()
        self._is_busy = True
        try:
            header = bytearray(_HEADER.size)
            native.recv(header, header, 0, _OWN, None)
            tag, size = _HEADER.unpack(header)
            reserved = self._receives.reserve(self._peer, tag, size, also_any)
            into = torch.empty(size, dtype=torch.uint8) if reserved is None else reserved
            if size:
                data = bytes_of(into)
                native.recv(data, data, 0, _OWN, None)
            self._receives.end(self._peer, tag, into if reserved is None else None, size)
        except BaseException as error:
            try:
                if not isinstance(error, StrettoError):  # after which nothing comes over this way
                    self.abort()  # What is left of the message would be taken for the next header.
            finally:
                self._receives.put_back(self._peer)
            raise
        finally:
            self._is_busy = False


def _submit(one: _Awaited, receives: Receives) -> Work:
    if not receives.begin(one):
        return one.work
    try:
        return one.lane.submit(one.work)
    except BaseException:
        one.over.set()
        receives.withdraw(one)
        raise


class AnySource:
    """Receives of this rank that take a message of whichever rank sends one first. Who waits for one looks in turns at
    the ways from all ranks that send to this one. `check` raises when the group has lost a rank, or all others have
    left it.

    One that misses its timeout, or an abort, gives all of them up for good. It ends a way only if a message was under
    way there that these receives had begun to take.
    """

    _FIRST_LOOK, _LONGEST_LOOK = 0.001, 0.1  # seconds between looks into the store
    _AT_ONCE, _FIRST_NAP, _LONGEST_NAP = 50, 0.00005, 0.002  # turns without a nap, and naps in seconds

    def __init__(self, boxes: Boxes, what: str, check: Callable[[], None]) -> None:
        self._boxes = boxes
        self._check = check
        self._announcements: set[int] = set()  # their numbers
        self._coming: list[int] = []  # ranks that have said that they send, and are not there yet
        self._sources: deque[int] = deque()  # those whose ways have not ended; who was looked at last is the last
        self._taking: Inbox | None = None
        self._given_up = False
        self.lane = Lane(f"{what}, receiving from any rank", self.abort, any_order=True, patient=True)

    def receive(self, tensor: Any, tag: int, seconds: float, finish: Callable[[], None], results: Any) -> Work:
        one = _Awaited(None, tag, tensor, finish, self.lane)
        one.work = Work(self.lane, lambda: self._until_done(one), seconds, results)
        return _submit(one, self._boxes.receives)

    def abort(self) -> None:
        """From any thread."""
        self._given_up = True
        taking = self._taking
        if taking is not None:
            taking.abort()

    def end(self) -> None:
        """What is awaited will not come any more."""
        self.abort()
        self.lane.close()

    # --- On the thread that drives the lane. ---

    def _until_done(self, one: _Awaited) -> None:
        try:
            self._take_until_done(one.work)
        finally:
            self._boxes.receives.withdraw(one)

    def _take_until_done(self, work: Work) -> None:
        next_look, pause = 0.0, self._FIRST_LOOK
        idle, nap = 0, self._FIRST_NAP
        while not self._take_next(work):
            if time.monotonic() >= next_look:
                self._look_around()
                next_look, pause = time.monotonic() + pause, min(2 * pause, self._LONGEST_LOOK)
            idle += 1
            if idle > self._AT_ONCE:
                time.sleep(nap)
                nap = min(2 * nap, self._LONGEST_NAP)

    def _take_next(self, work: Work) -> bool:
        """One turn. Whether the work is done."""
        for _ in range(len(self._sources)):
            self._raise_if_given_up()
            if work.done:
                break
            source = self._sources[0]
            self._sources.rotate(-1)
            inbox = self._boxes.inbox(source)
            try:
                inbox.take_if_come(work.seconds, partial(self._begin_taking, inbox))
            except (dist.DistBackendError, ValueError):
                self._raise_if_given_up()
                self._sources.remove(source)
                # The way has ended. That is no error if this rank gave it up, or if the other one has left in peace.
                if not inbox.link.given_up and not self._boxes.may_have_left(source):
                    self._check()
                    raise
            finally:
                self._taking = None
        self._raise_if_given_up()
        return work.done

    def _begin_taking(self, inbox: Inbox) -> None:
        self._taking = inbox
        self._raise_if_given_up()

    def _raise_if_given_up(self) -> None:
        if self._given_up:
            raise RemoteError("this rank has given up its receives from any rank")

    def _look_around(self) -> None:
        """For ranks that are new among the sources. Raises when no message can come any more."""
        try:
            self._coming += self._boxes.announced(self._announcements)
            for source in [one for one in self._coming if self._boxes.inbox(one).link.is_at_hand()]:
                self._coming.remove(source)
                if source not in self._sources:
                    self._sources.append(source)
        except RuntimeError:  # The store may have gone with the rank that kept it.
            if not self._sources:
                raise
        try:
            self._check()
        except dist.DistBackendError:
            # If all others have left, what they sent is on its way until their ways have ended.
            if not self._sources or not self._boxes.is_whole():
                raise
        except RuntimeError:  # the store, as above
            if not self._sources:
                raise


class Boxes:
    """The ways between a rank and its peers, made at first use. `check_peer` raises when a peer, or a message of any
    rank (None), may never come. `async_error`: of the group.
    """

    def __init__(
        self,
        store: Any,
        group: str,
        rank: int,
        what: str,
        check_peer: Callable[[int | None], None],
        async_error: Callable[[], int],
    ) -> None:
        self._async_error = async_error
        self.receives = Receives()
        self.any_source = AnySource(self, what, partial(check_peer, None))
        self._store = store
        self._group = group
        self._rank = rank
        self._what = what
        self._check_peer = check_peer
        self._outboxes: dict[int, Outbox] = {}
        self._inboxes: dict[int, Inbox] = {}

    def outbox(self, peer: int) -> Outbox:
        box = self._outboxes.get(peer)
        if box is not None:
            return box
        link = Link(self._store, self._group, (self._rank, peer), 0, partial(self._check_peer, peer))
        return self._outboxes.setdefault(peer, Outbox(link, f"{self._what}, sending to rank {peer}"))

    def inbox(self, peer: int) -> Inbox:
        box = self._inboxes.get(peer)
        if box is not None:
            return box
        link = Link(self._store, self._group, (peer, self._rank), 1, partial(self._check_peer, peer))
        return self._inboxes.setdefault(
            peer, Inbox(link, f"{self._what}, receiving from rank {peer}", peer, self.receives)
        )

    def is_whole(self) -> bool:
        """Whether the group has lost no rank."""
        return self._async_error() == 0

    def announced(self, known: set[int]) -> list[int]:
        """The ranks that have said that they send to this one. `known` has the numbers of what was heard before, and
        gets the others'.
        """
        sources: list[int] = []
        key = f"{self._group}/to/{self._rank}"
        latest = int(self._store.get(key)) if self._store.check([key]) else 0
        for number in range(1, latest + 1):
            if number not in known and self._store.check([f"{key}/{number}"]):
                sources.append(int(self._store.get(f"{key}/{number}")))
                known.add(number)
        return sources

    def have_left(self, peers: Iterable[int]) -> bool:
        """Whether all of them but this rank have left the group in peace."""
        return bool(self._store.check([f"left/{peer}" for peer in peers if peer != self._rank]))

    def may_have_left(self, peer: int) -> bool:
        try:
            return self.have_left([peer])
        except RuntimeError:  # The store has gone, perhaps with that rank.
            return True

    def drain(self) -> None:
        """Returns when everything is sent."""
        for box in list(self._outboxes.values()):
            box.lane.drain()

    def all(self) -> list[Outbox | Inbox | AnySource]:
        return [self.any_source, *self._outboxes.values(), *self._inboxes.values()]

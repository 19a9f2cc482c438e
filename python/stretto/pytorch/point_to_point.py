"""Sends and receives, with tags.

PyTorch promises of them what it does not of collectives: they match by rank and tag alone, in whatever order and
thread they are called, and one that waits holds up no other. So each ordered pair of ranks has a communicator of its
own, made when both have first asked for it, on which data goes one way, and a lane for it on both sides.

A message is a header, then the tensor's bytes. A receiver that meets a message of another tag than it waits for gives
it to the receive that waits for that one, or keeps it until there is one. A receive from any rank looks in turns at the
ways from all ranks that send to this one. Before its first message to another rank, a rank says so in the store.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from stretto import _native
from stretto.communicator import Communicator
from stretto.errors import RemoteError
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
    def is_made(self) -> bool:
        return self._communicator is not None

    @property
    def given_up(self) -> bool:
        return self._given_up

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
        while not await_keys(self._store, [key], time.monotonic() + _SLICE):
            self._check_peer()
            if self._given_up:
                self._store.delete_key(f"{self._key}/{self._rank}")  # or the peer would join, and wait for this side
                raise RemoteError(f"the peer has not called {'send' if self._rank else 'recv'}")


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
    work: Work = field(init=False)

    @property
    def size(self) -> int:
        return int(self.tensor.numel() * self.tensor.element_size())

    def takes(self, peer: int, tag: int) -> bool:
        return self.tag == tag and self.peer in (None, peer)

    def end(self, peer: int, message: Any | None, size: int) -> None:
        """With a message of `peer`, which is None if it is in the tensor already."""
        error: Exception | None = None
        if size != self.size:
            error = ValueError(
                f"{self.lane.what}: a message of {size} bytes with tag {self.tag} came from rank {peer} for a tensor "
                f"of {self.size} bytes: both sides must name tensors of one size"
            )
        else:
            try:
                if message is not None:
                    ctypes.memmove(self.tensor.data_ptr(), message.data_ptr(), size)
                self.finish()
            except Exception as raised:
                error = raised
        self.work.source = peer
        self.lane.finished(self.work, error)


class Receives:
    """What waits for a message at this rank, and messages that nothing waited for, each in order. Any thread.

    A receive is awaited until a thread claims it, which has a message for it, and ends it or puts it back.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._awaited: list[_Awaited] = []
        self._claimed: dict[_Awaited, int] = {}  # whose message it is
        self._kept: list[tuple[int, int, Any]] = []  # peer, tag, bytes

    def begin(self, one: _Awaited) -> bool:
        """False if a message was there for it, with which it has ended."""
        with self._changed:
            message = next((kept for kept in self._kept if one.takes(kept[0], kept[1])), None)
            if message is None:
                self._awaited.append(one)
                return True
            self._kept = [kept for kept in self._kept if kept is not message]
        one.end(message[0], message[2], message[2].numel())
        return False

    def claim(self, peer: int, tag: int) -> _Awaited | None:
        """The first that takes such a message."""
        with self._changed:
            return self._claim(peer, tag)

    def claim_or_keep(self, peer: int, tag: int, message: Any) -> _Awaited | None:
        with self._changed:
            one = self._claim(peer, tag)
            if one is None:
                self._kept.append((peer, tag, message))
            return one

    def end(self, one: _Awaited, message: Any | None, size: int) -> None:
        """Ends one that is claimed."""
        one.end(self._claimed[one], message, size)
        self._release(one)

    def put_back(self, one: _Awaited) -> None:
        self._release(one, is_awaited=True)

    def withdraw(self, one: _Awaited) -> None:
        """Returns when no thread has a message for it any more. It has ended, or nothing will end it."""
        with self._changed:
            while one in self._claimed:
                self._changed.wait()
            if one in self._awaited:
                self._awaited.remove(one)

    def awaits(self, one: _Awaited) -> bool:
        return one in self._awaited

    def awaits_from(self, peer: int | None) -> bool:
        """Whether any names that rank, or, for None, any rank."""
        with self._changed:
            return any(one.peer == peer for one in [*self._awaited, *self._claimed])

    def sources_of_any(self) -> list[int]:
        """The ranks whose messages threads have for receives that name none."""
        with self._changed:
            return [source for one, source in self._claimed.items() if one.peer is None]

    def _claim(self, peer: int, tag: int) -> _Awaited | None:
        one = next((one for one in self._awaited if one.takes(peer, tag)), None)
        if one is not None:
            self._awaited.remove(one)
            self._claimed[one] = peer
        return one

    def _release(self, one: _Awaited, is_awaited: bool = False) -> None:
        with self._changed:
            del self._claimed[one]
            if is_awaited:
                self._awaited.insert(0, one)
            self._changed.notify_all()


class Inbox:
    """The way from one peer to this rank."""

    def __init__(self, link: Link, what: str, peer: int, receives: Receives) -> None:
        self.link = link
        self._peer = peer
        self._receives = receives
        self._is_asked_for = False
        self._is_busy = False
        self.lane = Lane(what, link.abort, any_order=True, patient=True, words=link.in_ranks_of_group)

    def receive(self, tensor: Any, tag: int, seconds: float, finish: Callable[[], None], results: Any) -> Work:
        one = _Awaited(self._peer, tag, tensor, finish, self.lane)
        one.work = Work(self.lane, lambda: self._until_done(one), seconds, results, self._peer)
        return self.lane.submit(one.work) if self._receives.begin(one) else one.work

    def take_if_come(self) -> bool:
        """Takes the next message if there is one, and no other thread takes messages from here. A way that is not made
        yet is made by the lane's worker, as the peer may take its time.
        """
        if not self.link.is_made:
            if not self._is_asked_for:
                self._is_asked_for = True
                self.lane.submit(Work(self.lane, self._make_way, math.inf, []))
            return False
        taken = False

        def job() -> None:
            nonlocal taken
            taken = self.link.native().probe(0)
            if taken:
                self._take_message()

        self.lane.attempt(job)
        return taken

    def abort(self) -> None:
        self.link.abort()

    def end(self) -> None:
        """What is awaited will not come any more."""
        if self._is_busy or self._receives.awaits_from(self._peer):
            self.link.abort()
        self.lane.close()
        self.link.close()

    # --- On the thread that drives the lane. ---

    def _make_way(self) -> None:
        with self._busy():
            self.link.native()

    def _until_done(self, one: _Awaited) -> None:
        """What comes for other receives is theirs, and they are then done."""
        try:
            while self._receives.awaits(one):
                self._take_message()
        finally:
            self._receives.withdraw(one)

    def _take_message(self) -> None:
        """Gives the next message to the receive that it is for, or keeps it."""
        with self._busy():
            native = self.link.native()
            header = bytearray(_HEADER.size)
            native.recv(header, header, 0, _OWN, None)
            try:
                self._take_data(native, *_HEADER.unpack(header))
            except BaseException:
                self.abort()  # A part of the message may be left, which would be taken for the next header.
                raise

    def _take_data(self, native: _native.Communicator, tag: int, size: int) -> None:
        taker = self._receives.claim(self._peer, tag)
        try:
            direct = taker is not None and taker.size == size
            into = taker.tensor if taker is not None and direct else torch.empty(size, dtype=torch.uint8)
            if size:
                data = bytes_of(into)
                native.recv(data, data, 0, _OWN, None)
        except BaseException:
            if taker is not None:
                self._receives.put_back(taker)
            raise
        if taker is None:
            taker = self._receives.claim_or_keep(self._peer, tag, into)  # It may have been called meanwhile.
        if taker is not None:
            self._receives.end(taker, None if direct else into, size)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False


class AnySource:
    """Receives of this rank that take a message of whichever rank sends one first. Who waits for one looks in turns at
    the ways from all ranks that send to this one. `check` raises when no message can come any more.

    One that misses its timeout, or an abort, gives all of them up for good. It ends a way only if a message for such a
    receive is under way there.
    """

    _FIRST_LOOK, _LONGEST_LOOK = 0.001, 0.1  # seconds between looks into the store
    _AT_ONCE, _FIRST_NAP, _LONGEST_NAP = 50, 0.00005, 0.002  # turns without a nap, and naps in seconds

    def __init__(self, boxes: Boxes, what: str, check: Callable[[], None]) -> None:
        self._boxes = boxes
        self._check = check
        self._announcements: set[int] = set()  # their numbers
        self._sources: list[int] = []  # the ranks that send to this one and have not left
        self._taking: Inbox | None = None
        self._given_up = False
        self.lane = Lane(f"{what}, receiving from any rank", self.abort, any_order=True, patient=True)

    def receive(self, tensor: Any, tag: int, seconds: float, finish: Callable[[], None], results: Any) -> Work:
        one = _Awaited(None, tag, tensor, finish, self.lane)
        one.work = Work(self.lane, lambda: self._until_done(one), seconds, results)
        return self.lane.submit(one.work) if self._boxes.receives.begin(one) else one.work

    def abort(self) -> None:
        """From any thread."""
        self._given_up = True
        taking = self._taking
        if taking is not None:
            taking.abort()
        for source in self._boxes.receives.sources_of_any():
            self._boxes.inbox(source).abort()

    def end(self) -> None:
        """What is awaited will not come any more."""
        if self._boxes.receives.awaits_from(None):
            self.abort()
        self.lane.close()

    # --- On the thread that drives the lane. ---

    def _until_done(self, one: _Awaited) -> None:
        try:
            self._take_until_done(one)
        finally:
            self._boxes.receives.withdraw(one)

    def _take_until_done(self, one: _Awaited) -> None:
        next_look, pause = 0.0, self._FIRST_LOOK
        idle, nap = 0, self._FIRST_NAP
        while not one.work.done:
            self._raise_if_given_up()
            looks = time.monotonic() >= next_look
            if looks:
                self._look_for_sources()
            if self._take_what_has_come():
                idle, nap = 0, self._FIRST_NAP
                continue
            if looks:
                self._raise_if_nothing_can_come()
                next_look, pause = time.monotonic() + pause, min(2 * pause, self._LONGEST_LOOK)
            idle += 1
            if idle > self._AT_ONCE:
                time.sleep(nap)
                nap = min(2 * nap, self._LONGEST_NAP)

    def _raise_if_given_up(self) -> None:
        if self._given_up:
            raise RemoteError("this rank has given up its receives from any rank")

    def _look_for_sources(self) -> None:
        try:
            new = self._boxes.announced(self._announcements)
        except RuntimeError:  # The store may have gone with the rank that kept it.
            if not self._sources:
                raise
            return
        self._sources += [source for source in new if source not in self._sources]

    def _raise_if_nothing_can_come(self) -> None:
        try:
            self._check()
        except dist.DistBackendError:
            # What ranks sent before they left has come by now.
            if not self._take_what_has_come():
                raise
        except RuntimeError:  # as above
            if not self._sources:
                raise

    def _take_what_has_come(self) -> bool:
        taken = False
        for source in list(self._sources):
            inbox = self._boxes.inbox(source)
            self._taking = inbox
            try:
                self._raise_if_given_up()
                taken = inbox.take_if_come() or taken
            except dist.DistBackendError:
                self._raise_if_given_up()
                if not inbox.link.given_up and not self._boxes.have_left([source]):
                    raise
                self._sources.remove(source)
            finally:
                self._taking = None
        return taken


class Boxes:
    """The ways between a rank and its peers, made at first use. `check_peer` raises when a peer, or a message of any
    rank (None), may never come.
    """

    def __init__(self, store: Any, group: str, rank: int, what: str, check_peer: Callable[[int | None], None]) -> None:
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

    def announced(self, known: set[int]) -> list[int]:
        """The ranks that have said that they send to this one, but for those whose words `known` has the numbers of. It
        gets the others'.
        """
        sources: list[int] = []
        key = f"{self._group}/to/{self._rank}"
        for number in range(1, self._store.add(key, 0) + 1):
            if number not in known and self._store.check([f"{key}/{number}"]):
                known.add(number)
                sources.append(int(self._store.get(f"{key}/{number}")))
        return sources

    def have_left(self, peers: Iterable[int]) -> bool:
        """Whether all of them but this rank have left the group in peace."""
        return bool(self._store.check([f"left/{peer}" for peer in peers if peer != self._rank]))

    def drain(self) -> None:
        """Returns when everything is sent."""
        for box in list(self._outboxes.values()):
            box.lane.drain()

    def all(self) -> list[Outbox | Inbox | AnySource]:
        return [self.any_source, *self._outboxes.values(), *self._inboxes.values()]

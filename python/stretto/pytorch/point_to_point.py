"""Sends and receives, with tags.

PyTorch promises of them what it does not of collectives: they match by rank and tag alone, in whatever order and
thread they are called, and one that waits holds up no other. So each ordered pair of ranks has a communicator of its
own, made when both have first asked for it, on which data goes one way, and a lane for it on both sides.

A message is a header, then the tensor's bytes. A receiver that meets a message of another tag than it waits for gives
it to the receive that waits for that one, or keeps it until there is one.
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

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
        self._pair = pair
        self._key = f"{group}/{pair[0]}-{pair[1]}"
        self._rank = rank
        self._communicator: Communicator | None = None
        self._given_up = False

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

    def end(self) -> None:
        """Returns when everything is sent."""
        self.lane.drain()
        self.lane.close()
        self.link.close()


@dataclass(eq=False)
class _Awaited:
    """A receive that is under way: `tensor` is plain."""

    tag: int
    tensor: Any
    work: Work
    finish: Callable[[], None]

    @property
    def size(self) -> int:
        return int(self.tensor.numel() * self.tensor.element_size())


class Inbox:
    """The way from one peer to this rank."""

    def __init__(self, link: Link, what: str, peer: int) -> None:
        self.link = link
        self._what = what
        self._peer = peer
        # What waits for a message, and messages that nothing waited for, each in order; the lock is for both.
        self._matching = threading.Lock()
        self._awaited: deque[_Awaited] = deque()
        self._kept: deque[tuple[int, Any]] = deque()
        self.lane = Lane(what, link.abort, any_order=True, patient=True, words=link.in_ranks_of_group)

    def receive(self, tensor: Any, tag: int, seconds: float, finish: Callable[[], None], results: Any) -> Work:
        """`finish` is called when the data is in `tensor`."""
        work = Work(self.lane, lambda: self._until_done(one), seconds, results, self._peer)
        one = _Awaited(tag, tensor, work, finish)
        with self._matching:
            message = next((message for message in self._kept if message[0] == tag), None)
            if message is None:
                self._awaited.append(one)
            else:
                self._kept.remove(message)
        if message is None:
            return self.lane.submit(work)
        self._hand_over(one, message[1], message[1].numel())
        return work

    def end(self) -> None:
        """What is awaited will not come any more."""
        if self._awaited:
            self.link.abort()
        self.lane.close()
        self.link.close()

    def _until_done(self, one: _Awaited) -> None:
        """On the thread that drives the lane. What comes for other receives is theirs, and they are then done."""
        try:
            while one in self._awaited:
                self._take_message()
        except BaseException:
            with self._matching:
                if one in self._awaited:
                    self._awaited.remove(one)
            raise

    def _take_message(self) -> None:
        """Gives the next message to the receive that it is for, or keeps it."""
        native = self.link.native()
        header = bytearray(_HEADER.size)
        native.recv(header, header, 0, _OWN, None)
        tag, size = _HEADER.unpack(header)
        with self._matching:
            taker = self._first_of(tag)
        direct = taker is not None and taker.size == size
        into = taker.tensor if taker is not None and direct else torch.empty(size, dtype=torch.uint8)
        if size:
            data = bytes_of(into)
            native.recv(data, data, 0, _OWN, None)
        with self._matching:
            taker = self._first_of(tag)  # It may have been called meanwhile.
            if taker is None:
                self._kept.append((tag, into))
                return
            self._awaited.remove(taker)
        self._hand_over(taker, None if direct else into, size)

    def _first_of(self, tag: int) -> _Awaited | None:
        return next((one for one in self._awaited if one.tag == tag), None)

    def _hand_over(self, one: _Awaited, message: Any | None, size: int) -> None:
        """Ends a receive with a message, which is None if it is in the tensor already."""
        error = None
        if size != one.size:
            error = ValueError(
                f"{self._what}: a message of {size} bytes with tag {one.tag} came for a tensor of {one.size} bytes: "
                "both sides must name tensors of one size"
            )
        else:
            if message is not None:
                ctypes.memmove(one.tensor.data_ptr(), message.data_ptr(), size)
            one.finish()
        self.lane.finished(one.work, error)


class Boxes:
    """The ways between a rank and its peers, made at first use. `check_peer` raises when a peer may never come."""

    def __init__(self, store: Any, group: str, rank: int, what: str, check_peer: Callable[[int], None]) -> None:
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
        return self._inboxes.setdefault(peer, Inbox(link, f"{self._what}, receiving from rank {peer}", peer))

    def all(self) -> list[Outbox | Inbox]:
        return [*self._outboxes.values(), *self._inboxes.values()]

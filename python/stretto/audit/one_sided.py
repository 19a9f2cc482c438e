"""What a rank of the audit does with the calls of nccl.h that Python's interface does not have: puts, signals and
collectives in registered windows, each result checked.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy
from numpy.typing import NDArray

import stretto
from stretto.audit.patterns import Reply, Words, mistakes, pattern
from stretto.audit.words import ORDERS

_UINT64, _SUM = 5, 0
_SYMMETRIC, _STRICT_ORDER = 1, 2
# Signals by index: of who waits for a put, of what says that it is there, of what is taken later, and for trying out.
_READY, _PUT, _LATER, _TRIAL = range(4)
_POLL_SECONDS = 20.0
_MOST_FAILURES = 5
_MOST_WORDS = 1 << 16  # of the planner's answer
BYTES = 2 << 20
_SIZES = (8, 64, 4096, 65536 + 8, 1 << 20)


class _Id(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


class _Wanted(ctypes.Structure):
    """ncclWaitSignalDesc_t."""

    _fields_ = (("count", ctypes.c_int), ("peer", ctypes.c_int), ("signal", ctypes.c_int), ("context", ctypes.c_int))


class _Question(ctypes.Structure):
    """strettoQuestion_t."""

    _fields_ = (
        ("collective", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("op", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("windows", ctypes.c_int),
        ("hidden", ctypes.c_size_t),
    )


class Calls:
    """The functions of nccl.h as a linked program gets them: those of a library that is preloaded come first."""

    def __init__(self) -> None:
        self._preloaded, self._own = ctypes.CDLL(None), ctypes.CDLL(str(stretto.library_path()))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Raises StrettoError with the library's own words."""
        status = self.function(name)(*arguments)
        if status:
            said = self.function("ncclGetLastError")
            said.restype = ctypes.c_char_p
            raise stretto.StrettoError(f"{name}: {(said(None) or b'').decode(errors='replace')}")

    def function(self, name: str) -> Any:
        return getattr(self._preloaded, name, None) or getattr(self._own, name)


class Windows:
    """A communicator, and a window of it that each rank has registered: of memory that the library has made, which
    peers map, or of the process's own (`made` says which), which they write to through the kernel.
    """

    def __init__(self, rank: int, ranks: int, id: bytes, made: bool, bytes: int = BYTES) -> None:
        self.rank, self.ranks = rank, ranks
        self.calls, self._comm, self._window = Calls(), ctypes.c_void_p(), ctypes.c_void_p()
        self._memory = ctypes.c_void_p()
        unique = _Id.from_buffer_copy(id)
        self.calls("ncclCommInitRank", ctypes.byref(self._comm), ctypes.c_int(ranks), unique, ctypes.c_int(rank))
        if made:
            self.calls("ncclMemAlloc", ctypes.byref(self._memory), ctypes.c_size_t(bytes))
            buffer = (ctypes.c_uint64 * (bytes // 8)).from_address(self._memory.value or 0)
            self.words: Words = numpy.frombuffer(memoryview(buffer), numpy.uint64)
        else:
            self.words = numpy.empty(bytes // 8, numpy.uint64)
        self.words[:] = 0
        flags = ctypes.c_int(_SYMMETRIC | _STRICT_ORDER)
        where = ctypes.c_void_p(self.words.ctypes.data), ctypes.c_size_t(bytes)
        self.calls("ncclCommWindowRegister", self._comm, *where, ctypes.byref(self._window), flags)

    def close(self) -> None:
        """When no peer writes any more."""
        self.calls("ncclCommWindowDeregister", self._comm, self._window)
        self.calls("ncclCommDestroy", self._comm)
        if self._memory.value:
            self.calls("ncclMemFree", self._memory)

    def put(self, peer: int, words: Words, place: int, signal: int) -> None:
        """Into the peer's window, from its `place`-th word on."""
        what = ctypes.c_void_p(words.ctypes.data), ctypes.c_size_t(len(words)), ctypes.c_int(_UINT64)
        where = ctypes.c_int(peer), self._window, ctypes.c_size_t(8 * place)
        how = ctypes.c_int(signal), ctypes.c_int(0), ctypes.c_uint(0)
        self.calls("ncclPutSignal", *what, *where, *how, self._comm, None)

    def put_large(self, peer: int, words: Words) -> None:
        """At the begin of its window. It has to take the signal."""
        self.put(peer, words, 0, _PUT)

    def take_large(self, peer: int) -> None:
        self.wait(peer, _PUT)

    def signal(self, peer: int, signal: int) -> None:
        how = ctypes.c_int(peer), ctypes.c_int(signal), ctypes.c_int(0), ctypes.c_uint(0)
        self.calls("ncclSignal", *how, self._comm, None)

    def wait(self, peer: int, signal: int) -> None:
        wanted = _Wanted(1, peer, signal, 0)
        self.calls("ncclWaitSignal", ctypes.c_int(1), ctypes.byref(wanted), self._comm, None)

    def collective(self, name: str, send: Words, receive: Words) -> None:
        """Both lie in the window."""
        from_to = ctypes.c_void_p(send.ctypes.data), ctypes.c_void_p(receive.ctypes.data)
        count = ctypes.c_size_t(len(send)), ctypes.c_int(_UINT64)
        how = (ctypes.c_int(_SUM),) if name == "all_reduce" else ()
        function = {"all_reduce": "ncclAllReduce", "all_gather": "ncclAllGather", "all_to_all": "ncclAlltoAll"}[name]
        if name == "all_to_all":
            count = ctypes.c_size_t(len(send) // self.ranks), ctypes.c_int(_UINT64)
        self.calls(function, *from_to, *count, *how, self._comm, None)

    def refused(self, collective: str, algorithm: str, bytes: int) -> str:
        """Why the planner does not take that algorithm here; empty where it may."""
        question = _Question(collective.encode(), bytes, _UINT64, _SUM, 0, 0, 0)
        room = ctypes.create_string_buffer(_MOST_WORDS)
        needed = ctypes.byref(ctypes.c_size_t())
        self.calls("strettoExplain", self._comm, ctypes.byref(question), room, ctypes.c_size_t(_MOST_WORDS), needed)
        candidates = [one for one in json.loads(room.value)["candidates"] if one["algorithm"] == algorithm]
        if any(one["possible"] for one in candidates):
            return ""
        return str(candidates[0]["reason"]) if candidates else "it is not there"

    @contextlib.contextmanager
    def forced(self, collective: str, algorithm: str) -> Iterator[None]:
        name = collective.encode()
        self.calls("strettoCommForce", self._comm, name, algorithm.encode() or None, None, ctypes.c_size_t(0), 0)
        yield
        self.calls("strettoCommForce", self._comm, name, None, None, ctypes.c_size_t(0), 0)

    def may_put(self) -> bool:
        """Whether the kernel lets this rank write into all the others' windows."""
        try:
            for peer in range(self.ranks):
                self.put(peer, self.words[:1], 1, _TRIAL)
        except stretto.StrettoError:
            return False
        return True


class Order:
    """Puts of one rank to another, each looked at as soon as the receiver has seen what says that it is there. Of each
    sender and kind the first failure is kept.
    """

    def __init__(self, windows: Windows, made: bool) -> None:
        self._windows, self._made = windows, made
        self.failures: list[Reply] = []
        self.checked = 0

    def go(self, source: int, target: int, bytes: int, generations: range, order: str) -> None:
        count, rank = bytes // 8, self._windows.rank
        if rank == source:
            for generation in generations:
                self._send(target, pattern(count, source, target, generation), generation, order)
        elif rank == target:
            for generation in generations:
                self._receive(source, count, generation, order)

    def _send(self, target: int, words: Words, generation: int, order: str) -> None:
        windows, last = self._windows, len(self._windows.words) - 1
        windows.wait(target, _READY)
        windows.put(target, words, 0, _PUT if order == "signal" else _LATER)
        if order == "later signal":
            windows.signal(target, _PUT)
        elif order == "flag":
            windows.put(target, numpy.array([generation], numpy.uint64), last, _PUT)

    def _receive(self, source: int, count: int, generation: int, order: str) -> None:
        windows = self._windows
        before = windows.words[:count].copy()
        windows.signal(source, _READY)
        if order == "flag":
            _poll(windows.words, generation)
        else:
            windows.wait(source, _PUT)
        got = windows.words[:count].copy()
        if order == "flag":
            windows.wait(source, _PUT)
        if order != "signal":
            windows.wait(source, _LATER)
        self.checked += 1
        found = mistakes(got, pattern(count, source, windows.rank, generation), before)
        if found is not None and all((one["from"], one["order"]) != (source, order) for one in self.failures):
            what = {"from": source, "to": windows.rank, "bytes": 8 * count, "generation": generation}
            self.failures.append({**what, "order": order, "made": self._made, **found})


def _poll(words: NDArray[numpy.uint64], generation: int) -> None:
    """As a program does that has no call for it: looks at the last word until it is there."""
    deadline, last = time.monotonic() + _POLL_SECONDS, len(words) - 1
    while words[last] != generation:
        os.sched_yield()
        if time.monotonic() > deadline:
            raise stretto.StrettoError(f"a word that was put has not come within {_POLL_SECONDS:g} s")


Opened = Callable[[bool], Windows]


def check_order(open: Opened, agree: Callable[[bool], bool], over: Callable[[], bool], generations: int) -> Reply:
    """`open`: a communicator with windows, of memory that the library made or of the process's own; `agree`: whether
    all ranks say so; `over`: whether the time is.
    """
    checked, failures, left_out, cut_short = 0, list[Reply](), "", False
    for made in (True, False):
        windows = open(made)
        if agree(windows.may_put()):
            order = Order(windows, made)
            cut_short |= _all_orders(order, windows.ranks, over, generations)
            checked, failures = checked + order.checked, failures + order.failures
        else:
            left_out = "memory of ncclMemAlloc" if made else "memory of processes, which others may not write to"
        agree(True)  # nobody writes into a window any more
        windows.close()
    found = {"checked": checked, "failures": failures}
    return {**found, "left_out": left_out, "cut_short": cut_short}


def _all_orders(order: Order, ranks: int, over: Callable[[], bool], generations: int) -> bool:
    """Small sizes first; whether the time did not hold all."""
    first = 1
    for size in _SIZES:
        for kind in ORDERS:
            for source, target in permutations(range(ranks), 2):
                if over():
                    return True
                order.go(source, target, size, range(first, first + generations), kind)
            first += generations  # a flag never has the value of an earlier one
    return False


def check_windows(open: Opened, agree: Callable[[bool], bool], over: Callable[[], bool], generations: int) -> Reply:
    """Collectives from one part of a window into another: by the planner's choice, and by the algorithm that reads
    the peers' windows where they lie, if the kernel lets ranks do so.
    """
    windows = open(True)
    checked, failures, cut_short, left_out = 0, list[Reply](), False, ""
    for size in _SIZES:
        for name in ("all_reduce", "all_gather", "all_to_all"):
            cut_short = cut_short or over()
            why = windows.refused(name, "direct", size)
            may = agree(not why)
            if not may:
                left_out = f"the algorithm direct ({why or 'another rank may not take it'})"
            for algorithm in ("", "direct")[: 1 + may] if not cut_short else ():
                with windows.forced(name, algorithm):
                    for generation in range(1, generations + 1):
                        found = _in_window(windows, name, size, generation)
                        checked += 1
                        if found is not None and len(failures) < _MOST_FAILURES:
                            failures.append({**found, "algorithm": algorithm})
    agree(True)
    windows.close()
    return {"checked": checked, "failures": failures, "left_out": left_out, "cut_short": cut_short}


def _in_window(windows: Windows, name: str, bytes: int, generation: int) -> Reply | None:
    rank, ranks = windows.rank, windows.ranks
    count = max(1, bytes // 8 // ranks)
    send = windows.words[: count * (1 if name == "all_gather" else ranks)]
    receive = windows.words[len(windows.words) // 2 :][: count * ranks]
    whole = [pattern(count * ranks, source, 0, generation) for source in range(ranks)]
    if name == "all_reduce":
        wanted: Words = numpy.asarray(numpy.sum(whole, axis=0, dtype=numpy.uint64))
    elif name == "all_gather":
        wanted = numpy.concatenate([one[:count] for one in whole])
    else:
        wanted = numpy.concatenate([one[rank * count : (rank + 1) * count] for one in whole])
    send[:] = whole[rank][: len(send)]
    before = receive.copy()
    windows.collective(name, send, receive)
    found = mistakes(receive, wanted, before)
    what = {"collective": name, "bytes": bytes, "rank": rank, "generation": generation}
    return None if found is None else {**what, **found}

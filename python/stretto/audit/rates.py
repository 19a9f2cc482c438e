"""How fast a rank of the audit moves large data to each other one, by each way that there is, and in turns with it what
the same copy takes without the library.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from itertools import permutations

import numpy

import stretto
from stretto.audit.one_sided import Windows
from stretto.audit.patterns import Reply, Words

_libc = ctypes.CDLL(None, use_errno=True)


class _Piece(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def _write_into(pid: int, address: int, words: Words) -> None:
    """What the kernel does for a put into another process's own memory."""
    here, there = _Piece(words.ctypes.data, words.nbytes), _Piece(address, words.nbytes)
    written = _libc.process_vm_writev(
        ctypes.c_int(pid),
        *(ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0)),
    )
    if written != words.nbytes:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Ways:
    """The ways of this rank; all ranks go through the same ones in the same order. A way takes the rank that sends and
    the one that receives, and returns the seconds that the copy took this rank; or nothing, on the others.
    """

    def __init__(self, comm: stretto.Communicator, open: Callable[[bool], Windows], bytes: int) -> None:
        self._comm, self._bytes = comm, bytes
        self._array, self._other = numpy.ones(bytes // 8, numpy.uint64), numpy.zeros(bytes // 8, numpy.uint64)
        self._made, self._own = open(True), open(False)
        mine = numpy.array([os.getpid(), self._own.words.ctypes.data], numpy.uint64)
        self._places = comm.all_gather(mine).reshape(comm.size, 2)
        may = [windows.may_put() for windows in (self._made, self._own)]
        may = [bool(one) for one in comm.all_reduce(numpy.array(may, numpy.uint8), "min")]
        self._seconds: dict[str, tuple[Callable[[int, int], float | None], Callable[[int, int], float | None]]] = {
            "message": (self._message, self._copy)
        }
        if may[0]:
            self._seconds["mapped"] = (lambda *pair: self._put(self._made, *pair), self._copy_shared)
        if may[1]:
            self._seconds["kernel"] = (lambda *pair: self._put(self._own, *pair), self._write)

    def close(self) -> None:
        self._comm.barrier()
        self._made.close()
        self._own.close()

    def measure(self, count: int, over: Callable[[], bool]) -> Reply:
        """GB/s at best: of each way and pair, and of the copy beside it; of the pairs that come before the time is
        over, and of one at least. `over`: says the same on all ranks.
        """
        rates: dict[str, dict[str, float]] = {}
        limits: dict[str, dict[str, float]] = {}
        cut_short = False
        for number, (source, target) in enumerate(permutations(range(self._comm.size), 2)):
            cut_short = number > 0 and over()
            if cut_short:
                break
            for _ in range(count):
                for way, (move, copy) in self._seconds.items():
                    self._note(rates.setdefault(way, {}), source, target, move)
                    self._note(limits.setdefault(way, {}), source, target, copy)
        return {"rates": rates, "limits": limits, "cut_short": cut_short}

    def _note(self, best: dict[str, float], source: int, target: int, work: Callable[[int, int], float | None]) -> None:
        self._comm.barrier()
        seconds = work(source, target)
        if seconds is not None:
            pair = f"{source}>{target}"
            best[pair] = max(best.get(pair, 0.0), self._bytes / seconds / 1e9)

    def _timed(self, rank: int, work: Callable[[], object]) -> float | None:
        """By that rank alone."""
        if self._comm.rank != rank:
            return None
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    def _message(self, source: int, target: int) -> float | None:
        if self._comm.rank == source:
            self._comm.send(self._array, target)
        return self._timed(target, lambda: self._comm.recv(self._other, source))

    def _copy(self, _: int, target: int) -> float | None:
        return self._timed(target, lambda: numpy.copyto(self._other, self._array))

    def _put(self, windows: Windows, source: int, target: int) -> float | None:
        seconds = self._timed(source, lambda: windows.put_large(target, self._array))
        if self._comm.rank == target:
            windows.take_large(source)
        return seconds

    def _copy_shared(self, source: int, _: int) -> float | None:
        return self._timed(source, lambda: numpy.copyto(self._made.words[: len(self._array)], self._array))

    def _write(self, source: int, target: int) -> float | None:
        pid, address = (int(one) for one in self._places[target])
        return self._timed(source, lambda: _write_into(pid, address, self._array))

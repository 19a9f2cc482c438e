"""A client that knows NCCL by ctypes alone, as inference engines do: it loads the file that VLLM_NCCL_SO_PATH names,
declares what it needs of nccl.h itself, and checks every result. It sees nothing of Stretto but the library.

    python tests/python/ctypes_client.py [--gpu] [--ranks N] [--library PATH]

runs N ranks, processes of this program, with their data in host memory or, by `--gpu`, on GPUs, for which it loads
libcudart by ctypes, too. Ends with status 0 and "ok" when all is right.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

UNIQUE_ID_BYTES = 128
COUNT = 1000
SECONDS = 120
FLOAT32, INT64, FLOAT64 = 7, 4, 8
SUM, PROD, MAX, MIN, AVG = range(5)
UNDEFINED = -(2**31)
SUCCESS, INVALID_ARGUMENT = 0, 4


class UniqueId(ctypes.Structure):
    """Passed by value."""

    _fields_ = (("internal", ctypes.c_byte * UNIQUE_ID_BYTES),)


class Config(ctypes.Structure):
    """ncclConfig_t of 2.28."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cgaClusterSize", ctypes.c_int),
        ("minCTAs", ctypes.c_int),
        ("maxCTAs", ctypes.c_int),
        ("netName", ctypes.c_char_p),
        ("splitShare", ctypes.c_int),
        ("trafficClass", ctypes.c_int),
        ("commName", ctypes.c_char_p),
        ("collnetEnable", ctypes.c_int),
        ("CTAPolicy", ctypes.c_int),
        ("shrinkShare", ctypes.c_int),
        ("nvlsCTAs", ctypes.c_int),
        ("nChannelsPerNetPeer", ctypes.c_int),
        ("nvlinkCentricSched", ctypes.c_int),
    )

    @classmethod
    def initial(cls, version: int) -> Config:
        config = cls(**{name: UNDEFINED for name, kind in cls._fields_ if kind is ctypes.c_int})
        config.size, config.magic, config.version = ctypes.sizeof(cls), 0xCAFEBEEF, version
        return config


_pointer, _count, _enum, _comm, _stream = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_to_comm = ctypes.POINTER(ctypes.c_void_p)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(ctypes.c_int),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (_to_comm, ctypes.c_int, UniqueId, ctypes.c_int),
    "ncclCommInitRankConfig": (_to_comm, ctypes.c_int, UniqueId, ctypes.c_int, ctypes.POINTER(Config)),
    "ncclCommCount": (_comm, ctypes.POINTER(ctypes.c_int)),
    "ncclCommUserRank": (_comm, ctypes.POINTER(ctypes.c_int)),
    "ncclCommDestroy": (_comm,),
    "ncclCommAbort": (_comm,),
    "ncclCommWindowRegister": (_comm, _pointer, _count, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "ncclCommWindowDeregister": (_comm, ctypes.c_void_p),
    "ncclAllReduce": (_pointer, _pointer, _count, _enum, _enum, _comm, _stream),
    "ncclReduce": (_pointer, _pointer, _count, _enum, _enum, ctypes.c_int, _comm, _stream),
    "ncclReduceScatter": (_pointer, _pointer, _count, _enum, _enum, _comm, _stream),
    "ncclAllGather": (_pointer, _pointer, _count, _enum, _comm, _stream),
    "ncclBroadcast": (_pointer, _pointer, _count, _enum, ctypes.c_int, _comm, _stream),
    "ncclSend": (_pointer, _count, _enum, ctypes.c_int, _comm, _stream),
    "ncclRecv": (_pointer, _count, _enum, ctypes.c_int, _comm, _stream),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class Nccl:
    """The library. A function that it lacks fails here; one that returns an error raises with NCCL's words."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._library.ncclGetErrorString.argtypes = (ctypes.c_int,)
        for name, arguments in SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = ctypes.c_int, arguments

    def result(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    def words(self, result: int) -> str:
        return bytes(self._library.ncclGetErrorString(result)).decode()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            result = self.result(name, *arguments)
            if result != SUCCESS:
                raise RuntimeError(f"{name}: {self.words(result)} ({result})")

        return call

    def version(self) -> int:
        number = ctypes.c_int()
        self.ncclGetVersion(ctypes.byref(number))
        return number.value


class Host:
    """Buffers in host memory; the stream is 0, and calls return when they are done."""

    stream: int | None = None

    def __init__(self, rank: int) -> None:
        self._kept: list[np.ndarray] = []
        os.environ.setdefault("STRETTO_DEVICE", "cpu")

    def give(self, values: np.ndarray) -> int:
        self._kept.append(values.copy())
        return int(self._kept[-1].ctypes.data)

    def take(self, address: int, like: np.ndarray) -> np.ndarray:
        return next(kept for kept in self._kept if kept.ctypes.data == address).copy()


class Gpu:
    """Buffers on the GPU of a rank, by libcudart."""

    def __init__(self, rank: int) -> None:
        self._cuda = ctypes.CDLL(_cudart())
        devices = ctypes.c_int()
        self._call("cudaGetDeviceCount", ctypes.byref(devices))
        if devices.value < 1:
            raise RuntimeError("there is no GPU")
        # More ranks than GPUs share them: Stretto allows that by STRETTO_SHARED_DEVICE=1.
        self._call("cudaSetDevice", ctypes.c_int(rank % devices.value))
        stream = ctypes.c_void_p()
        self._call("cudaStreamCreate", ctypes.byref(stream))
        self.stream = stream.value

    def _call(self, name: str, *arguments: Any) -> None:
        result = int(getattr(self._cuda, name)(*arguments))
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def give(self, values: np.ndarray) -> int:
        memory = ctypes.c_void_p()
        size = ctypes.c_size_t(values.nbytes)
        self._call("cudaMalloc", ctypes.byref(memory), size)
        self._call("cudaMemcpy", memory, ctypes.c_void_p(values.ctypes.data), size, ctypes.c_int(1))
        return int(memory.value or 0)

    def take(self, address: int, like: np.ndarray) -> np.ndarray:
        self._call("cudaStreamSynchronize", ctypes.c_void_p(self.stream))
        values = np.empty_like(like)
        size = ctypes.c_size_t(values.nbytes)
        self._call("cudaMemcpy", ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(address), size, ctypes.c_int(2))
        return values


def _cudart() -> str:
    """libcudart of an installed wheel, else whatever the loader finds."""
    for folder in sys.path:
        for found in sorted(Path(folder or ".").glob("nvidia/*/lib/libcudart.so.*")):
            return str(found)
    return "libcudart.so"


def inputs(rank: int, count: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(count) % 17 + rank + 1).astype(dtype)


class Rank:
    """One rank's calls, each compared with what it must give."""

    def __init__(self, nccl: Nccl, memory: Host | Gpu, comm: ctypes.c_void_p, rank: int, ranks: int) -> None:
        self.nccl, self.memory, self.comm, self.rank, self.ranks = nccl, memory, comm, rank, ranks

    def buffers(self, send: np.ndarray, receive: int) -> tuple[int, int, np.ndarray]:
        nothing = np.full(receive, -1, send.dtype)
        return self.memory.give(send), self.memory.give(nothing), nothing

    def compare(self, what: str, address: int, like: np.ndarray, wanted: np.ndarray) -> None:
        got = self.memory.take(address, like)
        if not np.array_equal(got, wanted):
            place = int(np.argmax(got != wanted))
            raise AssertionError(f"rank {self.rank}: {what}: element {place} is {got[place]}, not {wanted[place]}")

    def all_inputs(self, count: int, dtype: Any = np.float32) -> list[np.ndarray]:
        return [inputs(rank, count, dtype) for rank in range(self.ranks)]

    def reductions(self) -> None:
        everyone = self.all_inputs(COUNT)
        cases = {SUM: sum(everyone), MAX: np.maximum.reduce(everyone), MIN: np.minimum.reduce(everyone)}
        for op, wanted in cases.items():
            send, receive, like = self.buffers(everyone[self.rank], COUNT)
            self.nccl.ncclAllReduce(send, receive, COUNT, FLOAT32, op, self.comm, self.memory.stream)
            self.compare(f"all-reduce by operator {op}", receive, like, np.asarray(wanted))
        send, receive, like = self.buffers(self.all_inputs(COUNT, np.int64)[self.rank], COUNT)
        self.nccl.ncclAllReduce(send, send, COUNT, INT64, SUM, self.comm, self.memory.stream)
        self.compare("all-reduce in place", send, like, np.asarray(sum(self.all_inputs(COUNT, np.int64))))
        send, receive, like = self.buffers(everyone[self.rank], COUNT)
        self.nccl.ncclReduce(send, receive, COUNT, FLOAT32, SUM, 0, self.comm, self.memory.stream)
        if self.rank == 0:
            self.compare("reduce", receive, like, np.asarray(sum(everyone)))

    def scatters(self) -> None:
        whole = self.all_inputs(COUNT * self.ranks, np.float64)
        mine = slice(self.rank * COUNT, (self.rank + 1) * COUNT)
        send, receive, like = self.buffers(whole[self.rank], COUNT)
        self.nccl.ncclReduceScatter(send, receive, COUNT, FLOAT64, SUM, self.comm, self.memory.stream)
        self.compare("reduce-scatter", receive, like, np.asarray(sum(whole))[mine])
        everyone = self.all_inputs(COUNT)
        send, receive, like = self.buffers(everyone[self.rank], COUNT * self.ranks)
        self.nccl.ncclAllGather(send, receive, COUNT, FLOAT32, self.comm, self.memory.stream)
        self.compare("all-gather", receive, like, np.concatenate(everyone))

    def moves(self) -> None:
        everyone = self.all_inputs(COUNT)
        root = self.ranks - 1
        send, receive, like = self.buffers(everyone[self.rank], COUNT)
        self.nccl.ncclBroadcast(send, receive, COUNT, FLOAT32, root, self.comm, self.memory.stream)
        self.compare("broadcast", receive, like, everyone[root])
        following, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        send, receive, like = self.buffers(everyone[self.rank], COUNT)
        self.nccl.ncclGroupStart()
        self.nccl.ncclSend(send, COUNT, FLOAT32, following, self.comm, self.memory.stream)
        self.nccl.ncclRecv(receive, COUNT, FLOAT32, before, self.comm, self.memory.stream)
        self.nccl.ncclGroupEnd()
        self.compare("round the ring", receive, like, everyone[before])

    def windows(self) -> None:
        """What a client tries and can do without: a null window is an answer."""
        size = 1 << 16
        memory = self.memory.give(np.zeros(size, np.uint8))
        window = ctypes.c_void_p()
        self.nccl.ncclCommWindowRegister(self.comm, memory, size, ctypes.byref(window), 1)
        if window.value:
            self.nccl.ncclCommWindowDeregister(self.comm, window)

    def questions(self) -> None:
        for name, wanted in (("ncclCommCount", self.ranks), ("ncclCommUserRank", self.rank)):
            number = ctypes.c_int(-1)
            getattr(self.nccl, name)(self.comm, ctypes.byref(number))
            assert number.value == wanted, f"{name}: {number.value}, not {wanted}"
        result = self.nccl.result("ncclCommCount", None, None)
        assert result == INVALID_ARGUMENT, f"ncclCommCount of nothing: {result}"
        assert self.nccl.words(result), "no words for an error"

    def everything(self) -> None:
        self.questions()
        self.reductions()
        self.scatters()
        self.moves()
        self.windows()


def unique_id(nccl: Nccl, folder: Path, name: str, rank: int) -> UniqueId:
    """Rank 0 makes it and leaves it in a file, as a client's own store would carry it."""
    made, place = UniqueId(), folder / name
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(made))
        beside = folder / f"{name}.new"
        beside.write_bytes(bytes(made.internal))
        beside.rename(place)
        return made
    deadline = time.monotonic() + SECONDS
    while not place.exists():
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 has left no unique id")
        time.sleep(0.01)
    ctypes.memmove(ctypes.byref(made), place.read_bytes(), UNIQUE_ID_BYTES)
    return made


def run_rank(library: str, gpu: bool, rank: int, ranks: int, folder: Path) -> None:
    memory = Gpu(rank) if gpu else Host(rank)
    nccl = Nccl(library)
    version = nccl.version()
    assert 20000 < version < 100000, f"a client that expects five digits cannot read {version}"
    comm = ctypes.c_void_p()
    nccl.ncclCommInitRank(ctypes.byref(comm), ranks, unique_id(nccl, folder, "first", rank), rank)
    Rank(nccl, memory, comm, rank, ranks).everything()
    nccl.ncclCommDestroy(comm)
    config = Config.initial(version)
    config.commName = b"by ctypes"
    nccl.ncclCommInitRankConfig(
        ctypes.byref(comm), ranks, unique_id(nccl, folder, "second", rank), rank, ctypes.byref(config)
    )
    Rank(nccl, memory, comm, rank, ranks).reductions()
    nccl.ncclCommDestroy(comm)


def run_all(library: str, gpu: bool, ranks: int) -> int:
    """Starts the ranks and waits for them; the first status that is not 0."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--library", library, "--ranks", str(ranks), "--folder", folder]
        processes = [
            subprocess.Popen([*command, "--rank", str(rank), *(["--gpu"] if gpu else [])]) for rank in range(ranks)
        ]
        deadline = time.monotonic() + SECONDS
        try:
            statuses = [process.wait(max(0.1, deadline - time.monotonic())) for process in processes]
        except subprocess.TimeoutExpired:
            print(f"not done within {SECONDS} s", file=sys.stderr)
            statuses = [1]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return next((status for status in statuses if status != 0), 0)


def library_path(given: str | None) -> str:
    if path := given or os.environ.get("VLLM_NCCL_SO_PATH"):
        return path
    from stretto.library import nccl_library_path

    return str(nccl_library_path())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="buffers on GPUs, one for each rank")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--library", help="default: VLLM_NCCL_SO_PATH, else Stretto's libnccl.so.2")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    library = library_path(given.library)
    if given.rank is not None:
        run_rank(library, given.gpu, given.rank, given.ranks, given.folder)
        return 0
    status = run_all(library, given.gpu, given.ranks)
    if status == 0:
        print(f"ok: {given.ranks} ranks on {'GPUs' if given.gpu else 'CPUs'}, {library}")
    return status


if __name__ == "__main__":
    sys.exit(main())

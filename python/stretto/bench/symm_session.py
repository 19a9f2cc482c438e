"""What the drivers of all-reduces over torch's symmetric memory have in common: one rank, one GPU, one process,
speaking the protocol of benchmarks/driver.hpp. Imported by those drivers alone; each says how its operation is run.

The input lies in symmetric memory. Ranks are let go together on the GPU: a pause that covers what Python needs to
launch, torch's own barrier between the GPUs, and only then the first event. Multicast is neither asked for nor used.
"""

import argparse
import ctypes
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from stretto.bench.torch_driver import TYPES, Pattern, Reply, Unsupported, serve

INIT_SECONDS = 60
MOST_CALLS_IN_GRAPH = 1000
# About a third of a millisecond on a GPU of 2 GHz: longer than it takes to launch a graph.
PAUSE_CYCLES = 700_000
FASTEST_LINK = 900e9  # bytes a second, as in benchmarks/cuda/rank.cpp


class SymmetricSession(ABC):
    """The state between commands: the buffer, the operation, its graphs and its verdicts."""

    whose = ""  # for what it refuses

    def __init__(self, algorithm: str, rank: int, ranks: int, most_bytes: int) -> None:
        self._algorithm = algorithm
        self._rank = rank
        self._ranks = ranks
        self._device = f"cuda:{rank}"
        self._group = dist.group.WORLD.group_name
        self._stream = torch.cuda.Stream()
        self._memory = symm_mem.empty(most_bytes, dtype=torch.uint8, device=self._device)
        self._handle = symm_mem.rendezvous(self._memory, self._group)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._request: dict[str, str] = {}
        self._turn = 0

    @property
    def in_place(self) -> bool:
        """Whether results lie where the input did."""
        return False

    @abstractmethod
    def run(self) -> None:
        """One operation, from self._input to self._result, on the current stream."""

    def recorded(self) -> None:  # noqa: B027
        """After a graph was recorded, before it is replayed."""

    def forget(self) -> None:  # noqa: B027
        """Before other sizes: no graph is replayed any more."""

    def refuse(self, words: dict[str, str]) -> None:
        """Raises Unsupported with the reason."""
        if words["collective"] != "all_reduce" or words["op"] != "sum":
            raise Unsupported(f"{self.whose} has an all_reduce of sums only")
        if int(words["count"]) * TYPES[words["type"]].itemsize % 16:
            raise Unsupported(f"{self.whose} wants whole words of 16 bytes")

    def answer(self, verb: str, words: dict[str, str]) -> Reply:
        with torch.cuda.stream(self._stream):
            if verb == "prepare":
                return self._prepare(words)
            if verb == "measure":
                return self._measure(words)
            return {**self._checked(), "samples": 0, "p50": 0, "p99": 0, "max": 0} if verb == "finish" else {"ok": True}

    def _prepare(self, words: dict[str, str]) -> Reply:
        self.refuse(words)
        self._request = words
        self._graphs.clear()
        self.forget()
        count, dtype = int(words["count"]), TYPES[words["type"]]
        size = count * dtype.itemsize
        if size > self._memory.numel():
            raise ValueError("larger than the buffers that this driver was started with")
        self._pattern = Pattern(words["type"], "sum", self._ranks, self._device)
        self._input = self._memory[:size].view(dtype)
        self._result = self._input if self.in_place else torch.empty_like(self._input)
        self._meet()
        self.run()  # what is set up at the first call is set up here
        self._stream.synchronize()
        how = {"algorithm": self._algorithm, "protocol": "default", "in_place": self.in_place}
        return {**self._checked(), "how": how}

    @property
    def _in_graph(self) -> bool:
        return self._request["graph"] == "1"

    def _call(self, batch: int) -> Callable[[], None]:
        """`batch` operations, as one replay or as that many calls."""
        if not self._in_graph:
            return lambda: self._run_all(batch)
        if batch not in self._graphs:
            self._graphs = {known: graph for known, graph in self._graphs.items() if known == 1}
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):
                self._run_all(batch)
            self.recorded()
            self._graphs[batch] = graph
        replay: Callable[[], None] = self._graphs[batch].replay
        return replay

    def _run_all(self, batch: int) -> None:
        for _ in range(batch):
            self.run()

    def _meet(self) -> None:
        """Every rank is here and its GPU is idle."""
        self._stream.synchronize()
        dist.all_reduce(torch.zeros(1))

    def _checked(self) -> Reply:
        self._turn += 1
        call = self._call(1)
        self._result.fill_(101)
        self._input.copy_(self._pattern.of(self._rank, self._input.numel(), self._turn))
        self._meet()
        call()
        return {"ok": True, "wrong": self._count_wrong()}

    def _count_wrong(self) -> int:
        wrong = 0
        if self._request["check"] != "0":
            expected = self._pattern.reduced(self._result.numel(), self._turn)
            wrong = int((self._result != expected).sum())
        self._stream.synchronize()
        return wrong

    def _measure(self, words: dict[str, str]) -> Reply:
        batch = max(1, min(MOST_CALLS_IN_GRAPH, int(words["batch"])))
        call = self._call(batch)
        if self.in_place:
            self._input.zero_()  # zeros stay zeros, where sums of sums would overflow
        self._meet()
        for _ in range(max(1, -(-int(words["warmup"]) // batch))):
            call()
        device: list[float] = []
        host: list[float] = []
        for _ in range(int(words["batches"])):
            spent, took = self._time(call)
            device.append(self._possible(took / batch))
            host.append(spent / batch)
        wrong = 0 if self.in_place else self._count_wrong()
        return {"ok": True, "wrong": wrong, "batch_us": device, "host_us": [] if self._in_graph else host}

    def _time(self, call: Callable[[], None]) -> tuple[float, float]:
        """Microseconds that the caller and the GPU spent on it."""
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._meet()
        if self._in_graph:
            torch.cuda._sleep(PAUSE_CYCLES)
        self._handle.barrier(channel=0)
        began.record()
        before = time.perf_counter_ns()
        call()
        spent = (time.perf_counter_ns() - before) / 1000
        ended.record()
        ended.synchronize()
        return spent, began.elapsed_time(ended) * 1000

    def _possible(self, microseconds: float) -> float:
        size = self._input.numel() * self._input.element_size() * (self._ranks - 1) / self._ranks
        if microseconds < max(0.3, size / FASTEST_LINK * 1e6):
            raise ValueError(f"impossible: {microseconds} µs for {size:.0f} bytes between ranks")
        return microseconds


class CarriedSession(SymmetricSession):
    """An all-reduce of an inference server's, in tools/gpu_peers' libraries: sums of bfloat16, not in place."""

    def __init__(self, library: ctypes.CDLL, algorithm: str, rank: int, ranks: int, most_bytes: int) -> None:
        super().__init__(algorithm, rank, ranks, most_bytes)
        self._library = library
        self._most = most_bytes
        self._kept: list[object] = []

    @property
    def memory(self) -> torch.Tensor:
        """The bytes that all ranks see, at whose beginning inputs lie."""
        return self._memory

    @abstractmethod
    def reduce(self, given: torch.Tensor, found: torch.Tensor) -> None:
        """Sums `given`, which lies at the beginning of `memory`, into `found`, on the current stream."""

    def run(self) -> None:
        self.reduce(self._input, self._result)

    @abstractmethod
    def mistake(self, status: int) -> str:
        """What one of the library's functions that did not answer 0 has to say."""

    def refuse(self, words: dict[str, str]) -> None:
        super().refuse(words)
        if words["type"] != "bfloat16" or words.get("in_place") == "1":
            raise Unsupported(f"{self.whose} sums bfloat16, and not in place")
        if self._ranks not in (2, 4, 8):
            raise Unsupported(f"{self.whose} is for 2, 4 or 8 ranks")
        if int(words["count"]) * TYPES[words["type"]].itemsize > self._most:
            raise Unsupported(f"{self._algorithm} is not for more than {self._most >> 10} KB here")

    def _shared(self, size: int, value: int = 0, dtype: torch.dtype = torch.uint8) -> list[int]:
        """Memory that all ranks see, filled: where it lies, by rank."""
        memory = symm_mem.empty(size, dtype=torch.uint8, device=self._device)
        memory.view(dtype).fill_(value)
        handle = symm_mem.rendezvous(memory, self._group)
        self._kept += [memory, handle]
        torch.cuda.synchronize()
        return [int(address) for address in handle.buffer_ptrs]

    def _expect(self, status: int) -> None:
        if status:
            raise RuntimeError(self.mistake(status))

    def _addresses(self, addresses: list[int]) -> object:
        return (ctypes.c_void_p * len(addresses))(*addresses)


def arguments(about: str | None, algorithms: tuple[str, ...]) -> argparse.ArgumentParser:
    """What `stretto bench` says to each of these drivers."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--max-bytes", type=int, required=True)
    parser.add_argument("--algorithm", choices=algorithms, required=True)
    return parser


def obey(known: argparse.Namespace, name: str, version: str, make: Callable[[], SymmetricSession]) -> int:
    """Joins the other ranks, makes the session and obeys until told to quit."""
    torch.cuda.set_device(known.rank)
    dist.init_process_group(
        "gloo",  # to meet; the data does not go through it
        init_method=f"file://{known.folder}/store",
        rank=known.rank,
        world_size=known.ranks,
        timeout=timedelta(seconds=INIT_SECONDS),
    )
    session = make()
    first = {"ok": True, "rank": known.rank, "pid": os.getpid(), "version": version, "implementation": name}
    serve(known.folder, session.answer, {**first, "gpu": torch.cuda.get_device_name()})
    # Not destroyed: that would wait for graphs and for peers that may be gone already.
    sys.stdout.flush()
    os._exit(0)

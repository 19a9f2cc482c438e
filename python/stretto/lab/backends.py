"""The all-reduces that a layer of the lab can use, on NumPy arrays in the memory of CPU ranks."""

from __future__ import annotations

import ctypes
import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import stretto
from stretto.bench.drivers import Missing, find_driver
from stretto.lab.contenders import KINDS, UNSAFE
from stretto.lab.model import EPSILON, Array, Parts, Product, rms_norm

_SECONDS = 60


@dataclass(frozen=True)
class Job:
    """What a backend needs to find the other ranks."""

    folder: Path
    rank: int
    ranks: int
    most_bytes: int
    unique_id: bytes


def multiply(product: Product, parts: Parts) -> Array:
    """This rank's partial sums."""
    left, right = product
    x = left @ right
    parts.spent("gemm")
    return np.asarray(x)


class Backend(ABC):
    """One way to add up the ranks' partial sums. Ranks open the same backends in the same order."""

    version: str = ""

    @abstractmethod
    def all_reduce(self, x: Array) -> None:
        """Sums over ranks, in place."""

    def reduce_add_norm(self, product: Product, residual: Array, weight: Array, parts: Parts) -> Array:
        """The sum of all ranks' products is added to the residual, in place; the normalised residual comes back.

        What has an operation for all of this overrides it, and calls all its time communication.
        """
        x = multiply(product, parts)
        self.all_reduce(x)
        parts.spent("communication")
        residual += x
        normalised = rms_norm(residual, weight)
        parts.spent("norm")
        return normalised

    def close(self) -> None:  # noqa: B027 (what holds nothing has nothing to end)
        """Ends it on this rank, as on all."""


class Alone(Backend):
    """One rank, for the reference."""

    def all_reduce(self, x: Array) -> None:
        """The sum over one rank is there already."""


@functools.cache
def _communicator(job: Job) -> stretto.Communicator:
    """One for all backends of this library: a unique id makes one communicator."""
    return stretto.init(rank=job.rank, ranks=job.ranks, unique_id=job.unique_id, name="lab")


class Stretto(Backend):
    """This library, its call and NumPy's add and norm."""

    def __init__(self, job: Job) -> None:
        self._comm = _communicator(job)
        self.version = stretto.__version__

    def all_reduce(self, x: Array) -> None:
        self._comm.all_reduce(x)

    def close(self) -> None:
        self._comm.close()


class StrettoFused(Stretto):
    """This library, sum, residual and norm in one call."""

    def reduce_add_norm(self, product: Product, residual: Array, weight: Array, parts: Parts) -> Array:
        x = multiply(product, parts)
        self._comm.all_reduce_add_rms_norm(x, residual, weight, epsilon=EPSILON)
        parts.spent("communication")
        return x


class StrettoSequence(Stretto):
    """Sequence parallelism: each rank keeps the residual of its part of the tokens, adds and normalises that alone, and
    the normalised parts are gathered. The residual's other tokens are not kept up to date.
    """

    chunks: ClassVar[int] = 1

    def reduce_add_norm(self, product: Product, residual: Array, weight: Array, parts: Parts) -> Array:
        comm, (tokens, hidden) = self._comm, residual.shape
        chunks = self._chunks(tokens)
        # Chunk by chunk a rank has a part of the chunk's tokens.
        shape = (chunks, comm.size, tokens // chunks // comm.size, hidden)
        own = residual.reshape(shape)[:, comm.rank]
        own += self._scatter(product, np.empty_like(own), parts)
        normalised = rms_norm(own, weight)
        parts.spent("norm")
        out: Array = np.empty((tokens, hidden), np.float32)
        for whole, part in zip(out.reshape(chunks, -1, hidden), normalised, strict=True):
            comm.all_gather(part, out=whole)
        parts.spent("communication")
        return out

    def _chunks(self, tokens: int) -> int:
        """As many as there should be and the tokens can be cut into."""
        return next(count for count in range(self.chunks, 0, -1) if tokens % (count * self._comm.size) == 0)

    def _scatter(self, product: Product, parts_of_rank: Array, parts: Parts) -> Array:
        self._comm.reduce_scatter(multiply(product, parts), out=parts_of_rank[0])
        parts.spent("communication")
        return parts_of_rank


class StrettoOverlapped(StrettoSequence):
    """The same in chunks: while one is scattered on a stream, the next is multiplied."""

    chunks: ClassVar[int] = 4

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._stream = stretto.Stream()

    def _scatter(self, product: Product, parts_of_rank: Array, parts: Parts) -> Array:
        left, right = product
        for rows, part in zip(np.split(left, len(parts_of_rank)), parts_of_rank, strict=True):
            x = multiply((rows, right), parts)
            self._stream.synchronize()
            self._comm.reduce_scatter(x, out=part, stream=self._stream)
            parts.spent("communication")
        self._stream.synchronize()
        parts.spent("communication")
        return parts_of_rank

    def close(self) -> None:
        self._stream.close()
        super().close()


class Baseline(Backend):
    """A kind of benchmarks/lab/kinds.hpp."""

    kind: ClassVar[str]
    version = "stretto lab"

    def __init__(self, job: Job) -> None:
        library = ctypes.CDLL(str(find_driver("kinds_driver").with_name("liblab_kinds.so")))
        library.strettoLabOpen.restype = ctypes.c_void_p
        library.strettoLabOpen.argtypes = [
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_size_t,
        ]
        library.strettoLabAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        library.strettoLabClose.argtypes = [ctypes.c_void_p]
        name = "/" + f"{job.folder}/{self.kind}".replace("/", "-")
        self._library = library
        self._opened = library.strettoLabOpen(self.kind.encode(), name.encode(), job.rank, job.ranks, job.most_bytes)
        if not self._opened:
            raise Missing(f"{self.kind}: no shared memory, or not all ranks came to it")

    def all_reduce(self, x: Array) -> None:
        if self._library.strettoLabAllReduce(self._opened, x.ctypes.data, x.size):
            raise RuntimeError(f"{self.kind}: a rank has not come to a barrier for a minute")

    def close(self) -> None:
        self._library.strettoLabClose(self._opened)


class Gloo(Backend):
    """torch.distributed, which shares the arrays' memory."""

    def __init__(self, job: Job) -> None:
        try:
            import torch
            import torch.distributed
        except ImportError as error:
            raise Missing("torch is not installed in this Python: pip install torch") from error
        self._torch: Any = torch
        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{job.folder}/store",
            rank=job.rank,
            world_size=job.ranks,
            timeout=timedelta(seconds=_SECONDS),
        )
        self.version = f"torch {torch.__version__}"

    def all_reduce(self, x: Array) -> None:
        self._torch.distributed.all_reduce(self._torch.from_numpy(x))

    def close(self) -> None:
        self._torch.distributed.destroy_process_group()


def _of_kind(name: str) -> type[Backend]:
    return type(name, (Baseline,), {"kind": name})


BACKENDS: dict[str, type[Any]] = {
    "stretto": Stretto,
    "stretto-fused": StrettoFused,
    "stretto-sequence": StrettoSequence,
    "stretto-overlapped": StrettoOverlapped,
    **{kind: _of_kind(kind) for kind in KINDS if kind != UNSAFE},
    "gloo": Gloo,
}
# These cut the batch among the ranks.
SEQUENCE = ("stretto-sequence", "stretto-overlapped")
DEFAULT = ("stretto", "stretto-fused", "1stage", "1stage-nosync", "2stage-nosync", "gloo")

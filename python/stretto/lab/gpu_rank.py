"""One rank of the lab's layer or decode step on a GPU: the protocol of `decode_rank`, whose step is one CUDA graph.

measure: replays the graph, `steps` times. Times are those between events after each replay, so they hold no launch from
the host. Then the step is replayed a few times more, and each result is compared. Times by part are sums of the times
of one more replay's kernels, as PyTorch's profiler has them; that of communication is what these leave of the step's
time: all-reduces, what a rank waits in them, and gaps between kernels.

Two things are verified. Each backend's sum, residual and norm, in a graph of their own that is replayed with other
inputs each time: every element against float32 sums of what all ranks gave. And the step as a whole, on every rank,
against what rank 0 computes without shards: coarsely, as bfloat16 rounds otherwise on each number of ranks.
"""

from __future__ import annotations

import os
import statistics
import sys
import zlib
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from stretto.bench.drivers import Missing
from stretto.errors import StrettoError
from stretto.lab.backends import Job
from stretto.lab.decode_rank import Reply, arguments, serve
from stretto.lab.gpu_backends import BACKENDS, Backend
from stretto.lab.gpu_kernels import part_of
from stretto.lab.gpu_model import TYPE, Model, random, reference
from stretto.lab.model import EPSILON, QWEN3_8B, Parts, Shape

_SECONDS = 60
_PAUSE_CYCLES = 700_000
_TOLERANCE = 0.1  # of the largest element; 0.03 to 0.045 were seen
_CHECKS = 3
_DEPTH = 256  # of the products whose sums are verified
# Of the magnitudes that are added: a rounding to bfloat16 after each addition, as some do, and of the norm.
_CLOSE = 0.01

_T = TypeVar("_T")


class Session:
    """The state between commands."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self._job, self._device = job, device
        self._stream = torch.cuda.Stream(device)
        self._graphs: dict[str, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._wrong_sums: dict[str, int] = {}
        self._shape: Shape | None = None
        self._model: Model | None = None

    def open(self, names: list[str]) -> None:
        """On all ranks in the same order; what one rank lacks is left out on every one."""
        self._backends: dict[str, Backend] = {}
        self._missing: dict[str, str] = {}
        for name in names:
            why = ""
            try:
                self._backends[name] = BACKENDS[name].open(self._job.most_bytes)
            except (Missing, StrettoError, RuntimeError, OSError) as error:
                why = str(error)
            lacking = torch.tensor([int(bool(why))])
            dist.all_reduce(lacking)
            if lacking.item():
                self._backends.pop(name, None)
                self._missing[name] = why or "another rank cannot open it"

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
        self._wrong_sums.clear()
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
            self._wrong_sums[name] = self._count_wrong_sums(backend)
            model = self._model
            self._graphs[name] = self._captured(lambda: model.step(backend), backend)
        return self._graphs[name]

    def _count_wrong_sums(self, backend: Backend) -> int:
        """Elements of two operations in a graph, the second on the first one's results, that are not the sum of all
        ranks' parts, the residual added, or not the norm of that; three times with other parts.
        """
        tokens, hidden = self._expected.shape
        x, residual = (torch.zeros((tokens, width), dtype=TYPE, device=self._device) for width in (_DEPTH, hidden))
        weights = [random(rank, self._device, hidden, _DEPTH) * _DEPTH**-0.5 for rank in range(self._job.ranks)]
        gamma = 1 + 0.1 * random(99, self._device, hidden)

        def operate(x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            partial = backend.product(x[:, :_DEPTH].contiguous(), weights[self._job.rank])
            return backend.reduce_add_norm(partial, residual.clone(), gamma)

        def operate_twice() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
            first = operate(x, residual)
            return first, operate(*first)

        graph, (first, second) = self._captured(operate_twice, backend)
        wrong = 0
        for turn in range(_CHECKS):
            x.copy_(random(1000 + turn, self._device, tokens, _DEPTH))
            residual.copy_(random(2000 + turn, self._device, tokens, hidden))
            self._meet()
            graph.replay()
            for given, kept, (normalised, added) in ((x, residual, first), (*first, second)):
                parts = [torch.nn.functional.linear(given[:, :_DEPTH], weight).float() for weight in weights]
                addends = torch.stack([*parts, kept.float()])
                exact, close = addends.sum(0), _CLOSE * (1 + addends.abs().sum(0))
                scale = torch.rsqrt(exact.square().mean(-1, keepdim=True) + EPSILON) * gamma.float()
                for got, right, bound in ((added, exact, close), (normalised, exact * scale, close * scale.abs())):
                    wrong += int((~((got.float() - right).abs() <= bound)).sum())
        return wrong

    def _captured(self, operate: Callable[[], _T], backend: Backend) -> tuple[torch.cuda.CUDAGraph, _T]:
        """A graph of it, and where its results are."""
        operate()  # what is compiled or connected at the first call
        self._meet()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            result = operate()
        backend.recorded()
        return graph, result

    def _meet(self) -> None:
        """Every rank is here and its GPU is idle."""
        self._stream.synchronize()
        dist.all_reduce(torch.zeros(1))

    def _measure(self, name: str, warmup: int, steps: int) -> Reply:
        graph, result = self._recorded(name)
        self._meet()
        torch.cuda._sleep(_PAUSE_CYCLES)  # so that launches are ahead of what they launch
        for _ in range(warmup):
            graph.replay()
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        ends[0].record()
        for end in ends[1:]:
            graph.replay()
            end.record()
        self._stream.synchronize()
        times = [before.elapsed_time(after) * 1000 for before, after in pairwise(ends)]
        parts = self._parts(graph)
        parts["communication"] = statistics.median(times) - sum(parts.values())
        found = self._checked(graph, result)
        found["wrong"] += self._wrong_sums[name]
        return {"ok": True, "batch_us": times, "parts_us": parts, **found}

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
        """Microseconds of one replay's kernels, but for communication."""
        self._meet()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            graph.replay()
            self._stream.synchronize()
        parts = dict.fromkeys(Parts.NAMES, 0.0)
        for event in seen.events():
            if event.device_type == torch.autograd.DeviceType.CUDA:
                parts[part_of(event.name)] += event.device_time_total
        return {**parts, "communication": 0.0}


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

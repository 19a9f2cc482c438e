"""Chains of dependent all-reduces for the driver of torch.distributed: what benchmarks/chain.hpp is for native ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Chain:
    """Times in nanoseconds, as in benchmarks/chain.hpp."""

    length: int = 1
    work: int = 0
    jitter: int = 0
    warmup: int = 0
    batches: int = 1
    late: int = 0
    late_rank: int = 0
    late_at: int = 0

    @classmethod
    def parse(cls, words: dict[str, str]) -> Chain:
        return cls(**{name: int(words[name]) for name in cls.__dataclass_fields__ if name in words})

    def work_of(self, rank: int, operation: int) -> int:
        """The same as on a native rank."""
        if not self.jitter:
            return self.work
        mixed = (operation * 64 + rank + 1) * 0x9E3779B97F4A7C15 & _WORD
        mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93 & _WORD
        return self.work + (mixed >> 32) % (self.jitter + 1)


def keep_busy(nanoseconds: int) -> None:
    """Keeps the core busy for that long, as arithmetic does."""
    until = time.perf_counter_ns() + nanoseconds
    while nanoseconds and time.perf_counter_ns() < until:
        pass


def run_chains(
    chain: Chain,
    rank: int,
    ranks: int,
    source: torch.Tensor,
    expected: torch.Tensor,
    all_reduce: Callable[[torch.Tensor], object],
    barrier: Callable[[], object],
) -> dict[str, Any]:
    """All batches; `source` is this rank's input, `expected` what one all-reduce makes of all inputs."""
    want = expected.double() * math.pow(ranks, chain.length - 1)
    tolerance = want * math.ldexp(chain.length, -23)
    times, wrong = [], 0
    began, ended = [0] * chain.length, [0] * chain.length
    for turn in range(chain.warmup + chain.batches):
        data = source.clone()
        barrier()
        for operation in range(chain.length):
            began[operation] = time.perf_counter_ns()
            if rank == chain.late_rank and operation == chain.late_at:
                keep_busy(chain.late)
            all_reduce(data)
            ended[operation] = time.perf_counter_ns()
            keep_busy(chain.work_of(rank, operation))
        taken = (time.perf_counter_ns() - began[0]) / 1000
        wrong += int((~((data.double() - want).abs() <= tolerance)).sum())
        times += [taken] if turn >= chain.warmup else []
    return {"ok": True, "wrong": wrong, "batch_us": times, "began": began, "ended": ended}

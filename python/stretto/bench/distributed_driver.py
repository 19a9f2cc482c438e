"""The driver of torch.distributed's backends between CPU ranks, speaking the protocol of benchmarks/driver.hpp: Gloo,
which has no C interface that a wheel ships, and this library as a backend.

The loop is this Python, and times hold torch's own overhead of some microseconds a call; the report says so. Run by
`stretto bench`, which passes the arguments.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from stretto.bench.torch_chain import Chain, run_chains
from stretto.bench.torch_driver import TYPES, Pattern, Reply, Unsupported, serve

INIT_SECONDS = 60
OPERATORS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")


class Session:
    """The state between commands: tensors, the operation as a callable, and the single calls timed so far."""

    def __init__(self, backend: str, rank: int, ranks: int) -> None:
        self._backend = backend
        self._rank = rank
        self._ranks = ranks
        self._run: Callable[[], object] = lambda: None
        self._request: dict[str, str] = {}
        self._input = torch.empty(0)
        self._expected: torch.Tensor | None = None
        self._result = torch.empty(0)
        self._source = torch.empty(0)
        self._singles: list[float] = []

    def answer(self, verb: str, words: dict[str, str]) -> Reply:
        if verb == "prepare":
            return self._prepare(words)
        if verb == "measure":
            return self._measure(words)
        if verb == "chain":
            return self._chain(words)
        return self._finish() if verb == "finish" else {"ok": True}

    def _prepare(self, words: dict[str, str]) -> Reply:
        self._request = words
        collective, dtype, op = words["collective"], words["type"], words["op"]
        self._refuse(collective, dtype, op)
        count, root = int(words["count"]), int(words["root"])
        pattern = Pattern(dtype, op, self._ranks)
        many = count * self._ranks
        sends_all = collective in ("all_to_all", "scatter", "reduce_scatter")
        receives_all = collective in ("all_to_all", "all_gather", "gather")
        self._source = pattern.of(self._rank, many if sends_all else count)
        self._input = self._source.clone()
        self._result = torch.empty(many if receives_all else count, dtype=self._source.dtype)
        # torch reduces and broadcasts in place only.
        if collective in ("all_reduce", "reduce", "broadcast"):
            self._result = self._input
        self._expected = self._expect(collective, pattern, count, root)
        self._run = self._bind(collective, op, root)
        self._singles = []
        try:
            wrong = self._checked_run()
        except RuntimeError as error:
            if "support" not in str(error):
                raise
            raise Unsupported(str(error).splitlines()[0]) from error  # this release of torch lacks it
        return {"ok": True, "wrong": wrong, "how": {"algorithm": "default", "protocol": "default"}}

    def _refuse(self, collective: str, dtype: str, op: str) -> None:
        if dtype not in TYPES:
            raise Unsupported(f"torch's {self._backend} has no {dtype}")
        if collective in REDUCING and op not in OPERATORS:
            raise Unsupported(f"torch's {self._backend} has no {op}")
        if self._request.get("algorithm") or self._request.get("protocol"):
            raise Unsupported("--algorithm and --protocol are for Stretto's own driver")

    def _expect(self, collective: str, pattern: Pattern, count: int, root: int) -> torch.Tensor | None:
        """What this rank must hold afterwards; None where it gets nothing."""
        mine = slice(self._rank * count, (self._rank + 1) * count)
        everyone = range(self._ranks)
        if collective == "reduce_scatter":
            return pattern.reduced(count * self._ranks)[mine]
        if collective in REDUCING:
            return pattern.reduced(count) if collective == "all_reduce" or self._rank == root else None
        if collective == "broadcast":
            return pattern.of(root, count)
        if collective == "scatter":
            return pattern.of(root, count * self._ranks)[mine]
        if collective == "send_recv":
            return pattern.of(1 - self._rank, count)
        if collective == "all_to_all":
            return torch.cat([pattern.of(rank, count * self._ranks)[mine] for rank in everyone])
        if collective == "gather" and self._rank != root:
            return None
        return torch.cat([pattern.of(rank, count) for rank in everyone])

    def _bind(self, collective: str, op: str, root: int) -> Callable[[], object]:
        data, result, at_root = self._input, self._result, self._rank == root
        if collective == "all_reduce":
            return lambda: dist.all_reduce(data, OPERATORS[op])
        if collective == "reduce":
            return lambda: dist.reduce(data, root, OPERATORS[op])
        if collective == "broadcast":
            return lambda: dist.broadcast(data, root)
        if collective == "all_to_all":
            return lambda: dist.all_to_all_single(result, data)
        if collective == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(result, data, OPERATORS[op])
        if collective == "send_recv":
            return self._ping_pong
        parts = list((data if collective == "scatter" else result).chunk(self._ranks))
        if collective == "all_gather":
            return lambda: dist.all_gather(parts, data)
        if collective == "gather":
            return lambda: dist.gather(data, parts if at_root else None, dst=root)
        return lambda: dist.scatter(result, parts if at_root else None, src=root)

    def _ping_pong(self) -> None:
        peer = 1 - self._rank
        if self._rank == 0:
            dist.send(self._input, peer)
        dist.recv(self._result, peer)
        if self._rank == 1:
            dist.send(self._input, peer)

    def _checked_run(self) -> int:
        self._result.fill_(101)
        self._input.copy_(self._source)
        self._run()
        return self._count_wrong()

    def _count_wrong(self) -> int:
        if self._request["check"] == "0" or self._expected is None:
            return 0
        return int((self._result != self._expected).sum())

    def _measure(self, words: dict[str, str]) -> Reply:
        in_place = self._result is self._input
        if in_place:
            self._input.zero_()  # zeros stay zeros, where sums of sums would overflow
        for _ in range(int(words["warmup"])):
            self._run()
        scale = 0.5e-3 if self._request["collective"] == "send_recv" else 1e-3
        means = self._time_batches(int(words["batch"]), int(words["batches"]), scale)
        self._time_singles(int(words["samples"]), scale)
        return {"ok": True, "wrong": 0 if in_place else self._count_wrong(), "batch_us": means}

    def _time_batches(self, batch: int, batches: int, scale: float) -> list[float]:
        means = []
        for _ in range(batches):
            dist.barrier()
            began = time.perf_counter_ns()
            for _ in range(batch):
                self._run()
            means.append((time.perf_counter_ns() - began) * scale / batch)
        if batch == 1:
            self._singles += means
        return means

    def _time_singles(self, count: int, scale: float) -> None:
        before = time.perf_counter_ns()
        for _ in range(count):
            self._run()
            after = time.perf_counter_ns()
            self._singles.append((after - before) * scale)
            before = after

    def _chain(self, words: dict[str, str]) -> Reply:
        if words.get("inside") == "1":
            raise Unsupported("cannot be made late inside an operation")
        if self._expected is None or self._request["collective"] != "all_reduce":
            raise Unsupported("a chain is of all-reduces")
        parsed = Chain.parse(words)
        return run_chains(parsed, self._rank, self._ranks, self._source, self._expected, dist.all_reduce, dist.barrier)

    def _finish(self) -> Reply:
        wrong = self._checked_run()
        ordered = sorted(self._singles) or [0.0]
        at = {q: ordered[math.ceil(q * (len(ordered) - 1))] for q in (0.5, 0.99, 1.0)}
        out = {"samples": len(self._singles), "p50": at[0.5], "p99": at[0.99], "max": at[1.0]}
        return {"ok": True, "wrong": wrong, **out}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["gloo", "stretto"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    known, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    if known.backend == "stretto":
        from stretto import pytorch

        pytorch.register()
    dist.init_process_group(
        known.backend,
        init_method=f"file://{known.folder}/store",
        rank=known.rank,
        world_size=known.ranks,
        timeout=timedelta(seconds=INIT_SECONDS),
    )
    first = {"ok": True, "rank": known.rank, "pid": os.getpid(), "version": f"torch {torch.__version__}"}
    session = Session(known.backend, known.rank, known.ranks)
    serve(known.folder, session.answer, {**first, "implementation": known.backend})
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One rank of the lab's layer or decode step, which speaks the protocol of benchmarks/driver.hpp in its own words:

backends                                 -> {"backends": {name: version}, "missing": {name: why}}
prepare scale= layers= batch= context=   -> makes shards and cache: {"ok"}
measure backend= steps= warmup=          -> {"batch_us": [...], "parts_us": {...}, "wrong", "error", "bits"}
close                                    -> ends the backends: {"ok"}
quit

Started by `stretto lab`, which passes the arguments. Rank 0 also computes the result without shards and leaves it in
the job's folder; every rank compares each of its steps with it. `bits` is a checksum over all steps' results.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from stretto.bench.drivers import Missing
from stretto.errors import StrettoError
from stretto.lab.backends import BACKENDS, Alone, Backend, Job
from stretto.lab.model import QWEN3_8B, Array, Model, Parts, Shape, reference

Reply = dict[str, Any]
# Of the largest element: float32 sums of thousands of products, in another order on each number of ranks. A shard that
# is missing or doubled changes a third of it and more.
_TOLERANCE = 1e-3


class Session:
    """The state between commands."""

    def __init__(self, job: Job, backends: dict[str, Backend], missing: dict[str, str]) -> None:
        self._job, self._backends, self._missing = job, backends, missing
        self._shape: Shape | None = None
        self._model: Model | None = None
        self._expected: Array | None = None
        self._parts = Parts(time.perf_counter_ns)

    def answer(self, verb: str, words: dict[str, str]) -> Reply:
        if verb == "prepare":
            numbers = (int(words[name]) for name in ("scale", "layers", "batch", "context"))
            return self._prepare(*numbers)
        if verb == "measure":
            return self._measure(self._backends[words["backend"]], int(words["warmup"]), int(words["steps"]))
        if verb == "backends":
            versions = {name: backend.version for name, backend in self._backends.items()}
            return {"ok": True, "backends": versions, "missing": self._missing}
        if verb == "close":
            for backend in self._backends.values():
                backend.close()
        return {"ok": True}

    def _prepare(self, scale: int, layers: int, batch: int, context: int) -> Reply:
        shape = QWEN3_8B.scaled(scale, layers)
        if shape != self._shape or self._model is None:
            self._shape, self._model = shape, Model(shape, self._job.rank, self._job.ranks)
        self._model.prepare(batch, context)
        self._expected = None
        if self._job.rank == 0:
            np.save(self._reference, reference(shape, batch, context, Alone(), time.perf_counter_ns))
        return {"ok": True}

    @property
    def _reference(self) -> Path:
        return self._job.folder / "reference.npy"

    def _measure(self, backend: Backend, warmup: int, steps: int) -> Reply:
        assert self._model is not None, "prepared before it is measured"
        if self._expected is None:
            self._expected = np.load(self._reference)
        times, totals, checked = [], dict.fromkeys(Parts.NAMES, 0), _Checked(self._expected)
        for step in range(warmup + steps):
            began = time.perf_counter_ns()
            result = self._model.step(backend, self._parts)
            taken = time.perf_counter_ns() - began
            checked.add(result)
            if step >= warmup:
                times.append(taken / 1000)
                for name, spent in self._parts.totals.items():
                    totals[name] += spent
        by_part = {name: total / steps / 1000 for name, total in totals.items()}
        found = {"wrong": checked.wrong, "error": checked.error, "bits": checked.bits}
        return {"ok": True, "batch_us": times, "parts_us": by_part, **found}


class _Checked:
    """The results of a turn's steps. The steps compute the same, so only bits that a turn has not seen yet are compared
    with the reference.
    """

    def __init__(self, expected: Array) -> None:
        self._expected, self._largest = expected, float(np.abs(expected).max())
        self._wrong_of: dict[int, int] = {}
        self.wrong, self.error, self.bits = 0, 0.0, 0

    def add(self, result: Array) -> None:
        step = zlib.crc32(np.ascontiguousarray(result).data)
        self.bits = zlib.crc32(step.to_bytes(4, "little"), self.bits)
        if step not in self._wrong_of:
            self._wrong_of[step] = self._compare(result)
        self.wrong += self._wrong_of[step]

    def _compare(self, result: Array) -> int:
        difference = np.abs(result - self._expected) / self._largest
        # A NaN differs without end, and is neither in the tolerance nor above it.
        self.error = max(self.error, float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf).max()))
        return int((~(difference <= _TOLERANCE)).sum())


def _open(job: Job, names: list[str]) -> tuple[dict[str, Backend], dict[str, str]]:
    opened, missing = {}, {}
    for name in names:
        try:
            opened[name] = BACKENDS[name](job)
        except (Missing, StrettoError, RuntimeError) as error:
            missing[name] = str(error)
    return opened, missing


def serve(session: Any, job: Job, first: Reply) -> None:
    """Obeys until told to quit, or until the orchestrator is gone."""
    with (job.folder / f"in.{job.rank}").open() as commands, (job.folder / f"out.{job.rank}").open("w") as replies:
        print(json.dumps(first), file=replies, flush=True)
        for line in iter(commands.readline, ""):
            verb, *pairs = line.split()
            words = dict(pair.split("=", 1) for pair in pairs)
            # The last resort against a rank that nobody is left to kill.
            signal.alarm(int(words.get("seconds", 0)))
            try:
                reply = session.answer(verb, words)
            except (StrettoError, RuntimeError, ValueError, MemoryError) as error:
                reply = {"ok": False, "error": str(error) or type(error).__name__}
            signal.alarm(0)
            print(json.dumps(reply), file=replies, flush=True)
            if verb == "quit":
                return


def arguments(about: str | None) -> tuple[Job, list[str]]:
    """What `stretto lab` passes to a rank: the job, and the names of the backends."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--folder", type=Path, required=True)
    for name in ("rank", "ranks", "most-bytes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--backends", required=True)
    known = parser.parse_args()
    unique_id = bytes.fromhex(os.environ["STRETTO_UNIQUE_ID"])
    return Job(known.folder, known.rank, known.ranks, known.most_bytes, unique_id), known.backends.split(",")


def main() -> int:
    job, names = arguments(__doc__)
    session = Session(job, *_open(job, names))
    version = f"numpy {np.__version__}"
    serve(session, job, {"ok": True, "rank": job.rank, "pid": os.getpid(), "version": version})
    return 0


if __name__ == "__main__":
    sys.exit(main())

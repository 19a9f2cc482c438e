"""One rank that measures what it is told, in Python: what `stretto_driver` does natively
(benchmarks/driver.hpp has the words of the protocol). Python's part of a call, about a microsecond, is in
its times, alike for every candidate.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stretto
from stretto.rank_threads import run_threads

_ELEMENT = 4


def _calls(comm: stretto.Communicator, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    """Each collective as a call on one pair of arrays, `a` in and `b` out."""
    return {
        "all_reduce": lambda: comm.all_reduce(a, out=b),
        "reduce": lambda: comm.reduce(a, out=b),
        "broadcast": lambda: comm.broadcast(a, out=b),
        "reduce_scatter": lambda: comm.reduce_scatter(a, out=b),
        "all_gather": lambda: comm.all_gather(a, out=b),
        "all_to_all": lambda: comm.all_to_all(a, out=b),
        "gather": lambda: comm.gather(a, out=b),
        "scatter": lambda: comm.scatter(a, out=b),
    }


def expected(collective: str, count: int, rank: int, ranks: int) -> Any:
    """What the result must be when rank r's input holds r + 1 in its element 0, r + 2 in element 1, ...
    modulo 7.
    """
    inputs = [source(collective, count, r, ranks) for r in range(ranks)]
    mine = slice(rank * count, (rank + 1) * count)
    if collective in ("reduce", "gather") and rank != 0:
        return None
    if collective in ("all_reduce", "reduce"):
        return np.sum(inputs, axis=0, dtype=np.float32)
    if collective == "reduce_scatter":
        return np.sum([one[mine] for one in inputs], axis=0, dtype=np.float32)
    if collective in ("all_gather", "gather"):
        return np.concatenate(inputs)
    if collective == "all_to_all":
        return np.concatenate([one[mine] for one in inputs])
    return inputs[0][mine] if collective == "scatter" else inputs[0]


def source(collective: str, count: int, rank: int, ranks: int) -> Any:
    """Rank `rank`'s input: small whole numbers, so that every order of summing gives the same."""
    total = count * ranks if collective in ("reduce_scatter", "all_to_all", "scatter") else count
    return ((np.arange(total) + rank) % 7 + 1).astype(np.float32)


class Session:
    """One rank's state between commands."""

    def __init__(self, comm: stretto.Communicator) -> None:
        self._comm = comm
        self._run: Callable[[], Any] = comm.barrier

    def answer(self, words: dict[str, str]) -> dict[str, Any]:
        try:
            if words["verb"] == "prepare":
                return {"ok": True, **self._prepare(words)}
            if words["verb"] == "measure":
                return {"ok": True, "batch_us": self._measure(words)}
            return {"ok": True}
        except stretto.StrettoError as error:
            return {"ok": False, "error": str(error)}

    def _prepare(self, words: dict[str, str]) -> dict[str, Any]:
        comm, collective, count = self._comm, words["collective"], int(words["count"])
        whole = collective in ("all_gather", "all_to_all", "gather")
        a = source(collective, count, comm.rank, comm.size)
        b = np.full(count * comm.size if whole else count, np.nan, np.float32)
        self._run = _calls(comm, a, b)[collective]
        comm.force(collective, words.get("algorithm"), words.get("protocol"))
        self._run()
        wrong = 0
        right = expected(collective, count, comm.rank, comm.size) if words["check"] == "1" else None
        if right is not None and not (collective == "broadcast" and comm.rank == 0):
            wrong = int(np.count_nonzero(b != right))
        return {"wrong": wrong, "how": comm.explain(collective, max(a.nbytes, b.nbytes))}

    def _measure(self, words: dict[str, str]) -> list[float]:
        for _ in range(int(words["warmup"])):
            self._run()
        batch, run, times = int(words["batch"]), self._run, []
        for _ in range(int(words["batches"])):
            self._comm.barrier()
            began = time.perf_counter()
            for _ in range(batch):
                run()
            times.append((time.perf_counter() - began) * 1e6 / batch)
        return times


def serve(rank: int, folder: Path) -> None:
    """Joins, says so, and obeys until told to quit or until the other end is gone."""
    with (
        (folder / f"in.{rank}").open() as commands,
        (folder / f"out.{rank}").open("w") as answers,
        stretto.init() as comm,
    ):
        hello = {"ok": True, "rank": rank, "pid": os.getpid(), "implementation": "stretto (Python)"}
        print(json.dumps({**hello, "version": stretto.__version__}), file=answers, flush=True)
        session = Session(comm)
        for line in commands:
            verb, *pairs = line.split()
            words = {"verb": verb, **dict(pair.split("=", 1) for pair in pairs)}
            print(json.dumps(session.answer(words)), file=answers, flush=True)
            if verb == "quit":
                return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        run_threads(arguments.threads, lambda rank: serve(rank, arguments.folder))
    else:
        os.environ["STRETTO_RANK"] = str(arguments.rank)
        serve(arguments.rank, arguments.folder)


if __name__ == "__main__":
    main()

"""One host of `stretto tune --hosts`: a rank that joins the others and times messages between neighbours.

Three numbers feed the planner's model (planner::HostLinks, "between_hosts" of a table):

* `hop_us`, half the round trip of 8 bytes;
* `bytes_per_us`, what goes through one link while as much comes the other way, with messages that last 0.1 s or are
  64 MB long;
* `message_us`, what each further chunk of a message takes: the same message in chunks of 4 KB and of 64 KB.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stretto
from stretto.by_lines import Answer, Command, Line
from stretto.tuning import table

_SMALL_CHUNK, _CHUNK = 4096, 65536
_CHUNKED = 1 << 20
_LEAST, _MOST = 1 << 20, 64 << 20
_MESSAGE_SECONDS = 0.1
_LEAST_US = 0.01  # of a chunk: two times that hardly differ may do so the wrong way round


def _took_us(run: Callable[[], object], times: int, divisor: int = 1) -> float:
    """The first quartile: what a link does while little else disturbs the two ends."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append((time.perf_counter() - began) * 1e6 / divisor)
    return statistics.quantiles(found, n=4)[0]


class Pair:
    """This rank's side of the measurements with one other. Both sides run the same ones in the same order."""

    def __init__(self, comm: stretto.Communicator, peer: int, quick: bool) -> None:
        self._comm, self._peer = comm, peer
        self._begins = comm.rank < peer
        self._turns = 5 if quick else 15

    def measure(self) -> dict[str, float]:
        hop = self._hop()
        message = self._message()
        bytes, us = self._both_ways()
        return {"hop_us": round(hop, 3), "message_us": round(message, 3), "bytes_per_us": round(bytes / us, 3)}

    def _there_and_back(self, outward: Any, homeward: Any, rounds: int = 1) -> None:
        for _ in range(rounds):
            if self._begins:
                self._comm.send(outward, self._peer)
                self._comm.recv(homeward, self._peer)
            else:
                self._comm.recv(outward, self._peer)
                self._comm.send(homeward, self._peer)

    def _hop(self) -> float:
        word, rounds = np.zeros(8, np.uint8), 20
        self._there_and_back(word, word, rounds)  # connects
        return _took_us(lambda: self._there_and_back(word, word, rounds), 3 * self._turns, 2 * rounds)

    def _message(self) -> float:
        there, back = np.zeros(_CHUNKED, np.uint8), np.zeros(8, np.uint8)
        took = {}
        for chunk in (_SMALL_CHUNK, _CHUNK):
            for collective in ("send", "receive"):
                self._comm.force(collective, "flat", "simple", chunk)
            self._there_and_back(there, back)
            took[chunk] = _took_us(lambda: self._there_and_back(there, back), self._turns)
        for collective in ("send", "receive"):
            self._comm.force(collective, None)
        more = _CHUNKED // _SMALL_CHUNK - _CHUNKED // _CHUNK
        return max(_LEAST_US, (took[_SMALL_CHUNK] - took[_CHUNK]) / more)

    def _both_ways(self) -> tuple[int, float]:
        """Bytes of a message that is long enough, verified once, and what it takes."""
        bytes = _LEAST
        while True:
            sent = self._pattern(bytes, self._comm.rank)
            received = np.zeros(bytes, np.uint8)

            def exchange(sent: Any = sent, received: Any = received) -> None:
                with stretto.group():
                    self._comm.send(sent, self._peer)
                    self._comm.recv(received, self._peer)

            exchange()
            if not np.array_equal(received, self._pattern(bytes, self._peer)):
                raise stretto.InternalError(f"{bytes} bytes from rank {self._peer} came with other contents")
            us = _took_us(exchange, 3)
            # Both sides go by the slower one.
            slower = np.array([us])
            others = np.zeros(1)
            with stretto.group():
                self._comm.send(slower, self._peer)
                self._comm.recv(others, self._peer)
            us = max(us, float(others[0]))
            if us >= _MESSAGE_SECONDS * 1e6 or bytes >= _MOST:
                return bytes, _took_us(exchange, self._turns)
            bytes *= 4

    @staticmethod
    def _pattern(bytes: int, rank: int) -> Any:
        return ((np.arange(bytes, dtype=np.uint32) * 7 + rank) % 251).astype(np.uint8)


def neighbours(ranks: int) -> list[tuple[int, int]]:
    """Which pairs are measured: those of a ring, one after the other."""
    if ranks == 2:
        return [(0, 1)]
    return [(min(a, b), max(a, b)) for a, b in ((rank, (rank + 1) % ranks) for rank in range(ranks))]


def slowest(pairs: list[dict[str, Any]]) -> dict[str, float]:
    """What all links do at least: an operation waits for the slowest."""
    return {
        "hop_us": max(pair["hop_us"] for pair in pairs),
        "message_us": max(pair["message_us"] for pair in pairs),
        "bytes_per_us": min(pair["bytes_per_us"] for pair in pairs),
    }


def _measure(command: Command) -> Answer:
    """The pairs in which this rank is the lower one."""
    rank, ranks = command["rank"], command["ranks"]
    found = []
    with stretto.init(rank=rank, ranks=ranks, unique_id=bytes.fromhex(command["id"])) as comm:
        for pair in neighbours(ranks):
            comm.barrier()
            if rank in pair:
                peer = pair[1] if rank == pair[0] else pair[0]
                measured = Pair(comm, peer, command["quick"]).measure()
                if rank == pair[0]:
                    found.append({"from": rank, "to": peer, **measured})
        comm.barrier()
    return {"pairs": found}


def _obey(command: Command) -> Answer:
    try:
        if command["do"] == "meet":
            return {"id": stretto.unique_id().hex()}
        if command["do"] == "write":
            path = Path(command["path"])
            table.write(path, command["document"])
            return {"path": str(path)}
        return _measure(command)
    except (OSError, stretto.StrettoError) as problem:
        return {"error": str(problem) or type(problem).__name__}


def main() -> int:
    from stretto.bench.job import terminable

    line = Line()
    with terminable():
        for command in line.commands():
            line.say(_obey(command))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One host of `stretto tune --hosts`: ranks that join those of the others and time messages between neighbours.

Four numbers feed the planner's model (planner::HostLinks, "between_hosts" of a table):

* `hop_us`, half the round trip of 8 bytes;
* `message_us`, what each further chunk of a message takes: the same message in chunks of 4 KB and of 64 KB;
* `bytes_per_us`, what goes through one link while as much comes the other way, with messages that last 0.1 s or are
  64 MB long;
* `host_bytes_per_us`, what goes through several links of a host together: where it is hardly more than one link has,
  the network card is the bound, else the processor.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stretto
from stretto.by_lines import Answer, Command, Line
from stretto.rank_threads import run_threads
from stretto.tuning import table

_SMALL_CHUNK, _CHUNK = 4096, 65536
_CHUNKED = 1 << 20
_LEAST, _MOST = 1 << 20, 64 << 20
_MESSAGE_SECONDS = 0.1
_PATIENCE = 300.0  # seconds that the ranks of a host wait for each other before an exchange
_LEAST_US = 0.01  # of a chunk: two times that hardly differ may do so the wrong way round


def _all_us(run: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append((time.perf_counter() - began) * 1e6)
    return found


def _usual(times: list[float]) -> float:
    """The first quartile: what a link does while little else disturbs the two ends."""
    return statistics.quantiles(times, n=4)[0]


def _took_us(run: Callable[[], object], times: int) -> float:
    return _usual(_all_us(run, times))


class Pair:
    """This rank's side of the measurements with one other. Both sides run the same ones in the same order."""

    def __init__(self, comm: stretto.Communicator, peer: int, turns: int) -> None:
        self._comm, self._peer, self._turns = comm, peer, turns
        self._begins = comm.rank < peer

    def _there_and_back(self, outward: Any, homeward: Any, rounds: int = 1) -> None:
        for _ in range(rounds):
            if self._begins:
                self._comm.send(outward, self._peer)
                self._comm.recv(homeward, self._peer)
            else:
                self._comm.recv(outward, self._peer)
                self._comm.send(homeward, self._peer)

    def _exchange(self, sent: Any, received: Any) -> None:
        with stretto.group():
            self._comm.send(sent, self._peer)
            self._comm.recv(received, self._peer)

    def hop_us(self) -> float:
        word, rounds = np.zeros(8, np.uint8), 20
        self._there_and_back(word, word, rounds)  # connects
        return _took_us(lambda: self._there_and_back(word, word, rounds), 3 * self._turns) / (2 * rounds)

    def message_us(self) -> float:
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

    def exchanges_us(self, bytes: int, begins: Callable[[], object] = lambda: None) -> list[float]:
        """Both ways at once, several times. What comes is verified once. `begins` is called before each."""
        sent, received = self._pattern(bytes, self._comm.rank), np.zeros(bytes, np.uint8)
        self._exchange(sent, received)
        if not np.array_equal(received, self._pattern(bytes, self._peer)):
            raise stretto.InternalError(f"{bytes} bytes from rank {self._peer} came with other contents")
        times = []
        for _ in range(self._turns):
            begins()
            times += _all_us(lambda: self._exchange(sent, received), 1)
        return times

    def long_message(self) -> int:
        """So many bytes that an exchange lasts for a while. Both sides come to the same."""
        bytes = _LEAST
        while bytes < _MOST:
            sent, received = np.zeros(bytes, np.uint8), np.zeros(bytes, np.uint8)
            mine, other = np.array([_took_us(lambda: self._exchange(sent, received), 3)]), np.zeros(1)  # noqa: B023
            self._exchange(mine, other)
            if max(mine[0], other[0]) >= _MESSAGE_SECONDS * 1e6:
                break
            bytes *= 4
        return bytes

    @staticmethod
    def _pattern(bytes: int, rank: int) -> Any:
        return ((np.arange(bytes, dtype=np.uint32) * 7 + rank) % 251).astype(np.uint8)


def neighbours(hosts: int) -> list[tuple[int, int]]:
    """Which pairs are measured: those of a ring, one after the other."""
    if hosts == 2:
        return [(0, 1)]
    return [(min(a, b), max(a, b)) for a, b in ((host, (host + 1) % hosts) for host in range(hosts))]


def slowest(pairs: list[dict[str, Any]]) -> dict[str, float]:
    """What all links do at least: an operation waits for the slowest."""
    return {
        "hop_us": max(pair["hop_us"] for pair in pairs),
        "message_us": max(pair["message_us"] for pair in pairs),
        "bytes_per_us": min(pair["bytes_per_us"] for pair in pairs),
        "host_bytes_per_us": min(pair["host_bytes_per_us"] for pair in pairs),
    }


class Host:
    """This host's part of all measurements, as `command` says: host HOST of HOSTS."""

    def __init__(self, command: Command) -> None:
        self._host, self._hosts, self._width = command["host"], command["hosts"], command["width"]
        self._alone, self._together = (bytes.fromhex(text) for text in command["ids"])
        self._turns = 5 if command["quick"] else 15
        self._bytes: dict[int, int] = {}
        self._start = threading.Barrier(self._width)

    def measure(self) -> list[dict[str, Any]]:
        """The pairs in which this host is the lower one."""
        found = self._one_rank()
        together = run_threads(self._width, self._of_several)
        rates = {}
        for peer, bytes in self._bytes.items():
            slowest_of_each = [max(times) for times in zip(*(one[peer] for one in together), strict=True)]
            rates[peer] = self._width * bytes / _usual(slowest_of_each)
        return [{**pair, "host_bytes_per_us": round(rates[pair["to"]], 3)} for pair in found]

    def _peers(self, comm: stretto.Communicator) -> Iterator[int]:
        """The other host of each pair with this one, when it is that pair's turn."""
        for pair in neighbours(self._hosts):
            comm.barrier()
            if self._host in pair:
                yield pair[1] if self._host == pair[0] else pair[0]
        comm.barrier()

    def _one_rank(self) -> list[dict[str, Any]]:
        found = []
        with stretto.init(rank=self._host, ranks=self._hosts, unique_id=self._alone) as comm:
            for peer in self._peers(comm):
                pair = Pair(comm, peer, self._turns)
                hop, message = pair.hop_us(), pair.message_us()
                self._bytes[peer] = pair.long_message()
                rate = self._bytes[peer] / _usual(pair.exchanges_us(self._bytes[peer]))
                if self._host < peer:
                    times = {"hop_us": round(hop, 3), "message_us": round(message, 3)}
                    found.append({"from": self._host, "to": peer, **times, "bytes_per_us": round(rate, 3)})
        return found

    def _of_several(self, thread: int) -> dict[int, list[float]]:
        """What exchanges with each peer take one of several ranks of this host, which begin each together."""
        rank, ranks = self._host * self._width + thread, self._hosts * self._width
        with stretto.init(rank=rank, ranks=ranks, unique_id=self._together) as comm:
            found = {}
            for peer in self._peers(comm):
                pair = Pair(comm, peer * self._width + thread, self._turns)
                found[peer] = pair.exchanges_us(self._bytes[peer], self._begin_together)
            return found

    def _begin_together(self) -> None:
        self._start.wait(_PATIENCE)


def obey(command: Command) -> Answer:
    try:
        if command["do"] == "meet":
            ids = [stretto.unique_id().hex() for _ in range(2)] if command["makes"] else []
            return {"ids": ids, "cores": len(os.sched_getaffinity(0))}
        if command["do"] == "write":
            path = Path(command["path"])
            table.write(path, command["document"])
            return {"path": str(path)}
        return {"pairs": Host(command).measure()}
    except threading.BrokenBarrierError:
        return {"error": "the ranks of this host do not begin together: one of them has failed, or is stuck"}
    except (OSError, stretto.StrettoError) as problem:
        return {"error": str(problem) or type(problem).__name__}


def main() -> int:
    from stretto.bench.job import terminable

    line = Line()
    os.environ.pop("STRETTO_TABLE", None)  # that of before is not what is measured, and may not be on all hosts
    with terminable():
        for command in line.commands():
            line.say(obey(command))
    return 0


if __name__ == "__main__":
    sys.exit(main())

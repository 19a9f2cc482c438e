"""What the drivers that are written in Python have in common: inputs, commands, and the loop that obeys them. They
speak the protocol of benchmarks/driver.hpp, through torch; this module is imported by them alone.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Reply = dict[str, Any]
Answer = Callable[[str, dict[str, str]], Reply]
PERIOD = 1021  # of the inputs, as in benchmarks/pattern.hpp
# Largest whole number up to which all are exact, so that sums over ranks stay exact.
EXACT = {"int8": 127, "uint8": 255, "float16": 2048, "bfloat16": 256}
TYPES = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
}


class Unsupported(Exception):
    """The implementation cannot do this; the text says what."""


def _mix(index: torch.Tensor) -> torch.Tensor:
    mixed = ((index + 1) * 2654435761) % (1 << 32)
    return mixed ^ (mixed >> 15)


class Pattern:
    """Inputs whose values depend on rank and index, and the reduction of all ranks' inputs. `turn` makes others."""

    def __init__(self, dtype: str, op: str, ranks: int, device: str = "cpu") -> None:
        self._dtype = TYPES[dtype]
        self._op = op
        self._ranks = ranks
        self._device = device
        exact = EXACT.get(dtype, 1 << 20)
        self._limit = min(63, exact // ranks if op == "sum" else exact)

    def _values(self, rank: int) -> torch.Tensor:
        index = torch.arange(PERIOD, dtype=torch.int64)
        if self._op == "prod":  # at most six ranks hold a 2, so that an int8 holds the product
            return torch.where((_mix(index) + rank) % self._ranks < 6, 2, 1)
        return _mix(index * 64 + rank) % (self._limit + 1)

    def _repeat(self, values: torch.Tensor, count: int, turn: int) -> torch.Tensor:
        period = values.roll(turn * 389).to(dtype=self._dtype, device=self._device)
        return period.repeat(count // PERIOD + 1)[:count]

    def of(self, rank: int, count: int, turn: int = 0) -> torch.Tensor:
        return self._repeat(self._values(rank), count, turn)

    def reduced(self, count: int, turn: int = 0) -> torch.Tensor:
        all_ranks = torch.stack([self._values(rank) for rank in range(self._ranks)])
        if self._op == "sum":
            return self._repeat(all_ranks.sum(0), count, turn)
        if self._op == "prod":
            return self._repeat(all_ranks.prod(0), count, turn)
        return self._repeat(all_ranks.amax(0) if self._op == "max" else all_ranks.amin(0), count, turn)


def parse_command(line: str) -> tuple[str, dict[str, str]]:
    verb, *pairs = line.split()
    return verb, dict(pair.split("=", 1) for pair in pairs)


def serve(folder: Path, answer: Answer, first: Reply) -> None:
    """Obeys until told to quit, or until the orchestrator is gone."""
    rank = first["rank"]
    with (folder / f"in.{rank}").open() as commands, (folder / f"out.{rank}").open("w") as replies:
        print(json.dumps(first), file=replies, flush=True)
        for line in iter(commands.readline, ""):
            verb, words = parse_command(line)
            # The last resort against a rank that nobody is left to kill.
            signal.alarm(int(words.get("seconds", 0)))
            try:
                reply = answer(verb, words)
            except Unsupported as reason:
                reply = {"ok": False, "unsupported": str(reason)}
            except (RuntimeError, ValueError) as error:
                reply = {"ok": False, "error": str(error).splitlines()[0]}
            signal.alarm(0)
            print(json.dumps(reply), file=replies, flush=True)
            if verb == "quit":
                return

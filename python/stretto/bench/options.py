"""What a user can ask of the benchmark, checked once. The command line gives each field a flag."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stretto.bench.workload import COLLECTIVES, ELEMENT_BYTES, OPERATORS, TYPE_ALIASES, parse_size, sweep

# Annotations stay real types here: the command line reads them.


class UsageError(ValueError):
    """The user asked for something that makes no sense, or that is not to be had; the text says which."""


@dataclass(frozen=True)
class Options:
    collective: str = "all_reduce"
    ranks: int = 2
    device: str = "cpu"
    threads: bool = False
    min_bytes: str = "8"
    max_bytes: str = "64M"
    factor: int = 2
    iterations: int = 0
    warmup: int = 5
    datatype: str = "float32"
    op: str = "sum"
    root: int = 0
    check: int = 1
    in_place: bool = False
    buffers: str = "plain"
    peers: str = "all"
    algorithm: str = ""
    protocol: str = ""
    rounds: int = 7
    budget_ms: float = 30.0
    bind: str = "core"
    timeout: float = 60.0
    json: Path | None = None
    plot: Path | None = None

    @property
    def dtype(self) -> str:
        return TYPE_ALIASES.get(self.datatype, self.datatype)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def sizes(self) -> list[int]:
        return sweep(parse_size(self.min_bytes), parse_size(self.max_bytes), self.factor)

    def validate(self) -> None:
        """Raises UsageError on the first thing that is wrong."""
        self._expect("collective", self.collective, COLLECTIVES)
        self._expect("datatype", self.dtype, ELEMENT_BYTES)
        self._expect("op", self.op, OPERATORS)
        self._expect("device", self.device, ("cpu",))
        self._expect("buffers", self.buffers, ("plain", "alloc"))
        self._expect("bind", self.bind, ("core", "none"))
        self._expect("check", self.check, (0, 1))
        try:
            _ = self.sizes
        except ValueError as error:
            raise UsageError(str(error)) from error
        for name, value, least in (
            ("ranks", self.ranks, 1),
            ("rounds", self.rounds, 1),
            ("n", self.iterations, 0),
        ):
            if value < least:
                raise UsageError(f"--{name} {value}: at least {least}")
        if self.warmup < 0 or self.budget_ms <= 0 or self.timeout <= 0:
            raise UsageError("warm-up, budget and timeout cannot be negative, nor the last two 0")
        if not 0 <= self.root < self.ranks:
            raise UsageError(f"--root {self.root}: ranks go from 0 to {self.ranks - 1}")
        if self.collective == "send_recv" and self.ranks != 2:
            raise UsageError("send_recv is a ping-pong of two ranks: use --ranks 2")
        if self.collective == "send_recv" and self.in_place:
            raise UsageError("send_recv has no in-place form: what comes back would be what was sent")
        if self.protocol and not self.algorithm:
            raise UsageError("--protocol needs --algorithm: a protocol belongs to an algorithm")

    @staticmethod
    def _expect(name: str, value: object, allowed: Collection[object]) -> None:
        if value not in allowed:
            choices = ", ".join(str(one) for one in allowed)
            raise UsageError(f"--{name} {value}: choose from {choices}")

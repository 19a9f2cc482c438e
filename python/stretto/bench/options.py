"""What a user can ask of the benchmark, checked once. The command line gives each field a flag."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stretto.bench.workload import COLLECTIVES, ELEMENT_BYTES, OPERATORS, TYPE_ALIASES, parse_size, sweep

MOST_RANKS = 64  # of one host: kMaxRanks in src/primitives/window.hpp
MOST_RANKS_OF_HOSTS = 1024  # of all hosts: kMostRanks there
MOST_GPU_RANKS = 16  # as in benchmarks/cuda/crew.hpp
TORCH = "torch-stretto"

# Annotations stay real types here: the command line reads them.


class UsageError(ValueError):
    """The user asked for something that makes no sense, or that is not to be had; the text says which."""


@dataclass(frozen=True)
class Options:
    collective: str = "all_reduce"
    ranks: int = 2
    device: str = "cpu"
    threads: bool = False
    shared_device: bool = False
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
    graph: bool | None = None
    buffers: str = "plain"
    peers: str = "all"
    library: Path | None = None
    nccl: Path | None = None
    algorithm: str = ""
    protocol: str = ""
    chunk: str = ""
    blocks: int = 0
    ring_gather: str = ""
    limits: bool = False
    rounds: int = 7
    budget_ms: float = 30.0
    bind: str = "core"
    seconds: float = 0.0
    timeout: float = 60.0
    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None
    compare: Path | None = None
    threshold: float = 10.0

    @property
    def dtype(self) -> str:
        return TYPE_ALIASES.get(self.datatype, self.datatype)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def in_graph(self) -> bool:
        """Whether operations run in CUDA graphs: on GPUs they do unless --eager says otherwise."""
        return self.on_gpu and self.graph is not False

    @property
    def chunk_bytes(self) -> int:
        return parse_size(self.chunk) if self.chunk else 0

    @property
    def sizes(self) -> list[int]:
        return sweep(parse_size(self.min_bytes), parse_size(self.max_bytes), self.factor)

    def validate(self) -> None:
        """Raises UsageError on the first thing that is wrong."""
        self._expect("collective", self.collective, COLLECTIVES)
        self._expect("datatype", self.dtype, ELEMENT_BYTES)
        self._expect("op", self.op, OPERATORS)
        self._expect("device", self.device, ("cpu", "cuda"))
        self._expect("buffers", self.buffers, ("plain", "alloc"))
        self._expect("bind", self.bind, ("core", "none"))
        self._expect("check", self.check, (0, 1))
        self._expect("ring-gather", self.ring_gather, ("", "one_way", "both_ways"))
        try:
            _ = self.sizes, self.chunk_bytes
        except ValueError as error:
            raise UsageError(str(error)) from error
        for name, value, least in (
            ("ranks", self.ranks, 1),
            ("rounds", self.rounds, 1),
            ("n", self.iterations, 0),
            ("blocks", self.blocks, 0),
        ):
            if value < least:
                raise UsageError(f"--{name} {value}: at least {least}")
        if self.limits and (self.compare or self.csv or self.json == Path("-")):
            raise UsageError("--compare, --csv and --json - are for a collective, not for --limits")
        if self.threshold < 0:
            raise UsageError(f"--threshold {self.threshold:g}: percent, at least 0")
        if min(self.warmup, self.seconds) < 0 or min(self.budget_ms, self.timeout) <= 0:
            raise UsageError("warm-up, seconds, budget and timeout cannot be negative, nor the last two 0")
        if not 0 <= self.root < self.ranks:
            raise UsageError(f"--root {self.root}: ranks go from 0 to {self.ranks - 1}")
        if self.on_gpu:
            self._validate_on_gpu()
        else:
            self._validate_on_cpu()
        if (self.protocol or self.chunk or self.blocks) and not self.algorithm:
            raise UsageError("--protocol, --chunk and --blocks need --algorithm: they belong to one")

    def _validate_on_gpu(self) -> None:
        if self.ranks > MOST_GPU_RANKS:
            raise UsageError(f"--ranks {self.ranks}: at most {MOST_GPU_RANKS} on GPUs")
        if self.in_place and self.collective in ("send_recv", "all_to_all"):
            raise UsageError(f"{self.collective} has no in-place form")

    def _validate_on_cpu(self) -> None:
        if self.ranks > MOST_RANKS:
            raise UsageError(f"--ranks {self.ranks}: at most {MOST_RANKS}, as a communicator on one host has")
        given = {
            "--shared-device": self.shared_device,
            "--graph or --eager": self.graph is not None,
            "--library": self.library,
            "--nccl": self.nccl,
            "--chunk": self.chunk,
            "--blocks": self.blocks,
            "--limits": self.limits,
        }
        for flag, value in given.items():
            if value:
                raise UsageError(f"{flag} is for GPUs: use --device cuda")
        if self.collective == "send_recv" and self.ranks != 2:
            raise UsageError("send_recv is a ping-pong of two ranks: use --ranks 2")
        if self.collective == "send_recv" and self.in_place:
            raise UsageError("send_recv has no in-place form: what comes back would be what was sent")

    @staticmethod
    def _expect(name: str, value: object, allowed: Collection[object]) -> None:
        if value not in allowed:
            choices = ", ".join(str(one) for one in allowed)
            raise UsageError(f"--{name} {value}: choose from {choices}")

"""`stretto lab all-reduce`: the benchmark of one all-reduce with the lab's baselines among the peers."""

from dataclasses import dataclass
from pathlib import Path

from stretto.bench import run as bench
from stretto.bench.options import Options
from stretto.lab.contenders import contenders

# Annotations stay real types here: the command line reads them.


@dataclass(frozen=True)
class AllReduceOptions:
    ranks: int = 2
    device: str = "cpu"
    peers: str = "all"
    min_bytes: str = "1K"
    max_bytes: str = "4M"
    factor: int = 4
    graph: bool | None = None
    rounds: int = 7
    budget_ms: float = 30.0
    timeout: float = 60.0
    json: Path | None = None
    csv: Path | None = None
    plot: Path | None = None


def run(options: AllReduceOptions) -> int:
    """The exit status, which is that of `stretto bench`. Raises UsageError and Failed."""
    given = {name: value for name, value in vars(options).items() if name != "peers"}
    return bench.run(Options(**given), peers=contenders(options.peers, options.device))

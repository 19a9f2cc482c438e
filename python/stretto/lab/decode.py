"""`stretto lab layer`, `decode` and `sequence-parallel`: one Qwen3 layer, or a decode step of all of them, under tensor
parallelism, with each communication backend in turn. The ranks are processes that hold their shards once.

A step takes one token of each sequence of the batch through the layers and the last norm: no embedding, no head, no
sampling. Its time is that of the slowest rank, median over steps. Times by part are those of a rank, on CPUs means over
the steps of a turn, on GPUs of one step (`gpu_rank`), and medians over turns and ranks. That of communication holds
what a rank waits for the others, and on GPUs the gaps between kernels.
"""

import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from stretto.bench.crew import Failed, say, temporary_folder
from stretto.bench.job import Job, JobError, Launch, Reply, terminable
from stretto.bench.measure import Cell, quantile, slowest
from stretto.bench.options import UsageError
from stretto.bench.rows import SCHEMA, Row
from stretto.bench.run import expect_targets
from stretto.lab import document, plots
from stretto.lab.backends import BACKENDS, DEFAULT, SEQUENCE
from stretto.lab.chain import bench_options, numbers
from stretto.lab.model import QWEN3_8B, Parts, Shape
from stretto.lab.names import GPU_BACKENDS, chosen
from stretto.trace.words import plural

# Annotations stay real types here: the command line reads them.
_LEAST, _MOST = 2, 200  # steps in a turn
_MEMORY_SHARE = 0.6
_START_SECONDS = 90.0
_PREPARE_SECONDS = 600.0


@dataclass(frozen=True)
class _Place:
    """Where ranks compute. `module`: what a rank runs; `known`, `default`: the backends that there are, and that are
    taken if none is named.
    """

    module: str
    ranks: str
    known: tuple[str, ...]
    default: tuple[str, ...]
    dtype: str
    bytes: int  # of an element


_PLACES = {
    "cpu": _Place("stretto.lab.decode_rank", "CPU ranks", tuple(BACKENDS), DEFAULT, "float32", 4),
    "cuda": _Place("stretto.lab.gpu_rank", "GPUs", GPU_BACKENDS, GPU_BACKENDS, "bfloat16", 2),
}


@dataclass(frozen=True)
class DecodeOptions:
    ranks: int = 2
    device: str = "cpu"
    command: ClassVar[str] = "decode"
    default_backends: ClassVar[str] = ""  # those of the device
    default_scale: ClassVar[int] = 8  # of CPU ranks; GPUs hold the whole model
    backends: str = ""
    batch: str = "1,8,32"
    context: int = 512
    layers: int = 36
    scale: int = 0
    rounds: int = 5
    budget_ms: float = 400.0
    timeout: float = 60.0
    json: Path | None = None
    plot: Path | None = None

    @property
    def place(self) -> _Place:
        return _PLACES[self.device]

    @property
    def shape(self) -> Shape:
        return QWEN3_8B.scaled(self.scale, self.layers)

    def filled(self) -> "DecodeOptions":
        """With what depends on the device in place of what was left open."""
        if self.device not in _PLACES:
            raise UsageError(f"--device {self.device}: choose from {', '.join(_PLACES)}")
        if self.device != "cpu" and isinstance(self, SequenceOptions):
            raise UsageError(f"--device {self.device}: lab {self.command} is built for CPU ranks")
        scale = self.scale or (self.default_scale if self.device == "cpu" else 1)
        backends = self.backends or self.default_backends or ",".join(self.place.default)
        return replace(self, scale=scale, backends=backends)


@dataclass(frozen=True)
class LayerOptions(DecodeOptions):
    command: ClassVar[str] = "layer"
    batch: str = "1,8,32,128"
    layers: int = 1
    default_scale: ClassVar[int] = 4
    budget_ms: float = 100.0


@dataclass(frozen=True)
class SequenceOptions(LayerOptions):
    """A layer whose tokens belong to one prompt or to many: next to no context, so that the GEMMs are what counts."""

    command: ClassVar[str] = "sequence-parallel"
    default_backends: ClassVar[str] = ",".join(("stretto", "stretto-fused", *SEQUENCE))
    default_scale: ClassVar[int] = 8
    batch: str = "16,64,256,1024"
    context: int = 1


@dataclass
class _Tried:
    """What was measured of one backend with one batch."""

    cell: Cell
    parts: list[dict[str, float]] = field(default_factory=list)
    error: float = 0.0
    same_bits: bool = True

    def add(self, replies: list[Reply]) -> None:
        self.cell.turns.append(slowest(replies))
        self.cell.wrong += sum(int(reply["wrong"]) for reply in replies)
        self.error = max(self.error, *(float(reply["error"]) for reply in replies))
        self.same_bits = self.same_bits and len({reply["bits"] for reply in replies}) == 1
        self.parts += [reply["parts_us"] for reply in replies]


def run(options: DecodeOptions) -> int:
    """The exit status: 0, or 1 where a result is wrong or a rank failed. Raises UsageError and Failed."""
    options = options.filled()
    batches: list[int] = numbers("batch", options.batch, int)
    names = chosen("backends", options.backends, options.place.known)
    _check(options, names, batches)
    most_bytes = max(batches) * options.shape.hidden * options.place.bytes
    with temporary_folder() as folder, terminable():
        job = Job(options.command, _launch(options, folder, names, most_bytes), options.ranks, folder)
        try:
            job.wait_ready(_START_SECONDS)
            found = job.ask("backends", options.timeout)[0]
            for name, why in found["missing"].items():
                say(f"without {name}: {why}")
            facts = document.machine_now()
            rows = [row for batch in batches for row in _rows(options, job, batch, list(found["backends"]))]
            # Ranks part from each other in their own time; what quits after that has nobody to wait for.
            job.ask("close", options.timeout)
            problem = job.close()
        except (JobError, OSError) as error:
            raise Failed(str(error)) from error
        finally:
            job.kill()
    if problem:
        say(f"at their end the ranks failed: {problem}")
    versions = {name: {"version": version, "note": ""} for name, version in found["backends"].items()}
    record = {
        **{"schema": SCHEMA, "lab": options.command, "machine": facts, "options": document.given(options)},
        **{"implementations": versions, "arithmetic": job.version, "rows": rows},
        "failures": {"ranks": problem} if problem else {},
    }
    _show(record, options)
    document.write(record, options.json)
    if options.plot:
        plots.decode(record, options.plot)
        print(f"plot: {options.plot}")
    return document.status(record) or int(bool(problem))


def _check(options: DecodeOptions, names: Sequence[str], batches: Sequence[int]) -> None:
    expect_targets(bench_options(options, 8))
    lacking = [name for name in ("torch", "triton") if options.device == "cuda" and find_spec(name) is None]
    if lacking:
        raise UsageError(f"--device cuda: ranks on GPUs compute with {' and '.join(lacking)}, which this Python lacks")
    for name, value in (("layers", options.layers), ("context", options.context), ("batch", min(batches))):
        if value < 1:
            raise UsageError(f"--{name} {value}: at least 1")
    try:
        shape = options.shape
    except ValueError as error:
        raise UsageError(f"--scale: {error}") from error
    for name in set(names) & set(SEQUENCE):
        if any(batch % options.ranks for batch in batches):
            raise UsageError(f"--batch {options.batch}: {name} cuts the tokens among {options.ranks} ranks")
    if shape.refuse(options.ranks):
        raise UsageError(f"--ranks {options.ranks}: {shape.refuse(options.ranks)}")
    if options.device == "cpu":
        _expect_memory(options, shape, max(batches))


def _expect_memory(options: DecodeOptions, shape: Shape, batch: int) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cache = 8 * shape.layers * shape.kv_heads * batch * (options.context + 1) * shape.head_dim
    if shape.weight_bytes + cache > _MEMORY_SHARE * memory:
        needed = (shape.weight_bytes + cache) / 1e9
        raise UsageError(
            f"weights and cache take {needed:.0f} GB of this machine's {memory / 1e9:.0f}: a larger --scale"
        )


def _launch(options: DecodeOptions, folder: Path, names: Sequence[str], most_bytes: int) -> Launch:
    import stretto

    command = [sys.executable, "-m", options.place.module, "--folder", str(folder)]
    command += ["--ranks", str(options.ranks), "--most-bytes", str(most_bytes), "--backends", ",".join(names)]
    threads = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    here = {
        "STRETTO_DEVICE": options.device,
        "GLOO_SOCKET_IFNAME": "lo",
        "STRETTO_UNIQUE_ID": stretto.unique_id().hex(),
    }
    return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)], {**threads, **here})


def _rows(options: DecodeOptions, job: Job, batch: int, names: list[str]) -> list[Row]:
    """One batch size: the backends in turns, each as many steps as its time holds."""
    words = f"scale={options.scale} layers={options.layers} batch={batch} context={options.context}"
    job.ask(f"prepare {words}", _PREPARE_SECONDS)
    tried = {name: _Tried(Cell(name, batch * options.shape.hidden * options.place.bytes)) for name in names}
    steps = {name: _steps(options, job, name) for name in names}
    for _ in range(options.rounds):
        for name, one in tried.items():
            one.add(job.ask(f"measure backend={name} warmup=1 steps={steps[name]}", options.timeout * 2))
    return [_row(options, one, batch) for one in tried.values()]


def _steps(options: DecodeOptions, job: Job, name: str) -> int:
    first = max(slowest(job.ask(f"measure backend={name} warmup=1 steps=1", options.timeout * 2)))
    return max(_LEAST, min(_MOST, int(options.budget_ms * 1000 / first)))


def _row(options: DecodeOptions, tried: _Tried, batch: int) -> Row:
    cell = tried.cell
    parts = {name: statistics.median(one[name] for one in tried.parts) for name in Parts.NAMES}
    return {
        **{"implementation": cell.implementation, "collective": "all_reduce", "op": "sum"},
        **{
            "dtype": options.place.dtype,
            "ranks": options.ranks,
            "device": options.device,
            "bytes": cell.size,
            "rounds": options.rounds,
        },
        **{"batch": batch, "context": options.context, "layers": options.layers, "scale": options.scale},
        "iterations": len(cell.times),
        "us_min": min(cell.times),
        "us_median": cell.median,
        "us_p99": quantile(cell.times, 0.99),
        "us_spread": list(cell.spread),
        "us_by_part": parts,
        "us_per_all_reduce": parts["communication"] / (2 * options.layers) if options.device == "cpu" else None,
        "tokens_per_second": batch * 1e6 / cell.median,
        "verified": True,
        "wrong": cell.wrong,
        "error": tried.error if math.isfinite(tried.error) else None,
        "same_bits_on_all_ranks": tried.same_bits,
    }


def _show(record: dict[str, Any], options: DecodeOptions) -> None:
    shape = options.shape
    what = "one layer" if options.layers == 1 else f"{options.layers} layers"
    print(
        f"Qwen3-8B / {options.scale}: {what} of hidden {shape.hidden}, {shape.heads} heads of {shape.head_dim},"
        f" {shape.kv_heads} key-value heads, intermediate {shape.intermediate}; {options.ranks} {options.place.ranks},"
        f" {options.place.dtype},"
        f" {plural(options.context, 'token')} of context; µs of one step"
    )
    parts = ("gemm", "attention", "communication", "norm", "activation")
    headings = ("step", "p99", *parts, "each all-reduce", "tokens/s", "error", "wrong")
    table = document.table("batch", "backend", *headings, left=2)
    for row in record["rows"]:
        table.add_row(
            str(row["batch"]),
            row["implementation"],
            *(document.number(row[name]) for name in ("us_median", "us_p99")),
            *(document.number(row["us_by_part"][name]) for name in parts),
            document.number(row["us_per_all_reduce"]),
            document.number(row["tokens_per_second"]),
            "-" if row["error"] is None else f"{row['error']:.1e}",
            str(row["wrong"]),
        )
    document.print_table(table)
    for row in record["rows"]:
        if row["wrong"]:
            print(
                f"WRONG {row['implementation']}, batch {row['batch']}: {row['wrong']} elements, over all that was"
                " compared, are not as one rank's"
            )
        if not row["same_bits_on_all_ranks"]:
            print(f"{row['implementation']}, batch {row['batch']}: ranks hold different bits")

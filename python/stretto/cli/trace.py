"""`stretto trace`: record what NCCL's profiler interface says of a program, and convert, report or view it.

`record`, `convert` and `info` are here. `report` and `view` are functions of that name in the modules of that name in
`stretto.trace`, with their `SETTINGS` for Typer beside them, as in this folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.output import JsonOption, console, emit, stop, table

trace = typer.Typer(
    help="Record a program's collective operations, and convert, report or view what was recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_HERE = ("record", "convert", "info")
_ELSEWHERE = ("report", "view")

InputArgument = Annotated[
    list[Path], typer.Argument(metavar="INPUT", help="A folder with a recording, or files of one (*.rec).")
]


@trace.callback()
def _root() -> None:
    """Keeps the commands apart."""


class _Progress:
    """How many events are done, on a terminal's stderr alone."""

    def __init__(self) -> None:
        self._said = time.monotonic()
        self._shown = False

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._said > 0.3:
            self._said, self._shown = now, True
            print(f"\r{done:,} events", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@trace.command("convert")
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
    progress = _Progress()
    try:
        made = converters.convert(inputs, to, path, progress)
    except BrokenPipeError:
        raise
    except OSError as error:
        progress.end()
        stop(f"trace convert: {error}", 1)
        return
    progress.end()
    for text in made.job.gather_quality().notes:
        print(f"stretto trace convert: {text}", file=sys.stderr)
    print(f"{made.rows:,} {how.rows} in {made.seconds:.1f} s: {path or 'stdout'}", file=sys.stderr)


@trace.command("info")
def info(inputs: InputArgument, json: JsonOption = None) -> None:
    """Show what a recording holds: processes, threads, communicators, events by type, and what was lost."""
    from stretto.trace.summary import document, show

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

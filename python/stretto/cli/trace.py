"""`stretto trace`: record what NCCL's profiler interface says of a program, and convert, report or view it.

`record`, `convert` and `info` are here. `report` and `view` are functions of that name in the modules of that name in
`stretto.trace`, with their `SETTINGS` for Typer beside them, as in this folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import typer

trace = typer.Typer(
    help="Record a program's collective operations, and convert, report or view what was recorded.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@trace.callback()
def _root() -> None:
    """Keeps the commands apart."""


def _add_elsewhere(names: tuple[str, ...]) -> None:
    """Adds those commands that live in `stretto.trace`: only the one that is asked for, else all, for the help."""
    asked = sys.argv[2:3]
    for name in asked if asked and asked[0] in names else () if asked and asked[0] in _HERE else names:
        if importlib.util.find_spec(f"stretto.trace.{name}") is not None:
            module = importlib.import_module(f"stretto.trace.{name}")
            trace.command(name, **getattr(module, "SETTINGS", {}))(getattr(module, name))


_HERE = ("record", "convert", "info")
_add_elsewhere(("report", "view"))

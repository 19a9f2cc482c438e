"""The command `stretto`. A module of this folder that has a function of the module's own name is a command
of that name; what else Typer should know of it stands in the module's `SETTINGS`. Where that name is a Typer, it is a
command with commands of its own.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from typing import Annotated

import typer

from stretto.cli.output import say
from stretto.errors import StrettoError

app = typer.Typer(
    name="stretto",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from stretto import __version__

        typer.echo(f"stretto {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Collective communication between the ranks of a job: run, measure, tune, explain, diagnose."""


def _modules() -> list[str]:
    """The one that is asked for, so that a command does not wait for what the others need; else all."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in names else names


def _tell_of_unknown_variables() -> None:
    """A misspelt variable would have no effect and say nothing."""
    if any(name.startswith("STRETTO_") for name in os.environ):
        from stretto import parameters

        for sentence in parameters()["unknown"]:
            say(sentence)


def main() -> None:
    """The entry point. An error of the library is one sentence and status 1, not a trace."""
    for name in _modules():
        loaded = importlib.import_module(f"{__name__}.{name}")
        command = getattr(loaded, name, None)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        elif callable(command):
            app.command(name, **getattr(loaded, "SETTINGS", {}))(command)
    try:
        _tell_of_unknown_variables()
        app()
    except StrettoError as error:
        say(str(error))
        sys.exit(1)

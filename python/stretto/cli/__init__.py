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

from stretto.cli.output import examples, prose, say
from stretto.errors import InvalidArgument, StrettoError

app = typer.Typer(
    name="stretto",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from stretto import __version__

        typer.echo(f"stretto {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "stretto run -n 4 script.py",
        "stretto bench all_reduce --ranks 2",
        "stretto explain all_reduce 1M --ranks 4",
        "stretto --install-completion",
    )
)
def _root(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Collective communication between the ranks of a job: run, measure, tune, explain, diagnose."""


def _modules() -> list[str]:
    """The one that is asked for, so that a command does not wait for what the others need; else all."""
    if sys.argv[1:] == ["--version"]:
        return []
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in names else names


def _tell_of_unknown_variables() -> None:
    """A misspelt variable would have no effect and say nothing."""
    if any(name.startswith("STRETTO_") for name in os.environ):
        from stretto import parameters

        for sentence in parameters()["unknown"]:
            say(sentence)


def main() -> None:
    """The entry point. An error of the library is a sentence, not a trace: with status 2 if what was asked for cannot
    be, else with 1. Ctrl-C is 130, also where no command has begun, or none hears of it any more.
    """
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(130)


def assemble() -> typer.Typer:
    """Gives `app` its commands: the one that the command line names, or all. A process does this once."""
    for name in _modules():
        loaded = importlib.import_module(f"{__name__}.{name}")
        command = getattr(loaded, name, None)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        elif callable(command):
            app.command(name, **getattr(loaded, "SETTINGS", {}))(command)
    for group in (app, *(one.typer_instance for one in app.registered_groups)):
        for registered in group.registered_commands if group is not None else ():
            registered.help = prose(registered.callback)
    return app


def _run() -> None:
    assemble()
    try:
        _tell_of_unknown_variables()
        try:
            app(prog_name="stretto")
        finally:
            sys.stdout.flush()
    except StrettoError as error:
        say(str(error))
        sys.exit(2 if isinstance(error, InvalidArgument) else 1)
    except OSError as error:
        # Mostly of stdout, which is full or closed: what is left for it is not tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        say(f"{error.filename or 'cannot write'}: {error.strerror or error}")
        sys.exit(1)

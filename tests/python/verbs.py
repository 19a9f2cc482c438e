"""The commands that the program has, and their help, asked from the program itself."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass

from jobs import environment

# One process for all: to start it takes longer than to ask. Its own command line is empty, so it loads all commands.
_ASK = """
import contextlib, io, json, typer
from stretto.cli import assemble

program = typer.main.get_command(assemble())

def walk(command, words):
    below = getattr(command, "commands", None)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        program(args=[*words, "--help"], prog_name="stretto", standalone_mode=False)
    yield {"words": words, "is_group": below is not None, "help": said.getvalue()}
    for name, one in (below or {}).items():
        yield from walk(one, [*words, name])

print(json.dumps(list(walk(program, []))))
"""


# Of every option that takes a float, whether it takes "nan". By Typer's own parameters, of whatever version.
_ASK_NAN = """
import json, typer
from stretto.cli import assemble

def walk(command, words):
    for option in getattr(command, "params", []):
        if "float" in repr(option.type).lower() or getattr(option.type, "name", "") == "float":
            context = typer.Context(command)
            try:
                option.process_value(context, "nan")
                refused = False
            except Exception as error:
                refused = type(error).__name__ == "BadParameter"
            yield {"option": " ".join([*words, option.opts[0]]), "refused": refused}
    for name, one in getattr(command, "commands", {}).items():
        yield from walk(one, [*words, name])

print(json.dumps(list(walk(typer.main.get_command(assemble()), []))))
"""


@dataclass(frozen=True)
class Verb:
    """`words`: of the command line behind `stretto`. `is_group`: it only has others below it. `help`: at 80 columns."""

    words: list[str]
    is_group: bool
    help: str

    def __str__(self) -> str:
        return " ".join(self.words) or "stretto"


@functools.cache
def everything() -> list[Verb]:
    """`stretto` itself and all below it."""
    command, surroundings = [sys.executable, "-c", _ASK], environment(COLUMNS="80")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=surroundings, check=True)
    return [Verb(**one) for one in json.loads(done.stdout)]


def options_of_floats() -> dict[str, bool]:
    """Each option that takes a float, with its command, and whether it refuses "nan"."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK_NAN], capture_output=True, text=True, timeout=100, env=environment(), check=True
    )
    return {one["option"]: one["refused"] for one in json.loads(done.stdout)}


def commands() -> list[Verb]:
    """Those that do something."""
    return [verb for verb in everything() if not verb.is_group]

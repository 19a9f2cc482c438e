"""What all commands share: a table for people on stdout, or JSON where --json says, and sizes as people
write them.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON to FILE; - is stdout.")
]

# A shell's `>&-`: Python has nothing there then, and nobody reads it.
sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 (open as long as the process lives)
sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115

# A file or a pipe has no width of its own, and at 80 columns tables break within words.
_WIDE = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160
console = Console(highlight=False, width=_WIDE)
progress = Console(stderr=True, highlight=False)


def printable(text: str) -> str:
    """A text of which nobody knows who wrote it: on a terminal it may not do anything but stand there."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def emit(document: dict[str, Any], json_file: str | None, show: Callable[[], None]) -> None:
    """Shows the result to people, and writes it for machines if asked; `-` gives stdout to the machines
    alone.
    """
    if json_file != "-":
        show()
    if json_file is None:
        return
    text = json.dumps(document, indent=2) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    try:
        with open(json_file, "w", encoding="utf-8") as file:  # noqa: PTH123 (a path as the user typed it)
            file.write(text)
    except OSError as error:
        stop(f"cannot write {json_file}: {error}")


def say(text: str) -> None:
    """A line on stderr, or several; the text may be anybody's."""
    print("stretto: " + "\n".join(printable(line) for line in text.split("\n")), file=sys.stderr)


def stop(text: str, status: int = 2) -> None:
    """Ends the command with a sentence. Status 2 is a wrong command line, 1 what went wrong later."""
    say(text)
    raise typer.Exit(status)


def nearest(word: str, known: Iterable[str]) -> str:
    """ ", did you mean X?" where one of the known words is close; else nothing."""
    close = difflib.get_close_matches(word, list(known), 1, 0.7)
    return f"; did you mean {close[0]}?" if close else ""


def refuse_options(command: str, context: typer.Context) -> None:
    """Of a command that takes a program: an option that it does not have would be taken for that. No program's name
    begins so.
    """
    word = context.args[0]
    if word.startswith("-"):
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
        stop(f"{command}: there is no option {word}{nearest(word.partition('=')[0], known)} (stretto {command} --help)")


def prose(function: Callable[..., Any] | None) -> str:
    """A docstring as help: each paragraph in one line, which the terminal's width breaks."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def examples(*lines: str) -> str:
    """The end of a command's help: lines to copy."""
    return "\n\n".join(["Examples:", *lines])


def check_ranks(command: str, ranks: int, least: int = 1) -> None:
    """Before anything is started for them."""
    from stretto.bench.options import MOST_RANKS

    if not least <= ranks <= MOST_RANKS:
        stop(f"{command}: --ranks {ranks}: from {least} to {MOST_RANKS}, the most that a communicator on one host has")


def check_ranks_of_hosts(command: str, ranks: int) -> None:
    from stretto.bench.options import MOST_RANKS_OF_HOSTS

    if ranks > MOST_RANKS_OF_HOSTS:
        stop(f"{command}: --hosts: {ranks} ranks; {MOST_RANKS_OF_HOSTS} are the most that a communicator has")


def expect_writable(command: str, file: str | Path) -> None:
    """Before work of hours, and not after it. Leaves no file that was not there."""
    path = Path(file)
    try:
        new = not path.exists()
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        stop(f"{command}: cannot write {file}: {error.strerror}")


def table(*headings: str, title: str | None = None, right: tuple[int, ...] = ()) -> Table:
    """An empty table; columns whose numbers are in `right` are aligned there."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    return made


def size(text: str) -> int:
    """Bytes from "1M"; ends the command if it is none."""
    from stretto.bench.workload import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def size_text(number: int) -> str:
    """1048576 as "1M"."""
    from stretto.bench.workload import format_size

    return format_size(number)

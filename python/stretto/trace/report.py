"""`stretto trace report`: what held a recorded job up. `analyse` is the same for programs; it gives a `Report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.flags import PART_FLAGS, PART_PANEL, flag
from stretto.cli.output import JsonOption, console, emit, examples, printable, progress, stop, table
from stretto.cli.working import Working
from stretto.trace.analysis import Report, UnknownCommunicator, analyse

__all__ = ["Report", "analyse", "report"]

SETTINGS: dict[str, Any] = {
    "short_help": "Say which rank was late, where, and what it cost.",
    "epilog": examples("stretto trace report run1", "stretto trace report run1 --from 2 --to 5 --markdown report.md"),
}


def report(
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Files of a recording, or its folder.")],
    json_file: JsonOption = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report there, with plots beside it.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Lines of a table; in JSON 0 means every operation.")
    ] = 10,
    communicator: Annotated[
        str | None,
        flag(PART_PANEL, "--communicator", metavar="NAME", help="Only operations of this communicator, by name or id."),
    ] = None,
    begin: Annotated[float | None, PART_FLAGS["begin"]] = None,
    end: Annotated[float | None, PART_FLAGS["end"]] = None,
) -> None:
    """Say which rank was late, where it lost the time, and what that cost."""
    from stretto.trace.part import Part, cut
    from stretto.trace.reader import load
    from stretto.trace.report_json import document

    part = Part.of_seconds(begin, end)
    try:
        with Working("reading") as working:
            recording = cut(load(inputs, align=False, part=part), part)
            working.doing, working.done = "analysing", len(recording.spans["type"])
            found = analyse(recording, communicator, whole=part.is_whole)
            found = replace(found, inputs=_shown(inputs, begin, end))
    except UnknownCommunicator as error:
        stop(str(error))
    emit(document(found, top) if json_file else {}, json_file, lambda: _show(found, top))
    if markdown is not None:
        _write_markdown(found, markdown, top)


def _shown(inputs: list[Path], begin: float | None, end: float | None) -> tuple[str, ...]:
    part = [word for name, one in (("--from", begin), ("--to", end)) if one is not None for word in (name, repr(one))]
    return (*(str(one) for one in inputs), *part)


def _write_markdown(found: Report, path: Path, top: int) -> None:
    from stretto.trace.report_markdown import write_markdown

    try:
        with Working("drawing"):
            said = write_markdown(found, path, top)
        for sentence in said:
            progress.print(sentence, markup=False)
    except OSError as error:
        stop(f"cannot write {path}: {error}")


def _show(found: Report, top: int) -> None:
    from rich.text import Text

    from stretto.trace.report_text import sections

    for number, section in enumerate(sections(found, top)):
        if number:
            console.print()
        console.print(Text(printable(section.title), style="bold"))
        for sentence in section.sentences:
            console.print(printable(sentence), markup=False)
        for command in section.commands:
            console.print(printable(f"  {command}"), markup=False, soft_wrap=True)
        if section.rows:
            made = table(*section.headings, right=section.right)
            for column in made.columns:
                column.no_wrap = column.justify == "right"
            for row in section.rows:
                made.add_row(*(Text(printable(cell)) for cell in row))
            console.print(made)

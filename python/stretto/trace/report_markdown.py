"""A report as a Markdown file, with plots beside it where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

from stretto.trace.analysis import Report
from stretto.trace.report_text import Section, sections


def write_markdown(report: Report, path: Path, top: int) -> list[str]:
    """Writes the file and, into the folder `NAME-plots` beside it, its pictures; gives what it could not do."""
    said: list[str] = []
    pictures: list[tuple[str, str]] = []
    try:
        from stretto.trace.report_plots import save_plots

        folder = path.with_name(f"{path.stem}-plots")
        pictures = [(title, f"{folder.name}/{name}") for title, name in save_plots(report, folder)]
    except ImportError:
        said.append("no plots: install matplotlib (the extra `plot`)")
    parts = ["# Trace report", ""]
    for number, section in enumerate(sections(report, top)):
        parts += _section(section)
        if number == 0:
            for title, file in pictures:
                parts += [f"![{title}]({file})", ""]
    parts += [f"({note})" for note in said]
    path.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return said


def _section(section: Section) -> list[str]:
    lines = [f"## {escaped(section.title)}", ""]
    for sentence in section.sentences:
        lines += [escaped(sentence), ""]
    if section.commands:
        lines += [f"    {' '.join(command.split())}" for command in section.commands] + [""]
    if section.rows:
        lines.append(_row(section.headings))
        lines.append(
            "|" + "|".join("---:" if n in section.right else "---" for n in range(len(section.headings))) + "|"
        )
        lines += [_row(row) for row in section.rows]
        lines.append("")
    return lines


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Names come from the recording: none of them may become Markdown or HTML."""
    flat = " ".join(text.split())
    for mark in "\\`*_[]|":
        flat = flat.replace(mark, f"\\{mark}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

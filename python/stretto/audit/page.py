"""The page for people: on the terminal, as Markdown, and as one HTML file with its plots inside."""

from __future__ import annotations

import base64
import html as escaping
from collections.abc import Callable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stretto.audit.blocks import Block, Grid, Heading, Lines, Paragraph, Problem
from stretto.audit.finding import Finding, Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "cyan", Severity.OK: "dim"}


def _parts(finding: Finding) -> list[tuple[str, str]]:
    cause = f"{finding.cause} ({finding.certainty})" if finding.cause else ""
    parts = [("expected", finding.expected), ("cause", cause), ("next", finding.next_step)]
    return [(name, text) for name, text in parts if text]


# ---- Terminal ---------------------------------------------------------------------------------------------------


def show(page: list[Block], console: Console) -> None:
    from stretto.cli.output import printable, table

    for block in page:
        if isinstance(block, Heading):
            console.print()
            console.print(Text(block.text, "bold"))
        elif isinstance(block, Paragraph):
            console.print(Text(printable(block.text)))
        elif isinstance(block, Problem):
            _show_problem(block.finding, console)
        elif isinstance(block, Lines):
            for finding in block.findings:
                line = Text(f"{finding.id.partition('.')[2]}: ", "dim")
                console.print(Padding(line + Text(printable(finding.measured)), (0, 0, 0, 2), expand=False))
        else:
            shown = table(*block.headings, right=block.right)
            for row in block.rows:
                shown.add_row(*(Text(cell) for cell in row))
            console.print(shown)


def _show_problem(finding: Finding, console: Console) -> None:
    from stretto.cli.output import printable

    console.print()
    head = Text(f"{finding.severity.word.upper()} ", _STYLES[finding.severity])
    console.print(head + Text(f"{finding.id}: ", "bold") + Text(printable(finding.measured)))
    for name, text in _parts(finding):
        console.print(Padding(Text(f"{name}: ", "dim") + Text(printable(text)), (0, 0, 0, 2), expand=False))


# ---- Markdown ---------------------------------------------------------------------------------------------------


def markdown(page: list[Block], title: str) -> str:
    lines = [f"# {title}", ""]
    for block in page:
        if isinstance(block, Heading):
            lines += [f"## {block.text}", ""]
        elif isinstance(block, Paragraph):
            lines += [block.text, ""]
        elif isinstance(block, Problem):
            one = block.finding
            lines += [f"* **{one.severity.word} `{one.id}`**: {one.measured}"]
            lines += [f"  * {name}: {text}" for name, text in _parts(one)] + [""]
        elif isinstance(block, Lines):
            lines += [f"* `{one.id}`: {one.measured}" for one in block.findings] + [""]
        else:
            lines += [*_rows(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rows(grid: Grid) -> list[str]:
    def row(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join("---:" if column in grid.right else "---" for column in range(len(grid.headings))) + "|"
    return [row(grid.headings), rule, *(row(cells) for cells in grid.rows)]


# ---- HTML -------------------------------------------------------------------------------------------------------

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2937; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem; border-bottom: 1px solid #e5e7eb }
table { border-collapse: collapse; font-size: 13px } th, td { padding: .15rem .8rem .15rem 0; text-align: left }
td.right, th.right { text-align: right } th { border-bottom: 1px solid #9ca3af }
.problem { border-left: 4px solid #9ca3af; padding: .2rem .8rem; margin: .8rem 0 } .problem p { margin: .1rem 0 }
.error { border-color: #b91c1c } .warning { border-color: #d97706 } .note { border-color: #0e7490 }
.word { font-weight: 600; text-transform: uppercase; font-size: 12px } img { max-width: 100% } code { font-size: 13px }
"""


def html(page: list[Block], title: str, plots: list[tuple[str, bytes]]) -> str:
    """`plots`: a title and a PNG each; nothing is loaded from elsewhere."""
    safe: Callable[[str], str] = escaping.escape
    body = [f"<h1>{safe(title)}</h1>"]
    pictures = [
        f'<h2>{safe(name)}</h2><img alt="{safe(name)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        for name, png in plots
    ]
    for block in page:
        if pictures and isinstance(block, Heading):
            body += pictures
            pictures = []
        body.append(_html_block(block, safe))
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{safe(title)}</title><style>{_CSS}</style>'
    return "\n".join([head, *body, *pictures, "</html>"]) + "\n"


def _html_block(block: Block, safe: Callable[[str], str]) -> str:
    if isinstance(block, Heading):
        return f"<h2>{safe(block.text)}</h2>"
    if isinstance(block, Paragraph):
        return f"<p>{safe(block.text)}</p>"
    if isinstance(block, Problem):
        one = block.finding
        word = one.severity.word
        head = f'<p><span class="word">{word}</span> <code>{safe(one.id)}</code> {safe(one.measured)}</p>'
        rest = "".join(f"<p>{name}: {safe(text)}</p>" for name, text in _parts(one))
        return f'<div class="problem {word}">{head}{rest}</div>'
    if isinstance(block, Lines):
        items = "".join(f"<li><code>{safe(one.id)}</code> {safe(one.measured)}</li>" for one in block.findings)
        return f"<ul>{items}</ul>"

    def cells(kind: str, row: tuple[str, ...]) -> str:
        marked = (
            f"<{kind}{' class=right' * (column in block.right)}>{safe(cell)}</{kind}>"
            for column, cell in enumerate(row)
        )
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{cells('th', block.headings)}{''.join(cells('td', row) for row in block.rows)}</table>"

"""What is on the screen: lines of text with styles, for any width and height. Pure; terminal.py paints them, and
`stretto top --once` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stretto.top.table import COLUMNS, Column, Row, column_named, filter_of, number, rows_of, sort

# Text and the name of its style: "", title, heading, sorted, bad, warning, good, quiet or error.
Span = tuple[str, str]
Line = list[Span]

_STATES = {"run": "good", "wait": "warning", "gone": "bad", "failed": "bad", "aborted": "bad", "stopped": "bad"}
_VERDICTS = {"left": "warning", "waiting": "warning", "failed": "bad", "disagree": "bad", "died": "bad"}
_MUCH = 0.2  # of the time: a share worth a colour
_GAP = 2
KEYS = (
    ("q  Ctrl-C", "end; the job goes on"),
    ("< >", "sort by the column before or after"),
    ("r", "the other way round"),
    ("/", "filter: words, or rank:3 state:wait host: pid: comm: algorithm: operation:; Enter, or Esc for none"),
    ("Tab", "the next communicator alone, and at last all again"),
    ("up down", "scroll; also PageUp, PageDown, Home and End"),
    ("+ -", "refresh more often, or less"),
    ("space", "pause"),
    ("? h", "these keys"),
)


@dataclass
class View:
    """What the user has chosen to see."""

    column: Column = field(default_factory=lambda: column_named("rank"))
    reverse: bool = False
    filter: str = ""
    communicator: str | None = None  # this one alone
    interval: float = 1.0
    stretched: float = 0.0  # what became of it, where the display would have taken too much of the machine
    scroll: int = 0
    paused: bool = False
    help: bool = False
    typing: str | None = None  # a filter that is being typed
    message: str = ""


def cut(text: str, width: int) -> str:
    """At most so wide, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"[: max(width, 0)]


def fitting(rows: list[Row], width: int) -> list[tuple[Column, int]]:
    """The columns that have room, with their widths. The least important go first; what is wide may shrink before."""
    widths = {column.name: max([len(column.name), *(len(column.text(row)) for row in rows)]) for column in COLUMNS}
    hosts = {row.member["host"] for row in rows}
    left = [column for column in COLUMNS if column.name != "host" or len(hosts) > 1]

    def excess(least: bool) -> int:
        return (
            sum((column.least if least and column.least else widths[column.name]) + _GAP for column in left)
            - _GAP
            - width
        )

    while len(left) > 1 and excess(True) > 0:
        left.remove(max(left, key=lambda column: column.rank))
    for column in left:
        over = excess(False)
        if column.least and over > 0:
            widths[column.name] = max(min(widths[column.name], column.least), widths[column.name] - over)
    return [(column, widths[column.name]) for column in left]


def _style(column: Column, row: Row) -> str:
    if column.name == "state":
        return _STATES.get(row.state, "quiet")
    if column.name == "since":
        return "warning" if row.is_stuck else ""
    share = {"waited": row.member["waited"], "late": row.member["late"]}.get(column.name)
    if share is not None and share >= _MUCH:
        return "bad" if column.name == "late" else "warning"
    return "quiet" if column.name == "operation" and row.state == "idle" else ""


def _line(row: Row, columns: list[tuple[Column, int]]) -> Line:
    spans: Line = []
    for column, width in columns:
        text = cut(column.text(row), width)
        spans.append((text.rjust(width) if column.right else text.ljust(width), _style(column, row)))
        spans.append((" " * _GAP, ""))
    return spans


def _heading(columns: list[tuple[Column, int]], view: View) -> Line:
    spans: Line = []
    for column, width in columns:
        name = cut(column.name.upper(), width)
        style = "sorted" if column is view.column else "heading"
        spans.append((name.rjust(width) if column.right else name.ljust(width), style))
        spans.append((" " * _GAP, "heading"))
    return spans


def _mean(communicator: dict[str, Any], name: str) -> float | None:
    """A collective is one call, though each rank makes it."""
    values = [member[name] for member in communicator["members"] if member[name] is not None]
    return sum(values) / len(values) if values else None


def _title(communicator: dict[str, Any], shown: int) -> Line:
    """Which communicator, how it does and how much."""
    ranks, read = communicator["ranks"], len(communicator["members"])
    some = "" if read == ranks else f", {read} of them seen"
    some += "" if shown == read else f", {shown} shown"
    rates = [number(_mean(communicator, "calls_per_s")), number(_mean(communicator, "bytes_per_s"), "B")]
    speed = f"  {rates[0]} calls/s  {rates[1]}/s" if all(rates) else ""
    verdict = communicator["verdict"]
    return [
        (f"communicator {communicator['id'][:8]}", "title"),
        (f"  {ranks} rank{'' if ranks == 1 else 's'}{some}  ", ""),
        (verdict, _VERDICTS.get(verdict, "good")),
        (speed, ""),
    ]


def _speed(communicator: dict[str, Any]) -> float:
    return _mean(communicator, "calls_per_s") or 0.0


def chosen(sample: dict[str, Any], view: View) -> list[dict[str, Any]]:
    """The communicators that are shown: those that are not well first, then the busiest."""
    some = [one for one in sample["communicators"] if view.communicator in (None, one["id"])]
    return sorted(some, key=lambda one: (one["verdict"] not in _VERDICTS, -_speed(one), one["id"]))


def body(sample: dict[str, Any], view: View, width: int) -> list[Line]:
    """All communicators and their ranks, however many lines that takes."""
    is_shown = filter_of(view.filter)
    shown = [(one, [row for row in rows_of(one) if is_shown(row)]) for one in chosen(sample, view)]
    columns = fitting([row for _, rows in shown for row in rows], width)
    lines: list[Line] = []
    for communicator, rows in shown:
        if not rows and view.filter:
            continue
        lines.append(_title(communicator, len(rows)))
        if communicator["verdict"] in _VERDICTS:
            lines += [
                [("  " + cut(text, width - 2), _VERDICTS[communicator["verdict"]])]
                for text in communicator["sentences"][:3]
            ]
        lines.append(_heading(columns, view))
        lines += [_line(row, columns) for row in sort(rows, view.column, view.reverse)]
        lines.append([])
    lines += [[("not read: " + problem, "error")] for problem in sample["problems"]]
    if not lines:
        what = f"no rank matches {view.filter}" if view.filter else "no communicator now"
        lines.append([(what, "quiet")])
    return lines


def _first_line(sample: dict[str, Any], view: View) -> Line:
    communicators = sample["communicators"]
    processes = {(member["host"], member["pid"]) for one in communicators for member in one["members"]}
    some = [f"{len(processes)} process{'' if len(processes) == 1 else 'es'}"]
    if len(communicators) > 1:
        alone = [number for number, one in enumerate(communicators, 1) if one["id"] == view.communicator]
        some.append(
            f"communicator {alone[0]} of {len(communicators)}" if alone else f"{len(communicators)} communicators"
        )
    some.append("paused" if view.paused else f"every {max(view.interval, view.stretched):.2g} s")
    if view.filter:
        some.append(f"filter: {view.filter}")
    return [("stretto top", "title"), ("  " + "  ·  ".join(some), "")]


def _last_line(view: View) -> Line:
    if view.typing is not None:
        return [("filter: " + view.typing + "_", "title"), ("  " + view.message, "error")]
    if view.message:
        return [(view.message, "error")]
    return [("q end   < > sort   r reverse   / filter   Tab communicator   space pause   ? keys", "quiet")]


def _clip(line: Line, width: int) -> Line:
    spans: Line = []
    for text, style in line:
        spans.append((text[:width], style))
        width -= len(spans[-1][0])
    return spans


def compose(sample: dict[str, Any], view: View, width: int, height: int) -> list[Line]:
    """The whole screen, `height` lines of at most `width` letters. Keeps `view.scroll` within what there is."""
    if view.help:
        lines: list[Line] = [[(f"{key:11}", "title"), (text, "")] for key, text in KEYS]
        lines += [[]] + [[(f"{column.name:11}", "heading"), (column.help, "")] for column in COLUMNS]
    else:
        lines = body(sample, view, width)
    room = max(height - 2, 0)
    view.scroll = max(0, min(view.scroll, len(lines) - room))
    middle = lines[view.scroll : view.scroll + room]
    middle += [[] for _ in range(room - len(middle))]
    return [_clip(line, width) for line in ([_first_line(sample, view), *middle, _last_line(view)][:height])]

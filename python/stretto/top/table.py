"""Rows and columns: what is shown of each rank, in which order, and which ranks are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stretto.cli.output import nearest, printable

# A wait that is longer than this will still be there when it is read on the screen; a longer one is worth a colour.
_WHILE_SECONDS = 0.1
_LONG_SECONDS = 1.0


def number(value: float | None, unit: str = "") -> str:
    """1234567 as "1.23 M", with three digits; nothing for None."""
    if value is None:
        return ""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5 or prefix == "T":
            break
        value /= 1000
    digits = 0 if value >= 99.95 or (not prefix and value == int(value)) else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {prefix}{unit}".rstrip()


def duration(seconds: float) -> str:
    """Seconds as people read them: 12 µs, 3.4 ms, 5.6 s, 7 min."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


@dataclass(frozen=True)
class Row:
    """A rank of a communicator. `state`: run, wait, idle, done, failed, aborted, stopped or gone."""

    communicator: str
    member: dict[str, Any]
    state: str

    @property
    def since(self) -> float | None:
        operation = self.member["operation"]
        return None if operation is None else operation["since_s"]

    @property
    def operation(self) -> str:
        operation = self.member["operation"]
        return printable(operation["text"]) if operation else ""

    @property
    def waits_for(self) -> str:
        """The ranks that have not entered what this one has been in for a while; else for whom it waited most."""
        if self.member["awaits"] and (self.since or 0) >= _WHILE_SECONDS:
            ranks = ", ".join(map(str, self.member["awaits"][:4])) + (" …" if len(self.member["awaits"]) > 4 else "")
            return f"now {ranks}"
        # What is below a hundredth of the time is no news.
        most = [one for one in self.member["waited_for"][:2] if one["share"] >= 0.01]
        return ", ".join(f"{one['rank']} ({percent(one['share'])})" for one in most)

    @property
    def is_stuck(self) -> bool:
        return self.state in ("run", "wait") and (self.since or 0) >= _LONG_SECONDS


def _state(member: dict[str, Any]) -> str:
    operation = member["operation"]
    if member["process"] == "gone":
        return "done" if member["state"] == "finalized" else "gone"
    if member["state"] == "aborted":
        return "aborted"
    if member["process"] == "stopped":
        return "stopped"
    if operation is None:
        return "idle"
    if operation["state"] == "running":
        return "wait" if member["awaits"] else "run"
    return "failed" if operation["state"] == "failed" else "idle"


def rows_of(communicator: dict[str, Any]) -> list[Row]:
    return [Row(communicator["id"], member, _state(member)) for member in communicator["members"]]


@dataclass(frozen=True)
class Column:
    """`least` is the narrowest that it is useful at; of two columns the one with the higher `rank` gives way first."""

    name: str
    help: str
    text: Callable[[Row], str]
    key: Callable[[Row], Any]
    rank: int = 0
    right: bool = True
    descending: bool = True
    least: int = 0


def _value(name: str) -> Callable[[Row], float]:
    """For sorting: what is not known comes after all that is."""
    return lambda row: -1.0 if row.member[name] is None else float(row.member[name])


COLUMNS = (
    Column(
        "rank",
        "number in its communicator",
        lambda row: str(row.member["rank"]),
        lambda row: row.member["rank"],
        descending=False,
    ),
    Column(
        "host",
        "where it runs",
        lambda row: printable(row.member["host"]),
        lambda row: row.member["host"],
        9,
        right=False,
        descending=False,
    ),
    Column(
        "pid", "its process", lambda row: str(row.member["pid"]), lambda row: row.member["pid"], 7, descending=False
    ),
    Column(
        "state",
        "run: in an operation; wait: for ranks that have not entered it; idle: in none",
        lambda row: row.state,
        lambda row: row.state,
        1,
        right=False,
        descending=False,
    ),
    Column(
        "since",
        "for how long",
        lambda row: "" if row.since is None else duration(row.since),
        lambda row: -1.0 if row.since is None else row.since,
        4,
    ),
    Column(
        "operation",
        "the one it is in, or its last",
        lambda row: row.operation,
        lambda row: row.operation,
        2,
        right=False,
        descending=False,
        least=14,
    ),
    Column(
        "algorithm",
        "how it is done",
        lambda row: str(row.member["operation"]["algorithm"]) if row.member["operation"] else "",
        lambda row: str((row.member["operation"] or {}).get("algorithm")),
        6,
        right=False,
        descending=False,
    ),
    Column(
        "calls/s", "operations begun a second", lambda row: number(row.member["calls_per_s"]), _value("calls_per_s"), 3
    ),
    Column(
        "bytes/s",
        "count x element size of these",
        lambda row: number(row.member["bytes_per_s"], "B"),
        _value("bytes_per_s"),
        5,
    ),
    Column(
        "waited",
        "part of the time that it waited for ranks that came later",
        lambda row: percent(row.member["waited"]),
        _value("waited"),
    ),
    Column(
        "waits for",
        "now: who has not entered its operation; else for whom it waited most",
        lambda row: row.waits_for,
        lambda row: row.waits_for,
        1,
        right=False,
        least=8,
    ),
    Column(
        "late",
        "part of the time that the others waited for it, in the mean",
        lambda row: percent(row.member["late"]),
        _value("late"),
        2,
    ),
)
NAMES = tuple(column.name for column in COLUMNS)


def column_named(name: str) -> Column:
    """Raises ValueError with a sentence."""
    for column in COLUMNS:
        if column.name == name:
            return column
    raise ValueError(f"there is no column {name}{nearest(name, NAMES)}; there are {', '.join(NAMES)}")


def sort(rows: list[Row], column: Column, reverse: bool) -> list[Row]:
    """By that column, the most interesting first; equal ones by rank."""
    by_rank = sorted(rows, key=lambda row: row.member["rank"])
    return sorted(by_rank, key=column.key, reverse=column.descending != reverse)


Filter = Callable[[Row], bool]
_FIELDS: dict[str, Callable[[Row], str]] = {
    "rank": lambda row: str(row.member["rank"]),
    "host": lambda row: str(row.member["host"]),
    "pid": lambda row: str(row.member["pid"]),
    "state": lambda row: row.state,
    "comm": lambda row: row.communicator,
    "algorithm": lambda row: str((row.member["operation"] or {}).get("algorithm", "")),
    "operation": lambda row: row.operation,
}
_EXACT = ("rank", "pid")


def _word(word: str) -> Filter:
    name, colon, value = word.partition(":")
    if not colon:
        return lambda row: (
            word in " ".join([row.operation, row.state, str(row.member["host"]), row.communicator]).lower()
        )
    if name not in _FIELDS:
        raise ValueError(f"there is no field {name}{nearest(name, _FIELDS)}; there are {', '.join(_FIELDS)}")
    if not value:
        raise ValueError(f"{name}: of what? For example {name}:{'3' if name in _EXACT else 'a'}")
    if name in _EXACT:
        return lambda row: _FIELDS[name](row) == value
    return lambda row: value in _FIELDS[name](row).lower()


def filter_of(text: str) -> Filter:
    """All words of it must be found: anywhere, or with `field:` in that. Raises ValueError with a sentence."""
    words = [_word(word) for word in text.lower().split()]
    return lambda row: all(word(row) for word in words)

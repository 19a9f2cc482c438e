"""The record of a command of the lab, in the benchmark's schema, and how its numbers are shown."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from stretto.bench.crew import Crew, Failed, say
from stretto.bench.rows import SCHEMA, Row, machine
from stretto.bench.run import STDOUT
from stretto.lab.contenders import UNSAFE

_OUTPUTS = ("json", "csv", "plot", "recording")


def machine_now() -> dict[str, Any]:
    """Facts that numbers depend on; says where the machine has other work."""
    facts = machine()
    if facts["load_before"] > facts["cores_allowed"] / 2:
        say(f"this machine is busy (load {facts['load_before']:.1f}): times are those of a crowd, not of a machine")
    return facts


def record(command: str, options: Any, crew: Crew, rows: list[Row], facts: dict[str, Any]) -> dict[str, Any]:
    """What was measured of `stretto lab COMMAND`."""
    return {
        "schema": SCHEMA,
        "lab": command,
        "machine": facts,
        "options": given(options),
        "implementations": crew.facts,
        "rows": rows,
        "failures": crew.failures,
    }


def given(options: Any) -> dict[str, Any]:
    """What a record says of a command's options."""
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in _OUTPUTS}


def status(record: dict[str, Any]) -> int:
    """1 where a result is wrong that must be right, ranks hold different bits, or this library failed."""
    rows = [row for row in record["rows"] if row["implementation"] != UNSAFE]
    wrong = any(row["wrong"] or not row.get("same_bits_on_all_ranks", True) for row in rows)
    return int(wrong or not record["rows"] or "stretto" in record["failures"])


def write(record: dict[str, Any], path: Path | None) -> None:
    """As JSON, where that was asked for."""
    if path is None:
        return
    try:
        with contextlib.ExitStack() as files:
            file = sys.__stdout__ if path == STDOUT else files.enter_context(path.open("w"))
            assert file is not None
            file.write(json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise Failed(f"cannot write {error.filename}: {error.strerror}") from error
    if path != STDOUT:
        print(f"rows: {path}")


def excuse(name: str) -> str:
    """What is to be said of wrong results of an implementation."""
    return ", as is to be expected: nothing keeps a rank from overwriting what a late one reads" * (name == UNSAFE)


def number(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return number(value) if value is None or value < 0 else f"+{number(value)}"


def table(*headings: str, left: int = 0) -> Table:
    """An empty table of numbers, after `left` columns of words."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        made.add_column(heading, justify="left" if place < left else "right", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """On stdout, or where that is redirected to."""
    Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 180).print(made)

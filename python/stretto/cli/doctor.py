"""`stretto doctor`: what a job is doing, which rank holds it up, who died; from outside, without disturbing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.output import JsonOption, console, emit, stop

# A script can ask whether a job is well: the verdicts that say no give status 3.
_WELL = ("finished", "idle", "working")


def descendants(pid: int) -> list[int]:
    """All processes that descend from `pid`, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for parent in found:
        found.extend(sorted(children.get(parent, [])))
    return found[1:]


def _maps_stretto(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    return "libstretto" in text or "libnccl" in text


def _target(attach: str | None, children: int | None) -> str:
    if (attach is None) == (children is None):
        stop("doctor: give either --attach PID[,PID]|DIR or --children PID")
    if children is None:
        return str(attach)
    # This very command may be one of them.
    ranks = [pid for pid in descendants(children) if pid != os.getpid() and _maps_stretto(pid)]
    if not ranks:
        stop(f"doctor: process {children} has no descendants that have loaded Stretto", 1)
    return ",".join(str(pid) for pid in ranks)


def _show(document: dict[str, Any]) -> None:
    console.print(document["text"].rstrip("\n"), markup=False)


def doctor(
    attach: Annotated[
        str | None, typer.Option("--attach", metavar="PID[,PID]|DIR", help="Processes, or a STRETTO_FLIGHT_DIR.")
    ] = None,
    children: Annotated[
        int | None, typer.Option("--children", metavar="PID", help="All ranks that this `stretto run` started.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Say which rank a job waits for, in which operation, since when; who died; where ranks disagree.

    The job may run, hang, or be dead (then give the directory that was its STRETTO_FLIGHT_DIR). The exit status is 0
    when all is well and 3 when it is not.
    """
    import stretto

    document = stretto.doctor(_target(attach, children))
    emit(document, json, lambda: _show(document))
    if document["verdict"] not in _WELL:
        raise typer.Exit(3)

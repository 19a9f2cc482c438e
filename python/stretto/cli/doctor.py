"""`stretto doctor`: what a job is doing, which rank holds it up, who died; from outside, without disturbing it. And,
with --nccl, which libnccl a process really uses.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto import loaded
from stretto.cli.output import JsonOption, console, emit, examples, stop
from stretto.processes import descendants

# What stands behind -- is a command of the user's.
SETTINGS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": False},
    "epilog": examples(
        "stretto doctor --attach 4711,4712",
        "stretto doctor --children $(pgrep -f 'stretto run')",
        "stretto doctor",
        "stretto doctor /tmp/flight",
        "stretto doctor --nccl -- python train.py",
    ),
}
_WHOM = "Whom to look at"

# A script can ask whether a job is well: the verdicts that say no give status 3.
_WELL = ("finished", "idle", "working")


def _maps_stretto(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    return "libstretto" in text or "libnccl" in text


def _target(attach: str | None, children: int | None, paths: list[str]) -> str:
    """What `stretto.doctor` takes: files and folders, process ids, or nothing for the last job."""
    if sum((attach is not None, children is not None, bool(paths))) > 1:
        stop(
            "doctor: give one of --attach PID[,PID]|DIR, --children PID, or files and folders; "
            "a command goes with --nccl"
        )
    if children is None:
        return "\n".join(paths) if attach is None else attach
    # This very command may be one of them.
    ranks = [pid for pid in descendants(children) if pid != os.getpid() and _maps_stretto(pid)]
    if not ranks:
        stop(f"doctor: process {children} has no descendants that have loaded Stretto", 1)
    return ",".join(str(pid) for pid in ranks)


def _show(document: dict[str, Any]) -> None:
    console.print(document["text"].rstrip("\n"), markup=False)


def _processes(attach: str | None, children: int | None) -> list[loaded.Loaded]:
    """What the named processes have loaded; of a whole family only those that have something."""
    if (attach is None) == (children is None):
        stop("doctor --nccl: give --attach PID[,PID], --children PID, or -- COMMAND")
    try:
        if children is not None:
            family = [loaded.look_at(pid) for pid in descendants(children) if pid != os.getpid()]
            return [process for process in family if process.libraries]
        return [loaded.look_at(int(pid)) for pid in str(attach).split(",")]
    except ValueError:
        stop(f"doctor --nccl: {attach} is no list of process ids")
    except OSError as error:
        stop(f"doctor --nccl: cannot look at a process: {error.strerror}", 1)
    return []


def _nccl_document(processes: list[loaded.Loaded]) -> dict[str, Any]:
    verdicts = {process.verdict for process in processes} or {"none"}
    # The worst one speaks for all.
    verdict = next(one for one in ("nccl", "both", "none", "stretto") if one in verdicts)
    return {
        "schema": "stretto.nccl/1",
        "verdict": verdict,
        "processes": [process.document() for process in processes],
    }


_WORDS = {
    "stretto": "uses Stretto",
    "nccl": "uses NVIDIA's NCCL",
    "both": "has loaded both",
    "none": "has loaded no libnccl",
}


def _show_nccl(document: dict[str, Any]) -> None:
    if not document["processes"]:
        console.print("None of the processes has loaded a libnccl.")
    for process in document["processes"]:
        console.print(f"Process {process['pid']} {_WORDS[process['verdict']]}  ({process['command']})", markup=False)
        for one in process["libraries"]:
            what = {True: "Stretto", False: "NVIDIA's", None: "gone since"}[one["stretto"]]
            version = f" {one['version']}" if one["version"] else ""
            asked = f", for {one['asked_by']}" if one["asked_by"] else ""
            console.print(f"  {one['path']}: {what}{version}{asked}", markup=False, soft_wrap=True)
        for remark in process["remarks"]:
            console.print(f"  - {remark}", markup=False, soft_wrap=True)


def _which_nccl(attach: str | None, children: int | None, command: list[str], json: str | None) -> None:
    if command and (attach is not None or children is not None):
        stop("doctor --nccl: either a command, or processes that run already")
    if command:
        try:
            status, processes = loaded.trace(command)
        except OSError as error:
            stop(f"doctor --nccl: cannot start {command[0]}: {error.strerror}", 127)
            return
        if status != 0:
            console.print(f"{command[0]} ended with status {status}.", markup=False)
    else:
        processes = _processes(attach, children)
    document = _nccl_document(processes)
    emit(document, json, lambda: _show_nccl(document))
    if document["verdict"] != "stretto":
        raise typer.Exit(3)


def doctor(
    context: typer.Context,
    attach: Annotated[
        str | None,
        typer.Option(
            "--attach", metavar="PID[,PID]|DIR", help="Processes, or a STRETTO_FLIGHT_DIR.", rich_help_panel=_WHOM
        ),
    ] = None,
    children: Annotated[
        int | None,
        typer.Option(
            "--children", metavar="PID", help="All ranks that this stretto run started.", rich_help_panel=_WHOM
        ),
    ] = None,
    nccl: Annotated[
        bool, typer.Option("--nccl", help="Say which libnccl they loaded instead; or, after --, which COMMAND loads.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Say which rank a job waits for, in which operation, since when; who died; where ranks disagree.

    The job may run, hang, or be dead. Of a dead one, give the recorders that it left (*.flight), or their folder: its
    STRETTO_FLIGHT_DIR. With neither processes nor files, it is the last job of yours that did not end in peace, or that
    runs. The exit status is 0 when all is well and 3 when it is not.

    With --nccl: whether a process uses Stretto or NVIDIA's NCCL, from which file, and why; status 0 if it is Stretto, 3
    if not. After -- it runs a COMMAND and says it of all its processes.
    """
    import stretto

    if nccl:
        return _which_nccl(attach, children, context.args, json)
    document = stretto.doctor(_target(attach, children, context.args))
    emit(document, json, lambda: _show(document))
    if document["verdict"] not in _WELL:
        raise typer.Exit(3)
    return None

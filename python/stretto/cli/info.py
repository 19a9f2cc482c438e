"""`stretto info`: which library this is, where it lies, what it reads from the environment, and what a
process loaded.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from stretto.cli.output import JsonOption, console, emit, examples, stop, table
from stretto.loaded import identify, mapped_files

SETTINGS: dict[str, Any] = {"epilog": examples("stretto info", "stretto info --json -", "stretto info --pid 4711")}
# What is shown, by its name in the JSON.
_FACTS = {
    "version": "version",
    "nccl_version": "NCCL version",
    "commit": "commit",
    "compiler": "compiler",
    "cuda": "CUDA",
    "python": "Python",
    "library": "library",
    "nccl_library": "NCCL library",
    "include": "include",
}


def loaded_libraries(pid: int) -> list[dict[str, Any]]:
    """The files named libnccl* or libstretto* that a process has mapped, and whether each is Stretto.

    Raises OSError if there is no such process or it may not be looked at.
    """
    found = [path for path in mapped_files(pid) if Path(path).name.startswith(("libnccl", "libstretto"))]
    return [{"path": path, "stretto": identify(path.removesuffix(" (deleted)")).stretto} for path in sorted(found)]


def _document(pid: int | None) -> dict[str, Any]:
    import stretto
    from stretto import _native, launch

    python = [
        {"name": name, "value": os.environ.get(name, ""), "set": name in os.environ, "help": text}
        for name, text in launch.VARIABLES
    ]
    for variable in python:
        if variable["set"] and variable["name"] in ("STRETTO_UNIQUE_ID", "STRETTO_RENDEZVOUS_SECRET"):
            variable["value"] = "(a secret)"
    document: dict[str, Any] = {
        "schema": "stretto.info/1",
        **{name: value for name, value in stretto.build().items() if name != "schema"},
        "nccl_version": _native.nccl_version(),
        "python": platform.python_version(),
        "library": str(stretto.library_path()),
        "nccl_library": str(stretto.nccl_library_path()),
        "include": str(stretto.include_path()),
        "parameters": stretto.parameters()["parameters"],
        "python_variables": python,
    }
    if pid is not None:
        document["process"] = {"pid": pid, "libraries": loaded_libraries(pid)}
    return document


def _cuda(document: dict[str, Any]) -> str:
    """What the library has for GPUs."""
    if not document["cuda"]:
        return "no: built without nvcc, for ranks in host memory only; memory of GPUs is refused"
    return f"by nvcc {document['nvcc']}, for {', '.join(document['kernels'])}"


def _show(document: dict[str, Any]) -> None:
    facts = table("", "")
    facts.show_header = False
    for name, words in _FACTS.items():
        value = _cuda(document) if name == "cuda" else document[name]
        facts.add_row(words, "unknown" if value is None else str(value))
    console.print(facts)
    console.print()
    rows = table("variable", "value", "what it does")
    for one in [*document["parameters"], *document["python_variables"]]:
        rows.add_row(one["name"], str(one["value"]), one["help"], style="bold" if one["set"] else None)
    console.print(rows)
    if "process" in document:
        _show_process(document["process"])


def _show_process(process: dict[str, Any]) -> None:
    console.print()
    if not process["libraries"]:
        console.print(f"Process {process['pid']} has loaded neither NCCL nor Stretto.")
    for one in process["libraries"]:
        what = {True: "Stretto", False: "not Stretto", None: "deleted since"}[one["stretto"]]
        console.print(f"Process {process['pid']} has loaded {one['path']}: {what}.")


def info(
    pid: Annotated[
        int | None, typer.Option("--pid", metavar="PID", help="Also say which libnccl this process has loaded.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Show version, commit, compiler, CUDA or not, paths, and every environment variable (set ones in bold)."""
    try:
        document = _document(pid)
    except OSError as error:
        stop(f"cannot look at process {pid}: {error.strerror}", 1)
        return
    emit(document, json, lambda: _show(document))

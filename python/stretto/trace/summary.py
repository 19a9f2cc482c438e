"""What a recording holds, counted while it streams by: `stretto trace info`, and what `record` says at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stretto.cli.output import printable
from stretto.trace import layout
from stretto.trace.job import Job, Source, open_job
from stretto.trace.naming import nth, rank_text

SCHEMA = "stretto.trace.info/1"
_MOST_SHOWN = 20  # threads and communicators of a process


def _count(source: Source) -> tuple[dict[str, int], int]:
    """Starts by type, and all events."""
    counts = np.zeros(256, np.int64)
    events = 0
    for segments in source.file.events.values():
        for segment in segments:
            for block in source.file.blocks(segment):
                counts += np.bincount(block.type[block.kind == layout.START], minlength=256)
                events += int(np.count_nonzero((block.kind >= layout.START) & (block.kind <= layout.FINALIZE)))
    return {layout.type_name(number): int(counts[number]) for number in np.flatnonzero(counts).tolist()}, events


def _process(job: Job, source: Source, count: bool) -> dict[str, Any]:
    about = job.processes[source.number]
    counts, events = _count(source) if count else ({}, None)
    return {
        "path": about.path,
        "host": about.host,
        "pid": about.pid,
        "program": about.program,
        "bytes": source.file.size,
        "abi": about.abi,
        "nccl_version": about.nccl_version,
        "stretto_version": about.stretto or None,
        "mask": about.mask,
        "mode": "flight" if about.flight else "stream",
        "closed": about.closed,
        "error": about.error,
        "events": events,
        "dropped": about.dropped,
        "unmatched": about.unmatched,
        "callback_ns": round(about.self_ns, 1),
        "by_type": counts,
        "parent_pid": source.file.definitions.fork_of or None,
        "threads": [],
        "contexts": [],
    }


def _with_members(job: Job, processes: list[dict[str, Any]]) -> None:
    for thread in job.threads:
        processes[thread.process]["threads"].append({"tid": thread.tid, "name": thread.name})
    for one in job.contexts:
        processes[one.process]["contexts"].append(
            {
                "communicator": f"0x{one.communicator:x}",
                "name": one.name,
                "rank": one.rank,
                "ranks": one.ranks,
                "nodes": one.nodes,
                "every": one.every,
            }
        )


def document(paths: Sequence[Path], count: bool = True) -> dict[str, Any]:
    """The JSON "stretto.trace.info/1". Without `count` the events are not looked at, and their numbers are null.

    Raises `BadRecording` where there is nothing to read.
    """
    job = open_job(paths)
    processes = [_process(job, source, count) for source in job.sources]
    _with_members(job, processes)
    return {
        "schema": SCHEMA,
        "origin_realtime_ns": job.origin_realtime_ns,
        "events": sum(one["events"] for one in processes) if count else None,
        "bytes": sum(one["bytes"] for one in processes),
        "processes": processes,
        "quality": vars(job.gather_quality()),
    }


def version_text(number: int) -> str:
    """22809 as 2.28.9, as NCCL counts since 2.9; "unknown" for 0."""
    if number <= 0:
        return "unknown"
    if number < 10000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def library_text(process: dict[str, Any]) -> str:
    """Whose library a process of "stretto.trace.info/1" has, and its version."""
    ours = process["stretto_version"]
    return f"Stretto {ours}" if ours else f"NCCL {version_text(process['nccl_version'])}"


def show(found: dict[str, Any], console: Console, table: Callable[..., Table]) -> None:
    """The same for people."""
    for one in found["processes"]:
        mode = f"{one['mode']}, {'closed in order' if one['closed'] else 'not closed'}"
        console.print(Text(printable(f"{one['host']} {one['pid']}"), "bold"), end=" ")
        console.print(printable(one["program"]), markup=False, overflow="fold")
        facts = f"  {printable(library_text(one))}, profiler ABI v{one['abi']}, mask 0x{one['mask']:x}, {mode}"
        facts += f", {one['events']:,} events, {one['bytes']:,} bytes, {one['dropped']:,} dropped"
        console.print(facts + (f", {one['callback_ns']:g} ns a callback" if one["callback_ns"] else ""))
        _some([f"thread {thread['tid']} {thread['name']}" for thread in one["threads"]], "threads", console)
        _some([_context(context) for context in one["contexts"]], "communicators", console)
    rows = table("events", "", right=(1,))
    totals: dict[str, int] = {}
    for one in found["processes"]:
        for name, count in one["by_type"].items():
            totals[name] = totals.get(name, 0) + count
    for name, count in sorted(totals.items(), key=lambda item: -item[1]):
        rows.add_row(name, f"{count:,}")
    console.print(rows)
    for name, value in found["quality"].items():
        if name != "notes" and value:
            console.print(f"{name.replace('_', ' ')}: {value:,}")
    for text in found["quality"]["notes"]:
        console.print(printable(text), markup=False)


def _context(one: dict[str, Any]) -> str:
    name = f" {one['name']}" if one["name"] else ""
    sample = "" if one["every"] == 1 else f", every {nth(one['every'])} operation"
    return f"communicator {one['communicator']}{name}: {rank_text(one['rank'], one['ranks'])}{sample}"


def _some(lines: list[str], what: str, console: Console) -> None:
    for text in lines[:_MOST_SHOWN]:
        console.print(printable(f"  {text}"), markup=False)
    if len(lines) > _MOST_SHOWN:
        console.print(f"  and {len(lines) - _MOST_SHOWN:,} more {what}")

"""A report as JSON, schema "stretto.trace-report/1" (docs/trace-report.md): times in nanoseconds, null for unknown."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from stretto.trace.analysis import Report
from stretto.trace.attribution import CAUSES, STAGES
from stretto.trace.columns import NONE
from stretto.trace.link import link
from stretto.trace.transfers import STEP_STATES

SCHEMA = "stretto.trace-report/1"


def document(report: Report, top: int) -> dict[str, Any]:
    """The whole report; of operations the `top` whose wait cost most, all of them if that is 0."""
    recording, quality = report.recording, report.recording.quality
    body = {
        "schema": SCHEMA,
        "recording": {
            "processes": len(recording.processes),
            "hosts": recording.hosts(),
            "programs": sorted({item.program for item in recording.processes}),
            "spans": len(recording.spans["type"]),
            "states": len(recording.states["span"]),
            "duration_ns": report.duration_ns,
            "origin_realtime_ns": recording.origin_realtime_ns,
            "runs": report.runs,
        },
        "communicators": [
            {
                "name": item.label,
                "id": f"{item.number & 0xFFFFFFFFFFFFFFFF:#018x}",
                "ranks": item.ranks,
                "complete": item.complete,
                "recorded": sorted({recording.contexts[one].rank for one in item.contexts}),
                "every": item.every,
            }
            for item in report.operations.communicators
        ],
        "clocks": report.clocks,
        "kinds": report.kinds,
        "workers": report.workers,
        "stragglers": report.stragglers,
        "slow_transfers": {"count": report.slow_transfers, "proxies": report.slow_proxies},
        "critical_path": _path(report),
        "pairs": report.pairs,
        "proxy_waits": report.proxy_waits,
        "progress": report.progress,
        "verdict": report.verdict,
        "overhead": report.overhead,
        "quality": {**dataclasses.asdict(quality), "notes": report.notes},
        "operations_total": report.operations.count,
        "operations_named": int(report.lateness.named.sum()),
        "operations": [operation(report, int(number)) for number in ranked(report, top)],
    }
    return _plain(body)  # type: ignore[no-any-return]


def ranked(report: Report, top: int) -> list[int]:
    """Operations by what their last rank cost; in order of time where all are asked for."""
    late = report.lateness
    if top <= 0:
        return list(range(report.operations.count))
    blamed = late.blamed.nonzero()[0]
    return [int(number) for number in blamed[(-late.lead[blamed]).argsort(kind="stable")][:top]]


def operation(report: Report, number: int) -> dict[str, Any]:
    """One operation with all its ranks."""
    operations, late, timeline, moved = report.operations, report.lateness, report.timeline, report.transfers
    low, high = int(operations.first[number]), int(operations.first[number + 1])
    last = int(late.last[number])
    slow = int(moved.slow_row[number])
    excuse = next((name for name, of in vars(late.excused).items() if of[number]), None)
    return {
        "communicator": operations.communicators[int(operations.communicator[number])].label,
        "function": report.recording.strings[int(operations.function[number])],
        "sequence": int(operations.sequence[number]),
        "replay": bool(operations.replay[number]),
        "begin_ns": _time(int(timeline.begin[number])),
        "stage": STAGES[int(timeline.stage[number])],
        "last_rank": int(operations.rank[last]) if last >= 0 else None,
        "link": link_of(report, number),
        "named": bool(late.named[number]),
        "cause": CAUSES[int(late.cause[number])] or None,
        "lead_ns": int(late.lead[number]) if last >= 0 else None,
        "late_ns": int(late.late[number]) if last >= 0 else None,
        "clock_error_ns": float(late.error[number]),
        "ranks": operations.rank[low:high].tolist(),
        "wait_ns": [_time(int(value)) for value in late.wait[low:high]],
        "excuse": excuse,
        "bytes": int(moved.bytes[number]) if moved.bytes[number] >= 0 else None,
        "transfer_ns": float(moved.ns[number]),
        "algorithm_bandwidth": float(moved.algorithm_bandwidth[number]),
        "bus_bandwidth": float(moved.bus_bandwidth[number]),
        "bound": bool(moved.bound[number]),
        "slow": {
            "excess_ns": float(moved.excess[number]),
            "rank": int(operations.rank[slow]) if slow >= 0 else None,
            "state": STEP_STATES[int(moved.slow_state[number])][0] if slow >= 0 else None,
        }
        if moved.excess[number] > 0
        else None,
    }


def link_of(report: Report, number: int) -> str | None:
    """Where the viewer shows it; None of a replay and of a bare call, which have no number there."""
    operations = report.operations
    if operations.replay[number] or operations.coll[operations.first[number]] < 0:
        return None
    communicator = operations.communicators[int(operations.communicator[number])].number
    function = report.recording.strings[int(operations.function[number])]
    return link(communicator, function, int(operations.sequence[number]))


def _time(moment: int) -> int | None:
    return None if moment == NONE else moment


def _path(report: Report) -> dict[str, Any]:
    path, names = report.path, report.operations.workers
    if path.reason:
        return {"reason": path.reason}
    return {
        "reason": None,
        "duration_ns": path.duration_ns,
        "transfer_ns": path.transfer_ns,
        "operations": path.operations,
        "workers": [
            {"worker": names[worker], "last": count, "own_ns": path.own_ns.get(worker, 0)}
            for worker, count in sorted(path.gates.items(), key=lambda item: -path.own_ns.get(item[0], 0))
        ],
        "what_if": [
            {
                "without": names[item.worker] if item.worker >= 0 else "all",
                "saved_ns": item.saved_ns,
                "share": item.share,
            }
            for item in path.what_if
        ],
        "played_operations": path.played,
    }


def _plain(value: Any) -> Any:
    """What json can write: no dataclasses, no NaN, no infinity."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value

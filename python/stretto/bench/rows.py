"""The record of a run, in the schema "stretto.bench/1": what was measured, on what, and by which rules.

Times are microseconds, bandwidths 10^9 bytes a second. A row is one implementation at one size.
"""

import csv
import math
import os
import platform
import statistics
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from stretto.bench.measure import SUBJECT, Cell
from stretto.bench.options import TORCH, Options
from stretto.bench.workload import COLLECTIVES

Row = dict[str, Any]
SCHEMA = "stretto.bench/1"
FLOOR = "memcpy"
# Measured beside Stretto and never compared with: the floor, which computes nothing and is not verified, and Stretto
# itself behind PyTorch.
NO_RIVALS = (FLOOR, TORCH)
# Below this a copy's time is mostly that of the call, and says nothing about memory.
FLOOR_FROM_BYTES = 64 * 1024


def operation(options: Options) -> Row:
    """What is moved or computed, as far as the collective has a choice."""
    facts = COLLECTIVES[options.collective]
    return {
        "dtype": options.dtype,
        "op": options.op if facts.reduces else None,
        "root": options.root if facts.rooted else None,
    }


def row_of(cell: Cell, options: Options) -> Row:
    facts = COLLECTIVES[options.collective]
    algbw = cell.size / cell.median / 1000
    least, most = cell.spread
    return {
        "implementation": cell.implementation,
        "collective": options.collective,
        **_how(cell),
        "ranks": options.ranks,
        "ranks_as": "threads" if cell.implementation == FLOOR or _as_threads(cell, options) else "processes",
        "device": options.device,
        "shared_device": options.shared_device,
        **operation(options),
        "bytes": cell.size,
        "in_place": cell.how.get("in_place", options.in_place and cell.implementation != FLOOR),
        "buffers": options.buffers,
        "graph": options.in_graph,
        "phase": "steady",
        "rounds": len(cell.turns),
        "iterations": sum(cell.schedule.batch * len(turn) for turn in cell.turns) if cell.schedule else 0,
        "single_calls": cell.single_calls,
        "us_min": min(cell.times),
        "us_median": cell.median,
        "us_p99": cell.p99,
        "us_spread": [least, most],
        "us_host": statistics.median(cell.host) if cell.host else None,
        "algbw_gbps": algbw,
        "busbw_gbps": algbw * facts.bus(options.ranks),
        "verified": bool(options.check) and cell.implementation != FLOOR,
        "wrong": cell.wrong,
    }


def write_csv(rows: list[Row], file: TextIO) -> None:
    """A column for each field of a row; the two ends of the spread have one each."""
    flat = [
        {**{name: value for name, value in row.items() if name != "us_spread"}, **_ends(row["us_spread"])}
        for row in rows
    ]
    writer = csv.DictWriter(file, list(flat[0]) if flat else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _ends(spread: list[float]) -> dict[str, float]:
    return {"us_spread_low": spread[0], "us_spread_high": spread[1]}


def _as_threads(cell: Cell, options: Options) -> bool:
    return options.threads and cell.implementation == SUBJECT


def _how(cell: Cell) -> dict[str, object]:
    """Algorithm and protocol: as the driver names them, or from the explanation of a planner's choice."""
    chosen = cell.how.get("chosen", cell.how)
    if isinstance(chosen, int):
        candidates = cell.how.get("candidates")
        chosen = candidates[chosen] if isinstance(candidates, list) and chosen < len(candidates) else {}
    if isinstance(chosen, str):
        chosen = {"algorithm": chosen, "protocol": cell.how.get("protocol")}
    chosen = chosen if isinstance(chosen, dict) else {}
    algorithm = chosen.get("algorithm")
    gather = chosen.get("ring_gather") if str(algorithm).endswith("ring") else None
    return {"algorithm": algorithm, "protocol": chosen.get("protocol"), "ring_gather": gather}


def machine() -> dict[str, Any]:
    """Facts that numbers depend on. No names: a result may be published."""
    allowed = os.sched_getaffinity(0)
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_allowed": len(allowed),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or "unknown"


def ratios(rows: Iterable[Row], field: str = "us_median") -> dict[str, list[tuple[int, float]]]:
    """For each rival: (bytes, its time / Stretto's) of every size that both have."""
    times = {(row["implementation"], row["bytes"]): row[field] for row in rows}
    out: dict[str, list[tuple[int, float]]] = {}
    for (name, size), time in times.items():
        own = times.get((SUBJECT, size))
        if name not in (SUBJECT, *NO_RIVALS) and own:
            out.setdefault(name, []).append((size, time / own))
    return out


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def floor_share(rows: Iterable[Row], name: str, size: int) -> float | None:
    """How much of the floor's speed an implementation reaches at a size: 1 is all of it."""
    times = {row["implementation"]: row["us_median"] for row in rows if row["bytes"] == size}
    if size < FLOOR_FROM_BYTES or name not in times or FLOOR not in times:
        return None
    return float(times[FLOOR] / times[name])


def _mean_ratios(rows: list[Row], field: str) -> dict[str, float]:
    pairs_by_name = ratios(rows, field).items()
    return {name: geometric_mean(ratio for _, ratio in pairs) for name, pairs in pairs_by_name}


def summary(rows: list[Row]) -> dict[str, Any]:
    """The few numbers that a run comes down to."""
    sizes = sorted({row["bytes"] for row in rows})
    large = [size for size in sizes if size >= 1 << 20]
    names = dict.fromkeys(row["implementation"] for row in rows)
    shares = {
        name: [share for size in large if (share := floor_share(rows, name, size)) is not None]
        for name in names
        if name not in NO_RIVALS
    }
    return {
        "geometric_mean_ratio": _mean_ratios(rows, "us_median"),
        "geometric_mean_ratio_of_fastest_batches": _mean_ratios(rows, "us_min"),
        "median_floor_share_from_1M": {name: statistics.median(own) for name, own in shares.items() if own},
        "wrong": sum(row["wrong"] or 0 for row in rows),
    }

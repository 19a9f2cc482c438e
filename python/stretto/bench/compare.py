"""Comparing a run with an earlier one: whether Stretto has become slower, as far as the turns of both can tell.

A size is slower, or faster, if the middle halves of the turns' medians (`us_spread`) of the two runs lie apart, and by
more than the threshold. So what the machine's mood changes between turns is no regression, and no gain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stretto.bench.measure import SUBJECT
from stretto.bench.options import Options, UsageError
from stretto.bench.rows import SCHEMA, Row, geometric_mean, operation
from stretto.bench.workload import format_size

# What both runs must have measured alike, as the records name it, and what the command line calls it.
_ALIKE = {
    "collective": "the collective",
    "ranks": "--ranks",
    "device": "--device",
    "dtype": "--datatype",
    "op": "--op",
    "root": "--root",
    "in_place": "--in-place",
    "buffers": "--buffers",
    "graph": "--graph",
    "ranks_as": "--threads",
}


@dataclass(frozen=True)
class Change:
    """One size. `ratio`: the time now over the time then. `verdict`: slower, faster or same."""

    bytes: int
    before_us: float
    now_us: float
    verdict: str

    @property
    def ratio(self) -> float:
        return self.now_us / self.before_us


def read(path: Path) -> list[Row]:
    """Stretto's rows of an earlier run. Raises UsageError if it is none."""
    try:
        record = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"--compare: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--compare: {path} is no JSON: {error}") from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != SCHEMA:
        raise UsageError(f"--compare: {path} is no run of stretto bench (its schema is {schema}, not {SCHEMA})")
    try:
        rows = [row for row in record["rows"] if row["implementation"] == SUBJECT]
        for row in rows:
            low, high = row["us_spread"]
            if not (row["bytes"] > 0 and 0 < low <= high and row["us_median"] > 0):
                raise ValueError(f"bytes and times must be above 0, and are {row['bytes']}, {row['us_median']}")
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"--compare: the rows of {path} are not those of stretto bench: {error!r}") from error
    if not rows:
        raise UsageError(f"--compare: {path} has no rows of {SUBJECT}")
    if any(row.get("wrong") for row in rows):
        raise UsageError(f"--compare: in {path} {SUBJECT} had wrong results, whose times count for nothing")
    return rows


def expect_alike(before: list[Row], now: dict[str, Any], path: Path) -> None:
    """Raises UsageError where the runs do not measure the same; `now` is a row, or as much of one as is known."""
    for name, words in _ALIKE.items():
        if name in now and before[0].get(name) != now[name]:
            raise UsageError(f"--compare: {path} measured {words} {before[0].get(name)}, and this run {now[name]}")


def expected_row(options: Options) -> dict[str, Any]:
    """What a run of these options will say in each row of Stretto's."""
    return {
        "collective": options.collective,
        "ranks": options.ranks,
        "device": options.device,
        **operation(options),
        "in_place": options.in_place,
        "buffers": options.buffers,
        "graph": options.in_graph,
        "ranks_as": "threads" if options.threads else "processes",
    }


def changes(before: list[Row], now: list[Row], threshold: float) -> list[Change]:
    """Of every size that both have. `threshold`: a share of the earlier time."""
    earlier = {row["bytes"]: row for row in before if row["implementation"] == SUBJECT}
    found = []
    for row in now:
        old = earlier.get(row["bytes"])
        if row["implementation"] == SUBJECT and old is not None:
            found.append(Change(row["bytes"], old["us_median"], row["us_median"], _verdict(old, row, threshold)))
    return found


def _verdict(before: Row, now: Row, threshold: float) -> str:
    if now["us_spread"][0] > before["us_spread"][1] * (1 + threshold):
        return "slower"
    return "faster" if now["us_spread"][1] * (1 + threshold) < before["us_spread"][0] else "same"


def in_words(found: list[Change], threshold: float, path: Path) -> str:
    """Lines for people."""
    mean = geometric_mean(change.ratio for change in found)
    lines = [
        f"compared with {path}: {mean:.3f} times as long (geometric mean of {len(found)} "
        f"size{'s' * (len(found) > 1)}; a size has changed where the turns lie more than {threshold:.0%} apart)"
    ]
    for change in found:
        if change.verdict != "same":
            times = f"{change.before_us:.4g} -> {change.now_us:.4g} µs"
            lines.append(
                f"  {change.verdict.upper():>6} at {format_size(change.bytes)}: {times} (x {change.ratio:.2f})"
            )
    if all(change.verdict == "same" for change in found):
        lines.append("  no size has changed")
    return "\n".join(lines)


def document(found: list[Change], threshold: float, path: Path) -> dict[str, Any]:
    """For the record of the run."""
    return {
        "with": str(path),
        "threshold": threshold,
        "geometric_mean_ratio": geometric_mean(change.ratio for change in found),
        "sizes": [
            {
                "bytes": change.bytes,
                "us_median_before": change.before_us,
                "us_median": change.now_us,
                "ratio": change.ratio,
                "verdict": change.verdict,
            }
            for change in found
        ],
    }

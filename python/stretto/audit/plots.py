"""The pictures of an audit, as PNGs in memory. matplotlib is needed only here."""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

from stretto.bench.rows import FLOOR
from stretto.bench.workload import format_size

_OURS, _MODEL, _PEER, _FAINT = "#c2410c", "#9ca3af", "#1d4ed8", "#e5e7eb"


def draw(document: dict[str, Any]) -> list[tuple[str, bytes]]:
    """What there is something to draw of: a title and a PNG each. Of an audit of several hosts, the ways between."""
    if "network" in document:
        ways = [way for way in document["network"] if way["gbps"] is not None]
        return [("Between the hosts, 4 MB", _draw(_ways, {"ways": ways}))] if ways else []
    found = []
    if document["ladder"]:
        found.append(("Latency by size", _draw(_ladder, document)))
    if len({row["bytes"] for row in document["bandwidth"]}) > 1:
        found.append(("Large all-reduces against memcpy", _draw(_bandwidth, document)))
    if document.get("launch"):
        found.append(("What a call costs the rank that makes it", _draw(_launch, document)))
    if document["inits"]:
        found.append(("Making a communicator", _draw(_inits, document)))
    if len({row["bytes"] for row in (document.get("gpus") or {}).get("rows", ())}) > 1:
        found.append(("All-reduces between GPUs", _draw(_gpus, document)))
    if document.get("gpu_pairs"):
        found.append(("Large messages between pairs of GPUs", _draw(_gpu_pairs, document)))
    if any(one["probe"] == "wake" for one in document["platform"]):
        found.append(("Waking another thread", _draw(_wakes, document)))
    if any(one["probe"] == "socket" for one in document["platform"]):
        found.append(("Sockets", _draw(_sockets, document)))
    return found


def _draw(picture: Any, document: dict[str, Any]) -> bytes:
    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    picture(axes, document)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    pyplot.close(figure)
    return file.getvalue()


def _by_size(axes: Any, sizes: list[int], unit: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [format_size(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylabel(unit)
    axes.grid(True, color=_FAINT)
    axes.legend(frameon=False)


def _ladder(axes: Any, document: dict[str, Any]) -> None:
    rows = document["ladder"]
    sizes = [row["bytes"] for row in rows]
    axes.fill_between(
        sizes, [row["best"] for row in rows], [row["p99"] for row in rows], color=_OURS, alpha=0.15, label="best to p99"
    )
    axes.plot(sizes, [row["p50"] for row in rows], color=_OURS, marker="o", label="median")
    axes.plot(sizes, [row["model"] for row in rows], color=_MODEL, linestyle="--", label="the model of this machine")
    _by_size(axes, sizes, "microseconds of one call")


def _bandwidth(axes: Any, document: dict[str, Any]) -> None:
    for name, colour in (("stretto", _OURS), (FLOOR, _MODEL)):
        rows = [row for row in document["bandwidth"] if row["implementation"] == name]
        axes.plot(
            [row["bytes"] for row in rows], [row["us_median"] for row in rows], color=colour, marker="o", label=name
        )
    _by_size(axes, sorted({row["bytes"] for row in document["bandwidth"]}), "microseconds of one call")


def _bars(axes: Any, rows: list[dict[str, Any]], unit: str) -> None:
    names = [row["case"] for row in rows]
    axes.barh(names, [row["best"] for row in rows], color=_PEER, label="best")
    axes.plot([row["median"] for row in rows], names, "o", color=_OURS, label="median")
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.legend(frameon=False)


def _wakes(axes: Any, document: dict[str, Any]) -> None:
    axes.set_xscale("log")
    _bars(axes, [one for one in document["platform"] if one["probe"] == "wake"], "microseconds one way")


def _sockets(axes: Any, document: dict[str, Any]) -> None:
    _bars(axes, [one for one in document["platform"] if one["probe"] == "socket"], "GB/s")


def _launch(axes: Any, document: dict[str, Any]) -> None:
    _bars(axes, [{"case": way, **cost} for way, cost in document["launch"].items()], "nanoseconds")


def _inits(axes: Any, document: dict[str, Any]) -> None:
    """Of the fastest one of each number of ranks."""
    counts = sorted(document["inits"], key=int)
    best = [min(document["inits"][count], key=lambda one: one["wall"]) for count in counts]
    below = [0.0] * len(best)
    for phase, colour in (("bootstrap", _PEER), ("connect", _OURS), ("elsewhere", _MODEL)):
        parts = [one[phase] if phase in one else one["wall"] - one["bootstrap"] - one["connect"] for one in best]
        name = {"bootstrap": "meeting", "connect": "connecting"}.get(phase, phase)
        axes.bar(counts, parts, bottom=below, color=colour, label=name)
        below = [low + part for low, part in zip(below, parts, strict=True)]
    axes.set_xlabel("ranks")
    axes.set_ylabel("milliseconds")
    axes.legend(frameon=False)


def _gpus(axes: Any, document: dict[str, Any]) -> None:
    rows = document["gpus"]["rows"]
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    for name, colour in zip(names, (_OURS, _PEER, _MODEL), strict=False):
        own = [row for row in rows if row["implementation"] == name]
        axes.plot(
            [row["bytes"] for row in own], [row["us_median"] for row in own], color=colour, marker="o", label=name
        )
    _by_size(axes, sorted({row["bytes"] for row in rows}), "microseconds of one call")


def _gpu_pairs(axes: Any, document: dict[str, Any]) -> None:
    names = [f"GPU {pair.replace('-', ' and ')}" for pair in document["gpu_pairs"]]
    axes.barh(names, list(document["gpu_pairs"].values()), color=_OURS)
    axes.invert_yaxis()
    axes.set_xlabel("GB/s at best")


def _ways(axes: Any, document: dict[str, Any]) -> None:
    names = [f"{way['source']} to {way['target']}" for way in document["ways"]]
    axes.barh(names, [way["sockets_gbps"] or 0.0 for way in document["ways"]], color=_MODEL, label="a plain socket")
    axes.plot([way["gbps"] for way in document["ways"]], names, "o", color=_OURS, label="stretto")
    axes.invert_yaxis()
    axes.set_xlabel("GB/s")
    axes.legend(frameon=False)

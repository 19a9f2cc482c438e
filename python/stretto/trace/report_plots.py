"""The pictures of a report. matplotlib is needed only here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot

from stretto.trace.analysis import Report
from stretto.trace.columns import NONE, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _FAINT, _MUTED = "#1f2937", "#e5e7eb", "#9ca3af"
_WAIT, _TRANSFER = "#c2410c", "#1d4ed8"
# Told apart by readers who do not see red and green alike.
_COLOURS = ("#1d4ed8", "#c2410c", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#60a5fa", "#4d7c0f")
_MOST_POINTS = 20_000
_BINS = 60


def save_plots(report: Report, folder: Path) -> list[tuple[str, str]]:
    """Draws what there is something to draw of; gives (title, file name)."""
    drawings = {
        "Lateness by rank": ("lateness.png", _lateness),
        "Wait and transfer": ("wait-transfer.png", _stacked),
        "Bus bandwidth of the transfer alone": ("bandwidth.png", _bandwidth),
    }
    made = []
    for title, (name, draw) in drawings.items():
        with pyplot.rc_context({"font.size": 10, "axes.edgecolor": _MUTED, "text.color": _INK}):
            figure, axes = pyplot.subplots(figsize=(9.5, 3.6), layout="constrained")
            if draw(report, axes):
                axes.set_title(title, loc="left", fontweight="bold")
                for side in ("top", "right"):
                    axes.spines[side].set_visible(False)
                axes.grid(True, color=_FAINT, linewidth=0.8)
                axes.set_axisbelow(True)
                folder.mkdir(exist_ok=True)
                figure.savefig(folder / name, dpi=130)
                made.append((title, name))
            pyplot.close(figure)
    return made


def _thin(rows: Int) -> Int:
    return rows[:: -(-len(rows) // _MOST_POINTS)] if len(rows) else rows


def _lateness(report: Report, axes: Axes) -> bool:
    """When each named rank was late, and by how much."""
    late, timeline, operations = report.lateness, report.timeline, report.operations
    named = _thin(np.flatnonzero(late.named).astype(np.int64))
    if len(named) == 0:
        return False
    worker = operations.worker[late.last[named]]
    origin = int(timeline.begin[timeline.begin > NONE].min())
    order = np.argsort(-np.bincount(worker))
    for place, one in enumerate(order[: len(np.unique(worker))]):
        here = named[worker == one]
        rest = place >= len(_COLOURS)
        axes.plot(
            (timeline.begin[here] - origin) / 1e9,
            late.late[here] / 1e3,
            linestyle="none",
            marker="o",
            markersize=3,
            alpha=0.7,
            markeredgewidth=0,
            color=_MUTED if rest else _COLOURS[place],
            label=None if rest else operations.workers[int(one)],
        )
    axes.set_yscale("log")
    axes.set_xlabel("time, s")
    axes.set_ylabel("later than the others, µs")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return True


def _stacked(report: Report, axes: Axes) -> bool:
    """Of each worker: how long it waited for others in all, and how long it moved data."""
    late, timeline, operations = report.lateness, report.timeline, report.operations
    of = operations.operation
    known = (late.wait > NONE) & (timeline.end > NONE)
    if not known.any():
        return False
    worker = operations.worker[known]
    count = len(operations.workers)
    waited = np.bincount(worker, late.wait[known] / 1e9, minlength=count)
    moving = np.maximum(timeline.end[known] - timeline.begin[of[known]], 0)
    moved = np.bincount(worker, moving / 1e9, minlength=count)
    places = np.arange(count)
    axes.bar(places, moved, color=_TRANSFER, label="transfer", width=0.7)
    axes.bar(places, waited, bottom=moved, color=_WAIT, label="wait for the last rank", width=0.7)
    step = -(-count // 16)
    axes.set_xticks(places[::step], operations.workers[::step], rotation=0 if count <= 10 else 45)
    axes.set_ylabel("time in collectives, s")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return True


def _bandwidth(report: Report, axes: Axes) -> bool:
    """How often transfers had which bus bandwidth, of the most frequent kinds."""
    bandwidth = report.transfers.bus_bandwidth
    operations, sizes = report.operations, report.transfers.bytes
    drawn = False
    known = np.isfinite(bandwidth) & (bandwidth > 0)
    if not known.any():
        return False
    edges = np.geomspace(bandwidth[known].min() * 0.99, bandwidth[known].max() * 1.01, _BINS).tolist()
    labels = np.array([item.label for item in operations.communicators])[operations.communicator]
    for place, kind in enumerate(report.kinds[: len(_COLOURS)]):
        function = np.array(report.recording.strings)[operations.function] == kind.function
        here = known & function & (sizes == kind.bytes) & (labels == kind.communicator)
        here &= operations.replay == kind.replay
        if here.any():
            name = f"{kind.communicator} {kind.function}{' in graphs' * kind.replay}, {kind.bytes:,} B"
            look: dict[str, Any] = {"histtype": "step", "linewidth": 1.8, "color": _COLOURS[place]}
            axes.hist(bandwidth[here], bins=edges, label=name, **look)
            drawn = True
    axes.set_xscale("log")
    axes.set_xlabel("bus bandwidth, GB/s")
    axes.set_ylabel("operations")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    return drawn

"""The picture of a run: time and bus bandwidth over size, one line per implementation.

The band around a line holds the middle half of its turns. matplotlib is needed only here.
"""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.bench.measure import SUBJECT
from stretto.bench.rows import FLOOR, FLOOR_FROM_BYTES, Row
from stretto.bench.workload import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Stretto stands out; the rivals' colours are told apart by readers who do not see red and green alike.
_COLOURS = {
    SUBJECT: "#c2410c",
    "openmpi": "#1d4ed8",
    "gloo": "#0f766e",
    "nccl": "#1d4ed8",
    "nccl-ring": "#60a5fa",
    "nccl-windows": "#0f766e",
    "stretto-windows": "#f59e0b",
    "symm-mem-one-shot": "#7c3aed",
    "symm-mem-two-shot": "#a16207",
    FLOOR: "#9ca3af",
}
_OTHER_COLOURS = ("#be185d", "#4d7c0f", "#374151", "#0ea5e9", "#9333ea", "#b45309")
_MARKERS = {
    SUBJECT: "o",
    "openmpi": "s",
    "gloo": "^",
    "nccl": "s",
    "nccl-ring": "v",
    "nccl-windows": "^",
    "stretto-windows": "D",
}
_OTHER_MARKERS = ("D", "v", "P", "X", "<", ">", "*")
INK = "#1f2937"
FAINT = "#e5e7eb"
_FOOTNOTE_WIDTH = 175  # characters that fit below both panels


def save_plot(record: dict[str, Any], path: Path) -> None:
    """Writes the picture; ImportError where matplotlib is missing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows: list[Row] = record["rows"]
    with pyplot.rc_context({"font.size": 10, "axes.edgecolor": "#9ca3af", "text.color": INK}):
        figure, panels = pyplot.subplots(1, 2, figsize=(12.5, 5.4), layout="constrained")
        for name, style in styles(list(dict.fromkeys(row["implementation"] for row in rows))).items():
            own = sorted((row for row in rows if row["implementation"] == name), key=lambda row: int(row["bytes"]))
            _draw(panels[0], own, style, "us_median")
            _draw(panels[1], own, style, "busbw_gbps")
        sizes = sorted({int(row["bytes"]) for row in rows})
        _keep_to_medians(panels[0], [float(row["us_median"]) for row in rows if _is_drawn(row)])
        _keep_to_medians(panels[1], [float(row["busbw_gbps"]) for row in rows if _is_drawn(row)])
        finish(panels[0], sizes, "time of one call, microseconds", "Latency: lower is better")
        finish(panels[1], sizes, "bus bandwidth, GB/s", "Bus bandwidth: higher is better")
        panels[0].legend(frameon=False, loc="upper left", fontsize=11)
        figure.suptitle(_title(rows[0]), fontsize=14, fontweight="bold", x=0.01, ha="left")
        figure.supxlabel(footnote(record), fontsize=8.5, color="#6b7280", x=0.01, ha="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def styles(names: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each: its own where it has one, else the next, in a combination that no other has."""
    others = iter(range(len(names)))
    found = {}
    for name in names:
        number = next(others) if name not in _COLOURS or name not in _MARKERS else 0
        found[name] = (
            _COLOURS.get(name, _OTHER_COLOURS[number % len(_OTHER_COLOURS)]),
            _MARKERS.get(name, _OTHER_MARKERS[number % len(_OTHER_MARKERS)]),
        )
    return found


def _draw(axes: "Axes", rows: list[Row], style: tuple[str, str], field: str) -> None:
    colour, marker = style
    name = rows[0]["implementation"]
    rows = [row for row in rows if _is_drawn(row)]
    if not rows:
        return
    sizes = [row["bytes"] for row in rows]
    values = [row[field] for row in rows]
    if name == FLOOR:
        axes.plot(
            sizes,
            values,
            color=colour,
            linestyle=(0, (4, 3)),
            linewidth=1.4,
            label="floor (memcpy)",
            zorder=1,
        )
        return
    # A bandwidth is bytes over time, so its band is the time's, turned over.
    ends = [[value * _scale(row, end, field) for row, value in zip(rows, values, strict=True)] for end in (0, 1)]
    axes.fill_between(sizes, ends[0], ends[1], color=colour, alpha=0.16, linewidth=0, zorder=2)
    own = name == SUBJECT
    axes.plot(
        sizes,
        values,
        color=colour,
        marker=marker,
        markersize=4.5 if own else 3.8,
        linewidth=2.2 if own else 1.5,
        label=name,
        zorder=4 if own else 3,
    )


def _is_drawn(row: Row) -> bool:
    return bool(row["implementation"] != FLOOR or row["bytes"] >= FLOOR_FROM_BYTES)


def _keep_to_medians(axes: "Axes", values: list[float]) -> None:
    """So that one disturbed turn's band cannot squeeze the lines together."""
    axes.set_ylim(min(values) / 2, max(values) * 2)


def _scale(row: Row, end: int, field: str) -> float:
    factor = float(row["us_spread"][end] / row["us_median"])
    return factor if field.startswith("us_") else 1 / factor


def finish(axes: "Axes", sizes: list[int], unit: str, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel("size, bytes")
    axes.set_ylabel(unit)
    step = -(-len(sizes) // 9)
    axes.set_xticks(sizes[::step], [format_size(size) for size in sizes[::step]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, which="major", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _title(row: Row) -> str:
    words = [row["collective"], row["dtype"]] + ([row["op"]] if row["op"] else [])
    ranks = f"{row['ranks']} GPU ranks" if row["device"] == "cuda" else f"{row['ranks']} {row['device'].upper()} ranks"
    return f"{' '.join(words)}, {ranks}" + (", in CUDA graphs" if row["graph"] else "")


def footnote(record: dict[str, Any]) -> str:
    machine, turns = record["machine"], record["rows"][0]["rounds"]
    versions = ", ".join(f"{name} {facts['version']}" for name, facts in record["implementations"].items())
    gpus = {facts["gpu"]: None for facts in record["implementations"].values() if facts.get("gpu")}
    where = f"{', '.join([*gpus, machine['cpu']])}, {machine['cores_allowed']} cores, {machine['date'][:10]}"
    lines = textwrap.wrap(f"{where}; {versions}", _FOOTNOTE_WIDTH)
    how = f"medians of {turns} turns taken alternately in one run; bands: the middle half of the turns"
    return "\n".join([*lines, how])

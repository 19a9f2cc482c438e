"""The lab's pictures. matplotlib is needed only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stretto.bench.measure import SUBJECT
from stretto.bench.plot import INK, finish, footnote, styles
from stretto.bench.rows import Row
from stretto.trace.words import plural


@contextmanager
def _figure(path: Path, title: str, foot: str, columns: int, size: tuple[float, float]) -> Iterator[list[Any]]:
    """The panels of a picture, which is written when the block ends."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 10, "axes.edgecolor": "#9ca3af", "text.color": INK}):
        figure, panels = pyplot.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
        yield list(panels[0])
        figure.suptitle(title, fontsize=14, fontweight="bold", x=0.01, ha="left")
        figure.supxlabel(foot, fontsize=8.5, color="#6b7280", x=0.01, ha="left")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


def _foot(record: dict[str, Any], how: str) -> str:
    """Machine and versions as under the benchmark's pictures, and how this one is to be read."""
    return f"{footnote(record).rpartition(chr(10))[0]}\n{how}"


def chain(record: dict[str, Any], path: Path) -> None:
    """Time of one all-reduce over size, a panel for each amount of work between."""
    rows: list[Row] = record["rows"]
    works = list(dict.fromkeys(row["work_us"] for row in rows))
    sizes = sorted({int(row["bytes"]) for row in rows})
    options = record["options"]
    title = f"Chains of {options['length']} all-reduces, float32, {options['ranks']} CPU ranks"
    foot = _foot(record, f"medians of {options['rounds']} turns taken alternately in one run")
    with _figure(path, title, foot, len(works), (6.2 * len(works), 5.2)) as panels:
        for panel, work in zip(panels, works, strict=True):
            for name, style in styles(list(dict.fromkeys(row["implementation"] for row in rows))).items():
                own = [row for row in rows if row["implementation"] == name and row["work_us"] == work]
                _line(panel, own, style)
            heading = f"{work:g} µs of work after each" if work else "nothing between"
            finish(panel, sizes, "one all-reduce, less the work, microseconds", heading)
        panels[0].legend(frameon=False, loc="upper left")


def _line(panel: Any, rows: list[Row], style: tuple[str, str]) -> None:
    if not rows:
        return
    own = rows[0]["implementation"] == SUBJECT
    panel.plot(
        [row["bytes"] for row in rows],
        [max(row["us_per_operation"], 0.01) for row in rows],
        color=style[0],
        marker=style[1],
        markersize=4.5 if own else 3.8,
        linewidth=2.2 if own else 1.4,
        label=rows[0]["implementation"],
        zorder=4 if own else 3,
    )


def straggler(record: dict[str, Any], path: Path) -> None:
    """The last chain with a late rank of each kind: a row for each rank, bars for its all-reduces."""
    rows: list[Row] = record["rows"]
    options = record["options"]
    places = list(dict.fromkeys(row["place"] for row in rows))
    title = f"Rank {options['late_rank']} is {options['late_us']:g} µs late at operation {options['late_at']}"
    foot = _foot(record, "the last chain of each; bars: inside an all-reduce, gaps: at work")
    height = 1.6 + 0.55 * max(sum(row["place"] == place for row in rows) for place in places)
    with _figure(path, title, foot, len(places), (7.5 * len(places), height)) as panels:
        for panel, place in zip(panels, places, strict=True):
            _lanes(panel, [row for row in rows if row["place"] == place], options["late_rank"])
            panel.set_title(f"late {place} the operation", loc="left", fontsize=11, color=INK)


def _lanes(panel: Any, rows: list[Row], late: int) -> None:
    ticks: list[tuple[float, str]] = []
    for place, row in enumerate(rows):
        start = min(stamps["began"][0] for stamps in row["stamps"])
        ranks = len(row["stamps"])
        for rank, stamps in enumerate(row["stamps"]):
            ends = zip(stamps["began"], stamps["ended"], strict=True)
            bars = [((began - start) / 1000, max((ended - began) / 1000, 1)) for began, ended in ends]
            lane = (place + 0.8 * rank / ranks, 0.8 / ranks * 0.85)
            panel.broken_barh(bars, lane, color="#c2410c" if rank == late else "#1d4ed8")
        ticks.append((place + 0.4, row["implementation"]))
    panel.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    panel.invert_yaxis()
    panel.set_xlabel("microseconds since the chain began (red: the late rank)")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def decode(record: dict[str, Any], path: Path) -> None:
    """A step's time by part, a panel for each batch and a bar for each backend."""
    rows: list[Row] = record["rows"]
    options = record["options"]
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    what = "One layer" if options["layers"] == 1 else f"A decode step of {options['layers']} layers"
    context = plural(options["context"], "token")
    place = "CPU ranks" if options["device"] == "cpu" else "GPUs"
    model = "Qwen3-8B" if options["scale"] == 1 else f"Qwen3-8B / {options['scale']}"
    title = f"{what} of {model}, {options['ranks']} {place}, {context} of context"
    how = f"{record['arithmetic']}; medians over ranks and {options['rounds']} turns taken alternately in one run"
    width = max(9.0, 3.6 * len(batches))
    with _figure(path, title, _foot(record, how), len(batches), (width, 4.6)) as panels:
        for panel, batch in zip(panels, batches, strict=True):
            _bars(panel, [row for row in rows if row["batch"] == batch])
            panel.set_title(f"batch {batch}", loc="left", fontsize=11, color=INK)
        panels[0].set_ylabel("one step, milliseconds")
        panels[-1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


_PART_COLOURS = {
    "gemm": "#9ca3af",
    "attention": "#60a5fa",
    "norm": "#a3e635",
    "activation": "#facc15",
    "communication": "#c2410c",
}


def _bars(panel: Any, rows: list[Row]) -> None:
    names = [row["implementation"] for row in rows]
    below = [0.0] * len(rows)
    for part, colour in _PART_COLOURS.items():
        heights = [row["us_by_part"][part] / 1000 for row in rows]
        panel.bar(names, heights, bottom=below, color=colour, label=part, width=0.7)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    panel.tick_params(axis="x", labelrotation=35)
    for label in panel.get_xticklabels():
        label.set_horizontalalignment("right")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)

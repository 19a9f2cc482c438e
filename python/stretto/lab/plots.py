"""The lab's pictures. matplotlib is needed only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stretto.bench.measure import SUBJECT
from stretto.bench.plot import INK, finish, footnote, styles
from stretto.bench.rows import Row


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


def chain(record: dict[str, Any], path: Path) -> None:
    """Time of one all-reduce over size, a panel for each amount of work between."""
    rows: list[Row] = record["rows"]
    works = list(dict.fromkeys(row["work_us"] for row in rows))
    sizes = sorted({int(row["bytes"]) for row in rows})
    options = record["options"]
    title = f"Chains of {options['length']} all-reduces, float32, {options['ranks']} CPU ranks"
    with _figure(path, title, footnote(record), len(works), (6.2 * len(works), 5.2)) as panels:
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

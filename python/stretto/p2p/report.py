"""What a measurement between two processes is shown as: a table, a Markdown log, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stretto.bench.workload import format_size
from stretto.p2p.measure import FLOOR, SUBJECT, Row

HEADINGS = ("bytes", "one way GB/s", "both ways", "half round trip µs", "p99", "best plain sockets GB/s", "ratio")
_MEASURES = (("there", "gbps_median"), ("both", "gbps_median"), ("pingpong", "us_median"), ("pingpong", "us_p99"))


def _of(rows: list[Row], name: str, way: str) -> Row:
    """Nothing where that way was not measured."""
    return next((row for row in rows if row["implementation"] == name and row["way"] == way), {})


def names_in(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["implementation"] for row in rows))


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def best_floor(rows: list[Row]) -> Row | None:
    """The fastest of the plain sockets, one way."""
    floors = [row for row in rows if row["implementation"].startswith(FLOOR) and row["way"] == "there"]
    return max(floors, key=lambda row: float(row["gbps_median"]), default=None)


def line(rows: list[Row]) -> list[str]:
    """Of one size, under HEADINGS; and for each peer that is no floor its rate one way."""
    size = int(rows[0]["bytes"])
    ours = [number(_of(rows, SUBJECT, way).get(field)) for way, field in _MEASURES]
    best = best_floor(rows)
    floor = ["", ""]
    if best is not None:
        ratio = _of(rows, SUBJECT, "there")["gbps_median"] / best["gbps_median"]
        floor = [f"{number(best['gbps_median'])} ({best['implementation'].partition(' ')[2]})", f"{ratio:.2f}"]
    return [
        format_size(size),
        *ours,
        *floor,
        *(number(_of(rows, name, "there").get("gbps_median")) for name in peers(rows)),
    ]


def peers(rows: list[Row]) -> list[str]:
    return [name for name in names_in(rows) if name != SUBJECT and not name.startswith(FLOOR)]


def sizes_of(rows: list[Row]) -> list[list[Row]]:
    return [[row for row in rows if row["bytes"] == size] for size in dict.fromkeys(row["bytes"] for row in rows)]


def log(record: dict[str, Any]) -> str:
    """As a page: machine, settings, the table, and every row."""
    rows: list[Row] = record["rows"]
    out = [f"# Point to point, {record['date']}", "", f"    {record['command']}", ""]
    out += ["| | |", "|---|---|"]
    facts = {**record["machine"], **record["settings"], "net": record["net"], "to": record["to"]}
    out += [f"| {name.replace('_', ' ')} | {value} |" for name, value in facts.items() if value not in (None, "")]
    wrong = sum(int(row["wrong"]) for row in rows)
    out += [
        "",
        f"Every turn verified: {wrong} bytes wrong. Medians over {record['settings']['rounds']} turns each, in turns.",
        "",
    ]
    headings = [*HEADINGS, *(f"{name} GB/s" for name in peers(rows))]
    out += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    out += ["| " + " | ".join(line(one)) + " |" for one in sizes_of(rows)]
    out += ["", "## Every implementation", "", "GB/s are the median and the middle half of the turns.", ""]
    out += ["| bytes | implementation | one way | both ways | half round trip µs | p99 |", "|---|---|---|---|---|---|"]
    for one in sizes_of(rows):
        for name in names_in(one):
            there, both, back = (_of(one, name, way) for way in ("there", "both", "pingpong"))
            rates = [
                f"{number(r['gbps_median'])} ({number(r['gbps_low'])} to {number(r['gbps_high'])})" if r else ""
                for r in (there, both)
            ]
            times = [number(back.get("us_median")), number(back.get("us_p99"))]
            out.append("| " + " | ".join([format_size(one[0]["bytes"]), name, *rates, *times]) + " |")
    if record["flows"]:
        out += ["", "## Flows", "", "| route | bytes | stalls | segments sent again | lost |", "|---|---|---|---|---|"]
        for flow in record["flows"]:
            values = (flow["route"], flow["bytes"], flow["stalls"], flow["sent_again"], "yes" if flow["lost"] else "no")
            out.append("| " + " | ".join(str(value) for value in values) + " |")
    return "\n".join(out) + "\n"


def save_plot(record: dict[str, Any], path: Path) -> None:
    """GB/s one way and half a round trip over size. ImportError where matplotlib is missing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows: list[Row] = record["rows"]
    figure, panels = pyplot.subplots(1, 2, figsize=(12.5, 5.4), layout="constrained")
    for axes, way, value, title in (
        (panels[0], "there", "gbps_median", "One way, GB/s: higher is better"),
        (panels[1], "pingpong", "us_median", "Half a round trip, microseconds: lower is better"),
    ):
        for name in names_in(rows):
            own = [row for row in rows if row["implementation"] == name and row["way"] == way]
            style: dict[str, Any] = {"linewidth": 1.2}
            if name == SUBJECT:
                style = {"color": "#c2410c", "linewidth": 2.2, "zorder": 4}
            if name.startswith(FLOOR):
                style["linestyle"] = (0, (4, 3))
            axes.plot([row["bytes"] for row in own], [row[value] for row in own], marker="o", label=name, **style)
        axes.set_xscale("log", base=2)
        axes.set_title(title, loc="left")
        axes.set_xticks(
            [size[0]["bytes"] for size in sizes_of(rows)], [format_size(s[0]["bytes"]) for s in sizes_of(rows)]
        )
        axes.grid(color="#e5e7eb")
    panels[1].set_yscale("log")
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)

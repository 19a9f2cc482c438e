"""Which profiler plugins profilers.py measures, how each is told what to do, and the tables of what it found."""

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "stretto.profilers/1"
NOTHING = "none"
# That a library tells of between GPUs of one host, or could. The network plugins' and copy engines' are not among them.
CLASSES = (
    *("GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p"),
    *("ProxyOp", "ProxyStep", "ProxyCtrl", "KernelCh"),
)
ONE_CLASS = {f"ours-{name}": name for name in CLASSES}
# NVIDIA's example takes a number: our `default` and `all` in the bits of version 5.
_EXAMPLE_DEFAULT, _EXAMPLE_ALL = 0xFBF, 0xFFF
# It keeps so many events of each type. In NCCL 2.28.9 a collective takes 755 MB of addresses, so that the 256 which it
# chooses itself are more than a machine has, and it gives up the communicator; NCCL 2.30.7's keeps 8.
_EXAMPLE_KEEPS = {
    f"NCCL_PROFILE_{pool}_POOL_SIZE": "16"
    for pool in ("GROUP_API", "COLL_API", "P2P_API", "KERNEL_LAUNCH", "GROUP", "COLL", "P2P")
}
_HEADS = {("nccl", "all_reduce"): "NCCL all-reduce", ("nccl", "send_recv"): "NCCL send/recv"}
_HEADS |= {("stretto", "all_reduce"): "Stretto all-reduce", ("stretto", "send_recv"): "Stretto send/recv"}


@dataclass(frozen=True)
class Key:
    """One cell: the name of a library and of a plugin, the operation, and whether it ran in a graph."""

    library: str
    plugin: str
    collective: str
    graph: bool


@dataclass(frozen=True)
class Plugin:
    """A plugin with its settings. `{out}` in a setting becomes the folder that it may write into."""

    name: str
    label: str
    file: str = ""
    settings: dict[str, str] = field(default_factory=dict)

    def environment(self, programs: Path, out: Path) -> dict[str, str]:
        if not self.file:
            return {"NCCL_PROFILER_PLUGIN": "none"}
        own = {name: value.replace("{out}", str(out)) for name, value in self.settings.items()}
        return {"NCCL_PROFILER_PLUGIN": str(programs / self.file), "STRETTO_TRACE_DIR": str(out), **own}


def _ours(file: str, events: str, **more: str) -> dict[str, Any]:
    return {"file": f"libnccl-profiler-{file}.so", "settings": {"STRETTO_TRACE_EVENTS": events, **more}}


def _example(mask: int) -> dict[str, Any]:
    settings = {"NCCL_PROFILE_EVENT_MASK": str(mask), "NCCL_PROFILE_DUMP_FILE": "{out}/example"}
    return {"file": "libnccl-profiler-example.so", "settings": {**settings, **_EXAMPLE_KEEPS}}


def _inspector(**more: str) -> dict[str, Any]:
    settings = {"NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": "{out}", **more}
    return {"file": "libnccl-profiler-inspector.so", "settings": settings}


def known_plugins() -> dict[str, Plugin]:
    """By name, in the tables' order."""
    each_second = {"NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000000"}
    found = [
        Plugin(NOTHING, "no plugin"),
        Plugin("empty", "empty plugin, default events", **_ours("empty", "default")),
        Plugin("empty-all", "empty, all events", **_ours("empty", "all")),
        Plugin("empty-null", "empty, all events, null handles", **_ours("empty", "all", STRETTO_TRACE_EMPTY="null")),
        Plugin("ours", "ours, default events", **_ours("stretto", "default")),
        Plugin("ours-all", "ours, all events", **_ours("stretto", "all")),
        Plugin("ours-flight", "ours, all events, flight mode", **_ours("stretto", "all", STRETTO_TRACE_MODE="flight")),
        *(Plugin(name, f"ours, {events} alone", **_ours("stretto", events)) for name, events in ONE_CLASS.items()),
        Plugin("jsonl", "JSON lines, default events", **_ours("jsonl", "default")),
        Plugin("jsonl-all", "JSON lines, all events", **_ours("jsonl", "all")),
        Plugin("example", "NVIDIA's example, default events", **_example(_EXAMPLE_DEFAULT)),
        Plugin("example-all", "NVIDIA's example, all events", **_example(_EXAMPLE_ALL)),
        Plugin("inspector", "NVIDIA's inspector, as it comes", **_inspector()),
        Plugin("inspector-dump", "NVIDIA's inspector, a dump each second", **_inspector(**each_second)),
    ]
    return {plugin.name: plugin for plugin in found}


def tables(record: dict[str, Any]) -> str:
    """Markdown: a table of eager calls and one of graphs, then what failed."""
    rows = {Key(row["library"], row["plugin"], row["collective"], row["graph"]): row for row in record["rows"]}
    parts = []
    for graph in (False, True):
        found = {key: row for key, row in rows.items() if key.graph == graph and row["us"]}
        if found:
            parts.append(_table(found, graph, record["options"]["bytes"]))
    failures = [
        f"* FAILED {name}: {reason}" for name, why in record["failures"].items() for reason in dict.fromkeys(why)
    ]
    wrong = sum(row["wrong"] for row in record["rows"])
    if wrong:
        failures.append(f"* WRONG: {wrong} elements of results are not what they must be")
    return "\n\n".join([*parts, *(["\n".join(failures)] if failures else [])])


def _table(rows: dict[Key, dict[str, Any]], graph: bool, size: int) -> str:
    columns = [column for column in _HEADS if any((key.library, key.collective) == column for key in rows)]
    where = "in a CUDA graph" if graph else "eager"
    lines = [
        f"| {size} B, {where}, µs: median (least to most), more than none | "
        + " | ".join(_HEADS[column] for column in columns)
        + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for name, plugin in known_plugins().items():
        cells = [rows.get(Key(library, name, collective, graph)) for library, collective in columns]
        if any(cells):
            lines.append(f"| {plugin.label} | " + " | ".join(_cell(row, name, graph) for row in cells) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None, plugin: str, graph: bool) -> str:
    """What a plugin adds is the median of the differences to the turn of none in the same round."""
    if row is None:
        return ""
    us, digits = row["us"], 2 if graph else 1
    text = f"{statistics.median(us):.{digits}f} ({min(us):.{digits}f} to {max(us):.{digits}f})"
    if plugin != NOTHING:
        more = statistics.median(mine - none for mine, none in zip(us, row["none_us"], strict=True))
        text += f", {more:+.{digits + 1}f}"
    return text + ("!" if row["wrong"] else "")

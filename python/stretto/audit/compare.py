"""What changed since an earlier audit, or which of several equal machines differs, and in what."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretto.audit.finding import NOT_MEASURED
from stretto.audit.words import MECHANISMS, bytes_text, significant

Document = dict[str, Any]
# Facts that are others in every second.
_FLEETING = frozenset(
    [
        *("cgroup_memory_used", "cgroup_pids_used", "memory_available", "reserved_pages_free", "swap_used"),
        *("pressure", "steal", "load", "shm_free", "ports_used"),
    ]
)
# The other facts of an interface grow with what it moves.
_OF_INTERFACES = ("up", "mtu", "speed", "node", "ring", "segmentation", "merging")
# By how much a measurement must differ where neither machine is noisy.
_LEAST = 0.10
# A list of two machines has no majority; of three, two can say that the third is the odd one.
_ENOUGH = 3
_FEW, _MANY = 3, 5


SCHEMAS = ("stretto.audit/1", "stretto.audit-hosts/1")


class NoAudit(ValueError):
    """A file that cannot be compared with; the text says why."""


@dataclass
class Comparison:
    """In words, and for machines."""

    lines: list[str] = field(default_factory=list)
    differences: list[Document] = field(default_factory=list)

    def add(self, line: str, **facts: Any) -> None:
        self.lines.append(line)
        self.differences.append(facts)


@dataclass(frozen=True)
class Metric:
    """One measurement. `noise`: how many times worse than the best its usual value was. `least`: of an amount that may
    be nothing, by how much it must differ.
    """

    value: float
    unit: str
    more_is_better: bool = False
    noise: float = 1.0
    least: float = 0.0

    def apart(self, other: Metric) -> float:
        """How many times one is the other: endless where one of them is nothing, if that is comparable."""
        if abs(self.value - other.value) <= max(self.least, other.least):
            return 1.0
        if self.value and other.value:
            return _apart(self.value, other.value)
        return math.inf if max(self.least, other.least) else 1.0


def read(path: Path) -> Document:
    try:
        document = json.loads(path.read_text())
    except OSError as problem:
        raise NoAudit(f"cannot read {path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise NoAudit(f"{path} is no JSON: {problem}") from problem
    if not isinstance(document, dict) or document.get("schema") not in SCHEMAS:
        raise NoAudit(f"{path} is no audit: write one with `stretto audit --json {path}`")
    return document


def _apart(one: float, other: float) -> float:
    return max(one, other) / max(1e-9, min(one, other))


def metrics(document: Document) -> dict[str, Metric]:
    """All measurements of an audit by name: the best of each, which a busy machine changes least."""
    found: dict[str, Metric] = {}
    for one in document["platform"]:
        if len(one["values"]) < _FEW:
            continue  # The machine had no time to repeat it: nobody knows how far its values lie apart.
        # Of few values the median says little of how far they lie apart.
        usual = (
            one["median"]
            if len(one["values"]) >= _MANY
            else max(one["values"], key=lambda value: _apart(value, one["best"]))
        )
        noise = _apart(usual, one["best"])
        unit = one["unit"].replace("us", "µs")
        found[f"{one['probe']}: {one['case']}"] = Metric(one["best"], unit, one["unit"] == "GB/s", noise)
    for one in document["ladder"]:
        found[f"all-reduce of {bytes_text(one['bytes'])}"] = Metric(one["best"], "µs", noise=one["p50"] / one["best"])
    for one in document["bandwidth"]:
        noise = one["us_median"] / one["us_min"]
        name = f"{one['implementation']}, {bytes_text(one['bytes'])}"
        found[name] = Metric(one["us_min"], "µs", noise=noise)
    for one in (document.get("gpus") or {}).get("rows", ()):
        name = f"{one['implementation']} of {one['ranks']} ranks on GPUs, {bytes_text(one['bytes'])}"
        found[name] = Metric(one["us_min"], "µs", noise=one["us_median"] / one["us_min"])
    for way, cost in document.get("launch", {}).items():
        found[f"a call's cost, {way}"] = Metric(cost["best"], "ns", noise=cost["median"] / cost["best"])
    for pair, rate in document.get("gpu_pairs", {}).items():
        found[f"messages between GPUs {pair.replace('-', ' and ')}"] = Metric(rate, "GB/s", True)
    for pair, rate in document["pairs"].items():
        found[f"messages from rank {pair.replace('>', ' to ')}"] = Metric(rate, "GB/s", True)
    for way, rates in (document.get("mechanisms") or {}).items():
        for pair, one in rates.items() if way != "message" else ():
            found[f"{MECHANISMS[way].name}, rank {pair.replace('>', ' to ')}"] = Metric(one["gbps"], "GB/s", True)
    return found | _of_inits(document) | _of_amounts(document) | _of_costs(document)


def _best(values: list[float], unit: str, scale: float = 1.0) -> Metric:
    """Of times."""
    least = min(values)
    return Metric(scale * least, unit, noise=statistics.median(values) / max(1e-9, least))


def _of_inits(document: Document) -> dict[str, Metric]:
    """In all and by phase."""
    found = {}
    for ranks, inits in document["inits"].items():
        for phase, words in (("wall", ""), ("bootstrap", ": meeting"), ("connect", ": connecting")):
            name = f"making a communicator of {ranks} ranks{words}"
            found[name] = _best([one[phase] for one in inits if phase in one] or [0.0], "µs", 1e3)
    return found


# What an open communicator holds, and what operations leave: the name, the unit, how much of it that is, and by how
# much it must differ.
_HELD = {
    "bytes": ("memory", "KB", 1 / 1024, 64.0),
    "descriptors": ("descriptors", "", 1.0, 0.5),
    "threads": ("threads", "", 1.0, 0.5),
    "mappings": ("mappings", "", 1.0, 1.5),
}
_PER = 10000


def _of_amounts(document: Document) -> dict[str, Metric]:
    """How often ranks wait and sleep is left out: that changes with whatever else runs."""
    found = {}
    held, counted = document.get("memory") or {}, document.get("counters") or {}
    for key, (name, unit, scale, least) in _HELD.items():
        if key in held:
            found[f"an open communicator: {name}"] = Metric(max(0.0, scale * held[key]), unit, least=least)
        if key in counted and counted.get("calls"):
            left = max(0.0, scale * counted[key] * _PER / counted["calls"])
            found[f"left by {_PER} operations: {name}"] = Metric(left, unit, least=10 * least)
    if "allocations" in counted and counted.get("calls"):
        made = counted["allocations"] * _PER / counted["calls"]
        found[f"allocations in {_PER} operations"] = Metric(made, "", least=1.0)
    return found


def _of_costs(document: Document) -> dict[str, Metric]:
    """Of communicators on GPUs, by this library and by that of --library."""
    found = {}
    for one in document.get("costs", ()):
        name = one["name"]
        for count, makings in one["makings"].items():
            for part, words in (("init", "making a communicator"), ("first", "the first operation")):
                times = [making[part] for making in makings if part in making]
                if times:
                    found[f"{name}: {words} of {count} ranks on GPUs"] = _best(times, "µs", 1e3)
        for way, costs in one.get("calls", {}).items():
            found[f"{name}: a call's cost on GPUs, {way}"] = _best(costs, "ns")
        for kind, words in (("each", "an open communicator on GPUs"), ("left", "left by one on GPUs")):
            for place, where in (("device_bytes", "memory of the GPU"), ("host_bytes", "memory of the host")):
                if place in one.get(kind, {}):
                    megabytes = max(0.0, one[kind][place] / (1 << 20))
                    found[f"{name}: {words}: {where}"] = Metric(megabytes, "MB", least=4.0)
    return found


def facts(document: Document) -> dict[str, str]:
    """What stays the same on one machine and is the same on equal ones; lists of parts by their names."""
    found: dict[str, str] = {}
    for name, value in document["facts"].items():
        if name in _FLEETING:
            continue
        if name == "nics":
            found |= {
                f"interface {one['name']}: {key}": str(one[key])
                for one in value
                for key in _OF_INTERFACES
                if key in one
            }
        elif name == "gpus":
            found |= {
                f"GPU {number}: {key.replace('_', ' ')}": str(setting)
                for number, one in enumerate(value)
                for key, setting in one.items()
                if key not in ("bus_id",)
            }
        else:
            found[name.replace("_", " ")] = str(value)
    return found


def compare(documents: list[tuple[str, Document]], machines: bool = False) -> Comparison:
    """The first is this audit, the others are older ones or other machines'. `machines`: two are those of two machines,
    and not one machine's.
    """
    if len(documents) > 2:
        return _odd_ones(documents)
    first, second = documents
    if machines:
        return _changes(first, second, (f"on {first[0]}", f"on {second[0]}"))
    return _changes(second, first, ("before", "now"))


def _changes(old: tuple[str, Document], new: tuple[str, Document], words: tuple[str, str]) -> Comparison:
    """`words`: when or where each of the two is."""
    found, before, now = Comparison(), old[1], new[1]
    then, here = words
    graves = {name: _gravest(document) for name, document in (("before", before), ("now", now))}
    for id in sorted({*graves["before"], *graves["now"]}):
        was, has = graves["before"].get(id, "not looked at"), graves["now"].get(id, "not looked at")
        if was != has and "not looked at" not in (was, has):
            found.add(f"{id}: {was} {then}, {has} {here}", kind="finding", name=id, before=was, now=has)
    old_facts, new_facts = facts(before), facts(now)
    for name in sorted({*old_facts, *new_facts}):
        was, has = old_facts.get(name, "none"), new_facts.get(name, "none")
        if was != has:
            found.add(
                f"{name}: {was or 'none'} {then}, {has or 'none'} {here}", kind="fact", name=name, before=was, now=has
            )
    old_metrics, new_metrics = metrics(before), metrics(now)
    for name in old_metrics:
        if name in new_metrics:
            _change(found, name, old_metrics[name], new_metrics[name], max(before["noise"], now["noise"]), words)
    if not found.lines and words[0] == "before":
        found.lines.append(f"Nothing has changed since {old[0]} by more than the noise of both audits.")
    elif not found.lines:
        found.lines.append(f"{old[0]} and {new[0]} differ by no more than the noise of both audits.")
    return found


def _change(found: Comparison, name: str, was: Metric, now: Metric, noise: float, words: tuple[str, str]) -> None:
    """`noise`: of the noisier one of the two machines as a whole."""
    room = max(1 + _LEAST, was.noise, now.noise, noise)
    if was.apart(now) <= room:
        return
    word = "better" if (now.value > was.value) == now.more_is_better else "worse"
    change = f"{now.value / was.value - 1:+.0%}, {word}; noise {room - 1:.0%}" if was.value else word
    values = f"{significant(was.value)}{_behind(was.unit)} {words[0]}, {significant(now.value)} {words[1]}"
    found.add(
        f"{name}: {values} ({change})",
        kind="measurement",
        name=name,
        before=was.value,
        now=now.value,
        verdict=word,
    )


def _behind(unit: str) -> str:
    return f" {unit}" if unit else ""


def _gravest(document: Document) -> dict[str, str]:
    order = ["ok", "note", "warning", "error"]
    found: dict[str, str] = {}
    for one in document["findings"]:
        if one["measured"].startswith(NOT_MEASURED):
            continue
        found[one["id"]] = max(found.get(one["id"], "ok"), one["severity"], key=order.index)
    return found


def _odd_ones(documents: list[tuple[str, Document]]) -> Comparison:
    found = Comparison()
    names = [name for name, _ in documents]
    others = f"the other {len(documents) - 1}"
    for kind, reading in (("finding", _gravest), ("fact", facts)):
        tables = [reading(document) for _, document in documents]
        for key in sorted({key for table in tables for key in table}):
            for name, value, usual in _minority(names, [table.get(key, "none") for table in tables]):
                found.add(
                    f"{name}: {key} is {value or 'none'}, and {usual or 'none'} on most of {others}",
                    kind=kind, machine=name, name=key, value=value, usual=usual,
                )  # fmt: skip
    measured = [metrics(document) for _, document in documents]
    for key in dict.fromkeys(key for table in measured for key in table):
        own = {name: table[key] for name, table in zip(names, measured, strict=True) if key in table}
        _odd_measurements(found, key, own)
    if not found.lines:
        found.lines.append(f"None of {', '.join(names)} differs from the others by more than their noise.")
    return found


def _minority(names: list[str], values: list[str]) -> Iterator[tuple[str, str, str]]:
    (usual, count), *rest = Counter(values).most_common()
    if rest and count > len(values) / 2:
        yield from ((name, value, usual) for name, value in zip(names, values, strict=True) if value != usual)


def _odd_measurements(found: Comparison, key: str, own: dict[str, Metric]) -> None:
    """Which lie apart from the median of the others by more than these differ among themselves, and than the noise."""
    if len(own) < _ENOUGH:
        return
    for name, metric in own.items():
        others = [one.value for other, one in own.items() if other != name]
        usual = statistics.median(others)
        spread = max(abs(value - usual) for value in others) / usual if usual else 0.0
        room = max(_LEAST, 2 * spread, metric.noise - 1)
        # A ratio, so that three times as fast and a third as fast are equally far.
        far = metric.apart(dataclasses.replace(metric, value=usual)) - 1
        if far > room:
            better = (metric.value > usual) == metric.more_is_better
            amount = f"{abs(metric.value / usual - 1):.0%} " if usual else ""
            found.add(
                f"{name}: {key} is {amount}{'above' if metric.value > usual else 'below'} the other {len(others)} "
                f"({significant(metric.value)} against {significant(usual)}{_behind(metric.unit)}), "
                f"{'better' if better else 'worse'}",
                kind="measurement",
                machine=name,
                name=key,
                value=metric.value,
                usual=usual,
                verdict="better" if better else "worse",
            )

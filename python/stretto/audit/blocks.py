"""The page of an audit as blocks, which the terminal, Markdown and HTML each show in their own way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stretto.audit.compare import Comparison
from stretto.audit.finding import NOT_MEASURED, SECTIONS, Finding, Severity, from_document
from stretto.audit.gpu_ranks import other_of, rows_by_size
from stretto.audit.words import MECHANISMS, bytes_text, microseconds, significant
from stretto.bench.measure import SUBJECT
from stretto.bench.rows import FLOOR

Document = dict[str, Any]


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Problem:
    """A finding in full."""

    finding: Finding


@dataclass(frozen=True)
class Grid:
    """A table; columns in `right` hold numbers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Lines:
    """Findings in one line each."""

    findings: tuple[Finding, ...] = field(default=())


Block = Heading | Paragraph | Problem | Grid | Lines


def findings_of(document: Document) -> list[tuple[str, list[Finding]]]:
    """Of an audit of several hosts: those of each host, and under "" those of what lies between them."""
    found = [("", [from_document(one) for one in document["findings"]])]
    for host in document["hosts"]:
        own = host["audit"]["findings"] if host["audit"] is not None else []
        found.append((host["name"], [from_document(one) for one in own]))
    return found


def title(document: Document) -> str:
    return (
        _machine(document["facts"])
        + f"; {document['ranks']} CPU ranks, {document['level']} audit of {document['seconds']:.0f} s"
        + f", {document['date'][:10]}"
    )


def _machine(facts: dict[str, Any]) -> str:
    if not facts:
        return "a machine whose facts cannot be read"
    cores = len(facts["cores_allowed"])
    return (
        f"{facts['processor'] or 'an unnamed processor'}, {cores} core{'s' * (cores > 1)} allowed, "
        f"{bytes_text(facts['memory_total'])}, Linux {facts['kernel']}"
        + (f", {len(facts['gpus'])} GPUs" if facts["gpus"] else "")
    )


def verdict(findings: list[Finding]) -> str:
    counts = {severity: sum(one.severity is severity for one in findings) for severity in Severity}
    parts = [
        f"{counts[severity]} {severity.word}{'s' * (counts[severity] > 1)}"
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        if counts[severity]
    ]
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        return f"Something is wrong here: {', '.join(parts)}."
    return (
        f"Nothing found that should be mended{': ' + parts[0] if parts else ''}. {counts[Severity.OK]} findings are ok."
    )


def blocks(document: Document, comparison: Comparison | None) -> list[Block]:
    """The whole page, for files: the answer first, then the numbers, at last what is as it should be."""
    findings = [from_document(one) for one in document["findings"]]
    page: list[Block] = [Paragraph(title(document)), Paragraph(verdict(findings)), *_problems(findings)]
    page += [*_compared(comparison), *_tables(document, costs=True), *_well(findings)]
    return page


def screen(document: Document, comparison: Comparison | None, everything: bool) -> list[Block]:
    """For a terminal, which is read from its end: numbers first, the answer last. `everything`: also what the platform
    costs and what is as it should be.
    """
    findings = [from_document(one) for one in document["findings"]]
    page: list[Block] = [Paragraph(title(document)), *_tables(document, costs=everything)]
    page += _well(findings) if everything else []
    page += [*_compared(comparison), *reversed(_problems(findings)), Paragraph(""), Paragraph(verdict(findings))]
    return page


def blocks_of_hosts(document: Document) -> list[Block]:
    """The whole page of several hosts, for files."""
    return [*_head(document), *_between(document), *_of_each_host(document, everything=True)]


def screen_of_hosts(document: Document, everything: bool) -> list[Block]:
    """For a terminal: the answer last."""
    head = _head(document)
    return [head[0], *_of_each_host(document, everything), *_between(document), Paragraph(""), *head[1:]]


def _head(document: Document) -> list[Block]:
    hosts = document["hosts"]
    audited = sum(host["audit"] is not None for host in hosts)
    about = f"{audited} of {len(hosts)} hosts audited, {document['level']} audit of {document['seconds']:.0f} s"
    findings = [one for _, own in findings_of(document) for one in own]
    return [Paragraph(f"{about}, {document['date'][:10]}"), Paragraph(verdict(findings))]


def _between(document: Document) -> list[Block]:
    """What is wrong between hosts, what differs, and the table of ways."""
    findings = [from_document(one) for one in document["findings"]]
    page: list[Block] = [Heading("Between the hosts"), *_problems(findings)]
    grid = _ways(document["network"])
    page += [grid] if grid.rows else []
    lines = document["differences"]["lines"]
    page += [Heading("What differs between the hosts"), *(Paragraph(line) for line in lines)] if lines else []
    return page


def _of_each_host(document: Document, everything: bool) -> list[Block]:
    page: list[Block] = []
    for host in document["hosts"]:
        audit = host["audit"]
        if audit is None:
            page += [Heading(f"Host {host['name']}"), Paragraph(f"Not audited: {host['lost']}")]
            continue
        findings = [from_document(one) for one in audit["findings"]]
        page += [Heading(f"Host {host['name']}"), Paragraph(title(audit)), Paragraph(verdict(findings))]
        page += _problems(findings)
        page += [*_tables(audit, costs=True), *_well(findings)] if everything else []
    return page


def _ways(ways: list[Document]) -> Grid:
    def text(value: float | None, show: Callable[[float], str]) -> str:
        return "-" if value is None else show(value)

    headings = ("way", "by", "MTU", "8 B", "plain socket", "4 MB", "plain socket", "clock ahead", "within")
    rows = tuple(
        (
            f"{way['source']} to {way['target']}",
            way["interface"],
            str(way["mtu"]),
            text(way["half_us"], microseconds),
            text(way["sockets_half_us"], microseconds),
            text(way["gbps"], _rate),
            text(way["sockets_gbps"], _rate),
            f"{significant(way['offset_us'])} µs",
            microseconds(way["error_us"]),
        )
        for way in ways
        if not way["problem"]
    )
    return Grid(headings, rows, tuple(range(2, len(headings))))


def _problems(findings: list[Finding]) -> list[Block]:
    """The gravest first. What was not measured for one reason is told of once."""
    told = sorted((one for one in findings if one.severity > Severity.OK), key=lambda one: -one.severity)
    left_out: dict[str, list[str]] = {}
    for one in told:
        if one.measured.startswith(NOT_MEASURED):
            left_out.setdefault(one.measured.removeprefix(NOT_MEASURED), []).append(one.id)
    page: list[Block] = [Problem(one) for one in told if not one.measured.startswith(NOT_MEASURED)]
    for reason, ids in left_out.items():
        page.append(Problem(Finding(Severity.NOTE, f"{reason}: {', '.join(ids)}", id="not measured")))
    return page


def _compared(comparison: Comparison | None) -> list[Block]:
    if comparison is None:
        return []
    return [Heading("Compared"), *(Paragraph(line) for line in comparison.lines)]


def _well(findings: list[Finding]) -> list[Block]:
    page: list[Block] = []
    for section, about in SECTIONS.items():
        own = tuple(one for one in findings if one.section == section and one.severity is Severity.OK)
        page += [Heading(f"{section}: {about}"), Lines(own)] if own else []
    return page


def _tables(document: Document, costs: bool) -> list[Block]:
    page: list[Block] = []
    for heading, grid in (
        ("Latency of an all-reduce", _ladder(document["ladder"])),
        ("Bandwidth of large all-reduces", _bandwidth(document["bandwidth"])),
        ("Large data between pairs, by mechanism", _mechanisms(document)),
        ("Large messages between pairs of GPUs", _pairs("GPUs", document.get("gpu_pairs", {}), "-", " and ")),
        ("What a call costs the rank that makes it", _launch(document.get("launch", {}))),
        ("Making a communicator", _inits(document["inits"])),
        ("What an open communicator takes in a rank's process", _memory(document["memory"])),
        ("What operations take in a steady state", _counters(document.get("counters", {}))),
        ("All-reduces between GPUs", _gpus(document.get("gpus") or {})),
        ("Five collectives of CPU ranks: this library and that of --library", _beside(document.get("beside") or {})),
        ("This library and that of --library", _libraries(document.get("libraries", []))),
        ("What communicators cost: this library and that of --library", _costs(document.get("costs", []))),
        ("What the platform costs", _platform(document["platform"] if costs else [])),
    ):
        page += [Heading(heading), grid] if grid.rows else []
    return page


def _ladder(rows: list[Document]) -> Grid:
    def last(row: Document) -> str:
        share = max(row["last_share"])
        return f"rank {row['last_share'].index(share)} ({share:.0%})"

    return Grid(
        ("size", "best", "median", "p99", "most", "model", "mostly last"),
        tuple(
            (
                bytes_text(row["bytes"]),
                *(microseconds(row[name]) for name in ("best", "p50", "p99", "most", "model")),
                last(row),
            )
            for row in rows
        ),
        (0, 1, 2, 3, 4, 5),
    )


def _bandwidth(rows: list[Document]) -> Grid:
    floors = {row["bytes"]: row for row in rows if row["implementation"] == FLOOR}
    own = [row for row in rows if row["implementation"] != FLOOR and row["bytes"] in floors]
    return Grid(
        ("size", "median", "bus bandwidth", "memcpy", "of memcpy's speed", "at best"),
        tuple(
            (
                bytes_text(row["bytes"]),
                microseconds(row["us_median"]),
                f"{significant(row['busbw_gbps'])} GB/s",
                microseconds(floors[row["bytes"]]["us_median"]),
                f"{floors[row['bytes']]['us_median'] / row['us_median']:.0%}",
                f"{floors[row['bytes']]['us_min'] / row['us_min']:.0%}",
            )
            for row in own
        ),
        (0, 1, 2, 3, 4, 5),
    )


def _pairs(who: str, rates: dict[str, float], between: str, words: str) -> Grid:
    rows = tuple((pair.replace(between, words), _rate(rate)) for pair, rate in rates.items())
    return Grid((who, "at best"), rows, (1,))


def _mechanisms(document: Document) -> Grid:
    """Beside each rate the plain copy in turns with it. Audits of before have messages alone."""
    ways = document.get("mechanisms") or {}
    if not ways:
        return _pairs("ranks", document["pairs"], ">", " to ")
    headings = ["ranks"]
    for way in ways:
        headings += [MECHANISMS[way].name, MECHANISMS[way].beside]
    rows = tuple(
        (pair.replace(">", " to "), *(_rate(ways[way][pair][name]) for way in ways for name in ("gbps", "limit")))
        for pair in document["pairs"]
    )
    return Grid(tuple(headings), rows, tuple(range(1, len(headings))))


def _inits(inits: dict[str, list[Document]]) -> Grid:
    rows = []
    for ranks, found in sorted(inits.items(), key=lambda one: int(one[0])):
        best = min(found, key=lambda one: one["wall"])
        times = (best["wall"], best["bootstrap"], best["connect"])
        rows.append((ranks, *(microseconds(1e3 * time) for time in times), bytes_text(best["window_bytes"])))
    return Grid(("ranks", "at best", "meeting", "connecting", "window of a rank"), tuple(rows), (0, 1, 2, 3, 4))


def _memory(each: Document) -> Grid:
    rows = tuple((name, bytes_text(value) if "bytes" in name else f"{value:.3g}") for name, value in each.items())
    return Grid(("what", "each"), rows, (1,))


_WAYS = {
    "empty": "ncclCommCount, which only reads a number",
    "call": "all-reduce of 8 B in a communicator of one rank",
    "group": "the same, eight in a group",
    "stream": "the same on a stream, until the call returns",
}


def _launch(costs: dict[str, dict[str, float]]) -> Grid:
    rows = tuple(
        (_WAYS[way], f"{significant(cost['best'])} ns", f"{significant(cost['median'])} ns")
        for way, cost in costs.items()
    )
    return Grid(("call", "best", "median"), rows, (1, 2))


_CALLS = {
    "call": "a call: all-reduce of 8 B, until it returns, at best",
    "group": "the same, eight in a group",
    "empty": "ncclCommCount, which only reads a number",
}

_COUNTED = {
    "operations": "operations that the library counted",
    "allocations": "allocations of the library",
    "slow_waits": "waits that were not over at once",
    "sleeps": "sleeps",
    "wakeups": "wake-ups of others",
    "switches": "switches of threads at its own wish",
    "interruptions": "switches at others' wish",
    "faults": "page faults",
    "descriptors": "new descriptors",
    "threads": "new threads",
    "mappings": "new mappings",
    "bytes": "new bytes of resident memory",
}


def _counters(counted: dict[str, int]) -> Grid:
    """Of rank 0."""
    calls = counted.get("calls", 0)
    rows = tuple(
        (what, f"{counted[name]:,}", f"{counted[name] / calls:.3g}") for name, what in _COUNTED.items() if calls
    )
    return Grid((f"of {calls:,} operations, rank 0", "all", "each"), rows, (1, 2))


def _gpus(contest: Document) -> Grid:
    """Ours alone, or another one beside it."""
    rows = contest.get("rows", [])
    if not rows:
        return Grid((), ())
    other = other_of(rows)
    names = [SUBJECT] if other is None else [SUBJECT, other]
    headings = ["size"]
    for name in names:
        headings += [f"{name} {contest['versions'][name]}", "bus bandwidth"]
    if other is not None:
        headings.append(f"{other}'s time over {SUBJECT}'s")

    def cells(size: int, own: dict[str, Any]) -> tuple[str, ...]:
        found = [bytes_text(size)]
        for name in names:
            row = own.get(name)
            found += ["-", "-"] if row is None else [microseconds(row["us_median"]), _rate(row["busbw_gbps"])]
        if other is not None:
            found.append(f"{own[other]['us_median'] / own[SUBJECT]['us_median']:.2f}" if other in own else "-")
        return tuple(found)

    sizes = rows_by_size(rows)
    return Grid(tuple(headings), tuple(cells(size, own) for size, own in sizes.items()), tuple(range(1, len(headings))))


def _beside(contest: Document) -> Grid:
    """At best, with how many times the other's time ours takes."""
    rows = contest.get("rows", [])
    other = other_of(rows)
    if other is None:
        return Grid((), ())
    cells = []
    for collective in dict.fromkeys(row["collective"] for row in rows):
        for size, own in rows_by_size([row for row in rows if row["collective"] == collective]).items():
            if SUBJECT in own and other in own:
                ours, theirs = own[SUBJECT]["us_min"], own[other]["us_min"]
                times = microseconds(ours), microseconds(theirs), f"{ours / theirs:.2f}"
                cells.append((collective, bytes_text(size), *times))
    names = [f"{name} {contest['versions'].get(name, '')}".strip() for name in (SUBJECT, other)]
    return Grid(("collective", "size", *names, f"{SUBJECT}'s over the other's"), tuple(cells), (1, 2, 3, 4))


def _rate(gbps: float) -> str:
    return f"{significant(gbps)} GB/s"


def _those(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "-"


def _libraries(libraries: list[Document]) -> Grid:
    if len(libraries) < 2:  # of several hosts, one may not have the other's file
        return Grid((), ())
    ours, theirs = libraries
    own, others = set(ours["functions"]), set(theirs["functions"])

    def kind(one: Document) -> str:
        return f"{'Stretto' if one['stretto'] else 'NCCL'} {one['version'] or 'of unknown version'}"

    rows = (
        ("file", ours["path"], theirs["path"]),
        ("kind", kind(ours), kind(theirs)),
        ("speaks NCCL", ours["speaks"] or "-", theirs["speaks"] or "is not loaded"),
        ("size", bytes_text(ours["bytes"]), bytes_text(theirs["bytes"])),
        ("functions of nccl.h", str(len(own)), str(len(others))),
        ("which the other has not", _those(own - others if others else set()), _those(others - own)),
    )
    return Grid(("what", "this package's", "that of --library"), rows)


def _costs(libraries: list[Document]) -> Grid:
    """Two libraries in turns on the same GPUs, with how many times the other's ours takes."""
    measured = [one for one in libraries if one["calls"] and one["makings"]]
    if len(measured) < 2:
        return Grid((), ())
    ours, theirs = sorted(measured, key=lambda one: str(one["name"]) != SUBJECT)
    counts = sorted(ours["makings"].keys() & theirs["makings"].keys(), key=int)

    def row(what: str, show: Callable[[float], str], value: Callable[[Document], float]) -> tuple[str, ...]:
        own, other = value(ours), value(theirs)
        return what, show(own), show(other), f"{own / other:.2f}" if own > 0 and other > 0 else "-"

    def milliseconds(value: float) -> str:
        return microseconds(1e3 * value)

    def best(part: str, count: str) -> Callable[[Document], float]:
        return lambda one: min(making[part] for making in one["makings"][count])

    def holds(when: str, name: str) -> Callable[[Document], float]:
        return lambda one: float(one[when][name])

    def call(way: str) -> Callable[[Document], float]:
        return lambda one: min(one["calls"][way])

    def phases(one: Document) -> str:
        return ", ".join(f"{name} {milliseconds(value)}" for name, value in one["phases"].items()) or "-"

    rows = [
        row(f"ncclCommInitRank of {count} rank{'s' * (count != '1')}, at best", milliseconds, best("init", count))
        for count in counts
    ]
    rows += [
        ("by phase, as the library says", phases(ours), phases(theirs), "-"),
        row("the first operation", milliseconds, best("first", counts[-1])),
        row("ncclCommDestroy", milliseconds, best("destroy", counts[-1])),
        row(
            "from a process's start until it has one",
            lambda value: f"{value:.2f} s",
            lambda one: one["startup_seconds"],
        ),
    ]
    for what, name in (("memory of the GPU", "device_bytes"), ("resident memory of the process", "host_bytes")):
        rows.append(row(f"an open one: {what}", bytes_text, holds("each", name)))
        rows.append(row(f"left by one: {what}", bytes_text, holds("left", name)))
    rows += [row(f"an open one: {name}", significant, holds("each", name)) for name in ("descriptors", "threads")]
    rows += [row(what, lambda value: f"{significant(value)} ns", call(way)) for way, what in _CALLS.items()]
    headings = ("what", *(f"{one['name']} {one['version']}" for one in (ours, theirs)), f"{SUBJECT}'s over the other's")
    return Grid(headings, tuple(rows), (1, 2, 3))


def _platform(series: list[Document]) -> Grid:
    rows = tuple(
        (
            one["probe"],
            one["case"],
            significant(one["best"]),
            significant(one["median"]),
            one["unit"].replace("us", "µs"),
        )
        for one in series
    )
    return Grid(("probe", "case", "best", "median", "unit"), rows, (2, 3))

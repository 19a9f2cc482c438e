"""A report in words and tables: the sections that the terminal and Markdown share. `sections` decides what is worth
saying; how it looks is its callers' business.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field

from stretto.trace.analysis import Clock, Report, Straggler
from stretto.trace.critical_path import MOST_PLAYED
from stretto.trace.pairs import Pair
from stretto.trace.report_json import operation, ranked
from stretto.trace.verdict_text import said
from stretto.trace.words import amount, duration, number, plural, share

_STAGES = {"upstream": "program", "launch": "launch", "stream": "GPU stream", "unclear": "unclear"}
_PROXIES = {
    "SendGPUWait": "its GPU to have data to send (SendGPUWait)",
    "SendPeerWait": "the receiver to have room (SendPeerWait)",
    "SendWait": "its network to send (SendWait)",
    "RecvWait": "the sender's data (RecvWait)",
    "RecvFlushWait": "data to reach its GPU's memory (RecvFlushWait)",
    "RecvGPUWait": "its GPU to take data (RecvGPUWait)",
}
_EVIDENCE = {"certain": "certain", "ranks missing": "ranks are missing", "calls": "calls only"}


@dataclass(frozen=True)
class Section:
    """A heading, sentences, commands to copy, and a table; columns whose numbers are in `right` are aligned there."""

    title: str
    sentences: list[str]
    headings: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    right: tuple[int, ...] = ()
    commands: list[str] = field(default_factory=list)


def sections(report: Report, top: int) -> list[Section]:
    """All sections that have something to say, the answer first."""
    made = [
        _summary(report),
        _progress(report),
        _stragglers(report, top),
        _worst(report, top),
        _path(report, top),
        _kinds(report, top),
        _slow(report, top),
        _pairs(report, top),
        _proxy_waits(report, top),
        _clocks(report, top),
        _overhead(report),
        _quality(report),
    ]
    return [section for section in made if section.sentences or section.rows]


def _summary(report: Report) -> Section:
    recording, operations = report.recording, report.operations
    facts = (
        f"{plural(len(recording.processes), 'process', 'es')} on {plural(recording.hosts(), 'host')},"
        f" {plural(len(operations.communicators), 'communicator')},"
        f" {plural(operations.count, 'collective operation')} in {duration(report.duration_ns)}."
    )
    sample = [f"{text[0].upper()}{text[1:]}; counts and costs are of these." for text in operations.samples]
    several = (
        f"These are {report.runs} runs, one after the other, that share no communicator: name the files of one to see"
        " what held that one up."
    )
    return Section("What held the job up", [facts, *sample, *([several] if report.runs > 1 else []), *said(report)])


def _stragglers(report: Report, top: int) -> Section:
    several = len(report.operations.communicators) > 1
    rows = [_straggler(item, "all") for item in report.workers[:top]] if several else []
    rows += [_straggler(item, item.communicator) for item in report.stragglers[:top]]
    headings = ["communicator", "rank", "process", "times last", "of all", "late by", "late by, p99", "others waited"]
    headings += ["time lost in", "evidence"]
    return Section("Who came last", [], headings, rows, (3, 4, 5, 6, 7))


def _straggler(item: Straggler, communicator: str) -> list[str]:
    return [
        communicator,
        item.worker.removeprefix("rank ") if not item.communicator else str(item.rank),
        f"{item.host}:{item.pid}",
        f"{item.last:,}",
        share(item.last / item.operations if item.operations else math.nan),
        duration(item.median_ns),
        duration(item.p99_ns),
        _bounded("≤", duration(item.cost_ns), item.evidence == "calls"),
        ", ".join(f"{_STAGES[name]} {count:,}" for name, count in item.causes.items()),
        _EVIDENCE[item.evidence],
    ]


def _worst(report: Report, top: int) -> Section:
    rows = []
    for place in ranked(report, top) if top > 0 else []:
        item = operation(report, place)
        rows.append(
            [
                item["communicator"],
                f"{item['function']} {'replay ' * item['replay']}#{item['sequence']}",
                duration(item["begin_ns"] if item["begin_ns"] is not None else math.nan),
                str(item["last_rank"]),
                duration(item["lead_ns"]),
                duration(item["clock_error_ns"]),
                _STAGES.get(item["cause"] or "", ""),
                duration(item["transfer_ns"]),
                item["link"] or "",
            ]
        )
    headings = ["communicator", "operation", "at", "last rank", "others waited", "clock error"]
    headings += ["time lost in", "transfer", "link"]
    first = next((row[-1] for row in rows if row[-1]), None)
    title = "The operations that waited longest for one rank"
    if first is None:
        return Section(title, [], headings, rows, (2, 3, 4, 5, 7))
    said = [
        "On a timeline: the list of these, or one of them by its link. A link also goes behind a page's address: #op="
    ]
    view = f"stretto trace view {shlex.join(report.inputs or ('INPUT',))} --open"
    commands = [f"{view} --worst", f"{view} --op {shlex.quote(first)}"]
    return Section(title, said, headings, rows, (2, 3, 4, 5, 7), commands)


def _path(report: Report, top: int) -> Section:
    path, names = report.path, report.operations.workers
    if not report.operations.count:
        return Section("Critical path", [])
    if path.reason:
        return Section("Critical path", [f"None: {path.reason}."])
    moved = path.transfer_ns / path.duration_ns if path.duration_ns else math.nan
    most = "at most " * bool(report.verdict.unseen or report.verdict.by_calls)
    sentences = [
        f"{duration(path.duration_ns)} long, through {plural(path.operations, 'operation')};"
        f" {most}{share(moved)} of it is transfer, the rest is what its ranks did between operations."
    ]
    if path.played == MOST_PLAYED:
        sentences.append(f"What-if looked at the first {path.played:,} operations.")
    unseen = path.operations - sum(path.gates.values())
    if unseen:
        sentences.append(
            f"Of {plural(unseen, 'operation')} of it calls alone are known, and nothing shows that anybody waited:"
            ' these do not count under "times last".'
        )
    saved, by_calls = {item.worker: item for item in path.what_if}, report.verdict.by_calls
    order = sorted(path.gates, key=lambda worker: -path.own_ns.get(worker, 0))
    rows = [
        [
            names[worker],
            f"{path.gates[worker]:,}",
            duration(path.own_ns.get(worker, 0)),
            _bounded("≤", duration(saved[worker].saved_ns), by_calls) if worker in saved else "",
            _bounded("≤", share(saved[worker].share), by_calls) if worker in saved else "",
        ]
        for worker in order[:top]
    ]
    headings = ["rank", "times last", "time between operations", "saved without it", "of the run"]
    return Section("Critical path", sentences, headings, rows, (1, 2, 3, 4))


def _bounded(sign: str, text: str, bound: bool) -> str:
    return f"{sign} {text}" if bound and text != "?" else text


def _kinds(report: Report, top: int) -> Section:
    rows = [
        [
            item.communicator,
            item.function + " in graphs" * item.replay,
            amount(item.bytes),
            f"{item.count:,}",
            " ".join(word for word in (item.algorithm, item.protocol) if word) or "-",
            duration(item.wait_ns),
            _bounded("≤", duration(item.transfer_ns), item.bound),
            duration(item.transfer_p99_ns),
            _bounded("≥", number(item.algorithm_bandwidth), item.bound),
            _bounded("≥", number(item.bus_bandwidth), item.bound),
        ]
        for item in report.kinds[:top]
    ]
    sentences = ["Medians; bandwidths in GB/s, of the transfer alone."] if rows else []
    if any(item.bound and math.isfinite(item.transfer_ns) for item in report.kinds[:top]):
        sentences.append(
            "≤ and ≥ are bounds: the recording does not say when these operations began on all ranks. They began no"
            " earlier than the operation before them on their communicator and stream ended."
        )
    if any(math.isnan(item.transfer_ns) for item in report.kinds[:top]):
        sentences.append(
            "? is unknown: the recording does not say when these operations ended on all ranks. On GPUs,"
            " `--events timing` records it."
        )
    if len(report.kinds) > top:
        sentences.append(f"The {top} most frequent of {len(report.kinds)} kinds.")
    headings = ["communicator", "function", "bytes", "count", "algorithm", "wait", "transfer", "transfer, p99"]
    headings += ["algorithm bandwidth", "bus bandwidth"]
    return Section("Wait and transfer", sentences, headings, rows, (2, 3, 5, 6, 7, 8, 9))


def _slow(report: Report, top: int) -> Section:
    if not report.slow_transfers:
        return Section("Slow transfers", [])
    explained = sum(item.count for item in report.slow_proxies)
    why = f"a proxy explains {explained:,} of them" if explained else "no proxy is recorded that explains it"
    sentences = [f"{plural(report.slow_transfers, 'transfer')} took much longer than others of their kind; {why}."]
    rows = [
        [item.communicator, str(item.rank), _PROXIES[item.state], f"{item.count:,}", duration(item.excess_ns)]
        for item in report.slow_proxies[:top]
    ]
    headings = ["communicator", "rank", "its proxy waited for", "times", "longer by"]
    return Section("Slow transfers", sentences, headings, rows, (1, 3, 4))


def _pairs(report: Report, top: int) -> Section:
    rows = []
    for item in report.pairs[:top]:
        late = item.sender_late_ns
        who = "sender" if late > 0 else "receiver"
        sure = abs(late) > item.error_ns and abs(late) > 0
        rows.append(
            [
                item.communicator,
                f"{item.source} to {item.destination}",
                f"{item.messages:,}",
                amount(item.bytes),
                f"{who} by {duration(abs(late))}" if sure else "within the clock error",
                str(item.unmatched or ""),
                _waits(item),
            ]
        )
    headings = ["communicator", "ranks", "messages", "bytes", "who was later", "without a partner"]
    headings += ["waited in all, chunk by chunk"]
    return Section("Pairs", [], headings, rows, (2, 3, 5))


def _waits(item: Pair) -> str:
    """By the steps of proxies, which are the chunks of messages."""
    if not item.chunks:
        return ""
    return f"receiver {duration(item.receiver_waited_ns)} for data, sender {duration(item.sender_waited_ns)} for room"


def _proxy_waits(report: Report, top: int) -> Section:
    rows = [
        [
            item.communicator,
            str(item.rank),
            str(item.peer),
            f"{item.operations:,}",
            f"{item.chunks:,}",
            duration(item.for_data_ns),
            duration(item.for_room_ns),
        ]
        for item in report.proxy_waits[:top]
    ]
    sentences = ["Waits for chunks of collectives, by the steps of the ranks' proxies."] if rows else []
    headings = ["communicator", "rank", "waited for rank", "operations", "chunks", "until it sent data"]
    headings += ["until it made room"]
    return Section("Who waited for whom between hosts", sentences, headings, rows, (1, 2, 3, 4, 5, 6))


def _progress(report: Report) -> Section:
    found = report.progress
    sentences = []
    for item in found.behind:
        ranks = ", ".join(
            f"rank {rank} (last #{last})" if last >= 0 else f"rank {rank} (never)" for rank, last in item.last.items()
        )
        inside = f"; inside: {', '.join(str(rank) for rank in item.inside)}" if item.inside else ""
        sentences.append(f"{item.communicator}: {item.function} reached #{item.sequence}; behind: {ranks}{inside}.")
    sentences += [f"{item.communicator}: {item.what}." for item in found.mismatches]
    for label, missing in found.absent.items():
        ranks = ", ".join(str(rank) for rank in missing[:16]) + (" and others" if len(missing) > 16 else "")
        sentences.append(f"{label}: no recording of rank{'s' * (len(missing) > 1)} {ranks}.")
    if found.incomplete:
        sentences.append(
            f"{plural(found.incomplete, 'operation')} in the middle of the run lack a rank: events were lost."
        )
    if found.unfinished:
        shown = ", ".join(found.unfinished[:8]) + (" and others" if len(found.unfinished) > 8 else "")
        sentences.append(f"Recording was not closed in order by {shown}: killed, ended by _exit, or still running.")
    return Section("Where ranks stand", sentences)


def _clocks(report: Report, top: int) -> Section:
    if all(item.offset_ns == 0 and item.error_ns == 0 for item in report.clocks):
        return Section("Clocks", ["All processes share one clock."] if report.clocks else [])
    hosts: dict[tuple[str, int], list[Clock]] = {}
    for item, own in zip(report.clocks, report.alignment.host_of.tolist(), strict=True):
        hosts.setdefault((item.host, own), []).append(item)
    rows = [
        [
            host,
            str(len(items)),
            duration(items[0].offset_ns),
            f"{items[0].drift_ppm:.2f}",
            *("unknown" if bar < 0 else f"± {duration(bar)}" for bar in (items[0].error_ns, items[0].most_ns)),
        ]
        for (host, _), items in list(hosts.items())[:top]
    ]
    sentences = [f"The first {top} of {len(hosts)} hosts."] if len(hosts) > top else []
    if any(item.error_ns > 0 for item in report.clocks):
        sentences.append(
            "The error is right if ranks of all hosts end an operation together. A rank that comes last may be done"
            " before its data have reached the other hosts. If that is mostly a rank of the same host, the error leaves"
            ' out how long they take. "At most" includes that: it is known from what came before what.'
        )
    headings = ["host", "processes", "offset", "drift, µs a second", "error", "at most"]
    return Section("Clocks", sentences, headings, rows, (1, 2, 3, 4, 5))


def _overhead(report: Report) -> Section:
    known = [item for item in report.overhead if math.isfinite(item.total_ns)]
    calls = sum(item.callbacks for item in report.overhead)
    if not calls:
        return Section("Overhead of the recording", [])
    if not known:
        return Section("Overhead of the recording", [f"{calls:,} callbacks; the plugin took no samples of their cost."])
    worst = max(known, key=lambda item: item.share if math.isfinite(item.share) else 0.0)
    mean = sum(item.total_ns for item in known) / max(1, sum(item.callbacks for item in known))
    sentences = [
        f"{calls:,} callbacks of {duration(mean)} each, as sampled by the plugin; at most {share(worst.share)} of a"
        f" process's time ({worst.host}:{worst.pid}). What NCCL itself does to serve the plugin is not in it."
    ]
    return Section("Overhead of the recording", sentences)


def _quality(report: Report) -> Section:
    quality = report.recording.quality
    counts = {
        "dropped events": quality.dropped,
        "overwritten segments": quality.overwritten,
        "starts without stop": quality.unmatched_starts,
        "stops without start": quality.unmatched_stops,
        "duplicate stops": quality.duplicate_stops,
        "damaged segments": quality.damaged_segments,
        "unreadable files": quality.unreadable,
        "suspect stamps": quality.suspect_stamps + report.operations.suspects,
    }
    wrong = [f"{count:,} {name}" for name, count in counts.items() if count]
    sentences = [(", ".join(wrong) if wrong else "Nothing was lost and no stamp is suspect") + "."]
    return Section(
        "Quality of the data", sentences + [note if note.endswith(".") else f"{note}." for note in report.notes]
    )

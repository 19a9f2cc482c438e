"""Makes the pages that the browser tests open, and beside each what is true of it as JSON: `make_recordings.py FOLDER`.

The three examples are what NCCL's profiler interface says of one device per thread, several devices per thread in a
group, and aggregated operations; their numbers of callbacks and their order are those of the library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

from stretto.trace.bundle import encode, parent_rows  # noqa: E402
from stretto.trace.model import (  # noqa: E402
    SPAN_COLUMNS,
    STATE_COLUMNS,
    Context,
    EventType,
    Process,
    Quality,
    Recording,
    Thread,
)
from stretto.trace.view import template, write_page  # noqa: E402
from synthetic_job import Job, make  # noqa: E402

EPOCH = 1_763_700_000_000_000_000
COMMUNICATOR = 0xC0FFEE0123456789
T = EventType


# Process, thread, context.
Where = tuple[int, int, int]


class Maker:
    """Spans and states in the making."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.threads: list[Thread] = []
        self.contexts: list[Context] = []
        self.strings = [""]
        self.spans: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.quality = Quality()

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings.append(value)
        return self.strings.index(value)

    def process(self, host: str = "node0", program: str = "example") -> int:
        number = len(self.processes)
        self.processes.append(
            Process(
                host, 4000 + number, 7 + number, program, bytes(16), 6, 22907, 4095, False, True, "", f"{number}.rec"
            )
        )
        return number

    def thread(self, process: int, name: str) -> int:
        self.threads.append(Thread(process, 5000 + len(self.threads), name))
        return len(self.threads) - 1

    def context(self, process: int, rank: int, ranks: int, communicator: int = COMMUNICATOR, name: str = "dp0") -> int:
        self.contexts.append(Context(process, communicator, name, rank, ranks, 1, 4000 + 300 * rank, -1))
        return len(self.contexts) - 1

    def span(self, kind: int, where: Where, start: int, stop: int, **more: Any) -> int:
        """Adds a span; gives its id. `parent` is an id."""
        process, thread, context = where
        number = len(self.spans) + 1
        tag = self.processes[process].tag if 0 <= process < len(self.processes) else 0
        one = {name: 0 if np.dtype(of).kind == "u" else -1 for name, of in SPAN_COLUMNS.items()}
        rank = self.contexts[context].rank if context >= 0 else 0
        one |= {"type": kind, "process": process, "thread": thread, "context": context, "rank": rank}
        one |= {"id": (kind % 254 + 1) << 56 | tag << 40 | number, "start": start, "stop": stop, **more}
        self.spans.append(one)
        return int(one["id"])

    def state(self, owner: int, time: int, state: int, argument: int = -1, count: int = 1) -> None:
        self.states.append(
            {"id": owner, "time": time, "state": state, "count": count, "argument": argument, "argument2": -1}
        )

    def recording(self) -> Recording:
        self.spans.sort(key=lambda one: one["start"])
        self.states.sort(key=lambda one: one["time"])
        row_of = {one["id"]: row for row, one in enumerate(self.spans)}
        for one in self.states:
            one["span"] = row_of.get(one["id"], -1)
        spans = {name: np.array([one[name] for one in self.spans], of) for name, of in SPAN_COLUMNS.items()}
        states = {name: np.array([one[name] for one in self.states], of) for name, of in STATE_COLUMNS.items()}
        return Recording(
            self.processes,
            self.threads,
            self.contexts,
            self.strings,
            spans,
            states,
            EPOCH,
            self.quality,
        )

    def collective(self, function: str, at: int, where: Where, api: int, group: int) -> int:
        """Group and Coll as they follow a launch; gives the Coll's id."""
        return self.span(
            T.COLL, where, at, at + 1500,
            parent=api, group=group, sequence=0, count=1024, function=self.text(function),
            data_type=self.text("ncclFloat32"), algorithm=self.text("RING"), protocol=self.text("SIMPLE"), channel=2,
        )  # fmt: skip

    def proxy(self, at: int, thread: int, context: int, coll: int) -> None:
        """The progress thread: wakes, appends, moves two channels in two steps each, sleeps; the kernel's channels."""
        process, rank, ranks = (getattr(self.contexts[context], name) for name in ("process", "rank", "ranks"))
        wake = self.span(T.PROXY_CTRL, (process, thread, context), at - 9000, at - 600)
        self.state(wake, at - 600, 16)
        append = self.span(T.PROXY_CTRL, (process, thread, context), at - 500, at)
        self.state(append, at - 400, 17)
        self.state(append, at - 50, 18, argument=2)
        for channel in range(2):
            begin, peer = at + 300 * channel, (rank + (1, -1)[channel]) % ranks
            op = self.span(
                T.PROXY_OP, (process, thread, context), begin, begin + 20000,
                parent=coll, channel=channel, peer=peer, detail=2, owner_pid=self.processes[process].pid,
                function=self.text("Send" if channel == 0 else "Recv"), count=131072,
            )  # fmt: skip
            self.state(op, begin + 100, 19, argument=131072)
            for step in range(2):
                first = begin + 1000 + 9000 * step
                one = self.span(T.PROXY_STEP, (process, thread, context), first, first + 8000, parent=op, detail=step)
                for offset, state in (
                    ((500, 8), (2500, 20), (4000, 9)) if channel == 0 else ((500, 10), (3000, 11), (4500, 12))
                ):
                    self.state(one, first + offset, state, argument=65536)
            kernel = self.span(
                T.KERNEL_CH, (process, thread, context), at + 400, at + 21000,
                parent=coll, channel=channel, gpu_start=EPOCH + at, gpu_stop=EPOCH + 20_000 + at,
            )  # fmt: skip
            self.state(kernel, at + 21000, 22, argument=EPOCH + 20_000 + at)
        self.span(T.PROXY_CTRL, (process, thread, context), at + 22000, at + 40000)


def api(maker: Maker, thread: int, contexts: list[int], at: int, operations: list[str]) -> list[tuple[int, int]]:
    """One group call: one GroupApi, a CollApi for each operation of each communicator, then for each communicator one
    launch, one Group and its Colls. Gives (Coll, context) pairs.
    """
    first = contexts[0]
    process = maker.contexts[first].process
    each = len(contexts) * len(operations)
    end = at + 2000 * each + 9000 * len(contexts) + 2000
    group_api = maker.span(T.GROUP_API, (process, thread, first), at, end, detail=0)
    maker.state(group_api, at + 2000 * each + 500, 24)
    calls = {}
    now = at + 300
    for context in contexts:
        for name in operations:
            calls[context, name] = maker.span(
                T.COLL_API, (process, thread, context), now, now + 1200,
                parent=group_api, count=1024, function=maker.text(name), data_type=maker.text("ncclFloat32"),
                stream=0x7F0000000000 + context, peer=0,
            )  # fmt: skip
            now += 2000
    found = []
    for context in contexts:
        now += 700
        maker.span(
            T.KERNEL_LAUNCH,
            (process, thread, context),
            now,
            now + 3500,
            parent=group_api,
            stream=0x7F0000000000 + context,
        )
        legacy = maker.span(T.GROUP, (process, thread, context), now + 3800, now + 8200)
        for index, name in enumerate(operations):
            begin = now + 4000 + index * (4000 // len(operations))
            coll = maker.collective(name, begin, (process, thread, context), calls[context, name], legacy)
            maker.spans[-1]["stop"] = begin + 3500 // len(operations)
            found.append((coll, context))
        now += 8300
    return found


def one_device_per_thread() -> Maker:
    """Four processes of one rank each; rank 2 comes late to the second of two all-reduces."""
    maker = Maker()
    for rank in range(4):
        process = maker.process(f"node{rank // 2}", "01_one_device_per_thread")
        main = maker.thread(process, f"rank {rank}")
        progress = maker.thread(process, f"NCCL Progress {rank}")
        context = maker.context(process, rank, 4)
        for operation in range(2):
            at = 20_000 + 90_000 * operation + 700 * rank + (25_000 if rank == 2 and operation == 1 else 0)
            ((coll, _),) = api(maker, main, [context], at, ["AllReduce"])
            one = next(span for span in maker.spans if span["id"] == coll)
            one["sequence"] = operation
            maker.proxy(int(one["start"]) + 1200, progress, context, coll)
        maker.contexts[context].finalize_ns = 190_000 + 200 * rank
    return maker


def incomplete() -> Maker:
    """The same without the file of rank 3, and with the clock of the other host known to 40 us."""
    maker = one_device_per_thread()
    gone = len(maker.processes) - 1
    maker.processes.pop()
    maker.contexts.pop()
    maker.threads = [one for one in maker.threads if one.process != gone]
    kept = [one["id"] for one in maker.spans if one["process"] != gone]
    maker.spans = [one for one in maker.spans if one["process"] != gone]
    maker.states = [one for one in maker.states if one["id"] in kept]
    maker.processes[2].error_ns = 40_000
    return maker


def many_communicators() -> Maker:
    """Two ranks with fifteen communicators, to whose second operations rank 1 comes later and later."""
    maker = Maker()
    places = [(process, maker.thread(process, "main")) for process in (maker.process(), maker.process())]
    for number in range(15):
        for rank, (process, thread) in enumerate(places):
            context = maker.context(process, rank, 2, COMMUNICATOR + number, f"tp{number:02}")
            for operation in range(2):
                where = (process, thread, context)
                begin = 1_000_000 * (operation + 1) + 50_000 * number
                at = begin + (rank * 2000 * (number + 1) if operation else 0)
                coll = maker.collective("AllReduce", at, where, 0, 0)
                maker.spans[-1] |= {"sequence": operation, "stop": at + 1}
                maker.span(T.KERNEL_CH, where, at, begin + 49_000, parent=coll, channel=0)
    return maker


def devices_in_a_group() -> Maker:
    """One thread with four devices: one GroupApi for all of them, everything else for each."""
    maker = Maker()
    process = maker.process(program="02_devices_in_a_group")
    main = maker.thread(process, "main")
    contexts = [maker.context(process, rank, 4) for rank in range(4)]
    api(maker, main, contexts, 10_000, ["AllReduce"])
    return maker


def aggregated() -> Maker:
    """Five operations in one group on each of four ranks: one GroupApi, one launch and one Group for each rank."""
    maker = Maker()
    for rank in range(4):
        process = maker.process(program="03_aggregated")
        main = maker.thread(process, f"rank {rank}")
        context = maker.context(process, rank, 4)
        api(
            maker,
            main,
            [context],
            10_000 + 900 * rank,
            ["AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter"],
        )
    return maker


EVIL = [
    "</script><script>window.hacked=1</script>",
    '<img src=x onerror="window.hacked=1">',
    "<svg/onload=window.hacked=1>",
    "\"'`><b>bold</b>&lt;i&gt;",
    "javascript:window.hacked=1",
    "\u202eright to left\u2028\u0000\ud800",
    "--><!--<script>",
]


def hostile() -> Maker:
    """Markup and script wherever a recording holds text; ends before starts, circles, lost parents, unknown types."""
    maker = Maker()
    for number, text in enumerate(EVIL):
        process = maker.process(host=text, program=text)
        maker.processes[-1].error = text
        thread = maker.thread(process, text)
        context = maker.context(process, number, len(EVIL), name=text)
        at = 1000 * number
        parent = maker.span(T.GROUP_API, (process, thread, context), at, at + 5000, parent=0xDEAD)
        maker.span(
            T.COLL, (process, thread, context), at + 10, at + 900, parent=parent, function=maker.text(text), sequence=0
        )
        maker.span(
            T.COLL,
            (process, thread, context),
            at + 1000,
            at + 900,
            parent=parent,
            function=maker.text(text),
            sequence=1,
        )
        odd = maker.span(77, (process, thread, context), at + 20, -1, algorithm=maker.text(text), op=maker.text(text))
        maker.state(odd, at + 30, 4711)
    for one, other in ((0, 4), (4, 0)):
        maker.spans[one]["parent"] = maker.spans[other]["id"]
    maker.quality.notes = list(EVIL)
    maker.quality.dropped = 3
    return maker


def truth(recording: Recording) -> dict[str, Any]:
    """What a picture of it must show."""
    spans = recording.spans
    keys: dict[str, list[int]] = {}
    for row in np.flatnonzero(spans["type"] == int(T.COLL)):
        context = int(spans["context"][row])
        communicator = recording.contexts[context].communicator
        name = recording.strings[int(spans["function"][row])]
        keys.setdefault(f"{communicator:x} {name} {spans['sequence'][row]}", []).append(int(row))
    return {
        "events": len(spans["start"]),
        "type": spans["type"].tolist(),
        "start": spans["start"].tolist(),
        "stop": spans["stop"].tolist(),
        "rank": spans["rank"].tolist(),
        "id": [f"0x{value:x}" for value in spans["id"].tolist()],
        "parent": parent_rows(recording).tolist(),
        "function": [recording.strings[at] for at in spans["function"].tolist()],
        "states": [int(count) for count in np.bincount(recording.states["span"], minlength=len(spans["start"]))],
        "collectives": sorted(sorted(rows) for rows in keys.values()),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    page = template()
    for name, maker in (
        ("one_device", one_device_per_thread()),
        ("devices", devices_in_a_group()),
        ("incomplete", incomplete()),
        ("many", many_communicators()),
        ("aggregated", aggregated()),
        ("hostile", hostile()),
        ("empty", Maker()),
    ):
        recording = maker.recording()
        bundle = encode(recording, name)
        write_page(bundle, folder / f"{name}.html", page)
        (folder / f"{name}.stretview").write_bytes(bundle)
        if len(recording.states["span"]) == 0 or recording.states["span"].min() >= 0:
            (folder / f"{name}.json").write_text(json.dumps(truth(recording)))
    large = make(Job(operations=12500, style="net", clock_offset_ns=0, drift_ppm=0)).recording
    write_page(encode(large, "a million"), folder / "million.html", page)


if __name__ == "__main__":
    main()

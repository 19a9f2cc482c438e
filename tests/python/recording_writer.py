"""Writes recordings for tests, byte by byte as docs/recording.md says, without a line of the reader.

    recording = Writer(pid=7, host="one")
    comm = recording.context(0, 4, communicator=0xC0FFEE)
    worker = recording.thread(70, "worker")
    call = worker.start(9, 1000, context=comm, count=16, function="AllReduce")
    worker.stop(call, 2000)
    recording.write(folder)

Ticks are nanoseconds of CLOCK_MONOTONIC, unless `anchors` say otherwise.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

NONE = 0xFFFFFFFF
START, STOP, STATE, INIT, FINALIZE = 1, 2, 3, 4, 5
STRING, CONTEXT, THREAD, ANCHOR, FORK, SAMPLE = 32, 33, 34, 35, 36, 38

# What follows `rank` and `threads` in a start, by type: format and name; an `s` in `_TEXT` is a string.
_FIELDS: dict[int, str] = {
    0: "",
    1: "Q:sequence Q:count Q:send Q:receive Q:group Q:tag Q:traffic I:function I:data_type I:algorithm I:protocol "
    "I:variant i:root H:channels B:warps B:symmetric I:op",
    2: "Q:count Q:buffer Q:group Q:tag I:function I:data_type i:peer I:channels",
    3: "i:pid I:channel i:peer i:steps i:chunk I:is_send",
    4: "i:step I:zero",
    5: "",
    6: "I:channel I:zero Q:gpu",
    7: "q:plugin 40s:data",
    8: "i:depth I:captured",
    9: "Q:count Q:stream Q:tag I:function I:data_type i:root I:captured",
    10: "Q:count Q:stream Q:tag I:function I:data_type I:captured I:zero",
    11: "Q:stream",
    12: "Q:sequence Q:count Q:send Q:receive Q:stream Q:tag Q:ce_sequence I:function I:data_type i:root I:sync "
    "I:intra I:batch I:batches I:zero",
    13: "I:complete i:ranks",
    14: "Q:operations Q:bytes Q:intra",
    15: "I:channel I:phase I:phase_name I:zero Q:gpu",
}
_TEXT = {"function", "data_type", "algorithm", "protocol", "variant", "op", "sync", "phase_name"}


@dataclass
class ThreadWriter:
    """One thread of a recording. Times must not decrease, as in a real one."""

    recording: Writer
    number: int
    records: list[bytes] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)

    def add(self, kind: int, type_: int, context: int, ticks: int, payload: bytes) -> None:
        payload += bytes(-len(payload) % 8)
        self.records.append(struct.pack("<HBBIQ", 16 + len(payload), kind, type_, context, ticks) + payload)
        self.ticks.append(ticks)

    def start(
        self,
        type_: int,
        ticks: int,
        *,
        context: int = NONE,
        parent: int = 0,
        rank: int = 0,
        **fields: int | str | bytes,
    ) -> int:
        """Starts a span; fields by the names in `_FIELDS`, zero where not given. Returns its id."""
        id_ = self.recording.new_id(type_)
        payload = struct.pack("<QQiI", id_, parent, rank, 0)
        for one in _FIELDS.get(type_, "").split():
            code, _, name = one.partition(":")
            value = fields.pop(name, b"" if code == "40s" else "" if name in _TEXT else 0)
            if isinstance(value, str):
                value = self.recording.string(value)
            payload += struct.pack("<" + code, value)
        assert not fields, f"type {type_} has no {list(fields)}"
        self.add(START, type_, context, ticks, payload)
        return id_

    def stop(self, id_: int, ticks: int, context: int = NONE) -> None:
        self.add(STOP, (id_ >> 56) - 1 & 0xFF, context, ticks, struct.pack("<Q", id_))

    def state(self, id_: int, ticks: int, state: int, *arguments: int, count: int = 1) -> None:
        values = [*arguments, (1 << 64) - 1, (1 << 64) - 1][:2]
        self.add(STATE, (id_ >> 56) - 1 & 0xFF, NONE, ticks, struct.pack("<QIIQQ", id_, state, count, *values))

    def init(self, context: int, ticks: int) -> None:
        self.add(INIT, 0, context, ticks, bytes(8))

    def finalize(self, context: int, ticks: int) -> None:
        self.add(FINALIZE, 0, context, ticks, bytes(8))


@dataclass
class Writer:
    """One process's file. Set any field before `write`; what is wrong on purpose is written as it stands."""

    pid: int = 100
    host: str = "host"
    tag: int = 0
    boot: bytes = b"0123456789abcdef"
    clock: int = 2
    mode: int = 1
    state: int = 1
    abi: int = 5
    nccl: int = 22809
    stretto: str = ""
    mask: int = 0xFFFF
    program: str = "program --with arguments"
    error: str = ""
    dropped: int = 0
    unmatched: int = 0
    self_ticks: int = 0
    self_samples: int = 0
    segment_bytes: int = 4096
    anchors: list[tuple[int, int, int, int]] = field(
        default_factory=lambda: [(0, 0, 10**18, 50), (10**10, 10**10, 10**18 + 10**10, 50)]
    )
    threads: list[ThreadWriter] = field(default_factory=list)
    definitions: list[bytes] = field(default_factory=list)
    strings: dict[str, int] = field(default_factory=dict)
    contexts: int = 0
    ids: int = 0
    first_sequence: int = 0
    dropped_before: int = 0

    def __post_init__(self) -> None:
        self.tag = self.tag or (self.pid * 40503 & 0xFFFF)

    def new_id(self, type_: int) -> int:
        self.ids += 1
        return (type_ + 1 & 0xFF) << 56 | self.tag << 40 | self.ids

    def define(self, kind: int, payload: bytes, ticks: int = 0) -> None:
        payload += bytes(-len(payload) % 8)
        self.definitions.append(struct.pack("<HBBIQ", 16 + len(payload), kind, 0, NONE, ticks) + payload)

    def string(self, text: str) -> int:
        if text and text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            data = text.encode()
            self.define(STRING, struct.pack("<II", self.strings[text], len(data)) + data)
        return self.strings.get(text, 0)

    def context(self, rank: int, ranks: int, *, communicator: int = 1, name: str = "", nodes: int = 1) -> int:
        number, self.contexts = self.contexts, self.contexts + 1
        self.correct(number, rank, ranks, communicator, name, nodes)
        return number

    def correct(self, number: int, rank: int, ranks: int, communicator: int, name: str = "", nodes: int = 1) -> None:
        """The definition of a context, which may come again."""
        text = self.string(name)
        self.define(CONTEXT, struct.pack("<IiiiQII", number, rank, ranks, nodes, communicator, text, self.abi))

    def sample(self, context: int, every: int) -> None:
        self.define(SAMPLE, struct.pack("<IIQ", context, 0, every))

    def thread(self, tid: int, name: str = "") -> ThreadWriter:
        made = ThreadWriter(self, len(self.threads))
        self.define(THREAD, struct.pack("<IIII", made.number, tid, self.string(name), 0))
        self.threads.append(made)
        return made

    def name(self) -> str:
        return f"{self.host}.{self.pid}.{self.tag:04x}.rec"

    def _segments(self, kind: int, thread: int, records: list[bytes], ticks: list[int]) -> list[bytes]:
        room = self.segment_bytes - 64
        chunks: list[list[int]] = []
        used = room + 1
        for number, record in enumerate(records):
            if used + len(record) > room:
                chunks.append([])
                used = 0
            chunks[-1].append(number)
            used += len(record)
        made = []
        for sequence, chunk in enumerate(chunks):
            data = b"".join(records[number] for number in chunk)
            first = self.first_sequence if kind == 2 else 0
            dropped = self.dropped_before if kind == 2 else 0
            header = struct.pack(
                "<IIQQQQIIQQ",
                *(0x47455353, kind, len(data), sequence + first, ticks[chunk[0]], dropped, thread, 0, 0, 0),
            )
            made.append((header + data).ljust(self.segment_bytes, b"\0"))
        return made

    def bytes(self) -> bytes:
        """The whole file."""
        for ticks, monotonic, realtime, uncertainty in self.anchors:
            self.define(ANCHOR, struct.pack("<QQQ", monotonic, realtime, uncertainty), ticks)
        segments = self._segments(1, NONE, self.definitions, [0] * len(self.definitions))
        del self.definitions[len(self.definitions) - len(self.anchors) :]
        for one in self.threads:
            segments += self._segments(2, one.number, one.records, one.ticks)
        header = struct.pack(
            "<8sIIIIQQQIHBB16sQIIQQQ64s256s64s",
            *(b"STRETREC", 1, 4096, self.segment_bytes, self.mode, len(segments), self.dropped, 12345, self.pid),
            *(self.tag, self.clock, self.state, self.boot, self.mask, self.abi, self.nccl, self.unmatched),
            *(self.self_ticks, self.self_samples, self.host.encode(), self.program.encode(), self.error.encode()),
        )
        header += struct.pack("<QQQ24s", 0, (1 << 64) - 1, 0, self.stretto.encode())
        return header.ljust(4096, b"\0") + b"".join(segments)

    def write(self, folder: Path) -> Path:
        path = folder / self.name()
        path.write_bytes(self.bytes())
        return path


def small(pid: int = 100, rank: int = 0, ranks: int = 2, operations: int = 3, **settings: object) -> Writer:
    """A process with `operations` all-reduces, each with its API call, launch, two channels and a proxy operation.

    Operation i takes 2000 ns from 1000 + 10000 * i. The calling thread nests; the proxy thread's operations overlap.
    """
    made = Writer(pid=pid, **settings)  # type: ignore[arg-type]
    comm = made.context(rank, ranks, communicator=0xC0FFEE, name="world")
    caller, proxy = made.thread(pid, "main"), made.thread(pid + 1, "NCCL Progress 0")
    caller.init(comm, 100)
    for number in range(operations):
        at = 1000 + 10000 * number
        group = caller.start(8, at, context=comm, depth=1)
        caller.state(group, at + 5, 23)
        kind = {"function": "AllReduce", "data_type": "ncclFloat32"}
        api = caller.start(9, at + 10, context=comm, parent=group, count=16, stream=0x1000, **kind)
        caller.stop(api, at + 20)
        launch = caller.start(11, at + 30, context=comm, parent=group, stream=0x1000)
        caller.stop(launch, at + 40)
        where = {"algorithm": "RING", "protocol": "LL", "channels": 2}
        coll = caller.start(
            1,
            at + 50,
            context=comm,
            parent=api,
            rank=rank,
            sequence=number,
            count=16,
            send=1,
            receive=2,
            **kind,
            **where,
        )
        caller.stop(coll, at + 60)
        caller.stop(group, at + 70)
        send = proxy.start(3, at + 100, context=comm, parent=coll, rank=rank, channel=0, peer=1, steps=4, is_send=1)
        receive = proxy.start(3, at + 110, context=comm, parent=coll, rank=rank, channel=1, peer=1, steps=4)
        step = proxy.start(4, at + 120, context=comm, parent=send, rank=rank, step=3)
        proxy.state(step, at + 130, 9, 64)
        channel = proxy.start(6, at + 150, context=comm, parent=coll, channel=0, gpu=5000 + at)
        proxy.stop(send, at + 1500)
        proxy.stop(step, at + 1600)
        proxy.stop(receive, at + 1700)
        proxy.state(channel, at + 1990, 22, 6900 + at)
        proxy.stop(channel, at + 2000)
    caller.finalize(comm, 1000 + 10000 * operations)
    return made

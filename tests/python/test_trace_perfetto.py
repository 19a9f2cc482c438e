"""A Perfetto trace says all that was recorded: every field of every type of event, as the JSON lines have it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from recording_writer import _FIELDS, _TEXT, Writer
from stretto.trace.convert import convert
from stretto.trace.packets import Shape, in_order, long_varint, width
from test_trace_convert import converted, packets

ONES = {"Q": (1 << 64) - 1, "I": (1 << 32) - 1, "H": (1 << 16) - 1, "B": (1 << 8) - 1}
# What the lines say of the event, and not of its descriptor.
OTHERS = {"ts_ns", "call", "host", "pid", "tid", "comm", "comm_name", "rank", "nranks", "type", "id", "parent"}
OTHERS |= {"descriptor_rank"}


def every_type(folder: Path) -> None:
    """Spans of all types, with and without each of their fields, some with states and some without an end."""
    chance = random.Random(11)
    made = Writer(segment_bytes=1 << 16)
    comm = made.context(1, 2, communicator=7, name="world")
    threads = [made.thread(1, "main"), made.thread(2, "proxy")]
    at, parent = 1000, 0
    for _ in range(40):
        for kind, fields in _FIELDS.items():
            one = chance.choice(threads)
            said: dict[str, Any] = {}
            for code, name in (field.split(":") for field in fields.split()):
                if name in _TEXT:
                    said[name] = chance.choice(("", "AllReduce", "Float <&>"))
                elif code == "40s":
                    said[name] = chance.randbytes(40)
                elif code in "iq":
                    said[name] = chance.randrange(-5, 1 << 20)
                else:
                    said[name] = chance.choice((0, chance.randrange(200), ONES[code], ONES[code] - 1))
            at += chance.randrange(3)
            where = comm if chance.random() < 0.9 else (1 << 32) - 1
            span = one.start(kind, at, context=where, parent=chance.choice((0, parent)), rank=1, **said)
            if chance.random() < 0.4:
                one.state(span, at, chance.choice((8, 9, 22)), chance.randrange(1 << 40))
            if chance.random() < 0.9:
                one.stop(span, at + chance.randrange(5) * (one is threads[1]))
                at += 5
            parent = span
    made.write(folder)


def said_by_lines(path: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["call"] == "start":
            said = {name: value for name, value in event.items() if name not in OTHERS and value not in (None, "")}
            found[int(event["id"], 16)] = said | {"parent": int(event["parent"], 16)}
    return found


def said_by_slices(path: Path) -> dict[int, dict[str, Any]]:
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    found = {}
    for packet in packets(path):
        names |= {one.iid: one.name for one in packet.interned_data.debug_annotation_names}
        texts |= {one.iid: one.str.decode() for one in packet.interned_data.debug_annotation_string_values}
        if packet.track_event.type != 1:
            continue
        said: dict[str, Any] = {}
        for one in packet.track_event.debug_annotations:
            field = one.WhichOneof("value")
            value = getattr(one, field)
            value = (
                texts[value] if field == "string_value_iid" else f"0x{value:x}" if field == "pointer_value" else value
            )
            said[names[one.name_iid]] = value
        said["parent"] = int(said.get("parent", "0"), 16)
        found[int(said.pop("id"), 16)] = said
    return found


def test_slices_say_what_the_lines_say(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    every_type(folder)
    lines = said_by_lines(converted(folder, "jsonl", tmp_path))
    slices = said_by_slices(converted(folder, "perfetto", tmp_path))
    assert set(lines) == set(slices) and len(lines) == 40 * len(_FIELDS)
    added = {"communicator", "gpu_stop_ns", "never_stopped"}
    for span, said in lines.items():
        assert {name: value for name, value in slices[span].items() if name not in added} == said


def test_every_slice_that_begins_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    every_type(folder)
    events = [one for one in packets(converted(folder, "perfetto", tmp_path)) if one.HasField("track_event")]
    depth: dict[int, int] = {}
    for one in sorted(events, key=lambda event: event.timestamp):
        track = one.track_event.track_uuid
        depth[track] = depth.get(track, 0) + {1: 1, 2: -1, 3: 0}[one.track_event.type]
        assert depth[track] >= 0
    assert not any(depth.values())


def test_an_empty_recording_is_a_trace(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    Writer().write(folder)
    assert convert([folder], "perfetto", tmp_path / "x").rows == 0
    assert len(packets(tmp_path / "x")) == 1


def test_shapes() -> None:
    values = np.array([0, 1, 127, 128, 1 << 40, (1 << 64) - 1], np.uint64)
    assert width(values) == 10 and width(values[:3]) == 1 and width(values[:0]) == 1
    shape = Shape(len(values))
    shape.number(values)
    assert [bytes(row) for row in shape.rows()] == [long_varint(int(value), 10) for value in values]
    parts = [(np.array([5, 1]), np.full((2, 8), 7, np.uint8)), (np.array([3]), np.full((1, 16), 9, np.uint8))]
    text, ends = in_order(parts)
    assert text == b"\7" * 8 + b"\t" * 16 + b"\7" * 8 and ends.tolist() == [8, 24, 32]

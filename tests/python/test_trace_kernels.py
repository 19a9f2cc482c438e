"""Kernels in what converters draw: where their GPU had them, on the clock of the recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recording_writer import Writer, small
from stretto.trace import convert as convert_module
from stretto.trace.convert import convert
from stretto.trace.job import open_job
from test_trace_convert import SPANS, packets

GPU_AHEAD = 7_000_000_000


def kernels(folder: Path, operations: int, segment_bytes: int = 1 << 15) -> dict[int, tuple[int, int]]:
    """Kernels whose GPU's clock is ahead by 7 s and drifts by 20 ppm, seen late; returns when they ran, by id."""
    truth: dict[int, tuple[int, int]] = {}

    def stamp(time: int) -> int:
        return time + GPU_AHEAD + time * 20 // 1_000_000

    for rank in range(2):
        made = Writer(pid=rank + 1, segment_bytes=segment_bytes)
        comm, caller, proxy = made.context(rank, 2, communicator=9), made.thread(1), made.thread(2)
        for number in range(operations):
            at = 1_000_000 + number * 100_000
            kind = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 4}
            group = caller.start(8, at, context=comm)
            api = caller.start(9, at + 100, context=comm, parent=group, **kind)
            caller.stop(api, at + 200)
            caller.stop(caller.start(11, at + 300, context=comm, parent=group), at + 400)
            coll = caller.start(1, at + 500, context=comm, parent=api, sequence=number, **kind)
            caller.stop(coll, at + 600)
            caller.stop(group, at + 700)
            ran = at + 1300 + number * 7919 % 1000, at + 20_000
            kernel = proxy.start(6, at + 24_000, context=comm, parent=coll, channel=0, gpu=stamp(ran[0]))
            seen = at + 25_000 + number * 104_729 % 3000
            proxy.state(kernel, seen, 22, stamp(ran[1]))
            proxy.stop(kernel, seen)
            truth[kernel] = ran
        made.write(folder)
    return truth


def drawn_kernels(folder: Path, to: str, output: Path) -> dict[int, tuple[float, float]]:
    path = convert([folder], to, output).path
    assert path is not None
    if to == "chrome":
        events = json.loads(path.read_text())["traceEvents"]
        bars = [one for one in events if one["ph"] == "X" and one["cat"] == "KernelCh"]
        assert all(one["args"]["gpu_ns"] > GPU_AHEAD and one["args"]["seen_stop_us"] for one in bars)
        assert not [one for one in events if one["ph"] == "i" and one["name"] == "KernelChStop"]
        return {int(one["args"]["id"], 16): (one["ts"] * 1e3, (one["ts"] + one["dur"]) * 1e3) for one in bars}
    if to == "otf2":
        otf2 = pytest.importorskip("otf2")
        found: dict[int, tuple[float, float]] = {}
        began: dict[Any, tuple[int, int]] = {}
        with otf2.reader.open(str(path / "traces.otf2")) as trace:
            for location, event in trace.events:
                if "channel" not in location.name:
                    continue
                if isinstance(event, otf2.events.Enter):
                    said = {attribute.name: value for attribute, value in event.attributes.items()}
                    began[location] = said["id"], event.time - 10**18
                else:
                    id_, start = began[location]
                    found[id_] = start, event.time - 10**18
        return found
    found = {}
    open_: dict[int, tuple[int, int]] = {}
    names: dict[int, str] = {}
    tracks = {}
    for packet in packets(path):
        names |= {one.iid: one.name for one in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        event = packet.track_event
        if not tracks.get(event.track_uuid, "").startswith("GPU channel"):
            continue
        if event.type == 1:
            said = {names[one.name_iid]: one for one in event.debug_annotations}
            assert said["gpu_ns"].int_value > GPU_AHEAD and said["gpu_clock_error_ns"].int_value > 0
            open_[event.track_uuid] = said["id"].pointer_value, packet.timestamp - 10**9
        elif event.type == 2:
            id_, start = open_.pop(event.track_uuid)
            found[id_] = start, packet.timestamp - 10**9
    return found


@pytest.mark.parametrize("budget", [64 << 20, 300_000])
@pytest.mark.parametrize("to", ["perfetto", "chrome", "otf2"])
def test_kernels_lie_on_the_clock_of_the_recording(
    tmp_path: Path, to: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    truth = kernels(folder, 2000)
    monkeypatch.setattr("stretto.trace.convert._ALIGN_BY", budget)
    found = drawn_kernels(folder, to, tmp_path / "out")
    assert found.keys() == truth.keys()
    job = open_job(folder)
    convert_module._align(job, True)
    error = job.gpus[0].error_ns
    assert len(job.gpus) == 2 and 0 < error < 5000
    assert not any(vars(job.gather_quality())[name] for name in ("unmatched_starts", "unmatched_stops"))
    for id_, ran in truth.items():
        assert all(abs(a - b) <= error for a, b in zip(found[id_], ran, strict=True)), (found[id_], ran)


def test_a_stamp_that_cannot_be_leaves_its_kernel_where_it_was_seen(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    made = small(operations=50)
    caller, proxy = made.threads
    wrong = proxy.start(6, 2_000_000, context=0, channel=0, gpu=2_004_000)
    proxy.state(wrong, 2_001_000, 22, 1_000)  # before it began
    proxy.stop(wrong, 2_001_500)
    never = proxy.start(6, 2_002_000, context=0, channel=0, gpu=2_006_000)
    assert caller.number != proxy.number
    made.write(folder)
    path = convert([folder], "chrome", tmp_path / "x.json").path
    events = json.loads((path or tmp_path).read_text())["traceEvents"]
    bars = {int(one["args"]["id"], 16): one for one in events if one["ph"] == "X" and one["cat"] == "KernelCh"}
    assert bars[wrong]["ts"] == 2000.0 and bars[wrong]["dur"] == 1.5 and "gpu_clock_error_ns" not in bars[wrong]["args"]
    assert bars[never]["args"]["never_stopped"] and bars[never]["ts"] == 2002.0
    assert sum("gpu_clock_error_ns" in one["args"] for one in bars.values()) == 50
    for one in ("perfetto", "otf2"):
        assert convert([folder], one, tmp_path / one).rows == 50 * SPANS + 2

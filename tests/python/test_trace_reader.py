"""Reading recordings: what is in them comes out, and what is wrong with them is said and does no harm."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording_writer import Writer, small
from stretto.errors import StrettoError
from stretto.trace import reader
from stretto.trace.columns import SpanIndex
from stretto.trace.job import open_job
from stretto.trace.model import SPAN_COLUMNS, STATE_COLUMNS, EventType, Recording
from stretto.trace.part import Part
from stretto.trace.raw import BadRecording
from stretto.trace.reader import load
from stretto.trace.spans import Joiner
from stretto.trace.stream import batches


def read(folder: Path) -> Recording:
    return load(folder, align=False)


def row(recording: Recording, kind: EventType, number: int = 0) -> dict[str, object]:
    where = np.flatnonzero(recording.spans["type"] == kind)[number]
    return {name: values[where].item() for name, values in recording.spans.items()}


def test_everything_that_was_written_is_read(tmp_path: Path) -> None:
    for rank in range(2):
        small(100 + rank, rank, operations=3).write(tmp_path)
    found = read(tmp_path)
    assert [one.pid for one in found.processes] == [100, 101]
    assert [one.name for one in found.threads] == ["main", "NCCL Progress 0"] * 2
    assert [(one.rank, one.ranks, one.name, one.communicator) for one in found.contexts] == [
        (0, 2, "world", 0xC0FFEE),
        (1, 2, "world", 0xC0FFEE),
    ]
    assert (found.contexts[0].init_ns, found.contexts[0].finalize_ns) == (100, 31000)
    assert {name: values.dtype for name, values in found.spans.items()} == {
        name: np.dtype(kind) for name, kind in SPAN_COLUMNS.items()
    }
    assert {name: values.dtype for name, values in found.states.items()} == {
        name: np.dtype(kind) for name, kind in STATE_COLUMNS.items()
    }
    assert len(found.spans["id"]) == 2 * 3 * 8
    assert np.all(np.diff(found.spans["start"].astype(np.int64)) >= 0)
    coll = row(found, EventType.COLL, 5)
    assert (coll["start"], coll["stop"], coll["sequence"], coll["count"]) == (21050, 21060, 2, 16)
    texts = [found.strings[int(str(coll[name]))] for name in ("function", "data_type", "algorithm", "protocol")]
    assert texts == ["AllReduce", "ncclFloat32", "RING", "LL"]
    assert (coll["send_buffer"], coll["receive_buffer"], coll["channel"], coll["rank"]) == (1, 2, 2, 1)
    channel = row(found, EventType.KERNEL_CH)
    assert (channel["gpu_start"], channel["gpu_stop"]) == (6000, 7900)
    proxy = row(found, EventType.PROXY_OP)
    assert (proxy["detail"], proxy["peer"], found.strings[int(str(proxy["function"]))]) == (4, 1, "Send")
    assert row(found, EventType.GROUP_API)["detail"] == 1
    assert vars(found.quality) == {**vars(found.quality), "damaged_segments": 0, "unmatched_starts": 0, "notes": []}


def test_states_find_their_spans(tmp_path: Path) -> None:
    small(operations=2).write(tmp_path)
    found = read(tmp_path)
    types = found.spans["type"][found.states["span"].astype(np.int64)]
    assert types.tolist() == [8, 4, 6] * 2
    assert found.states["argument"].tolist()[1] == 64 and found.states["argument2"].tolist()[1] == -1


def test_a_rank_is_the_contexts_and_numbers_that_are_missing_are_minus_one(tmp_path: Path) -> None:
    made = Writer()
    comm = made.context(3, 8)
    one = made.thread(1)
    one.start(9, 10, context=comm, count=(1 << 64) - 1, root=-1)
    one.start(9, 20, rank=5)
    one.start(1, 30, channels=0xFFFF, warps=0xFF, traffic=(1 << 64) - 1)
    one.start(77, 40)
    made.write(tmp_path)
    found = read(tmp_path)
    assert found.spans["rank"].tolist() == [3, 5, 0, 0] and found.spans["context"].tolist() == [0, -1, -1, -1]
    assert found.spans["count"].tolist()[0] == -1
    coll = row(found, EventType.COLL)
    assert (coll["channel"], coll["warps"], coll["traffic_bytes"]) == (-1, -1, -1)
    assert found.spans["type"].tolist()[3] == 77 and found.quality.unmatched_starts == 4


def test_a_later_definition_corrects_a_context(tmp_path: Path) -> None:
    made = Writer(abi=1)
    comm = made.context(-1, -1, communicator=0)
    made.correct(comm, 2, 4, 77, "late")
    made.thread(1).start(1, 10, context=comm)
    made.write(tmp_path)
    found = read(tmp_path)
    assert [(one.rank, one.ranks, one.communicator, one.name) for one in found.contexts] == [(2, 4, 77, "late")]


def test_unmatched_and_twice(tmp_path: Path) -> None:
    made = Writer()
    one, two = made.thread(1), made.thread(2)
    first = one.start(8, 10)
    one.start(8, 20)
    two.stop(first, 30)
    two.stop(first, 40)
    two.stop(0x0900000000000001, 50)
    made.write(tmp_path)
    found = read(tmp_path)
    assert found.spans["stop"].tolist() == [30, -1]
    quality = found.quality
    assert (quality.unmatched_starts, quality.unmatched_stops, quality.duplicate_stops) == (1, 1, 1)


def test_a_stop_before_its_start_is_suspect(tmp_path: Path) -> None:
    made = Writer()
    one, two = made.thread(1), made.thread(2)
    first = one.start(6, 100)
    two.stop(first, 90)
    made.write(tmp_path)
    found = read(tmp_path)
    assert found.spans["stop"].tolist() == [100] and found.quality.suspect_stamps == 1


def test_a_segment_that_another_thread_went_on_with(tmp_path: Path) -> None:
    made = Writer()
    made.thread(11, "first")
    later = made.thread(22, "later").number
    segment = made.threads[0]
    segment.stop(segment.start(8, 10), 20)
    segment.add(6, 255, 0xFFFFFFFF, 30, struct.pack("<II", later, 0))
    segment.stop(segment.start(9, 40), 50)
    segment.add(6, 255, 0xFFFFFFFF, 60, struct.pack("<II", 99, 0))
    segment.start(10, 70)
    made.write(tmp_path)
    found = read(tmp_path)
    assert found.spans["thread"].tolist() == [0, 1, 2] and found.threads[2].name == "undefined 99"
    assert [span.thread for span in Joiner(open_job(tmp_path)).spans()] == [0, 1, 2]


def test_contexts_of_other_processes(tmp_path: Path) -> None:
    owner = small(100, rank=3, ranks=4, operations=1)
    owner.write(tmp_path)
    proxy = Writer(pid=200)
    proxy.define(37, struct.pack("<IIII", 5, owner.tag, 0, 0))
    proxy.define(37, struct.pack("<IIII", 6, 1, 0, 0))
    proxy.thread(1).start(3, 10, context=5)
    proxy.write(tmp_path)
    found = read(tmp_path)
    mine = found.spans["process"] == 1
    assert found.spans["context"][mine].tolist() == [0] and found.spans["rank"][mine].tolist() == [3]
    assert any("not here" in text for text in found.quality.notes)


def test_a_tag_that_two_hosts_have_means_the_process_of_the_own_host(tmp_path: Path) -> None:
    for number, boot in enumerate((b"a" * 16, b"b" * 16)):
        owner = Writer(pid=100, host=f"host{number}", tag=7, boot=boot)
        owner.thread(1).start(1, 10, context=owner.context(number, 2), function="AllReduce")
        owner.write(tmp_path)
    proxy = Writer(pid=200, host="host1", tag=8, boot=b"b" * 16)
    proxy.define(37, struct.pack("<IIII", 5, 7, 0, 0))
    proxy.thread(1).start(3, 20, context=5, parent=2 << 56 | 7 << 40 | 1)
    proxy.write(tmp_path)
    found = read(tmp_path)
    mine = int(np.flatnonzero(found.spans["process"] == 2)[0])
    assert found.contexts[int(found.spans["context"][mine])].process == 1 and found.spans["rank"][mine] == 1
    parent = int(SpanIndex(found, (EventType.COLL,)).parents(np.array([mine]))[0])
    assert found.spans["process"][parent] == 1
    assert not any("share a tag" in text for text in found.quality.notes)


def test_many_segments_and_large_windows_agree(tmp_path: Path) -> None:
    for size in (4096, 1 << 16, 1 << 20):
        folder = tmp_path / str(size)
        folder.mkdir()
        small(operations=700, segment_bytes=size).write(folder)
    every = [read(tmp_path / str(size)).spans for size in (4096, 1 << 16, 1 << 20)]
    for name in SPAN_COLUMNS:
        assert np.array_equal(every[0][name], every[1][name]) and np.array_equal(every[0][name], every[2][name])


def test_the_stream_gives_all_events_in_order(tmp_path: Path) -> None:
    for rank in range(3):
        small(100 + rank, rank, 3, operations=400, segment_bytes=1 << 15).write(tmp_path)
    job = open_job(tmp_path)
    times = [
        int(batch.pieces[piece].times[place])
        for batch in batches(job)
        for piece, place in zip(batch.piece.tolist(), batch.row.tolist(), strict=True)
    ]
    assert len(times) == 3 * (400 * 19 + 2) and times == sorted(times)
    spans = list(Joiner(open_job(tmp_path)).spans())
    loaded = read(tmp_path).spans
    assert len(spans) == len(loaded["id"])
    assert sorted((one.process, one.id, one.start, one.stop) for one in spans) == sorted(
        zip(*(loaded[name].tolist() for name in ("process", "id", "start", "stop")), strict=True)
    )


def test_of_a_part_only_its_segments_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        small(100 + rank, rank, 2, operations=400, segment_bytes=4096).write(tmp_path)
    whole = read(tmp_path)
    part = Part(1_000_000, 1_500_000)
    found = load(tmp_path, align=False, part=part)
    assert len(found.spans["id"]) < len(whole.spans["id"]) / 4
    inside = (whole.spans["start"] >= part.begin) & (whole.spans["stop"] <= part.end)
    assert np.isin(whole.spans["id"][inside], found.spans["id"]).all() and inside.sum() > 100
    assert found.quality.unmatched_starts == found.quality.unmatched_stops == 0
    # What is left out need not fit into memory either.
    room = 6 * 150_000
    monkeypatch.setattr(reader, "free_memory", lambda: room)
    assert len(load(tmp_path, align=False, part=part).spans["id"]) == len(found.spans["id"])
    with pytest.raises(StrettoError, match=r"GB of memory.*--from"):
        load(tmp_path, align=False)


def test_free_memory_is_what_the_kernel_says() -> None:
    assert 1 << 20 < reader.free_memory() < 1 << 50


# ---- clocks


def test_thousands_of_threads_take_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, events = 1500, 120
    made = Writer(segment_bytes=1 << 16)
    for number in range(threads):
        thread = made.thread(number)
        for count in range(events // 2):
            thread.stop(thread.start(5, 1000 * count + number), 1000 * count + number + 500)
    made.write(tmp_path)
    job = open_job(tmp_path)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: read.append(size) or pread(file, size, at))
    times = [
        batch.pieces[piece].times[row]
        for batch in batches(job)
        for piece, row in zip(batch.piece.tolist(), batch.row.tolist(), strict=True)
    ]
    assert len(times) == threads * events
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert max(read) <= 4096
    # Each looks at every thread: one for each thread that ends made this quadratic.
    assert sum(1 for _ in batches(open_job(tmp_path))) < 20


def test_a_record_that_is_longer_than_a_window(tmp_path: Path) -> None:
    made = Writer(segment_bytes=1 << 18)
    thread = made.thread(1)
    long = thread.start(5, 1000)
    thread.add(2, 5, 0xFFFFFFFF, 2000, struct.pack("<Q", long) + bytes(60_000))
    thread.stop(thread.start(5, 3000), 4000)
    made.write(tmp_path)
    source = open_job(tmp_path).sources[0]
    blocks = list(source.file.blocks(source.file.events[0][0], 4096))
    assert [kind for block in blocks for kind in block.kind.tolist()] == [1, 2, 1, 2]
    assert source.file.quality.damaged_segments == 0


def test_processes_of_one_host_share_its_counter(tmp_path: Path) -> None:
    """Ticks at 2.5 a nanosecond, the second process's own anchors too near to each other to say so."""

    def anchor(ns: int, jitter: int = 0) -> tuple[int, int, int, int]:
        return 10**12 + ns * 5 // 2, 10**9 + ns + jitter, 10**18 + ns + jitter, 30

    first = Writer(pid=1, clock=1, anchors=[anchor(0), anchor(10**9), anchor(3 * 10**9)])
    second = Writer(pid=2, clock=1, anchors=[anchor(5 * 10**8), anchor(5 * 10**8 + 2000, 90)])
    for one in (first, second):
        one.thread(1).start(8, 10**12 + 5 * 10**9)
        one.write(tmp_path)
    found = read(tmp_path)
    starts = found.spans["start"].astype(np.int64)
    assert np.all(np.abs(starts - 2 * 10**9) <= 2) and found.quality.notes == []


def test_one_anchor_alone_says_so(tmp_path: Path) -> None:
    made = Writer(clock=1, state=0, anchors=[(2 * 10**12, 10**12, 10**18, 1)])
    made.thread(1).start(8, 2 * 10**12 + 4000)
    made.write(tmp_path)
    found = read(tmp_path)
    assert found.spans["start"].tolist() == [2000]
    assert any("rate" in text for text in found.quality.notes)
    assert any("not closed" in text for text in found.quality.notes)


def test_hosts_are_joined_by_realtime(tmp_path: Path) -> None:
    for number, boot in enumerate((b"a" * 16, b"b" * 16)):
        began = 10**18 + number * 700
        made = Writer(
            pid=number + 1,
            host=f"host{number}",
            boot=boot,
            anchors=[(10**number, 10**number, began + 10**number, 1), (10**10, 10**10, began + 10**10, 1)],
        )
        made.thread(1).start(8, 1000)
        made.write(tmp_path)
    found = read(tmp_path)
    starts = found.spans["start"].astype(np.int64)
    assert starts[1] - starts[0] == 700 and any("realtime alone" in text for text in found.quality.notes)


@pytest.mark.parametrize("anchors", [[], [(0, 0, 0, 0)] * 3, [(5, 1 << 63, 1 << 63, 0)], [((1 << 64) - 1, 7, 7, 7)]])
@pytest.mark.parametrize("clock", [0, 1, 2])
def test_absurd_anchors(tmp_path: Path, anchors: list[tuple[int, int, int, int]], clock: int) -> None:
    made = small(clock=clock, anchors=anchors)
    made.threads[0].start(8, (1 << 64) - 1)
    made.write(tmp_path)
    assert len(read(tmp_path).spans["id"]) == 25


# ---- losses


def test_flight_mode_says_how_much_is_gone(tmp_path: Path) -> None:
    small(mode=2, first_sequence=6, dropped=17).write(tmp_path)
    quality = read(tmp_path).quality
    assert (quality.overwritten, quality.dropped) == (12, 17)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    data = small(operations=100).bytes()
    path = tmp_path / "a.1.rec"
    whole = len(read(small(operations=100).write(tmp_path)).spans["id"])
    for length in (4096, 4097, 4096 + 64, 4096 * 5 + 1000, len(data) - 5000):
        path.write_bytes(data[:length])
        found = load(path, align=False)
        assert found.quality.damaged_segments > 0 and len(found.spans["id"]) <= whole
        assert length < 4096 * 6 or len(found.spans["id"]) > whole // 2


def test_segments_that_are_taken_over_are_left_out(tmp_path: Path) -> None:
    data = bytearray(small().bytes())
    data[4096 * 2 + 44] = 1  # the generation of the first segment of events
    (tmp_path / "a.1.rec").write_bytes(data)
    assert len(read(tmp_path).spans["id"]) < 24


def test_no_recording_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    for data in (b"", b"STRETREC", bytes(8192), b"#!/bin/sh\n" * 1000):
        path.write_bytes(data)
        with pytest.raises(BadRecording, match=r"x\.rec: not a recording"):
            load(path)
    newer = bytearray(small().bytes())
    newer[8] = 9
    path.write_bytes(newer)
    with pytest.raises(BadRecording, match="version 9"):
        load(path)
    with pytest.raises(BadRecording, match="No such file"):
        load(tmp_path / "missing.rec")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadRecording, match="no recording"):
        load(empty)


def test_only_regular_files_and_no_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    real = small().write(outside)
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "link.1.rec").symlink_to(real)
    os.mkfifo(folder / "pipe.2.rec")
    (folder / "folder.3.rec").mkdir()
    with pytest.raises(BadRecording, match="none of 3"):
        load(folder)
    small().write(folder)
    found = read(folder)
    assert len(found.processes) == 1 and len(found.quality.notes) == 3


def test_no_path_in_a_recording_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    made = small(program=str(secret), host="../secret", error=str(secret))
    path = tmp_path / "a.1.rec"
    path.write_bytes(made.bytes())
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *rest, **more: opened.append(name) or real(name, *rest, **more))
    load(path, align=False)
    assert set(opened) == {path}


# ---- anything at all

SMALL = small(operations=6).bytes()


def survives(data: bytes, folder: Path) -> None:
    """Reads it both ways. Only a StrettoError may come out."""
    path = folder / "a.1.rec"
    path.write_bytes(data)
    try:
        found = load(path, align=False)
    except StrettoError:
        return
    rows = len(found.spans["id"])
    assert all(len(values) == rows for values in found.spans.values())
    for name, among in (("thread", found.threads), ("process", found.processes), ("context", found.contexts)):
        assert rows == 0 or (found.spans[name].min() >= -1 and found.spans[name].max() < len(among))
    for name in ("function", "data_type", "algorithm", "protocol", "op", "kernel_variant"):
        assert rows == 0 or found.spans[name].max() < len(found.strings)
    stops, starts = found.spans["stop"].astype(np.int64), found.spans["start"].astype(np.int64)
    assert np.all((stops == -1) | (stops >= starts))
    for span in Joiner(open_job(path)).spans():
        assert span.end >= span.start or span.stop is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=12))
def test_any_bytes_changed(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for place, value in changes:
        data[place] = value
    survives(bytes(data), tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SMALL)), st.binary(max_size=200))
def test_any_cut_and_any_tail(tmp_path: Path, length: int, tail: bytes) -> None:
    survives(SMALL[:length] + tail, tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, (len(SMALL) - 8) // 8), st.sampled_from([0, 1, 2**16 - 8, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
def test_absurd_numbers(tmp_path: Path, word: int, value: int) -> None:
    data = bytearray(SMALL)
    data[8 * word : 8 * word + 8] = struct.pack("<Q", value)
    survives(bytes(data), tmp_path)


def test_headers_with_absurd_numbers_take_no_time(tmp_path: Path) -> None:
    """Every field of the header and of a segment's, each as large as it can be."""
    began = time.monotonic()
    for base in (0, 4096, 4096 * 2, 4096 * 3):
        for place in range(8, 128, 4):
            data = bytearray(SMALL)
            data[base + place : base + place + 4] = b"\xff\xff\xff\x7f"
            survives(bytes(data), tmp_path)
    assert time.monotonic() - began < 60


def test_a_file_of_holes_takes_no_time(tmp_path: Path) -> None:
    made = small()
    data = bytearray(made.bytes())
    struct.pack_into("<Q", data, 24, 1 << 50)
    path = tmp_path / made.name()
    path.write_bytes(data)
    os.truncate(path, 1 << 42)  # of which a few KB exist
    began = time.monotonic()
    found = read(path)
    assert time.monotonic() - began < 10
    assert len(found.spans["id"]) > 0 and found.quality.damaged_segments
    assert any("left out" in text for text in found.quality.notes)


def test_noise(tmp_path: Path) -> None:
    chance = random.Random(7)
    for _ in range(30):
        data = SMALL[:4096] + chance.randbytes(len(SMALL) - 4096)
        survives(data, tmp_path)
        # Segments that look right, and hold noise.
        head = [SMALL[place : place + 64] for place in range(4096, len(SMALL), 4096)]
        survives(SMALL[:4096] + b"".join(one + chance.randbytes(4096 - 64) for one in head), tmp_path)


def test_a_million_events_load_in_seconds(tmp_path: Path) -> None:
    made = small(operations=2000, segment_bytes=1 << 20)
    again = dataclasses.replace(made)
    for one in again.threads:
        one.records *= 26
        one.ticks *= 26
    made.write(tmp_path)
    began = time.monotonic()
    found = read(tmp_path)
    seconds = time.monotonic() - began
    assert len(found.spans["id"]) == 2000 * 8 * 26
    assert seconds < 30, f"{seconds:.1f} s"

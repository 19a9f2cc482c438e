"""`stretto trace view`: the bundle holds exactly the recording, and the page exactly the bundle."""

from __future__ import annotations

import base64
import json
import re
import shlex
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import STRETTO, environment, stretto
from recording_writer import Writer, small
from stretto.errors import InvalidArgument, InvalidUsage, SystemCallError
from stretto.trace import view
from stretto.trace.bundle import MAGIC, encode, parent_rows
from stretto.trace.link import link_to
from stretto.trace.model import SPAN_COLUMNS, EventType, Recording
from stretto.trace.part import Part, selected, within
from stretto.trace.reader import load
from synthetic_job import Job, make

Column = np.ndarray[Any, np.dtype[Any]]
TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}


def header_and_area(bundle: bytes) -> tuple[dict[str, Any], bytes]:
    magic, version, zero, size = struct.unpack_from("<8sIIQ", bundle)
    assert (magic, version, zero) == (MAGIC, 1, 0)
    payload = zlib.decompress(bundle[24:])
    assert len(payload) == size
    (length,) = struct.unpack_from("<I", payload)
    return json.loads(payload[4 : 4 + length]), payload[(4 + length + 7) // 8 * 8 :]


def column(one: dict[str, Any], rows: int, area: bytes) -> list[int | None]:
    """A column as FORMAT.md describes it, in Python's own numbers."""
    if one["type"] == "u64":
        low = np.frombuffer(area, "<u4", rows, one["offset"]).astype(object)
        high = np.frombuffer(area, "<u4", rows, one["offset"] + 4 * rows).astype(object)
        wide = [int(value) for value in high * 2**32 + low]
        return [None if one["none"] and value == 2**64 - 1 else value for value in wide]
    stored = [int(value) for value in np.frombuffer(area, TYPES[one["type"]], rows, one["offset"])]
    base = int(one["base"])
    if one["delta"]:
        return [base + sum for sum in np.cumsum(np.array(stored, object)).tolist()]
    if one["none"]:
        return [None if value == 0 else base + value - 1 for value in stored]
    return [base + value for value in stored]


def columns(table: dict[str, Any], area: bytes) -> dict[str, list[int | None]]:
    return {one["name"]: column(one, table["rows"], area) for one in table["columns"]}


def same(found: dict[str, list[int | None]], name: str, wanted: Column) -> None:
    unsigned = wanted.dtype.kind == "u"
    if name not in found:
        assert (wanted == (0 if unsigned else -1)).all(), name
        return
    assert found[name] == [None if not unsigned and value == -1 else value for value in wanted.tolist()], name


@pytest.fixture(scope="module")
def recording() -> Recording:
    return make(Job(ranks=4, operations=40, style="net", communicators=2, clock_offset_ns=0)).recording


def test_the_bundle_holds_every_column(recording: Recording) -> None:
    header, area = header_and_area(encode(recording, "a title"))
    found = columns(header["spans"], area)
    for name in SPAN_COLUMNS:
        if name not in ("stop", "start"):
            same(found, name, recording.spans[name])
    start, stop = recording.spans["start"].tolist(), recording.spans["stop"].tolist()
    assert found["start"] == start
    assert found["duration"] == [None if end == -1 else end - begin for begin, end in zip(start, stop, strict=True)]
    states = columns(header["states"], area)
    for name, values in recording.states.items():
        if name != "time":
            same(states, name, values)
    assert states["time"] == recording.states["time"].tolist()
    assert header["title"] == "a title" and header["strings"] == recording.strings
    assert int(header["origin_realtime_ns"]) == recording.origin_realtime_ns
    assert [one["pid"] for one in header["processes"]] == [one.pid for one in recording.processes]
    assert int(header["contexts"][0]["communicator"], 16) == recording.contexts[0].communicator


NUMBERS = st.one_of(st.integers(-5, 300), st.integers(-(2**63), 2**63 - 1), st.integers(2**53 - 3, 2**53 + 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.integers(0, 2**64 - 1), st.integers(-1, 2**31 - 1)), min_size=1, max_size=12))
def test_any_numbers_survive(rows: list[tuple[int, int, int]]) -> None:
    empty = make(Job(ranks=2, hosts=1, operations=1)).recording
    spans = {name: np.resize(values, len(rows)) for name, values in empty.spans.items()}
    spans["gpu_start"] = np.array([row[0] for row in rows], np.int64)
    spans["user_tag"] = np.array([row[1] for row in rows], np.uint64)
    spans["peer"] = np.array([row[2] for row in rows], np.int32)
    spans["start"] = np.sort(spans["gpu_start"])
    spans["stop"] = np.maximum(spans["start"], 0)
    states = {name: values[:0] for name, values in empty.states.items()}
    header, area = header_and_area(
        encode(Recording(empty.processes, empty.threads, empty.contexts, empty.strings, spans, states, 0))
    )
    found = columns(header["spans"], area)
    for name in ("user_tag", "peer"):
        same(found, name, spans[name])
    # Where numbers of all sizes meet they are told by their 64 bits.
    mask = 2**64 - 1
    told = found.get("gpu_start", [None] * len(rows))
    for value, given_ in zip(told, spans["gpu_start"].tolist(), strict=True):
        assert (value is None and given_ == -1) or (value is not None and value & mask == given_ & mask)
    assert [(value or 0) & mask for value in found["start"]] == [value & mask for value in spans["start"].tolist()]


def test_parents_are_found_by_id_in_the_process_that_it_names(recording: Recording) -> None:
    def id_(tag: int, number: int) -> int:
        return tag << 40 | number

    spans = {
        "type": np.full(7, int(EventType.COLL), np.uint8),
        "id": np.array([id_(1, 5), id_(1, 5), id_(1, 7), id_(2, 8), id_(1, 9), id_(1, 9), id_(2, 1)], np.uint64),
        "parent": np.array([0, 0, id_(1, 5), id_(1, 5), id_(1, 77), id_(1, 9), id_(3, 1)], np.uint64),
        "process": np.array([0, 1, 1, 2, 0, 0, 2], np.int32),
    }
    one = recording.processes[0]
    hosts = [replace(one, tag=tag, boot=boot) for tag, boot in ((1, b"a"), (1, b"b"), (2, b"b"))]
    found = parent_rows(replace(recording, processes=hosts, spans=spans)).tolist()
    assert found[:3] == [-1, -1, 1]
    assert found[3] == 1  # of its own host, though the first of that tag is elsewhere
    assert found[4] == -1  # nobody has it
    assert found[5] in (4, -1)  # never itself
    assert found[6] == -1  # nobody has the tag
    nothing = {name: values[:0] for name, values in spans.items()}
    assert parent_rows(replace(recording, processes=hosts, spans=nothing)).tolist() == []


PAGE = b'<html><script type="application/octet-stream" id="recording"></script><script>1</script></html>'


def bundle_in(page: bytes) -> bytes:
    match = re.search(rb'id="recording">([A-Za-z0-9+/=]*)</script>', page)
    assert match is not None
    return base64.b64decode(match[1], validate=True)


def test_the_page_is_the_template_and_the_bundle(tmp_path: Path) -> None:
    bundle = bytes(range(256)) * 30000  # more than one piece
    view.write_page(bundle, tmp_path / "page.html", PAGE)
    page = (tmp_path / "page.html").read_bytes()
    assert bundle_in(page) == bundle
    assert page.replace(base64.b64encode(bundle), b"") == PAGE
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_text_of_a_recording_is_no_part_of_the_page(recording: Recording, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    strings = [*recording.strings[:1], evil, *recording.strings[2:]]
    hostile = Recording(
        recording.processes, recording.threads, recording.contexts, strings, recording.spans, recording.states, 0
    )
    view.write_page(encode(hostile, evil), tmp_path / "page.html", PAGE)
    page = (tmp_path / "page.html").read_bytes()
    assert b"alert" not in page and page.count(b"</script>") == 2
    assert header_and_area(bundle_in(page))[0]["title"] == evil


def test_what_cannot_be_written_is_said(tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemCallError, match="cannot write"):
        view.write_page(b"x", tmp_path / "missing" / "page.html", PAGE)
    monkeypatch.setattr(view, "MOST_EVENTS", 10)
    with pytest.raises(InvalidArgument, match="--without"):
        view.write(recording, tmp_path / "page.stretview")
    monkeypatch.setattr(view, "__file__", str(tmp_path / "a" / "b" / "c" / "view.py"))
    with pytest.raises(InvalidUsage, match="make viewer"):
        view.template()


def test_a_page_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "__file__", str(tmp_path / "a" / "b" / "c" / "view.py"))
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "viewer.html").write_bytes(b"<html></html>")
    with pytest.raises(InvalidUsage, match="build it again"):
        view.template()


def test_a_part_keeps_its_states(recording: Recording) -> None:
    begin, end = 0.002, 0.005
    kept = within(recording, Part.of_seconds(begin, end), frozenset({6}))
    part = selected(recording, kept)
    assert 0 < len(part.spans["start"]) < len(recording.spans["start"])
    assert (part.spans["start"] <= end * 1e9).all() and not (part.spans["type"] == 6).any()
    ids = recording.spans["id"]
    wanted = [ids[row] for row in recording.states["span"] if kept[row]]
    assert [part.spans["id"][row] for row in part.states["span"]] == wanted


def test_kernels_lie_on_the_clock_of_their_gpu(recording: Recording) -> None:
    moved = view.on_gpu_clocks(recording)
    kernels = np.flatnonzero(moved.spans["type"] == 6)
    assert (np.diff(moved.spans["start"].astype(np.int64)) >= 0).all()
    assert (moved.spans["seen_start"][kernels] >= 0).all() and (moved.spans["clock_error"][kernels] > 0).all()
    # A kernel takes as long as its GPU says, and begins neither before its launch nor after it was seen.
    length = (moved.spans["stop"] - moved.spans["start"])[kernels]
    stamped = (moved.spans["gpu_stop"] - moved.spans["gpu_start"])[kernels]
    assert (np.abs(length - stamped) <= 2 + stamped / 10_000).all()  # clocks drift by less than 100 ppm
    error = int(moved.spans["clock_error"].max())
    assert (moved.spans["stop"][kernels] <= moved.spans["seen_stop"][kernels] + error).all()
    others = np.flatnonzero(moved.spans["type"] != 6)
    assert (moved.spans["seen_start"][others] == -1).all()
    before = sorted(zip(recording.spans["id"][recording.states["span"]], recording.states["time"], strict=True))
    after = sorted(zip(moved.spans["id"][moved.states["span"]], moved.states["time"], strict=True))
    assert before == after


def test_gpus_know_each_other_better_than_hosts(recording: Recording) -> None:
    # The recording's own clocks are right to 1 us; its GPUs are linked by the operations that they did together.
    moved = view.on_gpu_clocks(recording)
    kernels = moved.spans["type"] == 6
    among, known = moved.spans["gpu_error"][kernels], moved.spans["clock_error"][kernels]
    assert (among >= 0).all() and (among <= known).all() and (among < known).any()
    assert (moved.spans["gpu_error"][~kernels] == -1).all()


def test_a_recording_without_gpus_stays_as_it_is() -> None:
    made = make(Job(ranks=2, operations=5, style="cpu")).recording
    assert view.on_gpu_clocks(made) is made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("jobs") / "run1"
    made.mkdir()
    for rank in range(2):
        small(100 + rank, rank, 2, operations=5).write(made)
    return made


def test_the_command_writes_beside_the_recording(folder: Path) -> None:
    done = stretto("trace", "view", folder)
    assert done.returncode == 0, done.stderr
    page = folder.with_name("run1.html").read_bytes()
    header, area = header_and_area(bundle_in(page))
    assert header["spans"]["rows"] == 80 and header["title"] == "run1"
    assert "80 events" in done.stderr and "run1.html" in done.stderr
    recording = load([folder])
    # Not in the same order: kernels are where their GPU stamped them.
    assert set(columns(header["spans"], area)["id"]) == set(recording.spans["id"].tolist())
    assert b"default-src 'none'" in page


def test_the_command_takes_a_part_and_a_bare_bundle(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.stretview"
    done = stretto("trace", "view", folder, "-o", output, "--without", "ProxyStep", "--without", "kernel_ch")
    assert done.returncode == 0, done.stderr
    assert header_and_area(output.read_bytes())[0]["spans"]["rows"] == 60
    assert "60 of 80 events" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--without", "Nonsense"], "no event type"),
        (["-o", "."], "no place for a page"),
        (["-o", "x.rec"], "no place for a page"),
        (["--from", "100"], "ends at"),
        (["--from", "2", "--to", "1"], "nothing lies between"),
    ],
)
def test_the_command_refuses_in_one_sentence(folder: Path, arguments: list[str], said: str) -> None:
    done = stretto("trace", "view", folder, *arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_without_a_recording_there_is_the_page_to_drop_one_on(tmp_path: Path) -> None:
    output = tmp_path / "viewer.html"
    done = stretto("trace", "view", "-o", output)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == view.template()
    assert stretto("trace", "view", "-o", tmp_path / "x.stretview").returncode == 2


def test_the_worst_operations_have_an_address(folder: Path, tmp_path: Path) -> None:
    done = stretto("trace", "view", folder, "-o", tmp_path / "page.html", "--worst")
    assert done.returncode == 0 and "page.html#worst=1" in done.stderr


def late(folder: Path, communicator: int = 0xC0FFEE) -> None:
    """Two ranks, of which rank 1 comes 200 us late to each of 30 all-reduces, and latest to #7."""
    folder.mkdir()
    for rank in range(2):
        made = Writer(pid=10 + rank)
        comm, thread = made.context(rank, 2, communicator=communicator, name="world"), made.thread(1)
        for number in range(30):
            at = 1_000_000 * (number + 1)
            begin = at + rank * (200_000 + 50_000 * (number == 7))
            facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 1024}
            coll = thread.start(1, begin, context=comm, sequence=number, **facts)
            thread.stop(coll, at + 300_000)
        made.write(folder)


@pytest.mark.parametrize("part", [[], ["--from", "0.0", "--to", "0.0155"]])
def test_the_commands_that_a_report_prints_show_what_it_names(tmp_path: Path, part: list[str]) -> None:
    folder = tmp_path / ("a job's recording, in a folder with a long name " + "x" * 150)
    late(folder)
    markdown = tmp_path / "report.md"
    done = stretto("trace", "report", folder, *part, "--top", 2, "--markdown", markdown)
    assert done.returncode == 0, done.stderr
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("  stretto trace view ")]
    assert len(commands) == 2 and all(f"    {command}\n" in markdown.read_text() for command in commands)
    assert markdown.read_text().count("0xc0ffee,AllReduce,") == 3  # a command and two rows
    written = json.loads(stretto("trace", "report", folder, *part, "--top", 2, "--json", "-").stdout)
    assert written["operations"][0]["link"] == "0xc0ffee,AllReduce,7"
    for command, place in zip(commands, ("#worst=1", "#op=0xc0ffee,AllReduce,7"), strict=True):
        words = shlex.split(command)
        assert words[:1] == ["stretto"]
        page = tmp_path / "page.html"
        ran = [*STRETTO, *(word for word in words[1:] if word != "--open"), "-o", str(page)]
        shown = subprocess.run(ran, capture_output=True, text=True, timeout=60, env=environment())
        assert shown.returncode == 0, shown.stderr
        assert f"page.html{place}" in "".join(shown.stderr.splitlines())
        assert header_and_area(bundle_in(page.read_bytes()))[0]["spans"]["rows"] == (30 if part else 60)


def test_a_page_opens_at_an_operation_in_whatever_way_it_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "run1"
    late(folder)
    recording = load(folder)
    for text in ("0xc0ffee,AllReduce,7", "#op=0xC0FFEE,allreduce,7", "op=world,AllReduce,07"):
        assert link_to(recording, text) == "0xc0ffee,AllReduce,7"
    done = stretto("trace", "view", folder, "-o", tmp_path / "page.html", "--op", "world,AllReduce,7", "--worst")
    assert done.returncode == 0 and "page.html#worst=1&op=0xc0ffee,AllReduce,7" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("world,AllReduce,30", "no AllReduce #30 of world"),
        ("world,Broadcast,7", "no Broadcast #7 of world"),
        ("other,AllReduce,7", "no communicator other"),
        ("AllReduce,7", "write COMM,FUNCTION,NUMBER"),
    ],
)
def test_an_operation_that_is_not_there_is_said(tmp_path: Path, text: str, said: str) -> None:
    late(tmp_path / "run1")
    done = stretto("trace", "view", tmp_path / "run1", "--op", text)
    assert done.returncode == 2 and said in done.stderr
    assert not (tmp_path / "run1.html").exists()


@pytest.mark.parametrize("words", [["--worst"], ["--op", "world,AllReduce,7"]])
def test_a_place_in_no_recording_is_a_wrong_command_line(tmp_path: Path, words: list[str]) -> None:
    done = stretto("trace", "view", *words, "-o", tmp_path / "page.html")
    assert done.returncode == 2 and f"{words[0]} shows a part of a recording" in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_long_work_says_what_it_does(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Noted:
        """In the place of what shows it on a terminal."""

        def __init__(self, doing: str) -> None:
            self.doing = doing

        def __setattr__(self, name: str, value: object) -> None:
            if name == "doing":
                said.append(str(value))
            super().__setattr__(name, value)

        def __enter__(self) -> Noted:
            return self

        def __exit__(self, *_: object) -> None:
            said.append("")

    monkeypatch.setattr(view, "Working", Noted)
    view.view([folder], output=tmp_path / "page.stretview")
    assert said == ["reading", "aligning clocks", "writing", ""]

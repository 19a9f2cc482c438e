"""Converters: what they write is read back with others' readers and compared with what was recorded."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jobs import environment, stretto
from recording_writer import Writer, small
from stretto.errors import StrettoError
from stretto.trace.convert import FORMATS, convert
from stretto.trace.job import open_job
from stretto.trace.protobuf import varint
from stretto.trace.spans import Joiner

SPANS = 8  # of one operation of `small`
OPERATIONS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recording")
    for rank in range(3):
        small(100 + rank, rank, 3, operations=OPERATIONS, host=f"host{rank // 2}").write(made)
    return made


def converted(folder: Path, to: str, tmp_path: Path) -> Path:
    return convert([folder], to, tmp_path / f"out{FORMATS[to].suffix}").path or Path()


# ---- JSON lines


def test_jsonl_has_every_callback_and_every_field(folder: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in converted(folder, "jsonl", tmp_path).read_text().splitlines()]
    calls = Counter(line["call"] for line in lines)
    each = 3 * OPERATIONS
    assert calls == {"init": 3, "finalize": 3, "start": 8 * each, "stop": 8 * each, "state": 3 * each}
    assert [line["ts_ns"] for line in lines] == sorted(line["ts_ns"] for line in lines)
    coll = next(line for line in lines if line["call"] == "start" and line["type"] == "Coll" and line["rank"] == 2)
    assert (coll["host"], coll["pid"], coll["tid"], coll["comm"], coll["nranks"]) == ("host1", 102, 102, "0xc0ffee", 3)
    assert (coll["function"], coll["algorithm"], coll["count"], coll["send_buffer"]) == ("AllReduce", "RING", 16, "0x1")
    assert coll["is_collnet"] is None and coll["ts_ns"] == 10**18 + 1050
    state = next(line for line in lines if line["call"] == "state" and line["type"] == "ProxyStep")
    assert (state["state_name"], state["argument"], state["argument2"]) == ("ProxyStepSendWait", 64, None)
    # A stop says whose it is, though the plugin is not told.
    starts = {(line["pid"], line["id"]): line for line in lines if line["call"] == "start"}
    for line in lines:
        if line["call"] in ("stop", "state"):
            assert all(starts[line["pid"], line["id"]][name] == line[name] for name in ("comm", "rank", "type"))


def test_names_in_a_recording_stay_text(tmp_path: Path) -> None:
    ugly = '"}],\n=1+1<script>\\u0000\u2028'
    made = Writer(host=ugly[:20], program=ugly)
    comm = made.context(0, 1, name=ugly)
    one = made.thread(1, ugly)
    one.stop(one.start(9, 10, context=comm, function=ugly), 20)
    path = tmp_path / "ugly.rec"
    path.write_bytes(made.bytes())
    lines = [json.loads(line) for line in converted(path, "jsonl", tmp_path).read_text().split("\n")[:-1]]
    assert len(lines) == 2 and lines[0]["function"] == ugly and lines[0]["comm_name"] == ugly
    events = json.loads(converted(path, "chrome", tmp_path).read_text())["traceEvents"]
    assert any(ugly in event["name"] for event in events)
    rows = list(csv.DictReader(converted(path, "csv", tmp_path).open(newline="")))
    assert len(rows) == 1 and rows[0]["function"] == ugly
    converted(path, "perfetto", tmp_path)


def test_csv_gives_no_formulas(tmp_path: Path) -> None:
    made = Writer()
    one = made.thread(1, "@evil")
    one.stop(one.start(9, 10, function="=1+1"), 20)
    rows = list(csv.DictReader(converted(made.write(tmp_path), "csv", tmp_path).open(newline="")))
    assert (rows[0]["function"], rows[0]["thread"]) == ("'=1+1", "'@evil")


def test_csv_is_a_row_a_span(folder: Path, tmp_path: Path) -> None:
    with converted(folder, "csv", tmp_path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == SPANS * OPERATIONS * 3
    channels = [row for row in rows if row["type"] == "KernelCh"]
    assert {row["duration_ns"] for row in channels} == {"1850"}
    assert (channels[0]["gpu_ns"], channels[0]["gpu_stop_ns"]) == ("6000", "7900")


def offset_hosts(folder: Path, operations: int) -> None:
    """Two hosts whose clocks are half a second apart, and drift by 50 ppm."""
    for rank in range(2):
        wrong = rank * 500_000_000

        def at(time: int, rank: int = rank, wrong: int = wrong) -> int:
            return time + wrong + rank * time * 50 // 1_000_000

        ends = [(at(time), at(time), 10**18 + at(time), 50) for time in (0, 10**9)]
        made = Writer(
            pid=rank + 1, host=f"host{rank}", boot=bytes([65 + rank]) * 16, anchors=ends, segment_bytes=1 << 15
        )
        comm, one = made.context(rank, 2, communicator=9), made.thread(1)
        for number in range(operations):
            begin = 1_000_000 + number * 100_000 + (number * 7919 % 1000) * rank
            kind = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 4}
            api = one.start(9, at(begin), context=comm, **kind)
            launch = one.start(11, at(begin + 1000), context=comm)
            one.stop(launch, at(begin + 2000))
            coll = one.start(1, at(begin + 3000), context=comm, parent=api, sequence=number, **kind)
            one.stop(api, at(begin + 4000))
            one.stop(coll, at(1_000_000 + number * 100_000 + 20_000 + number % 7))
        made.write(folder)


@pytest.mark.parametrize("budget", [64 << 20, 200_000])
def test_clocks_of_several_hosts_are_aligned(tmp_path: Path, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the beginning and the end of the recording are looked at for it."""
    offset_hosts(tmp_path, 2000)
    monkeypatch.setattr("stretto.trace.convert._ALIGN_BY", budget)
    with converted(tmp_path, "csv", tmp_path).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["type"] == "Coll"]
    ends: dict[str, list[int]] = {}
    for row in rows:
        ends.setdefault(row["sequence"], []).append(int(row["stop_ns"]))
    assert len(ends) == 2000 and all(len(one) == 2 for one in ends.values())
    assert max(abs(one[0] - one[1]) for one in ends.values()) < 5000


# ---- Perfetto


def packets(path: Path) -> list[Any]:
    protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    found = []
    for packet in trace.packet:
        assert packet.HasField("compressed_packets")
        inner = protos.Trace()
        inner.ParseFromString(zlib.decompress(packet.compressed_packets))
        found += inner.packet
    return found


def test_varints() -> None:
    for value in [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**35, 2**63, 2**64 - 1]:
        data, found = varint(value), 0
        for place, byte in enumerate(data):
            found |= (byte & 127) << 7 * place
            assert bool(byte & 128) == (place < len(data) - 1)
        assert found == value
    assert varint(-1) == varint(2**64 - 1)


def test_perfetto_slices_nest_and_say_what_was_recorded(folder: Path, tmp_path: Path) -> None:
    found = packets(converted(folder, "perfetto", tmp_path))
    tracks = {one.track_descriptor.uuid: one.track_descriptor for one in found if one.HasField("track_descriptor")}
    names = {1: {}, 2: {}, 3: {}, 29: {}}
    fields = {
        1: "event_categories",
        2: "event_names",
        3: "debug_annotation_names",
        29: "debug_annotation_string_values",
    }
    for packet in found:
        for number, field in fields.items():
            for one in getattr(packet.interned_data, field):
                names[number][one.iid] = one.str.decode() if number == 29 else one.name
    events = [packet for packet in found if packet.HasField("track_event")]
    assert all(event.track_event.track_uuid in tracks for event in events)
    begins = [one for one in events if one.track_event.type == 1]
    assert len(begins) == SPANS * OPERATIONS * 3
    by_name = Counter(names[2][one.track_event.name_iid] for one in begins)
    assert by_name["Coll AllReduce"] == OPERATIONS * 3 and by_name["ProxyOp Receive"] == OPERATIONS * 3
    # Not of kernels: what the host saw of them is not at their time.
    assert Counter(one.track_event.type for one in events)[3] == 2 * OPERATIONS * 3
    # As the viewer sorts them, each end closes the slice that began last on its track.
    open_slices: dict[int, int] = Counter()
    for event in sorted(events, key=lambda one: one.timestamp):
        kind, track = event.track_event.type, event.track_event.track_uuid
        open_slices[track] += {1: 1, 2: -1, 3: 0}[kind]
        assert open_slices[track] >= 0
    assert not any(open_slices.values())
    # One collective: one correlation on all ranks, and on no other.
    correlations = Counter(one.track_event.correlation_id for one in begins if one.track_event.correlation_id)
    assert len(correlations) == OPERATIONS and set(correlations.values()) == {3}
    # A flow from each span to those that name it as their parent.
    flows = Counter(flow for one in begins for flow in one.track_event.flow_ids)
    assert max(flows.values()) == 1 + 3  # a Coll has three children
    coll = next(one for one in begins if names[2][one.track_event.name_iid] == "Coll AllReduce").track_event
    said = {}
    for one in coll.debug_annotations:
        text = names[29].get(one.string_value_iid, one.string_value)
        said[names[3][one.name_iid]] = text or one.int_value or one.pointer_value
    assert said["algorithm"] == "RING" and said["count"] == 16 and said["id"] >> 56 == 2
    path, uuid = [], coll.track_uuid
    while uuid:
        path.append(tracks[uuid].name)
        uuid = tracks[uuid].parent_uuid
    rank = int(said["communicator"].split(" rank ")[1].split()[0])
    assert path[0] == f"main {100 + rank}" and said["communicator"] == f"communicator world 0xc0ffee rank {rank} of 3"
    assert path[1].startswith(f"process {100 + rank} ") and path[2:] == [f"host host{rank // 2}"]
    rows = Counter((one.parent_uuid, one.name) for one in tracks.values())
    assert all(count == 1 for (_, name), count in rows.items() if name.startswith("main"))


def test_perfetto_has_the_time_of_the_world(folder: Path, tmp_path: Path) -> None:
    snapshot = next(
        one.clock_snapshot for one in packets(converted(folder, "perfetto", tmp_path)) if one.HasField("clock_snapshot")
    )
    times = {one.clock_id: one.timestamp for one in snapshot.clocks}
    assert times == {6: 10**9, 1: 10**18} and snapshot.primary_trace_clock == 6


# ---- Chrome


def test_chrome_bars_nest_and_arrows_have_both_ends(folder: Path, tmp_path: Path) -> None:
    events = json.loads(converted(folder, "chrome", tmp_path).read_text())["traceEvents"]
    kernels = [one for one in events if one["ph"] == "X"]
    assert len(kernels) == OPERATIONS * 3 and {one["cat"] for one in kernels} == {"KernelCh"}
    open_bars: dict[tuple[int, int], list[float]] = {(one["pid"], one["tid"]): [] for one in kernels}
    ended = 0
    for one in events:
        row = open_bars.setdefault((one["pid"], one["tid"]), []) if one["ph"] in "BE" else []
        if one["ph"] == "B":
            row.append(one["ts"])
        elif one["ph"] == "E":
            assert row.pop() <= one["ts"]
            ended += 1
    assert ended == (SPANS - 1) * OPERATIONS * 3 and not any(open_bars.values())
    names = [(one["pid"], one["args"]["name"]) for one in events if one.get("name") == "thread_name"]
    assert len(names) == len(open_bars) and sum(name.startswith("main") for _, name in names) == 3
    parents = [one for one in events if one.get("cat") == "parent"]
    starts, ends = ([one["id"] for one in parents if one["ph"] == phase] for phase in "sf")
    assert sorted(starts) == sorted(ends) and len(starts) == 7 * OPERATIONS * 3
    collectives: dict[str, list[str]] = {}
    for one in events:
        if one.get("cat") == "collective":
            collectives.setdefault(one["id"], []).append(one["ph"])
    assert len(collectives) == OPERATIONS and all(one == ["s", "t", "f"] for one in collectives.values())


# ---- OTF2


def test_otf2_is_read_back(folder: Path, tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2")
    path = converted(folder, "otf2", tmp_path)
    counts: Counter[str] = Counter()
    depth: Counter[str] = Counter()
    with otf2.reader.open(str(path / "traces.otf2")) as trace:
        for location, event in trace.events:
            kind = type(event).__name__
            counts[kind] += 1
            if kind in ("Enter", "Leave"):
                depth[location.name] += 1 if kind == "Enter" else -1
                assert depth[location.name] >= 0
            if kind == "MpiCollectiveEnd":
                assert event.collective_op == otf2.CollectiveOp.ALLREDUCE
                assert len(event.communicator.group.members) == 3
        groups = list(trace.definitions.location_groups)
        nodes = [one.name for one in trace.definitions.system_tree_nodes]
    spans = SPANS * OPERATIONS * 3
    assert counts["Enter"] == counts["Leave"] == spans
    assert counts["MpiCollectiveBegin"] == counts["MpiCollectiveEnd"] == OPERATIONS * 3
    assert len(groups) == 6 and sorted(nodes) == ["host0", "host1", "machine"]  # three processes, their accelerators


def test_otf2_print_counts_the_same(folder: Path, tmp_path: Path) -> None:
    """An independent reader: another version, from another place."""
    pytest.importorskip("otf2")
    tool = shutil.which("otf2-print")
    if tool is None:
        pytest.skip("otf2-print is not installed (package otf2-tools)")
    path = converted(folder, "otf2", tmp_path)
    said = subprocess.run([tool, str(path / "traces.otf2")], capture_output=True, text=True, timeout=60, check=True)
    counts = Counter(line.split()[0] for line in said.stdout.splitlines() if line and line[0].isupper())
    spans = SPANS * OPERATIONS * 3
    assert (counts["ENTER"], counts["LEAVE"]) == (spans, spans)
    assert counts["MPI_COLLECTIVE_END"] == OPERATIONS * 3


def test_otf2_of_overlaps_and_what_never_stopped(tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2")
    chance = random.Random(5)
    made = Writer()
    one = made.thread(1)
    moves = sorted((chance.randrange(10_000), number) for number in range(400))
    waiting: list[int] = []
    for at, _ in moves:
        if waiting and chance.random() < 0.45:
            one.stop(waiting.pop(chance.randrange(len(waiting))), at)
        else:
            waiting.append(one.start(3, at, is_send=1))
    made.write(tmp_path)
    total = made.ids
    archive = converted(tmp_path, "otf2", tmp_path)
    stacks: dict[str, list[str]] = {}
    entered = 0
    with otf2.reader.open(str(archive / "traces.otf2")) as trace:
        for location, event in trace.events:
            entered += type(event).__name__ == "Enter"
            stacks.setdefault(location.name, [])
            if type(event).__name__ == "Enter":
                stacks[location.name].append(event.region.name)
            else:
                stacks[location.name].pop()
    assert entered == total and not any(stacks.values()) and len(stacks) > 3


def test_otf2_counts_roots_among_those_that_are_there(tmp_path: Path) -> None:
    otf2 = pytest.importorskip("otf2")
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (1, 3):  # of four; 0 and 2 left no file
        made = Writer(pid=rank + 1)
        comm = made.context(rank, 4, communicator=5)
        thread = made.thread(1)
        for number, root in enumerate((3, 0)):
            at = 1000 * number + 10
            call = thread.start(1, at, context=comm, sequence=number, function="Broadcast", root=root)
            thread.stop(call, at + 500)
        made.write(folder)
    output = tmp_path / "x.otf2"
    convert([folder], "otf2", output)
    with otf2.reader.open(str(output / "traces.otf2")) as trace:
        roots = [event.root for _, event in trace.events if isinstance(event, otf2.events.MpiCollectiveEnd)]
    none = otf2.enums.CollectiveRoot.NONE.value
    assert sorted(roots) == sorted([1, 1, none, none])


def test_otf2_does_not_write_into_what_is_there(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("otf2")
    (tmp_path / "out.otf2").mkdir()
    (tmp_path / "out.otf2" / "mine").write_text("mine")
    with pytest.raises(StrettoError, match="there already"):
        converted(folder, "otf2", tmp_path)
    assert [one.name for one in tmp_path.rglob("*")] == ["out.otf2", "mine"]


def test_a_format_whose_package_is_missing_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "stretto.trace.to_otf2", raising=False)
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(StrettoError, match=r"package otf2: pip install 'stretto\[trace\]'"):
        converted(folder, "otf2", tmp_path)


# ---- the command, and its limits


def test_the_command(folder: Path, tmp_path: Path) -> None:
    done = stretto("trace", "convert", folder, "--to", "jsonl", "-o", "-")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 * (19 * OPERATIONS + 2)
    done = stretto("trace", "convert", folder, "--to", "csv", "-o", tmp_path / "x.csv")
    assert done.returncode == 0 and "480 rows" in done.stderr and str(tmp_path / "x.csv") in done.stderr
    assert stretto("trace", "convert", folder, "--to", "xml").returncode == 2
    done = stretto("trace", "convert", tmp_path / "none", "--to", "csv")
    assert done.returncode == 1 and "none" in done.stderr and "Traceback" not in done.stderr
    done = stretto("trace", "convert", folder, "--to", "csv", "-o", tmp_path / "no" / "such" / "x.csv")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    done = stretto("trace", "convert", folder, "--to", "csv", "-o", tmp_path)
    assert done.returncode == 2 and "is a folder" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["x.csv"]


def test_nothing_in_a_recording_drives_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    evil = "\x1b]0;title\x07\x1b[2J[/bold]"
    for rank in range(2):
        made = Writer(pid=7 + rank, host="host", program=evil, error=evil, state=0, dropped=1)
        comm = made.context(rank, 2, communicator=5, name=evil)
        thread = made.thread(1, evil)
        for number in range(3):
            call = thread.start(1, 1000 * number, context=comm, sequence=number, count=4, function=evil)
            thread.stop(call, 1000 * number + 500)
        made.host = evil
        (folder / f"{evil.replace('/', '')}.{rank}.1.rec").write_bytes(made.bytes())
    for words in (["info"], ["report"], ["view", "-o", tmp_path / "x.html"], ["convert", "--to", "csv"]):
        done = stretto("trace", words[0], folder, *words[1:])
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "Traceback" not in said, (words, said)
        assert not {"\x1b", "\x07"} & set(said), words
    (folder / f"{evil.replace('/', '')}.0.1.rec").write_bytes(b"nothing")
    (folder / f"{evil.replace('/', '')}.1.1.rec").write_bytes(b"nothing")
    done = stretto("trace", "info", folder)
    assert done.returncode == 1 and "not a recording" in done.stderr and "\x1b" not in done.stderr


def test_the_recording_itself_is_never_overwritten(tmp_path: Path) -> None:
    path = small().write(tmp_path)
    before = path.read_bytes()
    with pytest.raises(StrettoError, match="the recording itself"):
        convert([path], "csv", path)
    assert path.read_bytes() == before


def test_a_failed_conversion_leaves_no_half_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stretto.trace.to_csv.write", fail)
    with pytest.raises(OSError, match="No space"):
        convert([folder], "csv", tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


# Not ru_maxrss: that one counts what this process had before it ran Python.
MEASURE = """
import sys
import zlib
from pathlib import Path
from stretto.trace.convert import convert
def most():
    return next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
before = most()
made = convert([Path(sys.argv[1])], sys.argv[2], Path(sys.argv[3]))
print(made.rows, before, most())
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two million events, 96 MB, of four threads."""
    made = tmp_path_factory.mktemp("large")
    for rank in range(2):
        one = small(100 + rank, rank, operations=1000, segment_bytes=1 << 20)
        for thread in one.threads:
            once, ticks = thread.records, thread.ticks
            thread.records, thread.ticks = [], []
            for turn in range(53):
                shift = turn * 20_000_000
                for record, at in zip(once, ticks, strict=True):
                    thread.records.append(record[:8] + (at + shift).to_bytes(8, "little") + record[16:])
                    thread.ticks.append(at + shift)
        one.write(made)
    return made


@pytest.mark.timeout(400)
@pytest.mark.parametrize("to", ["jsonl", "csv"])
def test_two_million_events_in_bounded_memory(large: Path, tmp_path: Path, to: str) -> None:
    output = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(large), to, str(output)],
        capture_output=True,
        text=True,
        timeout=380,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    rows, before, after = (int(word) for word in done.stdout.split())
    assert rows == (2 * 53 * (19_000 + 2) if to == "jsonl" else 2 * 53 * 8000)
    assert after < 256 * 1024 and after - before < 160 * 1024, f"{after} KiB at most, {before} before"


def test_damaged_recordings_are_converted_or_refused(tmp_path: Path) -> None:
    """Noise in records whose lengths are right, so that it gets as far as it can."""
    chance = random.Random(11)
    sound = small(operations=5).bytes()
    path = tmp_path / "a.1.rec"
    for turn in range(25):
        data = bytearray(sound)
        for base in range(4096, len(data), 4096):
            at, end = base + 64, base + 64 + int.from_bytes(data[base + 8 : base + 16], "little")
            while at < end:
                length = int.from_bytes(data[at : at + 2], "little")
                if chance.random() < 0.3:
                    start = 4 if chance.random() < 0.5 else 16
                    data[at + start : at + length] = chance.randbytes(length - start)
                if chance.random() < 0.05:
                    data[at + 2] = chance.randrange(40)
                at += length
        path.write_bytes(data)
        for to in FORMATS:
            if to == "otf2" and turn >= 8:
                continue
            output = tmp_path / f"out{turn}.{to}"
            with contextlib.suppress(StrettoError):
                convert([path], to, output)
            if to == "jsonl" and output.exists():
                assert all(json.loads(line) for line in output.read_text().split("\n")[:-1])
            if to == "chrome" and output.exists():
                json.loads(output.read_text())
            if to == "perfetto" and output.exists():
                packets(output)


def test_memory_does_not_grow_with_what_never_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stretto.trace.spans.MOST_OPEN", 100)
    made = Writer(segment_bytes=1 << 16)
    one = made.thread(1)
    for number in range(3000):
        one.start(8, number)
    made.write(tmp_path)
    joiner = Joiner(open_job(tmp_path))
    found = 0
    for span in joiner.spans():
        found += 1
        assert span.stop is None and len(joiner._open) <= 100
    assert found == 3000


def test_communicators_whose_size_nobody_said(tmp_path: Path) -> None:
    """As with ABI v1 to v3."""
    made = Writer(abi=1)
    comm = made.context(1, -1, communicator=9)
    one = made.thread(1)
    one.stop(one.start(1, 10, context=comm, function="AllReduce"), 20)
    made.write(tmp_path)
    line = json.loads(converted(tmp_path, "jsonl", tmp_path).read_text().splitlines()[0])
    assert (line["rank"], line["nranks"]) == (1, None)
    events = json.loads(converted(tmp_path, "chrome", tmp_path).read_text())["traceEvents"]
    assert any("rank 1 of ?" in event.get("args", {}).get("communicator", "") for event in events)
    assert [event["ph"] for event in events if event.get("cat") == "collective"] == ["s"]

"""The report names who was late, and nobody whom the clocks cannot convict; damaged recordings are reported as such."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import STRETTO, stretto
from recording_writer import Writer
from stretto.trace import report as command
from stretto.trace.analysis import Report, UnknownCommunicator, analyse
from stretto.trace.columns import NONE
from stretto.trace.model import EventType, Recording
from stretto.trace.part import Part, cut
from stretto.trace.progress import Progress
from stretto.trace.reader import load
from stretto.trace.report_json import SCHEMA, document
from stretto.trace.report_markdown import escaped, write_markdown
from stretto.trace.report_text import _PROXIES, sections
from stretto.trace.transfers import STEP_STATES, bus_factor, type_bytes
from stretto.trace.verdict_text import said
from stretto.trace.words import amount, duration
from synthetic_job import Job, Made, keep, make


def named_rank(report: Report) -> Any:
    """The rank that each operation names; -1 none."""
    late = report.lateness
    return np.where(late.named, report.operations.rank[late.last], -1)


def share_named(made: Made, report: Report) -> float:
    """Of the operations that name who was made late. A report has them communicator by communicator."""
    turns = np.arange(made.job.operations)
    order = np.lexsort((turns, turns % made.job.communicators))
    return float((named_rank(report) == made.late[order]).mean())


def text(report: Report, top: int = 10) -> str:
    return "\n".join(
        line
        for section in sections(report, top)
        for line in (section.title, *section.sentences, *(" ".join(row) for row in section.rows))
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("style", "cause"),
    [("cpu", "upstream"), ("gpu", "upstream"), ("gpu", "launch"), ("gpu", "stream"), ("net", "upstream")],
)
def test_a_straggler_is_named_and_so_is_its_cause(style: str, cause: str, seed: int) -> None:
    """Clocks a second apart that drift by 50 ppm, a random rank 200 us late to each of 1000 operations."""
    made = make(Job(style=style, cause=cause, seed=seed, hosts=4, operations=1000, threads=seed == 3))
    report = analyse(made.recording)
    assert share_named(made, report) >= 0.99
    causes = {
        name: sum(item.causes.get(name, 0) for item in report.workers) for name in ("upstream", "launch", "stream")
    }
    assert causes[cause] >= 990
    assert sum(item.last for item in report.workers) >= 990
    assert report.workers[0].median_ns == pytest.approx(200_000, rel=0.5)
    # Each is late about as often as the others.
    assert "Nobody stands out: one rank came last to " in text(report) and "take turns at random" in text(report)


@pytest.mark.parametrize("style", ["cpu", "gpu", "net", "api"])
def test_jitter_below_the_error_of_the_clocks_is_nobodys_fault(style: str) -> None:
    made = make(Job(style=style, cause="none", hosts=4, operations=1000))
    report = analyse(made.recording)
    assert report.lateness.named.mean() < 0.01
    # Whether calls were late by more than the clocks can tell nobody knows where nothing links these.
    assert style != "api" or ("Nobody was late" not in text(report) and "Nothing links the clocks" in text(report))


def test_ranks_on_clocks_that_nothing_links_are_not_compared() -> None:
    made = make(Job(style="api", hosts=2, operations=300))
    report = analyse(made.recording)
    assert not report.lateness.named.any()
    assert "nothing links the clock of host1" in text(report)
    # Nobody knows by how much they were late: neither "nobody was late" nor "ranks did not start at the same time".
    assert report.verdict.unseen == 299 and report.verdict.shape == "unknown" and report.verdict.startup_ns == 0
    (answer,) = said(report)
    assert "calls alone do not say" in answer and "Nothing links the clocks of all ranks." in answer


def test_kernels_on_clocks_that_nothing_links_name_nobody() -> None:
    made = make(Job(style="gpu", hosts=2, operations=300))
    # Ends of a broadcast say nothing about the beginnings of others.
    made.recording.strings[1] = "Broadcast"
    report = analyse(made.recording)
    assert report.verdict.unseen == 0 and report.verdict.shape == "unknown"
    assert said(report) == ["Nothing links the clocks of all ranks of 299 operations: these name nobody."]


def test_on_one_host_calls_alone_name_the_straggler() -> None:
    made = make(Job(style="api", hosts=1, operations=300))
    report = analyse(made.recording)
    assert share_named(made, report) >= 0.99
    assert report.path.reason
    assert not np.isfinite(report.transfers.ns).any()


def test_wait_and_transfer_are_told_apart() -> None:
    made = make(Job(style="cpu", hosts=2, operations=500, jitter_ns=500, skew_ns=0))
    report = analyse(made.recording)
    late = report.lateness
    waits = late.wait.reshape(-1, 8)
    assert np.median(waits.max(axis=1)) == pytest.approx(200_000, rel=0.1)
    assert np.all(waits.min(axis=1) == 0)
    kind = report.kinds[0]
    assert kind.transfer_ns == pytest.approx(43_000, rel=0.15)
    assert kind.bytes == 1 << 20
    assert kind.algorithm_bandwidth == pytest.approx((1 << 20) / kind.transfer_ns, rel=0.02)
    assert kind.bus_bandwidth == pytest.approx(kind.algorithm_bandwidth * 1.75, rel=0.001)
    assert (kind.algorithm, kind.protocol) == ("RING", "SIMPLE")


def test_without_the_lateness_the_run_is_shorter_by_just_that() -> None:
    made = make(Job(ranks=4, hosts=1, operations=400, jitter_ns=0, skew_ns=0))
    spans = made.recording.spans
    assert len(spans["type"])
    report = analyse(made.recording)
    answers = {item.worker: item for item in report.path.what_if}
    for rank in range(4):
        lost = int((made.late == rank).sum()) * 200_000
        assert answers[rank].saved_ns == pytest.approx(lost, rel=0.02)
    assert answers[-1].saved_ns == pytest.approx(400 * 200_000, rel=0.02)
    path = report.path
    assert sum(path.gates.values()) == path.operations == 400
    assert path.transfer_ns + sum(path.own_ns.values()) == pytest.approx(path.duration_ns, rel=0.01)
    for rank, count in path.gates.items():
        assert count == int((made.late == rank).sum())


def test_a_proxy_that_stalls_is_named_by_rank_and_state() -> None:
    made = make(Job(style="net", cause="none", operations=1000, stalled=0.05))
    report = analyse(made.recording)
    stalled = np.flatnonzero(made.stalled >= 0)
    assert len(stalled) > 20
    moved = report.transfers
    assert np.array_equal(np.flatnonzero(moved.excess > 0), stalled)
    assert np.array_equal(report.operations.rank[moved.slow_row[stalled]], made.stalled[stalled])
    assert set(moved.slow_state[stalled].tolist()) == {9}
    assert {item.state for item in report.slow_proxies} == {"SendWait"}
    assert f"{len(stalled)} transfers took much longer" in text(report)
    assert "its network to send (SendWait)" in text(report)
    assert set(_PROXIES) == {name for name, _ in STEP_STATES.values()}


def test_several_communicators_are_reported_apart_and_together() -> None:
    made = make(Job(communicators=3, operations=900, hosts=2))
    report = analyse(made.recording)
    assert share_named(made, report) >= 0.99
    assert {item.communicator for item in report.stragglers} == {"dp0", "dp1", "dp2"}
    assert sum(item.last for item in report.workers) == sum(item.last for item in report.stragglers)
    assert len(report.operations.workers) == 8
    one = analyse(made.recording, "dp1")
    assert one.operations.count == 300
    assert {item.communicator for item in one.stragglers} == {"dp1"}
    by_id = analyse(made.recording, hex(0xABC1))
    assert by_id.operations.count == 300
    with pytest.raises(UnknownCommunicator, match="dp7"):
        analyse(made.recording, "dp7")


def test_a_split_communicator_has_workers_of_its_parent() -> None:
    """Ranks 4 to 7 of the world as ranks 0 to 3 of another communicator, as threads of one process a host."""
    made = make(Job(communicators=2, operations=600, hosts=2, threads=True))
    recording = made.recording
    keep(recording, ~((recording.spans["context"] >= 8) & (recording.spans["rank"] < 4)))
    for number in range(12, 16):
        recording.contexts[number].rank -= 4
        recording.contexts[number].ranks = 4
    # The other contexts of that communicator were never made.
    del recording.contexts[8:12]
    recording.spans["context"] = np.where(
        recording.spans["context"] >= 12, recording.spans["context"] - 4, recording.spans["context"]
    )
    report = analyse(recording)
    assert not report.progress.absent
    small = report.operations.communicator == 1
    rows = small[report.operations.operation]
    assert np.array_equal(report.operations.worker[rows], report.operations.rank[rows] + 4)
    assert report.operations.workers == [f"rank {rank}" for rank in range(8)]


def test_a_missing_rank_is_said_and_nobody_is_named_for_certain() -> None:
    made = make(Job(operations=400, hosts=2))
    gone = 5
    keep(made.recording, made.recording.spans["rank"] != gone)
    context = made.recording.contexts.pop(gone)
    assert context.rank == gone
    column = made.recording.spans["context"]
    made.recording.spans["context"] = np.where(column > gone, column - 1, column)
    report = analyse(made.recording)
    assert report.progress.absent == {"dp0": [gone]}
    assert not report.lateness.named.any() and not report.verdict.certain
    # The others are still compared: who came last of those that are here.
    late = report.lateness
    last = np.where(late.blamed, report.operations.rank[late.last], -1)
    assert (last == made.late)[made.late != gone].mean() >= 0.99
    assert {item.evidence for item in report.stragglers} == {"ranks missing"}
    assert report.verdict.missing == ["no recording of rank 5 of dp0"]
    answer = sections(report, 10)[0].sentences
    assert answer[1] == "No recording of rank 5 of dp0." and "A rank that is missing may have been later" in answer[2]
    assert "beyond doubt" not in text(report)
    assert report.path.reason and all(kind.bound for kind in report.kinds)


def test_a_killed_rank_is_what_the_others_wait_for() -> None:
    made = make(Job(ranks=4, hosts=1, operations=300))
    recording = made.recording
    spans = recording.spans
    last = int(spans["sequence"].max())
    ends = spans["stop"][(spans["rank"] == 2) & (spans["sequence"] == last - 1)].max()
    # Rank 2 dies after the last but one; the others enter the last and stay there.
    keep(recording, ~((spans["rank"] == 2) & (spans["start"] > ends)))
    spans = recording.spans
    stuck = spans["start"] > ends
    spans["stop"] = np.where(stuck, -1, spans["stop"])
    recording.processes[2].closed = False
    report = analyse(recording)
    standing = report.progress.behind[0]
    assert (standing.function, standing.sequence) == ("AllReduce", last)
    assert standing.last == {2: last - 1}
    assert sorted(standing.inside) == [0, 1, 3]
    assert report.progress.sentence == (
        f"rank 2 has not entered AllReduce #{last} of dp0; it did not close its recording: killed, ended by _exit, or "
        "still running; 3 ranks are inside and wait"
    )
    recording.processes[2].closed = True
    assert "close" not in analyse(recording).progress.sentence
    recording.processes[2].closed = False
    assert report.progress.unfinished == ["host0:102"]
    assert "Recording was not closed in order by host0:102" in text(report)


def test_of_a_part_nobody_is_said_to_be_behind() -> None:
    """Its end cuts through operations that some ranks have begun and others have not."""
    made = make(Job(ranks=4, hosts=1, operations=200))
    last = int(np.sort(made.recording.spans["start"][made.recording.spans["type"] == EventType.COLL])[401])
    part = cut(made.recording, Part(end=last))
    assert analyse(part).progress.behind
    report = analyse(part, whole=False)
    assert report.progress == Progress() and 90 < report.operations.count < 110


def test_two_jobs_in_one_folder_are_said(tmp_path: Path) -> None:
    """Together they last as long as the time between them, and nobody's lateness has a share in that."""
    for job in range(2):
        for rank in range(2):
            made = Writer(pid=10 * job + rank + 1)
            comm = made.context(rank, 2, communicator=7 + job)
            thread = made.thread(1)
            for number in range(5):
                begin = 10_000_000 * job + 1000 * number
                thread.stop(thread.start(1, begin, context=comm, sequence=number, function="AllReduce"), begin + 500)
            made.write(tmp_path)
    report = analyse(load(tmp_path, align=False))
    assert report.runs == 2 and "These are 2 runs" in sections(report, 3)[0].sentences[1]
    assert document(report, 1)["recording"]["runs"] == 2
    # Communicators that come and go in one job are one run.
    assert analyse(make(Job(ranks=4, operations=20, communicators=2)).recording).runs == 1


def test_contexts_without_end_take_no_time(tmp_path: Path) -> None:
    made = Writer(segment_bytes=1 << 20)
    thread = made.thread(1)
    for number in range(30_000):
        made.context(number % 8, 8, communicator=5)
    thread.stop(thread.start(1, 10, context=3, sequence=1, function="AllReduce"), 20)
    made.write(tmp_path)
    began = time.process_time()
    assert analyse(load(tmp_path, align=False)).operations.count == 1
    assert time.process_time() - began < 10


def test_ranks_that_call_different_things_are_said() -> None:
    made = make(Job(ranks=3, hosts=1, operations=40))
    spans = made.recording.spans
    wrong = (spans["rank"] == 1) & (spans["sequence"] == 30) & (spans["type"] == EventType.COLL)
    parent = spans["parent"][wrong]
    wrong |= np.isin(spans["id"], parent)
    spans["function"] = np.where(wrong, 2, spans["function"])
    report = analyse(made.recording)
    assert "call 30 differs (rank 0: AllReduce, rank 1: AllGather, rank 2: AllReduce)" in report.progress.sentence


def test_ranks_that_disagree_on_the_count_are_said() -> None:
    made = make(Job(ranks=3, hosts=1, operations=40))
    spans = made.recording.spans
    wrong = (spans["rank"] == 2) & (spans["sequence"] == 7) & (spans["type"] == EventType.COLL)
    spans["count"] = np.where(wrong, 5, spans["count"])
    report = analyse(made.recording)
    assert report.progress.mismatches[0].what.startswith("AllReduce #7 has different bytes")
    assert "rank 2: 20" in report.progress.mismatches[0].what


@pytest.mark.parametrize("style", ["cpu", "gpu"])
def test_lost_events_cost_answers_but_make_no_wrong_ones(style: str) -> None:
    made = make(Job(style=style, operations=1000, hosts=2))
    rng = np.random.default_rng(5)
    keep(made.recording, rng.random(len(made.recording.spans["type"])) > 0.03)
    for process in made.recording.processes:
        process.dropped = 10
    made.recording.quality.dropped = 80
    report = analyse(made.recording)
    named = named_rank(report)
    sure = named >= 0
    assert sure.mean() > 0.5
    # Operations by their sequence: some may be gone altogether.
    assert (named == made.late[report.operations.sequence])[sure].mean() >= 0.99
    # An operation that lacks a rank names nobody: that rank might have been the last.
    assert not sure[report.operations.sizes < 8].any()
    assert report.progress.incomplete > 0
    assert "80 dropped events" in text(report)


def test_calls_cannot_be_counted_where_some_are_lost() -> None:
    made = make(Job(style="api", operations=100, hosts=1))
    made.recording.processes[0].dropped = 3
    report = analyse(made.recording)
    assert "their calls without a sequence number are not joined" in text(report)
    assert 0 not in report.operations.rank


def test_stale_kernel_stamps_are_suspect_and_name_nobody() -> None:
    """A slot of the ring that was used again: its stamps are of a later operation."""
    made = make(Job(style="gpu", operations=600, hosts=1, cause="none", channels=1))
    spans = made.recording.spans
    kernels = np.flatnonzero((spans["type"] == EventType.KERNEL_CH) & (spans["rank"] == 3))
    for place in range(10, 500, 70):
        for name in ("gpu_start", "gpu_stop"):
            spans[name][kernels[place]] = spans[name][kernels[place + 3]] - 20_000
    report = analyse(made.recording)
    assert report.operations.suspects >= 7
    # Without their stamps these operations are compared by their launches, which differ by no more than jitter.
    assert report.lateness.lead[report.lateness.named].max(initial=0) < 30_000
    assert "suspect stamps" in text(report)


def test_repeated_sequences_do_not_mix_operations() -> None:
    """NCCL does not count operations that a CUDA graph captured: all have the number of the last that was counted."""
    made = make(Job(operations=200, hosts=1))
    spans = made.recording.spans
    spans["sequence"] = np.where(spans["sequence"] >= 0, np.minimum(spans["sequence"], 100), -1)
    report = analyse(made.recording)
    assert report.operations.count == 200
    assert share_named(made, report) >= 0.99


@pytest.mark.parametrize("style", ["cpu", "net"])
def test_an_empty_recording_is_reported(style: str) -> None:
    made = make(Job(style=style, operations=5))
    recording = made.recording
    keep(recording, np.zeros(len(recording.spans["type"]), np.bool_))
    recording.states = {name: column[:0] for name, column in recording.states.items()}
    report = analyse(recording)
    assert report.operations.count == 0
    assert "0 collective operations" in text(report)
    json.dumps(document(report, 0), allow_nan=False)
    bare = analyse(Recording([], [], [], [""], recording.spans, recording.states, 0))
    assert bare.clocks == []
    assert "0 processes" in text(bare)


def test_one_rank_alone_is_late_to_nothing() -> None:
    report = analyse(make(Job(ranks=1, hosts=1, operations=10)).recording)
    assert not report.lateness.named.any()
    assert report.operations.count == 10


def sends(recording: Recording, rank: int, peer: int, function: int, start: Any) -> dict[str, Any]:
    count = len(start)
    last = int(recording.spans["id"].max()) + 1 if len(recording.spans["id"]) else 1
    unsaid = {name: np.full(count, 0 if np.dtype(c.dtype).kind == "u" else -1) for name, c in recording.spans.items()}
    facts = {"type": EventType.P2P, "process": rank, "thread": rank, "context": rank, "rank": rank, "peer": peer}
    facts |= {"function": function, "data_type": 3, "count": 256}
    columns = {name: np.full(count, facts[name]) if name in facts else column for name, column in unsaid.items()}
    return columns | {"start": start, "stop": start + 100, "id": last + np.arange(count)}


def test_pairs_say_which_side_was_later() -> None:
    made = make(Job(ranks=2, hosts=1, operations=5, cause="none"))
    recording = made.recording
    moments = np.arange(50) * 100_000 + 50_000
    for extra in (sends(recording, 0, 1, 6, moments), sends(recording, 1, 0, 7, (moments + 30_000)[:48])):
        recording.spans = {
            name: np.concatenate((column, extra[name].astype(column.dtype))) for name, column in recording.spans.items()
        }
    report = analyse(recording)
    (pair,) = report.pairs
    assert (pair.source, pair.destination, pair.messages, pair.bytes) == (0, 1, 50, 50 * 1024)
    assert pair.sender_late_ns == -30_000
    assert pair.unmatched == 2
    assert "receiver by 30.0 µs" in text(report)


def test_the_overhead_of_the_recording_is_counted() -> None:
    made = make(Job(operations=100, hosts=1))
    report = analyse(made.recording)
    assert sum(item.callbacks for item in report.overhead) == 2 * len(made.recording.spans["type"])
    assert report.overhead[0].total_ns == pytest.approx(report.overhead[0].callbacks * 40.0)
    for process in made.recording.processes:
        process.self_ns = 0.0
    assert "no samples of their cost" in text(analyse(made.recording))


def test_json_has_what_it_says(tmp_path: Path) -> None:
    made = make(Job(style="net", operations=60, stalled=0.1))
    report = analyse(made.recording)
    made_document = json.loads(json.dumps(document(report, 3), allow_nan=False))
    assert made_document["schema"] == SCHEMA == "stretto.trace-report/1"
    assert len(made_document["operations"]) == 3
    first = made_document["operations"][0]
    assert first["named"]
    assert first["last_rank"] == made.late[first["sequence"]]
    assert len(first["wait_ns"]) == len(first["ranks"]) == 8
    assert first["wait_ns"][first["last_rank"]] == 0
    assert len(document(report, 0)["operations"]) == 60
    documented = (Path(__file__).parents[2] / "docs/trace-report.md").read_text(encoding="utf-8")
    for key in made_document:
        assert f"`{key}`" in documented, f"docs/trace-report.md does not say what {key} is"
    for key in first:
        assert f"`{key}`" in documented, f"docs/trace-report.md does not say what {key} of an operation is"


def test_markdown_makes_no_folders_above_its_own(tmp_path: Path) -> None:
    report = analyse(make(Job(ranks=4, operations=20)).recording)
    with pytest.raises(OSError, match="no"):
        write_markdown(report, tmp_path / "no" / "such.md", 3)
    assert list(tmp_path.iterdir()) == []


def test_markdown_has_plots_and_lets_no_name_in(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = make(Job(operations=80))
    made.recording.contexts[0].name = "<img src=x>|`*_[a](b)"
    path = tmp_path / "out.md"
    assert write_markdown(analyse(made.recording), path, 5) == []
    written = path.read_text(encoding="utf-8")
    assert "<img" not in written
    pictures = sorted(item.name for item in (tmp_path / "out-plots").iterdir())
    assert pictures == ["bandwidth.png", "lateness.png", "wait-transfer.png"]
    for name in pictures:
        assert f"(out-plots/{name})" in written
        assert (tmp_path / "out-plots" / name).read_bytes().startswith(b"\x89PNG")
    assert escaped("a\n# b") == "a # b"


def test_a_terminal_cannot_be_driven_by_names(capsys: pytest.CaptureFixture[str]) -> None:
    made = make(Job(ranks=2, hosts=1, operations=20))
    made.recording.contexts[0].name = "\x1b]0;x\x07[red]evil"
    made.recording.processes[0].host = "a\x1b[2Jb"
    command._show(analyse(made.recording), 5)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[red]" in printed


@pytest.mark.parametrize(
    ("name", "size"),
    [("ncclFloat32", 4), ("ncclBfloat16", 2), ("ncclInt8", 1), ("ncclUint64", 8), ("ncclFloat8e4m3", 1), ("x", 0)],
)
def test_type_sizes(name: str, size: int) -> None:
    assert type_bytes(name) == size


def test_units() -> None:
    assert [duration(value) for value in (5.0, 1500.0, 2.5e7, -3e9, float("nan"))] == [
        "5 ns",
        "1.50 µs",
        "25.0 ms",
        "-3.00 s",
        "?",
    ]
    assert [amount(value) for value in (-1, 12, 2048, 1 << 20, 3 << 29)] == ["?", "12 B", "2K", "1M", "1.5G"]
    assert bus_factor("AllReduce", 4) == 1.5
    assert bus_factor("ncclAllGather", 4) == 0.75
    assert bus_factor("Broadcast", 4) == 1.0
    assert NONE < -(10**18)


# Every rank writes down when it called, by the clock that the plugin stamps with.
SLEEPY = """
import json, pathlib, sys, time
import numpy, stretto
def job(world, steps=400):
    late = numpy.random.default_rng(seed=7).integers(0, world.size, steps)
    x, called = numpy.ones(1 << 12, "float32"), []
    for step in range(steps):
        if late[step] == world.rank:
            time.sleep(200e-6)
        called.append(time.monotonic_ns())
        world.all_reduce(x, "avg")
    pathlib.Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(called))
if sys.argv[2] == "threads":
    stretto.threads(3, job)
else:
    with stretto.init() as world:
        job(world)
"""


@pytest.mark.parametrize("how", ["processes", "threads"])
def test_a_real_job_is_reported_as_it_was(tmp_path: Path, how: str) -> None:
    script, folder = tmp_path / "job.py", tmp_path / "trace"
    script.write_text(SLEEPY, encoding="utf-8")
    words = [sys.executable, script] if how == "threads" else [*STRETTO, "run", "-n", 3, script]
    done = stretto("trace", "record", "-o", folder, "--", *words, tmp_path, how)
    assert done.returncode == 0, done.stderr
    report = analyse(load(folder, align=False))
    called = np.array([json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(3)])
    assert report.operations.count == 400
    assert report.alignment.synchronous.all()
    ordered = np.sort(called, axis=0)
    sure = ordered[-1] - ordered[-2] > 50_000
    assert sure.sum() > 100
    right = named_rank(report) == called.argmax(axis=0)[report.operations.sequence]
    assert right[sure[report.operations.sequence]].mean() >= 0.98
    assert report.path.reason == ""
    assert not report.progress.behind


def test_the_command_writes_what_it_is_asked_for(tmp_path: Path) -> None:
    script, folder = tmp_path / "job.py", tmp_path / "trace"
    script.write_text(SLEEPY, encoding="utf-8")
    done = stretto("trace", "record", "-o", folder, "--", *STRETTO, "run", "-n", 3, script, tmp_path, "processes")
    assert done.returncode == 0, done.stderr
    shown = stretto(
        "trace", "report", folder, "--markdown", tmp_path / "r.md", "--json", tmp_path / "r.json", "--top", 4
    )
    assert shown.returncode == 0, shown.stderr
    answer = sections(analyse(load(folder)), 4)[0].sentences  # whoever was late on this machine
    assert answer and all(" ".join(one.split()) in " ".join(shown.stdout.split()) for one in answer), shown.stdout
    assert "Without anybody's lateness the run is" in shown.stdout
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("# Trace report\n")
    written = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert len(written["operations"]) == 4
    only = stretto("trace", "report", folder, "--json", "-", "--communicator", written["communicators"][0]["name"])
    assert json.loads(only.stdout)["operations_total"] == 400
    wrong = stretto("trace", "report", folder, "--communicator", "nobody")
    assert wrong.returncode == 2
    assert "has no communicator nobody" in wrong.stderr
    missing = stretto("trace", "report", tmp_path / "elsewhere")
    assert missing.returncode == 1
    assert missing.stderr.startswith("stretto: ")

"""Recordings of every n-th operation: the same operations on all ranks, read as what they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jobs import STRETTO, stretto
from recording_writer import Writer
from stretto.trace.analysis import Report, analyse
from stretto.trace.model import EventType
from stretto.trace.reader import load
from stretto.trace.report_text import sections
from synthetic_job import Job, keep, make

# Every rank sleeps before the operations that are its own, and sends to the next one after each. It writes down when it
# called, by the clock that the plugin stamps with.
PROGRAM = """
import json, pathlib, sys, time
import numpy, stretto
called = []
with stretto.init() as world:
    x, y = numpy.ones(1 << 10, "float32"), numpy.ones(16, "float32")
    for step in range(int(sys.argv[1])):
        if step // 10 % world.size == world.rank:
            time.sleep(300e-6)
        called.append(time.monotonic_ns())
        world.all_reduce(x)
        if step % 3 == 0:
            world.broadcast(y, root=0)
        with stretto.group():
            world.send(x[:8], (world.rank + 1) % world.size)
            world.recv(y[:8], (world.rank - 1) % world.size)
    pathlib.Path(sys.argv[2], f"called{world.rank}.json").write_text(json.dumps(called))
"""


def text(report: Report) -> str:
    return "\n".join(sentence for section in sections(report, 10) for sentence in section.sentences)


def recorded(folder: Path, tmp_path: Path, *options: object, steps: int = 200) -> Report:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = ("trace", "record", "-o", folder, *options, "--", *STRETTO, "run", "-n", 3, script, steps, tmp_path)
    done = stretto(*command)
    assert done.returncode == 0, done.stderr
    return analyse(load(folder, align=False))


def told(report: Report) -> dict[int, list[tuple[str, int]]]:
    """Functions and numbers of the operations of each rank."""
    recording, found = report.recording, {}
    rows = np.flatnonzero(recording.spans["type"] == EventType.COLL)
    for rank in (0, 1, 2):
        mine = rows[recording.spans["rank"][rows] == rank]
        functions = [recording.strings[number] for number in recording.spans["function"][mine].tolist()]
        found[rank] = sorted(zip(functions, recording.spans["sequence"][mine].tolist(), strict=True))
    return found


def test_all_ranks_record_the_same_operations(tmp_path: Path) -> None:
    report = recorded(tmp_path / "trace", tmp_path, "--every", 16)
    of_rank = told(report)
    wanted = [("AllReduce", number) for number in range(0, 200, 16)] + [("Broadcast", n) for n in range(0, 67, 16)]
    assert of_rank == {0: wanted, 1: wanted, 2: wanted}
    # Nothing but what belongs to them, and all of it closed.
    kinds = np.bincount(report.recording.spans["type"], minlength=16)
    messages = 3 * 2 * len(range(0, 200, 16))
    assert kinds[EventType.COLL_API] == 3 * len(wanted) and kinds[EventType.P2P] == messages
    assert kinds[EventType.GROUP_API] == 3 * len(wanted) + messages // 2
    assert kinds[EventType.PROXY_OP] == messages and kinds[EventType.PROXY_CTRL] == 0
    assert report.recording.quality.unmatched_starts == report.recording.quality.unmatched_stops == 0
    # Read as what it is.
    assert report.operations.count == len(wanted) and (report.operations.sizes == 3).all()
    assert {item.every for item in report.recording.contexts} == {16}
    assert not report.progress.behind and not report.progress.mismatches and report.progress.incomplete == 0
    assert all(pair.unmatched == 0 and pair.messages == 13 for pair in report.pairs) and len(report.pairs) == 3
    assert report.alignment.synchronous.all() and report.path.reason
    assert text(report).count("very 16th operation of each function was recorded") == 2  # the answer, the quality
    # Who is late to the operations that are recorded is seen.
    reduces = np.array([report.recording.strings[number] == "AllReduce" for number in report.operations.function])
    called = np.array([json.loads((tmp_path / f"called{rank}.json").read_text(encoding="utf-8")) for rank in range(3)])
    called = called[:, report.operations.sequence[reduces]]
    ordered = np.sort(called, axis=0)
    sure = ordered[-1] - ordered[-2] > 50_000
    assert sure.sum() > 5
    late = report.lateness
    assert late.named[reduces].mean() > 0.5
    right = report.operations.rank[late.last][reduces] == called.argmax(axis=0)
    assert right[sure].mean() > 0.7


def test_the_command_says_that_it_is_a_sample(tmp_path: Path) -> None:
    recorded(tmp_path / "trace", tmp_path, "--every", 50)
    done = stretto("trace", "info", tmp_path / "trace")
    assert done.stdout.count("every 50th operation") == 3
    info = json.loads(stretto("trace", "info", tmp_path / "trace", "--json", "-").stdout)
    assert [one["contexts"][0]["every"] for one in info["processes"]] == [50, 50, 50]
    written = json.loads(stretto("trace", "report", tmp_path / "trace", "--json", "-").stdout)
    assert written["communicators"][0]["every"] == 50
    assert "every 50th operation of each function was recorded" in written["quality"]["notes"]
    assert "not every operation" in written["critical_path"]["reason"]


def test_of_all_nothing_says_sample(tmp_path: Path) -> None:
    report = recorded(tmp_path / "trace", tmp_path, "--every", 1, steps=20)
    assert {rank: len(rows) for rank, rows in told(report).items()} == {0: 27, 1: 27, 2: 27}
    assert {item.every for item in report.recording.contexts} == {1}
    assert "operation of each function" not in text(report) and report.path.reason == ""


def test_a_wrong_number_ends_the_job(tmp_path: Path) -> None:
    done = stretto("trace", "record", "-o", tmp_path / "trace", "--every", "0", "--", "true")
    assert done.returncode == 2 and "--every" in done.stderr
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    done = stretto("run", "-n", 1, script, 1, STRETTO_PROFILE_EVERY="some")
    assert done.returncode != 0 and "STRETTO_PROFILE_EVERY=some: not a whole number from 1" in done.stderr


def test_the_straggler_of_a_sample_is_named() -> None:
    made = make(Job(hosts=1, operations=1000))
    whole = made.recording
    kept = whole.spans["sequence"] % 10 == 0
    calls = np.flatnonzero(whole.spans["type"] != EventType.COLL)
    parents = set(whole.spans["parent"][kept & (whole.spans["type"] == EventType.COLL)].tolist())
    kept[calls] = [number in parents for number in whole.spans["id"][calls].tolist()]
    keep(whole, kept)
    for context in whole.contexts:
        context.every = 10
    report = analyse(whole)
    assert report.operations.count == 100
    named = np.where(report.lateness.named, report.operations.rank[report.lateness.last], -1)
    assert (named == made.late[report.operations.sequence]).mean() >= 0.99


@pytest.mark.parametrize("calls_only", [False, True])
def test_ranks_that_recorded_different_samples_are_joined_where_they_can_be(tmp_path: Path, calls_only: bool) -> None:
    for rank, every in enumerate((4, 6)):
        made = Writer(pid=10 + rank)
        context, thread = made.context(rank, 2), made.thread(1)
        made.sample(context, every)
        for number in range(0, 48, every):
            at = 1000 + number * 1000
            call = thread.start(9, at, context=context, count=number + 1, function="AllReduce", data_type="ncclInt8")
            if not calls_only:
                facts = {"count": number + 1, "function": "AllReduce", "data_type": "ncclInt8"}
                coll = thread.start(1, at + 10, context=context, parent=call, sequence=number, **facts)
                thread.stop(coll, at + 50)
            thread.stop(call, at + 60)
        (tmp_path / made.name()).write_bytes(made.bytes())
    report = analyse(load(tmp_path, align=False))
    assert report.operations.sequence.tolist() == [0, 12, 24, 36]
    assert (report.operations.sizes == 2).all()
    assert not report.progress.mismatches and not report.progress.behind
    assert "different samples (every 4th and every 6th): every 12th operation" in text(report)


def test_a_sample_that_cannot_be_is_damage(tmp_path: Path) -> None:
    made = Writer()
    context, thread = made.context(0, 1), made.thread(1)
    made.sample(context, 0)
    thread.stop(thread.start(9, 1000, context=context, function="AllReduce"), 2000)
    made.write(tmp_path)
    found = load(tmp_path, align=False)
    assert found.quality.damaged_segments == 1 and "that cannot be" in found.quality.notes[0]

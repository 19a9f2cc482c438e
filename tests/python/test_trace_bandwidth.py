"""The report's bandwidth is what the program itself measures, and that of queued operations leaves the queue out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from jobs import stretto
from recording_writer import Writer
from stretto.library import include_path, nccl_library_path
from stretto.trace.analysis import analyse
from stretto.trace.columns import NONE
from stretto.trace.reader import load
from stretto.trace.report_json import document
from stretto.trace.report_text import sections

SIZES = [*(1 << shift for shift in range(16, 25)), 1 << 26]
RUNS = 3  # at most


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("ranks", "function"),
    [
        ("threads", "AllReduce"),
        ("processes", "AllReduce"),
        ("processes", "AllGather"),
        ("processes", "ReduceScatter"),
        ("processes", "Broadcast"),
    ],
)
def test_the_program_measures_the_same_bandwidth(tmp_path: Path, ranks: str, function: str) -> None:
    """From when the last rank called to when the last was done, as the program's own clock has it. It runs again where
    a size is off: a busy machine may stop ranks between their own stamps and the library's, again and again. What the
    report gets wrong is wrong in all runs.
    """
    program = tmp_path / "measured_job"
    source, library = Path(__file__).with_name("measured_job.c"), nccl_library_path()
    words = ["cc", "-O2", "-pthread", f"-I{include_path()}", source, library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run([*words, "-o", program], check=True, timeout=60)
    off: list[dict[int, float]] = []
    while len(off) < RUNS and not (off and not off[-1]):
        ratios = compared(tmp_path / f"trace{len(off)}", [program, ranks, function, *SIZES], function)
        off.append({size: ratio for size, ratio in ratios.items() if abs(ratio - 1) > 0.1})
    assert not off[-1], off


def compared(folder: Path, job: list[object], function: str) -> dict[int, float]:
    """Of each size the report's bandwidth over the program's, by one run that is recorded."""
    done = stretto("trace", "record", "-o", folder, "--", *job, seconds=75, STRETTO_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    lines = np.array([line.split() for line in done.stdout.splitlines()], np.int64)
    # By size, rank and operation; each rank prints its own.
    stamps = lines[np.lexsort((lines[:, 2], lines[:, 1], lines[:, 0]))][:, 3:].reshape(len(SIZES), 2, -1, 2)
    report = analyse(load(folder, align=False))
    kinds = {kind.bytes: kind for kind in report.kinds if kind.function == function}
    ratios = {}
    for size, own in zip(SIZES, stamps, strict=True):
        begin, end = own.max(axis=0).T
        ratios[size] = kinds[size].algorithm_bandwidth / float(np.median(size / (end - begin)))
        assert kinds[size].count == 30 and not kinds[size].bound
    return ratios


QUEUED, TOOK = 50, 22_000_000


def queued(folder: Path, *, streams: tuple[int, ...] = (7,), proxies: bool = True) -> None:
    """Two ranks that call 50 all-reduces of 64 MB at once; each takes 22 ms, one after the other. Of as many
    communicators as streams are named, in turns.
    """
    for rank in range(2):
        made = Writer(pid=10 + rank, segment_bytes=1 << 16)
        contexts = [made.context(rank, 2, communicator=5 + number) for number in range(len(streams))]
        caller, proxy = made.thread(1), made.thread(2)
        facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 16 << 20}
        colls = []
        for number in range(QUEUED):
            at = 1_000_000 + number * 30_000 + rank * 5_000
            count, turn = divmod(number, len(streams))
            call = caller.start(9, at, context=contexts[turn], stream=streams[turn], **facts)
            caller.stop(call, at + 1000)
            coll = caller.start(1, at + 2000, context=contexts[turn], parent=call, sequence=count, **facts)
            caller.stop(coll, at + 3000)
            colls.append(coll)
        for number, coll in enumerate(colls if proxies else []):
            end, context = 1_007_000 + (number + 1) * TOOK, contexts[number % len(streams)]
            op = proxy.start(3, end - TOOK + 1000, context=context, parent=coll, is_send=1, steps=1)
            proxy.stop(op, end)
        made.write(folder)


def test_a_transfer_begins_when_the_operation_before_has_ended(tmp_path: Path) -> None:
    queued(tmp_path)
    report = analyse(load(tmp_path, align=False))
    (kind,) = report.kinds
    assert kind.transfer_ns == pytest.approx(TOOK, rel=0.01)
    assert kind.algorithm_bandwidth == pytest.approx((64 << 20) / TOOK, rel=0.01)
    assert kind.bound and document(report, 1)["kinds"][0]["bound"]
    # Both ranks were behind the same operation: that one called some microseconds later made nobody wait.
    assert report.lateness.lead[1:].max() == 0 and not report.verdict.findings
    (section,) = [item for item in sections(report, 3) if item.title == "Wait and transfer"]
    assert section.rows[0][6] == "≤ 22.0 ms" and section.rows[0][8] == "≥ 3.05"
    assert not any("unknown" in sentence for sentence in section.sentences)
    assert any("no earlier than" in sentence for sentence in section.sentences)


@pytest.mark.parametrize(("streams", "operations_long"), [((7, 7), 1), ((7, 8), 2)])
def test_a_transfer_waits_for_the_other_communicator_of_its_stream(
    tmp_path: Path, streams: tuple[int, ...], operations_long: int
) -> None:
    """On one stream it begins when the other's has ended; on two, nothing says that it did not begin with it."""
    queued(tmp_path, streams=streams)
    report = analyse(load(tmp_path, align=False))
    assert len(report.kinds) == 2
    for kind in report.kinds:
        assert kind.count == QUEUED // 2 and kind.bound
        assert kind.transfer_ns == pytest.approx(operations_long * TOOK, rel=0.01)


def test_where_no_end_is_recorded_there_is_no_bandwidth(tmp_path: Path) -> None:
    queued(tmp_path, proxies=False)
    report = analyse(load(tmp_path, align=False))
    assert np.isnan(report.kinds[0].transfer_ns) and np.isnan(report.kinds[0].bus_bandwidth)
    assert (report.timeline.finish == NONE).all() and not report.verdict.certain
    (section,) = [item for item in sections(report, 3) if item.title == "Wait and transfer"]
    assert section.rows[0][6:10] == ["?", "?", "?", "?"]
    assert any(sentence.startswith("? is unknown: the recording does not say when") for sentence in section.sentences)

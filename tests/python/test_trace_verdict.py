"""The verdict is true: of jobs whose truth is known, and of its own statistics."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from recording_writer import Writer
from stretto.trace.analysis import analyse
from stretto.trace.columns import NONE
from stretto.trace.reader import load
from stretto.trace.report_json import document
from stretto.trace.report_text import sections
from stretto.trace.verdict import independent, tail
from stretto.trace.verdict_text import said
from stretto.trace.words import duration
from verdict_jobs import KINDS, answer, draw, played, rank_of, waits, write

QUEUES = [(kind, number) for kind in ("proxies", "calls") for number in (*range(8), 10, 29, 38, 51, 54, 57)]
# Of the table of 2026-11-25: jobs in which nobody waited and the report named a rank.
HIDDEN = [("hidden", number) for number in (*range(6), 8, 10, 16)]
NAMED_WITHOUT_EVIDENCE = [("queued", number) for number in (29, 109, 119, 129, 139, 169, 189, 199)]


@pytest.mark.parametrize("number", range(2 * len(KINDS)))
def test_the_verdict_is_what_happened(number: int, tmp_path: Path) -> None:
    """Two jobs of each kind; `verdict_jobs.py --jobs 200` makes the table of docs/results."""
    found = answer(number, tmp_path)
    assert not found.innocent, found
    assert not found.wrong, found


@pytest.mark.parametrize(("kind", "number"), QUEUES + NAMED_WITHOUT_EVIDENCE + HIDDEN)
def test_calls_name_a_rank_only_where_they_show_that_others_waited(kind: str, number: int, tmp_path: Path) -> None:
    found = answer(number, tmp_path, kind)
    assert not found.innocent and not found.wrong, found


@pytest.mark.parametrize("style", ["net", "calls"])
@pytest.mark.parametrize("stepped", [True, False])
def test_calls_of_many_communicators_name_no_innocent_rank(style: str, stepped: bool, tmp_path: Path) -> None:
    """Who waits in one communicator calls late in another, and the ends of one are the beginnings of another."""
    said = []
    for number in range(1, 6):
        job = draw(number, "several")
        job.style, job.stepped, job.host_noise = style, stepped, [] if stepped else [3000] * job.ranks
        folder = tmp_path / str(number)
        folder.mkdir()
        write(job, folder)
        report = analyse(load(folder, align=False))
        found = {rank_of(report, item.worker_number) for item in report.verdict.findings}
        assert found <= job.guilty and report.verdict.shape in job.shapes | {"unknown"}, (number, found)
        said.append(report.verdict.shape)
    # Of calls alone what follows an operation may be a wait in another communicator, so too few can be judged.
    expected = {"steady", "random"} if style == "net" else {"steady"}
    assert expected <= set(said) if stepped else set(said) == {"unknown"}, said


def test_these_jobs_have_all_that_can_be_known_and_all_that_cannot() -> None:
    for kind in ("proxies", "calls"):
        jobs = [draw(number, one) for one, number in QUEUES if one == kind]
        assert {(job.known, bool(job.guilty)) for job in jobs} == {(one, two) for one in (0, 1) for two in (0, 1)}


@pytest.mark.parametrize("kind", ["one", "changing", "graphs", "queued", "proxies", "calls", "blocking"])
def test_the_truth_about_a_job_is_what_its_ranks_did(kind: str) -> None:
    """The guilty rank is the one that the others waited for; where nobody is, they waited for none much, or for all.
    What the scheduler takes from ranks is left out: in single jobs that can be more.
    """
    for number in range(40):
        job = draw(number, kind)
        job.hiccups = 0.0
        shares = waits(job, played(job, random.Random(job.seed)))
        innocent = [share for rank, share in enumerate(shares) if rank not in job.guilty]
        for rank in job.guilty:
            assert shares[rank] > max(0.01, 3 * max(innocent)), (number, shares)
        assert job.guilty or max(shares) < 0.01 or max(shares) < 6 * min(shares), (number, shares)


def test_nobody_waits_for_a_hidden_rank_more_than_for_others() -> None:
    """It is late to all operations, and costs nothing but where the scheduler takes it as any other."""
    for number in range(40):
        job = draw(number, "hidden")
        slow = max(range(job.ranks), key=lambda rank: sum(job.host_late(rank, one) > 0 for one in range(400)))
        shares = waits(job, played(job, random.Random(job.seed)))
        assert job.hiccups or shares[slow] < 0.01 < min(shares[:slow] + shares[slow + 1 :]), (number, shares)


@pytest.mark.parametrize(("ranks", "counted", "last"), [(2, 30, 29), (4, 100, 45), (8, 40, 20), (3, 500, 220)])
def test_the_bound_is_above_the_chance_and_not_far(ranks: int, counted: int, last: int) -> None:
    exact = binomial_tail(ranks, counted, last)
    assert exact <= tail(last, counted, ranks) <= 30 * exact


def binomial_tail(ranks: int, counted: int, last: int) -> float:
    weights = np.ones(1)
    for _ in range(counted):
        weights = np.convolve(weights, [1 - 1 / ranks, 1 / ranks])
    return float(weights[last:].sum())


def test_who_is_last_no_more_often_than_others_has_no_small_chance() -> None:
    assert tail(25, 100, 4) == tail(0, 100, 4) == tail(0, 0, 4) == 1.0


def test_operations_that_follow_each_other_count_less() -> None:
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 4, 400)
    assert 300 < independent(drawn) <= 400
    assert independent(np.repeat(drawn, 10)) == pytest.approx(4000 * 0.1 / 1.9, rel=0.2)
    assert independent(np.zeros(50, np.int64)) == 50


def test_processes_that_start_at_different_times_are_said_and_blame_nobody(tmp_path: Path) -> None:
    job = draw(0, "balanced")
    first = [events[0].arrive for events in played(job, random.Random(job.seed))]
    write(job, tmp_path)
    report = analyse(load(tmp_path, align=False))
    apart = max(first) - sorted(first)[-2]
    assert apart > 1_000_000 and report.verdict.startup == 1
    assert report.verdict.startup_ns == pytest.approx(apart, abs=10)
    assert not report.lateness.blamed[0] and report.lateness.excused.startup.sum() == 1
    assert (
        f"Ranks did not start at the same time: the first operation waited up to {duration(apart)} for the last one."
        " That is not counted below." in said(report)
    )


def test_a_recording_that_begins_later_has_no_start(tmp_path: Path) -> None:
    """The ranks had met before it: who is late to its first operation is late."""
    for rank in range(2):
        made = Writer(pid=100 + rank, segment_bytes=1 << 16)
        context, thread = made.context(rank, 2, communicator=5), made.thread(1)
        for number in range(40, 60):
            at = 1_000_000 * number + 300_000 * rank
            facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 8, "sequence": number}
            call = thread.start(1, at, context=context, **facts)
            thread.stop(call, 1_000_000 * number + 330_000)
        made.write(tmp_path)
    report = analyse(load(tmp_path, align=False))
    assert report.verdict.startup == 0 and report.lateness.blamed.all()
    assert not any("did not start at the same time" in sentence for sentence in said(report))


def test_of_calls_that_run_ahead_the_report_says_why_it_names_nobody(tmp_path: Path) -> None:
    write(draw(119, "queued"), tmp_path)
    report = analyse(load(tmp_path, align=False))
    assert report.verdict.unseen == report.operations.count - 1 and not report.lateness.named.any()
    whole = " ".join(said(report))
    assert "calls alone do not say whether anybody waited" in whole and "`--events timing`" in whole
    assert "doubt" not in whole and "the others waited" not in whole and "Nobody stands out" not in whole
    titles = [section.title for section in sections(report, 5) if section.rows]
    assert not {"Who came last", "The operations that waited longest for one rank"} & set(titles)
    assert np.isnan(report.kinds[0].wait_ns) and (report.lateness.wait[report.operations.sizes[0] :] == NONE).all()
    listed = document(report, 0)["operations"]
    assert {item["excuse"] for item in listed[1:]} == {"unseen"} and not any(item["named"] for item in listed)


def test_of_calls_that_others_waited_for_the_report_says_how_it_knows(tmp_path: Path) -> None:
    job = draw(29, "calls")
    write(job, tmp_path)
    report = analyse(load(tmp_path, align=False))
    (finding,) = report.verdict.findings
    assert finding.by_calls and not finding.certain and {finding.rank} == job.guilty
    whole = " ".join(said(report))
    assert f"Rank {finding.rank} was late, by when it called: it came last to" in whole and "doubt" not in whole
    assert "the others waited at most" in whole and "That the others waited shows in what followed" in whole
    (section,) = [item for item in sections(report, 5) if item.title == "Who came last"]
    assert section.rows[0][7].startswith("≤ ") and section.rows[0][9] == "calls only"


@pytest.mark.parametrize(("number", "known"), [(29, True), (0, False)])
def test_what_calls_alone_say_of_the_path_are_bounds(number: int, known: bool, tmp_path: Path) -> None:
    job = draw(number, "proxies")
    assert job.known == known
    write(job, tmp_path)
    report = analyse(load(tmp_path, align=False))
    assert report.verdict.by_calls == known and bool(report.verdict.findings) == (known and bool(job.guilty))
    (section,) = [item for item in sections(report, 50) if item.title == "Critical path"]
    whole = " ".join(said(report))
    assert sum(int(row[1].replace(",", "")) for row in section.rows) == sum(report.path.gates.values())
    if known:
        assert "the run is at most " in whole and all(row[3].startswith("≤ ") for row in section.rows if row[3])
        assert sum(report.path.gates.values()) >= report.path.operations - 1
        return
    assert "the run is" not in whole and not any(report.path.gates.values()) and not any(row[3] for row in section.rows)
    assert section.sentences[-1].endswith('do not count under "times last".')


def pipeline(folder: Path, *, waits: bool) -> None:
    """Ranks 0 and 1 reduce. Before that rank 1 receives from rank 2 for 300 us, which sends late; or works so long."""
    for rank in range(3):
        made = Writer(pid=100 + rank, segment_bytes=1 << 16)
        pair = made.context(rank, 2, communicator=5, name="pair") if rank < 2 else -1
        line = made.context(rank - 1, 2, communicator=6, name="line") if rank > 0 else -1
        thread = made.thread(1)
        for number in range(100):
            at = 1_000_000 * (number + 1)
            if rank > 0:
                begin = at if waits or rank == 2 else at + 280_000
                facts = {"function": "Recv" if rank == 1 else "Send", "data_type": "ncclFloat32", "count": 8}
                message = thread.start(2, begin, context=line, peer=2 - rank, **facts)
                thread.stop(message, at + 300_000)
            if rank < 2:
                facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 8, "sequence": number}
                call = thread.start(1, at + 310_000 * rank, context=pair, **facts)
                thread.stop(call, at + 330_000)
        made.write(folder)


@pytest.mark.parametrize("waits", [True, False])
def test_who_waited_for_a_message_is_not_to_blame(tmp_path: Path, waits: bool) -> None:
    pipeline(tmp_path, waits=waits)
    report = analyse(load(tmp_path, align=False))
    assert [item.worker for item in report.verdict.findings] == ([] if waits else ["rank 1"])
    assert report.verdict.held == (100 if waits else 0)


def test_one_communicator_is_judged_by_what_happened_in_all(tmp_path: Path) -> None:
    """Who was held up elsewhere is innocent also where only its communicator is asked for."""
    pipeline(tmp_path, waits=True)
    assert not analyse(load(tmp_path, align=False), "pair").verdict.findings

"""Clocks of hosts and GPUs are brought together, and the error bars that the alignment gives are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stretto.trace.align import UNKNOWN_ERROR, Alignment, align, clocks_of
from stretto.trace.analysis import analyse
from stretto.trace.clock_fit import IDENTITY, Evidence, Fit, fit, through
from stretto.trace.columns import NONE, latest_before, ordinals
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import Operations, join
from stretto.trace.report_json import document
from stretto.trace.report_text import sections
from stretto.trace.words import duration
from synthetic_job import Job, Made, keep, make


def aligned(made: Made) -> tuple[Operations, Alignment]:
    operations = join(made.recording)
    return operations, clocks_of(made.recording, operations)


def host_errors(made: Made, operations: Operations, alignment: Alignment) -> Any:
    """How far each row's call is from where it truly was."""
    host = made.host_of[operations.rank]
    true = (operations.called - made.host_offset[host]) / (1 + made.host_drift[host])
    wrong = np.abs(alignment.host_time(operations.process, operations.called) - true)
    return np.where(operations.called > NONE, wrong, 0)


def said(made: Made, operations: Operations, alignment: Alignment) -> Any:
    return alignment.host_error[alignment.host_of[operations.process]]


@pytest.mark.parametrize("style", ["cpu", "gpu", "net"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [40, 600])
def test_the_error_bar_covers_the_true_error(style: str, seed: int, count: int) -> None:
    made = make(Job(style=style, seed=seed, hosts=4, operations=count, threads=seed == 1))
    operations, alignment = aligned(made)
    wrong = host_errors(made, operations, alignment)
    assert np.all(wrong <= said(made, operations, alignment) + 2)
    assert np.all(wrong <= alignment.host_most[alignment.host_of[operations.process]] + 2)
    assert alignment.host_error.max() < 50_000
    assert wrong.max() < 10_000


def test_one_moment_is_mapped_as_many_are() -> None:
    maps = [
        IDENTITY,
        through(np.array([5]), np.array([9])),
        through(np.array([0, 1000, 5000, 10**12]), np.array([77, 1200, 4000, 10**12 + 10**7])),
    ]
    moments = np.array([-(10**6), 0, 1, 500, 1000, 1001, 4999, 10**9, 10**12, 2 * 10**12])
    for one in maps:
        assert [one.one(int(moment)) for moment in moments] == one(moments).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_gpu_clocks_are_within_their_error_bars(seed: int) -> None:
    made = make(Job(style="gpu", seed=seed, hosts=2, operations=800))
    operations, alignment = aligned(made)
    wrong = alignment.gpu_time(operations.context, operations.gpu_stop) - made.end.reshape(-1)
    assert np.abs(wrong).max() <= alignment.gpu_host_error.max()
    # Between GPUs they are known better, as their kernels end together.
    between = wrong.reshape(-1, 8) - wrong.reshape(-1, 8)[:, :1]
    assert np.abs(between).max() <= 2 * alignment.gpu_error.max()
    assert np.abs(between).max() < 3_000
    assert alignment.gpu_error.max() < 12_000


def test_what_a_gpu_clock_counts_by_is_in_its_error_bar() -> None:
    """A clock that shows multiples of 1024 ns, of a job without any jitter."""
    made = make(Job(style="gpu", ranks=4, hosts=1, operations=300, jitter_ns=0, skew_ns=0, channels=1, cause="none"))
    spans = made.recording.spans
    kernels = spans["type"] == EventType.KERNEL_CH
    for name in ("gpu_start", "gpu_stop"):
        spans[name] = np.where(kernels, spans[name] // 1024 * 1024, spans[name])
    operations, alignment = aligned(made)
    assert (alignment.gpu_error[1:] > 2048).all()
    wrong = alignment.gpu_time(operations.context, operations.gpu_stop) - made.end.reshape(-1)
    between = wrong.reshape(-1, 4) - wrong.reshape(-1, 4)[:, :1]
    assert np.abs(between).max() <= alignment.gpu_error[1:].max()
    assert not analyse(made.recording).lateness.named.any()


def test_drift_is_found() -> None:
    made = make(Job(hosts=4, operations=20_000, gap_ns=2_000_000))
    _, alignment = aligned(made)
    for host in range(1, 4):
        assert alignment.hosts[host].slope * 1e6 == pytest.approx(-made.host_drift[host] * 1e6, abs=0.1)


def test_a_rate_that_changes_is_followed() -> None:
    """A clock that warms up: its offset is a parabola, which no line fits within the error bar."""
    made = make(Job(ranks=2, hosts=2, operations=20_000, gap_ns=5_000_000, cause="none", drift_ppm=0))
    recording = made.recording
    moved = recording.spans["process"] == 1
    for name in ("start", "stop"):
        local = recording.spans[name]
        bend = np.rint(((local - made.host_offset[1]) / 1e9) ** 2 * 250).astype(np.int64)
        recording.spans[name] = np.where(moved, local + bend, local)
    operations, alignment = aligned(made)
    first = (operations.rank == 1) & (operations.sequence[operations.operation] % 100 == 50)
    true = made.end[operations.operation[first], 1]
    wrong = np.abs(alignment.host_time(operations.process[first], operations.host_end[first]) - true)
    assert wrong.max() <= alignment.host_error[1] + 2
    assert alignment.host_error[1] < 50_000
    assert made.end.max() / 1e9 > 100  # seconds: the rate changes by 50 ppm, and the line misses by 0.6 ms


def test_processes_of_one_boot_share_a_clock_whatever_their_stamps_say() -> None:
    made = make(Job(hosts=1, operations=100))
    _, alignment = aligned(made)
    assert set(alignment.host_of.tolist()) == {0}
    told = align(made.recording)
    assert {(item.offset_ns, item.error_ns) for item in told.processes} == {(0, 0)}
    assert np.array_equal(told.spans["start"], made.recording.spans["start"])


def test_calls_that_return_early_link_nothing() -> None:
    made = make(Job(style="api", hosts=3))
    told = align(made.recording)
    assert [item.error_ns for item in told.processes[:3]] == [0, 0, 0]
    assert {item.error_ns for item in told.processes if item.host != "host0"} == {UNKNOWN_ERROR}
    assert sum("nothing links" in note for note in told.quality.notes) == 2


def test_events_that_break_causality_are_not_believed() -> None:
    """Events that return before the last rank came are no ends of operations: nothing may be read off them."""
    made = make(Job(hosts=1, operations=200))
    spans = made.recording.spans
    short = np.isin(spans["type"], [EventType.COLL, EventType.COLL_API, EventType.GROUP_API])
    spans["stop"] = np.where(short, spans["start"] + 1_000, spans["stop"])
    _, alignment = aligned(made)
    assert not alignment.synchronous.any()


def chained() -> Made:
    """Hosts 0 and 1 share a communicator, and 1 and 2 another; 0 and 2 share none."""
    made = make(Job(ranks=3, hosts=3, operations=600, communicators=2, cause="none"))
    spans = made.recording.spans
    outside = ((spans["context"] < 3) & (spans["rank"] == 2)) | ((spans["context"] >= 3) & (spans["rank"] == 0))
    keep(made.recording, ~outside)
    return made


def test_hosts_are_linked_through_others() -> None:
    made = chained()
    operations, alignment = aligned(made)
    assert set(alignment.host_home.tolist()) == {0}
    assert alignment.host_error[2] > alignment.host_error[1] > 0
    assert np.inf > alignment.host_most[2] > alignment.host_most[1] > 0
    assert np.all(host_errors(made, operations, alignment) <= said(made, operations, alignment) + 2)


def test_hosts_that_nothing_links_say_so_and_keep_what_links_them() -> None:
    made = chained()
    keep(made.recording, made.recording.spans["context"] >= 3)
    told = align(made.recording)
    assert [item.error_ns for item in told.processes] == [0, UNKNOWN_ERROR, UNKNOWN_ERROR]
    _, alignment = aligned(made)
    assert alignment.host_home.tolist() == [0, 1, 1]


def test_outliers_and_missing_operations_do_not_spoil_it() -> None:
    made = make(Job(hosts=3, operations=1000))
    rng = np.random.default_rng(0)
    spans = made.recording.spans
    count = len(spans["type"])
    # One rank in a hundred is held up for a millisecond after an operation; a quarter of all spans is lost.
    held = rng.random(count) < 0.01
    spans["stop"] = np.where(held, spans["stop"] + 1_000_000, spans["stop"])
    keep(made.recording, rng.random(count) > 0.25)
    operations, alignment = aligned(made)
    wrong = host_errors(made, operations, alignment)
    assert np.all(wrong <= said(made, operations, alignment) + 2)
    assert wrong.max() < 20_000


def test_aligned_times_are_in_order_and_not_before_the_origin() -> None:
    made = make(Job(style="net", hosts=4, operations=50, seed=3))
    told = align(made.recording)
    start, stop = told.spans["start"], told.spans["stop"]
    assert start.min() >= 0
    assert np.all(np.diff(start) >= 0)
    assert np.all(np.diff(told.states["time"]) >= 0)
    assert np.all(stop >= start)
    assert told.origin_realtime_ns <= made.recording.origin_realtime_ns
    # Every state is still with its span.
    before, after = made.recording, told
    assert ids_of_states(before) == ids_of_states(after)
    inside = (told.states["time"] >= start[told.states["span"]]) & (told.states["time"] <= stop[told.states["span"]])
    assert inside.all()


def ids_of_states(recording: Recording) -> list[tuple[int, int]]:
    ids = recording.spans["id"][recording.states["span"]]
    return sorted(zip(ids.tolist(), recording.states["state"].tolist(), strict=True))


def test_aligning_twice_changes_little() -> None:
    made = make(Job(hosts=2, operations=300))
    once = align(made.recording)
    twice = align(once)
    for first, second in zip(once.processes, twice.processes, strict=True):
        assert abs(first.offset_ns - second.offset_ns) <= 2 * max(1, first.error_ns)


def test_a_tight_loop_is_synchronous_too() -> None:
    """Nobody is late and ranks do nothing but reduce: starts lie as close together as ends."""
    made = make(Job(hosts=1, operations=300, cause="none", gap_ns=1_000, jitter_ns=200, skew_ns=200))
    _, alignment = aligned(made)
    assert alignment.synchronous.all()


@pytest.mark.parametrize("style", ["gpu", "net", "api"])
@pytest.mark.parametrize("cause", ["upstream", "none"])
def test_events_of_gpus_are_not_taken_for_ends(style: str, cause: str) -> None:
    for gap in (300_000, 12_000):
        _, alignment = aligned(make(Job(style=style, hosts=2, cause=cause, gap_ns=gap)))
        assert not alignment.synchronous.any()


def two_hosts(first: Any, travel: int) -> tuple[Fit, Any]:
    """Two ranks on two clocks that show the same, the second host's 300 us behind the other where `first` says so, else
    300 us before. Who comes last is done after 20 us, the other when data have come from there. The fit, and how far it
    is off at each operation.
    """
    last = np.arange(1, len(first) + 1) * 1_000_000
    early, soon, late = last - 300_000, last + 20_000, last + 20_000 + travel
    my_start, their_start = np.where(first, early, last), np.where(first, last, early)
    my_end, their_end = np.where(first, late, soon), np.where(first, soon, late)
    found = fit(
        Evidence(
            before=(my_start, their_end),
            after=(my_end, their_start),
            same=(my_end, their_end),
            lasted=np.full(len(last), 20_000),
        )
    )
    assert found is not None
    return found, np.abs(found.map(last) - last).max()


def test_what_no_stamp_shows_is_in_the_bound_and_not_in_the_error() -> None:
    """Where the second host's rank is the last, ends differ by what data take to the first, 100 us. Always: its ends
    came 420 us after the first rank's starts by the map. In nine of ten: 220 us after starts of the first host's rank.
    Between two operations clocks may drift by 1.5 us.
    """
    for first, bound in ((np.ones(400, np.bool_), 420_000), (np.arange(400) % 10 > 0, 220_000)):
        found, wrong = two_hosts(first, 100_000)
        assert wrong == pytest.approx(100_000, abs=2) and found.error < wrong < found.most
        assert found.most == pytest.approx(bound, abs=2_000)


def test_a_bound_gets_looser_with_the_time_from_it() -> None:
    """Operations in the first second alone tell within 20 us; in the ninth the clock may have drifted by 1.2 ms."""
    at = np.append(np.arange(1, 401) * 2_500_000, 9_000_000_000)
    loose = np.where(np.arange(401) < 400, 20_000, 5_000_000)
    found = fit(Evidence(before=(at, at + loose), after=(at, at - loose), same=(at, at), lasted=np.full(401, 20_000)))
    assert found is not None
    assert found.most == pytest.approx(20_000 + 150e-6 * 8_000_000_000, rel=0.01)


def test_bounds_that_contradict_each_other_say_nothing() -> None:
    early, late = np.arange(1, 401) * 1_000_000, np.arange(1, 401) * 1_000_000 + 50_000
    found = fit(Evidence(before=(late, early), after=(early, late), same=(early, early), lasted=np.full(400, 20_000)))
    assert found is not None and found.most == np.inf and found.error < np.inf


def test_the_report_says_what_the_error_leaves_out() -> None:
    made = make(Job(hosts=2, operations=300))
    report = analyse(made.recording)
    (section,) = [one for one in sections(report, 5) if one.title == "Clocks"]
    assert any("the error leaves out" in sentence for sentence in section.sentences)
    assert section.headings[-2:] == ["error", "at most"]
    there = next(item for item in report.clocks if item.host == "host1")
    assert section.rows[1][-2:] == [f"± {duration(there.error_ns)}", f"± {duration(there.most_ns)}"]
    assert 0 < there.error_ns <= there.most_ns and document(report, 1)["clocks"][-1]["most_ns"] == there.most_ns
    (alone,) = [one for one in sections(analyse(make(Job(hosts=1)).recording), 5) if one.title == "Clocks"]
    assert alone.sentences == ["All processes share one clock."] and not alone.rows


@settings(max_examples=60, deadline=None)
@given(
    offset=st.integers(-(10**9), 10**9),
    drift=st.floats(-50e-6, 50e-6),
    count=st.integers(3, 200),
    noise=st.integers(0, 20_000),
    seed=st.integers(0, 2**31),
)
def test_a_fit_covers_the_truth(offset: int, drift: float, count: int, noise: int, seed: int) -> None:
    """Two ranks on two clocks: whatever the noise, the truth is within the error of the fit at every operation."""
    rng = np.random.default_rng(seed)
    last = np.cumsum(rng.integers(100_000, 500_000, count))
    end = last + rng.integers(5_000, 50_000, count)
    mine, theirs = (end + rng.integers(0, noise + 1, count) for _ in range(2))
    early = last - rng.integers(0, 100_000, count)
    first = rng.random(count) < 0.5

    def shown(moment: Any) -> Any:
        return moment + offset + np.rint(moment * drift).astype(np.int64)

    my_start, their_start = np.where(first, early, last), np.where(first, last, early)
    found = fit(
        Evidence(
            before=(shown(my_start), theirs),
            after=(shown(mine), their_start),
            same=(shown(mine), theirs),
            lasted=end - last,
        )
    )
    assert found is not None
    assert found.broken == 0
    wrong = np.abs(found.map(shown(end)) - end)
    assert wrong.max() <= found.error + noise
    assert wrong.max() <= found.most + noise


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=40), st.integers(0, 4), st.integers(-25, 25)
)
def test_latest_before(rows: list[tuple[int, int]], key: int, time: int) -> None:
    keys, times = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    spot = int(latest_before(keys, times, np.array([key]), np.array([time]))[0])
    own = [value for one, value in rows if one == key]
    earlier = [value for value in own if value <= time]
    if not own:
        assert spot == -1
    else:
        assert rows[spot] == (key, max(earlier) if earlier else min(own))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=40))
def test_ordinals(rows: list[tuple[int, int]]) -> None:
    keys, times = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    counted = ordinals(keys, times)
    for key in set(keys.tolist()):
        assert sorted(counted[keys == key].tolist()) == list(range(int((keys == key).sum())))


def test_an_empty_recording_is_aligned() -> None:
    nothing = make(Job(operations=1)).recording
    keep(nothing, np.zeros(len(nothing.spans["type"]), np.bool_))
    told = align(nothing)
    assert len(told.spans["type"]) == 0
    assert align(Recording([], [], [], [""], told.spans, told.states, 0)).processes == []
    assert NONE < 0

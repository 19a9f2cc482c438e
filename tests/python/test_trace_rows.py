"""Rows that a recording is drawn on: what nests is on one, in the order of calls, and what overlaps is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_writer import Writer
from stretto.trace.levels import Lane, Row
from stretto.trace.rows import nested, side_by_side
from test_trace_convert import converted, packets


def nests(spans: list[tuple[int, int]]) -> bool:
    ordered = sorted(spans, key=lambda one: (one[0], -one[1]))
    open_ends: list[int] = []
    for start, end in ordered:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and open_ends[-1] < end:
            return False
        open_ends.append(end)
    return True


def test_levels_nest_whatever_comes() -> None:
    chance = random.Random(3)
    for turn in range(60):
        reach = (20, 200, 5000)[turn % 3]
        starts = [chance.randrange(1000) for _ in range(300)]
        spans = sorted(((start, start + chance.randrange(reach)) for start in starts), key=lambda one: one[1])
        lane, levels = Lane(), {}
        for span in spans:
            levels.setdefault(lane.level(*span), []).append(span)
        assert all(nests(one) for one in levels.values()), turn


def test_what_nests_stays_on_one_level() -> None:
    lane = Lane()
    for number in range(10_000):
        at = 100 * number
        assert [lane.level(at + 20, at + 30), lane.level(at + 40, at + 50), lane.level(at + 10, at + 60)] == [0, 0, 0]


def test_rows_of_what_does_not_nest() -> None:
    row = Row(last=2)
    assert [row.level(*one) for one in ((0, 9), (5, 7), (10, 11), (8, 20), (1, 30), (12, 13))] == [0, 1, 0, 1, 2, 0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), lanes=st.integers(1, 3), reach=st.sampled_from([3, 30, 1000]))
def test_levels_of_many_nest_as_well(seed: int, lanes: int, reach: int) -> None:
    """Spans by places in the order of calls; and by times, where nothing that touches is on one level."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 80))
    at = rng.permutation(1000)[:count].astype(np.int64) * 2
    until = at + 1 + 2 * rng.integers(0, reach, count)
    lane = rng.integers(0, lanes, count)
    level = nested(lane, at, until)
    apart = side_by_side(lane, at // 100, until // 100)
    for one in range(lanes):
        for number in range(int(level.max(initial=0)) + 1):
            here = (lane == one) & (level == number)
            assert nests(list(zip(at[here].tolist(), until[here].tolist(), strict=True)))
        for number in range(int(apart.max(initial=0)) + 1):
            here = np.flatnonzero((lane == one) & (apart == number))
            here = here[np.argsort(at[here])]
            assert (at[here[1:]] // 100 > until[here[:-1]] // 100).all()


def test_many_calls_that_nest_are_on_one_level() -> None:
    outer = np.arange(1000) * 10
    at, until = np.concatenate((outer, outer + 2, outer + 4)), np.concatenate((outer + 9, outer + 3, outer + 7))
    assert not nested(np.zeros(3000, np.int64), at, until).any()


def equal_times(folder: Path) -> list[str]:
    """Calls that all begin and end at one time, as a run of callbacks does; in two communicators, by one thread."""
    made = Writer()
    comms = [made.context(0, 2, communicator=7), made.context(0, 2, communicator=8)]
    one, named = made.thread(1, "main"), []
    for number in range(20):
        comm, at, open_ = comms[number % 2], 1000 + 100 * (number // 2), []
        for kind, function in ((8, None), (9, "AllReduce"), (1, "AllReduce")):
            facts = {"function": function} if function else {}
            open_.append(one.start(kind, at, context=comm, **facts, **({"sequence": number} if kind == 1 else {})))
        named += ["GroupApi", "CollApi AllReduce", "Coll AllReduce"]
        for call in reversed(open_):
            one.stop(call, at)
    made.write(folder)
    return named


def test_calls_of_one_time_nest_in_their_order_on_one_row(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    named = equal_times(folder)
    events = json.loads(converted(folder, "chrome", tmp_path).read_text())["traceEvents"]
    assert len({one["tid"] for one in events if one["ph"] in "BE"}) == 1
    assert [one["name"] for one in events if one["ph"] == "B"] == named
    assert "".join(one["ph"] for one in events if one["ph"] in "BE") == "BBBEEE" * 20
    found = packets(converted(folder, "perfetto", tmp_path))
    order = sorted((one for one in found if one.HasField("track_event")), key=lambda one: one.timestamp)
    assert len({one.track_event.track_uuid for one in order}) == 1
    assert [one.track_event.type for one in order] == [1, 1, 1, 2, 2, 2] * 20
    otf2 = pytest.importorskip("otf2")
    with otf2.reader.open(str(converted(folder, "otf2", tmp_path) / "traces.otf2")) as trace:
        entered = [(location, event) for location, event in trace.events if isinstance(event, otf2.events.Enter)]
    assert [event.region.name for _, event in entered] == named
    assert {location.name for location, _ in entered} == {"main 1"}

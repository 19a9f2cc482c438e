"""Recordings of nonsense, of very many communicators and of very many spans."""

from __future__ import annotations

import json
import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stretto.trace.analysis import analyse
from stretto.trace.report_json import document
from synthetic_job import Job, make
from test_trace_report import share_named, text


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), style=st.sampled_from(["cpu", "gpu", "net", "api"]), share=st.floats(0, 1))
def test_no_recording_breaks_the_report(seed: int, style: str, share: float) -> None:
    """Columns full of nonsense within their types: the report may know nothing, but it comes."""
    rng = np.random.default_rng(seed)
    made = make(Job(ranks=3, hosts=2, operations=12, style=style, seed=seed % 1000))
    recording = made.recording
    count = len(recording.spans["type"])
    limits = {"process": len(recording.processes), "thread": len(recording.threads)}
    texts = ("function", "data_type", "algorithm", "protocol", "op", "kernel_variant")
    limits |= dict.fromkeys(texts, len(recording.strings))
    for name, column in recording.spans.items():
        hit = rng.random(count) < share * 0.3
        limit = limits.get(name)
        if limit is None and name == "context":
            junk = rng.integers(-1, len(recording.contexts), count)
        elif limit is None:
            bounds = np.iinfo(column.dtype)
            low, high = (max(bounds.min, -(1 << 60)), min(bounds.max, 1 << 60)) if name != "type" else (0, 20)
            junk = rng.integers(low, high, count)
        else:
            junk = rng.integers(0, limit, count)
        recording.spans[name] = np.where(hit, junk, column).astype(column.dtype)
    recording.spans["parent"] = np.where(
        rng.random(count) < share * 0.2, rng.choice(recording.spans["id"], count), recording.spans["parent"]
    )
    for context in recording.contexts:
        if rng.random() < share * 0.3:
            context.rank, context.ranks = (int(value) for value in rng.integers(-2, 1 << 31, 2))
            context.communicator = int(rng.integers(0, 3))
    order = np.argsort(recording.spans["start"], kind="stable")
    recording.spans = {name: column[order] for name, column in recording.spans.items()}
    report = analyse(recording)
    assert text(report)
    json.dumps(document(report, 0), allow_nan=False)


def test_ten_thousand_communicators_take_seconds() -> None:
    made = make(Job(ranks=4, hosts=2, operations=20_000, communicators=10_000))
    begin = time.perf_counter()
    report = analyse(made.recording)
    took = time.perf_counter() - begin
    assert len(report.operations.communicators) == 10_000
    assert share_named(made, report) >= 0.99
    assert took < 60  # about 5 s on an idle core


def test_a_million_spans_take_seconds() -> None:
    made = make(Job(style="net", operations=12_500, stalled=0.02))
    assert len(made.recording.spans["type"]) == 1_000_000
    begin = time.perf_counter()
    report = analyse(made.recording)
    took = time.perf_counter() - begin
    assert share_named(made, report) >= 0.99
    assert took < 60  # about 5 s on an idle core

"""Checks of what a call costs the thread that makes it: before anything moves, and whoever else is late."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.causes import Cause, chosen, in_between
from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, note, ok, warning
from stretto.audit.measurements import Platform
from stretto.audit.speed import SLACK, noise_of
from stretto.audit.words import microseconds, significant
from stretto.bench.measure import SUBJECT

# An eager operation of GPUs takes some times what its kernels take in a graph; nothing of ours takes this much more.
_EAGER = 10.0
# What it takes to wake a thread that sleeps, as who wakes it sees it; on virtual machines 2 to 6 us were seen.
_WAKE_NS = 6000.0
_EAGER_US = 20.0
_SLOW = Cause(
    "a library that does more than it should, or memory that it needs lies elsewhere: no file is preloaded, no plugin "
    "and no log is on, and the clock is fast",
    "`stretto doctor --nccl` says which library ran; report it with this audit's JSON",
)


def call_ns(platform: Platform, empty: float) -> float:
    """The model: into the library and back, two looks at the clock, and a lock and a counter for those who watch."""
    clock, lock = platform.best("clock_gettime(MONOTONIC)"), platform.best("std::mutex")
    return empty + 2 * clock + lock + platform.best("atomic add")


def stream_ns(platform: Platform, empty: float) -> float:
    """The model: a call, and a system call that wakes the thread which does the work, if it sleeps."""
    return call_ns(platform, empty) + _WAKE_NS


def _judged(context: Context, way: str, what: str, model: float, otherwise: Cause = _SLOW) -> Iterator[Finding]:
    costs, platform = context.measured.launch, context.measured.platform
    best, empty = min(costs[way]), min(costs["empty"])
    noise = noise_of(platform)
    text = f"{what} {significant(best)} ns at best; a call that only reads a number {significant(empty)} ns"
    if best > SLACK * noise * model:
        cause, next_step, certainty = chosen(list(in_between(context)), otherwise)
        yield warning(
            text,
            f"{significant(model)} ns by the model, and no more than {SLACK:g} times that (machine noise {noise:.1f})",
            certainty=certainty,
            cause=cause,
            next_step=next_step,
        )
    else:
        yield ok(text, f"{significant(model)} ns by the model")


@check("launch.call", "what a call costs the rank that makes it", Severity.WARNING)
def call(context: Context) -> Iterator[Finding]:
    """An all-reduce of 8 bytes in a communicator of one rank: nobody is waited for, and what is left is the way through
    the library. The model: a call that only reads a number, two looks at the clock, a lock and a counter, all measured
    in the same run."""
    model = call_ns(context.measured.platform, min(context.measured.launch["empty"]))
    yield from _judged(context, "call", "a call costs", model)


@check("launch.group", "what a call costs in a group", Severity.WARNING)
def group(context: Context) -> Iterator[Finding]:
    """ncclGroupStart, eight of these calls, ncclGroupEnd: programs with many small arrays submit them so. Beside a call
    for itself an operation is kept in a list meanwhile, which the model counts as another call."""
    model = 2 * call_ns(context.measured.platform, min(context.measured.launch["empty"]))
    yield from _judged(context, "group", "each of eight calls in a group costs", model)


@check("launch.stream", "what a call costs that does not wait", Severity.WARNING)
def stream(context: Context) -> Iterator[Finding]:
    """With a stream of the host the call returns at once, and a thread does the work. The model is a call and the
    system call that wakes that thread, if it sleeps."""
    model = stream_ns(context.measured.platform, min(context.measured.launch["empty"]))
    shared = Cause(f"{_SLOW.text}; or the thread that works takes its caller's core", _SLOW.next_step)
    yield from _judged(context, "stream", "a call on a stream costs", model, shared)


@check("launch.gpu", "the smallest all-reduce of GPUs, call by call and in a graph", Severity.NOTE)
def gpu(context: Context) -> Iterator[Finding]:
    """Call by call the host's launch is what takes the time; a graph is launched once for many operations."""
    if not context.facts.gpus:
        yield ok("no GPUs here")
        return
    eager = context.eager_on_gpus.rows[0]
    graph = next(
        row for row in context.on_gpus.rows if row["implementation"] == SUBJECT and row["bytes"] == eager["bytes"]
    )
    ratio = eager["us_min"] / graph["us_min"]
    text = (
        f"{eager['bytes']} bytes take {microseconds(eager['us_median'])} call by call and "
        f"{microseconds(graph['us_median'])} in a graph's replay, {ratio:.1f} times as long at best"
    )
    if ratio > _EAGER and eager["us_min"] > _EAGER_US:
        yield note(
            text,
            f"less than {_EAGER:g} times as long, or less than {_EAGER_US:g} µs",
            certainty="possible",
            cause="a host core that is slow or shared, a profiler that hears of each launch, or MPS",
            next_step="capture the operations in a graph; see machine.governor and machine.gpu-numa",
        )
    else:
        yield ok(text)

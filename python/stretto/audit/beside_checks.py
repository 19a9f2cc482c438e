"""Checks of what communicators cost on GPUs by this package's library and by that of --library: the part of the
sections initialisation, memory and launch that needs another library. Latency and bandwidth of the two are in
`gpus.beside`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from stretto.audit.beside import Costs
from stretto.audit.context import Context
from stretto.audit.finding import NOT_MEASURED, Finding, Severity, check, note, ok, warning
from stretto.audit.words import bytes_text, microseconds, significant
from stretto.bench.measure import SUBJECT

# How many times more than another NCCL in turns with it nothing but a fault makes this one take, where the difference
# is more than a machine's noise.
_BESIDE = 3.0
_NOISE_MS, _NOISE_BYTES, _NOISE_NS = 20.0, 64 << 20, 5000.0
# Drivers and allocators keep pools: what each communicator leaves must be more than theirs.
_LEFT_BYTES = 16 << 20
_LEFT_ENTRIES = 0.5
_UNSET = "unset NCCL_PROFILER_PLUGIN, NCCL_DEBUG and LD_PRELOAD, and compare"


def both(context: Context) -> tuple[Costs, Costs] | Finding:
    """Ours and theirs, or why there is nothing to compare."""
    if context.library is None:
        return ok("no other library is named: --library FILE")
    if not context.facts.gpus:
        return note(
            f"{NOT_MEASURED}no GPUs here, and ranks in host memory are Stretto's alone: "
            f"{context.library} is measured on a machine with GPUs"
        )
    ours, theirs = sorted(context.costs, key=lambda one: one.name != SUBJECT)
    if theirs.problem:
        return warning(
            f"without {theirs.name}: {theirs.problem.splitlines()[0]}",
            "a libnccl.so.2 that runs here, to compare with",
            subject=theirs.name,
            certainty="possible",
            cause="it does not fit this driver, or cannot run on these GPUs",
            next_step="NCCL_DEBUG=INFO shows why; --library FILE names another one",
        )
    return ours, theirs


def _judged(text: str, amounts: tuple[float, float], noise: float, cause: str) -> Finding:
    """Of ours and theirs. What is a difference of two readings may come out below nothing."""
    own, other = (max(0.0, amount) for amount in amounts)
    if own > _BESIDE * other and own - other > noise:
        return warning(
            f"{text}; {own / other:.1f} times the other's" if other > 0 else text,
            f"no more than {_BESIDE:g} times the other's",
            certainty="likely",
            cause=cause,
            next_step=_UNSET,
        )
    return ok(text)


def _phases_text(costs: Costs) -> str:
    phases = ", ".join(f"{name} {microseconds(1e3 * value)}" for name, value in costs.phases.items() if value >= 0.001)
    if not phases:
        return "it names no phases"
    return phases if "meeting" in costs.phases else f"where it writes them down: {phases}"


def _making_text(costs: Costs, ranks: int) -> str:
    best = costs.best(ranks)
    return (
        f"{costs.name} {costs.version} {microseconds(1e3 * best['init'])} at best ({_phases_text(costs)}), "
        f"the first operation {microseconds(1e3 * best['first'])}, from a process's start {costs.startup_seconds:.2g} s"
    )


@check("initialisation.beside", "how long this library and another take to make a communicator", Severity.WARNING)
def initialisation(context: Context) -> Iterator[Finding]:
    """With --library, in turns on the same GPUs: in all until the first operation has a result, as libraries leave part
    of the work to it; by phase as far as each library says; and by the number of ranks."""
    found = both(context)
    if isinstance(found, Finding):
        yield found
        return
    ours, theirs = found
    ranks = max(ours.makings)
    text = f"{ranks} rank{'s' * (ranks > 1)}: {_making_text(ours, ranks)}; {_making_text(theirs, ranks)}"
    grown = [
        f"{count}: {microseconds(1e3 * ours.best(count)['init'])} against "
        f"{microseconds(1e3 * theirs.best(count)['init'])}"
        for count in sorted(ours.makings)
        if count < ranks and count in theirs.makings
    ]
    text += f"; of fewer ranks, {', '.join(grown)}" if grown else ""
    first, second = ours.best(ranks), theirs.best(ranks)
    totals = first["init"] + first["first"], second["init"] + second["first"]
    cause = "sockets, name servers, kernels that the driver compiles, or a plugin that is loaded"
    yield _judged(text, totals, _NOISE_MS, cause)


def _held(costs: Costs) -> float:
    return costs.each["device_bytes"] + costs.each["host_bytes"]


def _holding_text(costs: Costs) -> str:
    each = costs.each
    return (
        f"{costs.name} {bytes_text(each['device_bytes'])} of a GPU and {bytes_text(each['host_bytes'])} of the host, "
        f"{each['descriptors']:.3g} descriptors, {each['threads']:.3g} threads"
    )


@check("memory.beside", "what an open communicator of this library and of another holds", Severity.WARNING)
def memory(context: Context) -> Iterator[Finding]:
    """With --library: of the GPU's memory as CUDA counts it, of a rank's resident memory, descriptors and threads, with
    one operation run; and what is left of it when the communicator is destroyed,
    by either."""
    found = both(context)
    if isinstance(found, Finding):
        yield found
        return
    ours, theirs = found
    held = _held(ours), _held(theirs)
    cause = "a plugin, or buffers that a variable has made larger (STRETTO_BLOCKS, NCCL_BUFFSIZE)"
    yield _judged(f"each holds, by {_holding_text(ours)}; by {_holding_text(theirs)}", held, _NOISE_BYTES, cause)
    for one in found:
        left = [
            bytes_text(one.left[name]) + f" of {where}"
            for name, where in (("device_bytes", "a GPU"), ("host_bytes", "the host"))
            if one.left[name] > _LEFT_BYTES
        ]
        left += [
            f"{one.left[name]:.3g} {name}" for name in ("descriptors", "threads") if one.left[name] > _LEFT_ENTRIES
        ]
        if left:
            yield (warning if one is ours else note)(
                f"each communicator of {one.name} that was destroyed leaves {' and '.join(left)} behind",
                "nothing",
                subject=one.name,
                certainty="likely",
                cause="a leak in that library or in a plugin that it loads, or memory that it keeps for the next one",
                next_step=f"{_UNSET}; --full opens more of them, and what is kept for the next one does not grow",
            )


def _call_text(costs: Costs) -> str:
    best = {way: min(values) for way, values in costs.calls.items()}
    usual = statistics.median(costs.calls["call"])
    return (
        f"{costs.name} {significant(best['call'])} ns at best, {significant(usual)} usually; of eight in a group "
        f"{significant(best['group'])} each; a call that only reads a number {significant(best['empty'])}"
    )


@check("launch.beside", "what a call costs its caller by this library and by another", Severity.WARNING)
def launch(context: Context) -> Iterator[Finding]:
    """With --library: an all-reduce of 8 bytes on a stream of the GPU, until the call returns. Nobody is waited for, so
    that it is the library and CUDA's launch alone."""
    found = both(context)
    if isinstance(found, Finding):
        yield found
        return
    ours, theirs = found
    cause = "a profiler plugin, a log, or a library in between that does more than it should"
    text = f"a call costs, by {_call_text(ours)}; by {_call_text(theirs)}"
    yield _judged(text, (min(ours.calls["call"]), min(theirs.calls["call"])), _NOISE_NS, cause)

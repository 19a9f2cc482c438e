"""Checks of what communicators take: time when they are made, memory while they live, and nothing afterwards."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.correctness import wrong_data
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.measurements import Platform
from stretto.audit.words import bytes_text, microseconds

_SLACK = 20.0


def init_us(platform: Platform, ranks: int) -> float:
    """The model: each rank starts a thread and meets the first one over a socket in six messages that wake their
    receivers.
    """
    return ranks * (platform.best("thread create and join") + 6 * platform.best("TCP loopback"))


@check("initialisation.time", "how long a communicator takes to make", Severity.WARNING)
def time(context: Context) -> Iterator[Finding]:
    """The model: for each rank a thread and six messages over loopback, measured in the same run. What takes much
    longer waits for something: a name server, a firewall, an old process. What seems slow is measured three times."""
    measured = context.measured
    model = init_us(measured.platform, context.ranks)
    most = _SLACK * min(5.0, measured.platform.noise) * model
    count, inits = {"quick": 5, "default": 15, "full": 50}[context.level.name], list[dict[str, float]]()
    for attempt in range(3):
        inits += measured.communicators(context.ranks, count + attempt)
        best = min(inits, key=lambda one: one["wall"])
        if 1e3 * best["wall"] <= most:
            break
    elsewhere = best["wall"] - best["bootstrap"] - best["connect"]
    phases = {"meeting": best["bootstrap"], "connecting": best["connect"], "elsewhere": elsewhere}
    text = (
        f"{microseconds(1e3 * best['wall'])} at best for {context.ranks} ranks "
        f"({', '.join(f'{name} {microseconds(1e3 * max(0, value))}' for name, value in phases.items())}); "
        f"median {microseconds(1e3 * statistics.median(one['wall'] for one in inits))}"
    )
    if 1e3 * best["wall"] > most:
        longest = max(phases, key=phases.__getitem__)
        yield warning(
            text,
            f"{microseconds(model)} by the model, and no more than {microseconds(most)}",
            certainty="likely",
            cause=f"the time goes into {longest}" + {
                "meeting": ": sockets, name servers, a firewall on loopback",
                "connecting": ": shared memory, passing descriptors",
                "elsewhere": ": plugins that are loaded, another library in between",
            }[longest],
            next_step="NCCL_DEBUG=INFO says what each rank does when",
        )  # fmt: skip
    else:
        yield ok(text, f"{microseconds(model)} by the model")


@check("initialisation.growth", "how that grows with ranks", Severity.NOTE)
def growth(context: Context) -> Iterator[Finding]:
    """Ranks meet in a star: time should grow with their number, and not with its square."""
    counts = [ranks for ranks in (1, 2, 4, 8, 16, 32, 64) if ranks < context.ranks] + [context.ranks]
    times = {}
    for ranks in counts:
        inits = context.measured.communicators(ranks, 5)
        times[ranks] = 1e3 * min(one["wall"] for one in inits)
    text = ", ".join(f"{ranks}: {microseconds(took)}" for ranks, took in times.items())
    first, most = (2 if 2 in times else min(times)), max(times)
    if times[most] > 4 * (most / first) * times[first]:
        yield note(
            f"by ranks, at best: {text}",
            f"at most in proportion to ranks from {first} on, within four times",
            certainty="possible",
            cause="more ranks than cores, or a first rank that is slow to answer",
            next_step="audit again when the machine is idle",
        )
    else:
        yield ok(f"by ranks, at best: {text}")


@check("memory.communicator", "what an open communicator takes", Severity.WARNING)
def communicator(context: Context) -> Iterator[Finding]:
    """Memory that it uses beside its window, which it says the size of; descriptors and threads."""
    count = {"quick": 4, "default": 8, "full": 32}[context.level.name]
    reply = context.measured.ask(f"opening {count} communicators at once", f"open count={count}")[0]
    yield from wrong_data(reply["failures"], "of many open communicators")
    each, window = reply["each"], reply["window_bytes"]
    # A rank maps its window and its peers'.
    mapped = window * context.ranks
    text = (
        f"{bytes_text(each['bytes'])} of memory in a rank's process, {each['descriptors']:.3g} descriptors, "
        f"{each['threads']:.3g} threads, {each['mappings']:.3g} mappings each; a window of {bytes_text(window)}"
    )
    if each["bytes"] > 4 * mapped + (1 << 20):
        yield warning(
            text,
            f"no more than four times the {bytes_text(mapped)} of the ranks' windows",
            certainty="likely",
            cause="a library or a plugin that keeps memory of its own for each communicator",
            next_step="unset NCCL_PROFILER_PLUGIN and the like, and compare",
        )
    else:
        yield ok(text, f"the windows of {context.ranks} ranks: {bytes_text(mapped)}")


@check("memory.leaks", "what is left after many communicators", Severity.ERROR)
def leaks(context: Context) -> Iterator[Finding]:
    """A server that makes a communicator for each request ends by what one of them leaves behind. Counted by the
    kernel: descriptors, threads, mappings and resident memory after some of them and after all."""
    count = context.level.communicators
    command = f"cycles count={count} for={2 * context.level.share}"
    found, whole = False, {"communicators": 0}
    for rank, reply in enumerate(context.measured.ask(f"making and freeing {count} communicators", command, 60)):
        half, whole = reply["marks"][len(reply["marks"]) // 2 - 1], reply["marks"][-1]
        made = whole["communicators"] - half["communicators"]
        left = {name: (whole[name] - half[name]) / made for name in ("descriptors", "threads", "mappings", "bytes")}
        grown = [name for name in ("descriptors", "threads", "mappings") if left[name] > 0.5]
        # The interpreter's own memory comes and goes in arenas of up to a megabyte.
        if left["bytes"] > (128 << 10) and whole["bytes"] - half["bytes"] > (2 << 20):
            grown.append("bytes")
        if grown:
            found = True
            listed = [bytes_text(left[name]) if name == "bytes" else f"{left[name]:.3g} {name}" for name in grown]
            yield error(
                f"each communicator leaves {' and '.join(listed)} behind on rank {rank}",
                f"nothing, over {made} communicators",
                subject=f"rank {rank}",
                certainty="possible",
                cause="a leak in the library, in a plugin that it loads, or in what is preloaded",
                next_step="unset LD_PRELOAD and NCCL_PROFILER_PLUGIN and compare; report it with this audit's JSON",
            )
    if not found:
        yield ok(f"{whole['communicators']} communicators made, used and freed: nothing is left")

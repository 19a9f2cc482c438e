"""Why operations are slow here: of the causes that there may be, those that this audit has itself seen on the machine,
in its environment or among its measurements. Where it has seen none, those that are left are named as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stretto.audit.context import Context
from stretto.audit.finding import Certainty
from stretto.audit.libraries import preloaded
from stretto.audit.measurements import Unmeasured
from stretto.audit.words import significant

_FORCING = ("STRETTO_ALGO", "STRETTO_PROTO", "STRETTO_TABLE")
_SETTING = ("STRETTO_SPIN", "STRETTO_SLOT_BYTES", "STRETTO_LINK")
_LOUD = ("INFO", "TRACE")
# A clock that is read by a system call takes hundreds of nanoseconds, one that programs read by themselves tens.
_SLOW_CLOCK_NS = 100.0


@dataclass(frozen=True)
class Cause:
    """`next_step`: how to see whether it is this one, or what to do."""

    text: str
    next_step: str


def _own(name: str) -> bool:
    """This package's libnccl.so.2, which is preloaded where programs are to get it: nothing is in between then."""
    import stretto

    return Path(name).resolve() == stretto.nccl_library_path().resolve()


def in_between(context: Context) -> Iterator[Cause]:
    """What has a part in each call."""
    files = [name for name in preloaded(context.environment) if not _own(name)]
    if files:
        yield Cause(
            f"a library in between that does more than it should: LD_PRELOAD names {', '.join(files)}",
            "unset LD_PRELOAD, and compare",
        )
    plugin = context.environment.get("NCCL_PROFILER_PLUGIN", "none")
    if plugin != "none":
        yield Cause(f"a profiler plugin, {plugin}", "unset NCCL_PROFILER_PLUGIN, and compare")
    level = context.environment.get("NCCL_DEBUG", "").upper()
    if level in _LOUD:
        yield Cause(f"a log: NCCL_DEBUG={level}", "unset NCCL_DEBUG, and compare")
    try:
        clock = context.measured.platform.best("clock_gettime(MONOTONIC)")
    except Unmeasured:
        return
    if clock > _SLOW_CLOCK_NS:
        yield Cause(
            f"a slow clock: to look at it takes {significant(clock)} ns", "see machine.clocksource and platform.clock"
        )


def of_waits(context: Context) -> Iterator[Cause]:
    """What makes ranks wait for each other."""
    facts = context.facts
    cores = len(facts.cores_allowed)
    if context.ranks > cores:
        yield Cause(f"{context.ranks} ranks wait for {cores} cores", "see machine.cores; use as many ranks as cores")
    if facts.cgroup_cores is not None and facts.cgroup_cores < min(context.ranks, cores):
        yield Cause(
            f"the cgroup may use {facts.cgroup_cores:g} cores' time, and stops ranks beyond it", "see machine.cpu-quota"
        )
    if facts.steal > 0.05:
        yield Cause(f"the hypervisor takes {facts.steal:.0%} of the cores' time", "see machine.steal")
    if "powersave" in facts.governors and not facts.frequency_drivers:
        yield Cause("cores that are kept slow: governor powersave", "see machine.governor")
    for names, what in ((_FORCING, "the planner's choice is overruled"), (_SETTING, "how ranks wait and copy is set")):
        given = [f"{name}={context.environment[name]}" for name in names if context.environment.get(name)]
        if given:
            yield Cause(
                f"{what}: {', '.join(given)}",
                f"unset {' and '.join(one.partition('=')[0] for one in given)}, and compare",
            )


def of_memory(context: Context) -> Iterator[Cause]:
    """What makes copies slow."""
    nodes = [node for node, cores in context.facts.nodes if cores]
    apart = [node for node in nodes if context.facts.memory_nodes and node not in context.facts.memory_nodes]
    if apart:
        yield Cause(f"the memory of ranks on node {apart[0]} lies on another node", "see machine.numa")
    elif len(nodes) > 1:
        yield Cause(f"ranks on {len(nodes)} NUMA nodes, which share memory over the sockets' link", "see machine.numa")


def chosen(seen: list[Cause], otherwise: Cause) -> tuple[str, str, Certainty]:
    """The cause in words, the next step, and how sure the cause is."""
    if not seen:
        return otherwise.text, otherwise.next_step, "possible"
    steps = dict.fromkeys(one.next_step for one in seen)
    certainty: Certainty = "likely" if len(seen) == 1 else "possible"
    return "; or ".join(one.text for one in seen), "; ".join(steps), certainty

"""Checks under stress: everything is verified, so that what breaks under load is told from what is only slow."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.correctness import judged
from stretto.audit.finding import Finding, Severity, check

_WHOLE_SECONDS = 30.0


@check("stress.random", "random operations of random sizes, verified", Severity.ERROR)
def random(context: Context) -> Iterator[Finding]:
    """Orders and sizes that no benchmark has: small after large, collectives between sends. With --full they go on for
    30 s; else for a part of that, which the finding says."""
    whole = context.level.name == "full"
    seconds = _WHOLE_SECONDS if whole else min(_WHOLE_SECONDS, context.measured.share)
    checked, failures = context.measured.checked("random operations", "storm seed=1", seconds)
    cut = "" if whole else f" of the {_WHOLE_SECONDS:g} s that --full gives them"
    yield from judged(checked, failures, f"random operations for {seconds:g} s{cut}")


@check("stress.sizes", "all sizes at once", Severity.ERROR)
def sizes(context: Context) -> Iterator[Finding]:
    """Each collective of every size from 8 B to 1 MB, submitted together as one group: small ones between large ones,
    by all mechanisms side by side."""
    yield from judged(*context.measured.checked("all sizes at once", "sizes"), "groups of all sizes")


@check("stress.communicators", "many communicators in use at once", Severity.ERROR)
def communicators(context: Context) -> Iterator[Finding]:
    """Programs have one for each way in which they cut a model. Each has operations under way on a stream of its own,
    all at once."""
    count = {"quick": 4, "default": 16, "full": 64}[context.level.name]
    doing = f"{count} communicators at once"
    yield from judged(*context.measured.checked(doing, f"crowd count={count}"), doing)


@check("stress.oversubscribed", "more ranks than cores", Severity.ERROR)
def oversubscribed(context: Context) -> Iterator[Finding]:
    """Ranks that spin while the one that they wait for has no core: it must end, and be right."""
    ranks = min(16, 2 * len(context.facts.cores_allowed) + 1)
    checked, failures = context.measured.checked(f"{ranks} rank threads", f"oversubscribed ranks={ranks}")
    where = f"random operations of {ranks} threads on {len(context.facts.cores_allowed)} cores"
    yield from judged(checked, failures, where)

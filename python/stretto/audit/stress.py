"""Checks under stress: everything is verified, so that what breaks under load is told from what is only slow."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.correctness import wrong_data
from stretto.audit.finding import Finding, Severity, check, ok


@check("stress.random", "random operations of random sizes, verified", Severity.ERROR)
def random(context: Context) -> Iterator[Finding]:
    """Orders and sizes that no benchmark has: small after large, collectives between sends."""
    checked, failures = context.measured.checked("random operations", "storm seed=1")
    yield from wrong_data(failures, "random operations")
    if not failures:
        yield ok(f"{checked} of random operations, all whole")


@check("stress.oversubscribed", "more ranks than cores", Severity.ERROR)
def oversubscribed(context: Context) -> Iterator[Finding]:
    """Ranks that spin while the one that they wait for has no core: it must end, and be right."""
    ranks = min(16, 2 * len(context.facts.cores_allowed) + 1)
    checked, failures = context.measured.checked(f"{ranks} rank threads", f"oversubscribed ranks={ranks}")
    yield from wrong_data(failures, f"random operations of {ranks} threads")
    if not failures:
        yield ok(f"{ranks} rank threads on {len(context.facts.cores_allowed)} cores: {checked}, all whole")

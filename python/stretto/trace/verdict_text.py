"""The verdict of a report in sentences: what the recording lacks, then who stands out, then what that cost."""

from __future__ import annotations

import numpy as np

from stretto.trace.analysis import Report, Straggler
from stretto.trace.meeting import LEVEL
from stretto.trace.verdict import PHASES, Finding, Verdict
from stretto.trace.words import duration, plural, share

_CAUSES = {
    "upstream": "called late",
    "launch": "launched late",
    "stream": "its GPU was busy",
    "unclear": "cause unclear",
}
_TEST = f"binomial test, level {share(LEVEL)}"
_BY_CALLS = (
    "When each rank began is not recorded, only when it called. That the others waited shows in what followed: it came"
    " later by as much as the last call did. Record with `--events timing` to know for certain."
)
_MOST_FINDINGS = 3
_MOST_PHASES = 4


def said(report: Report) -> list[str]:
    """The answer, in a few sentences; what limits it comes first."""
    sentence = report.progress.sentence
    made = _missing(report.verdict) + ([_sentence(sentence)] if sentence else [])
    compared = int((report.lateness.last >= 0).sum())
    if compared:
        return made + _judged(report, compared)
    if report.operations.count:
        made.append("No operation has stamps of two ranks that can be compared.")
    return made


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _missing(verdict: Verdict) -> list[str]:
    if not verdict.missing:
        return []
    limit = "A rank that is missing may have been later than all others: what follows compares those that are here."
    return [_sentence(text) for text in verdict.missing] + [limit]


def _judged(report: Report, compared: int) -> list[str]:
    verdict = report.verdict
    made = _startup(verdict)
    if verdict.held:
        made.append(
            f"To {plural(verdict.held, 'operation')} the last rank came late because an operation of other ranks had"
            " held it up; that is not counted against it."
        )
    made += _unseen(report)
    if not verdict.findings:
        return made + _nobody(report, compared)
    workers = {item.worker_number: item for item in report.workers}
    for item in verdict.findings[:_MOST_FINDINGS]:
        made += [_found(item, report), _cost(item, workers.get(item.worker_number))]
    more = len(verdict.findings) - _MOST_FINDINGS
    if more > 0:
        made.append(f"{plural(more, 'more rank')} stand{'s' * (more == 1)} out as well, at less cost.")
    made += [_BY_CALLS] if verdict.by_calls else []
    return made + _saved(report, verdict.findings[0].worker_number)


def _startup(verdict: Verdict) -> list[str]:
    if not verdict.startup_ns:
        return []
    which = "the first operation" if verdict.startup == 1 else f"{verdict.startup} first operations"
    return [
        f"Ranks did not start at the same time: {which} waited up to {duration(verdict.startup_ns)} for the last one."
        " That is not counted below."
    ]


def _unseen(report: Report) -> list[str]:
    """What calls alone do not say."""
    unseen, late = report.verdict.unseen, report.lateness
    if not unseen:
        return []
    clocks = (late.last >= 0) & late.excused.unseen & ~late.excused.startup & np.isinf(late.error)
    which = "" if clocks.sum() == unseen else f" of {plural(int(clocks.sum()), 'operation')} of these"
    return [
        f"Of {plural(unseen, 'operation')} it is recorded when each rank called, and not when it began. Calls"
        " return before the operation runs and may run ahead of the GPUs, so calls alone do not say whether anybody"
        " waited for the rank that called last, and nothing that followed shows it."
        f"{f' Nothing links the clocks of all ranks{which}.' * bool(clocks.any())} These operations name nobody."
        " Record with `--events timing` to know."
    ]


def _nobody(report: Report, compared: int) -> list[str]:
    verdict, late = report.verdict, report.lateness
    named = int(late.blamed.sum())
    if not named:
        return _nobody_late(report)
    if verdict.unseen:
        compared -= verdict.unseen + verdict.startup
    made = [
        f"Nobody stands out: one rank came last to {named:,} of {plural(compared, 'operation')}, and none of them more"
        f" often than by chance ({_TEST}), or not so that it mattered."
    ]
    cost = f"Waiting for the last rank took {'at most ' * verdict.by_calls}{share(verdict.share)} of the time"
    limit = [_BY_CALLS] if verdict.by_calls else []
    if verdict.shape == "random":
        return [*made, f"{cost}; ranks take turns at random.", *limit, *_saved(report, None)]
    return [*made, f"{cost}.", *limit]


def _nobody_late(report: Report) -> list[str]:
    """Of operations that are judged and name nobody, why that is."""
    late = report.lateness
    judged = (late.last >= 0) & ~late.excused.startup & ~late.excused.held & ~late.excused.unseen
    known = int((judged & np.isfinite(late.error)).sum())
    unlinked = int(judged.sum()) - known
    where = "to the other " if report.verdict.unseen else "in "
    told = f"Nobody was late by more than the clocks can tell, {where}{plural(known, 'operation')}."
    apart = f"Nothing links the clocks of all ranks of {plural(unlinked, 'operation')}: these name nobody."
    return [told] * bool(known) + [apart] * bool(unlinked)


def _found(item: Finding, report: Report) -> str:
    name = f"{item.worker[:1].upper()}{item.worker[1:]}"
    doubt = "beyond doubt" if item.certain else _limit(report)
    where = "" if len(report.operations.communicators) == 1 else f" of {', '.join(item.communicators[:3])}"
    return (
        f"{name} was late{_when(item)}, {doubt}: it came last to {item.last:,} of the {item.counted:,}"
        f" operations{where} that made others wait noticeably; by chance that would be"
        f" {item.counted / item.ranks:,.0f} ({_TEST})."
    )


def _limit(report: Report) -> str:
    if report.verdict.missing:
        return "among the ranks that are recorded"
    return "by when it called"


def _when(item: Finding) -> str:
    if item.first_ns is not None and item.last_ns is not None:
        more = "more and more" if item.last_ns > item.first_ns else "less and less"
        return f" {more} ({duration(max(0.0, item.first_ns))} at first, {duration(max(0.0, item.last_ns))} at last)"
    if item.shape != PHASES:
        return ""
    shown = [f"{one.begin_ns / 1e9:.3f} to {one.end_ns / 1e9:.3f} s" for one in item.phases[:_MOST_PHASES]]
    return f" in phases ({', '.join(shown)}{' and later' * (len(item.phases) > _MOST_PHASES)})"


def _cost(item: Finding, straggler: Straggler | None) -> str:
    process = f" ({straggler.host}, process {straggler.pid})" if straggler else ""
    causes = sorted(straggler.causes.items(), key=lambda pair: -pair[1]) if straggler else []
    why = "; ".join(f"{_CAUSES[name]} {plural(count, 'time')}" for name, count in causes)
    most = "at most " * item.by_calls
    return (
        f"It{process} was late by {duration(item.median_ns)} in the median; the others waited"
        f" {most}{duration(item.cost_ns)} for it, {share(item.share)} of the time{'; ' * bool(why)}{why}."
    )


def _saved(report: Report, worker: int | None) -> list[str]:
    saved = {item.worker: item for item in report.path.what_if}
    most = "at most " * report.verdict.by_calls
    made = []
    if worker in saved and worker is not None:
        item = saved[worker]
        made.append(f"Without its lateness the run is {most}{share(item.share)} ({duration(item.saved_ns)}) shorter.")
    if -1 in saved and len(saved) > 2:
        everybody = saved[-1]
        whose = "Without anybody's it" if made else "Without anybody's lateness the run"
        made.append(f"{whose} is {most}{share(everybody.share)} ({duration(everybody.saved_ns)}) shorter.")
    return made

"""One audit, from the list of checks to the document that everything else is made of (schema "stretto.audit/1")."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from stretto.audit import speed
from stretto.audit.context import Context
from stretto.audit.ending import OutOfTime, ending_after
from stretto.audit.finding import NOT_MEASURED, Check, Finding, Severity, error, note, ok, warning
from stretto.audit.measurements import Unmeasured
from stretto.loaded import identify

SCHEMA = "stretto.audit/1"
# As `stretto doctor` ends where a job is not well; an error is more than that.
STATUS = {Severity.OK: 0, Severity.NOTE: 0, Severity.WARNING: 3, Severity.ERROR: 4}

Document = dict[str, Any]

# Sections whose checks read files and start programs themselves; the others judge what was measured.
_LOOKING = ("environment", "machine", "library")
# For a check that only has to judge, when the time is over.
_GRACE_SECONDS = 0.2


def look(one: Check, context: Context) -> list[Finding]:
    """The findings of one check, never none and never an exception."""
    found = list(_guarded(one, context)) or [ok("nothing here to look at")]
    return [dataclasses.replace(finding, id=one.id, section=one.section) for finding in found]


def _guarded(one: Check, context: Context) -> Iterator[Finding]:
    over = context.seconds_left <= 0
    if over and (one.section in _LOOKING or "facts" not in vars(context)):
        yield note(f"{NOT_MEASURED}left out: {context.level.over}")
        return
    try:
        # After the end nothing is measured, and what was measured is still judged.
        with ending_after(_GRACE_SECONDS if over else context.seconds_left):
            yield from one.look(context)
    except OutOfTime:
        yield _ended(context)
    except Unmeasured as reason:
        if reason.failed:
            yield error(
                str(reason),
                "ranks that do what is asked of them, and end",
                certainty="possible",
                cause="a rank crashed, hung or was refused something: its last words are above",
                next_step="mend what the machine and environment sections name first; then NCCL_DEBUG=INFO "
                "stretto audit",
            )
        else:
            yield note(f"{NOT_MEASURED}{reason}")
    except OSError as problem:
        yield note(f"not looked at: {problem}", certainty="possible")
    except subprocess.TimeoutExpired as late:
        yield warning(
            f"{' '.join(map(str, late.cmd))[:200]} did not end within {late.timeout:g} s",
            "a program that ends by itself",
            certainty="likely",
            cause="it waits for something, or the machine runs nothing",
            next_step="run it by hand, and see what it waits for",
        )
    except Exception as problem:  # One check must not cost the findings of the others.
        yield warning(
            f"this check failed: {type(problem).__name__}: {problem}",
            "a check that looks at this machine, whatever it is like",
            certainty="possible",
            cause="something here has a form that the check does not expect",
            next_step="report it with this audit's JSON; the other findings hold",
        )


def _ended(context: Context) -> Finding:
    """Of a check that had begun when the time was over."""
    doing, hang = context.measured.end_now() if "measured" in vars(context) else ("", False)
    text = f"ended in the middle, as {context.level.over}{': ' if doing else ''}{doing}"
    if not hang:
        return note(f"{NOT_MEASURED}{text}")
    return error(
        text,
        "ranks that go on with their operations while they have a core",
        certainty="likely",
        cause="a rank that hangs in an operation, or that never came to it",
        next_step="stretto audit --full waits longer for them; `stretto doctor PID` says what a rank waits for",
    )


def run(context: Context, checks: list[Check], step: Callable[[str], None]) -> Document:
    """`step`: is told of each check that begins."""
    facts = _facts(context)  # before the audit itself makes the machine busy
    findings: list[Finding] = []
    took: dict[str, float] = {}
    try:
        for one in checks:
            step(one.id)
            start = time.monotonic()
            findings += look(one, context)
            took[one.id] = round(time.monotonic() - start, 3)
    finally:
        context.close()
    measured = _measured(context)
    document = {
        "schema": SCHEMA,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "level": context.level.name,
        "ranks": context.ranks,
        "seconds": round(time.monotonic() - context.began, 1),
        "seconds_of_checks": took,
        "verdict": worst(findings).word,
        "facts": facts,
        "findings": [finding.document() for finding in findings],
        **measured,
    }
    # As it will be read again: with lists, and nothing else that JSON has not.
    return dict(json.loads(json.dumps(document)))


def _facts(context: Context) -> Document:
    """Nothing where they cannot be read: each check that needs them then says why."""
    try:
        with ending_after(context.seconds_left):
            return dataclasses.asdict(context.facts)
    except (Exception, OutOfTime):
        return {}


def _libraries(context: Context) -> list[Document]:
    """This package's library and that of --library, for the table that has both."""
    if context.library is None:
        return []
    import stretto
    from stretto.audit.library import load, offered

    found: list[Document] = []
    for path in (stretto.nccl_library_path(), context.library):
        # Of several hosts, one may not have the file: its findings say so. What they have asked it is known already.
        with contextlib.suppress(OSError, OutOfTime), ending_after(context.seconds_left + context.level.ending):
            found.append(
                {
                    "path": str(path),
                    **dataclasses.asdict(identify(str(path.resolve()))),
                    "speaks": load(path).version,
                    "functions": sorted(offered(path)),
                    "bytes": path.stat().st_size,
                }
            )
    return found


def worst(findings: list[Finding]) -> Severity:
    return max((finding.severity for finding in findings), default=Severity.OK)


def _measured(context: Context) -> Document:
    """The numbers behind the findings, as far as they were measured; nothing is measured for them."""
    found: Document = {
        "noise": 1.0,
        "platform": [],
        "ladder": [],
        "bandwidth": [],
        "inits": {},
        "pairs": {},
        "mechanisms": {},
        "memory": {},
        "launch": {},
        "counters": {},
        "gpus": {},
        "gpu_pairs": {},
        "libraries": _libraries(context),
        "costs": [],
        "beside": {},
    }
    if "measured" not in vars(context):
        return found
    measured = vars(context.measured)
    if "platform" in measured:
        found["noise"] = round(context.measured.platform.noise, 3)
        found["platform"] = [
            {**dataclasses.asdict(one), "best": one.best, "median": one.median}
            for one in context.measured.platform.series
        ]
    if "platform" in measured and "ladder" in measured:
        with contextlib.suppress(Unmeasured):
            found["ladder"] = speed.ladder_rows(context)
    found["bandwidth"] = measured.get("large", [])
    found["launch"] = {
        way: {"best": min(costs), "median": statistics.median(costs)}
        for way, costs in measured.get("launch", {}).items()
    }
    if "on_gpus" in vars(context):
        found["gpus"] = dataclasses.asdict(context.on_gpus)
    if "gpu_pairs" in vars(context):
        found["gpu_pairs"] = {f"{first}-{second}": rate for (first, second), (rate, _) in context.gpu_pairs.items()}
    if vars(context).get("beside_on_cpus") is not None:
        found["beside"] = dataclasses.asdict(vars(context)["beside_on_cpus"])
    if "costs" in vars(context):
        found["costs"] = [one.document() for one in context.costs]
    rates, limits = speed.measured_rates(context)
    found["pairs"] = rates.get("message", {})
    found["mechanisms"] = {
        way: {pair: {"gbps": rate, "limit": limits[way].get(pair, 0.0)} for pair, rate in pairs.items()}
        for way, pairs in rates.items()
    }
    for command, replies in context.measured.replies.items():
        verb, *words = command.split()
        if verb == "inits":
            ranks = dict(word.split("=") for word in words)["ranks"]
            found["inits"][ranks] = found["inits"].get(ranks, []) + replies[0]["inits"]
        elif verb == "open":
            found["memory"] = {**replies[0]["each"], "window_bytes": replies[0]["window_bytes"]}
        elif verb == "steady":
            found["counters"] = {"calls": replies[0]["calls"], **replies[0]["counted"], **replies[0]["grown"]}
    return found

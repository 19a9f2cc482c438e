"""`stretto audit` without ranks: checks that go wrong, what it says of numbers, and its page."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stretto as stretto_package
from jobs import stretto
from stretto.audit import (
    blocks,
    causes,
    child,
    compare,
    environment,
    facts,
    libraries,
    measurements,
    page,
    progress,
    run,
    speed,
    table,
)
from stretto.audit.context import LEVELS, Context
from stretto.audit.ending import OutOfTime, ending_after
from stretto.audit.facts import Facts
from stretto.audit.finding import ALL, SECTIONS, Check, Finding, Severity, error, warning
from stretto.audit.ladder import steps_of
from stretto.audit.measurements import Platform, Series

ROOT = Path(__file__).parents[2]
HEALTHY = Facts()


def look(id: str, context: Context) -> list[Finding]:
    """What a check finds. Whatever the test is about, what is above a note is said in full, and is no graver than the
    table says.
    """
    (one,) = [one for one in ALL if one.id == id]
    found = run.look(one, context)
    for finding in found:
        if finding.severity > Severity.NOTE:
            assert finding.measured and finding.expected and finding.cause and finding.next_step, finding
            assert finding.certainty in ("certain", "likely", "possible"), finding
    return found


def gravest(findings: list[Finding]) -> Finding:
    return max(findings, key=lambda finding: finding.severity)


def test_every_check_says_why_and_stands_in_a_section() -> None:
    for one in ALL:
        assert one.section in SECTIONS and one.title and one.why.endswith((".", "`")), one.id
    assert len({one.id for one in ALL}) == len(ALL) > 60


def test_a_warning_without_a_cause_or_a_next_step_cannot_be_made() -> None:
    whole = {"cause": "a", "next_step": "b", "certainty": "likely"}
    assert warning("m", "e", **whole).severity is Severity.WARNING
    for name in ("cause", "next_step"):
        with pytest.raises(ValueError, match=name):
            error("m", "e", **{**whole, name: " "})
        with pytest.raises(TypeError, match=name):
            warning("m", "e", **{key: value for key, value in whole.items() if key != name})
    with pytest.raises(ValueError, match="expected"):
        error("m", "", **whole)


FAST_CLOCK = Series("calls", "clock_gettime(MONOTONIC)", "ns", (20.0,) * 3)
SLOW_CLOCK = dataclasses.replace(FAST_CLOCK, values=(900.0,) * 3)


@pytest.mark.parametrize(
    ("environment", "facts", "clock", "certainty", "words"),
    [
        ({}, {}, FAST_CLOCK, "possible", ["does more", "or"]),
        ({"LD_PRELOAD": "/opt/shim.so"}, {}, FAST_CLOCK, "likely", ["/opt/shim.so", "in between"]),
        ({"NCCL_PROFILER_PLUGIN": "loud"}, {}, FAST_CLOCK, "likely", ["a profiler plugin, loud"]),
        ({"NCCL_DEBUG": "trace"}, {}, FAST_CLOCK, "likely", ["NCCL_DEBUG=TRACE"]),
        ({}, {}, SLOW_CLOCK, "likely", ["900 ns"]),
        ({"STRETTO_ALGO": "ring"}, {}, FAST_CLOCK, "likely", ["choice is overruled: STRETTO_ALGO=ring"]),
        ({"STRETTO_SPIN": "0"}, {}, FAST_CLOCK, "likely", ["how ranks wait and copy is set: STRETTO_SPIN=0"]),
        (
            {"LD_PRELOAD": str(stretto_package.nccl_library_path())},
            {},
            FAST_CLOCK,
            "possible",
            ["it does more than it should, or waits"],
        ),
        ({}, {"cgroup_cores": 0.5}, FAST_CLOCK, "likely", ["0.5 cores' time"]),
        ({}, {"steal": 0.3}, FAST_CLOCK, "likely", ["hypervisor takes 30%"]),
        ({}, {"cores_allowed": (0,)}, FAST_CLOCK, "likely", ["2 ranks wait for 1 cores"]),
        ({}, {"nodes": ((0, (0,)), (1, (1,)))}, FAST_CLOCK, "likely", ["2 NUMA nodes"]),
        ({"LD_PRELOAD": "/a.so"}, {"steal": 0.3}, FAST_CLOCK, "possible", ["/a.so", "; or ", "hypervisor"]),
    ],
)
def test_the_cause_is_what_the_audit_has_seen(
    environment: dict[str, str], facts: dict[str, Any], clock: Series, certainty: str, words: list[str]
) -> None:
    context = Context(environment=environment, given=dataclasses.replace(HEALTHY, **facts))
    vars(context.measured)["platform"] = Platform([clock])
    seen = [*causes.of_memory(context), *causes.of_waits(context), *causes.in_between(context)]
    cause, next_step, how = causes.chosen(seen, causes.Cause("it does more than it should, or waits", "look"))
    assert how == certainty and next_step and all(word in cause for word in words), cause


# ---- Checks that go wrong ---------------------------------------------------------------------------------------


def failing(problem: Exception) -> Check:
    def look(_: Context) -> Iterator[Finding]:
        yield Finding(Severity.OK, "the first half")
        raise problem

    return Check("machine.failing", "a check that goes wrong", Severity.WARNING, look)


@pytest.mark.parametrize(
    ("problem", "severity", "words"),
    [
        (ZeroDivisionError("of nothing"), Severity.WARNING, "this check failed: ZeroDivisionError: of nothing"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text"), Severity.WARNING, "this check failed: UnicodeDecode"),
        (subprocess.TimeoutExpired(["ldd", "x"], 3), Severity.WARNING, "ldd x did not end within 3 s"),
        (PermissionError(13, "denied"), Severity.NOTE, "not looked at"),
        (measurements.Unmeasured("no time"), Severity.NOTE, "not measured: no time"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_check_that_goes_wrong_is_a_finding_and_not_the_end(
    problem: Exception, severity: Severity, words: str
) -> None:
    well = [one for one in ALL if one.id == "machine.swap"]
    made = run.run(Context(environment={}, given=HEALTHY), [failing(problem), *well], lambda _: None)
    first, second, third = made["findings"]
    assert first["measured"] == "the first half" and third["id"] == "machine.swap"
    assert second["severity"] == severity.word and second["measured"].startswith(words)


def test_facts_that_cannot_be_read_are_findings_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> Facts:
        raise ValueError("a form of /proc that nobody knows")

    monkeypatch.setattr(facts, "read", unreadable)
    checks = [one for one in ALL if one.id in ("machine.swap", "environment.preload")]
    made = run.run(Context(environment={}), checks, lambda _: None)
    found = {one["id"]: one for one in made["findings"]}
    assert "a form of /proc that nobody knows" in found["machine.swap"]["measured"]
    assert found["environment.preload"]["severity"] == "ok" and made["facts"] == {}
    assert "facts cannot be read" in blocks.title(made)


def test_no_communicator_in_the_time_is_not_measured() -> None:
    context = Context(environment={}, given=HEALTHY)
    command = f"inits count=5 ranks=2 for={context.measured.share}"
    context.measured.replies[command] = [{"inits": []}, {"inits": []}]
    with pytest.raises(measurements.Unmeasured, match="no communicator of 2 ranks"):
        context.measured.communicators(2, 5)


# ---- The end of the time ----------------------------------------------------------------------------------------


def lasting(seconds: float, began: list[str], id: str = "machine.lasting") -> Check:
    """One that takes that long, and that no failure of its own ends."""

    def look(_: Context) -> Iterator[Finding]:
        began.append(id)
        yield Finding(Severity.OK, "the first half")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(Exception):
                time.sleep(end - time.monotonic())

    return Check(id, "a check that takes its time", Severity.WARNING, look)


@pytest.mark.parametrize("level", ["default", "full"])
def test_a_check_that_has_begun_is_ended_with_the_time_and_named(level: str) -> None:
    short = dataclasses.replace(LEVELS[level], seconds=12.0)
    began: list[str] = []
    checks = [lasting(0.1, began, "machine.well"), lasting(600, began), lasting(0.1, began, "machine.late")]
    made = run.run(Context(environment={}, given=HEALTHY, level=short), checks, lambda _: None)
    assert made["seconds"] <= 12.5 and began == ["machine.well", "machine.lasting"]
    found = [(one["id"], one["severity"], one["measured"]) for one in made["findings"]]
    assert found[0] == ("machine.well", "ok", "the first half") and found[1][2] == "the first half"
    assert found[2][:2] == ("machine.lasting", "note") and "ended in the middle" in found[2][2]
    assert found[3][:2] == ("machine.late", "note") and "left out: the 12 s of this audit are over" in found[3][2]
    text = page.markdown(blocks.blocks(made, None), "audit")
    assert re.search(r"ended in the middle, as the 12 s .* machine\.lasting", text), text
    assert re.search(r"left out: the 12 s .* machine\.late", text), text


def test_facts_that_take_all_the_time_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "read", lambda: time.sleep(600))
    began: list[str] = []
    short = dataclasses.replace(LEVELS["quick"], seconds=1.0)
    made = run.run(Context(environment={}, level=short), [lasting(600, began)], lambda _: None)
    assert made["facts"] == {} and began == [] and made["findings"][0]["measured"].startswith("not measured")


def test_a_program_that_is_waited_for_ends_with_the_time(tmp_path: Path) -> None:
    hangs = executable(tmp_path / "program", _HANGS.format(pid=tmp_path / "pid"))
    with pytest.raises(OutOfTime), ending_after(5.0):
        child.run([str(hangs)], 600)
    assert gone(int((tmp_path / "pid").read_text()))


def test_who_else_has_a_timer_keeps_it() -> None:
    rung: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 5.0)
    try:
        with ending_after(60):
            pass
        with pytest.raises(OutOfTime), ending_after(0.01):
            time.sleep(60)
        assert rung == []
        deadline = time.monotonic() + 30
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.parametrize(("waited", "hang"), [(0.1, True), (9.0, False)], ids=["has its core", "is starved"])
def test_a_rank_that_is_starved_does_not_hang(waited: float, hang: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, delays = [[5, 5]], [{1: 3.0, 2: 1.0}]
    monkeypatch.setattr(progress.Progress, "_operations", lambda _: begun[-1])
    monkeypatch.setattr(progress.Progress, "_waited", lambda _: delays[-1])
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    looked = progress.Progress([1, 2], patience=20.0)
    now[0], begun[0] = 110.0, [5, 6]
    assert looked() and looked.silent == 0.0
    now[0] = 125.0
    delays.append({1: 3.0, 2: 1.0 + waited})
    assert looked() and looked.silent == 15.0 and looked.starved is not hang
    now[0] = 131.0
    assert not looked()
    delays.append({1: 3.0})
    assert looked.starved, "where the kernel does not say, nobody knows"


def test_who_cannot_be_looked_at_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: str) -> None:
        raise stretto_package.StrettoError("not permitted")

    now = [100.0]
    monkeypatch.setattr(progress._native, "Watch", unreadable)
    monkeypatch.setattr(progress.Progress, "_waited", lambda self: dict.fromkeys(self._pids, 0.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    looked = progress.Progress([1, 2], patience=5.0, most=60.0)
    now[0] = 150.0
    assert looked() and not looked.hangs and not looked.starved
    now[0] = 161.0
    assert not looked(), "nobody waits for ever"


def test_a_kernel_that_does_not_say_who_waits_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.Path, "glob", lambda *_: iter(()))
    looked = progress.Progress([os.getpid()], patience=5.0, by_memory=True)
    assert looked._waited() == {} and looked.starved


def test_numbers_that_are_there_are_judged_after_the_end() -> None:
    """Nothing is measured then."""
    context = Context(environment={}, given=HEALTHY)
    assert context.facts is HEALTHY
    call = dataclasses.replace(FAST_CLOCK, case="getpid, as a system call")
    vars(context.measured)["platform"] = Platform([FAST_CLOCK, call])
    context.began = time.monotonic() - 1000
    assert gravest(look("platform.clock", context)).severity is Severity.OK
    for id in ("latency.small", "stress.random", "machine.swap", "correctness.windows"):
        (found,) = look(id, context)
        assert found.severity is Severity.NOTE and "left out: the 60 s" in found.measured, found
    del vars(context.measured)["platform"]
    (found,) = look("platform.clock", context)
    assert "left out: the 60 s" in found.measured
    assert context.measured._jobs == {}


@pytest.mark.parametrize(("level", "seconds"), [("quick", 0.4), ("default", 4.0), ("full", 30.0)])
def test_random_operations_last_half_a_minute_or_say_that_they_are_cut(level: str, seconds: float) -> None:
    reply = {"checked": 7, "failures": [], "operations": 9}
    with contextlib.closing(Context(environment={}, given=HEALTHY, level=LEVELS[level])) as context:
        context.measured.replies[f"storm seed=1 for={seconds}"] = [reply, reply]
        (found,) = look("stress.random", context)
    assert found.severity is Severity.OK and f"for {seconds:g} s" in found.measured
    assert ("of the 30 s that --full gives them" in found.measured) == (level != "full"), found


# Starts a process that keeps the pipe, and does not end.
_HANGS = "#!/bin/sh\nsleep 600 &\necho $! > {pid}\nwait\n"


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def gone(pid: int) -> bool:
    """Within some seconds: whoever inherited the process has to be told of its end."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_what_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    hangs = executable(tmp_path / "python3", _HANGS.format(pid=tmp_path / "pid"))
    assert libraries.ask_python(hangs, 3) is None
    assert gone(int((tmp_path / "pid").read_text()))


def test_all_pythons_together_take_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(path: Path, seconds: float) -> None:
        asked.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(libraries, "ask_python", ask)
    monkeypatch.setattr(libraries, "_ALL_SECONDS", 0.5)
    monkeypatch.setattr(libraries, "_ASK_SECONDS", 0.3)
    paths = tuple(tmp_path / str(number) / "python3" for number in range(8))
    assert libraries.pythons(paths, sys.executable, "") == []
    assert 1 <= len(asked) <= 2 and sum(asked) <= 0.5


def test_bytes_that_are_no_text_are_read(tmp_path: Path) -> None:
    says = executable(tmp_path / "says", "#!/bin/sh\nprintf 'a\\377b'\n")
    assert child.run([str(says)], 60).stdout == "a\ufffdb"


@pytest.mark.parametrize(
    ("end", "words"), [("kill -KILL $$", "no memory"), ("echo a word >&2; exit 3", "status 3: a word")]
)
def test_the_end_of_the_platform_driver_is_told(
    end: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    executable(tmp_path / "platform_driver", f'#!/bin/sh\necho "$@" > {told}\n{end}\n')
    monkeypatch.setenv("STRETTO_BENCH_DRIVERS", str(tmp_path))
    given = dataclasses.replace(HEALTHY, cgroup_memory=1 << 30, cgroup_memory_used=1 << 29)
    found = gravest(look("platform.wake", Context(environment={}, given=given)))
    assert found.severity is Severity.ERROR and words in found.measured
    assert told.read_text().split()[-2:] == ["--bytes", str(1 << 26)], "an eighth of what is free"


# ---- Numbers ----------------------------------------------------------------------------------------------------


def stamps(lateness: list[list[float]], took_us: float) -> list[dict[str, Any]]:
    """Replies of ranks that enter each call late by so many microseconds, and all return when the last one has
    moved."""
    began: list[list[int]] = [[] for _ in lateness[0]]
    ended: list[list[int]] = [[] for _ in lateness[0]]
    now = 0.0
    for late in [[0.0] * len(lateness[0])] * 5 + lateness:
        for rank, own in enumerate(late):
            began[rank].append(int(1000 * (now + own)))
            ended[rank].append(int(1000 * (now + max(late) + took_us)))
        now += max(late) + took_us
    return [{"began": began[rank], "ended": ended[rank], "wrong": 0} for rank in range(len(began))]


def test_the_one_that_comes_last_is_told_from_a_crowd() -> None:
    slow = steps_of(8, stamps([[0, 2000.0, 0.5]] * 100, 1.0), 0)
    assert slow.last_share == (0, 1, 0) and slow.best == pytest.approx(1.0) and slow.p50 == pytest.approx(2001)
    assert speed.straggler([slow], 15.0) == (1, slow)
    # Every tenth call it is interrupted for 20 ms: it makes others wait as long, and is not slow.
    crowd = steps_of(8, stamps(([[0, 0.2]] * 9 + [[0, 20000.0]]) * 10, 1.0), 0)
    assert crowd.last_share == (0, 1) and speed.straggler([crowd], 15.0) is None
    assert crowd.waited > 0.9


def test_noise_is_how_far_usual_values_are_from_the_best() -> None:
    quiet = Series("copy", "a", "GB/s", (10.0, 9.9, 9.8))
    loud = Series("wake", "cache line, core 0 to 1", "us", (0.1, 0.5, 0.7))
    assert (quiet.best, quiet.noise) == (10.0, pytest.approx(10 / 9.9))
    assert (loud.best, loud.noise) == (0.1, pytest.approx(5.0))
    wake = Series("wake", "futex", "us", (15.0, 20.0))
    assert Platform([quiet, loud, wake]).line == 0.1
    # Two cores that were never there at once: whoever waits can be woken, though.
    starved = dataclasses.replace(loud, values=(2500.0,))
    assert Platform([quiet, starved, wake]).line == 15.0
    with pytest.raises(measurements.Unmeasured, match="no thread"):
        _ = Platform([quiet, loud]).wake
    assert Platform([quiet]).noise < 1.1 and Platform([quiet, wake]).noise == 10, "what was not repeated is noisy"


def document(**changes: Any) -> dict[str, Any]:
    """An audit as it is stored."""
    made: dict[str, Any] = {
        "schema": run.SCHEMA,
        "date": "2026-11-25T12:00:00+00:00",
        "level": "quick",
        "ranks": 2,
        "seconds": 9.0,
        "verdict": "ok",
        "noise": 1.0,
        "facts": dataclasses.asdict(HEALTHY),
        "findings": [Finding(Severity.OK, "all well", id="machine.cores", section="machine").document()],
        "platform": [
            {"probe": "wake", "case": "futex", "unit": "us", "values": [10, 10.5, 11], "best": 10, "median": 10.5},
            {"probe": "socket", "case": "TCP", "unit": "GB/s", "values": [4, 4.5, 5], "best": 5, "median": 4.5},
        ],
        "ladder": [],
        "bandwidth": [],
        "pairs": {"0>1": 10.0, "1>0": 10.0},
        "inits": {"2": [{"wall": 1.0, "bootstrap": 0.5, "connect": 0.4, "window_bytes": 1000}]},
        "memory": {},
    }
    return made | changes


def test_a_comparison_says_what_changed() -> None:
    now = document(
        facts=dataclasses.asdict(dataclasses.replace(HEALTHY, clocksource="hpet", load=9.0)),
        findings=[Finding(Severity.WARNING, "hpet", id="machine.cores", section="machine").document()],
        pairs={"0>1": 5.0, "1>0": 10.2},
    )
    found = compare.compare([("now", now), ("then", document())])
    text = "\n".join(found.lines)
    assert "machine.cores: ok before, warning now" in text
    assert "clocksource: none before, hpet now" in text
    assert "messages from rank 0 to 1: 10 GB/s before, 5 now (-50%, worse" in text
    assert "rank 1 to 0" not in text and "load" not in text
    assert [one["kind"] for one in found.differences] == ["finding", "fact", "measurement"]


def test_a_call_that_costs_more_and_a_ring_that_shrank_are_changes() -> None:
    def made(best: float, **changes: Any) -> dict[str, Any]:
        known = dataclasses.replace(HEALTHY, nics=(facts.Nic("a", True, 9000, **changes),))
        return document(launch={"call": {"best": best, "median": 1.02 * best}}, facts=dataclasses.asdict(known))

    now, then = made(90.0, ring=256, received=9000), made(45.0, ring=4096, received=5)
    found = compare.compare([("now", now), ("then", then)])
    assert found.lines == [
        "interface a: ring: 4096 before, 256 now",
        "a call's cost, call: 45 ns before, 90 now (+100%, worse; noise 10%)",
    ]


HELD = {"bytes": 250 << 10, "descriptors": 5.0, "threads": 0.0, "mappings": 3.0, "window_bytes": 5 << 20}
COUNTED = {"calls": 18000, "allocations": 0, "descriptors": 0, "threads": 0, "mappings": 0, "bytes": 4096}
COSTS = {
    "name": "stretto",
    "makings": {"2": [{"init": 20.0, "first": 1.0}] * 3},
    "calls": {"call": [900.0, 910.0]},
    "each": {"device_bytes": 64 << 20, "host_bytes": 1 << 20},
    "left": {"device_bytes": 0, "host_bytes": 0},
}


def test_what_is_held_left_and_spent_is_compared() -> None:
    def made(held: dict[str, Any], counted: dict[str, Any], costs: dict[str, Any], connect: float) -> dict[str, Any]:
        inits = {"2": [{"wall": 1.0, "bootstrap": 0.5, "connect": connect, "window_bytes": 1000}] * 3}
        rates = {"message": {"0>1": {"gbps": 10.0, "limit": 11.0}}, "mapped": {"0>1": {"gbps": connect, "limit": 9.0}}}
        more = {"memory": HELD | held, "counters": COUNTED | counted, "costs": [COSTS | costs], "inits": inits}
        return document(**more, mechanisms=rates)

    then = made({}, {}, {}, 0.2)
    assert compare.compare([("now", then), ("then", then)]).differences == []
    left = {"left": {"device_bytes": 32 << 20, "host_bytes": 100}}
    worse = made({"bytes": 900 << 10, "threads": 1.0}, {"allocations": 18000, "descriptors": 18}, left, 0.4)
    found = compare.compare([("now", worse), ("then", then)])
    assert found.lines == [
        "a put into memory that is mapped, rank 0 to 1: 0.2 GB/s before, 0.4 now (+100%, better; noise 10%)",
        "making a communicator of 2 ranks: connecting: 200 µs before, 400 now (+100%, worse; noise 10%)",
        "an open communicator: memory: 250 KB before, 900 now (+260%, worse; noise 10%)",
        "left by 10000 operations: descriptors: 0 before, 10 now (worse)",
        "an open communicator: threads: 0 before, 1 now (worse)",
        "allocations in 10000 operations: 0 before, 10,000 now (worse)",
        "stretto: left by one on GPUs: memory of the GPU: 0 MB before, 32 now (worse)",
    ]
    odd = compare.compare([("a", then), ("b", then), ("c", worse), ("d", then)]).lines
    assert "c: an open communicator: threads is above the other 3 (1 against 0), worse" in odd
    assert "c: an open communicator: memory is 260% above the other 3 (900 against 250 KB), worse" in odd


def test_all_that_is_measured_is_drawn() -> None:
    plots = pytest.importorskip("stretto.audit.plots", reason="matplotlib is not installed")
    row = {"implementation": "stretto", "bytes": 1024, "us_median": 5.0}
    gpus = {"rows": [row, {**row, "bytes": 4096}, {**row, "implementation": "nccl"}]}
    whole = document(launch={"call": {"best": 90, "median": 99}}, gpus=gpus, gpu_pairs={"0-1": 40.0, "1-2": 41.0})
    drawn = dict(plots.draw(whole))
    for title in ("What a call costs", "Making a communicator", "All-reduces between GPUs", "Large messages between"):
        (found,) = [png for name, png in drawn.items() if name.startswith(title)]
        assert found.startswith(b"\x89PNG")
    way = {"source": "a", "target": "b", "gbps": 2.0, "sockets_gbps": 2.2}
    (one,) = plots.draw({"network": [way, {**way, "gbps": None}]})
    assert one[0].startswith("Between the hosts") and plots.draw({"network": []}) == []


def test_what_is_noise_is_no_change() -> None:
    loud = {"probe": "wake", "case": "futex", "unit": "us", "values": [10, 25, 40], "best": 10, "median": 25}
    now = document(platform=[{**loud, "best": 20}])
    found = compare.compare([("now", now), ("then", document(platform=[loud]))])
    assert found.differences == [] and "Nothing has changed" in found.lines[0]


def test_what_was_not_repeated_is_not_compared() -> None:
    once = {"probe": "wake", "case": "futex", "unit": "us", "values": [90000], "best": 90000, "median": 90000}
    left_out = Finding(Severity.NOTE, "not measured: no time", id="machine.cores", section="machine").document()
    found = compare.compare([("now", document(platform=[once], findings=[left_out])), ("then", document())])
    assert found.differences == []


def test_the_odd_one_of_several_machines_is_named() -> None:
    slow = document(
        pairs={"0>1": 8.2, "1>0": 10.0}, facts=dataclasses.asdict(dataclasses.replace(HEALTHY, steal=0.5, overcommit=2))
    )
    found = compare.compare([("a", document()), ("b", document()), ("c", slow), ("d", document())])
    text = "\n".join(found.lines)
    assert "c: messages from rank 0 to 1 is 18% below the other 3 (8.2 against 10 GB/s), worse" in text
    assert "c: overcommit is 2, and 0 on most of the other 3" in text
    assert all(one["machine"] == "c" for one in found.differences) and len(found.differences) == 2


def test_the_page_is_whole_in_every_form() -> None:
    bad = Finding(
        Severity.ERROR, "64 <open> files", "more | than", "a limit", "ulimit", id="machine.nofile", section="machine"
    ).document()
    left_out = [Finding(Severity.NOTE, "not measured: no time", id=f"stress.{name}").document() for name in "ab"]
    whole = blocks.blocks(document(findings=[bad, *left_out]), None)
    text = page.markdown(whole, "audit")
    assert "**error `machine.nofile`**: 64 <open> files" in text and "cause: a limit (certain)" in text
    assert text.count("no time") == 1 and "stress.a, stress.b" in text
    assert "| wake | futex | 10 | 10.5 | µs |" in text
    html = page.html(whole, "audit", [("a plot", b"png")])
    assert "64 &lt;open&gt; files" in html and "data:image/png;base64," in html
    assert not re.search(r"(src|href)=\"?https?:", html)


# ---- The command ------------------------------------------------------------------------------------------------


def test_the_list_and_the_document_have_the_same_table() -> None:
    listed = stretto("audit", "--list").stdout
    for one in ALL:
        assert one.id in listed
    assert table.markdown() in (ROOT / "docs/audit.md").read_text(), "put `table.markdown()` into docs/audit.md"


def test_only_and_skip(tmp_path: Path) -> None:
    listed = stretto("audit", "--only", "machine", "--skip", "machine.cores", "--list").stdout
    assert "machine.nofile" in listed and "machine.cores" not in listed and "latency" not in listed
    done = stretto("audit", "--only", "machin", "--list")
    assert done.returncode == 2 and "did you mean machine" in done.stderr


def test_the_platform_alone_has_its_table() -> None:
    listed = stretto("audit", "--platform", "--list").stdout
    assert "platform.clock" in listed and "machine.nofile" not in listed
    refused = stretto("audit", "--platform", "--only", "machine", "--list")
    assert refused.returncode == 2 and "give one of them" in refused.stderr


def test_a_stored_audit_is_shown_and_compared(tmp_path: Path) -> None:
    old, new, other = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "other.json"
    old.write_text(json.dumps(document()))
    other.write_text(json.dumps(document()))
    new.write_text(json.dumps(document(verdict="warning", pairs={"0>1": 5.0})))
    done = stretto("audit", "--from", new, "--compare", old, "--markdown", tmp_path / "page.md")
    assert done.returncode == 3 and "10 GB/s before, 5 now" in done.stdout
    assert "10 GB/s before, 5 now" in (tmp_path / "page.md").read_text()
    done = stretto("audit", "--from", new, "--compare", old, other, "--json", "-")
    assert [one["machine"] for one in json.loads(done.stdout)["compared"]["differences"]] == ["new"]
    notes = tmp_path / "notes.json"
    notes.write_text("{}")
    done = stretto("audit", "--from", notes)
    assert done.returncode == 2 and "is no audit" in done.stderr


def test_a_refusal_is_what_its_exception_says_first() -> None:
    traceback = ["Traceback (most recent call last):", '  File "<string>", line 4', "    stretto.threads(2, work)"]
    said = [*traceback, "stretto.errors.InvalidUsage: memory of the host", "on rank 0 of 2 (a thread of this process)"]
    assert environment.sentence_of(said) == "memory of the host"
    assert environment.sentence_of(["Segmentation fault"]) == "Segmentation fault"

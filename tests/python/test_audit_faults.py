"""Faults that are really there: limits that are lowered, files that are in the way, a library that does wrong. The
audit names each of them, and finds nothing where there is nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from jobs import GUARD, STRETTO, environment, stretto
from planted import HERE, LEVEL, QUIET, Faulty, around, two_cores
from stretto.audit import measurements, speed, table
from stretto.audit.context import LEVELS, Context
from stretto.audit.ending import OutOfTime, ending_after
from stretto.audit.finding import ALL, Severity
from stretto.audit.progress import Progress
from stretto.audit.words import MECHANISMS
from stretto.bench import job
from stretto.bench.drivers import Missing, find_driver
from stretto.bench.measure import SUBJECT
from stretto.bench.rows import FLOOR
from test_audit import gravest, look
from test_audit_facts import MADE_UP


def gravest_in(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """Of each check of an audit that wrote its JSON to stdout."""
    assert done.returncode in (0, 3, 4), done.stderr
    order = [severity.word for severity in Severity]
    found: dict[str, dict[str, Any]] = {}
    for one in json.loads(done.stdout)["findings"]:
        if one["id"] not in found or order.index(one["severity"]) > order.index(found[one["id"]]["severity"]):
            found[one["id"]] = one
    return found


# ---- Limits, namespaces -----------------------------------------------------------------------------------------


def audit_under(shell: str, *arguments: str) -> dict[str, dict[str, Any]]:
    command = ["bash", "-c", f'{shell}; exec "$@"', "bash", *STRETTO, "audit", *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, env=environment(), check=False)
    if done.returncode == 1 and "Operation not permitted" in done.stderr:
        pytest.skip("this user may make no such namespace")
    return gravest_in(done)


def test_lowered_limits_and_a_single_core_are_named() -> None:
    core = min(os.sched_getaffinity(0))
    limits = f"taskset -cp {core} $$ >/dev/null; ulimit -n 64; ulimit -u 20; ulimit -l 0; ulimit -v 1250000"
    found = audit_under(limits, "--only", "machine", "--ranks", "4")
    for id, severity, word in (
        ("machine.cores", "warning", "taskset"),
        ("machine.nofile", "error", "ulimit -n"),
        ("machine.nproc", "error", "ulimit -u"),
        ("machine.memlock", "warning", "ulimit -l"),
        ("machine.address-space", "error", "ulimit -v"),
    ):
        assert found[id]["severity"] == severity and word in found[id]["cause"] + found[id]["next_step"], found[id]


def in_namespaces(options: str, prepare: str, *only: str) -> dict[str, dict[str, Any]]:
    names = [word for name in only for word in ("--only", name)]
    inner = f'{prepare} && exec "$@"'
    command = ["unshare", *options.split(), "sh", "-c", inner, "sh", *STRETTO, "audit", *names, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, env=environment(), check=False)
    if "unshare failed" in done.stderr or "ermission denied" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("this user may make no namespaces")
    return gravest_in(done)


def test_a_small_dev_shm_and_a_loopback_that_is_down_are_named() -> None:
    mount = "mount -t tmpfs -o size=4m tmpfs /dev/shm"
    found = in_namespaces("-m -n", mount, "machine.shm-size", "machine.loopback")
    assert found["machine.shm-size"]["severity"] == "error" and "--shm-size" in found["machine.shm-size"]["next_step"]
    assert found["machine.loopback"]["severity"] == "error" and "lo up" in found["machine.loopback"]["next_step"]


def test_a_narrow_port_range_is_named() -> None:
    narrow = "echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range"
    found = in_namespaces("-n", narrow, "machine.ports")["machine.ports"]
    assert found["severity"] == "error" and "narrow" in found["cause"]


def test_a_rank_on_the_wrong_numa_node_is_named(tmp_path: Path) -> None:
    """Another topology lies over the machine's: all its cores are on a second node, and all memory is on the first."""
    for node, cores in ((0, ""), (1, "0-4095")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}/cpulist").write_text(f"{cores}\n")
    if Path("/sys/devices/system/node/node1").exists():
        pytest.skip("this machine has a second node, and what may be used of it says so")
    mount = f"mount --bind {tmp_path} /sys/devices/system/node"
    found = in_namespaces("-m", mount, "machine.numa")["machine.numa"]
    assert found["severity"] == "warning" and found["subject"] == "node 1", found
    assert "--membind=0" in found["next_step"]


def test_missing_huge_pages_are_named(tmp_path: Path) -> None:
    """Taken from this process and all that it starts; and from the machine, by a setting that lies over its own."""
    take = "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    audit = [*STRETTO, "audit", "--only", "machine.huge-pages", "--json", "-"]
    command = [sys.executable, "-c", take, *audit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, env=environment(), check=False)
    found = gravest_in(done)["machine.huge-pages"]
    assert found["severity"] == "note" and "PR_SET_THP_DISABLE" in found["cause"], found
    (tmp_path / "enabled").write_text("always madvise [never]\n")
    mount = f"mount --bind {tmp_path}/enabled /sys/kernel/mm/transparent_hugepage/enabled"
    found = in_namespaces("-m", mount, "machine.huge-pages")["machine.huge-pages"]
    assert found["severity"] == "note" and "madvise" in found["next_step"], found


# ---- Variables and files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries that lie in the way."""
    folder = tmp_path_factory.mktemp("files")
    own = package.nccl_library_path().resolve()
    for name, library, more in (
        ("one", "libnccl.so.2", b"1"),
        ("two", "libnccl.so.2", b"22"),
        ("old", "libstretto.so", b"3"),
    ):
        (folder / name).mkdir()
        shutil.copy(own, folder / name / library)
        with (folder / name / library).open("ab") as file:
            file.write(more)
    (folder / "text.so").write_text("no library")
    return folder


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that is linked to libnccl.so.2 as torch is, and two such libraries: `new` has all that it needs."""
    folder = tmp_path_factory.mktemp("torch")
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "torch/__init__.py").touch()
    (folder / "torch/version.py").write_text("__version__ = '2.15.0'\n")
    for name, text in (("old", ""), ("new", "int ncclCommResume(void) { return 0; }\n")):
        (folder / name).mkdir()
        source = folder / name / "nccl.c"
        source.write_text("int ncclAllReduce(void) { return 0; }\n" + text)
        soname = ["-Wl,-soname,libnccl.so.2", "-o", folder / name / "libnccl.so.2"]
        subprocess.run(["gcc", "-shared", "-fPIC", source, *soname], check=True, timeout=GUARD)
    user = folder / "torch.c"
    user.write_text(
        "int ncclAllReduce(void), ncclCommResume(void);\nint use(void) { return ncclAllReduce() + ncclCommResume(); }\n"
    )
    target = ["-o", folder / "torch/lib/libtorch_cuda.so", folder / "new/libnccl.so.2"]
    subprocess.run(["gcc", "-shared", "-fPIC", user, *target], check=True, timeout=GUARD)
    return folder


def test_a_library_that_is_too_old_for_torch_is_named(torch: Path) -> None:
    for folder, severity in (("new", Severity.OK), ("old", Severity.ERROR)):
        context = around(PYTHONPATH=str(torch), LD_LIBRARY_PATH=str(torch / folder), PATH="/nowhere")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(torch))
            found = gravest(look("environment.missing-symbols", context))
            loaded = look("environment.loaded", context)
        assert found.severity is severity
        assert str(torch / folder / "libnccl.so.2") in loaded[0].measured and "torch 2.15.0" in loaded[0].measured
    assert "ncclCommResume" in found.measured and "older" in found.cause
    context.library = torch / "new/libnccl.so.2"
    assert gravest(look("environment.missing-symbols", context)).severity is Severity.OK


def test_a_library_that_is_not_there_is_named(torch: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(torch))
        found = gravest(look("environment.loaded", around(PATH="/nowhere")))
    assert found.severity is Severity.ERROR and "finds no libnccl.so.2" in found.measured


VARIABLES: list[tuple[str, dict[str, str], Severity, str]] = [
    ("environment.unknown-variables", {"STRETTO_TIMOUT": "5"}, Severity.WARNING, "STRETTO_TIMEOUT"),
    ("environment.unknown-variables", {"NCCL_SOCKET_IFNAMES": "eth0"}, Severity.WARNING, "NCCL_SOCKET_IFNAME"),
    ("environment.unknown-variables", {"STRETTO_AFFINITY": "0-3"}, Severity.WARNING, "unset STRETTO_AFFINITY"),
    ("environment.refused-variables", {"STRETTO_TIMEOUT": "soon"}, Severity.ERROR, "STRETTO_TIMEOUT"),
    ("environment.refused-variables", {"STRETTO_ALGO": "fastest"}, Severity.ERROR, "STRETTO_ALGO"),
    ("environment.refused-variables", {"STRETTO_TABLE": "/nowhere/table.json"}, Severity.ERROR, "STRETTO_TABLE"),
    ("environment.contradictions", {"STRETTO_PROTO": "ll"}, Severity.WARNING, "STRETTO_PROTO"),
    ("environment.contradictions", {"STRETTO_TABLE": "t.json", "STRETTO_ALGO": "ring"}, Severity.WARNING, "no say"),
    ("environment.contradictions", {"STRETTO_WARN_AFTER": "100", "STRETTO_TIMEOUT": "5"}, Severity.WARNING, "gives up"),
    ("environment.interface", {"NCCL_SOCKET_IFNAME": "ib7"}, Severity.ERROR, "other names"),
    ("environment.plugins", {"NCCL_PROFILER_PLUGIN": "/nowhere/plugin.so"}, Severity.WARNING, "not there"),
    ("environment.plugins", {"NCCL_NET_PLUGIN": "{files}/text.so"}, Severity.WARNING, "no library"),
    ("environment.plugins", {"NCCL_TUNER_PLUGIN": "{files}/one/libnccl.so.2"}, Severity.WARNING, "no plugin of this"),
    ("environment.preload", {"LD_PRELOAD": "/nowhere/libnccl.so.2"}, Severity.WARNING, "removed"),
    ("environment.two-libraries", {"LD_LIBRARY_PATH": "{files}/one:{files}/two"}, Severity.WARNING, "first one listed"),
    ("environment.stale-library", {"LD_LIBRARY_PATH": "{files}/old"}, Severity.WARNING, "older build"),
    ("environment.configuration", {"NCCL_CONF_FILE": "{files}/text.so"}, Severity.NOTE, "NVIDIA"),
]


@pytest.mark.parametrize(
    ("id", "variables", "severity", "word"), VARIABLES, ids=[" ".join(case[1]) for case in VARIABLES]
)
def test_a_variable_that_is_wrong_is_named(
    id: str, variables: dict[str, str], severity: Severity, word: str, files: Path
) -> None:
    context = around(**{name: value.format(files=files) for name, value in variables.items()})
    found = gravest(look(id, context))
    assert found.severity is severity, found
    assert word in found.measured + found.cause + found.next_step


def test_a_folder_for_temporary_files_that_is_not_there_is_named() -> None:
    done = stretto("audit", "--only", "machine.temporary", "--json", "-", TMPDIR="/nowhere")
    found = gravest_in(done)["machine.temporary"]
    assert done.returncode == 4 and found["severity"] == "error" and "TMPDIR" in found["cause"]


# ---- A library that does wrong ----------------------------------------------------------------------------------


def test_the_late_rank_and_the_narrow_way_are_named(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(measurements._LADDER, "quick", 1 << 20)  # two sizes: each call takes a tenth of a second
    context = faulty("late,narrow", samples=20)
    found = gravest(look("bandwidth.pairs", context))
    assert found.severity is Severity.WARNING and found.subject == "rank 1 to 0", found.measured
    found = gravest(look("latency.last", context))
    if two_cores():
        assert found.severity is Severity.WARNING and found.subject == "rank 1"


def test_the_slow_mechanism_of_a_pair_is_named(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a copy that the same rank makes without the library."""
    for fault, ways in (("crawl", {"mapped", "kernel"}), ("narrow", {"message"}), ("", set[str]())):
        if not fault:  # as on a machine that is busy, which this one may be
            monkeypatch.setattr(speed, "noise_of", lambda _: 10.0)
        found = look("bandwidth.mechanisms", faulty(fault))
        assert {one.subject.partition(",")[0] for one in found} == set(MECHANISMS), found
        if not two_cores():
            continue
        bad = {one.subject: one for one in found if one.severity > Severity.NOTE}
        # A machine that is busy may slow down more.
        assert {f"{way}, rank 1 to 0" for way in ways} <= set(bad) and (fault or not bad), found
        if len(bad) == len(ways):
            assert all("in between" in one.cause and "so it is no core" in one.cause for one in bad.values()), found


def test_a_pair_that_is_slow_by_all_mechanisms_has_a_slow_core(faulty: Faulty) -> None:
    found = gravest(look("bandwidth.mechanisms", faulty("narrow,crawl")))
    if two_cores():
        assert found.severity is Severity.WARNING and "all ways of this pair" in found.cause, found
        assert "taskset" in found.next_step


def test_slow_operations_and_slow_starts_are_named(faulty: Faulty) -> None:
    context = faulty("slow,thin,init")
    found = gravest(look("latency.small", context))
    assert found.severity is Severity.WARNING and "by the model" in found.expected
    assert "LD_PRELOAD names" in found.cause and "unset LD_PRELOAD" in found.next_step, found
    found = gravest(look("bandwidth.collective", context))
    assert found.severity is Severity.WARNING and "memcpy" in found.expected
    assert "LD_PRELOAD names" in found.cause, found
    found = gravest(look("initialisation.time", context))
    assert found.severity is Severity.WARNING and "elsewhere" in found.cause


@pytest.mark.parametrize(("took", "severity"), [(2300.0, Severity.OK), (60000.0, Severity.WARNING)])
def test_memcpy_that_stays_in_the_caches_is_not_the_only_yardstick(took: float, severity: Severity) -> None:
    context = Context(level=LEVEL)
    row = {"bytes": 4 << 20, "wrong": 0, "busbw_gbps": 1.0}
    rows = [{**row, "implementation": SUBJECT, "us_min": took}, {**row, "implementation": FLOOR, "us_min": 89.0}]
    vars(context.measured).update(platform=QUIET, large=rows)
    (found,) = look("bandwidth.collective", context)
    if two_cores():
        assert found.severity is severity and "the model's" in found.expected, found


def test_calls_that_cost_too_much_are_named(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(measurements._BATCHES, "quick", 1)  # each call takes 2 ms
    context = faulty("slow")
    for id in ("launch.call", "launch.group", "launch.stream"):
        found = gravest(look(id, context))
        assert found.severity is Severity.WARNING and "by the model" in found.expected, found
        assert "in between" in found.cause


def test_what_operations_leave_behind_and_allocate_is_named(faulty: Faulty) -> None:
    context = faulty("spend,allocate")
    found = gravest(look("counters.kernel", context))
    assert found.severity is Severity.ERROR and found.subject == "rank 1"
    for word in ("descriptors", "threads", "MB of memory"):
        assert word in found.measured, found
    found = gravest(look("counters.allocations", context))
    assert found.severity is Severity.WARNING and found.subject == "rank 1"


def test_ranks_that_sleep_for_each_operation_are_named(faulty: Faulty) -> None:
    found = gravest(look("counters.waits", faulty("doze")))
    if two_cores():
        assert found.severity is Severity.NOTE and "late to most operations" in found.cause, found


def test_what_communicators_leave_behind_is_named(faulty: Faulty) -> None:
    context = faulty("leak,fds,threads")
    found = gravest(look("memory.leaks", context))
    assert found.severity is Severity.ERROR and found.subject == "rank 1"
    for word in ("descriptors", "threads", "MB"):
        assert word in found.measured


def test_a_communicator_that_takes_too_much_is_named(faulty: Faulty) -> None:
    found = gravest(look("memory.communicator", faulty("heavy", rank=0)))
    assert found.severity is Severity.WARNING and "plugin" in found.cause


# Three system calls for each look at the clock, as where the kernel has no page for it.
_SLOW_CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
  for (int i = 0; i < 30; ++i) syscall(SYS_clock_gettime, clock, now);
  return 0;
}
"""


def test_a_slow_clock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clock.c").write_text(_SLOW_CLOCK)
    command = ["gcc", "-shared", "-fPIC", "-O1", tmp_path / "clock.c", "-o", tmp_path / "clock.so"]
    subprocess.run(command, check=True, timeout=GUARD)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "clock.so"))
    context = Context(level=LEVEL)
    try:
        found = gravest(look("platform.clock", context))
    finally:
        context.close()
    assert found.severity is Severity.WARNING and "clocksource" in found.cause


def test_a_rank_that_dies_is_named(faulty: Faulty) -> None:
    context = faulty("crash", samples=400)
    found = gravest(look("latency.small", context))
    assert found.severity is Severity.ERROR and "rank 1 died, killed by SIGABRT" in found.measured
    assert gravest(look("stress.random", context)).measured.startswith("not measured: left out: the ranks failed")


def test_a_rank_that_hangs_is_named_with_what_it_waits_for(faulty: Faulty) -> None:
    context = faulty("hang", samples=400, patience=3)
    found = gravest(look("latency.small", context))
    assert found.severity is Severity.ERROR and "took more than" in found.measured
    assert "rank 1" in found.measured.partition("flight recorders say")[2]


@pytest.mark.parametrize(
    ("fault", "id", "doing"),
    [
        ("stuck", "correctness.pairs", "to start"),
        ("stuck", "latency.small", "to start"),
        ("hang-soon", "bandwidth.collective", "to answer"),
    ],
)
def test_a_rank_that_hangs_is_named_within_the_time_of_an_audit(
    fault: str, id: str, doing: str, faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks count as having their cores, however busy this machine is."""
    monkeypatch.setattr(Progress, "_waited", lambda self: dict.fromkeys(self._pids, 0.0))
    level = dataclasses.replace(LEVELS["default"], seconds=30)
    context = faulty(fault, **{name: getattr(level, name) for name in ("name", "seconds", "share", "patience")})
    found = gravest(look(id, context))
    assert found.severity is Severity.ERROR and context.measured._jobs == {}, found
    # A machine that is so busy that the time ends first has the same finding in other words.
    assert f"s {doing}" in found.measured or "in the last" in found.measured, found


def test_whatever_hangs_at_the_end_of_the_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a job that is not ready: it has no flight recorder, and does nothing."""
    monkeypatch.setattr(Progress, "_waited", lambda self: dict.fromkeys(self._pids, 0.0))
    for command, hangs in ((["sleep", "600"], True), (["sh", "-c", "while :; do cat /proc/self/stat; done"], False)):
        context = Context(level=LEVEL)
        measured = context.measured
        with pytest.raises(OutOfTime), ending_after(12.0):
            measured._start("job", job.Launch([command], {}), 1)
        assert measured._jobs["job"].unanswered
        words, hang = measured.end_now()
        assert hang is hangs and ("read nothing and touched no new memory" in words) is hangs, words
        context.close()


def test_a_rank_that_hangs_at_the_end_of_the_time_is_named(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has waited as long as its patience, and the time is over. The ranks count as having their cores, however
    busy this machine is."""
    monkeypatch.setattr(Progress, "_waited", lambda self: dict.fromkeys(self._pids, 0.0))
    context = faulty("hang-soon", seconds=25, patience=60)
    context.measured._crew()
    context.began = time.monotonic() - 13
    monkeypatch.setattr(context.measured, "_left", lambda: 600.0)
    found = gravest(look("stress.random", context))
    assert found.severity is Severity.ERROR and "no operation began in the last" in found.measured, found
    assert "rank 1" in found.measured.partition("flight recorders say")[2] and "hangs" in found.cause
    assert context.measured._jobs == {}
    assert gravest(look("stress.sizes", context)).measured.startswith("not measured: left out")


def test_an_audit_of_slow_ranks_ends_with_its_time(shim: Path) -> None:
    """Every all-reduce of both ranks takes a tenth of a second: what has begun by the end is ended, and named."""
    arguments = ["--quick", "--skip", "environment", "--skip", "machine", "--ranks", "2", "--json", "-"]
    done = stretto("audit", *arguments, LD_PRELOAD=str(shim), AUDIT_FAULT="late", AUDIT_RANK="-2")
    document = json.loads(done.stdout)
    assert document["seconds"] <= LEVELS["quick"].seconds, document["seconds_of_checks"]
    texts = [one["measured"] for one in document["findings"]]
    assert any("the 15 s of this audit are over" in text for text in texts), texts
    assert sum("ended in the middle" in text for text in texts) == 1, texts


# ---- What stays of an audit, and what it takes -------------------------------------------------------------------


def recorders() -> set[str]:
    folder = Path(f"/dev/shm/stretto-flight-{os.geteuid()}")
    return {file.name for file in folder.glob("*.flight")} if folder.is_dir() else set()


def of(pids: list[int]) -> list[str]:
    return [name for name in recorders() if any(f"-{pid}-" in name for pid in pids)]


def test_ranks_are_asked_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRETTO_FLIGHT_DIR", raising=False)
    monkeypatch.setenv("STRETTO_FLIGHT_LATE", "0.5")
    monkeypatch.setattr(job, "_GRACE_SECONDS", 60.0)  # ranks may have to wait for a core
    context = Context(ranks=2, level=LEVEL)
    try:
        context.measured.ask("checking", "pairs for=1")
        ranks = context.measured._jobs["ranks"]
        pids = ranks.pids
    finally:
        context.close()
    assert len(pids) == 2 and [process.returncode for process in ranks._processes] == [0, 0]
    assert of(pids) == []


def test_ranks_that_hang_leave_no_flight_recorder(faulty: Faulty) -> None:
    context = faulty("hang", patience=3)
    pids = context.measured._crew().pids
    with pytest.raises(measurements.Unmeasured) as failure:
        context.measured.ask("a storm", "storm seed=1 for=60")
    assert "rank 1" in str(failure.value).partition("flight recorders say")[2]
    context.close()
    assert len(pids) == 2 and of(pids) == []


def test_a_process_that_does_not_end_when_it_is_killed_is_left_behind_and_named(tmp_path: Path) -> None:
    """As one in the middle of a call into a driver."""
    never = subprocess.Popen(["sleep", "600"], start_new_session=True)
    context = Context(level=LEVEL)
    one = context.measured._jobs["one"] = job.Job("one", job.Launch([["sleep", "600"]], {}), 1, tmp_path)

    class Stuck:
        pid = never.pid

        def poll(self) -> None:
            return None

        def wait(self, seconds: float) -> None:
            raise subprocess.TimeoutExpired("sleep", seconds)

    one._processes.append(Stuck())  # type: ignore[arg-type]
    words, _ = context.measured.end_now()
    never.wait(GUARD)
    assert f"process {never.pid} does not end although it was killed" in words, words
    assert one._processes[0].returncode is not None and one.left_behind == [never.pid]


def test_ranks_whose_end_is_interrupted_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: job.Job) -> str:
        raise OutOfTime

    monkeypatch.setattr(job.Job, "close", interrupted)
    measured = Context(level=LEVEL).measured
    one = measured._jobs["one"] = job.Job("one", job.Launch([["sleep", "600"]], {}), 1, tmp_path)
    with pytest.raises(OutOfTime):
        measured._end("one")
    assert one._processes[0].returncode == -9 and measured._jobs == {}


def platform_driver(limits: str, bytes: int) -> tuple[dict[str, list[float | None]], int]:
    """Its values by case, and the most memory that it had, in KB."""
    try:
        driver = find_driver("platform_driver")
    except Missing as reason:
        pytest.skip(str(reason))
    # What a program is said to have had at most begins with what its parent had: a small one starts it.
    small = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True); "
    small += "print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    limited = ["bash", "-c", f'{limits}; exec "$@"', "bash", driver, "--rounds", "1", "--seconds", "1"]
    command = [sys.executable, "-I", "-S", "-c", small, *limited, "--bytes", str(bytes)]
    *rows, most = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD).stdout.splitlines()
    return {one["case"]: one["values"] for one in map(json.loads, rows)}, int(most)


def test_the_platform_is_measured_with_the_memory_that_it_may_take() -> None:
    cases, most = platform_driver("true", 64 << 20)
    assert cases["memcpy, 8 MB"][0] and cases["memcpy, all cores at once"][0]
    assert most < (64 << 10) + (32 << 10), "64 MB of buffers, 24 MB of sockets and first touches, and the program"


@pytest.mark.parametrize("stack_and_all", [(1000000, 300000), (100000, 190000)], ids=["none", "some"])
def test_threads_that_the_kernel_refuses_cost_their_values_only(stack_and_all: tuple[int, int]) -> None:
    """By address space, as the limit on processes does not hold for root: no thread can be made, or one at a time."""
    stack, all = stack_and_all
    cases, _ = platform_driver(f"ulimit -s {stack} && ulimit -v {all}", 8 << 20)
    assert cases["futex"] == [None] and cases["memcpy, 1 MB"][0] and cases["std::mutex"][0]
    if two_cores():
        assert cases["memcpy, all cores at once"] == [None]
    assert (cases["thread create and join"] == [None]) == (stack > all)


# ---- A healthy machine ------------------------------------------------------------------------------------------


def test_this_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    """What the machine here really lacks is none of the audit's mistakes: those checks that look at its facts have
    tests of their own."""
    done = stretto("audit", "--quick", "--skip", "machine", "--json", tmp_path / "audit.json", seconds=240)
    document = json.loads((tmp_path / "audit.json").read_text())
    bad = [one for one in document["findings"] if one["severity"] in ("warning", "error")]
    assert bad == [] and done.returncode == 0, done.stdout
    assert document["verdict"] in ("ok", "note")


def as_another_user(command: list[str]) -> list[str]:
    """As nobody, who may read root's files where Python lies among these, and has no other right. Whoever is not root
    is such a user."""
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv here (util-linux)")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    starts = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    tried = [*nobody, sys.executable, "-c", starts]
    if subprocess.run(tried, capture_output=True, timeout=GUARD, check=False).returncode:
        nobody += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [*nobody, *command]


def test_a_user_without_rights_is_told_all_of_it() -> None:
    """Nothing needs root: no check is left out or fails for want of it."""
    command = as_another_user([*STRETTO, "audit", "--quick", "--skip", "machine", "--json", "-"])
    variables = environment(HOME="/nonexistent")
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, env=variables, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    texts = [one["measured"] for one in json.loads(done.stdout)["findings"]]
    # What a busy machine has no time for is no matter of rights.
    denied = [one for one in texts if any(word in one for word in ("not looked at", "this check failed", "denied"))]
    assert len(texts) > 40 and denied == [], denied


def test_every_grave_check_has_a_planted_fault() -> None:
    source = Path(__file__).read_text().partition("def test_every_grave_check")[0]
    source += "".join(
        (HERE / f"test_audit_{of}.py").read_text() for of in ("data", "plugins", "hosts", "library", "builds", "beside")
    )
    planted = {case[0] for case in MADE_UP} | {one.id for one in ALL if f'"{one.id}"' in source}
    bare = [one.id for one in table.checks() if one.worst >= Severity.WARNING and one.id not in planted]
    # Random operations find what the others find, by the same words.
    assert bare == []
    assert len(planted) > 50

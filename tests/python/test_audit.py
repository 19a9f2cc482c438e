"""`stretto audit` without ranks: what it says of made-up machines, of trees that stand for one, of numbers, and its
page."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import GUARD, stretto
from stretto.audit import (
    blocks,
    child,
    compare,
    environment,
    facts,
    gpus,
    libraries,
    measurements,
    page,
    run,
    speed,
    table,
)
from stretto.audit.context import Context
from stretto.audit.facts import Facts, Nic
from stretto.audit.finding import ALL, SECTIONS, Check, Finding, Severity
from stretto.audit.gpus import Gpu
from stretto.audit.ladder import steps_of
from stretto.audit.measurements import Platform, Series

ROOT = Path(__file__).parents[2]
HEALTHY = Facts()
A_GPU = Gpu("a GPU", "0000:1b:00.0", memory=80 << 30, bar1=128 << 30, node=0, pcie_width=16, pcie_width_most=16)


def with_gpu(**changes: Any) -> dict[str, Any]:
    return {"gpus": (dataclasses.replace(A_GPU, **changes),), "driver": "a driver", "memlock": None}


# Check, the facts that differ from a healthy machine's, and a word of the cause or of the next step.
MADE_UP: list[tuple[str, dict[str, Any], str]] = [
    ("machine.cores", {"cores_allowed": (3,), "cores_online": 64}, "taskset"),
    ("machine.cpu-quota", {"cgroup_cores": 0.5}, "limits.cpu"),
    ("machine.siblings", {"siblings": ((0, 1),)}, "SMT"),
    ("machine.pressure", {"pressure": 80.0}, "other programs"),
    ("machine.steal", {"steal": 0.3}, "virtual cores"),
    ("machine.governor", {"governors": ("powersave",)}, "cpupower"),
    ("machine.clocksource", {"clocksource": "hpet"}, "unstable"),
    ("machine.memory", {"cgroup_memory": 1 << 28, "cgroup_memory_used": 200 << 20}, "container"),
    ("machine.memory", {"memory_available": 1 << 20}, "other programs"),
    ("machine.overcommit", {"overcommit": 2}, "strict"),
    ("machine.swap", {"swap_used": 1 << 32}, "short"),
    ("machine.numa", {"cores_allowed": tuple(range(9)), "nodes": ((0, tuple(range(8))), (1, (8,)))}, "affinity"),
    ("machine.huge-pages", {"huge_pages": "never"}, "madvise"),
    ("machine.shm-size", {"shm_size": 1 << 34, "shm_free": 1 << 20}, "other jobs"),
    ("machine.shm-size", {"shm_size": 32 << 20, "shm_free": 32 << 20}, "container"),
    ("machine.temporary", {"temporary": "No space left on device"}, "TMPDIR"),
    ("machine.nofile", {"nofile": 64, "nofile_hard": 4096}, "ulimit -n 4096"),
    ("machine.nproc", {"nproc": 10}, "RLIMIT_NPROC"),
    ("machine.address-space", {"address_space": 1 << 28}, "RLIMIT_AS"),
    ("machine.memlock", {"rdma": ("mlx5_0",), "memlock": 64 << 10}, "RLIMIT_MEMLOCK"),
    ("machine.map-count", {"max_map_count": 1000}, "lowered"),
    ("machine.ptrace", {"ptrace_scope": 3}, "hardened"),
    ("machine.seccomp", {"seccomp": 2, "refused": ("memfd_create (Operation not permitted)",)}, "seccomp"),
    ("machine.loopback", {"loopback": "Network is unreachable"}, "interface is down"),
    ("machine.ports", {"ports": (40000, 40003)}, "narrow"),
    ("machine.ports", {"ports": (32768, 60999), "ports_used": 28231}, "other programs"),
    (
        "machine.nic-speed",
        {"nics": (Nic("a", True, 9000, 100000, True), Nic("b", True, 9000, 25000, True))},
        "transceiver",
    ),
    ("machine.nic-mtu", {"nics": (Nic("a", True, 9000, 100000, True), Nic("b", True, 1500, 100000, True))}, "by hand"),
    ("machine.gpu-driver", {"driver": "a driver", "gpu_problem": "Driver/library version mismatch"}, "updated"),
    ("machine.gpu-modes", with_gpu(mig=True), "divided"),
    ("machine.gpu-modes", with_gpu(exclusive=True), "MPS"),
    ("machine.gpu-modes", with_gpu(persistence=False), "daemon"),
    ("machine.gpu-throttling", with_gpu(throttles=0x40), "heat"),
    ("machine.gpu-errors", with_gpu(ecc_errors=2), "row"),
    ("machine.gpu-links", with_gpu(links_inactive=1), "train"),
    ("machine.gpu-links", with_gpu(link_replays=50000), "signal"),
    ("machine.gpu-pcie", with_gpu(pcie_width=8), "riser"),
    ("machine.gpu-pcie", with_gpu(bar1=256 << 20), "Resizable BAR"),
    ("machine.gpu-numa", with_gpu(node=1) | {"nodes": ((0, (0, 1)), (1, ()))}, "affinity"),
    ("machine.iommu", with_gpu() | {"iommu_groups": 40}, "ACS"),
    ("environment.kernels", with_gpu(), "nvcc"),
]


def look(id: str, context: Context) -> list[Finding]:
    (one,) = [one for one in ALL if one.id == id]
    return run.look(one, context)


def gravest(findings: list[Finding]) -> Finding:
    return max(findings, key=lambda finding: finding.severity)


@pytest.mark.parametrize(("id", "changes", "word"), MADE_UP, ids=[case[0] for case in MADE_UP])
def test_a_made_up_fault_is_named(id: str, changes: dict[str, Any], word: str) -> None:
    if id == "environment.kernels":
        import stretto as package

        if package.build()["cuda"]:
            pytest.skip("this package has GPU kernels")
    context = Context(ranks=2, environment={}, given=dataclasses.replace(HEALTHY, **changes))
    found = gravest(look(id, context))
    assert found.severity > Severity.OK
    assert found.measured and found.expected and found.next_step
    assert word in found.cause + found.next_step
    (one,) = [one for one in ALL if one.id == id]
    assert found.severity <= one.worst


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    for given in (
        HEALTHY,
        dataclasses.replace(HEALTHY, **with_gpu(), nics=(Nic("a", True, 9000, 100000, True),)),
        dataclasses.replace(HEALTHY, nics=(Nic("eth0", True, 1500, 1000, True), Nic("ib0", True, 4092, 400000, True))),
    ):
        context = Context(environment={}, given=given)
        for one in table.checks(["machine"]):
            assert gravest(run.look(one, context)).severity <= Severity.NOTE, one.id


def test_every_check_says_why_and_stands_in_a_section() -> None:
    for one in ALL:
        assert one.section in SECTIONS and one.title and one.why.endswith((".", "`")), one.id
    assert len({one.id for one in ALL}) == len(ALL) > 60


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_facts_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu"
    root = tree(
        tmp_path,
        {
            f"{cpu}/online": "0-7\n",
            **{f"{cpu}/cpu{core}/cpufreq/scaling_governor": "powersave\n" for core in range(8)},
            **{f"{cpu}/cpu{core}/cpufreq/scaling_driver": "intel_pstate\n" for core in range(8)},
            **{f"{cpu}/cpu{core}/topology/thread_siblings_list": f"{core % 4},{core % 4 + 4}\n" for core in range(8)},
            "sys/devices/system/node/node0/cpulist": "0-3\n",
            "sys/devices/system/node/node1/cpulist": "4-7\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "proc/self/cgroup": "0::/pod/container\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/container/memory.max": "1073741824\n",
            "sys/fs/cgroup/pod/container/memory.current": "900001000\n",
            "sys/fs/cgroup/pod/container/memory.stat": "anon 600\nfile 900000400\ninactive_file 900000000\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\n",
            "proc/stat": "cpu  60 0 20 10 0 0 0 10 0 0\n",
            "proc/pressure/cpu": "some avg10=12.50 avg60=0 avg300=0 total=0\n",
            "proc/sys/kernel/yama/ptrace_scope": "2\n",
            "proc/sys/net/ipv4/ip_local_port_range": "40000\t40009\n",
            "proc/self/net/tcp": "  sl  local_address\n   0: 0100007F:9C41 00000000:0000 0A\n",
            "sys/class/net/eth3/speed": "100000\n",
            "sys/class/net/eth3/mtu": "9000\n",
            "sys/class/net/eth3/operstate": "up\n",
            "sys/class/net/eth3/device/vendor": "0x15b3\n",
        },
    )
    found = facts.read(root)
    assert found.frequency_drivers == ("intel_pstate",)
    assert found.cores_online == 8 and found.governors == ("powersave",) and found.clocksource == "hpet"
    assert (found.cgroup_cores, found.cgroup_memory, found.cgroup_memory_used) == (1.5, 1 << 30, 1000)
    assert (found.memory_total, found.swap_used, found.pressure, found.steal) == (1024000, 4096, 12.5, 0.1)
    assert (found.huge_pages, found.ptrace_scope) == ("never", 2)
    assert (found.ports, found.ports_used) == ((40000, 40009), 1)
    assert found.nics == (Nic("eth3", True, 9000, 100000, True),)
    assert [node for node, _ in found.nodes] == [0, 1]


def test_facts_of_an_older_cgroup(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n1:cpu,cpuacct:/b\n",
            "sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2048\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "2000\n",
            "sys/fs/cgroup/memory/a/memory.stat": "inactive_file 100\ntotal_inactive_file 1500\n",
        },
    )
    found = facts.read(root)
    assert (found.cgroup_cores, found.cgroup_memory, found.cgroup_memory_used) == (0.5, 2048, 500)


def test_the_room_is_that_of_the_tighter_limit() -> None:
    machine = Facts(memory_total=1000, memory_available=600)
    assert machine.memory_room == 600
    for limit, used, room in ((800, 700, 100), (800, 100, 600), (800, 900, 0), (1 << 50, 1 << 50, 600)):
        assert dataclasses.replace(machine, cgroup_memory=limit, cgroup_memory_used=used).memory_room == room


def test_the_usual_governor_of_processors_that_set_their_frequency_is_no_fault() -> None:
    for drivers, severity in (
        (("intel_pstate",), Severity.OK),
        (("amd-pstate-epp",), Severity.OK),
        (("acpi-cpufreq", "intel_pstate"), Severity.WARNING),
        (("intel_cpufreq",), Severity.WARNING),
    ):
        given = dataclasses.replace(HEALTHY, governors=("powersave",), frequency_drivers=drivers)
        assert gravest(look("machine.governor", Context(environment={}, given=given))).severity is severity, drivers


def test_a_python_without_a_system_call_says_nothing_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("memfd_create", "eventfd", "pidfd_open"):
        monkeypatch.delattr(os, name, raising=False)
    assert facts._refused() == ()


def test_a_call_that_the_kernel_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert facts._refused() == ("memfd_create (Operation not permitted)",)


def test_nothing_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    found = facts.read(tmp_path)
    assert found.cores_allowed and found.shm_size is None and found.gpus == ()


def test_gpus_are_asked_as_the_driver_answers(tmp_path: Path) -> None:
    library = tmp_path / "libfake.so"
    source = ROOT / "tests/topology/fake_nvml.cpp"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True, timeout=GUARD)
    found, problem = gpus.read_gpus(tmp_path, str(library))
    assert problem == "" and [gpu.bus_id for gpu in found] == ["0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"]
    # The third has two links up and one down; what this old library does not have is None.
    assert [gpu.links_inactive for gpu in found] == [0, 0, 1]
    assert (found[0].memory, found[0].ecc_errors, found[0].bar1) == (1000, None, None)


def test_a_driver_without_a_library_is_told() -> None:
    found, problem = gpus.read_gpus(Path("/"), "libno_such_nvml.so")
    assert found == () and "cannot open" in problem


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

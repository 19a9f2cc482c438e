"""The facts that `stretto audit` judges: faults of made-up machines, and reading them from trees that stand for one."""

from __future__ import annotations

import dataclasses
import errno
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jobs import GUARD
from stretto.audit import devices, facts, gpus, run, table
from stretto.audit.context import Context
from stretto.audit.facts import Facts, Nic
from stretto.audit.finding import ALL, Severity
from stretto.audit.gpus import Gpu
from test_audit import HEALTHY, ROOT, gravest, look

A_GPU = Gpu("a GPU", "0000:1b:00.0", memory=80 << 30, bar1=128 << 30, node=0, pcie_width=16, pcie_width_most=16)


def with_gpu(**changes: Any) -> dict[str, Any]:
    return {"gpus": (dataclasses.replace(A_GPU, **changes),), "driver": "a driver", "memlock": None}


def with_two_gpus(node: int) -> dict[str, Any]:
    """The second one is on that node."""
    return with_gpu() | {"gpus": (A_GPU, dataclasses.replace(A_GPU, node=node))}


A_NIC = Nic("a", True, 9000, 100000, True, node=0, ring=4096, ring_most=8192, segmentation=True, merging=True)


def with_nic(**changes: Any) -> dict[str, Any]:
    return {"nics": (dataclasses.replace(A_NIC, **changes),)}


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
    ("machine.numa", {"nodes": ((0, ()), (1, (0, 1))), "memory_nodes": (0,)}, "--membind=0"),
    ("machine.huge-pages", {"huge_pages": "never"}, "madvise"),
    ("machine.huge-pages", {"reserved_pages": 4 << 30, "reserved_pages_free": 3 << 30}, "vm.nr_hugepages=0"),
    ("machine.huge-pages", {"huge_pages_allowed": False}, "PR_SET_THP_DISABLE"),
    ("machine.shm-size", {"shm_size": 1 << 34, "shm_free": 1 << 20}, "other jobs"),
    ("machine.shm-size", {"shm_size": 32 << 20, "shm_free": 32 << 20}, "container"),
    ("machine.temporary", {"temporary": "No space left on device"}, "TMPDIR"),
    ("machine.nofile", {"nofile": 64, "nofile_hard": 4096}, "ulimit -n 4096"),
    ("machine.nproc", {"nproc": 10}, "RLIMIT_NPROC"),
    ("machine.nproc", {"cgroup_pids": 512, "cgroup_pids_used": 500}, "pids.max"),
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
    ("machine.nic-numa", with_nic(node=1) | {"nodes": ((0, (0, 1)), (1, ()))}, "--cpunodebind=1"),
    ("machine.nic-numa", with_nic(node=1) | with_gpu(node=0), "other socket"),
    ("machine.nic-numa", with_nic(node=0) | with_two_gpus(node=1), "no fast interface on node 1"),
    ("machine.nic-rings", with_nic(ring=256, ring_most=8192, received=1000000, missed=500), "ethtool -G a rx 8192"),
    ("machine.nic-rings", with_nic(ring=256, ring_most=8192), "default"),
    ("machine.nic-offloads", with_nic(segmentation=False), "tso on"),
    ("machine.nic-offloads", with_nic(merging=False), "gro on"),
    ("machine.gpu-driver", {"driver": "a driver", "gpu_problem": "Driver/library version mismatch"}, "updated"),
    ("machine.gpu-modes", with_gpu(mig=True), "divided"),
    ("machine.gpu-modes", with_gpu(exclusive=True), "MPS"),
    ("machine.gpu-modes", with_gpu(persistence=False), "daemon"),
    ("machine.gpu-mps", with_gpu() | {"mps": True}, "echo quit"),
    ("machine.gpu-throttling", with_gpu(throttles=0x40), "heat"),
    ("machine.gpu-clocks", with_gpu(clock=1200, clock_usual=1980), "-rac"),
    ("machine.gpu-clocks", with_gpu(memory_clock=1593, memory_clock_usual=2619), "nvidia-smi -ac"),
    ("machine.gpu-clocks", with_gpu(power=400000, power_usual=700000), "-pl 700"),
    ("machine.gpu-errors", with_gpu(ecc_errors=2), "row"),
    ("machine.gpu-xid", with_gpu() | {"xids": (("0000:1b:00", 79, 2),)}, "Xid"),
    ("machine.gpu-xid", with_gpu() | {"xids": (("0000:1b:00", 13, 1),)}, "a program that read"),
    ("machine.gpu-peers", with_gpu(refused_peers=(("0000:1c:00.0", 3),)), "sockets"),
    ("machine.gpu-peers", with_gpu(refused_peers=(("0000:1c:00.0", 2),)), "this kind of GPU"),
    ("machine.gpu-fabric", with_gpu(fabric=2), "fabric manager"),
    ("machine.gpu-links", with_gpu(links_inactive=1), "train"),
    ("machine.gpu-links", with_gpu(link_replays=50000), "signal"),
    ("machine.gpu-pcie", with_gpu(pcie_width=8), "riser"),
    ("machine.gpu-pcie", with_gpu(bar1=256 << 20), "Resizable BAR"),
    ("machine.gpu-numa", with_gpu(node=1) | {"nodes": ((0, (0, 1)), (1, ()))}, "affinity"),
    ("machine.iommu", with_gpu() | {"iommu_groups": 40}, "machine.acs"),
    ("machine.iommu", with_gpu() | {"iommu_groups": 40, "iommu_types": ("DMA-FQ", "identity")}, "iommu=pt"),
    ("machine.acs", with_gpu() | {"acs_redirects": ("0000:10:00.0", "0000:20:00.0")}, "setpci -s 0000:10:00.0"),
    ("environment.kernels", with_gpu(), "nvcc"),
]


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
    assert found.cause and word in found.cause + found.next_step
    (one,) = [one for one in ALL if one.id == id]
    assert found.severity <= one.worst


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    for given in (
        HEALTHY,
        dataclasses.replace(HEALTHY, **with_gpu(), nics=(Nic("a", True, 9000, 100000, True),)),
        dataclasses.replace(HEALTHY, **with_gpu(fabric=3), **with_nic(received=10**9, missed=3), acs_redirects=None),
        dataclasses.replace(
            HEALTHY, **with_gpu(exclusive=True), mps=True, xids=None, iommu_groups=9, iommu_types=("identity",)
        ),
        dataclasses.replace(HEALTHY, **with_gpu(clock=1980, clock_usual=1980, power=690000, power_usual=700000)),
        dataclasses.replace(HEALTHY, cgroup_pids=512, cgroup_pids_used=100, reserved_pages=4 << 30),
        dataclasses.replace(HEALTHY, nics=(Nic("eth0", True, 1500, 1000, True), Nic("ib0", True, 4092, 400000, True))),
    ):
        context = Context(environment={}, given=given)
        for one in table.checks(["machine"]):
            assert gravest(run.look(one, context)).severity <= Severity.NOTE, one.id


# ---- Reading ----------------------------------------------------------------------------------------------------


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
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 8 kB\nSwapFree: 4 kB\n"
            "HugePages_Total: 3\nHugePages_Free:    2\nHugepagesize:    2048 kB\n",
            "sys/fs/cgroup/pod/pids.max": "400\n",
            "sys/fs/cgroup/pod/pids.current": "390\n",
            "sys/fs/cgroup/pod/container/pids.max": "max\n",
            "sys/fs/cgroup/pod/container/pids.current": "7\n",
            "proc/stat": "cpu  60 0 20 10 0 0 0 10 0 0\n",
            "proc/pressure/cpu": "some avg10=12.50 avg60=0 avg300=0 total=0\n",
            "proc/sys/kernel/yama/ptrace_scope": "2\n",
            "proc/sys/net/ipv4/ip_local_port_range": "40000\t40009\n",
            "proc/self/net/tcp": "  sl  local_address\n   0: 0100007F:9C41 00000000:0000 0A\n",
            "sys/class/net/eth3/speed": "100000\n",
            "sys/class/net/eth3/mtu": "9000\n",
            "sys/class/net/eth3/operstate": "up\n",
            "sys/class/net/eth3/device/vendor": "0x15b3\n",
            "sys/class/net/eth3/device/numa_node": "1\n",
            "sys/class/net/eth3/statistics/rx_packets": "1000\n",
            "sys/class/net/eth3/statistics/rx_missed_errors": "7\n",
            "proc/self/status": "Seccomp:\t2\nTHP_enabled:\t0\nMems_allowed_list:\t0-1\n",
            "proc/self/numa_maps": "55d0 bind:0 file=/bin/sh mapped=3\n",
            "sys/kernel/iommu_groups/0/type": "identity\n",
            "sys/kernel/iommu_groups/1/type": "DMA-FQ\n",
            "proc/77/comm": "nvidia-cuda-mps\n",
        },
    )
    found = facts.read(root)
    assert found.frequency_drivers == ("intel_pstate",)
    assert (found.cgroup_pids, found.cgroup_pids_used) == (400, 390)
    assert (found.reserved_pages, found.reserved_pages_free) == (6 << 20, 4 << 20)
    assert found.cores_online == 8 and found.governors == ("powersave",) and found.clocksource == "hpet"
    assert (found.cgroup_cores, found.cgroup_memory, found.cgroup_memory_used) == (1.5, 1 << 30, 1000)
    assert (found.memory_total, found.swap_used, found.pressure, found.steal) == (1024000, 4096, 12.5, 0.1)
    assert (found.huge_pages, found.ptrace_scope) == ("never", 2)
    assert (found.ports, found.ports_used) == ((40000, 40009), 1)
    assert found.nics == (Nic("eth3", True, 9000, 100000, True, node=1, received=1000, missed=7),)
    assert (found.memory_nodes, found.huge_pages_allowed, found.seccomp) == ((0,), False, 2)
    assert (found.iommu_groups, found.iommu_types, found.mps) == (2, ("DMA-FQ", "identity"), True)
    assert [node for node, _ in found.nodes] == [0, 1]


def test_errors_of_gpus_are_read_from_the_kernels_log(tmp_path: Path) -> None:
    fell = "4,905,{},-;NVRM: Xid (PCI:0000:1B:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    more = "6,1,5,-;Linux version\n6,7,9,-;nvidia: module license 'NVIDIA'\n SUBSYSTEM=pci\n"
    root = tree(tmp_path, {"dev/kmsg": more + fell.format(1) + more * 1000 + fell.format(2)})
    assert devices.xids(root) == (("0000:1b:00", 79, 2),)
    assert devices.xids(tmp_path / "nowhere") is None


def test_bridges_that_redirect_are_read_from_their_settings(tmp_path: Path) -> None:
    def settings(control: int) -> bytes:
        """Two extended capabilities: the second one is access control."""
        text = bytearray(4096)
        struct.pack_into("<I", text, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
        struct.pack_into("<IHH", text, 0x148, 0x000D | 1 << 16, 0x5F, control)
        return bytes(text)

    def place(name: str, kind: str, text: bytes) -> None:
        folder = tmp_path / "sys/bus/pci/devices" / name
        tree(folder, {"class": kind})
        (folder / "config").write_bytes(text)

    place("0000:00:01.0", "0x060400\n", bytes(64))
    assert devices.redirecting_bridges(tmp_path) is None, "what a user may read has no such settings"
    place("0000:10:00.0", "0x060400\n", settings(0x1D))
    place("0000:20:00.0", "0x060400\n", settings(0x11))
    place("0000:30:00.0", "0x030200\n", settings(0x1D))
    assert devices.redirecting_bridges(tmp_path) == ("0000:10:00.0",)


def test_an_interface_that_is_not_there_says_nothing() -> None:
    assert devices.rings("no-such-nic") is None and devices.offloads("no-such-nic") == (None, None)


def test_facts_of_an_older_cgroup(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n2:pids:/c\n1:cpu,cpuacct:/b\n",
            "sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/pids/c/pids.max": "33\n",
            "sys/fs/cgroup/pids/c/pids.current": "3\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2048\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "2000\n",
            "sys/fs/cgroup/memory/a/memory.stat": "inactive_file 100\ntotal_inactive_file 1500\n",
        },
    )
    found = facts.read(root)
    assert (found.cgroup_cores, found.cgroup_memory, found.cgroup_memory_used) == (0.5, 2048, 500)
    assert (found.cgroup_pids, found.cgroup_pids_used) == (33, 3)


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
    assert [gpu.refused_peers for gpu in found[:2]] == [(("0000:1d:00.0", 3),)] * 2
    assert found[2].refused_peers == (("0000:1b:00.0", 3), ("0000:1c:00.0", 3))
    assert [gpu.fabric for gpu in found] == [3, 2, None]
    assert (found[0].memory, found[0].ecc_errors, found[0].bar1) == (1000, None, None)
    assert [gpu.clock for gpu in found] == [1980, 1980, 1200] and found[2].clock_usual == 1980
    assert (found[2].power, found[2].power_usual, found[2].memory_clock) == (400000, 700000, None)


def test_a_driver_without_a_library_is_told() -> None:
    found, problem = gpus.read_gpus(Path("/"), "libno_such_nvml.so")
    assert found == () and "cannot open" in problem

"""What the kernel says of this machine and of this process's limits. Reading is apart from judging, so that a test can
judge a machine that it does not have. Nothing here fails: what cannot be read is None, or empty.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stretto.audit.devices import offloads, redirecting_bridges, rings, xids
from stretto.audit.gpus import Gpu, driver_cuda, read_gpus

_UNLIMITED = resource.RLIM_INFINITY


@dataclass(frozen=True)
class Nic:
    """One network interface. `speed`: Mbit/s as the driver says, None where it does not (most virtual ones)."""

    name: str
    up: bool
    mtu: int
    speed: int | None = None
    physical: bool = False
    node: int | None = None
    ring: int | None = None  # packets that it has room for
    ring_most: int | None = None
    received: int = 0  # packets
    missed: int = 0  # packets for which there was no room
    segmentation: bool | None = None  # it cuts large sends into packets
    merging: bool | None = None  # received packets are put together


@dataclass(frozen=True)
class Facts:
    """One machine, seen by one process. Sizes in bytes; limits are None where there is none."""

    cores_allowed: tuple[int, ...] = (0, 1)
    cores_online: int = 2
    siblings: tuple[tuple[int, ...], ...] = ()  # allowed hardware threads that share a core
    cgroup_cores: float | None = None
    cgroup_memory: int | None = None
    cgroup_pids: int | None = None  # processes and threads that it may have
    cgroup_pids_used: int = 0
    cgroup_memory_used: int = 0  # without the file cache that the kernel gives back when it is needed
    memory_total: int = 1 << 34
    memory_available: int = 1 << 33
    swap_used: int = 0
    overcommit: int = 0
    nodes: tuple[tuple[int, tuple[int, ...]], ...] = ()  # NUMA node, its allowed cores
    governors: tuple[str, ...] = ()
    frequency_drivers: tuple[str, ...] = ()
    clocksource: str = ""
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes that memory may come from
    huge_pages_allowed: bool = True  # to this process
    reserved_pages: int = 0  # bytes that are set aside for huge pages of the old kind
    reserved_pages_free: int = 0
    huge_pages: str = ""  # what transparent huge pages of private memory are set to
    pressure: float | None = None  # percent of the last 10 s in which somebody waited for a core
    steal: float = 0.0  # share of processor time that the hypervisor gave to others, since boot
    load: float = 0.0
    shm_size: int | None = 1 << 34
    shm_free: int = 1 << 34
    temporary: str = ""  # why no file can be made in the folder for temporary ones
    nofile: int | None = None
    nofile_hard: int | None = None
    nproc: int | None = None
    address_space: int | None = None
    memlock: int | None = None
    max_map_count: int = 65530
    ptrace_scope: int | None = None
    seccomp: int = 0
    refused: tuple[str, ...] = ()  # system calls that the library uses and the kernel refuses
    loopback: str = ""  # why nobody can connect over loopback
    ports: tuple[int, int] = (32768, 60999)
    ports_used: int = 0
    nics: tuple[Nic, ...] = ()
    rdma: tuple[str, ...] = ()  # devices that read memory by themselves
    iommu_groups: int = 0
    iommu_types: tuple[str, ...] = ()  # of these groups: "identity" where addresses are not translated
    acs_redirects: tuple[str, ...] | None = ()  # PCI bridges by whose ACS peers talk through the root complex
    xids: tuple[tuple[str, int, int], ...] | None = ()  # of the kernel's log: a GPU's place, the error, how often
    mps: bool = False  # NVIDIA's server for several processes on a GPU runs
    driver: str = ""  # NVIDIA's kernel module, loaded or not
    driver_cuda: int | None = None  # the newest CUDA that it has: 12040 for 12.4
    gpus: tuple[Gpu, ...] = ()
    gpu_problem: str = ""
    kernel: str = ""
    processor: str = ""
    hypervisor: bool = False

    @property
    def memory_room(self) -> int:
        """What may still be allocated, of the machine's memory and of the cgroup's."""
        if self.cgroup_memory is None or self.cgroup_memory >= self.memory_total:
            return self.memory_available
        return min(self.memory_available, max(0, self.cgroup_memory - self.cgroup_memory_used))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def cores_of(text: str) -> tuple[int, ...]:
    """0, 1, 2 and 5 from "0-2,5"."""
    found: list[int] = []
    for part in text.replace("\n", "").split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last if dash and last.isdecimal() else first) + 1)
    return tuple(found)


def _memory(root: Path) -> dict[str, Any]:
    lines = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) << 10 * (len(words) == 3) for words in lines if len(words) in (2, 3)}
    page = sizes.get("Hugepagesize", 0)
    return {
        "reserved_pages": page * sizes.get("HugePages_Total", 0),
        "reserved_pages_free": page * sizes.get("HugePages_Free", 0),
        "memory_total": sizes.get("MemTotal", 0),
        "memory_available": sizes.get("MemAvailable", 0),
        "swap_used": sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0),
        "overcommit": _integer(_text(root / "proc/sys/vm/overcommit_memory")) or 0,
        "max_map_count": _integer(_text(root / "proc/sys/vm/max_map_count")) or 65530,
    }


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Those of this process from the root down, of version 2 and of a controller of version 1."""
    folders = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", controller) and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controllers or ".")
        parts = Path(path.lstrip("/")).parts
        folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    return folders


def _reclaimable(folder: Path) -> int:
    """File cache of a cgroup and those below it that nobody has used lately: it counts as used, and is given back when
    memory is short.
    """
    sizes = dict(line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    # Version 1 has two numbers; the one without "total" leaves out the cgroups below.
    return _integer(sizes.get("total_inactive_file", sizes.get("inactive_file", ""))) or 0


def _cgroup(root: Path) -> dict[str, Any]:
    """The tightest limits on the way down."""
    cores: list[float] = []
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quota = quota or _text(folder / "cpu.cfs_quota_us")
        period = period or _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            cores.append(int(quota) / int(period))
    memory: list[tuple[int, int]] = []
    for folder in _cgroup_folders(root, "memory"):
        limit = _integer(_text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes"))
        used = _integer(_text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes"))
        if limit is not None and limit < 1 << 60:
            memory.append((limit, max(0, (used or 0) - _reclaimable(folder))))
    tightest = min(memory, key=lambda one: one[0] - one[1], default=(None, 0))
    tasks: list[tuple[int, int]] = []
    for folder in _cgroup_folders(root, "pids"):
        limit, used = _integer(_text(folder / "pids.max")), _integer(_text(folder / "pids.current"))
        if limit is not None:
            tasks.append((limit, used or 0))
    fewest = min(tasks, key=lambda one: one[0] - one[1], default=(None, 0))
    return {
        "cgroup_pids": fewest[0],
        "cgroup_pids_used": fewest[1],
        "cgroup_cores": min(cores, default=None),
        "cgroup_memory": tightest[0],
        "cgroup_memory_used": tightest[1],
    }


def _cores(root: Path) -> dict[str, Any]:
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    system = root / "sys/devices/system"
    cpus = [system / f"cpu/cpu{core}" for core in allowed]
    siblings = {cores_of(_text(cpu / "topology/thread_siblings_list")) for cpu in cpus}
    shared = (tuple(core for core in group if core in allowed) for group in siblings)
    nodes = []
    for node in sorted((system / "node").glob("node[0-9]*")):
        own = tuple(core for core in cores_of(_text(node / "cpulist")) if core in allowed)
        nodes.append((int(node.name[4:]), own))
    return {
        "cores_allowed": allowed,
        "cores_online": len(cores_of(_text(system / "cpu/online"))) or os.cpu_count() or 1,
        "siblings": tuple(sorted(group for group in shared if len(group) > 1)),
        "nodes": tuple(nodes),
        "governors": tuple(sorted({_text(cpu / "cpufreq/scaling_governor") for cpu in cpus} - {""})),
        "frequency_drivers": tuple(sorted({_text(cpu / "cpufreq/scaling_driver") for cpu in cpus} - {""})),
        "clocksource": _text(system / "clocksource/clocksource0/current_clocksource"),
    }


def _busy(root: Path) -> dict[str, Any]:
    ticks = [int(word) for word in _text(root / "proc/stat").partition("\n")[0].split()[1:9]]
    words = dict(word.split("=") for word in _text(root / "proc/pressure/cpu").partition("\n")[0].split()[1:])
    return {
        "pressure": float(words["avg10"]) if "avg10" in words else None,
        "steal": ticks[7] / max(1, sum(ticks)) if len(ticks) == 8 else 0.0,
        "load": os.getloadavg()[0],
    }


def _selected(text: str) -> str:
    """ "madvise" from "always [madvise] never"."""
    return text.partition("[")[2].partition("]")[0] or text


def _space(folder: Path) -> dict[str, Any]:
    try:
        status = os.statvfs(folder)
    except OSError:
        return {"shm_size": None, "shm_free": 0}
    return {"shm_size": status.f_blocks * status.f_frsize, "shm_free": status.f_bavail * status.f_frsize}


def _temporary() -> str:
    """In the very folder that TMPDIR names: Python looks for another one where it is no good, and others do not."""
    try:
        with tempfile.TemporaryFile(dir=os.environ.get("TMPDIR") or None) as file:
            file.write(b"audit")
    except OSError as problem:
        return str(problem)
    return ""


def _limit(number: int, hard: bool = False) -> int | None:
    value = resource.getrlimit(number)[int(hard)]
    return None if value == _UNLIMITED else value


def _refused() -> tuple[str, ...]:
    """Tries what the library calls, where a filter may have a say."""
    found = []

    def attempt(name: str, call: Any) -> None:
        if call is None:
            return  # This Python was built where the C library does not have it.
        try:
            descriptor = call()
            if isinstance(descriptor, int):
                os.close(descriptor)
        except OSError as problem:
            # Not what every process may run out of, which has a check of its own.
            if problem.errno not in (23, 24):
                found.append(f"{name} ({problem.strerror})")

    for name, argument in (("memfd_create", "audit"), ("eventfd", 0)):
        function = getattr(os, name, None)
        attempt(name, function and functools.partial(function, argument))
    attempt("socket(AF_UNIX, SOCK_SEQPACKET)", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).detach())
    return tuple(found)


def _loopback() -> str:
    """A connection to oneself, as ranks meet."""
    try:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            listener.settimeout(2)
            stack.enter_context(socket.create_connection(listener.getsockname(), 2))
            stack.enter_context(listener.accept()[0])
    except OSError as problem:
        return str(problem)
    return ""


def _ports(root: Path) -> dict[str, Any]:
    words = _text(root / "proc/sys/net/ipv4/ip_local_port_range").split()
    first, last = (int(words[0]), int(words[1])) if len(words) == 2 else (32768, 60999)
    used = set()
    for table in ("tcp", "tcp6"):
        for line in _text(root / "proc/self/net" / table).splitlines()[1:]:
            port = int(line.split()[1].rpartition(":")[2], 16)
            if first <= port <= last:
                used.add(port)
    return {"ports": (first, last), "ports_used": len(used)}


def _nics(root: Path) -> tuple[Nic, ...]:
    """Drivers are asked on this machine alone, and not where a tree stands for another."""
    found, here = [], root == Path("/")
    for place in sorted((root / "sys/class/net").glob("*")):
        if place.name == "lo" or not place.is_dir():
            continue
        speed = _integer(_text(place / "speed"))
        ring, ring_most = (rings(place.name) if here else None) or (None, None)
        segmentation, merging = offloads(place.name) if here else (None, None)
        found.append(
            Nic(
                place.name,
                _text(place / "operstate") in ("up", "unknown"),
                _integer(_text(place / "mtu")) or 0,
                speed if speed and speed > 0 else None,
                (place / "device").exists(),
                _integer(_text(place / "device/numa_node")),
                ring,
                ring_most,
                _integer(_text(place / "statistics/rx_packets")) or 0,
                _integer(_text(place / "statistics/rx_missed_errors")) or 0,
                segmentation,
                merging,
            )
        )
    return tuple(found)


def _memory_nodes(root: Path) -> tuple[int, ...]:
    """Those of the cpuset, of which this process's policy may leave fewer."""
    allowed = cores_of(_status(root).get("Mems_allowed_list", ""))
    words = _text(root / "proc/self/numa_maps").partition("\n")[0].split()
    policy, _, nodes = words[1].partition(":") if len(words) > 1 else ("", "", "")
    bound = cores_of(nodes) if policy.startswith("bind") else allowed
    return tuple(node for node in allowed if node in bound)


def _mps(root: Path) -> bool:
    """By its processes, or by the pipe that clients find it by, where it is in another container."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (root / str(pipes).lstrip("/") / "control").exists():
        return True
    return any(_text(place / "comm").startswith("nvidia-cuda-mps") for place in (root / "proc").glob("[0-9]*"))


def _status(root: Path) -> dict[str, str]:
    lines = _text(root / "proc/self/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _processor(root: Path) -> dict[str, Any]:
    text = _text(root / "proc/cpuinfo")
    names = [
        line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(("model name", "CPU part"))
    ]
    return {"processor": names[0] if names else "", "hypervisor": " hypervisor" in text.partition("\n\n")[0]}


def read(root: Path = Path("/")) -> Facts:
    """This machine. `root`: where proc and sys lie, for tests."""
    gpus, problem = read_gpus(root)
    return Facts(
        **_cores(root),
        **_cgroup(root),
        **_memory(root),
        **_busy(root),
        **_space(root / "dev/shm"),
        **_ports(root),
        **_processor(root),
        memory_nodes=_memory_nodes(root),
        huge_pages_allowed=_status(root).get("THP_enabled", "1") != "0",
        huge_pages=_selected(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        temporary=_temporary(),
        nofile=_limit(resource.RLIMIT_NOFILE),
        nofile_hard=_limit(resource.RLIMIT_NOFILE, hard=True),
        nproc=_limit(resource.RLIMIT_NPROC),
        address_space=_limit(resource.RLIMIT_AS),
        memlock=_limit(resource.RLIMIT_MEMLOCK),
        ptrace_scope=_integer(_text(root / "proc/sys/kernel/yama/ptrace_scope")),
        seccomp=_integer(_status(root).get("Seccomp", "0")) or 0,
        refused=_refused(),
        loopback=_loopback(),
        nics=_nics(root),
        rdma=tuple(sorted(place.name for place in (root / "sys/class/infiniband").glob("*"))),
        iommu_groups=len(list((root / "sys/kernel/iommu_groups").glob("*"))),
        iommu_types=tuple(sorted({_text(one / "type") for one in (root / "sys/kernel/iommu_groups").glob("*")} - {""})),
        acs_redirects=redirecting_bridges(root),
        xids=xids(root),
        mps=_mps(root),
        driver=_text(root / "proc/driver/nvidia/version").partition("\n")[0],
        driver_cuda=driver_cuda(root),
        gpus=gpus,
        gpu_problem=problem,
        kernel=os.uname().release,
    )

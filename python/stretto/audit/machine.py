"""Checks of the machine as the kernel describes it: judgements of facts alone, which tests make up."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.words import bytes_text

# A rank of the library and of the program around it: sockets to the others, shared memory, its recorder, its log.
_DESCRIPTORS_OF_A_RANK = 16
_THREADS_OF_A_RANK = 4
_PORTS_OF_A_RANK = 4
# Of memory so much may lie idle as reserved huge pages before it is told of: a twentieth.
_SHARE_OF_RESERVED = 20
# With these drivers the processor sets its frequency itself: "powersave" is the usual balance, and no lowest frequency.
_OWN_FREQUENCY = {"intel_pstate", "amd-pstate-epp"}


@check("machine.cores", "cores that this process may use, against ranks", Severity.WARNING)
def cores(context: Context) -> Iterator[Finding]:
    """A rank that waits spins; two ranks on one core wait for the scheduler instead of for each other."""
    facts = context.facts
    allowed = len(facts.cores_allowed)
    if allowed < context.ranks:
        cut = allowed < facts.cores_online
        yield warning(
            f"{allowed} core{'s' * (allowed > 1)} for {context.ranks} ranks",
            "a core for each rank: otherwise every hand-over is a switch of threads",
            certainty="certain",
            cause=f"this process may use {allowed} of {facts.cores_online} cores (taskset, cpuset, Slurm's binding)"
            if cut
            else f"the machine has no more ({facts.cores_online})",
            next_step="widen the affinity: `taskset -p $$` shows it" if cut else "use fewer ranks, or a larger machine",
        )
    else:
        yield ok(f"{allowed} cores for {context.ranks} ranks")


@check("machine.cpu-quota", "the cgroup's share of processor time", Severity.WARNING)
def cpu_quota(context: Context) -> Iterator[Finding]:
    """A quota below the ranks' cores stops ranks for tens of milliseconds in every period, in the middle of
    operations."""
    quota = context.facts.cgroup_cores
    wanted = min(context.ranks, len(context.facts.cores_allowed))
    if quota is not None and quota < wanted:
        yield warning(
            f"the cgroup may use {quota:g} cores' time",
            f"{wanted} cores' time, as the ranks spin while they wait",
            certainty="certain",
            cause="a limit of the container (docker --cpus, Kubernetes limits.cpu)",
            next_step="raise the limit to a whole core for each rank, or bind cores with a cpuset instead",
        )
    else:
        yield ok("no quota" if quota is None else f"a quota of {quota:g} cores' time")


@check("machine.siblings", "ranks that would share a physical core", Severity.NOTE)
def siblings(context: Context) -> Iterator[Finding]:
    """Two hardware threads of a core share its caches and units: two ranks there are slower than on two cores."""
    shared = sum(len(group) - 1 for group in context.facts.siblings)
    cores = len(context.facts.cores_allowed) - shared
    if shared and cores < context.ranks:
        yield note(
            f"{context.ranks} ranks on {cores} cores of two hardware threads",
            "a physical core for each rank",
            cause="SMT is on, and the ranks need its threads",
            next_step="use as many ranks as cores",
        )
    else:
        yield ok(f"{cores} physical cores allowed")


@check("machine.pressure", "how busy the machine is", Severity.NOTE)
def pressure(context: Context) -> Iterator[Finding]:
    """What is measured on a busy machine is the crowd: the audit then says less, and says so."""
    facts = context.facts
    busy = facts.pressure if facts.pressure is not None else 100 * max(0.0, facts.load / len(facts.cores_allowed) - 1)
    if busy > 20:
        yield note(
            f"somebody waited for a core in {busy:.0f} % of the last 10 s (load {facts.load:.1f})",
            "an idle machine",
            cause="other programs run here",
            next_step="measure again when they are gone: times below are the best of many, and differences count "
            "for less",
        )
    else:
        yield ok(f"somebody waited for a core in {busy:.0f} % of the last 10 s")


@check("machine.steal", "processor time that the hypervisor gives to others", Severity.WARNING)
def steal(context: Context) -> Iterator[Finding]:
    """A virtual core that is taken away stops its rank, and everybody who waits for it."""
    share = context.facts.steal
    if share > 0.05:
        yield warning(
            f"{share:.0%} of processor time was stolen since the machine started",
            "under 1 %",
            certainty="certain",
            cause="the host runs more virtual cores than it has",
            next_step="move to an instance with dedicated cores",
        )
    else:
        yield ok(f"{share:.1%} stolen")


@check("machine.governor", "the frequency governor", Severity.WARNING)
def governor(context: Context) -> Iterator[Finding]:
    """powersave keeps cores slow until they have been busy for a while, and small operations never are. Not so with
    intel_pstate and amd-pstate in active mode, where the processor itself decides."""
    drivers = set(context.facts.frequency_drivers)
    usual = {"powersave"} if drivers and drivers <= _OWN_FREQUENCY else set()
    slow = [name for name in context.facts.governors if name in {"powersave", "conservative", "userspace"} - usual]
    if slow:
        yield warning(
            f"governor {', '.join(slow)}",
            "performance, or schedutil",
            certainty="likely",
            cause="the distribution's default, or a power plan",
            next_step="cpupower frequency-set -g performance (needs root)",
        )
    else:
        yield ok(", ".join(context.facts.governors) or "no governor (a virtual machine, or firmware decides)")


@check("machine.clocksource", "the clock that the kernel reads", Severity.WARNING)
def clocksource(context: Context) -> Iterator[Finding]:
    """With a clock that programs cannot read by themselves every look at the time is a system call of a microsecond."""
    source = context.facts.clocksource
    if source in ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"):
        yield warning(
            f"clocksource {source}",
            "tsc, kvm-clock or arch_sys_counter, which are read without a system call",
            certainty="possible",
            cause="the kernel found the processor's counter unstable, or was told to use another clock",
            next_step="look for 'clocksource' in dmesg; boot with tsc=reliable where the hypervisor guarantees it",
        )
    else:
        yield ok(source or "unknown")


@check("machine.memory", "memory for the ranks, of the cgroup and of the machine", Severity.ERROR)
def memory(context: Context) -> Iterator[Finding]:
    """Shared memory counts against the cgroup's limit: at it the kernel kills a rank, and the others lose their
    peer."""
    facts = context.facts
    limited = facts.cgroup_memory is not None and facts.cgroup_memory < facts.memory_total
    room = facts.memory_room
    wanted = context.ranks * (64 << 20)
    text = f"{bytes_text(room)} free" + (f" of the cgroup's {bytes_text(facts.cgroup_memory or 0)}" if limited else "")
    if room < wanted:
        yield error(
            text,
            f"{bytes_text(wanted)}: 64 MB for each of {context.ranks} ranks",
            certainty="certain",
            cause="the limit of the container" if limited else "other programs hold the memory",
            next_step="raise the memory limit (docker --memory, limits.memory)" if limited else "end what holds it",
        )
    else:
        yield ok(text)


@check("machine.overcommit", "whether memory can be promised", Severity.NOTE)
def overcommit(context: Context) -> Iterator[Finding]:
    """With strict accounting, mappings that are never touched count too, and fork of a large program fails."""
    if context.facts.overcommit == 2:
        yield note(
            "vm.overcommit_memory=2",
            "0 or 1",
            cause="strict accounting of promised memory",
            next_step="set it to 0, or vm.overcommit_ratio high enough",
        )
    else:
        yield ok(f"vm.overcommit_memory={context.facts.overcommit}")


@check("machine.swap", "memory on disk", Severity.NOTE)
def swap(context: Context) -> Iterator[Finding]:
    """A rank whose pages come back from disk is milliseconds late."""
    if context.facts.swap_used > context.facts.memory_total // 20:
        yield note(
            f"{bytes_text(context.facts.swap_used)} swapped out", "none", cause="memory was short", next_step="swapoff"
        )
    else:
        yield ok(f"{bytes_text(context.facts.swap_used)} swapped out")


@check("machine.numa", "allowed cores over NUMA nodes, and their memory", Severity.WARNING)
def numa(context: Context) -> Iterator[Finding]:
    """A rank whose memory is on another node than its core, a node without memory, or ranks spread by accident make
    every copy cross the sockets' link."""
    facts = context.facts
    nodes = {node: cores for node, cores in facts.nodes if cores}
    text = "; ".join(f"node {node}: {len(cores)} cores" for node, cores in nodes.items())
    apart = [node for node in nodes if facts.memory_nodes and node not in facts.memory_nodes]
    if apart:
        yield warning(
            f"cores on node {', '.join(map(str, apart))}, and memory from node "
            f"{', '.join(map(str, facts.memory_nodes))} alone",
            "memory of the node that a rank runs on",
            subject=f"node {apart[0]}",
            certainty="possible",
            cause="memory and cores were bound apart (numactl --membind, cpuset.mems), or that node has no memory",
            next_step=f"numactl --cpunodebind={facts.memory_nodes[0]} --membind={facts.memory_nodes[0]}",
        )
    elif len(nodes) > 1 and min(map(len, nodes.values())) * len(nodes) < len(facts.cores_allowed) / 2:
        yield warning(
            text,
            "as many allowed cores on each node that has any",
            certainty="likely",
            cause="an affinity that cuts off most of a node",
            next_step="numactl --cpunodebind, or let the launcher bind by node",
        )
    else:
        yield ok(text or "one node")


@check("machine.huge-pages", "huge pages, transparent and reserved", Severity.NOTE)
def huge_pages(context: Context) -> Iterator[Finding]:
    """Buffers of many megabytes are touched for the first time in a tenth of the time by pages of 2 MB."""
    if not context.facts.huge_pages_allowed:
        yield note(
            "this process and all that it starts may have no transparent huge pages",
            "the machine's setting for all; the platform section says what they are worth here",
            cause="prctl(PR_SET_THP_DISABLE) of whoever started it: a launcher, or a container's runtime",
            next_step="start it in another way: THP_enabled in /proc/PID/status says from which process on it holds",
        )
    elif (unused := context.facts.reserved_pages_free) > context.facts.memory_total // _SHARE_OF_RESERVED:
        yield note(
            f"{bytes_text(context.facts.reserved_pages)} of memory are set aside for huge pages of a fixed number, and "
            f"{bytes_text(unused)} of these are not used",
            "none, or those that a program here asks for: ranks have transparent huge pages, and get none of these",
            cause="vm.nr_hugepages, hugepages= of the kernel's command line, or a setting for a database or for DPDK",
            next_step="sysctl vm.nr_hugepages=0 (needs root), if nothing here needs them",
        )
    elif context.facts.huge_pages == "never":
        yield note(
            "transparent huge pages are off",
            "madvise or always; the platform section says what they are worth here",
            cause="a setting for databases",
            next_step="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (needs root)",
        )
    else:
        yield ok(context.facts.huge_pages or "unknown")


@check("machine.shm-size", "room in /dev/shm", Severity.ERROR)
def shm_size(context: Context) -> Iterator[Finding]:
    """NVIDIA's NCCL and PyTorch's loaders keep files there; when it is full a rank dies by SIGBUS. Containers give
    64 MB. Of Stretto's only the flight recorders are there, 16 MB at most in stretto-flight-UID; its shared memory has
    no file."""
    facts = context.facts
    wanted = context.ranks * (32 << 20)
    if facts.shm_size is None or facts.shm_free < wanted:
        size = (
            "no /dev/shm"
            if facts.shm_size is None
            else f"{bytes_text(facts.shm_free)} of {bytes_text(facts.shm_size)} free"
        )
        full = facts.shm_size is not None and facts.shm_size >= wanted
        yield (warning if facts.shm_size is None or full else error)(
            size,
            f"{bytes_text(wanted)}: 32 MB for each of {context.ranks} ranks",
            certainty="certain",
            cause="files that other jobs left there" if full else "the container's default",
            next_step="ls -l /dev/shm, and remove what no process has open"
            if full
            else "docker run --shm-size=8g, or --ipc=host",
        )
    else:
        yield ok(f"{bytes_text(facts.shm_free)} free")


@check("machine.temporary", "the folder for temporary files", Severity.ERROR)
def temporary(context: Context) -> Iterator[Finding]:
    """Ranks of torchrun and mpirun find each other through a file there."""
    problem = context.facts.temporary
    if problem:
        yield error(
            f"no file can be made in it: {problem}",
            "a folder that this user can write to",
            certainty="possible",
            cause="TMPDIR names a folder that is not there or full, or the root file system is read-only",
            next_step="set TMPDIR to a folder that can be written to",
        )
    else:
        yield ok("can be written to")


@check("machine.nofile", "open files", Severity.ERROR)
def nofile(context: Context) -> Iterator[Finding]:
    """Every rank has a connection to the others and to who watches it; a job at the limit fails when it starts."""
    limit, hard = context.facts.nofile, context.facts.nofile_hard
    # Ranks may be threads of one process; and the program has files of its own.
    wanted = 64 + _DESCRIPTORS_OF_A_RANK * context.ranks
    if limit is not None and limit < wanted:
        yield error(
            f"{limit} open files at most",
            f"{wanted}: {_DESCRIPTORS_OF_A_RANK} for each of {context.ranks} ranks, and 64 of the program",
            certainty="certain",
            cause="RLIMIT_NOFILE is low (ulimit -n)",
            next_step=f"ulimit -n {hard if hard is not None and hard >= wanted else 65536}"
            + ("" if hard is None or hard >= wanted else ", as root or in limits.conf: the hard limit is low too"),
        )
    else:
        yield ok("no limit" if limit is None else f"{limit} open files")


@check("machine.nproc", "processes and threads", Severity.ERROR)
def nproc(context: Context) -> Iterator[Finding]:
    """A rank that cannot start its thread fails when it joins. One limit counts all processes of the user, and one, of
    a container, those of the cgroup, root's among them."""
    facts = context.facts
    limit, wanted = facts.nproc, 32 + _THREADS_OF_A_RANK * context.ranks
    if facts.cgroup_pids is not None and facts.cgroup_pids - facts.cgroup_pids_used < wanted:
        yield error(
            f"{facts.cgroup_pids_used} of the {facts.cgroup_pids} processes and threads that the cgroup may have",
            f"{wanted} more",
            subject="cgroup",
            certainty="possible",
            cause="pids.max of the cgroup: a limit of the container, of a service or of a login session",
            next_step="docker run --pids-limit, Kubernetes' podPidsLimit, or TasksMax of the service",
        )
    if limit is not None and limit < wanted:
        yield error(
            f"{limit} processes and threads of this user at most",
            f"{wanted} and what else runs",
            certainty="certain",
            cause="RLIMIT_NPROC is low (ulimit -u)",
            next_step="ulimit -u 4096",
        )
    else:
        yield ok("no limit" if limit is None else f"{limit} processes and threads")


@check("machine.address-space", "address space", Severity.ERROR)
def address_space(context: Context) -> Iterator[Finding]:
    """Each rank maps the others' memory; CUDA reserves more than the machine has."""
    limit = context.facts.address_space
    wanted = (1 << 30) + context.ranks * (128 << 20) + (1 << 46 if context.facts.gpus else 0)
    if limit is not None and limit < wanted:
        yield error(
            f"{bytes_text(limit)} of address space at most",
            bytes_text(wanted),
            certainty="certain",
            cause="RLIMIT_AS is low (ulimit -v)",
            next_step="ulimit -v unlimited; limit memory by a cgroup instead",
        )
    else:
        yield ok("no limit" if limit is None else bytes_text(limit))


@check("machine.memlock", "memory that may be locked", Severity.WARNING)
def memlock(context: Context) -> Iterator[Finding]:
    """NICs read pinned memory: RDMA needs it unlimited, io_uring and zero-copy sends a little. CPU ranks over shared
    memory need none, and what CUDA pins does not count."""
    limit = context.facts.memlock
    wanted = (1 << 40) if context.facts.rdma else 64 << 10
    if limit is not None and limit < wanted:
        yield warning(
            f"{bytes_text(limit)} may be locked",
            "no limit, as RDMA pins its buffers"
            if context.facts.rdma
            else f"{bytes_text(wanted)}, for sends without copies",
            certainty="certain",
            cause="RLIMIT_MEMLOCK is low (ulimit -l)",
            next_step="ulimit -l unlimited, docker --ulimit memlock=-1, or limits.conf",
        )
    else:
        yield ok("no limit" if limit is None else bytes_text(limit))


@check("machine.map-count", "mappings of a process", Severity.WARNING)
def map_count(context: Context) -> Iterator[Finding]:
    """Many communicators and many ranks make many mappings."""
    if context.facts.max_map_count < 16384:
        yield warning(
            f"vm.max_map_count={context.facts.max_map_count}",
            "65530, the kernel's default",
            certainty="certain",
            cause="it was lowered",
            next_step="sysctl vm.max_map_count=65530",
        )
    else:
        yield ok(f"vm.max_map_count={context.facts.max_map_count}")


@check("machine.ptrace", "whether a process may look at another", Severity.NOTE)
def ptrace(context: Context) -> Iterator[Finding]:
    """Large messages between processes are read straight from the sender's memory where that is allowed, and copied
    twice where not; `stretto doctor` and `stretto top` need it too."""
    scope = context.facts.ptrace_scope
    if scope is not None and scope >= 2:
        yield note(
            f"kernel.yama.ptrace_scope={scope}",
            "0 or 1",
            cause="a hardened kernel",
            next_step="sysctl kernel.yama.ptrace_scope=1 (3 can be changed by a reboot only); or start doctor as root",
        )
    else:
        yield ok("not restricted" if not scope else f"ptrace_scope={scope}: parents and ranks of one user")


@check("machine.seccomp", "system calls that a filter refuses", Severity.ERROR)
def seccomp(context: Context) -> Iterator[Finding]:
    """Without memfd_create there is no shared memory, without eventfd and sockets no connection to other ranks."""
    facts = context.facts
    if facts.refused:
        yield error(
            f"refused: {', '.join(facts.refused)}",
            "the calls that ranks are made of",
            certainty="possible",
            cause="a seccomp filter" if facts.seccomp == 2 else "an old kernel, or a security module",
            next_step="docker run --security-opt seccomp=unconfined, or a profile that allows them",
        )
    else:
        yield ok("a filter, which lets all through that is needed" if facts.seccomp == 2 else "no filter")


@check("machine.loopback", "connections to this host itself", Severity.ERROR)
def loopback(context: Context) -> Iterator[Finding]:
    """Ranks meet by a socket before they share memory."""
    if context.facts.loopback:
        yield error(
            f"a connection over loopback fails: {context.facts.loopback}",
            "127.0.0.1 answers",
            certainty="possible",
            cause="the loopback interface is down (a new network namespace), or a firewall drops its packets",
            next_step="ip link set lo up",
        )
    else:
        yield ok("works")


@check("machine.ports", "TCP ports for connections", Severity.ERROR)
def ports(context: Context) -> Iterator[Finding]:
    """Each connection takes a port, for a minute after its end as well; without one a rank cannot join."""
    first, last = context.facts.ports
    total = last - first + 1
    free, wanted = total - context.facts.ports_used, _PORTS_OF_A_RANK * context.ranks
    text = f"{max(free, 0)} of {total} ports free ({first} to {last})"
    if free < wanted:
        few = total < 10 * wanted
        yield error(
            text,
            f"{wanted} for {context.ranks} ranks",
            certainty="certain",
            cause="net.ipv4.ip_local_port_range is narrow"
            if few
            else "connections of other programs, many of them closed",
            next_step='sysctl net.ipv4.ip_local_port_range="32768 60999"' if few else "`ss -s` says whose they are",
        )
    elif free < total / 20:
        yield warning(
            text,
            "one in twenty free",
            certainty="certain",
            cause="connections of other programs",
            next_step="`ss -s` says whose they are",
        )
    else:
        yield ok(text)

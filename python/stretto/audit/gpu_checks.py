"""Checks of GPUs, by what NVML says of their health: judgements of facts alone. They belong to the section
"machine"."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.gpus import FABRIC_STATES, PEER_REASONS, THROTTLES
from stretto.audit.words import bytes_text

# A setting counts as lowered below this share of what the GPU comes with.
_LOWERED = 0.95


@check("machine.gpu-driver", "NVIDIA's driver and its library", Severity.ERROR)
def gpu_driver(context: Context) -> Iterator[Finding]:
    """The kernel module and the library must be of one version: after an update without a reboot they are not."""
    facts = context.facts
    if facts.driver and facts.gpu_problem:
        yield error(
            f"a driver, and no GPU that can be asked: {facts.gpu_problem}",
            "NVML answers",
            certainty="possible",
            cause="the driver was updated and the old module is still loaded, or the container lacks the library",
            next_step="reboot, or reload the module; in a container use the NVIDIA runtime",
        )
    else:
        yield ok(f"{len(facts.gpus)} GPUs" if facts.driver else "no NVIDIA driver: CPU ranks only")


@check("machine.gpu-modes", "modes of the GPUs", Severity.WARNING)
def gpu_modes(context: Context) -> Iterator[Finding]:
    """MIG parts have no peer access; an exclusive GPU takes one process; without persistence the first call takes
    seconds."""
    for gpu in context.facts.gpus:
        if gpu.mig:
            yield warning(
                "MIG is on",
                "off, for ranks that talk over NVLink",
                subject=gpu.bus_id,
                certainty="certain",
                cause="the GPU was divided for other jobs",
                next_step=f"nvidia-smi -i {gpu.bus_id} -mig 0 (needs root)",
            )
        if gpu.exclusive and not context.facts.mps:
            yield warning(
                "compute mode EXCLUSIVE_PROCESS",
                "DEFAULT, or MPS running",
                subject=gpu.bus_id,
                certainty="possible",
                cause="set for MPS",
                next_step=f"nvidia-smi -i {gpu.bus_id} -c DEFAULT, or start the MPS daemon",
            )
        if gpu.persistence is False:
            yield note(
                "persistence mode is off",
                "on: otherwise the driver starts anew for each job",
                subject=gpu.bus_id,
                cause="the daemon does not run",
                next_step="systemctl enable --now nvidia-persistenced",
            )
    if not context.facts.gpus:
        yield ok("no GPUs")


@check("machine.gpu-mps", "NVIDIA's server for several processes on a GPU (MPS)", Severity.NOTE)
def gpu_mps(context: Context) -> Iterator[Finding]:
    """Its clients share one context: what one of them does wrong ends all of them, and their kernels share the
    multiprocessors."""
    if context.facts.mps and context.facts.gpus:
        yield note(
            "nvidia-cuda-mps-control runs, or has left its pipe behind",
            "off, where each rank has a GPU of its own",
            cause="somebody started nvidia-cuda-mps-control, for this job or another one",
            next_step="echo quit | nvidia-cuda-mps-control, unless ranks are to share GPUs",
        )
    else:
        yield ok("no GPUs" if not context.facts.gpus else "MPS does not run")


@check("machine.gpu-throttling", "GPUs that are slowed down", Severity.WARNING)
def gpu_throttling(context: Context) -> Iterator[Finding]:
    """One hot GPU makes all ranks wait."""
    for gpu in context.facts.gpus:
        reasons = [name for bit, name in THROTTLES.items() if gpu.throttles & bit]
        if reasons:
            yield warning(
                ", ".join(reasons),
                "none",
                subject=gpu.bus_id,
                certainty="possible",
                cause="heat, a fan, or a power supply that asks for less",
                next_step="nvidia-smi -q -d PERFORMANCE,TEMPERATURE; look at the fans and at the power supplies",
            )
        else:
            yield ok("not slowed down", subject=gpu.bus_id)


@check("machine.gpu-clocks", "clocks and power that the GPUs are given", Severity.WARNING)
def gpu_clocks(context: Context) -> Iterator[Finding]:
    """Somebody may have lowered them, to save power or to repeat a measurement; the setting stays until the driver is
    loaded again. The clocks of an idle GPU are low whatever they are set to, so the settings are looked at."""
    for gpu in context.facts.gpus:
        lowered = [
            (f"{what} {now / scale:g} {unit}", f"{usual / scale:g} {unit}", option)
            for what, now, usual, scale, unit, option in (
                ("multiprocessors are set to", gpu.clock, gpu.clock_usual, 1, "MHz", "-rac"),
                ("memory is set to", gpu.memory_clock, gpu.memory_clock_usual, 1, "MHz", "-rac"),
                ("power is set to", gpu.power, gpu.power_usual, 1000, "W", "-pl"),
            )
            if now is not None and usual is not None and now < _LOWERED * usual
        ]
        for measured, usual, option in lowered:
            yield warning(
                measured,
                f"{usual}, as the GPU comes",
                subject=gpu.bus_id,
                certainty="possible",
                cause="nvidia-smi -ac or -pl, or a tool of the data centre that keeps power down",
                next_step=f"nvidia-smi -i {gpu.bus_id} {option}{' ' + usual.split()[0] if option == '-pl' else ''} "
                "(needs root), if it is not meant",
            )
        if not lowered:
            yield ok("as the GPU comes" if gpu.power_usual or gpu.clock_usual else "not said", subject=gpu.bus_id)
    if not context.facts.gpus:
        yield ok("no GPUs")


@check("machine.gpu-errors", "memory errors of the GPUs", Severity.ERROR)
def gpu_errors(context: Context) -> Iterator[Finding]:
    """An uncorrected error is wrong data, or the end of the process that meets it."""
    for gpu in context.facts.gpus:
        if gpu.ecc_errors:
            yield error(
                f"{gpu.ecc_errors} uncorrected memory errors",
                "none",
                subject=gpu.bus_id,
                certainty="likely",
                cause="a failing row of memory",
                next_step="drain the host; reset the GPU, which maps the row out; then return it",
            )
        else:
            yield ok("no uncorrected errors" if gpu.ecc_errors == 0 else "no ECC", subject=gpu.bus_id)


# Errors that a program makes by what it does; and those after which a GPU is not to be used before somebody has looked
# at it: memory, links, firmware, off the bus. Of all others only the list says what they ask for.
_XIDS_OF_PROGRAMS = frozenset((8, 13, 31, 32, 43, 45, 68, 69))
_GRAVE_XIDS = frozenset((48, 62, 64, 74, 79, 95, 119, 120))


@check("machine.gpu-xid", "errors of GPUs in the kernel's log", Severity.ERROR)
def gpu_xid(context: Context) -> Iterator[Finding]:
    """NVIDIA's driver writes an Xid there for each. Most of them end the processes that use the GPU, and some come back
    until it is reset or replaced."""
    if context.facts.xids is None:
        yield ok("the kernel's log cannot be read by this user (kernel.dmesg_restrict)")
        return
    for place, number, count in context.facts.xids:
        of_program = number in _XIDS_OF_PROGRAMS
        ours = any(gpu.bus_id.lower().startswith(place.lower()) for gpu in context.facts.gpus)
        grave = number in _GRAVE_XIDS and ours
        yield (error if grave else note)(
            f"Xid {number} of {place}, {count} time{'s' * (count > 1)} since the machine started",
            "none",
            subject=f"{place} Xid {number}",
            certainty="certain" if grave else "likely",
            cause="a program that read or wrote where it may not, or was ended"
            if of_program
            else "the GPU, its memory, its links or its driver",
            next_step="look for that program's own messages of that time (dmesg -T)"
            if of_program
            else f"dmesg -T | grep Xid; NVIDIA's list of Xid errors says what {number} asks for",
        )
    if not context.facts.xids:
        yield ok("none")


@check("machine.gpu-peers", "GPUs that can read each other's memory", Severity.WARNING)
def gpu_peers(context: Context) -> Iterator[Finding]:
    """Two GPUs without peer access exchange data through the host's memory, which is slower than any link of theirs."""
    for gpu in context.facts.gpus:
        for other, code in gpu.refused_peers:
            reason = PEER_REASONS.get(code, f"status {code}")
            if other <= gpu.bus_id:
                continue  # said of the other one
            by_kind = code not in (3, 4)  # nothing that could be set in another way
            yield (note if by_kind else warning)(
                f"it cannot read the memory of {other}: {reason}",
                "peer access between all GPUs of a job",
                subject=f"{gpu.bus_id} and {other}",
                certainty="possible",
                cause="this kind of GPU or machine"
                if by_kind
                else "a setting of the driver or of the hypervisor, ACS, or slots of different sockets",
                next_step="nvidia-smi topo -p2p r; use GPUs of one socket, or see machine.acs and machine.iommu",
            )
    if not any(gpu.refused_peers for gpu in context.facts.gpus):
        yield ok("none is refused" if len(context.facts.gpus) > 1 else "no two GPUs")


@check("machine.gpu-fabric", "whether GPUs have joined their NVSwitches", Severity.ERROR)
def gpu_fabric(context: Context) -> Iterator[Finding]:
    """Until they have, no CUDA program starts on them (error 802), and there is no multicast (NVLS), which is a service
    of the switches."""
    for gpu in context.facts.gpus:
        state = FABRIC_STATES.get(gpu.fabric or 0, f"state {gpu.fabric}")
        if gpu.fabric in (1, 2) or (gpu.fabric == 3 and gpu.fabric_status):
            yield error(
                f"joining the switches: {state}, status {gpu.fabric_status}",
                "joined, status 0",
                subject=gpu.bus_id,
                certainty="possible",
                cause="the fabric manager does not run, is of another version than the driver, or has not finished",
                next_step="systemctl status nvidia-fabricmanager; its log is /var/log/fabricmanager.log",
            )
        else:
            yield ok(state, subject=gpu.bus_id)
    if not context.facts.gpus:
        yield ok("no GPUs")


@check("machine.gpu-links", "NVLinks of the GPUs", Severity.ERROR)
def gpu_links(context: Context) -> Iterator[Finding]:
    """A link that is off or sends again halves what a pair can move, and the slowest pair decides."""
    for gpu in context.facts.gpus:
        if gpu.links_inactive:
            yield error(
                f"{gpu.links_inactive} NVLinks are off, others are on",
                "all on",
                subject=gpu.bus_id,
                certainty="possible",
                cause="a link that failed to train: a bridge, a baseboard or a switch",
                next_step="nvidia-smi nvlink -s; reboot; then return it",
            )
        elif gpu.link_replays > 1000:
            yield warning(
                f"{gpu.link_replays} replays on NVLinks",
                "none, or a few",
                subject=gpu.bus_id,
                certainty="likely",
                cause="a link with a bad signal",
                next_step="nvidia-smi nvlink -e; compare with the other GPUs by --compare",
            )
        else:
            yield ok("no link is off", subject=gpu.bus_id)


@check("machine.gpu-pcie", "PCIe of the GPUs", Severity.WARNING)
def gpu_pcie(context: Context) -> Iterator[Finding]:
    """A GPU in a narrow slot is slow to and from the host and the NIC. The generation falls while a GPU is idle; its
    width does not."""
    for gpu in context.facts.gpus:
        if gpu.pcie_width and gpu.pcie_width_most and gpu.pcie_width < gpu.pcie_width_most:
            yield warning(
                f"x{gpu.pcie_width}",
                f"x{gpu.pcie_width_most}, which the GPU has",
                subject=gpu.bus_id,
                certainty="likely",
                cause="a riser, a slot with fewer lanes, or a lane that failed",
                next_step="reseat the card; lspci -vv says LnkSta",
            )
        elif gpu.bar1 is not None and gpu.memory and gpu.bar1 < gpu.memory:
            yield note(
                f"BAR1 of {bytes_text(gpu.bar1)} for {bytes_text(gpu.memory)}",
                "a BAR1 as large as the memory",
                subject=gpu.bus_id,
                cause="Resizable BAR or Above 4G Decoding is off in the firmware",
                next_step="switch it on, if peers or NICs are to read the memory directly",
            )
        else:
            yield ok(f"x{gpu.pcie_width}" if gpu.pcie_width else "unknown", subject=gpu.bus_id)


@check("machine.gpu-numa", "cores near the GPUs", Severity.WARNING)
def gpu_numa(context: Context) -> Iterator[Finding]:
    """A rank on the other socket launches later and feeds its GPU over the sockets' link."""
    nodes = {node for node, cores in context.facts.nodes if cores}
    for gpu in context.facts.gpus:
        if gpu.node is not None and gpu.node >= 0 and nodes and gpu.node not in nodes:
            yield warning(
                f"on NUMA node {gpu.node}; allowed cores are on {', '.join(map(str, sorted(nodes)))}",
                "allowed cores on the GPU's node",
                subject=gpu.bus_id,
                certainty="certain",
                cause="the affinity of this process (taskset, Slurm, Kubernetes' topology manager)",
                next_step=f"numactl --cpunodebind={gpu.node}",
            )
        else:
            yield ok("near", subject=gpu.bus_id)


@check("machine.iommu", "the IOMMU, with GPUs", Severity.NOTE)
def iommu(context: Context) -> Iterator[Finding]:
    """Translation in front of PCIe peers (IOMMU, ACS) sends their traffic through the root complex, or breaks it."""
    translates = set(context.facts.iommu_types) != {"identity"}
    if context.facts.gpus and context.facts.iommu_groups and translates and not context.facts.hypervisor:
        yield note(
            f"{context.facts.iommu_groups} IOMMU groups",
            "iommu=pt or off on a host without virtual machines",
            cause="the firmware's default",
            next_step="boot with iommu=pt; machine.acs says which bridges redirect",
            certainty="possible",
        )
    else:
        types = f" ({', '.join(context.facts.iommu_types)})" if context.facts.iommu_types else ""
        yield ok("off" if not context.facts.iommu_groups else f"{context.facts.iommu_groups} groups{types}")


@check("machine.acs", "PCI bridges that send peers through the root complex", Severity.NOTE)
def acs(context: Context) -> Iterator[Finding]:
    """With ACS a switch does not let its devices talk to each other: what GPUs and NICs send to one another goes up to
    the processor and down again, past what else goes there, or not at all."""
    bridges = context.facts.acs_redirects
    if bridges is None:
        yield ok("only root may read the bridges' settings, or there are no bridges")
    elif bridges and context.facts.gpus and not context.facts.hypervisor:
        # Linux switches it on at every bridge where there is an IOMMU; it costs only where GPUs share a switch.
        yield note(
            f"{len(bridges)} bridge{'s' * (len(bridges) > 1)} with ACS redirection, the first {bridges[0]}",
            "none between GPUs, on a host without virtual machines",
            subject=bridges[0],
            cause="the firmware or the kernel switched ACS on, as virtual machines need it",
            next_step=f"setpci -s {bridges[0]} ECAP_ACS+0x6.w=0000 for each (needs root), or the firmware's setting",
        )
    else:
        yield ok(f"{len(bridges)} bridges redirect" if bridges else "no bridge redirects")

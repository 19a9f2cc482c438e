"""Checks of GPUs, by what NVML says of their health: judgements of facts alone. They belong to the section
"machine"."""

from __future__ import annotations

from collections.abc import Iterator

from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.gpus import THROTTLES
from stretto.audit.words import bytes_text


@check("machine.gpu-driver", "NVIDIA's driver and its library", Severity.ERROR)
def gpu_driver(context: Context) -> Iterator[Finding]:
    """The kernel module and the library must be of one version: after an update without a reboot they are not."""
    facts = context.facts
    if facts.driver and facts.gpu_problem:
        yield error(
            f"a driver, and no GPU that can be asked: {facts.gpu_problem}",
            "NVML answers",
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
                cause="the GPU was divided for other jobs",
                next_step=f"nvidia-smi -i {gpu.bus_id} -mig 0 (needs root)",
            )
        if gpu.exclusive:
            yield warning(
                "compute mode EXCLUSIVE_PROCESS",
                "DEFAULT, or MPS running",
                subject=gpu.bus_id,
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
                cause="heat, a fan, or a power supply that asks for less",
                next_step="nvidia-smi -q -d PERFORMANCE,TEMPERATURE; look at the fans and at the power supplies",
            )
        else:
            yield ok("not slowed down", subject=gpu.bus_id)


@check("machine.gpu-errors", "memory errors of the GPUs", Severity.ERROR)
def gpu_errors(context: Context) -> Iterator[Finding]:
    """An uncorrected error is wrong data, or the end of the process that meets it."""
    for gpu in context.facts.gpus:
        if gpu.ecc_errors:
            yield error(
                f"{gpu.ecc_errors} uncorrected memory errors",
                "none",
                subject=gpu.bus_id,
                cause="a failing row of memory",
                next_step="drain the host; reset the GPU, which maps the row out; then return it",
            )
        else:
            yield ok("no uncorrected errors" if gpu.ecc_errors == 0 else "no ECC", subject=gpu.bus_id)


@check("machine.gpu-links", "NVLinks of the GPUs", Severity.ERROR)
def gpu_links(context: Context) -> Iterator[Finding]:
    """A link that is off or sends again halves what a pair can move, and the slowest pair decides."""
    for gpu in context.facts.gpus:
        if gpu.links_inactive:
            yield error(
                f"{gpu.links_inactive} NVLinks are off, others are on",
                "all on",
                subject=gpu.bus_id,
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
                cause="the affinity of this process (taskset, Slurm, Kubernetes' topology manager)",
                next_step=f"numactl --cpunodebind={gpu.node}",
            )
        else:
            yield ok("near", subject=gpu.bus_id)


@check("machine.iommu", "the IOMMU, with GPUs", Severity.NOTE)
def iommu(context: Context) -> Iterator[Finding]:
    """Translation in front of PCIe peers (IOMMU, ACS) sends their traffic through the root complex, or breaks it."""
    if context.facts.gpus and context.facts.iommu_groups and not context.facts.hypervisor:
        yield note(
            f"{context.facts.iommu_groups} IOMMU groups",
            "iommu=pt or off on a host without virtual machines",
            cause="the firmware's default",
            next_step="boot with iommu=pt; disable ACS on the switches that GPUs share (lspci -vvv | grep ACSCtl)",
            certainty="possible",
        )
    else:
        yield ok("off" if not context.facts.iommu_groups else f"{context.facts.iommu_groups} groups")

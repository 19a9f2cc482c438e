"""What NVIDIA's management library (NVML) says of the health of each GPU. `stretto topo` shows how they are
connected."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LIBRARY = "libnvidia-ml.so.1"
_MOST_LINKS = 18
# nvmlClocksThrottleReasons*: those by which a healthy GPU at work is slower than it should be.
THROTTLES = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "external power brake",
}

# nvmlGpuP2PStatus_t but for 0, which is that all is well.
PEER_REASONS = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "they are on different sockets",
    4: "a registry key of the driver forbids it",
    5: "it is not supported",
}
# nvmlGpuFabricState_t: how far a GPU has come in joining the NVSwitches that it hangs on.
FABRIC_STATES = {0: "no switches", 1: "not begun", 2: "in progress", 3: "joined"}


@dataclass(frozen=True)
class Gpu:
    """One GPU. None where the driver does not say."""

    name: str
    bus_id: str
    persistence: bool | None = None
    mig: bool | None = None
    exclusive: bool = False  # one process at a time may use it
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    throttles: int = 0  # a sum of the keys of THROTTLES
    links_inactive: int = 0
    link_replays: int = 0
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_generation: int | None = None
    pcie_generation_most: int | None = None
    memory: int = 0
    bar1: int | None = None
    node: int | None = None
    refused_peers: tuple[tuple[str, int], ...] = ()  # whose memory it cannot read, and why: a key of PEER_REASONS
    fabric: int | None = None  # a key of FABRIC_STATES
    clock: int | None = None  # MHz of the multiprocessors that programs are given
    clock_usual: int | None = None  # as the GPU comes
    memory_clock: int | None = None
    memory_clock_usual: int | None = None
    power: int | None = None  # mW that it may take
    power_usual: int | None = None
    fabric_status: int = 0  # with which it joined the switches; 0 is well


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class _Sizes(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Fabric(ctypes.Structure):
    _fields_ = (
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
    )


class _Device:
    """Asks one GPU; what it refuses to say is None."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def number(
        self, function: str, *arguments: int, of: Callable[[], ctypes._SimpleCData[int]] = ctypes.c_uint
    ) -> int | None:
        value = of()
        asked = getattr(self._library, function, None)
        if asked is None or asked(self._handle, *arguments, ctypes.byref(value)) != 0:
            return None
        return int(value.value)

    def sizes(self, function: str) -> _Sizes | None:
        value = _Sizes()
        asked = getattr(self._library, function, None)
        return value if asked is not None and asked(self._handle, ctypes.byref(value)) == 0 else None

    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        return (
            text.value.decode(errors="replace")
            if self._library.nvmlDeviceGetName(self._handle, text, 96) == 0
            else "a GPU"
        )

    def bus_id(self) -> str:
        value = _Pci()
        found = self._library.nvmlDeviceGetPciInfo_v3(self._handle, ctypes.byref(value)) == 0
        return value.bus_id.decode().lower()[-12:] if found else ""

    def mig(self) -> bool | None:
        now, after_reset = ctypes.c_uint(), ctypes.c_uint()
        asked = getattr(self._library, "nvmlDeviceGetMigMode", None)
        if asked is None or asked(self._handle, ctypes.byref(now), ctypes.byref(after_reset)) != 0:
            return None
        return bool(now.value)

    def fabric(self) -> tuple[int | None, int]:
        """How far it has come in joining its switches, and with which status."""
        value = _Fabric()
        asked = getattr(self._library, "nvmlDeviceGetGpuFabricInfo", None)
        if asked is None or asked(self._handle, ctypes.byref(value)) != 0:
            return None, 0
        return int(value.state), int(value.status)

    def refused(self, others: list[_Device]) -> tuple[tuple[str, int], ...]:
        """Those whose memory it cannot read."""
        asked, read = getattr(self._library, "nvmlDeviceGetP2PStatus", None), 0
        found = []
        for other in others:
            status = ctypes.c_int()
            if asked is None or other is self:
                continue
            if asked(self._handle, other._handle, read, ctypes.byref(status)) == 0 and status.value:
                found.append((other.bus_id(), int(status.value)))
        return tuple(found)

    def links(self) -> tuple[int, int]:
        """How many NVLinks are off while others are on, and how often the others had to send again."""
        states = [self.number("nvmlDeviceGetNvLinkState", link) for link in range(_MOST_LINKS)]
        replay_counter = 0
        replays = [
            self.number("nvmlDeviceGetNvLinkErrorCounter", link, replay_counter, of=ctypes.c_ulonglong) or 0
            for link, state in enumerate(states)
            if state
        ]
        return (states.count(0) if any(states) else 0), sum(replays)


def _read_gpu(device: _Device, all: list[_Device], root: Path) -> Gpu:
    bus_id, memory, bar1 = (
        device.bus_id(),
        device.sizes("nvmlDeviceGetMemoryInfo"),
        device.sizes("nvmlDeviceGetBAR1MemoryInfo"),
    )
    persistence, (inactive, replays) = device.number("nvmlDeviceGetPersistenceMode"), device.links()
    throttles = device.number("nvmlDeviceGetCurrentClocksThrottleReasons", of=ctypes.c_ulonglong) or 0
    node = root / "sys/bus/pci/devices" / bus_id / "numa_node"
    uncorrected, volatile = 1, 0
    multiprocessors, memories = 1, 2  # nvmlClockType_t
    fabric, fabric_status = device.fabric()
    return Gpu(
        name=device.name(),
        bus_id=bus_id,
        persistence=None if persistence is None else bool(persistence),
        mig=device.mig(),
        exclusive=device.number("nvmlDeviceGetComputeMode") == 3,
        ecc_errors=device.number("nvmlDeviceGetTotalEccErrors", uncorrected, volatile, of=ctypes.c_ulonglong),
        throttles=throttles & sum(THROTTLES),
        links_inactive=inactive,
        link_replays=replays,
        pcie_width=device.number("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_most=device.number("nvmlDeviceGetMaxPcieLinkWidth"),
        pcie_generation=device.number("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_generation_most=device.number("nvmlDeviceGetMaxPcieLinkGeneration"),
        memory=memory.total if memory else 0,
        bar1=bar1.total if bar1 else None,
        node=int(node.read_text()) if node.is_file() else None,
        refused_peers=device.refused(all),
        clock=device.number("nvmlDeviceGetApplicationsClock", multiprocessors),
        clock_usual=device.number("nvmlDeviceGetDefaultApplicationsClock", multiprocessors),
        memory_clock=device.number("nvmlDeviceGetApplicationsClock", memories),
        memory_clock_usual=device.number("nvmlDeviceGetDefaultApplicationsClock", memories),
        power=device.number("nvmlDeviceGetPowerManagementLimit"),
        power_usual=device.number("nvmlDeviceGetPowerManagementDefaultLimit"),
        fabric=fabric,
        fabric_status=fabric_status,
    )


def driver_cuda(root: Path, library: str = _LIBRARY) -> int | None:
    """The newest CUDA that the driver has, as 12040 for 12.4; None where there is no driver, or it does not say."""
    if not (root / "proc/driver/nvidia/version").exists() and library == _LIBRARY:
        return None
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    asked, version = getattr(nvml, "nvmlSystemGetCudaDriverVersion_v2", None), ctypes.c_int()
    if asked is None or nvml.nvmlInit_v2() != 0:
        return None
    try:
        return int(version.value) if asked(ctypes.byref(version)) == 0 else None
    finally:
        nvml.nvmlShutdown()


def read_gpus(root: Path, library: str = _LIBRARY) -> tuple[tuple[Gpu, ...], str]:
    """All GPUs of this host, or why none can be seen; neither where there is no driver."""
    if not (root / "proc/driver/nvidia/version").exists() and library == _LIBRARY:
        return (), ""
    try:
        nvml = ctypes.CDLL(library)
    except OSError as problem:
        return (), str(problem)
    status = nvml.nvmlInit_v2()
    if status != 0:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        return (), f"nvmlInit_v2: {nvml.nvmlErrorString(status).decode()}"
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        devices = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                devices.append(_Device(nvml, handle))
        return tuple(_read_gpu(device, devices, root) for device in devices), ""
    finally:
        nvml.nvmlShutdown()

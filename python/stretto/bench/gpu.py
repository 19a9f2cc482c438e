"""What a benchmark on GPUs needs to find: the GPUs, the libraries to compare, and how nccl_driver is told of one."""

import ctypes
import importlib.util
import os
from pathlib import Path

from stretto.bench.drivers import CHECKOUT, PACKAGE, Missing, find_driver
from stretto.bench.job import Launch
from stretto.bench.options import Options

DRIVER = "nccl_driver"
# Loading a kernel at its first launch may wait for the whole GPU, and so for a rank that waits for this one.
# A kernel of each rank runs at a time.
_SHARED = {"STRETTO_SHARED_DEVICE": "2", "CUDA_MODULE_LOADING": "EAGER"}
_WAITS = "STRETTO_TIMEOUT"


def count_gpus() -> int:
    """How many there are, by CUDA's driver; Missing with the reason where it cannot be asked."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Missing("there is no GPU here: CUDA's driver (libcuda.so.1) is not installed") from error
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        raise Missing(f"there is no GPU here: CUDA's driver answers with error {status}")
    return count.value


def need_gpus(options: Options) -> None:
    """Raises Missing, with one sentence, where the ranks have no GPUs to run on."""
    found = count_gpus()
    needed = 1 if options.shared_device else max(options.ranks, 2 if options.limits else 1)
    if found < needed:
        hint = "" if options.shared_device else "; --shared-device puts all ranks on one"
        raise Missing(f"{needed} ranks need as many GPUs and here are {found}{'' if options.limits else hint}")


def find_stretto(options: Options) -> Path:
    """Our own libnccl.so.2: the one named, that beside the drivers, the package's, then the checkout's."""
    if options.library is not None:
        return _named("--library", options.library)
    folders = [PACKAGE.parent / "lib", CHECKOUT / "build"]
    builds = sorted(CHECKOUT.glob("build*/libnccl.so.2"), key=lambda path: path.stat().st_mtime, reverse=True)
    drivers = os.environ.get("STRETTO_BENCH_DRIVERS")
    if drivers:
        folders = [Path(drivers), Path(drivers).parent]
        builds = []
    for path in [*(folder / "libnccl.so.2" for folder in folders), *builds]:
        if path.exists():
            return path.resolve()
    places = ", ".join(str(folder) for folder in folders)
    raise Missing(f"no libnccl.so.2 of Stretto's in {places}: `make build` makes it, or name it with --library")


def find_nccl(options: Options) -> Path:
    """NVIDIA's libnccl.so.2: the one named, that of the wheel in this Python, or the one that `make setup` fetched."""
    if options.nccl is not None:
        return _named("--nccl", options.nccl)
    places: list[Path] = []
    spec = importlib.util.find_spec("nvidia") if importlib.util.find_spec("nvidia") else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        places.append(Path(folder) / "nccl" / "lib")
    places.append(CHECKOUT / ".cache" / "nccl" / "nvidia" / "nccl" / "lib")
    for place in places:
        if (place / "libnccl.so.2").exists():
            return (place / "libnccl.so.2").resolve()
    raise Missing("NVIDIA's NCCL is not here: pip install nvidia-nccl-cu13, or name its libnccl.so.2 with --nccl")


def _named(flag: str, path: Path) -> Path:
    if not path.exists():
        raise Missing(f"{flag} {path}: there is no such file")
    return path.resolve()


def rings(options: Options) -> dict[str, str]:
    """The environment in which Stretto's rings are as was asked for."""
    return {"STRETTO_RING_GATHER": options.ring_gather} if options.ring_gather else {}


def launch_library(name: str, library: Path, options: Options, folder: Path, buffer_bytes: int) -> Launch:
    """nccl_driver's processes for one library; its ranks are threads only where that is asked of Stretto."""
    command = [str(find_driver(DRIVER)), "--library", str(library), "--name", name, "--folder", str(folder)]
    command += ["--ranks", str(options.ranks), "--max-bytes", str(buffer_bytes), "--timeout", f"{options.timeout:g}"]
    command += ["--window"] if options.buffers == "alloc" else []
    command += ["--shared-device"] if options.shared_device else []
    environment = dict(_SHARED) if options.shared_device else {}
    if name.startswith("stretto"):
        environment |= rings(options)
        # A wait in a kernel ends before the driver's own limit, and says who waited for whom, in which operation.
        environment |= {} if _WAITS in os.environ else {_WAITS: f"{options.timeout / 2:g}"}
        command += ["--blocks", str(options.blocks)] if options.blocks else []
        if options.threads:
            return Launch([[*command, "--threads"]], environment)
    return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)], environment)

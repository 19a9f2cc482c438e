"""Finding the native drivers, or compiling the one that belongs to somebody else's library.

`stretto_driver` and `memcpy_driver` come with Stretto's own build. `openmpi_driver` cannot: it must be
compiled by the mpicxx of the OpenMPI that will run it, so it is compiled when first needed and kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[2]
_COMPILE_SECONDS = 300


class Missing(RuntimeError):
    """Something that a benchmark needs is not on this machine; the text says what, and how to get it."""


def find_driver(name: str) -> Path:
    """A driver of our own build: $STRETTO_BENCH_DRIVERS, the package, then the checkout's build folders."""
    named = os.environ.get("STRETTO_BENCH_DRIVERS")
    if named:
        folders = [Path(named)]
    else:
        builds = sorted(CHECKOUT.glob("build*/benchmarks"), key=lambda folder: folder.stat().st_mtime)
        folders = [PACKAGE / "bin", CHECKOUT / "build" / "benchmarks", *reversed(builds)]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    places = ", ".join(str(folder) for folder in folders)
    is_checkout = (CHECKOUT / "CMakeLists.txt").exists()
    how = "`make build` makes it" if is_checkout else "a package has those for GPUs if it was built where nvcc is"
    raise Missing(f"no {name} in {places}: {how}; or name its folder in STRETTO_BENCH_DRIVERS")


def find_source() -> Path:
    """The folder that holds the drivers' sources."""
    for folder in (CHECKOUT / "benchmarks", PACKAGE / "native"):
        if (folder / "driver.hpp").exists():
            return folder
    raise Missing("the drivers' sources are not here: run from a checkout of Stretto")


def cache_folder() -> Path:
    if (CHECKOUT / "CMakeLists.txt").exists():
        return CHECKOUT / ".cache" / "bench"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stretto" / "bench"


def compile_driver(name: str, compiler: Path) -> Path:
    """Compiles `name`.cpp with the given C++ compiler, unless the same was done before."""
    source = find_source()
    texts = [source / f"{name}.cpp", *sorted(source.glob("*.hpp"))]
    key = hashlib.sha256(str(compiler).encode())
    for text in texts:
        key.update(text.read_bytes())
    program = cache_folder() / f"{name}-{key.hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    draft = program.with_suffix(f".{os.getpid()}")
    command = [str(compiler), "-std=c++20", "-O3", "-pthread", str(texts[0]), "-o", str(draft)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{compiler} took more than {_COMPILE_SECONDS} s to compile {name}.cpp") from error
    if done.returncode != 0:
        raise Missing(f"{compiler} cannot compile {name}.cpp:\n{(done.stdout + done.stderr)[-2000:]}")
    draft.rename(program)
    return program


def find_program(name: str) -> Path | None:
    """A program beside this Python first, then on the PATH."""
    beside = Path(sys.executable).parent / name
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    return Path(found) if found else None

"""An installed tree is complete: a stranger's C program finds it by CMake and by pkg-config's file, and runs."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from abi_wheel import build

PROGRAM = """
#include <nccl.h>
#include <stdio.h>
int main(void) {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  printf("%d", version);
  return 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(stranger LANGUAGES C CXX)
find_package(stretto 0.1 REQUIRED)
add_executable(stranger stranger.c)
target_link_libraries(stranger PRIVATE stretto::stretto)
"""


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    first = tmp_path_factory.mktemp("install") / "before"
    run("cmake", "--install", build(), "--prefix", first)
    moved = first.with_name("after")  # an installed tree can be moved
    yield first.rename(moved)


def test_holds_what_it_should(installed: Path) -> None:
    found = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if not path.is_dir()}
    headers = {name for name in found if name.startswith("include/")}
    names = ("nccl.h", "stretto.h", "stretto_nccl_config.h", "stretto_nccl_twins.h")
    assert {f"include/{name}" for name in names} == headers
    libraries = {name for name in found if ".so" in name}
    stems = {"libstretto.so", "libstretto.so.0", "libnccl.so", "libnccl.so.2"}
    plugins = {"libnccl-profiler-stretto.so", "libnccl-net-stretto.so"}
    assert {Path(name).name for name in libraries} == stems | plugins


def test_a_stranger_builds_with_cmake(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "stranger.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "out", f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", tmp_path / "out")
    assert run(tmp_path / "out" / "stranger") == "23203"


@pytest.mark.parametrize("library", ["stretto", "nccl"])
def test_a_stranger_links_by_hand(installed: Path, tmp_path: Path, library: str) -> None:
    """With the flags of stretto.pc; and an old program's -lnccl finds the same."""
    file = next(installed.rglob("stretto.pc"))
    pairs = re.findall(r"^(\w+)=(.*)$", file.read_text(), re.M)
    values = {"pcfiledir": str(file.parent)}
    for key, value in pairs:
        values[key] = re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], value)
    (tmp_path / "stranger.c").write_text(PROGRAM)
    program, libdir = tmp_path / "stranger", values["libdir"]
    flags = [f"-I{values['includedir']}", f"-L{libdir}", f"-l{library}", f"-Wl,-rpath,{libdir}"]
    run("g++", "-x", "c", tmp_path / "stranger.c", "-x", "none", *flags, "-o", program)
    assert run(program) == "23203"

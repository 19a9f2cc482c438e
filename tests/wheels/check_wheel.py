"""What tools/wheels made, tried as users do: in an empty environment, away from the checkout.

Run by `make wheel`, on the newest wheel in dist/ for this Python and the source package beside it; STRETTO_WHEELS names
another folder. Not one of the tests that pytest finds by itself, since it needs those files.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("STRETTO_WHEELS", ROOT / "dist"))
SECONDS = 300
NEWEST_GLIBC = (2, 28)
ELF = b"\x7fELF"
# More than all of them take on a machine that does a lot else.
pytestmark = pytest.mark.timeout(2 * SECONDS)
C_PROGRAM = """
#include <stdio.h>
#include <stretto.h>
int main(void) {
  printf("%s", strettoVersion());
  return 0;
}
"""
# CUDA's driver, as far as a library in host memory asks it: everything that cannot be read is memory of a GPU.
FAKE_DRIVER = """
#include <stddef.h>
void *memory;
int cuPointerGetAttribute(void *out, int attribute, unsigned long long address) {
  if (address != (size_t)memory) return 1;
  *(unsigned *)out = attribute == 2 ? 2 : 0;
  return 0;
}
"""
GIVES_MEMORY_OF_A_GPU = """
import ctypes, stretto
driver = ctypes.CDLL("./libcuda.so.1")
memory = ctypes.c_void_p.in_dll(driver, "memory")
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
memory.value = libc.mmap(None, ctypes.c_size_t(4096), 0, 0x22, -1, ctypes.c_size_t(0))
nccl = ctypes.CDLL(str(stretto.nccl_library_path()))
comm, host = ctypes.c_void_p(), ctypes.create_string_buffer(64)
assert nccl.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
count = ctypes.c_size_t(1)
print(nccl.ncclAllReduce(memory, host, count, 7, 0, comm, None))
nccl.ncclGetLastError.restype = ctypes.c_char_p
print(nccl.ncclGetLastError(None).decode())
"""
C_PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(stranger LANGUAGES C)
find_package(stretto 0.1 REQUIRED)
add_executable(stranger stranger.c)
target_link_libraries(stranger PRIVATE stretto::stretto)
"""


def run(*command: str | Path, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}"
    return done.stdout


def wheel_file() -> Path:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = sorted(FOLDER.glob(f"stretto-*-{tag}-*.whl"), key=lambda path: path.stat().st_mtime)
    assert found, f"no wheel for {tag} in {FOLDER}: tools/wheels makes one"
    return found[-1]


def has_kernels() -> bool:
    return "+cpu" not in wheel_file().name


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel and what it depends on, and an empty folder to work in."""

    environment: Path
    folder: Path

    @property
    def package(self) -> Path:
        return next(self.environment.glob("lib/python3*/site-packages/stretto"))

    def run(self, *words: str | Path) -> str:
        """One of its commands, where nothing of the checkout is found."""
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("STRETTO_", "NCCL_", "PYTHON"))
        }
        clean["PATH"] = f"{self.environment / 'bin'}{os.pathsep}{clean['PATH']}"
        return run("env", *words, cwd=self.folder, environment=clean)

    def json(self, *words: str) -> dict[str, object]:
        self.run(*words, "--json", "answer.json")
        return dict(json.loads((self.folder / "answer.json").read_text()))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("wheel")
    found = Installed(place / "environment", place / "work")
    found.folder.mkdir()
    run(sys.executable, "-m", "venv", found.environment)
    pip = [found.environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    said = run(*pip, wheel_file())
    # All that pip shows of a package at the end; one without kernels says so there.
    assert f"stretto-{wheel_file().name.split('-')[1]}" in said.splitlines()[-1]
    yield found
    shutil.rmtree(place)


def members() -> set[str]:
    with zipfile.ZipFile(wheel_file()) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def test_is_for_its_platform_and_small() -> None:
    assert wheel_file().name.endswith("-manylinux_2_28_x86_64.whl")
    assert wheel_file().stat().st_size < 30e6


def test_holds_everything_that_the_commands_need() -> None:
    drivers = ["stretto_driver", "memcpy_driver", "platform_driver", "net_driver", "kinds_driver", "liblab_kinds.so"]
    drivers += ["nccl_driver", "limits_driver"] if has_kernels() else []
    libraries = [
        "libstretto.so",
        "libnccl.so.2",
        "libnccl-profiler-stretto.so",
        "libnccl-profiler-empty.so",
        "libnccl-net-stretto.so",
    ]
    wanted = {f"stretto/bench/bin/{name}" for name in drivers} | {f"stretto/lib/{name}" for name in libraries}
    wanted |= {"stretto/include/nccl.h", "stretto/include/stretto.h", "stretto/trace/viewer.html", "stretto/py.typed"}
    wanted |= {"stretto/lib/pkgconfig/stretto.pc", "stretto/lib/cmake/stretto/stretto-config.cmake"}
    assert wanted <= members()
    programs = {name for name in members() if "/bench/bin/" in name}
    assert programs == {f"stretto/bench/bin/{name}" for name in drivers}


def test_asks_the_machine_for_nothing_new(installed: Installed) -> None:
    """By each file's own symbol table, beside what auditwheel said when it named the wheel."""
    looked_at = 0
    for file in installed.package.rglob("*"):
        if not file.is_file() or file.read_bytes()[:4] != ELF:
            continue
        looked_at += 1
        versions = re.findall(r"UND .*@GLIBC_([0-9.]+)", run("readelf", "-W", "--dyn-syms", file))
        assert versions, file
        newest = max(tuple(int(part) for part in version.split(".")) for version in versions)
        assert newest[:2] <= NEWEST_GLIBC, f"{file.name}: {newest}"
        dynamic = run("readelf", "-W", "-d", file)
        assert "libstdc++" not in dynamic, file
        for path in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
            assert all(part.startswith("$ORIGIN") for part in path.split(":")), f"{file.name}: {path}"
    assert looked_at >= 7


def test_says_how_it_was_built(installed: Installed) -> None:
    facts = installed.json("stretto", "info")
    assert facts["cuda"] is has_kernels()
    assert re.fullmatch(r"[0-9a-f]{12}( with changes)?", str(facts["commit"]))
    assert str(facts["library"]).startswith(str(installed.environment))


def test_runs_hello(installed: Installed) -> None:
    said = installed.run("stretto", "run", "-n", "4", ROOT / "examples/01_hello.py")
    assert sorted(said.splitlines()) == [f"rank {rank} of 4: [6. 6. 6. 6.]" for rank in range(4)]


def test_runs_bench(installed: Installed) -> None:
    short = ["-b", "8", "-e", "64K", "-f", "16", "--rounds", "3", "--budget-ms", "5"]
    measured = installed.json("stretto", "bench", "all_reduce", *short)
    rows = measured["rows"]
    assert isinstance(rows, list)
    ours = [row for row in rows if row["implementation"] == "stretto"]
    assert len(ours) == 4 and all(row["wrong"] == 0 and row["us_median"] > 0 for row in ours)


def test_records_and_shows_a_job(installed: Installed) -> None:
    job = ["stretto", "run", "-n", "4", str(ROOT / "examples/05_straggler.py")]
    installed.run("stretto", "trace", "record", "-o", "run1", "--", *job)
    assert "rank" in installed.run("stretto", "trace", "report", "run1")
    installed.run("stretto", "trace", "view", "run1", "-o", "timeline.html")
    page = (installed.folder / "timeline.html").read_text()
    assert page.startswith("<!") and len(page) > (installed.package / "trace/viewer.html").stat().st_size


def test_refuses_memory_of_a_gpu(installed: Installed) -> None:
    """It is never read, which would end the program. A library without CUDA says why it does not take it."""
    (installed.folder / "driver.c").write_text(FAKE_DRIVER)
    shared = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    run("gcc", *shared, "driver.c", "-o", "libcuda.so.1", cwd=installed.folder)
    settings = ["NCCL_DEBUG=WARN", *(["STRETTO_DEVICE=cpu"] if has_kernels() else [])]
    said = installed.run(*settings, "python", "-c", GIVES_MEMORY_OF_A_GPU)
    assert "\n4\n" in f"\n{said}" and "is memory of a GPU, and rank 0 is in host memory" in said
    assert has_kernels() or ("although there are GPUs" in said and "built without CUDA" in said)


def test_serves_c_programs_by_cmake(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "stranger.c").write_text(C_PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(C_PROJECT)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "out", f"-DCMAKE_PREFIX_PATH={installed.package}")
    run("cmake", "--build", tmp_path / "out")
    assert wheel_file().name.split("-")[1].startswith(run(tmp_path / "out/stranger"))


def test_serves_c_programs_by_pkg_config(installed: Installed, tmp_path: Path) -> None:
    """The flags as pkg-config gives them, which not every machine has."""
    file = installed.package / "lib/pkgconfig/stretto.pc"
    values = {"pcfiledir": str(file.parent)}
    for key, value in re.findall(r"^(\w+)(?:=|: )(.*)$", file.read_text(), re.M):
        values[key] = re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], value)
    (tmp_path / "stranger.c").write_text(C_PROGRAM)
    flags = [*values["Cflags"].split(), *values["Libs"].split(), f"-Wl,-rpath,{values['libdir']}"]
    run("gcc", tmp_path / "stranger.c", *flags, "-o", tmp_path / "stranger")
    assert run(tmp_path / "stranger") == values["Version"]


def test_is_found_by_scikit_build(installed: Installed) -> None:
    """Packages that scikit-build-core builds find it without a word: by an entry point."""
    code = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='cmake.root')])"
    assert installed.run("python", "-c", code).strip() == "['stretto']"


def test_source_package_is_all_that_a_build_needs() -> None:
    """The wheel was made of it; no file of npm's is in it but the page."""
    package = max(FOLDER.glob("stretto-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(package) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {name for name in names if name.startswith("viewer")} == {"viewer/dist/viewer.html"}
    assert {"cmake/commit", "cmake/build_backend.py", "LICENSE", "PKG-INFO"} <= names
    assert not {name for name in names if name.startswith(("tests", "docs", "build", "."))}
    assert package.stat().st_size < 3e6

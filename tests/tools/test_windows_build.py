"""What Windows is built with, and what CI does where that cannot be had: tools/windows_part, the presets, and the
compiler that is refused. That the tests pass under Wine is for `make test-windows`.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("x86_64-w64-mingw32-g++-posix", "wine")
STEPS = ".cache/logs/steps"


class Machine:
    """A checkout with tools/windows_part, in which setup and make are made up."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        (self.checkout / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools/windows_part", self.checkout / "tools/windows_part")
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in TOOLS:
            self.program(self.programs / name, "")

    def program(self, path: Path, text: str) -> None:
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def run(self, setup: str, make: str) -> subprocess.CompletedProcess[str]:
        self.program(self.checkout / "tools/setup", setup)
        self.program(self.programs / "make", make)
        # Of the machine's own programs only what the script needs, as it may have mingw-w64 and Wine.
        for name in ("bash", "sh", "dirname", "mkdir", "timeout", "grep", "tail", "cut", "tee"):
            if not (self.programs / name).exists():
                (self.programs / name).symlink_to(shutil.which(name) or name)
        environment = {"PATH": str(self.programs)}
        command = ["bash", "tools/windows_part"]
        return subprocess.run(command, cwd=self.checkout, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_the_packages_are_the_tests_run_and_decide(machine: Machine) -> None:
    done = machine.run('[ "$1" = --windows ]', 'echo "make $*"')
    assert (done.returncode, done.stdout) == (0, "make test-windows-part\n")
    assert not (machine.checkout / STEPS).exists()
    assert machine.run("exit 0", "exit 2").returncode == 2


def test_where_they_cannot_be_had_it_is_skipped_aloud(machine: Machine) -> None:
    done = machine.run('echo "setup: apt-get could not install wine" >&2; exit 1', "echo made; exit 1")
    assert done.returncode == 0 and "made" not in done.stdout
    line = (machine.checkout / STEPS).read_text()
    assert line == done.stdout and line.startswith("skipped test-windows-part: ")
    assert "(setup: apt-get could not install wine)" in line


@pytest.mark.parametrize("name", TOOLS)
def test_where_setup_installs_nothing_it_is_skipped_aloud_too(name: str, machine: Machine) -> None:
    (machine.programs / name).unlink()
    done = machine.run("exit 0", "echo made")
    assert done.returncode == 0 and f"(there is no {name})" in done.stdout and "made" not in done.stdout


def test_packages_that_cannot_be_had_are_no_step_that_failed(machine: Machine) -> None:
    """tools/step, which setup runs them by, notes a failure only outside of another step."""
    shutil.copy(ROOT / "tools/step", machine.checkout / "tools/step")
    (machine.checkout / "tools/step").chmod(0o755)
    done = machine.run("exec tools/step debian-packages sh -c 'echo no mirror; exit 100'", "exit 1")
    assert "(no mirror)" in done.stdout
    assert (machine.checkout / STEPS).read_text().count("\n") == 1


def test_ci_counts_what_was_skipped() -> None:
    text = (ROOT / ".ci/run").read_text()
    assert "tools/windows_part || failed=1" in text and "'^skipped'" in text


def include(tmp_path: Path, compiler: str) -> subprocess.CompletedProcess[str]:
    """cmake/system.cmake as on a Linux host with that compiler: it decides on the compiler first."""
    script = tmp_path / "include.cmake"
    script.write_text(
        f'set(CMAKE_CXX_COMPILER_ID {compiler})\ninclude("{ROOT}/cmake/system.cmake")\nmessage("went on")\n'
    )
    return subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, timeout=60)


def test_the_compiler_that_lacks_vector_types_is_refused_in_words(tmp_path: Path) -> None:
    refused = include(tmp_path, "MSVC")
    words = " ".join(refused.stderr.split())
    assert refused.returncode != 0 and "went on" not in words
    assert "cl cannot compile Stretto" in words and "clang-cl" in words
    for compiler in ("GNU", "Clang"):
        taken = include(tmp_path, compiler)
        assert taken.returncode == 0 and "went on" in taken.stderr, taken.stderr


def test_the_preset_for_its_headers_and_libraries_names_another() -> None:
    presets = {one["name"]: one for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    preset = presets["windows-msvc"]
    assert preset["cacheVariables"]["CMAKE_CXX_COMPILER"] == "clang-cl"
    assert "never tried" in preset["displayName"], "until somebody has"
    listed = subprocess.run(["cmake", "--list-presets"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    assert '"windows-mingw"' in listed and '"windows-mingw-part"' in listed

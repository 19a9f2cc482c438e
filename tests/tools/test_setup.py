"""tools/setup and `make bench`: what each asks to be installed and built, on a machine where everything is made up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTES_CALL = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'
# `python -m venv .venv` makes a Python that notes its calls as well; pip makes the folder that it installs into.
PYTHON = (
    NOTES_CALL
    + """
[ "$2" != venv ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; }
while [ $# -gt 1 ]; do [ "$1" != --target ] || mkdir -p "$2/nvidia/cu13/lib"; shift; done
"""
)
CHECKS_ONLY = {
    "clang-14",
    "clang-format",
    "libgtest-dev",
    "libbenchmark-dev",
    "otf2-tools",
    "ccache",
    "iproute2",
    "iptables",
}
# Installed only where the machine has none of its own.
VIEWER_ONLY = {"chromium", "nodejs", "npm"}
CUDA = [] if shutil.which("nvcc", path="/usr/bin:/usr/local/cuda/bin") else [".cache/cuda"]


class Machine:
    """A checkout that holds what setup reads, and a PATH that begins with programs that write down their calls."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        (self.checkout / "tools").mkdir(parents=True)
        for file in [ROOT / "tools/setup", ROOT / "tools/step", *ROOT.glob("requirements-*.txt")]:
            shutil.copy(file, self.checkout / file.relative_to(ROOT))
        self.calls = folder / "calls"
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.program("dpkg-query", "#!/bin/sh\nexit 1\n")
        self.program("id", "#!/bin/sh\necho 0\n")
        self.program("apt-get", NOTES_CALL)
        self.program("python3.11", PYTHON)

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        environment = {"PATH": f"{self.programs}:/usr/bin:/bin", "CALLS": str(self.calls)}
        command = ["bash", "tools/setup", *words]
        return subprocess.run(command, cwd=self.checkout, capture_output=True, text=True, timeout=60, env=environment)

    def setup(self, *words: str) -> list[str]:
        """What was called in a setup that went well."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return self.calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def apt_packages(calls: list[str]) -> list[str]:
    (call,) = [call for call in calls if call.startswith("apt-get install")]
    return [word for word in call.split()[2:] if not word.startswith("-")]


def pip_installs(calls: list[str]) -> list[str]:
    return [call for call in calls if "-m pip install" in call]


def targets(calls: list[str]) -> list[str]:
    """The folders that pip is to install into, other than .venv."""
    wheels = [call.split() for call in pip_installs(calls)]
    return [words[words.index("--target") + 1] for words in wheels if "--target" in words]


def test_bench_installs_compilers_and_one_file_of_requirements(machine: Machine) -> None:
    calls = machine.setup("--bench")
    assert {"make", "g++", "cmake", "ninja-build", "python3-dev"} <= set(apt_packages(calls))
    assert not set(apt_packages(calls)) & (CHECKS_ONLY | VIEWER_ONLY)
    (pip,) = pip_installs(calls)
    assert pip.endswith("-r requirements-bench.txt")


def test_bench_on_gpus_adds_the_cuda_compiler_and_one_nccl(machine: Machine) -> None:
    assert targets(machine.setup("--bench-gpu")) == [".cache/nccl", *CUDA]


def test_all_of_it_installs_what_the_checks_need(machine: Machine) -> None:
    calls = machine.setup()
    assert set(apt_packages(calls)) >= CHECKS_ONLY
    assert "-r requirements-dev.txt" in pip_installs(calls)[0]
    assert targets(calls) == [".cache/nccl", ".cache/nccl-2.32", *CUDA]


def test_the_larger_set_of_packages_will_do_for_the_smaller_and_not_the_other_way(machine: Machine) -> None:
    machine.setup("--bench")
    assert pip_installs(machine.setup("--bench")) == []
    assert "-r requirements-dev.txt" in pip_installs(machine.setup())[0]
    assert pip_installs(machine.setup()) == pip_installs(machine.setup("--bench")) == []
    with (machine.checkout / "requirements-bench.txt").open("a") as file:
        file.write("numpy==99\n")
    assert len(pip_installs(machine.setup("--bench"))) == 1


def test_old_package_lists_will_do(machine: Machine) -> None:
    machine.program("apt-get", NOTES_CALL + '[ "$1" != update ]')
    assert "g++" in apt_packages(machine.setup("--bench"))
    assert "FAILED" not in (machine.checkout / ".cache/logs/steps").read_text()


def test_a_package_that_is_not_to_be_had_is_named(machine: Machine) -> None:
    machine.program("apt-get", NOTES_CALL + '[ "$1" != install ] || { echo "Unable to locate package"; exit 100; }')
    done = machine.run("--bench")
    assert done.returncode == 1 and "Unable to locate package" in done.stdout
    assert "could not install make" in done.stderr and ".cache/logs/debian-packages.log" in done.stderr


def test_an_unknown_option_is_refused(machine: Machine) -> None:
    done = subprocess.run(
        ["bash", machine.checkout / "tools/setup", "--bnech"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "--bnech" in done.stderr and "--bench-gpu" in done.stderr


def recipe(folder: Path, *words: str) -> str:
    """What `make bench` would do in a checkout where nothing is built yet."""
    shutil.copy(ROOT / "Makefile", folder)
    command = ["make", "-n", "bench", *words]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "CUDA")
    }
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bench_compiles_no_tests_and_without_gpus_no_kernels(tmp_path: Path) -> None:
    said = recipe(tmp_path, "GPUS=0")
    assert "tools/setup --bench\n" in said and "STRETTO_CUDA=OFF" in said and "--device cpu" in said
    assert "build.targets=stretto_package;bench_drivers" in said and "TESTS" not in said
    assert said == recipe(tmp_path, "GPUS=1")


def test_bench_compiles_kernels_where_two_gpus_are_or_when_asked(tmp_path: Path) -> None:
    between_gpus = recipe(tmp_path, "GPUS=2")
    assert "--bench-gpu" in between_gpus and "STRETTO_CUDA=ON" in between_gpus and "--device cuda" in between_gpus
    asked = recipe(tmp_path, "GPUS=0", "CUDA=ON")
    assert "--bench-gpu" in asked and "STRETTO_CUDA=ON" in asked and "--device cpu" in asked
    refused = recipe(tmp_path, "GPUS=2", "CUDA=OFF")
    assert "STRETTO_CUDA=OFF" in refused and "--device cpu" in refused


def test_bench_leaves_a_build_folder_its_kernels(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build/CMakeCache.txt").write_text(
        "STRETTO_CUDA:STRING=AUTO\nSTRETTO_CUDA-STRINGS:INTERNAL=AUTO;ON;OFF\n"
    )
    assert "STRETTO_CUDA=AUTO" in recipe(tmp_path, "GPUS=0")

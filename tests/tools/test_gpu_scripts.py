"""tools/gpu_bench and tools/gpu_tables in little time, with programs that only write down how they were called."""

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
FORCED = "one_shot:lamport,one_shot:ll128,one_shot:warp_chunks,two_shot:lamport,two_shot:ll128,two_shot:warp_chunks"
NOTES_CALL = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'


class Machine:
    """Runs the scripts where every program there is has been made up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in ("nccl_driver", "limits_driver", "libnccl.so.2", "python", "nvidia-smi"):
            self.program(name)

    def program(self, name: str, text: str = "") -> None:
        path = self.programs / name
        path.write_text(NOTES_CALL + text)
        path.chmod(0o755)

    def run(self, script: str, *words: str) -> tuple[str, list[str]]:
        """What it said, and the calls that it made."""
        calls = self.folder / "calls"
        calls.write_text("")
        environment = {
            **os.environ,
            "CALLS": str(calls),
            "PYTHON": str(self.programs / "python"),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
        }
        command = [TOOLS / script, "--programs", self.programs, "--ranks", "2", "--out", self.folder / "out", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.stderr == "", done.stderr
        return done.stdout, calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def of(calls: list[str], program: str, word: str) -> list[list[str]]:
    return [call.split() for call in calls if call.startswith(f"{program} ") and word in call]


def value(call: list[str], option: str) -> str:
    return call[call.index(option) + 1]


def test_forced_runs_take_half_of_the_time_at_most(machine: Machine) -> None:
    said, calls = machine.run("gpu_bench", "--seconds", "100", "--peers", "none", "--force", FORCED)
    (sweep,) = of(calls, "python", "standalone.py")
    assert 30 <= int(value(sweep, "--seconds")) <= 35
    assert len(of(calls, "nccl_driver", "--force")) == 6
    assert "no time" not in said


@pytest.mark.parametrize("seconds", [20, 50])
def test_a_sweep_of_a_few_seconds_is_left_out(machine: Machine, seconds: int) -> None:
    said, calls = machine.run("gpu_bench", "--seconds", str(seconds), "--peers", "none", "--force", FORCED)
    assert of(calls, "python", "standalone.py") == []
    assert "no time for the comparison" in said
    assert len(of(calls, "nccl_driver", "--force")) == 6


def test_forced_runs_go_as_far_as_the_sweep_where_there_is_time(machine: Machine) -> None:
    words = ["--peers", "none", "--force", FORCED, "--most"]
    for seconds, most, wanted in (("260", "1G", "1G"), ("60", "1G", "256M"), ("60", "64M", "64M")):
        _, calls = machine.run("gpu_bench", "--seconds", seconds, *words, most)
        assert value(of(calls, "nccl_driver", "--force")[0], "-e") == wanted
        assert [value(sweep, "-e") for sweep in of(calls, "python", "standalone.py")] in ([], [most])


def test_forms_between_windows_get_windows(machine: Machine) -> None:
    wanted = {
        "two_shot:warp_chunks": False,
        "two_shot:copy": True,
        "one_shot:pull": True,
        "one_shot:pull_nosync::8": True,
    }
    _, calls = machine.run("gpu_bench", "--seconds", "100", "--peers", "none", "--force", ",".join(wanted))
    assert {value(call, "--force"): "--window" in call for call in of(calls, "nccl_driver", "--force")} == wanted


def test_runs_that_have_no_time_left_are_left_out(machine: Machine) -> None:
    """`timeout 0` would let them run for ever, and less than that is no time at all."""
    for name in ("a_perf", "b_perf", "c_perf"):
        machine.program(name, "sleep 6\n")
    said, calls = machine.run("gpu_tables", "--seconds", "17", "--parts", "nccl_tests,rings")
    assert len(of(calls, "a_perf", "")) == len(of(calls, "b_perf", "")) == 1
    assert of(calls, "c_perf", "") == []
    assert "no time left for the other nccl-tests" in said
    assert "no time left for rings" in said
    assert of(calls, "nccl_driver", "") == []


HANGS = """
case $* in *table-2.json*)
  echo "stretto: tune: rank 1: rank 1 waited longer than STRETTO_TIMEOUT for rank 0 in"
  echo "all_reduce #7 of 1024 bfloat16. Look at that rank with stretto doctor."
  exit 1 ;;
esac
"""


def test_how_runs_of_tune_ended_is_counted(machine: Machine) -> None:
    machine.program("python", HANGS)
    archive = machine.folder / "all.tar.gz"
    words = ["--parts", "tunes", "--tunes", "3", "--tune-seconds", "7", "--archive", str(archive)]
    said, calls = machine.run("gpu_tables", *words)
    tunes = of(calls, "python", "tune --device cuda")
    assert [value(call, "--seconds") for call in tunes] == ["7"] * 3
    assert "| 2 | clean |" in said
    hang = "hang: rank 1 waited longer than STRETTO_TIMEOUT for rank 0 in all_reduce #7 of 1024 bfloat16"
    assert f"| 1 | {hang} |" in said
    assert "status 1" in said.splitlines()[-1]
    with tarfile.open(archive) as packed:
        assert {"out/tunes.md", "out/tunes/2.txt", "out/machine.txt"} <= set(packed.getnames())


def test_peers_that_were_carried_are_named_to_the_benchmark(machine: Machine) -> None:
    machine.program("python", 'echo "$STRETTO_BENCH_NCCL_2_32 $STRETTO_BENCH_FLASHINFER" >>"$CALLS"\n')
    words = ["--parts", "turns,others", "--peer-seconds", "40", "--peers", "nccl-2.32", "--factor", "16"]
    _, calls = machine.run("gpu_tables", *words)
    assert "nccl-2.32-windows" not in " ".join(calls)
    assert {value(call, "-f") for call in of(calls, "python", "bench all_gather")} == {"16"}
    for name in ("nccl-2.32/libnccl.so.2", "libflashinfer_peers.so"):
        (machine.programs / name).parent.mkdir(exist_ok=True)
        (machine.programs / name).touch()
    _, calls = machine.run("gpu_tables", *words)
    assert f"{machine.programs}/nccl-2.32/libnccl.so.2 {machine.programs}/libflashinfer_peers.so" in calls
    assert value(of(calls, "python", "bench all_reduce")[0], "--peers") == "nccl-2.32"
    rivals = {value(call, "--peers") for call in of(calls, "python", "bench reduce")}
    assert rivals == {"nccl,nccl-windows,nccl-2.32-windows"}


def test_groups_are_measured_on_every_library_that_is_here(machine: Machine) -> None:
    _, calls = machine.run("gpu_tables", "--parts", "groups")
    groups = of(calls, "nccl_driver", "--group")
    assert [value(call, "--group") for call in groups] == ["1", "4", "16"]
    assert {value(call, "--name") for call in groups} == {"stretto"}


def test_norms_are_measured_by_every_call_and_on_one_gpu(machine: Machine) -> None:
    machine.program("norm_driver", 'echo "peer $STRETTO_BENCH_FLASHINFER, library $LD_LIBRARY_PATH" >>"$CALLS"\n')
    said, calls = machine.run("gpu_tables", "--parts", "norms", "--norm-seconds", "7")
    runs = of(calls, "norm_driver", "--json")
    kinds = ["plain", "per_token", "per_tensor", "per_token_alone", "bias", "reduced"]
    assert [value(run, "--call") for run in runs if "--call" in run] == kinds
    assert {value(run, "--ranks") for run in runs if "--call" in run} == {"2"}
    assert [value(run, "--ranks") for run in runs if "--self-loop" in run] == ["1", "2"]
    for run in runs:
        assert value(run, "--tokens") == "1,8,32,128,512,2048"
        assert value(run, "--hidden") == "4096,5120,7168,8192"
    assert len({value(run, "--json") for run in runs}) == 8
    assert f"peer , library {machine.programs}" in calls
    assert "without FlashInfer's kernels" in said
    (machine.programs / "libflashinfer_peers.so").touch()
    said, calls = machine.run("gpu_tables", "--parts", "norms")
    assert f"peer {machine.programs}/libflashinfer_peers.so, library {machine.programs}" in calls
    assert "without FlashInfer's kernels" not in said
    assert "status 0" in said.splitlines()[-1]


def test_a_norm_that_takes_too_long_or_fails_does_not_stop_the_others(machine: Machine) -> None:
    machine.program("norm_driver", 'case $* in *plain*) sleep 50 ;; *bias*) exit 3 ;; esac\necho "a line"\n')
    began = time.monotonic()
    said, calls = machine.run("gpu_tables", "--parts", "norms", "--norm-seconds", "4")
    assert time.monotonic() - began < 40
    assert len(of(calls, "norm_driver", "--json")) == 8
    assert "FAILED plain: status none: stopped after its time" in said
    assert "FAILED bias: status 3" in said
    assert said.count("FAILED") == 2
    assert (machine.folder / "out" / "norms" / "reduced.txt").read_text() == "a line\n"
    assert "status 1" in said.splitlines()[-1]


def test_norms_for_which_no_time_is_left_are_left_out(machine: Machine) -> None:
    machine.program("norm_driver", "sleep 7\n")
    said, calls = machine.run("gpu_tables", "--parts", "norms,lab", "--seconds", "19")
    assert len(of(calls, "norm_driver", "--json")) == 2
    assert "no time left for norms from per_tensor on" in said
    assert "no time left for lab" in said


def test_the_lab_runs_where_the_package_is_installed(machine: Machine) -> None:
    said, calls = machine.run("gpu_tables", "--parts", "lab")
    (lab,) = of(calls, "python", "-m stretto lab decode")
    assert (value(lab, "--device"), value(lab, "--ranks"), value(lab, "--batch")) == ("cuda", "2", "1,4,16,64")
    assert "--backends" not in lab  # all that there are
    assert "left out" not in said


def test_the_lab_is_left_out_in_words_where_the_package_is_not_installed(machine: Machine) -> None:
    machine.program("python", "case $* in *import*) echo \"No module named 'triton'\" >&2 && exit 1 ;; esac\n")
    said, calls = machine.run("gpu_tables", "--parts", "lab")
    assert of(calls, "python", "lab decode") == []
    assert "left out: " in said
    assert "lacks the installed package stretto, PyTorch or Triton: No module named 'triton'" in said
    assert "status 0" in said.splitlines()[-1]

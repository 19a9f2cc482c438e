"""check_kernels reads what ptxas said; then it reads this checkout's own build, whose libraries must stay small too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY_BYTES_AT_MOST = 20_000_000
QUICK = "_ZN7stretto12_GLOBAL__N_19pushLinesIfEEvPFviEPT_"
# What a kernel is told to run may name the lines, when its own name does not.
GENERIC = "_ZN7stretto3runINS_8TwoLinesEEEvT_"
BULK = "_ZN7stretto4bulkEPNS_5LinesE"
# A format of lines is an argument of every kernel.
UNUSED = "_ZN7stretto3runINS_4RingENS_4cuda8LLFormatEEEvT_"


def said(symbol: str, stack: int = 0, stores: int = 0, target: str = "sm_90") -> str:
    return f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{symbol}' for '{target}'
ptxas info    : Function properties for {symbol}
    {stack} bytes stack frame, {stores} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
ptxas info    : Compile time = 3.660 ms
"""


def check(build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "check_kernels"), *options, str(build)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def put(build: Path, text: str, source: str = "src/executors/cuda/push.cu") -> None:
    file = build / "cuda" / f"{source}.o.ptxas"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_registers_alone_pass_and_other_kernels_may_spill(tmp_path: Path) -> None:
    put(tmp_path, said(QUICK) + said(GENERIC) + said(BULK, stack=64, stores=8) + said(UNUSED, stack=64))
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "check_kernels: 2 latency kernels, 0 problems\n"


def check_library(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Of which cuobjdump, played by a script, says `code`."""
    put(folder, said(QUICK))
    (folder / "code").write_text(code)
    tool = folder / "cuobjdump"
    tool.write_text('#!/bin/sh\n[ "$1" = -sass ] && [ -f "$2" ] || { echo "no $2" >&2; exit 1; }\ncat "$2"\n')
    tool.chmod(0o755)
    command = [sys.executable, str(ROOT / "tools" / "check_kernels"), "--library", str(folder / "code"), str(folder)]
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path})


def test_a_vote_whose_answer_is_known_is_told(tmp_path: Path) -> None:
    vote = "        /*5620*/                   VOTE.ANY P2, !PT ;     /* 0x0000000000ff7806 */\n"
    done = check_library(tmp_path, f"\t\tFunction : {QUICK}\n{vote}{vote}")
    assert done.returncode == 1
    assert "has 2 votes (VOTE) whose answer the compiler knows" in done.stderr
    assert "pushLines<float>" in done.stderr


def test_other_votes_pass(tmp_path: Path) -> None:
    votes = "VOTE.ANY P2, P3 ;\nVOTE.ALL P2, !P2 ;\nVOTE.ANY R72, PT, !P3 ;\n"
    done = check_library(tmp_path, f"\t\tFunction : {QUICK}\n{votes}")
    assert done.returncode == 0, done.stderr


def test_a_library_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    put(tmp_path, said(QUICK))
    done = check(tmp_path, "--library", str(tmp_path / "absent"))
    assert done.returncode == 1
    assert done.stderr.startswith("check_kernels: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("symbol", [QUICK, GENERIC])
@pytest.mark.parametrize("sizes", [{"stack": 8}, {"stores": 4}])
def test_memory_is_told(tmp_path: Path, symbol: str, sizes: dict[str, int]) -> None:
    put(tmp_path, said(BULK) + said(symbol, **sizes) + said(symbol, target="sm_80"))
    done = check(tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("src/executors/cuda/push.cu:1:") == 1
    assert (
        f"(sm_90) has {sizes.get('stack', 0)} bytes of stack and spills {sizes.get('stores', 0)} bytes" in done.stderr
    )
    assert "Why: " in done.stderr and "FIX: " in done.stderr


@pytest.mark.parametrize(("stack", "status"), [(960, 0), (968, 1)])
def test_no_kernel_has_more_local_memory_than_devices_keep(tmp_path: Path, stack: int, status: int) -> None:
    put(tmp_path, said(QUICK) + said(UNUSED, stack=stack, stores=8))
    done = check(tmp_path)
    assert done.returncode == status
    assert (f"(sm_90) has {stack} bytes of stack\n" in done.stderr) == bool(status)


def test_nothing_to_look_at_is_no_success(tmp_path: Path) -> None:
    put(tmp_path, said(BULK))
    put(tmp_path, said(QUICK), "tests/executors/cuda/push.cu")
    done = check(tmp_path)
    assert done.returncode == 2
    assert "found no latency kernel to look at" in done.stderr


def test_list_shows_the_hungriest_first(tmp_path: Path) -> None:
    put(tmp_path, said(QUICK) + said(BULK, stack=64, stores=8))
    lines = check(tmp_path, "--list").stdout.splitlines()
    assert lines[0].split() == ["registers", "stack", "spilled", "kernel"]
    assert lines[1].split()[:3] == ["40", "64", "8"]
    assert lines[1].endswith("stretto::bulk (sm_90)")
    assert lines[2].endswith("void stretto::(anonymous namespace)::pushLines<float> (sm_90)")


def built() -> Path:
    folder = Path(os.environ.get("STRETTO_BUILD_DIR", ROOT / "build"))
    assert (folder / "CMakeCache.txt").exists(), f"{folder} is no build folder: run `make build` first."
    return folder


def test_the_latency_kernels_of_this_build() -> None:
    if not list(ROOT.glob("src/**/*.cu")):
        pytest.skip("this checkout has no kernels")
    if not list((built() / "cuda").glob("src/**/*.ptxas")):
        assert not os.environ.get("CI"), "built without nvcc, though tools/setup installs one"
        pytest.skip("built without nvcc")
    done = check(built())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["libstretto.so", "libnccl.so.2"])
def test_libraries_stay_small(name: str) -> None:
    size = (built() / name).stat().st_size
    assert size < LIBRARY_BYTES_AT_MOST, f"{name} has {size} bytes: fewer instances of the kernels, or fewer targets"

"""profiler_conformance --pack builds the two plugins of a made-up NCCL, and says when they would not load."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "profiler_conformance"
TABLE = 'extern "C" { extern const char* get_git_version_info(); long ncclProfiler_v5[6] = {1}; }\n'


@pytest.fixture
def tree(write, tmp_path: Path) -> Path:
    """A checkout of NCCL, and beside it a toolkit whose runtime has one function."""
    for name in ("example", "inspector"):
        write(f"nccl/ext-profiler/{name}/plugin.cc", TABLE)
    write("cuda/include/cuda_runtime.h", "int cudaThere();\n")
    write("cuda/lib64/there.c", "int _Z9cudaTherev(void) { return 0; }\n")
    folder = tmp_path / "cuda" / "lib64"
    subprocess.run(["cc", "-fPIC", "-c", "there.c"], cwd=folder, check=True, timeout=60)
    subprocess.run(["ar", "rc", "libcudart_static.a", "there.o"], cwd=folder, check=True, timeout=60)
    return tmp_path


def pack(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--nccl", str(tree / "nccl"), "--pack", str(tree / "out"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_plugins_come_with_what_they_need_of_cuda(write, tree: Path) -> None:
    write("nccl/ext-profiler/inspector/asks.cc", "#include <cuda_runtime.h>\nint asks() { return cudaThere(); }\n")
    done = pack(tree, "--cuda", str(tree / "cuda"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (tree / "out").iterdir()) == [
        "libnccl-profiler-example.so",
        "libnccl-profiler-inspector.so",
    ]


def test_what_would_not_load_is_told(write, tree: Path) -> None:
    cuda = ["--cuda", str(tree / "cuda")]
    write("nccl/ext-profiler/example/plugin.cc", TABLE.replace("_v5", "_v6"))
    done = pack(tree, *cuda)
    assert (done.returncode, "no table of version 5" in done.stdout) == (1, True)
    write("nccl/ext-profiler/example/plugin.cc", TABLE + "int cudaAway();\nint asks() { return cudaAway(); }\n")
    done = pack(tree, *cuda)
    assert done.returncode != 0
    assert "undefined reference to `cudaAway()'" in done.stderr
    assert "--pack needs --cuda" in pack(tree).stderr

"""`import stretto.nccl`: our library under NCCL's name, for whatever asks for it later. Each case is a process of its
own, because what is loaded stays."""

import subprocess
import sys
from pathlib import Path

import pytest
from stretto.library import nccl_library_path


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_what_is_asked_for_by_name_is_ours() -> None:
    done = run(
        "import stretto.nccl, ctypes\n"
        "ctypes.CDLL('libnccl.so.2').strettoVersion\n"
        "print([str(path.resolve()) for path in stretto.nccl.loaded()])\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([str(nccl_library_path().resolve())])


def test_too_late_is_said() -> None:
    other = Path(__file__).parents[2] / ".cache/nccl/nvidia/nccl/lib/libnccl.so.2"
    if not other.exists():
        pytest.skip("no other libnccl.so.2 is here to be loaded first")
    done = run(f"import ctypes; ctypes.CDLL({str(other)!r}); import stretto.nccl")
    assert done.returncode == 1
    assert "is loaded already" in done.stderr and "LD_PRELOAD=" in done.stderr

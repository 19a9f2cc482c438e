"""The built libraries export what NCCL's library exports, less not_exported.txt, under the right names."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from abi_header import read_header
from abi_wheel import ROOT, build, wheel

LIBRARIES = ["libnccl.so.2", "libstretto.so.0"]
# In no header of ours, exported to refuse.
REFUSING = ["ncclDevCommCreate", "ncclDevCommDestroy"]
INVALID_USAGE = 5


def exported(library: Path) -> dict[str, str]:
    """Name -> nm's letter: T strong, W weak."""
    command = ["nm", "-D", "--defined-only", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return {name.split("@")[0]: letter for _, letter, name in (line.split() for line in lines)}


def left_out() -> set[str]:
    lines = (Path(__file__).parent / "not_exported.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def expected_symbols() -> dict[str, str]:
    real = exported(wheel() / "lib" / "libnccl.so.2")
    skip = left_out() | {f"p{name}" for name in left_out()}
    return {name: letter for name, letter in real.items() if name not in skip}


def public_functions() -> set[str]:
    return set(read_header(ROOT / "include" / "nccl.h", with_cuda=False).functions)


def test_the_list_of_omissions_is_true() -> None:
    real = set(exported(wheel() / "lib" / "libnccl.so.2"))
    assert left_out() <= real, "not_exported.txt names what NCCL does not export either"
    assert not left_out() & public_functions(), "not_exported.txt names a function of nccl.h"
    refusing = {*REFUSING, *(f"p{name}" for name in REFUSING)}
    assert set(expected_symbols()) == public_functions() | refusing


@pytest.mark.parametrize("name", LIBRARIES)
def test_exports_are_nccls_and_ours_alone(name: str) -> None:
    ours = exported(build() / name)
    beyond = {symbol for symbol in ours if symbol not in expected_symbols()}
    strangers = {symbol for symbol in beyond if not re.match(r"stretto[A-Z]", symbol)}
    assert not strangers, "exported, but neither in nccl.h nor in stretto.h; see cmake/exports.map"
    assert {symbol: letter for symbol, letter in ours.items() if symbol not in beyond} == expected_symbols()


@pytest.mark.parametrize("name", REFUSING)
def test_the_device_api_refuses_in_words(name: str) -> None:
    library = ctypes.CDLL(str(build() / "libnccl.so.2"))
    library.ncclGetLastError.restype = ctypes.c_char_p
    assert library[name](None, None, None) == INVALID_USAGE
    said = library.ncclGetLastError(None).decode()
    assert said.startswith(f"{name}: this library has no device API")


@pytest.mark.parametrize("name", LIBRARIES)
def test_sonames(name: str) -> None:
    command = ["readelf", "-dW", str(build() / name)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert re.search(r"SONAME.*\[(.*)\]", text)[1] == name  # type: ignore[index]


@pytest.mark.parametrize("name", LIBRARIES)
def test_needs_nothing_but_the_system(name: str) -> None:
    """CUDA and plugins are opened at run time, so that one build serves machines with and without them."""
    command = ["readelf", "-dW", str(build() / name)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", text))
    assert needed <= {
        "libstdc++",
        "libm",
        "libgcc_s",
        "libc",
        "libpthread",
        "librt",
        "libdl",
        "ld-linux-x86-64",
    }

"""The built libraries export what NCCL's library exports, less not_exported.txt, under the right names."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from abi_header import read_header
from abi_wheel import OLD, ROOT, build, wheel

LIBRARIES = ["libnccl.so.2", "libstretto.so.0"]
# The device API's functions for the host: in no header of ours, for programs that were compiled with NVIDIA's. What
# these would make is laid out for NCCL's own kernels, so they refuse.
REFUSING = [
    "ncclDevCommCreate",
    "ncclDevCommDestroy",
    "ncclGetCftDeviceLeInfo",
    "ncclGetPeerDeviceLeInfo",
    "ncclGinBarrierCreateRequirement",
    "ncclGinInboxA2ACreateRequirement",
    "ncclGinOutboxCreateRequirement",
    "ncclLLA2ACreateRequirement",
    "ncclLsaBarrierCreateRequirement",
]
# There is no multicast.
REFUSING_MULTICAST = ["ncclGetLsaMultimemDevicePointer", "ncclGetMultimemDeviceLeInfo", "ncclGetMultimemDevicePointer"]
ANSWERING = [
    "ncclCommQueryProperties",
    "ncclGetLsaDevicePointer",
    "ncclGetPeerDevicePointer",
    "ncclLLA2ACalcSlots",
    "ncclTeamCft",
    "ncclTeamCftMultimem",
    "ncclTeamLsa",
    "ncclTeamRail",
    "ncclTeamRankToLsa",
    "ncclTeamRankToWorld",
    "ncclTeamWorld",
]
DEVICE_API = [*REFUSING, *REFUSING_MULTICAST, *ANSWERING]
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
    assert set(expected_symbols()) == public_functions() | {*DEVICE_API, *(f"p{name}" for name in DEVICE_API)}


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_was_exported_before_still_is(name: str) -> None:
    before = set(exported(wheel(OLD) / "lib" / "libnccl.so.2")) - left_out()
    assert before <= set(exported(build() / name))


@pytest.mark.parametrize("name", LIBRARIES)
def test_exports_are_nccls_and_ours_alone(name: str) -> None:
    ours = exported(build() / name)
    beyond = {symbol for symbol in ours if symbol not in expected_symbols()}
    strangers = {symbol for symbol in beyond if not re.match(r"stretto[A-Z]", symbol)}
    assert not strangers, "exported, but neither in nccl.h nor in stretto.h; see cmake/exports.map"
    assert {symbol: letter for symbol, letter in ours.items() if symbol not in beyond} == expected_symbols()


def said_by(name: str) -> str:
    """What a function says that is called with zeros and must refuse."""
    library = ctypes.CDLL(str(build() / "libnccl.so.2"))
    library.ncclGetLastError.restype = ctypes.c_char_p
    assert library[name](*[None] * 6) == INVALID_USAGE
    said = library.ncclGetLastError(None).decode()
    assert said.startswith(f"{name}: ")
    return str(said)


@pytest.mark.parametrize("name", REFUSING)
def test_the_device_api_refuses_in_words(name: str) -> None:
    assert "this library has no device API" in said_by(name)


@pytest.mark.parametrize("name", REFUSING_MULTICAST)
def test_multicast_is_refused_in_words(name: str) -> None:
    assert "no multicast address" in said_by(name)


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

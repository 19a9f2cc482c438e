"""PyTorch loads with our library in NCCL's place: all that its libtorch_cuda.so imports of NCCL is exported."""

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from abi_wheel import ROOT, build
from test_symbols import exported

LISTS = sorted((Path(__file__).parent / "torch_imports").glob("*.txt"))


def names(file: Path) -> list[str]:
    return file.read_text().split()


def lister() -> ModuleType:
    path = str(ROOT / "tools" / "torch_imports")
    loader = importlib.machinery.SourceFileLoader("torch_imports", path)
    spec = importlib.util.spec_from_loader("torch_imports", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", LISTS, ids=[file.stem for file in LISTS])
def test_all_imports_of_a_torch_are_exported(file: Path) -> None:
    missing = set(names(file)) - set(exported(build() / "libnccl.so.2"))
    assert not missing, f"torch {file.stem} does not load"


def test_the_lists_are_whole() -> None:
    assert {file.stem: len(names(file)) for file in LISTS} == {"2.11.0": 38, "2.14.0": 51, "2.15.0": 51}


def test_a_library_is_listed(tmp_path: Path) -> None:
    """The lists' own maker, on a library that calls two functions of NCCL and one that is not."""
    source, library = tmp_path / "user.c", tmp_path / "libtorch_cuda.so"
    source.write_text(
        "int ncclSend(void), pncclRecv(void), other(void);\n"
        "int f(void) { return ncclSend() + pncclRecv() + other(); }\n"
    )
    command = ["g++", "-x", "c", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    assert lister().imports(library) == ["ncclSend", "pncclRecv"]

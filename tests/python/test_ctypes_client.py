"""A client that knows NCCL by ctypes alone (ctypes_client.py) runs on the library, by the variable that such clients
read, and notices what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from ctypes_client import SIGNATURES, Config, Nccl
from jobs import environment
from stretto.library import include_path, nccl_library_path

CLIENT = Path(__file__).with_name("ctypes_client.py")


def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CLIENT), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment(STRETTO_DEVICE="cpu", **extra),
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_call(ranks: int) -> None:
    done = run("--ranks", str(ranks), VLLM_NCCL_SO_PATH=str(nccl_library_path()))
    assert done.returncode == 0, done.stderr
    assert f"ok: {ranks} ranks on CPUs" in done.stdout


def test_the_library_has_no_part_of_the_package() -> None:
    """The client gets by on the file alone, wherever it lies."""
    code = f"import sys; sys.path.insert(0, {str(CLIENT.parent)!r}); import ctypes_client; "
    code += f"ctypes_client.Nccl({str(nccl_library_path())!r}); print('stretto' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_a_wrong_result_would_be_noticed(tmp_path: Path) -> None:
    """A library that reduces nothing: the client must not say ok."""
    source, made = tmp_path / "lazy.c", tmp_path / "lazy.so"
    functions = [f"int {name}() {{ return 0; }}" for name in SIGNATURES if name != "ncclGetVersion"]
    functions += [
        "int ncclGetVersion(int* v) { *v = 22809; return 0; }",
        'const char* ncclGetErrorString() { return "x"; }',
    ]
    source.write_text("\n".join(functions))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True, timeout=60)
    done = run("--ranks", "1", "--library", str(made))
    assert done.returncode != 0
    assert "AssertionError" in done.stderr


def test_a_library_that_lacks_a_function_is_refused(tmp_path: Path) -> None:
    source, made = tmp_path / "empty.c", tmp_path / "empty.so"
    source.write_text("int nothing;")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True, timeout=60)
    with pytest.raises(AttributeError):
        Nccl(str(made))


def test_without_a_gpu_it_says_so() -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    done = run("--gpu")
    assert done.returncode != 0
    assert "cuda" in done.stderr.lower()


def test_the_configuration_is_laid_out_as_in_nccl_h(tmp_path: Path) -> None:
    """What the client declared by hand, against the header that the library was built with."""
    source, made = tmp_path / "layout.c", tmp_path / "layout"
    fields = [name for name, _ in Config._fields_]
    lines = [f'printf("%zu ", offsetof(ncclConfig_t, {name}));' for name in fields]
    source.write_text(f"#include <nccl.h>\n#include <stdio.h>\nint main(void) {{ {' '.join(lines)} return 0; }}")
    subprocess.run(["cc", f"-I{include_path()}", "-o", made, source], check=True, timeout=60)
    printed = subprocess.run([made], capture_output=True, text=True, check=True, timeout=60).stdout
    assert [int(offset) for offset in printed.split()] == [getattr(Config, name).offset for name in fields]
    assert Config.initial(22809).maxCTAs == -(2**31)

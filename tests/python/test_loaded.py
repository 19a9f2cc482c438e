"""`stretto doctor --nccl`: which libnccl a process has loaded, or a command loads. NVIDIA's is made up here: a library
with the text that it carries."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import environment, stretto
from stretto import loaded
from stretto.library import nccl_library_path

OURS = str(nccl_library_path().resolve())
TEXT = 'const char kText[] = "NCCL version 2.28.9+cuda13.0";'


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    source, made = folder / f"{name}.c", folder / name
    source.write_text(text)
    subprocess.run(["cc", "-o", made, source, *options], check=True, timeout=60)
    return made


def shared(made: Path, text: str, *options: str) -> Path:
    return compiled(made.parent, made.name, text, "-shared", "-fPIC", *options)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "nvidia" / "lib"
    folder.mkdir(parents=True)
    text = TEXT + " int ncclGetVersion(int* version) { return *version = kText[0]; }"
    return shared(folder / "libnccl.so.2", text, "-Wl,-soname,libnccl.so.2")


@pytest.fixture
def torchlike(tmp_path: Path, theirs: Path) -> Path:
    """Linked to libnccl.so.2, with a DT_RPATH to NVIDIA's, as PyTorch's wheel."""
    text = "int ncclGetVersion(int*); int torch(int* version) { return ncclGetVersion(version); }"
    path = f"-Wl,--disable-new-dtags,-rpath,{theirs.parent}"
    return shared(tmp_path / "libtorchlike.so", text, str(theirs), path)


LOADS = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print("there", flush=True)
sys.stdin.read()
"""


class Process:
    """A Python that has loaded some libraries and waits."""

    def __init__(self, *libraries: object, **extra: str) -> None:
        command = [sys.executable, "-c", LOADS, *(str(one) for one in libraries)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(**extra)
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "there\n"
        self.pid = self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def started() -> Iterator[Any]:
    processes: list[Process] = []

    def start(*libraries: object, **extra: str) -> int:
        processes.append(Process(*libraries, **extra))
        return processes[-1].pid

    yield start
    for process in processes:
        process.end()


def document(*arguments: object, status: int, **extra: str) -> Any:
    done = stretto("doctor", "--nccl", "--json", "-", *arguments, **extra)
    assert done.returncode == status, done.stderr + done.stdout
    return json.loads(done.stdout)


# ---- Running processes --------------------------------------------------------------------------------------


def test_ours(started: Any) -> None:
    found = document("--attach", started(OURS), status=0)
    assert found["schema"] == "stretto.nccl/1" and found["verdict"] == "stretto"
    (library,) = found["processes"][0]["libraries"]
    assert library["path"] == OURS and library["stretto"] is True


def test_theirs_and_what_to_do(started: Any, theirs: Path) -> None:
    pid = started(theirs)
    found = document("--attach", pid, status=3)
    (process,) = found["processes"]
    assert process["verdict"] == "nccl"
    assert process["libraries"] == [
        {"path": str(theirs), "stretto": False, "version": "2.28.9+cuda13.0", "asked_by": None}
    ]
    assert any("LD_PRELOAD" in remark and "import stretto.nccl" in remark for remark in process["remarks"])
    text = stretto("doctor", "--nccl", "--attach", pid).stdout
    assert f"Process {pid} uses NVIDIA's NCCL" in text
    assert f"{theirs}: NVIDIA's 2.28.9+cuda13.0" in text


def test_a_name_with_a_version(started: Any, theirs: Path) -> None:
    real = theirs.rename(theirs.with_name("libnccl.so.2.28.9"))
    assert document("--attach", started(real), status=3)["verdict"] == "nccl"


def test_both_and_none(started: Any, theirs: Path) -> None:
    both, none = started(OURS, theirs), started()
    found = document("--attach", f"{both},{none}", status=3)
    assert [process["verdict"] for process in found["processes"]] == ["both", "none"]
    assert "handed a communicator over" in found["processes"][0]["remarks"][-1]
    assert "No libnccl is loaded (yet)" in found["processes"][1]["remarks"][-1]


def test_why_ld_library_path_did_not_help(started: Any, torchlike: Path, theirs: Path) -> None:
    pid = started(torchlike, LD_LIBRARY_PATH=str(Path(OURS).parent))
    (process,) = document("--attach", pid, status=3)["processes"]
    assert [one["path"] for one in process["libraries"]] == [str(theirs)]
    remark = next(remark for remark in process["remarks"] if "DT_RPATH" in remark)
    assert str(torchlike) in remark and "LD_LIBRARY_PATH, which is set, has no say" in remark


def test_a_preload_that_is_not_there(started: Any) -> None:
    pid = started(LD_PRELOAD="/nowhere/libnccl.so.2")
    (process,) = document("--attach", pid, status=3)["processes"]
    assert any("/nowhere/libnccl.so.2, which is not loaded" in remark for remark in process["remarks"])


def test_a_file_that_was_replaced(started: Any, theirs: Path) -> None:
    pid = started(theirs)
    theirs.unlink()
    (process,) = document("--attach", pid, status=3)["processes"]
    assert process["libraries"][0]["stretto"] is None
    assert any("cannot be read any more" in remark for remark in process["remarks"])


def test_children_are_those_that_have_something(started: Any) -> None:
    started()
    pid = started(OURS)
    found = document("--children", os.getpid(), status=0)
    assert [process["pid"] for process in found["processes"]] == [pid]


def test_command_lines() -> None:
    assert "--attach" in stretto("doctor", "--nccl").stderr
    assert stretto("doctor", "--nccl", "--attach", "nobody").returncode == 2
    assert stretto("doctor", "--nccl", "--attach", 2**22 - 1).returncode == 1
    assert stretto("doctor", "--nccl", "--attach", 1, "--", "true").returncode == 2
    assert stretto("doctor", "--nccl", "--", "/nowhere/command").returncode == 127
    assert "goes with --nccl" in stretto("doctor", "--attach", 1, "--", "true").stderr


# ---- What a command loads -----------------------------------------------------------------------------------


def python(*libraries: object) -> list[str]:
    code = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)"
    return ["--", sys.executable, "-c", code, *(str(one) for one in libraries)]


def test_a_command_and_who_asked(torchlike: Path, theirs: Path) -> None:
    (process,) = document(*python(torchlike), status=3)["processes"]
    (library,) = process["libraries"]
    assert library["path"] == str(theirs) and library["asked_by"] == str(torchlike)
    assert any("DT_RPATH" in remark for remark in process["remarks"])


def test_a_preload_goes_before_a_search_path(torchlike: Path) -> None:
    found = document(*python(torchlike), status=0, LD_PRELOAD=OURS)
    assert [[one["path"] for one in process["libraries"]] for process in found["processes"]] == [[OURS]]


def test_the_order_of_loading_decides(theirs: Path) -> None:
    assert document(*python(OURS, theirs), status=0)["verdict"] == "stretto"
    assert document(*python(theirs, OURS), status=3)["verdict"] == "nccl"


def test_processes_of_a_command_are_told_apart(theirs: Path) -> None:
    code = f"import subprocess, sys\nfor path in {[OURS, str(theirs)]!r}: subprocess.run([*sys.argv[1:], path])"
    inner = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    found = document("--", sys.executable, "-c", code, sys.executable, "-c", inner, status=3)
    assert sorted(process["verdict"] for process in found["processes"]) == ["nccl", "stretto"]


def test_a_command_that_loads_nothing() -> None:
    assert document("--", "true", status=3) == {"schema": "stretto.nccl/1", "verdict": "none", "processes": []}


# ---- Pieces -------------------------------------------------------------------------------------------------


def test_a_made_up_proc(tmp_path: Path, theirs: Path) -> None:
    place = tmp_path / "proc" / "42"
    place.mkdir(parents=True)
    (place / "maps").write_text(
        f"7f00-7f01 r--p 00000000 08:01 11 {theirs}\n7f01-7f02 r-xp 00001000 08:01 11 {theirs}\n"
        "7f02-7f03 rw-p 00000000 00:00 0 [heap]\n7f03-7f04 rw-p 00000000 00:00 0\n"
        "7f04-7f05 r--p 00000000 08:01 12 /with a space/libnccl.so.2 (deleted)\n"
    )
    (place / "cmdline").write_bytes(b"python\0train.py\0")
    process = loaded.look_at(42, tmp_path / "proc")
    assert process.command == "python train.py"
    assert [one.path for one in process.libraries] == [str(theirs), "/with a space/libnccl.so.2 (deleted)"]


def test_what_a_file_needs(torchlike: Path, theirs: Path, tmp_path: Path) -> None:
    needs = loaded.needs_of(torchlike)
    assert loaded.SONAME in needs.needed and needs.rpath == str(theirs.parent) and needs.runpath is None
    (tmp_path / "empty").write_text("")
    (tmp_path / "cut").write_bytes(torchlike.read_bytes()[:70])
    assert loaded.needs_of(tmp_path / "empty") == loaded.needs_of(tmp_path / "cut") == loaded.Needs()


def test_the_version_of_ours_is_in_the_file(tmp_path: Path) -> None:
    text = tmp_path / "libnccl.so.2"
    text.write_bytes(b"...\0strettoVersion\0...Stretto version 1.2.3\0")
    assert loaded.identify(str(text)) == loaded.Library(str(text), True, "1.2.3")

"""include/nccl.h declares what NCCL's header declares, to a parser and to two compilers."""

import dataclasses
import subprocess
from pathlib import Path

import pytest
from abi_header import Declarations, read_header
from abi_probe import make_probe, run_probe
from abi_wheel import OLD, ROOT, VERSION, wheel

OURS = ROOT / "include"


# Of 2.28.9, what 2.32.3 says otherwise: how many results there are, and the release itself.
CHANGED_CONSTANTS = {"ncclNumResults"}
CHANGED_MACROS = {"NCCL_MINOR", "NCCL_PATCH", "NCCL_VERSION_CODE"}


def theirs(version: str = VERSION) -> Declarations:
    return read_header(wheel(version) / "include" / "nccl.h", with_cuda=True)


@pytest.mark.parametrize("with_cuda", [True, False], ids=["cuda", "no-cuda"])
@pytest.mark.parametrize("kind", [entry.name for entry in dataclasses.fields(Declarations)])
def test_declarations_are_the_same(kind: str, with_cuda: bool) -> None:
    ours = read_header(OURS / "nccl.h", with_cuda=with_cuda)
    assert getattr(ours, kind) == getattr(theirs(), kind)


def test_nothing_was_overlooked() -> None:
    """Guards the reader: an empty or half-read header would compare equal to another one."""
    read = theirs()
    public = [name for name in read.functions if not name.startswith("p")]
    assert len(public) == 73
    assert {f"p{name}" for name in public} == set(read.functions) - set(public)
    assert read.functions["ncclGroupStart"] == "ncclResult_t ()"
    assert read.functions["ncclCommCount"] == "ncclResult_t (const ncclComm_t, int *)"
    assert set(read.structs) == {
        "ncclUniqueId",
        "ncclConfig_t",
        "ncclConfigExt_t",
        "ncclCollConfig_t",
        "ncclEncryptionConfig_t",
        "ncclSimInfo_t",
        "ncclWaitSignalDesc_t",
    }
    assert len(read.structs["ncclConfig_t"]) == 27
    assert len(read.structs["ncclCollConfig_t"]) == 14
    assert set(read.aliases) == {
        "ncclComm_t",
        "ncclWindow_t",
        "ncclParamHandle_t",
        "cudaEvent_t",
        "cudaStream_t",
    }
    assert len(read.enums) == 9
    assert read.macros["NCCL_VERSION_CODE"] == "23203"
    assert len(read.macros) == 30


def test_what_was_declared_before_still_is() -> None:
    """Programs of 2.28.9 call the same functions with the same values, and their structs begin ours."""
    ours, before = read_header(OURS / "nccl.h", with_cuda=False), theirs(OLD)
    assert before.functions.items() <= ours.functions.items()
    assert before.aliases.items() <= ours.aliases.items()
    for name, (_, *members) in before.structs.items():
        assert ours.structs[name][1 : 1 + len(members)] == members, name
    for name, constants in before.enums.items():
        kept = [constant for constant in constants if constant not in CHANGED_CONSTANTS]
        assert ours.enums[name][: len(kept)] == kept, name
    changed = {name for name, body in before.macros.items() if ours.macros.get(name) != body}
    initializers = {name for name in before.macros if name.endswith("_INITIALIZER")}
    assert changed - initializers == CHANGED_MACROS


def test_a_compiler_sees_what_it_saw_before(tmp_path: Path) -> None:
    """Sizes, offsets and values of 2.28.9, but for the configs' own sizes, which only grow."""
    source = make_probe(theirs(OLD), "c")
    before = run_probe(source, "c", wheel(OLD) / "include", tmp_path / "before", with_cuda=True)
    now = run_probe(source, "c", OURS, tmp_path / "now", with_cuda=False)
    assert set(before) == set(now)
    changed = {key for key in before if before[key] != now[key]}
    assert changed == {
        "sizeof ncclConfig_t",
        "bytes NCCL_CONFIG_INITIALIZER",
        "bytes NCCL_SIM_INFO_INITIALIZER",
        *(f"constant {name}" for name in CHANGED_CONSTANTS),
        *(f"macro {name}" for name in CHANGED_MACROS),
    }
    assert int(now["sizeof ncclConfig_t"].split()[-1]) > int(before["sizeof ncclConfig_t"].split()[-1])


@pytest.mark.parametrize("with_cuda", [True, False], ids=["cuda", "no-cuda"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_compilers_see_the_same(language: str, with_cuda: bool, tmp_path: Path) -> None:
    source = make_probe(theirs(), language)
    expected = run_probe(source, language, wheel() / "include", tmp_path / "theirs", with_cuda=True)
    assert len(expected) > (180 if language == "c++" else 90)
    assert run_probe(source, language, OURS, tmp_path / "ours", with_cuda=with_cuda) == expected


@pytest.mark.parametrize("standard", ["c99", "c17", "c++11", "c++20"])
def test_compiles_without_a_warning(standard: str, tmp_path: Path) -> None:
    language = "c++" if standard.startswith("c++") else "c"
    file = tmp_path / f"alone.{language}"
    file.write_text("#include <nccl.h>\n#include <nccl.h>\nncclConfig_t config = NCCL_CONFIG_INITIALIZER;\n")
    strict = [
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        *(["-Wstrict-prototypes"] if language == "c" else []),
    ]
    command = ["g++", "-x", language, f"-std={standard}", *strict, f"-I{OURS}", "-fsyntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


MUTATIONS = [
    ("ncclMin = 3", "ncclMin = 7"),
    ("int minCTAs;", "long minCTAs;"),
    ("int splitShare;", "int trafficClass2;"),
    ("NCCL_UNIQUE_ID_BYTES 128", "NCCL_UNIQUE_ID_BYTES 127"),
    ("ncclResult_t ncclRecv(void* recvbuff, size_t count", "ncclResult_t ncclRecv(void* recvbuff, int count"),
    ("0xcafebeef", "0xcafebeee"),
    ("struct ncclConfig_v23100", "struct ncclConfig_v22800"),
    ("int opCnt;", "long opCnt;"),
    ("ncclStatGpuMemPersist = 2", "ncclStatGpuMemPersist = 4"),
    ("uint64_t userProfilerTag;", "uint32_t userProfilerTag;"),
]


@pytest.mark.parametrize(("right", "wrong"), MUTATIONS)
def test_a_wrong_header_is_noticed(right: str, wrong: str, tmp_path: Path) -> None:
    texts = {file.name: file.read_text() for file in OURS.glob("*.h")}
    assert any(right in text for text in texts.values())
    include = tmp_path / "include"
    include.mkdir()
    for name, text in texts.items():
        (include / name).write_text(text.replace(right, wrong))
    parsed = [read_header(folder / "nccl.h", with_cuda=False) for folder in (OURS, include)]
    source = make_probe(parsed[0], "c++")
    try:
        printed = [
            run_probe(source, "c++", folder, tmp_path / str(side), with_cuda=False)
            for side, folder in enumerate((OURS, include))
        ]
    except subprocess.CalledProcessError:
        return  # the probe names something that is gone: noticed
    assert parsed[0] != parsed[1] or printed[0] != printed[1]


def test_version_is_the_one_we_claim() -> None:
    macros = read_header(OURS / "nccl.h", with_cuda=False).macros
    assert ".".join(macros[f"NCCL_{part}"] for part in ("MAJOR", "MINOR", "PATCH")) == VERSION

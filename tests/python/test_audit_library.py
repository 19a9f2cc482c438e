"""`stretto audit --library`, and what it measures on GPUs: with nccl_driver on a stand-in for CUDA, as
tests/python/test_bench_cuda.py has it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from jobs import GUARD, stretto
from stretto.audit import blocks, implementations, library, measurements, page, run, table
from stretto.audit.context import LEVELS, Context
from stretto.audit.finding import Finding, Severity
from stretto.bench import gpu
from stretto.bench.drivers import Missing, find_driver
from stretto.bench.options import Options
from stretto.loaded import Needs, needs_of
from test_audit import HEALTHY, document, gravest
from test_audit_facts import with_gpu

LEVEL = dataclasses.replace(LEVELS["quick"], seconds=600, turns=2, patience=30)
GPUS = dataclasses.replace(HEALTHY, **with_gpu())


def look(id: str, context: Context) -> list[Finding]:
    (one,) = table.checks([id])
    return run.look(one, context)


# ---- The file ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Libraries with functions of NCCL's names."""
    folder = tmp_path_factory.mktemp("libraries")

    def make(name: str, text: str, *words: str, soname: str = "libnccl.so.2") -> Path:
        target = folder / name / "libnccl.so.2"
        target.parent.mkdir(exist_ok=True)
        source = target.with_name("source.c")
        source.write_text(text)
        command = ["gcc", "-shared", "-fPIC", str(source), "-o", str(target), f"-Wl,-soname,{soname}", *words]
        subprocess.run(command, check=True, timeout=GUARD)
        return target

    return make


VERSION = "int ncclGetVersion(int *version) { *version = 22809; return 0; }\nint ncclAllReduce(void) { return 0; }\n"


def about(file: Path) -> Context:
    return Context(environment={}, given=HEALTHY, library=file)


def test_a_library_that_is_well_has_its_version_and_functions_told(made: Callable[..., Path]) -> None:
    well = made("well", VERSION + 'const char* text = "NCCL version 2.28.9+cuda13.0";\n')
    for id in ("library.file", "library.needs", "library.loads"):
        (found,) = look(id, about(well))
        assert found.severity is Severity.OK, found
    assert "NCCL 2.28.9" in look("library.loads", about(well))[0].measured
    (found,) = look("library.functions", about(well))
    assert found.severity is Severity.NOTE and "2 functions" in found.measured and "it lacks nccl" in found.measured
    own = about(package.nccl_library_path())
    assert all(gravest(look(one.id, own)).severity is Severity.OK for one in table.checks(["library"]))


def test_faults_of_a_library_are_named(made: Callable[..., Path], tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    foreign = tmp_path / "foreign.so"
    head = bytearray(package.nccl_library_path().read_bytes()[:64])
    head[18:20] = (21).to_bytes(2, "little")  # PowerPC's
    foreign.write_bytes(head)
    other = made("other", VERSION)
    needy = made("needy", VERSION, "-Wl,--no-as-needed", f"-L{other.parent}", "-l:libnccl.so.2", soname="libneedy.so")
    shutil.copy(made("absent", "int absent;\n", soname="libabsent-of-audit.so.7"), tmp_path / "libabsent.so")
    lacking = made("lacking", VERSION, "-Wl,--no-as-needed", str(tmp_path / "libabsent.so"))
    empty = made("empty", "int ncclGetVersion(int *version) { *version = 2708; return 0; }\n")
    ends = made("ends", VERSION + "__attribute__((constructor)) static void end(void) { __builtin_trap(); }\n")
    masks = made("masks", VERSION.replace("22809", "21805") + 'const char* text = "NCCL version 2.28.9";\n')
    for id, file, severity, word in (
        ("library.file", text, Severity.ERROR, "no library"),
        ("library.file", foreign, Severity.ERROR, "another machine"),
        ("library.file", needy, Severity.WARNING, "libneedy.so"),
        ("library.needs", lacking, Severity.ERROR, "libabsent-of-audit.so.7"),
        ("library.loads", lacking, Severity.ERROR, "libabsent-of-audit.so.7"),
        ("library.loads", text, Severity.ERROR, "not loaded"),
        ("library.loads", ends, Severity.ERROR, "ended with status"),
        ("library.loads", masks, Severity.WARNING, "2.18.5"),
        ("library.functions", empty, Severity.WARNING, "no ncclAllReduce"),
    ):
        found = gravest(look(id, about(file)))
        assert found.severity is severity and word in found.measured, (id, found)
        assert found.cause and found.next_step


def test_a_library_that_prints_or_waits_when_it_is_loaded(
    made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    constructor = "__attribute__((constructor)) static void begin(void)"
    for name, what in (
        ("prints", 'puts("5"); fflush(stdout);'),
        ("buffers", 'puts("{}");'),
        ("half", 'write(1, "x", 1);'),
    ):
        text = f"#include <stdio.h>\n#include <unistd.h>\n{VERSION}{constructor} {{ {what} }}\n"
        text += '__attribute__((destructor)) static void end(void) { puts("7"); }\n'
        assert gravest(look("library.loads", about(made(name, text)))).severity is Severity.OK, what
    waits = made("waits", f"#include <unistd.h>\n{VERSION}{constructor} {{ sleep(60); }}\n")
    monkeypatch.setattr(library, "_LOAD_SECONDS", 1)
    found = gravest(look("library.loads", about(waits)))
    assert found.severity is Severity.ERROR and "did not end within 1 s" in found.measured
    assert [one["speaks"] for one in run._libraries(about(waits))] == ["2.32.3", ""]


def test_a_file_that_one_host_has_not_costs_it_no_finding(tmp_path: Path) -> None:
    found = run._libraries(about(tmp_path / "libnccl.so.2"))
    assert [one["stretto"] for one in found] == [True]
    assert blocks._libraries(found).rows == ()


def test_a_damaged_table_of_symbols_has_none(tmp_path: Path) -> None:
    text = bytearray(package.nccl_library_path().read_bytes())
    (sections,) = struct.unpack_from("<Q", text, 40)
    size, count = struct.unpack_from("<HH", text, 58)
    for number in range(count):
        if struct.unpack_from("<I", text, sections + number * size + 4)[0] == 11:  # SHT_DYNSYM
            struct.pack_into("<I", text, sections + number * size + 40, 1 << 20)  # sh_link
    damaged = tmp_path / "libnccl.so.2"
    damaged.write_bytes(text)
    assert not library.offered(damaged)
    text[40:48] = b"\xff" * 8  # where the sections begin
    text[32:40] = b"\xff" * 8  # and the program's headers
    nowhere = tmp_path / "nowhere.so"
    nowhere.write_bytes(text)
    assert not library.offered(nowhere) and needs_of(nowhere) == Needs()
    assert gravest(look("library.functions", about(damaged))).severity is Severity.WARNING


def test_versions_as_nccl_counts_them() -> None:
    assert [library.version_text(code) for code in (2708, 22809, 23203)] == ["2.7.8", "2.28.9", "2.32.3"]


def test_both_libraries_stand_in_one_table(made: Callable[..., Path], tmp_path: Path) -> None:
    file = made("table", VERSION + "int ncclTheirOwn(void) { return 0; }\n")
    target = tmp_path / "page.md"
    done = stretto("audit", "--only", "library", "--library", file, "--markdown", target, "--json", "-")
    assert done.returncode == 0, done.stderr
    ours, theirs = json.loads(done.stdout)["libraries"]
    assert (ours["stretto"], theirs["speaks"], theirs["path"]) == (True, "2.28.9", str(file))
    assert "ncclTheirOwn" in theirs["functions"] and "| speaks NCCL | 2.32.3 | 2.28.9 |" in target.read_text()


def test_without_a_gpu_it_is_said_what_is_not_measured(made: Callable[..., Path]) -> None:
    context = about(made("no-gpu", VERSION))
    (found,) = look("gpus.beside", context)
    assert found.severity is Severity.NOTE and "is measured on a machine with GPUs" in found.measured
    assert all(look(one.id, Context(given=HEALTHY))[0].severity is Severity.OK for one in table.checks(["gpus"]))


# ---- On GPUs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Context]]:
    """Contexts of a machine with two GPUs, whose libraries are shims over ranks in host memory."""
    try:
        driver = find_driver("nccl_driver_on_host")
    except Missing as reason:
        pytest.skip(str(reason))
    shim = driver.with_name("libshim_nccl.so")
    monkeypatch.setattr(gpu, "DRIVER", driver.name)
    monkeypatch.setattr(gpu, "find_stretto", lambda options: shim)
    monkeypatch.setattr(measurements, "count_gpus", lambda: 2)
    monkeypatch.setenv("STRETTO_BENCH_DRIVERS", str(driver.parent))
    monkeypatch.setenv("SHIM_LIBRARY", str(package.nccl_library_path()))
    contexts: list[Context] = []

    def make(file: Path = shim) -> Context:
        # As many CPU ranks as there are GPUs on few machines.
        contexts.append(Context(ranks=3, environment={}, given=GPUS, library=file, level=LEVEL))
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


def test_two_libraries_run_in_turns_on_gpus(on_host: Callable[..., Context]) -> None:
    made = run.run(on_host(), table.checks(["gpus"]), lambda _: None)
    found = {one["id"]: one for one in made["findings"]}
    assert found["gpus.data"]["severity"] == found["gpus.speed"]["severity"] == "ok", found
    assert "against stretto-beside" in found["gpus.beside"]["measured"], "the shim has Stretto's own functions"
    rows = made["gpus"]["rows"]
    assert {row["implementation"] for row in rows} == {"stretto", "stretto-beside"}
    assert all(row["verified"] and row["wrong"] == 0 and row["device"] == "cuda" for row in rows)
    text = page.markdown(blocks.blocks(made, None), "audit")
    assert "## All-reduces between GPUs" in text and "stretto-beside's time over stretto's" in text


def test_wrong_data_of_gpus_are_named(on_host: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_FAULT", "wrong")
    found = gravest(look("gpus.data", on_host()))
    assert found.severity is Severity.ERROR and "machine.gpu-links" in found.next_step


def test_a_library_that_does_not_run_on_these_gpus_is_named(
    on_host: Callable[..., Context], made: Callable[..., Path]
) -> None:
    found = gravest(look("gpus.beside", on_host(made("dead", VERSION))))
    assert found.severity is Severity.WARNING and found.subject == "nccl" and "--library" in found.next_step


def contest(times: dict[str, list[float]], **more: Any) -> implementations.Contest:
    rows = [
        {
            "implementation": name,
            "bytes": 1024 << (4 * step),
            "us_median": time,
            "us_min": time,
            "busbw_gbps": 1.0,
            "wrong": 0,
            "ranks": 2,
        }
        for name, own in times.items()
        for step, time in enumerate(own)
    ]
    return implementations.Contest(rows, dict.fromkeys(times, "1.0"), {}, **more)


@pytest.mark.parametrize(
    ("ours", "severity", "word"),
    [
        ([2.0, 20.0], Severity.OK, ""),
        ([2.6, 20.0], Severity.NOTE, "tune"),
        ([2.0, 80.0], Severity.WARNING, "peer access"),
    ],
)
def test_what_is_slower_than_another_nccl_is_named(ours: list[float], severity: Severity, word: str) -> None:
    context = Context(environment={}, given=GPUS)
    vars(context)["on_gpus"] = contest({"stretto": ours, "nccl": [2.0, 20.0]})
    (found,) = look("gpus.beside", context)
    assert found.severity is severity and word in found.cause + found.next_step, found


@pytest.mark.parametrize(("eager", "severity"), [(6.0, Severity.OK), (19.0, Severity.OK), (90.0, Severity.NOTE)])
def test_a_launch_that_takes_long_is_named(eager: float, severity: Severity) -> None:
    context = Context(environment={}, given=GPUS)
    vars(context)["on_gpus"] = contest({"stretto": [1.7, 20.0], "nccl": [5.0, 20.0]})
    vars(context)["eager_on_gpus"] = contest({"stretto": [eager]})
    (found,) = look("launch.gpu", context)
    assert found.severity is severity and "in a graph's replay" in found.measured, found
    assert severity is Severity.OK or "capture" in found.next_step


def test_a_launch_is_measured_call_by_call(on_host: Callable[..., Context]) -> None:
    context = on_host()
    (found,) = look("launch.gpu", context)
    assert found.severity <= Severity.NOTE and "call by call" in found.measured, found
    assert [row["graph"] for row in context.eager_on_gpus.rows] == [False]


def test_the_pair_of_gpus_that_is_slow_is_named(on_host: Callable[..., Context]) -> None:
    several = dataclasses.replace(GPUS, gpus=GPUS.gpus * 3)
    context = Context(environment={}, given=several)
    vars(context)["gpu_pairs"] = {(0, 1): (350.0, 349.0), (1, 2): (180.0, 179.0), (2, 0): (351.0, 340.0)}
    (found,) = look("gpus.pairs", context)
    assert found.severity is Severity.WARNING and found.subject == "GPU 1 and 2" and "49% below" in found.measured
    vars(context)["gpu_pairs"][1, 2] = (340.0, 335.0)
    assert look("gpus.pairs", context)[0].severity is Severity.OK


def test_each_pair_of_gpus_is_measured(on_host: Callable[..., Context], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "count_gpus", lambda: 3)
    monkeypatch.setitem(measurements._MOST_PAIRS, "quick", 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    context = on_host()
    context.given = dataclasses.replace(GPUS, gpus=GPUS.gpus * 3)
    (found,) = run.run(context, table.checks(["gpus.pairs"]), lambda _: None)["findings"]
    assert "GPU 2 and 0" in found["measured"] and found["measured"].count("GB/s") == 3, found
    assert (
        implementations.OnePair("5,7")
        .launch(Options(device="cuda", ranks=2), Path("/tmp"), 1 << 20)
        .environment["CUDA_VISIBLE_DEVICES"]
        == "5,7"
    )


def test_an_audit_of_before_these_sections_is_still_shown() -> None:
    assert "All-reduces between GPUs" not in page.markdown(blocks.blocks(document(), None), "audit")

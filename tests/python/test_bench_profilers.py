"""tools/profiler_overhead on a machine without a GPU: nccl_driver on its stand-in for CUDA, Stretto's CPU library in
the place of both, real plugins. What is left out is the kernels and the times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stretto.bench import gpu, profilers
from stretto.bench.drivers import CHECKOUT, Missing, find_driver
from stretto.bench.measure import Schedule, plan
from stretto.bench.options import Options
from stretto.bench.profiler_table import CLASSES, NOTHING, known_plugins, tables

TOOL = CHECKOUT / "tools" / "profiler_overhead"
CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder as --pack makes it, with the stand-ins."""
    try:
        driver = find_driver("nccl_driver_on_host")
    except Missing as reason:
        pytest.skip(str(reason))
    build = driver.parents[1]
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(driver, folder / "nccl_driver")
    shutil.copy(driver.with_name("libshim_nccl.so"), folder / "libnccl.so.2")
    for name in ("plugins/libnccl-profiler-stretto.so", "plugins/libnccl-profiler-empty.so"):
        shutil.copy(build / name, folder)
    shutil.copy(driver.with_name("libnccl-profiler-jsonl.so"), folder)
    monkeypatch.setattr(gpu, "need_gpus", lambda options: None)
    monkeypatch.setenv("SHIM_LIBRARY", str(build / "libnccl.so.2"))
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    # main() sets it for the drivers; so it is put back.
    monkeypatch.setenv("STRETTO_BENCH_DRIVERS", str(folder))
    return folder


def measure(programs: Path, out: Path, *words: str) -> int:
    quick = ["--passes", "1", "--rounds", "2", "--calls", "20", "--budget-ms", "1", "--timeout", "20", "--no-pin"]
    # Where nothing crosses to another GPU, less is done sooner than the driver believes.
    quick += ["--size", "16384"]
    nccl = ["--nccl", str(programs / "libnccl.so.2")]
    return profilers.main(["--programs", str(programs), "--out", str(out), *nccl, *quick, *words])


def test_every_plugin_takes_turns_with_none(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["none", "empty", "ours", "ours-KernelCh", "jsonl-all"]
    assert measure(programs, tmp_path / "out", "--plugins", ",".join(names), "--at-once", "3") == 0
    record = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert (record["schema"], record["waves"], record["failures"]) == (profilers.SCHEMA, 2, {})
    found = Counter((row["library"], row["plugin"]) for row in record["rows"])
    assert found == {(library, name): 4 for library in ("nccl", "stretto") for name in names}
    for row in record["rows"]:
        turns = 4 if row["plugin"] == NOTHING else 2  # none is in both waves
        assert (len(row["us"]), len(row["none_us"]), row["wrong"]) == (turns, turns, 0)
        assert min(row["us"]) > 0
        assert bool(row["host_us"]) != row["graph"]
    for library in ("nccl", "stretto"):
        written = {name: sum(record["written_bytes"][f"{library}/{name}"]) for name in names}
        assert min(written["ours"], written["ours-KernelCh"], written["jsonl-all"]) > 0 == written["empty"]
    text = (tmp_path / "out" / "tables.md").read_text()
    assert text.strip() in capsys.readouterr().out
    assert text.count("| JSON lines, all events |") == 2


def test_a_plugin_that_does_not_load_is_no_cell(programs: Path, tmp_path: Path) -> None:
    """It is tried once, not in every pass."""
    (programs / "libnccl-profiler-example.so").write_text("no library\n")
    words = ["--plugins", "example,empty", "--libraries", "stretto", "--passes", "2"]
    assert measure(programs, tmp_path / "out", *words) == 1
    record = json.loads((tmp_path / "out" / "rows.json").read_text())
    assert {row["plugin"] for row in record["rows"]} == {"none", "empty"}
    assert [reason.split(":")[0] for reason in record["failures"]["stretto/example"]] == [
        "libnccl-profiler-example.so was not loaded"
    ]
    assert [row["plugin"] for row in record["rows"] if len(row["us"]) == 4] == ["none", "empty"] * 4
    assert "FAILED stretto/example" in (tmp_path / "out" / "tables.md").read_text()


def test_wrong_results_are_told(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_FAULT", "wrong")
    assert measure(programs, tmp_path / "out", "--plugins", "empty", "--libraries", "stretto") == 1
    assert "WRONG: " in (tmp_path / "out" / "tables.md").read_text()


def test_classes_of_events_come_last(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = "empty,ours-Coll,ours-P2p,jsonl"
    assert measure(programs, tmp_path / "out", "--plugins", names, "--at-once", "2", "--libraries", "stretto") == 0
    waves = [
        line.rpartition("for ")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("profilers: ")
    ]
    assert waves == ["empty jsonl", "ours-Coll ours-P2p"]


@pytest.mark.skipif(len(CORES) < 2, reason="one core: there is nowhere to send other threads to")
def test_the_driver_is_told_where_ranks_run(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = CORES[:2]
    words = ["--plugins", "none", "--libraries", "stretto", "--passes", "1", "--rounds", "1", "--size", "16384"]
    words += ["--nccl", str(programs / "libnccl.so.2"), "--calls", "20", "--budget-ms", "1"]
    for core, status in ((second, 0), (1000, 1)):
        found = [profilers.Place(first, (second,)), profilers.Place(core, (first,))]
        monkeypatch.setattr(profilers, "places", lambda ranks, groups, found=found: found)
        assert profilers.main(["--programs", str(programs), "--out", str(tmp_path / "out"), *words]) == status
        assert ("rank 1: cannot run on the cores" in capsys.readouterr().err) == (core == 1000)
        record = json.loads((tmp_path / "out" / "rows.json").read_text())
        assert record["options"]["places"][1] == {"core": core, "helpers": [first]}


def test_time_ends_it_between_waves(programs: Path, tmp_path: Path) -> None:
    words = ["--plugins", "empty,ours,jsonl", "--at-once", "1", "--passes", "50", "--seconds", "0.1"]
    assert measure(programs, tmp_path / "out", *words, "--libraries", "stretto") == 0
    assert json.loads((tmp_path / "out" / "rows.json").read_text())["waves"] == 1


def test_what_cannot_be_is_refused(programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["--plugins", "theirs"], "--plugins theirs: choose from none, empty"),
        (["--plugins", "inspector"], "has no libnccl-profiler-inspector.so"),
        (["--nccl", str(tmp_path / "nowhere")], "there is no such file"),
    ):
        assert measure(programs, tmp_path, *words) == 2
        assert told in capsys.readouterr().err
    for words in (
        [],
        ["--programs", ".", "--rounds", "0"],
        ["--programs", ".", "--size", "63"],
        ["--programs", ".", "--libraries", "rccl"],
    ):
        with pytest.raises(SystemExit) as left:
            profilers.main(words)
        assert left.value.code == 2


def test_each_rank_has_cores_of_its_own() -> None:
    pairs = [[core, core + 8] for core in range(8)]
    first, second = profilers.places(2, pairs)
    # One pair is for everybody else, and a caller's sibling stays idle.
    assert (first.core, first.helpers) == (1, (2, 3, 10, 11))
    assert (second.core, second.helpers) == (4, (5, 6, 13, 14))
    assert [place.core for place in profilers.places(2, [[core] for core in range(5)])] == [1, 3]
    with pytest.raises(Missing, match="needs 5 cores and here are 4"):
        profilers.places(2, [[0], [1], [2], [3]])
    assert sorted(core for group in profilers.core_groups() for core in group) == CORES


def test_eager_batches_are_long_but_for_slow_plugins() -> None:
    planner = profilers.schedule(1000)
    eager, graph = (Options(device="cuda", graph=graph, budget_ms=20.0) for graph in (False, True))
    assert planner(eager, 10.0) == Schedule(warmup=1000, batch=1000, batches=3, singles=0)
    assert planner(eager, 1.0).batches == 20
    assert planner(eager, 6000.0) == Schedule(warmup=8, batch=8, batches=3, singles=0)
    assert planner(graph, 10.0) == plan(graph, 10.0)


def test_plugins_are_told_what_to_do_and_where() -> None:
    known = known_plugins()
    assert {f"ours-{name}" for name in CLASSES} < known.keys()
    assert known["none"].environment(Path("/p"), Path("/o")) == {"NCCL_PROFILER_PLUGIN": "none"}
    example = known["example-all"].environment(Path("/p"), Path("/o"))
    assert example["NCCL_PROFILER_PLUGIN"] == "/p/libnccl-profiler-example.so"
    assert (example["NCCL_PROFILE_EVENT_MASK"], example["NCCL_PROFILE_DUMP_FILE"]) == ("4095", "/o/example")
    # Bits 0 to 11 without KernelCh.
    assert known["example"].settings["NCCL_PROFILE_EVENT_MASK"] == str(0xFFF & ~(1 << 6))


def row(plugin: str, us: list[float], none: list[float], **more: Any) -> dict[str, Any]:
    place = {"library": "nccl", "collective": "all_reduce", "graph": False, "wrong": 0, "host_us": []}
    return {**place, "plugin": plugin, "us": us, "none_us": none, **more}


def test_tables_of_made_up_times() -> None:
    none = [10.0, 11.0, 12.0]
    rows = [
        # What is added is a median of differences, not a difference of medians: 1, 4, 1.
        row("ours-all", [11.0, 15.0, 13.0], none),
        row("none", none, none),
        row("empty", [9.0, 10.5, 12.0], none, wrong=2),
        row("ours", [5.25], [5.0], library="stretto", collective="send_recv"),
        row("none", [2.0, 2.0], [2.0, 2.0], graph=True),
        row("jsonl", [2.1, 2.3], [2.0, 2.0], graph=True),
        row("inspector", [], [], graph=True),
    ]
    text = tables({"rows": rows, "options": {"bytes": 64}, "failures": {"nccl/example": ["it died", "it died"]}})
    head, graphs, told = text.split("\n\n")
    assert head.splitlines() == [
        "| 64 B, eager, µs: median (least to most), more than none | NCCL all-reduce | Stretto send/recv |",
        "|---|---|---|",
        "| no plugin | 11.0 (10.0 to 12.0) |  |",
        "| empty plugin, default events | 10.5 (9.0 to 12.0), -0.50! |  |",
        "| ours, default events |  | 5.2 (5.2 to 5.2), +0.25 |",
        "| ours, all events | 13.0 (11.0 to 15.0), +1.00 |  |",
    ]
    assert graphs.splitlines()[2:] == [
        "| no plugin | 2.00 (2.00 to 2.00) |",
        "| JSON lines, default events | 2.20 (2.10 to 2.30), +0.200 |",
    ]
    assert told.splitlines() == [
        "* FAILED nccl/example: it died",
        "* WRONG: 2 elements of results are not what they must be",
    ]


def test_tables_are_printed_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"rows": [row("none", [1.0], [1.0])], "options": {"bytes": 64}, "failures": {}}))
    command = [str(TOOL), "--table", str(file)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHON": sys.executable}
    )
    assert "| no plugin | 1.0 (1.0 to 1.0) |" in done.stdout, done.stderr


def test_the_tool_says_what_is_missing(tmp_path: Path) -> None:
    for words, told in (
        ([], "tools/profiler_overhead --pack DIR --nccl TREE"),
        (["--pack", str(tmp_path)], "tools/profiler_overhead --pack DIR --nccl TREE"),
        (
            ["--pack", str(tmp_path / "o"), "--nccl", str(tmp_path), "--build", str(tmp_path)],
            "lacks benchmarks/nccl_driver",
        ),
        (["--programs", str(tmp_path / "nowhere")], "is not there"),
    ):
        done = subprocess.run([str(TOOL), *words], capture_output=True, text=True, timeout=60)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def shoot(programs: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [
        str(programs / "nccl_driver"),
        "--library",
        str(programs / "libnccl.so.2"),
        "--eager",
        "-b",
        "64",
        *words,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def test_the_plain_plugin_writes_lines_of_json(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    plugin = {"NCCL_PROFILER_PLUGIN": str(programs / "libnccl-profiler-jsonl.so")}
    words = ["--collective", "all_reduce,send_recv", "--processes", "--budget-ms", "1"]
    process = shoot(programs, *words, **plugin, STRETTO_TRACE_DIR=str(tmp_path / "out"))
    assert process.communicate(timeout=60) and process.returncode == 0
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    assert len(files) == 2  # one for each process
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        calls = {
            call: [line for line in lines if line["call"] == call] for call in ("init", "start", "stop", "finalize")
        }
        assert (len(calls["init"]), len(calls["finalize"])) == (1, 1)
        assert Counter(line["id"] for line in calls["start"]) == Counter(line["id"] for line in calls["stop"])
        types = {line["type"] for line in calls["start"]}
        assert {"Coll", "P2p", "CollApi", "P2pApi", "KernelCh"} <= types
        assert {line["func"] for line in calls["start"] if line["type"] == "Coll"} == {"AllReduce"}


def allowed_cores(process: int) -> dict[int, str]:
    """Of each thread of a process."""
    found = {}
    for status in Path(f"/proc/{process}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("Cpus_allowed_list:"):
                found[int(status.parent.name)] = line.split()[1]
    return found


@pytest.mark.skipif(len(CORES) < 2, reason="one core: there is nowhere to send other threads to")
def test_callers_have_a_core_of_their_own_while_they_are_timed(programs: Path) -> None:
    caller, other = CORES[:2]
    words = ["--processes", "--cores", f"{caller},{caller}", "--helpers", str(other), "--budget-ms", "3000"]
    process = shoot(programs, *words)
    try:
        deadline = time.monotonic() + 30
        seated = False
        while not seated:
            assert time.monotonic() < deadline and process.poll() is None
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            seats = [allowed_cores(int(child)) for child in children]
            seated = len(seats) == 2 and all(
                len(seat) > 1
                and all(cores == str(caller if thread == int(child) else other) for thread, cores in seat.items())
                for child, seat in zip(children, seats, strict=True)
            )
            time.sleep(0.005)
    finally:
        process.kill()
        process.communicate()


def test_cores_that_cannot_be_are_told(programs: Path) -> None:
    for words, status, told in (
        (["--cores", "0,1"], 2, "need each other"),
        (["--cores", "0", "--helpers", "1"], 2, "fewer cores than there are ranks"),
        (["--cores", "0,x", "--helpers", "1"], 2, "not understood"),
        (["--cores", "0,9999", "--helpers", "1"], 2, "not understood"),
        (["--cores", "1000,1001", "--helpers", "1002"], 3, "cannot run on the cores"),
    ):
        process = shoot(programs, *words)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, told in err) == (status, True), err

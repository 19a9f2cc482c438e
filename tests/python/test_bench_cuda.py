"""`stretto bench --device cuda` on a machine without a GPU: nccl_driver itself, on a stand-in for CUDA's runtime that
works on host memory (tests/benchmarks/cuda_on_host), driving Stretto's CPU library through a shim. What is left out is
the kernels and the times.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from stretto.bench import gpu
from stretto.bench import run as bench_run
from stretto.bench.crew import Failed
from stretto.bench.drivers import CHECKOUT, Missing, find_driver
from stretto.bench.job import Launch
from stretto.bench.measure import Cell, plan
from stretto.bench.options import Options, UsageError
from stretto.bench.peers import PEERS
from stretto.bench.plot import save_plot
from stretto.bench.rows import SCHEMA, row_of
from stretto.bench.run import run

BENCH = Path(bench_run.__file__).parent
COLLECTIVES = "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast,reduce,gather,scatter,send_recv"


def options(**given: Any) -> Options:
    small = {"device": "cuda", "min_bytes": "1K", "max_bytes": "16K", "factor": 16, "rounds": 2, "budget_ms": 1.0}
    return Options(**{**small, "datatype": "bfloat16", "peers": "none", **given})


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Lets a run find the driver of the stand-in; the options that name the shim as the library."""
    try:
        driver = find_driver("nccl_driver_on_host")
    except Missing as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(gpu, "DRIVER", driver.name)
    monkeypatch.setattr(bench_run, "need_gpus", lambda options: None)
    monkeypatch.setenv("STRETTO_BENCH_DRIVERS", str(driver.parent))
    monkeypatch.setenv("SHIM_LIBRARY", str(driver.parents[1] / "libnccl.so.2"))
    shim = driver.with_name("libshim_nccl.so")
    return {"library": shim, "nccl": shim}


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    record = json.loads(path.read_text())
    assert record["schema"] == SCHEMA
    found: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        found.setdefault(row["implementation"], []).append(row)
    return found


@pytest.mark.parametrize("in_graph", [True, False])
def test_a_run_has_rows_of_every_implementation(in_graph: bool, on_host: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    given = options(json=path, peers="nccl,nccl-ring", graph=None if in_graph else False, **on_host)
    assert run(given) == 0
    found = rows_of(path)
    assert list(found) == ["stretto", "nccl", "nccl-ring"]
    for rows in found.values():
        assert [row["bytes"] for row in rows] == [1024, 16384]
        for row in rows:
            assert (row["device"], row["graph"], row["wrong"], row["verified"]) == ("cuda", in_graph, 0, True)
            assert 0 < row["us_min"] <= row["us_median"] <= row["us_p99"]
            assert (row["us_host"] is None) == in_graph
    # NCCL's own variables reach the ring alone.
    assert (found["nccl"][0]["algorithm"], found["nccl-ring"][0]["algorithm"]) == ("default", "Ring")
    assert json.loads(path.read_text())["implementations"]["stretto"]["gpu"] == "no GPU at all"


@pytest.mark.parametrize("ranks_are_threads", [True, False])
@pytest.mark.parametrize("collective", ["reduce_scatter", "all_to_all", "reduce", "send_recv"])
def test_other_collectives_and_more_ranks(
    collective: str, ranks_are_threads: bool, on_host: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    given = options(collective=collective, ranks=3, root=2 if collective == "reduce" else 0, json=path, **on_host)
    assert run(Options(**{**asdict(given), "threads": ranks_are_threads})) == 0
    row = rows_of(path)["stretto"][-1]
    assert (row["ranks"], row["ranks_as"]) == (3, "threads" if ranks_are_threads else "processes")


def test_wrong_results_are_counted(on_host: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_FAULT", "wrong")
    path = tmp_path / "rows.json"
    assert run(options(json=path, **on_host)) == 1
    assert all(row["wrong"] > 0 for row in rows_of(path)["stretto"])


def test_a_library_that_does_nothing_is_not_the_fastest(
    on_host: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHIM_FAULT", "idle")
    assert run(options(check=0, **on_host)) == 1
    assert "impossible: " in capsys.readouterr().out


def test_a_library_that_hangs_is_ended(
    on_host: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHIM_FAULT", "hang")
    assert run(options(timeout=2.0, **on_host)) == 1
    assert "FAILED stretto: at 1024 bytes" in capsys.readouterr().out


def test_a_library_without_windows_is_left_out(on_host: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options(peers="nccl-windows", **on_host)) == 0
    assert "no ncclMemAlloc" in capsys.readouterr().err


def shoot(on_host: dict[str, Path], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The driver without an orchestrator."""
    command = [str(find_driver("nccl_driver_on_host")), "--library", str(on_host["library"]), "--budget-ms", "1"]
    return subprocess.run(
        [*command, "--timeout", "5", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "how", [[], ["--processes"], ["--in-place"], ["--eager", "--shared-device"], ["--op", "avg"], ["--group", "5"]]
)
def test_one_shot_verifies_every_collective(how: list[str], on_host: dict[str, Path]) -> None:
    words = ["--collective", COLLECTIVES, "--type", "float16,int32", "--ranks", "3", "-b", "6000"]
    done = shoot(on_host, *words, *how)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    left_out = {"all_to_all", "send_recv"} if "--in-place" in how else set()
    assert {row["collective"] for row in rows} == set(COLLECTIVES.split(",")) - left_out
    assert {row["dtype"] for row in rows} == {"float16", "int32"}
    assert all(row["wrong"] == 0 and row["us_min"] > 0 for row in rows)


def test_one_shot_says_when_results_are_wrong_or_never_come(on_host: dict[str, Path]) -> None:
    wrong = shoot(on_host, SHIM_FAULT="wrong")
    assert wrong.returncode == 1
    assert json.loads(wrong.stdout)["wrong"] > 0
    for how in ([], ["--processes"]):
        hung = shoot(on_host, *how, "--timeout", "1", SHIM_FAULT="hang")
        assert hung.returncode == 3
        assert "communicators are aborted" in hung.stderr
    # Whichever rank speaks first, the reason is that of the rank that could not go on.
    for how in ([], ["--processes"]):
        missing = shoot(on_host, *how, "--ranks", "4", FAKE_DEVICES="2")
        assert missing.returncode == 3
        lines = missing.stderr.splitlines()
        assert lines
        assert all("is there a GPU for every rank?" in line for line in lines), missing.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--library", "libnccl.so.2"], "absolute path"),
        (["--library", "/nowhere/libnccl.so.2"], "cannot load"),
        (["--ranks", "0"], "--ranks goes from 1"),
        (["--ranks", "x"], "not understood"),
        (["-b", "1K", "-f", "1"], "sizes need"),
        (["--env", "NAME"], "not understood"),
        (["--force", "a:b:c:d:e"], "not understood"),
        (["--blocks", "4"], "no STRETTO_BLOCKS"),
        (["--group", "0"], "--group goes from 1"),
        (["--colour", "red"], "unknown option"),
        (["--timeout"], "needs a value"),
    ],
)
def test_a_wrong_command_line_is_told(words: list[str], told: str, on_host: dict[str, Path]) -> None:
    done = shoot(on_host, *words)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "cpu", "graph": True},
        {"device": "cpu", "graph": False},
        {"device": "cpu", "shared_device": True},
        {"device": "cpu", "limits": True},
        {"device": "cpu", "blocks": 4},
        {"ranks": 17},
        {"collective": "all_to_all", "in_place": True},
        {"blocks": 4},
        {"algorithm": "ring", "chunk": "1Q"},
        {"algorithm": "ring", "blocks": -1},
    ],
)
def test_what_makes_no_sense_on_a_device_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        options(**wrong).validate()


def test_graphs_are_the_gpus_own_and_the_default_there() -> None:
    assert options().in_graph
    assert not options(graph=False).in_graph
    assert not Options().in_graph
    Options(algorithm="ring", protocol="simple", device="cuda", chunk="64K", blocks=8).validate()


def test_without_a_gpu_one_sentence_and_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    typer = pytest.importorskip("typer", reason="typer is not installed")
    from stretto.cli.bench import bench
    from typer.testing import CliRunner

    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(gpu.ctypes, "CDLL", absent)
    app = typer.Typer()
    app.command()(bench)
    for words in (["all_reduce"], ["--limits"]):
        told = CliRunner().invoke(app, [*words, "--device", "cuda"])
        assert told.exit_code == 1
        assert told.output == "stretto bench: there is no GPU here: CUDA's driver (libcuda.so.1) is not installed\n"


def test_too_few_gpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "count_gpus", lambda: 1)
    with pytest.raises(Failed, match="2 ranks need as many GPUs and here are 1; --shared-device"):
        run(options())
    gpu.need_gpus(options(ranks=1))
    gpu.need_gpus(options(ranks=8, shared_device=True))
    with pytest.raises(Missing, match="2 ranks need"):
        gpu.need_gpus(options(ranks=1, limits=True))


def test_a_turn_on_gpus_is_of_graphs_that_are_long_enough() -> None:
    for estimate in (0.5, 2.3, 40.0, 199.0, 1617.0):
        schedule = plan(options(budget_ms=30.0), estimate)
        assert schedule.batch <= 1000
        assert schedule.batch == 1000 or schedule.batch * estimate >= 2000
        assert 5 <= schedule.batches <= 500
        assert schedule.singles == 0
    assert plan(options(iterations=30), 2.3) == plan(options(iterations=30), 3.0)


def test_peers_that_are_not_here_say_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peers = PEERS["cuda"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Missing, match="torch is not installed"):
        peers["symm-mem-one-shot"].launch(options(), tmp_path, 4096)
    with pytest.raises(Missing, match="there is no such file"):
        peers["nccl"].launch(options(nccl=tmp_path / "libnccl.so.2"), tmp_path, 4096)
    for name in ("nccl", "nccl-windows", "symm-mem-two-shot"):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
        with pytest.raises(Missing, match="on one GPU"):
            peers[name].launch(options(shared_device=True), tmp_path, 4096)


def launched(monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path, **given: Any) -> Launch:
    library = tmp_path / "libnccl.so.2"
    library.touch()
    monkeypatch.setattr(gpu, "find_driver", lambda name: Path("/drivers") / name)
    return PEERS["cuda"][name].launch(options(nccl=library, **given), tmp_path, 4096)


def test_strettos_waits_end_before_the_drivers_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "find_driver", lambda name: Path("/drivers") / name)
    monkeypatch.delenv("STRETTO_TIMEOUT", raising=False)
    limited = options(timeout=20.0)
    assert gpu.launch_library("stretto", tmp_path, limited, tmp_path, 1).environment == {"STRETTO_TIMEOUT": "10"}
    assert gpu.launch_library("nccl", tmp_path, limited, tmp_path, 1).environment == {}
    monkeypatch.setenv("STRETTO_TIMEOUT", "3")
    assert gpu.launch_library("stretto", tmp_path, limited, tmp_path, 1).environment == {}


def test_each_variant_of_nccl_is_started_as_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain = launched(monkeypatch, "nccl", tmp_path)
    assert [command[-2:] for command in plain.commands] == [["--rank", "0"], ["--rank", "1"]]
    assert "--window" not in plain.commands[0]
    assert plain.environment == {}
    assert "--window" in launched(monkeypatch, "nccl-windows", tmp_path).commands[0]
    ring = launched(monkeypatch, "nccl-ring", tmp_path)
    assert ring.environment == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
    # Threads, forcing and blocks are Stretto's.
    forced = launched(monkeypatch, "nccl", tmp_path, algorithm="two_shot", blocks=8, threads=True)
    assert not {"--threads", "--blocks"} & set(forced.commands[0])


def test_peers_that_a_variable_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = {"nccl-2.32": "STRETTO_BENCH_NCCL_2_32", "nccl-2.32-windows": "STRETTO_BENCH_NCCL_2_32"}
    variables |= dict.fromkeys(("vllm-custom", "trtllm-one-shot", "trtllm-two-shot"), "STRETTO_BENCH_FLASHINFER")
    variables |= dict.fromkeys(("sglang-one-shot", "sglang-two-shot"), "STRETTO_BENCH_SGLANG")
    variables["stretto-before"] = "STRETTO_BENCH_BEFORE"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    library = tmp_path / "carried.so"
    for name, variable in variables.items():
        monkeypatch.delenv(variable, raising=False)
        with pytest.raises(Missing, match=f"{variable} is not set"):
            launched(monkeypatch, name, tmp_path)
        library.unlink(missing_ok=True)
        monkeypatch.setenv(variable, str(library))
        with pytest.raises(Missing, match="there is no such file"):
            launched(monkeypatch, name, tmp_path)
        library.touch()
        for command in launched(monkeypatch, name, tmp_path).commands:
            assert command[command.index("--library") + 1] == str(library)
            assert ("--window" in command) == name.endswith("windows")


def test_limits_are_run_with_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = tmp_path / "limits_driver"
    driver.write_text('#!/bin/sh\necho "limits of $2 GPUs"\necho "{}" >"$4"\n')
    driver.chmod(0o755)
    monkeypatch.setenv("STRETTO_BENCH_DRIVERS", str(tmp_path))
    monkeypatch.setattr(gpu, "count_gpus", lambda: 4)
    path = tmp_path / "deep" / "limits.json"
    assert run(options(limits=True, ranks=4, json=path)) == 0
    assert "limits of 4 GPUs" in capfd.readouterr().out
    assert path.read_text() == "{}\n"


def test_a_recorded_run_on_gpus_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    given = options(peers="all")
    rows = []
    for index, name in enumerate(["stretto", *PEERS["cuda"]]):
        for size in (1 << 10, 1 << 20, 1 << 29):
            cell = Cell(name, size, {"algorithm": "x", "protocol": "y"})
            cell.turns = [[2.0 + index + size / 4e5, 2.5 + index + size / 4e5]]
            rows.append(row_of(cell, given))
    machine = {"cpu": "a processor", "cores_allowed": 32, "date": "2026-11-21T00:00:00"}
    facts = {name: {"version": "1", "note": "", "gpu": "a GPU"} for name in ["stretto", *PEERS["cuda"]]}
    save_plot({"rows": rows, "machine": machine, "implementations": facts}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 20000


def test_it_runs_without_the_compiled_package(tmp_path: Path) -> None:
    """As on a GPU machine that has the native drivers and no build of ours."""
    package = tmp_path / "stretto"
    package.mkdir()
    for folder in ("bench", "cli"):
        shutil.copytree(BENCH.parent / folder, package / folder)
    shutil.copy(BENCH.parent / "errors.py", package)
    (package / "__init__.py").write_text("raise ImportError('not built')\n")
    command = [sys.executable, str(package / "bench" / "standalone.py"), "bench", "all_reduce", "--device", "cpu"]
    done = subprocess.run([*command, "--ranks", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "stretto bench: --ranks 0: at least 1\n"


def test_the_script_for_gpu_machines_measures_and_sums_up(on_host: dict[str, Path], tmp_path: Path) -> None:
    """tools/gpu_bench with the stand-in's driver for the real one, and a CUDA driver that counts two GPUs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    shutil.copy(find_driver("nccl_driver_on_host"), programs / "nccl_driver_on_host")
    shutil.copy(find_driver("nccl_driver_on_host"), programs / "nccl_driver")
    shutil.copy(on_host["library"], programs / "libnccl.so.2")
    (programs / "limits_driver").write_text("#!/bin/sh\necho no peer access >&2\nexit 1\n")
    source = tmp_path / "driver.c"
    source.write_text("int cuInit(unsigned f){return (int)f;} int cuDeviceGetCount(int*n){*n=2;return 0;}\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libcuda.so.1")], check=True)
    script = CHECKOUT / "tools" / "gpu_bench"
    words = ["--programs", str(programs), "--seconds", "60", "--peers", "nccl", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        [str(script), *words, "--", "-e", "4K", "--rounds", "2", "--nccl", str(on_host["nccl"])],
        capture_output=True,
        text=True,
        timeout=90,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "limits_driver failed with status 1: no peer access" in done.stdout
    assert "b = nccl" in done.stdout
    assert done.stdout.splitlines()[-2].split()[0] == "4096"
    assert rows_of(tmp_path / "out" / "all_reduce.json").keys() == {"stretto", "nccl"}
    (programs / "libnccl.so.2").unlink()
    lacking = subprocess.run([str(script), *words], capture_output=True, text=True, timeout=30)
    assert lacking.returncode == 2
    assert "has no libnccl.so.2" in lacking.stdout

"""`stretto bench` without any library: the orchestrator with drivers that work, crash, hang and lie."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stretto.bench import workload
from stretto.bench.crew import Failed
from stretto.bench.job import Job, JobError, Launch, Unsupported
from stretto.bench.measure import plan
from stretto.bench.options import Options, UsageError
from stretto.bench.peers import PEERS, Peer, chosen_peers
from stretto.bench.rows import SCHEMA, geometric_mean, summary
from stretto.bench.run import run

FAKE = Path(__file__).with_name("bench_fake_driver.py")
ROW_FIELDS = {
    "implementation": str,
    "collective": str,
    "algorithm": str,
    "protocol": str,
    "ranks": int,
    "device": str,
    "dtype": str,
    "op": str,
    "bytes": int,
    "in_place": bool,
    "graph": bool,
    "phase": str,
    "rounds": int,
    "iterations": int,
    "us_min": float,
    "us_median": float,
    "us_p99": float,
    "us_spread": list,
    "algbw_gbps": float,
    "busbw_gbps": float,
    "wrong": int,
}


class Fake(Peer):
    name = "fake"

    def __init__(self, name: str, mode: str = "ok", at: int = 0, us: float = 10.0) -> None:
        self.name = name  # type: ignore[misc]
        self._words = ["--mode", mode, "--at", str(at), "--us", str(us)]

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        command = [sys.executable, "-S", str(FAKE), "--folder", str(folder), *self._words]
        return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)])


def options(**given: Any) -> Options:
    small = {"min_bytes": "8", "max_bytes": "128", "factor": 4, "rounds": 2, "budget_ms": 1.0, "timeout": 20.0}
    return Options(**{**small, **given})


def start(mode: str, folder: Path, ranks: int = 2) -> Job:
    job = Job("fake", Fake("fake", mode).launch(options(ranks=ranks), folder, 4096), ranks, folder)
    job.wait_ready(20)
    return job


@pytest.mark.parametrize(
    ("text", "size"),
    [("8", 8), ("64K", 65536), ("1M", 1 << 20), ("2GiB", 2 << 30), ("3kb", 3072), (" 16 ", 16)],
)
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert workload.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-8", "1.5M", "K", "1T", "8 8", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        workload.parse_size(text)


def test_sizes_are_formatted_exactly() -> None:
    for size in (8, 1000, 1024, 1536, 1 << 20, 3 << 20, 1 << 30):
        assert workload.parse_size(workload.format_size(size)) == size


def test_a_sweep_ends_at_the_largest_size() -> None:
    assert workload.sweep(8, 128, 4) == [8, 32, 128]
    assert workload.sweep(8, 127, 4) == [8, 32]
    assert workload.sweep(8, 8, 2) == [8]
    for wrong in ((0, 8, 2), (8, 4, 2), (8, 64, 1)):
        with pytest.raises(ValueError, match="sizes need"):
            workload.sweep(*wrong)


def test_sizes_count_as_in_nccl_tests() -> None:
    assert workload.elements_per_rank("all_reduce", 64, 4, 3) == 16
    assert workload.elements_per_rank("all_gather", 64, 4, 3) == 5
    assert workload.bytes_of("all_gather", 5, 4, 3) == 60
    assert workload.COLLECTIVES["all_reduce"].bus(4) == pytest.approx(1.5)
    assert workload.COLLECTIVES["all_to_all"].bus(4) == pytest.approx(0.75)


@pytest.mark.parametrize(
    "wrong",
    [
        {"collective": "all_redcue"},
        {"datatype": "float31"},
        {"op": "xor"},
        {"ranks": 0},
        {"root": 2},
        {"factor": 1},
        {"check": 2},
        {"device": "abacus"},
        {"collective": "send_recv", "ranks": 3},
        {"collective": "send_recv", "in_place": True},
        {"protocol": "ll"},
        {"timeout": 0},
        {"max_bytes": "2"},
    ],
)
def test_wrong_options_are_refused_before_anything_starts(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        options(**wrong).validate()


@pytest.mark.parametrize("target", ["json", "plot"])
def test_files_that_cannot_be_written_are_told_before_the_sweep(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong: dict[str, Any] = {target: tmp_path / "file" / "out"}
    with pytest.raises(UsageError, match=f"cannot write {tmp_path}/file/out: "):
        run(options(**wrong))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        run(options(**{target: tmp_path / "folder"}))


def test_a_plot_without_matplotlib_is_told_before_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--plot needs matplotlib"):
        run(options(plot=tmp_path / "x.png"))
    assert not (tmp_path / "x.png").exists()


def test_peers_are_chosen_by_name() -> None:
    for device, peers in PEERS.items():
        assert [peer.name for peer in chosen_peers("all", device)] == [
            name for name, peer in peers.items() if not peer.only_by_name
        ]
        assert chosen_peers("none", device) == []
    assert [peer.name for peer in chosen_peers("memcpy, openmpi,memcpy", "cpu")] == ["memcpy", "openmpi"]
    for device, name in (("cpu", "mpich"), ("cpu", "nccl"), ("cuda", "gloo")):
        with pytest.raises(UsageError, match=name):
            chosen_peers(name, device)


def test_a_turn_fits_its_budget() -> None:
    for estimate in (0.05, 1.0, 40.0, 499.0, 501.0, 5000.0):
        schedule = plan(Options(budget_ms=30.0), estimate)
        # The warm-up and the least number of single calls come on top where calls are long.
        assert 0.5 * 30000 < schedule.calls * estimate < 3 * 30000
    assert plan(Options(budget_ms=30.0), 100000.0).batches == 2
    counted = plan(Options(iterations=200, warmup=7), 5.0)
    assert (counted.warmup, counted.batch * counted.batches, counted.singles) == (7, 200, 200)


def test_rows_keep_to_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.json"
    status = run(options(json=path), Fake("stretto", us=10), [Fake("openmpi", us=15)])
    record = json.loads(path.read_text())
    assert status == 0
    assert record["schema"] == SCHEMA == "stretto.bench/1"
    assert {"cpu", "cores", "date", "load_before"} <= record["machine"].keys()
    assert [(row["implementation"], row["bytes"]) for row in record["rows"]] == [
        (name, size) for size in (8, 32, 128) for name in ("stretto", "openmpi")
    ]
    for row in record["rows"]:
        for field, kind in ROW_FIELDS.items():
            assert isinstance(row[field], kind), field
    first = record["rows"][0]
    assert (first["us_median"], first["us_p99"], first["algorithm"]) == (10, 20, "fake")
    assert first["algbw_gbps"] == pytest.approx(8 / 10 / 1000)
    assert record["summary"]["geometric_mean_ratio"] == {"openmpi": pytest.approx(1.5)}
    assert record["failures"] == {}


def test_the_table_names_everyone_and_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    run(options(), Fake("stretto", us=10), [Fake("openmpi", us=15), Fake("gloo", us=30)])
    out = capsys.readouterr().out
    assert "all_reduce float32 sum, 2 ranks as processes, out of place" in out
    assert [line.split()[0] for line in out.splitlines() if line.endswith("  0")] == ["8", "32", "128"]
    assert " 1.50 " in out
    assert "gloo takes 3.00 times as long as stretto" in out


@pytest.mark.parametrize("mode", ["wrong", "crash", "hang", "garbage"])
def test_a_peer_that_fails_is_told_and_left_out(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    given = options(json=path, timeout=3.0)
    status = run(given, Fake("stretto"), [Fake("openmpi", mode, at=8), Fake("gloo")])
    record = json.loads(path.read_text())
    sizes = {name: [row["bytes"] for row in record["rows"] if row["implementation"] == name] for name in PEERS["cpu"]}
    assert sizes["gloo"] == [8, 32, 128]
    out = capsys.readouterr().out
    if mode == "wrong":
        assert status == 1
        assert sizes["openmpi"] == [8, 32, 128]
        assert "WRONG openmpi: " in out
        assert record["summary"]["wrong"] == sum(row["wrong"] for row in record["rows"]) > 0
        return
    assert status == 0  # it is not Stretto that failed
    assert sizes["openmpi"] == [8]
    assert "FAILED openmpi: at 32 bytes" in out
    if mode == "crash":
        assert "the fake driver's last word" in record["failures"]["openmpi"]


@pytest.mark.parametrize("mode", ["wrong", "crash", "hang", "garbage", "unsupported"])
def test_when_stretto_itself_fails_the_status_says_so(mode: str) -> None:
    assert run(options(timeout=3.0), Fake("stretto", mode, at=8), [Fake("openmpi")]) == 1


def test_a_peer_without_the_operation_is_left_out_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options(), Fake("stretto"), [Fake("openmpi", "unsupported")]) == 0
    assert "openmpi is left out from here: not mine" in capsys.readouterr().err


def test_who_cannot_start_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(options(), Fake("stretto"), [Fake("openmpi", "stillborn")]) == 0
    assert "cannot start" in capsys.readouterr().err
    with pytest.raises(Failed, match="cannot start"):
        run(options(), Fake("stretto", "stillborn"), [])


def test_a_ring_gathers_one_way_or_both() -> None:
    with pytest.raises(UsageError):
        options(ring_gather="sideways").validate()


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "out" / "plot.png"
    assert run(options(plot=path), Fake("stretto"), [Fake("openmpi", us=15), Fake("memcpy", us=2)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 20000


def test_a_job_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    job = start("hang", tmp_path)
    with pytest.raises(JobError, match=r"rank \[1\] took more than"):
        job.ask("prepare count=8", 5)
    pids = list(job._pids)
    job.kill()
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    job.kill()  # again is harmless


def test_a_job_reports_each_way_to_go_wrong(tmp_path: Path) -> None:
    for mode, error in (("crash", JobError), ("garbage", JobError), ("unsupported", Unsupported)):
        folder = tmp_path / mode
        folder.mkdir()
        job = start(mode, folder)
        began = time.monotonic()
        with pytest.raises(error):
            job.ask("prepare count=8", 20)
        assert time.monotonic() - began < 10, "a dead rank is noticed, not waited for"
        job.kill()


def test_a_job_tells_what_other_ranks_printed_than_the_one_that_failed_first(tmp_path: Path) -> None:
    job = start("refuse", tmp_path)
    with pytest.raises(JobError, match=r"(?s)rank 0: it went wrong elsewhere.*rank 1 says why"):
        job.ask("prepare count=8", 20)
    job.kill()


def test_a_rank_that_dies_is_named_rather_than_the_one_that_lost_it(tmp_path: Path) -> None:
    job = start("lose", tmp_path)
    with pytest.raises(JobError, match="rank 1 died with status 7"):
        job.ask("prepare count=8", 20)
    job.kill()


def test_a_job_ends_by_itself_when_told_to(tmp_path: Path) -> None:
    assert start("ok", tmp_path).close() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(number: int, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM: the ranks are gone, and so is the temporary folder."""
    program = "from test_bench import *\nrun(options(timeout=60.0), Fake('stretto', 'hang', at=8), [Fake('openmpi')])\n"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(FAKE.parent), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    # The first size is done, so every rank is up and the next one hangs.
    while not process.stdout.readline().startswith(b"     8"):
        assert process.poll() is None
    folder = next(tmp_path.glob("stretto-bench-*"))
    assert _processes_naming(folder)
    process.send_signal(number)
    assert process.wait(20) != 0
    assert not _processes_naming(folder)
    assert not folder.exists()


def _processes_naming(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_run_ends_when_its_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    # Starting the ranks takes longer than that, so nothing is measured, which is no success.
    assert run(options(seconds=0.001, json=path), Fake("stretto"), []) == 1
    assert "8 and larger are left out" in capsys.readouterr().err
    assert run(options(seconds=600, json=path), Fake("stretto"), []) == 0
    assert len(json.loads(path.read_text())["rows"]) == 3


def test_geometric_mean_and_an_empty_summary() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert summary([])["wrong"] == 0


def test_every_option_has_one_flag() -> None:
    typer = pytest.importorskip("typer", reason="typer is not installed")
    from stretto.cli.bench import FLAGS, bench
    from typer.testing import CliRunner

    assert FLAGS.keys() == Options.__dataclass_fields__.keys()
    app = typer.Typer()
    app.command()(bench)
    told = CliRunner().invoke(app, ["all_gather", "--ranks", "3", "-b", "64", "-e", "32"])
    assert told.exit_code == 2
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for flag in ("--peers", "--algorithm", "-b", "-e", "-f", "-n", "-w", "-d", "-o", "-r", "-c"):
        assert flag in shown.output

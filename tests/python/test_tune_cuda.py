"""`stretto tune --device cuda` on a machine without a GPU: the search against a library that is made up, with times
that are known, and the whole command against nccl_driver on a stand-in for CUDA (tests/benchmarks/cuda_on_host).
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stretto.bench import drivers
from stretto.bench.drivers import CHECKOUT, Missing, find_driver
from stretto.bench.job import JobError
from stretto.tuning import gpu_search, table
from stretto.tuning.gpu_search import MARGIN, Case, Clock, GpuSearch, cases, cells
from stretto.tuning.search import WrongResult

LANES = 128
SUMS = Case("all_reduce", "float_sums", "bfloat16")

Times = Callable[[str, str, int, int], float]  # algorithm, protocol, blocks, bytes


class MadeUp:
    """A library whose times are a function, and whose model has its own opinion. Stands for a job of two ranks."""

    def __init__(self, times: Times, predicted: dict[tuple[str, str], float], **odd: Any) -> None:
        self.times, self.predicted, self.odd = times, predicted, odd
        self.random = random.Random(odd.get("seed", 1))
        self.contests: list[tuple[int, list[str]]] = []

    def ask(self, command: str, seconds: float) -> list[dict[str, Any]]:
        verb, *pairs = command.split()
        words = dict(pair.split("=", 1) for pair in pairs)
        bytes = int(words["count"]) * {"bfloat16": 2, "int32": 4}[words["type"]]
        return [self.prepare(bytes) if verb == "prepare" else self.contest(bytes, words)] * 2

    def planned(self, bytes: int) -> int:
        return max(1, min(64, bytes // 4096))

    def prepare(self, bytes: int) -> dict[str, Any]:
        candidates = [
            {
                "algorithm": algorithm,
                "protocol": protocol,
                "possible": True,
                "predicted_us": us,
                "blocks": self.planned(bytes),
            }
            for (algorithm, protocol), us in self.predicted.items()
        ]
        best = min(candidates, key=lambda one: one["predicted_us"])
        impossible = {"algorithm": "local", "protocol": "simple", "possible": False, "predicted_us": None, "blocks": 1}
        machine = {"gpu": self.odd.get("gpu", "A GPU"), "links": "nvlink", "lanes": LANES, "version": "0.1.0"}
        how = {
            "request": {"bytes": bytes},
            "machine": {**machine, "same_process": False},
            "candidates": [*candidates, impossible],
            "chosen": best,
        }
        return {"ok": True, "wrong": self.odd.get("wrong", 0), "how": how}

    def contest(self, bytes: int, words: dict[str, str]) -> dict[str, Any]:
        ways = [entrant.split(":") for entrant in words["entrants"].split(",")]
        self.contests.append((bytes, words["entrants"].split(",")))
        rounds, drop = int(words["rounds"]), float(words["drop"])
        rows = []
        for algorithm, protocol, chunk, blocks in ways:
            assert chunk == ""
            count = int(blocks or self.planned(bytes))
            refused = "not here" if (algorithm, protocol) in self.odd.get("refuses", ()) or count > LANES else None
            us = self.times(algorithm, protocol, count, bytes)
            noise = self.odd.get("noise", 0.0)
            turns = [us * (1 + noise * self.random.random()) for _ in range(rounds)]
            wrong = int((algorithm, protocol) == self.odd.get("liar"))
            rows.append({"us": [] if refused else turns, "wrong": wrong, "refused": refused})
        best = min((row["us"][0] for row in rows if row["us"]), default=0.0)
        for row in rows:
            if drop and row["us"] and row["us"][0] > best * drop:
                row["us"] = row["us"][:1]
        return {"ok": True, "entrants": rows}


def search(library: MadeUp, said: list[str] | None = None) -> GpuSearch:
    return GpuSearch(library, 2, (said if said is not None else []).append)  # type: ignore[arg-type]


def flat(**us: float) -> Times:
    """Times by algorithm, whatever the blocks."""
    return lambda algorithm, protocol, blocks, bytes: us[algorithm]


def test_the_planners_choice_falls_only_to_who_is_faster_by_the_margin() -> None:
    for gain, falls in ((0.5 * MARGIN, False), (1.5 * MARGIN, True)):
        library = MadeUp(flat(a=10.0, b=10.0 * (1 - gain)), {("a", "x"): 1.0, ("b", "x"): 1.5})
        winner = search(library).measure(SUMS, 65536, False)
        assert winner is not None
        row = winner.row()
        assert (row["bytes"], row["algorithm"]) == (65536, "b" if falls else "a")
        assert (row["blocks"], row["chunk_bytes"]) == (0, 0), "as the planner would"
        assert row["us"] == pytest.approx(10.0 * (1 - gain) if falls else 10.0)


def test_noise_changes_nothing() -> None:
    ways = {(name, "x"): 1.0 + 0.1 * number for number, name in enumerate("abcdef")}
    changed = 0
    for seed in range(60):
        library = MadeUp(lambda *_: 10.0, ways, noise=0.06, seed=seed)
        winner = search(library).measure(SUMS, 1 << 20, False)
        assert winner is not None
        changed += winner.best is not winner.model
    assert changed <= 3


@pytest.mark.parametrize("best", [1, 4, 8, 24, 96, 128])
def test_the_number_of_blocks_is_found(best: int) -> None:
    """From the model's 32, by doubling, halving and a step between."""

    def times(algorithm: str, protocol: str, blocks: int, bytes: int) -> float:
        return 10 * max(blocks / best, best / blocks) ** 0.5

    library = MadeUp(times, {("a", "x"): 1.0, ("b", "x"): 50.0})
    winner = search(library).measure(SUMS, 32 * 4096, False)
    assert winner is not None
    assert times("", "", winner.best.blocks, 0) <= 10 * 2**0.5, "within a factor of two"
    assert winner.best.blocks <= LANES
    if best in (8, 24, 96, 128):
        assert winner.best.blocks == best
    assert winner.row()["blocks"] == winner.best.blocks


def test_who_is_predicted_to_be_far_behind_takes_no_part() -> None:
    library = MadeUp(flat(a=10.0, b=9.0, c=1.0), {("a", "x"): 1.0, ("b", "x"): 2.9, ("c", "x"): 3.1})
    winner = search(library).measure(SUMS, 65536, False)
    assert winner is not None and winner.best.algorithm == "b"
    assert not any("c:" in way for _, ways in library.contests for way in ways)


def test_many_candidates_stay_bounded() -> None:
    ways = {(f"a{number}", "x"): 1.0 + number / 100 for number in range(30)}
    library = MadeUp(lambda *_: 10.0, ways)
    search(library).measure(SUMS, 65536, False)
    assert max(len(entrants) for _, entrants in library.contests) <= 11


def test_what_won_nearby_takes_part_though_the_model_is_against_it() -> None:
    library = MadeUp(flat(a=10.0, b=5.0), {("a", "x"): 1.0, ("b", "x"): 2.0})
    found = search(library)
    found.measure(SUMS, 65536, False)
    library.predicted[("b", "x")] = 9.0
    winner = found.measure(SUMS, 131072, True)
    assert winner is not None and winner.best.algorithm == "b"


def test_what_the_library_refuses_is_left_out_and_told_once() -> None:
    said: list[str] = []
    library = MadeUp(flat(a=10.0, b=5.0), {("a", "x"): 1.0, ("b", "x"): 1.5}, refuses=[("b", "x")])
    found = search(library, said)
    for size in (1 << 12, 1 << 14):
        winner = found.measure(SUMS, size, False)
        assert winner is not None and winner.best.algorithm == "a"
    assert said == ["all_reduce of 4096 bytes: b/x left out: not here"]


def test_wrong_results_end_the_search() -> None:
    ways = {("a", "x"): 1.0, ("b", "x"): 1.5}
    with pytest.raises(WrongResult, match="by b/x has 2 wrong elements"):
        search(MadeUp(flat(a=10.0, b=5.0), ways, liar=("b", "x"))).measure(SUMS, 65536, False)
    with pytest.raises(WrongResult, match="the planner's choice has 6 wrong"):
        search(MadeUp(flat(a=10.0, b=5.0), ways, wrong=3)).measure(SUMS, 65536, False)


def test_what_cannot_be_measured_is_said() -> None:
    ways = {("a", "x"): 1.0, ("b", "x"): 1.5}
    with pytest.raises(JobError, match="GPUs of one kind"):
        search(MadeUp(flat(a=1.0, b=1.0), ways, gpu="")).measure(SUMS, 65536, False)
    with pytest.raises(JobError, match="nothing runs"):
        search(MadeUp(flat(a=1.0, b=1.0), ways, refuses=list(ways))).measure(SUMS, 65536, False)
    assert search(MadeUp(flat(a=1.0), {("a", "x"): 1.0})).measure(SUMS, 65536, False) is None, "nothing to choose"
    assert search(MadeUp(flat(a=1.0), ways)).measure(Case("all_gather", None, "bfloat16"), 2, False) is None


def test_every_case_is_coarse_before_any_is_fine() -> None:
    sizes = [1 << bits for bits in range(10, 30)]
    order = cells(cases(["all_reduce", "all_gather"]), sizes, quick=False)
    assert [case.name for case in cases(["all_reduce", "all_gather"])] == [
        "all_reduce",
        "all_reduce (others)",
        "all_gather",
    ]
    coarse = [cell for cell in order if not cell[2]]
    assert order[: len(coarse)] == coarse
    assert {size for _, size, between in order if not between} == {*sizes[::2], sizes[-1]}
    for name in ("all_reduce", "all_gather"):
        assert sorted(size for case, size, _ in order if case.name == name) == sizes
    assert cells(cases(["all_reduce", "all_gather"]), sizes, quick=True) == coarse


def test_the_clock_stops_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(gpu_search.time, "monotonic", lambda: now)
    clock = Clock(10.0, began=95.0)
    assert clock.has_time(1 << 20), "the first is always measured"
    clock.took(1 << 20, 1.0)
    assert clock.has_time(1 << 20)
    now = 102.5
    assert not clock.has_time(1 << 20), "1.3 s and the closing do not fit"
    assert clock.has_time(1 << 10) is False
    clock.took(1 << 10, 0.1)
    assert clock.has_time(1 << 10)
    now = 1e6
    assert Clock(0.0).has_time(1)


def test_a_whole_search_fits_into_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only commands move, by what they would take: nine candidates of which no two are equal, at 20
    sizes of six collectives, on two GPUs. An entrant costs 8 ms of the host's (force, check, record two graphs) and a
    dozen operations, a turn what it is given, at least four operations, and 0.3 ms.
    """
    now = 0.0

    def times(algorithm: str, protocol: str, blocks: int, bytes: int) -> float:
        number = int(algorithm[1:])
        wire = bytes / min(330e3 - 12e3 * number, 24e3 * blocks)
        return 2.0 + 0.4 * number + 0.02 * blocks + wire

    class Slow(MadeUp):
        def contest(self, bytes: int, words: dict[str, str]) -> dict[str, Any]:
            nonlocal now
            reply = super().contest(bytes, words)
            for way, row in zip(self.contests[-1][1], reply["entrants"], strict=True):
                algorithm, protocol, _, blocks = way.split(":")
                us = times(algorithm, protocol, int(blocks or self.planned(bytes)), bytes)
                now += 8e-3 + 12e-6 * us + len(row["us"]) * (300 + max(int(words["turn_us"]), 4 * us)) / 1e6
            return reply

        def prepare(self, bytes: int) -> dict[str, Any]:
            nonlocal now
            now += 6e-3 + 4e-6 * times("a0", "x", 64, bytes)
            return super().prepare(bytes)

    monkeypatch.setattr(gpu_search.time, "monotonic", lambda: now)
    library = Slow(times, {(f"a{number}", "x"): 2.0 + 0.4 * number for number in range(9)})
    found, clock = search(library), Clock(0.0)
    collectives = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")
    order = cells(cases(collectives), [1 << bits for bits in range(10, 30)], quick=False)
    for case, size, between in order:
        assert clock.has_time(size)
        found.measure(case, size, between)
    assert now < 50, f"{now:.1f} s, and the ranks have to start"


def test_entries_of_gpus_merge_by_all_that_tells_them_apart() -> None:
    machine = {"gpu": "A GPU", "links": "nvlink", "version": "0.1.0", "same_process": False}
    host = table.entry("all_reduce", 2, {"cores": 2, "reach": True, "same_process": False}, [])
    sums = table.entry("all_reduce", 2, machine, [{"bytes": 1}], "float_sums")
    assert sums["reduction"] == "float_sums" and "cores" not in sums
    others = [
        table.entry("all_reduce", 2, machine, [], "others"),
        table.entry("all_reduce", 4, machine, [], "float_sums"),
        *(
            table.entry("all_reduce", 2, {**machine, **change}, [], "float_sums")
            for change in ({"gpu": "Another"}, {"links": "pcie"}, {"version": "9"}, {"same_process": True})
        ),
    ]
    again = {**sums, "rows": [{"bytes": 2}]}
    assert table.merge([host, sums, *others], [again]) == [host, *others, again]


def test_shipped_tables_are_of_this_version() -> None:
    """One of another version would never be used: measure again, or take it out."""
    version = re.search(r"VERSION (\S+)", (CHECKOUT / "CMakeLists.txt").read_text().split("project(stretto")[1])
    assert version is not None
    for path in (CHECKOUT / "tables").glob("*.json"):
        for entry in json.loads(path.read_text())["entries"]:
            assert entry.get("version", version[1]) == version[1], path
            sizes = [row["bytes"] for row in entry["rows"]]
            assert sizes == sorted(set(sizes)), path


# --- the whole command ---


@pytest.fixture
def programs(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder as it is carried to a GPU machine, and the environment there: two GPUs, no compiled package."""
    try:
        driver = find_driver("nccl_driver_on_host")
    except Missing as reason:
        pytest.skip(str(reason))
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(driver, folder / "nccl_driver")
    # The driver finds what it exports to the shim by its own name; which one that is does not matter.
    shutil.copy(driver.with_name("libshim_stretto.so"), folder / "libnccl.so.2")
    source = tmp_path / "driver.c"
    source.write_text("int cuInit(unsigned f){return (int)f;} int cuDeviceGetCount(int*n){*n=2;return 0;}\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libcuda.so.1")], check=True)
    package = tmp_path / "stretto"
    package.mkdir()
    for name in ("bench", "cli", "tuning"):
        shutil.copytree(drivers.PACKAGE.parent / name, package / name)
    shutil.copy(drivers.PACKAGE.parent / "errors.py", package)
    (package / "__init__.py").write_text("raise ImportError('not built')\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "STRETTO_BENCH_DRIVERS": str(folder),
        "SHIM_LIBRARY": str(driver.parents[1] / "libnccl.so.2"),
        "STRETTO_DEVICE": "cpu",
        "TMPDIR": str(scratch),
    }
    return package / "bench" / "standalone.py", environment


def command(programs: tuple[Path, dict[str, str]], *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    script, environment = programs
    return subprocess.run(
        [sys.executable, str(script), "tune", "--device", "cuda", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment, **more},
    )


@pytest.mark.parametrize("ranks_are_threads", [False, True])
def test_the_command_writes_a_table(
    ranks_are_threads: bool, programs: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    how = ["--threads"] if ranks_are_threads else []
    words = ["--sizes", "1K:4K", "--collective", "all_reduce", "--collective", "all_gather", "--output", path, *how]
    done = command(programs, *words, "--json", "-", SHIM_GPU="A GPU")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(path.read_text())
    assert (document["schema"], document["machine"]["gpu"]) == ("stretto.table/1", "A GPU")
    assert "hostname" not in document["machine"]
    found = {(one["collective"], one.get("reduction")): one for one in document["entries"]}
    assert set(found) == {("all_reduce", "float_sums"), ("all_reduce", "others"), ("all_gather", None)}
    for (collective, reduction), entry in found.items():
        assert (entry["gpu"], entry["links"], entry["ranks"]) == ("A GPU", "nvlink", 2)
        # Every other size for what is rarer; all_gather counts what one rank brings.
        sizes = [1024, 4096] if reduction == "others" else [1024, 2048, 4096]
        parts = 2 if collective == "all_gather" else 1
        assert [row["bytes"] * parts for row in entry["rows"]] == sizes
        assert all(row["us"] > 0 and row["blocks"] == 0 for row in entry["rows"])
    # Again, for other GPUs: what was there stays.
    done = command(programs, "--quick", *words, SHIM_GPU="Another GPU")
    assert done.returncode == 0, done.stderr
    assert "export STRETTO_TABLE=" in done.stdout
    gpus = [one["gpu"] for one in json.loads(path.read_text())["entries"]]
    assert gpus == ["A GPU"] * 3 + ["Another GPU"] * 3


def test_the_command_stops_in_time(programs: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    began = time.monotonic()
    done = command(programs, "--sizes", "1K:16M", "--seconds", "4", "--output", path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30, "all sizes take more than a minute"
    left = re.search(r"4 s are over: (\d+) of the sizes are left out", done.stderr)
    assert left is not None and int(left[1]) > 20, done.stderr
    assert json.loads(path.read_text())["entries"]


def test_the_command_says_what_is_wrong_and_writes_nothing(
    programs: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    words = ["--sizes", "4K", "--collective", "all_reduce", "--output", path]
    wrong = command(programs, *words, SHIM_FAULT="wrong")
    assert wrong.returncode == 1
    assert "by the planner's choice has" in wrong.stderr
    forced = command(programs, *words, STRETTO_ALGO="ring")
    assert forced.returncode == 2
    assert "STRETTO_ALGO is set" in forced.stderr
    few = command(programs, *words, "--ranks", "3")
    assert few.returncode == 2
    assert "3 ranks need as many GPUs and here are 2" in few.stderr
    none = command(programs, *words, STRETTO_BENCH_DRIVERS=str(tmp_path / "nowhere"))
    assert none.returncode == 2
    assert "no libnccl.so.2" in none.stderr or "no nccl_driver" in none.stderr
    assert not path.exists()
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_ends_the_command_finds_nothing_left(
    number: int, status: int, programs: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    script, environment = programs
    path = tmp_path / "table.json"
    words = ["tune", "--device", "cuda", "--sizes", "1K:64M", "--output", str(path)]
    with subprocess.Popen([sys.executable, str(script), *words], env={**os.environ, **environment}) as child:
        ranks: list[str] = []
        for _ in range(100):
            time.sleep(0.1)
            ranks = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            if len(ranks) >= 2:
                break
        assert len(ranks) >= 2
        time.sleep(1.0)
        child.send_signal(number)
        assert child.wait(20) == status
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert not path.exists()
    assert list((tmp_path / "scratch").iterdir()) == []

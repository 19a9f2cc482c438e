"""The other commands: what they print for people and for machines."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from jobs import environment, hanging, run_script, started, stretto, wait_for
from stretto.bench.options import MOST_RANKS
from stretto.cli import doctor as doctor_module
from stretto.cli.explain import sentence
from stretto.tuning import table as tables
from stretto.tuning.search import Candidate


def json_of(*arguments: object, **extra: str) -> dict[str, Any]:
    done = stretto(*arguments, "--json", "-", **extra)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_help_names_every_command() -> None:
    text = stretto("--help").stdout
    for command in ("bench", "doctor", "explain", "info", "run", "topo", "tune"):
        assert command in text


def test_version() -> None:
    done = stretto("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stretto {package.__version__}\n", "")


def test_a_variable_that_nothing_reads_is_told_with_the_nearest() -> None:
    done = stretto("topo", STRETTO_ALGOO="ring")
    assert done.returncode == 0
    assert "STRETTO_ALGOO is set, and nothing of Stretto reads it; is STRETTO_ALGO meant?" in done.stderr
    known = {one["name"]: "1" for one in json_of("info")["python_variables"]}
    assert stretto("topo", **known, STRETTO_TRACE_DIR="/tmp", STRETTO_TIMEOUT="9").stderr == ""


@pytest.mark.parametrize("ranks", [0, 65, 100000])
def test_ranks_that_cannot_be_are_refused_with_the_limit(ranks: int, tmp_path: Path) -> None:
    for command in (
        ["explain", "all_reduce", "1M", "--ranks", ranks],
        ["run", "-n", ranks, "--", "touch", tmp_path / "ran"],
        ["bench", "--ranks", ranks, "--peers", "none"],
    ):
        done = stretto(*command)
        assert done.returncode == 2 and f"--ranks {ranks}" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and done.stdout == ""
        assert ranks == 0 or "64" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_the_limit_of_ranks_is_the_library_s() -> None:
    with pytest.raises(package.InvalidArgument, match=f"1 to {MOST_RANKS} "):
        package.init_all(MOST_RANKS + 1)


def test_explain(tmp_path: Path) -> None:
    document = json_of("explain", "all_reduce", "1M", "--ranks", 4)
    assert document["schema"] == "stretto.explain/1"
    assert document["request"] == {
        "collective": "all_reduce",
        "type": "float32",
        "op": "sum",
        "bytes": 1 << 20,
        "ranks": 4,
    }
    assert sum(one["chosen"] for one in document["candidates"]) == 1
    assert json_of("explain", "all_reduce", "1048576", "-n", 4) == document
    done = stretto("explain", "all_reduce", "1M", "--ranks", 4, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == document
    assert "all_reduce of 1 MB of float32 between 4 ranks" in done.stdout
    assert document["chosen"]["algorithm"] in done.stdout and "because" in done.stdout


def test_explain_when_forced_and_when_impossible() -> None:
    forced = stretto("explain", "all_reduce", "64K", "-n", 2, STRETTO_ALGO="ring")
    assert "ring with simple runs, because it is forced" in forced.stdout
    wrong = stretto("explain", "all_reduce", "64K", STRETTO_ALGO="nonsense")
    assert wrong.returncode == 1 and "STRETTO_ALGO" in wrong.stderr and "ring" in wrong.stderr
    assert stretto("explain", "all_reduce", "1X").returncode == 2
    assert "all_reduce, reduce_scatter" in stretto("explain", "al_reduce", "1M").stderr


def test_sentences() -> None:
    plan = {"algorithm": "ring", "protocol": "simple", "predicted_us": 10.0, "possible": True}
    other = {"algorithm": "tree", "protocol": "simple", "predicted_us": 12.5, "possible": True}
    base = {"chosen": plan, "candidates": [plan, other], "error": None, "table": {"origin": "shipped"}}
    assert sentence(base | {"why": "model"}).endswith("the fastest: 10 µs, and the next best 12.5 µs.")
    assert "measured to be the fastest (shipped)." in sentence(base | {"why": "table"})
    silent = base | {"why": "model", "table": {"origin": "shipped", "note": "nobody has measured it"}}
    assert sentence(silent).endswith("The table (shipped) does not decide it: nobody has measured it.")
    assert sentence(base | {"chosen": None, "error": "no way"}) == "Nothing runs: no way"


def test_topo() -> None:
    document = json_of("topo")
    assert document["schema"] == "stretto.topology/1" and document["memory_bytes"] > 0
    text = stretto("topo").stdout
    assert document["hostname"] in text and "usable cores" in text


def test_topo_shows_gpus(tmp_path: Path) -> None:
    document = json_of("topo")
    links = [{"to": "nvswitch", "count": 18, "megabytes_per_second": 26562}]
    gpu = {"name": "Example GPU", "uuid": "GPU-0", "bus_id": "0000:1b:00.0", "node": 1, "memory_bytes": 2**37}
    last = {"to": "0000:1b:00.0", "count": 2, "megabytes_per_second": 0}
    document["devices"] = [
        gpu | {"nvlinks": links},
        gpu | {"uuid": "GPU-1", "bus_id": "0000:1c:00.0", "node": -1, "nvlinks": [last]},
    ]
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(document))
    assert json_of("topo", STRETTO_TOPO_FILE=str(file))["devices"] == document["devices"]
    text = stretto("topo", STRETTO_TOPO_FILE=str(file), COLUMNS="200").stdout
    assert "18 x 26.56 GB/s to nvswitch" in text and "2 to GPU 0" in text and "128 GiB" in text


def test_info(tmp_path: Path) -> None:
    document = json_of("info", STRETTO_TIMEOUT="12.5", STRETTO_RENDEZVOUS_SECRET="hush", STRETTO_UNIQUE_ID="ab")
    assert document["schema"] == "stretto.info/1" and document["version"] == package.__version__
    assert document["nccl_version"] == 23203
    for name in ("library", "nccl_library"):
        assert Path(document[name]).is_file()
    assert (Path(document["include"]) / "nccl.h").is_file() and (Path(document["include"]) / "stretto.h").is_file()
    by_name = {one["name"]: one for one in document["parameters"] + document["python_variables"]}
    assert by_name["STRETTO_TIMEOUT"]["value"] == "12.5" and by_name["STRETTO_TIMEOUT"]["set"]
    assert "hush" not in json.dumps(document) and by_name["STRETTO_RENDEZVOUS_SECRET"]["set"]
    assert document["cuda"] is (document["nvcc"] is not None) is bool(document["kernels"])
    text = stretto("info").stdout
    assert ("by nvcc" if document["cuda"] else "built without nvcc") in text
    assert all(name in text for name in by_name)


def test_info_says_what_a_process_has_loaded() -> None:
    document = json_of("info", "--pid", os.getpid())
    libraries = document["process"]["libraries"]
    # Tests of the interface may have loaded the library under its other name into this process as well.
    assert libraries and all(one["stretto"] for one in libraries)
    assert any("libstretto" in one["path"] for one in libraries)
    done = stretto("info", "--pid", 2**22 - 1)
    assert done.returncode == 1 and "cannot look at process" in done.stderr


def test_a_json_file_that_cannot_be_written_is_an_error() -> None:
    done = stretto("topo", "--json", "/no/such/folder/x.json")
    assert done.returncode == 2 and "cannot write /no/such/folder/x.json" in done.stderr


def test_doctor_names_the_rank_that_is_awaited(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(hanging(2))
    with started("run", "-n", 3, script, tmp_path) as job:
        wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in range(3)), 60, "ranks start")

        def is_told() -> bool:
            done = stretto("doctor", "--children", job.pid)
            return done.returncode == 3 and "rank 2" in done.stdout

        wait_for(is_told, 60, "the wait has lasted long enough to be one")
        pids = [(tmp_path / f"ready{rank}").read_text() for rank in range(3)]
        attached = stretto("doctor", "--attach", ",".join(pids), "--json", "-")
        document = json.loads(attached.stdout)
        assert document["schema"] == "stretto.doctor/1" and document["verdict"] == "waiting"
        assert document["communicators"][0]["suspects"] == [2]
        assert job.poll() is None, "the job was not disturbed"


def test_doctor_reads_what_a_dead_job_left(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(hanging(2))
    flights = tmp_path / "flights"
    flights.mkdir()
    with started("run", "-n", 3, "--grace", 0, script, tmp_path, STRETTO_FLIGHT_DIR=str(flights)) as job:
        wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in range(3)), 60, "ranks start")
        time.sleep(0.3)
        os.kill(int((tmp_path / "ready2").read_text()), signal.SIGKILL)
        job.communicate(timeout=20)
    done = stretto("doctor", "--attach", flights)
    assert done.returncode == 3, done.stderr
    assert "rank 2" in done.stdout


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_doctor_reads_what_a_job_left_that_nobody_prepared(tmp_path: Path, end: str) -> None:
    done = run_script(
        tmp_path,
        3,
        "import os, signal, numpy, stretto\n"
        "comm = stretto.init()\n"
        "os.write(1, f'pid {os.getpid()}\\n'.encode())\n"  # in one piece: all write to one pipe
        "comm.barrier()\n"
        f"if comm.rank == 1: {end}\n"
        "comm.all_reduce(numpy.zeros(4096, 'float32'))\n",
    )
    assert done.returncode != 0
    kept = Path(f"/dev/shm/stretto-flight-{os.geteuid()}")
    pids = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("pid ")]
    files = [path for path in kept.glob("*.flight") if path.name.split("-")[-3] in pids]
    assert len(files) == 3, "one of each rank"
    told = stretto("doctor", *files)
    assert told.returncode == 3, told.stderr
    # The others may have been in an operation, or have heard of it before they began one.
    assert "rank 1 died" in told.stdout and "lost rank 1" in told.stdout
    assert stretto("doctor").returncode in (0, 3), "the last job, whichever that is"
    for file in files:
        file.unlink()


def test_a_job_that_ends_by_exit_without_more_has_not_died(tmp_path: Path) -> None:
    text = """
import os, numpy, stretto
comm = stretto.init()
comm.all_reduce(numpy.zeros(4096, "float32"))
os._exit(0)
"""
    kept = tmp_path / "kept"
    kept.mkdir()
    done = run_script(tmp_path, 2, text, STRETTO_FLIGHT_DIR=str(kept))
    assert done.returncode == 0, done.stderr
    told = stretto("doctor", kept, "--json", "-")
    (communicator,) = json.loads(told.stdout)["communicators"]
    assert told.returncode == 3 and "left without finalising" in " ".join(communicator["sentences"])
    # Who ended last may have noted that the other was gone, which a rank that needs it would have, too.
    errors = [member["error"] for member in communicator["members"] if member["error"]]
    assert communicator["verdict"] == ("died" if errors else "left"), communicator


def test_a_job_that_ends_in_peace_leaves_no_recorder(tmp_path: Path) -> None:
    done = run_script(
        tmp_path, 2, "import os, stretto\nstretto.init().barrier()\nos.write(1, f'pid {os.getpid()}\\n'.encode())\n"
    )
    assert done.returncode == 0, done.stderr
    pids = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("pid ")]
    assert len(pids) == 2
    kept = Path(f"/dev/shm/stretto-flight-{os.geteuid()}")
    assert not [path for path in kept.glob("*.flight") if path.name.split("-")[-3] in pids]


def test_doctor_command_lines(tmp_path: Path) -> None:
    assert stretto("doctor", tmp_path, "--attach", "1").returncode == 2
    assert stretto("doctor", tmp_path).returncode == 1, "nothing in there"
    assert stretto("doctor", tmp_path / "none").returncode == 1
    assert "no descendants" in stretto("doctor", "--children", os.getpid()).stderr
    assert stretto("doctor", "--attach", "/no/such/place").returncode == 1


def test_descendants() -> None:
    import subprocess

    child = subprocess.Popen(["sh", "-c", "sleep 100 & wait"])
    try:
        wait_for(lambda: len(doctor_module.descendants(child.pid)) == 1, 5, "sleep starts")
        grandchild = doctor_module.descendants(child.pid)[0]
        assert grandchild in doctor_module.descendants(os.getpid())
        os.kill(grandchild, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()


# --- tune ---


def candidate(name: str, *turns: float) -> Candidate:
    return Candidate(name, "simple", list(turns))


@pytest.mark.parametrize(
    ("turns", "wins"),
    [
        ((9.0, 9.0, 9.0), True),
        ((9.8, 9.8, 9.8), False),  # within the margin
        ((5.0, 10.5, 10.5), False),  # one lucky turn
        ((9.0, 9.0, 12.0), True),
    ],
)
def test_a_champion_falls_only_to_what_noise_cannot_do(turns: tuple[float, ...], wins: bool) -> None:
    assert candidate("a", *turns).beats(candidate("b", 10.0, 10.0, 10.0)) == wins


def test_tables_merge_by_case(tmp_path: Path) -> None:
    machine = {"cores": 2, "same_process": False, "reach": True}
    row = {"bytes": 64, "algorithm": "ring", "protocol": "simple", "chunk_bytes": 0, "us": 1.0}
    old = [tables.entry("all_reduce", 2, machine, [row]), tables.entry("all_reduce", 4, machine, [row])]
    new = [tables.entry("all_reduce", 2, machine | {"cores": 8}, [row | {"us": 2.0}])]
    merged = tables.merge(old, new)
    assert [(one["ranks"], one["rows"][0]["us"]) for one in merged] == [(4, 1.0), (2, 2.0)]
    tables.write(tmp_path / "deep" / "table.json", tables.with_entries({}, merged, {}))
    assert tables.read(tmp_path / "deep" / "table.json")["entries"] == merged
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["table.json"]
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(package.InvalidArgument, match="will not be overwritten"):
        tables.read(tmp_path / "other.json")


@pytest.mark.parametrize("options", [(), ("--threads",)])
def test_tune_writes_a_table_that_the_library_takes(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "table.json"
    words = ("--quick", "--collective", "all_reduce", "--sizes", "256:4K", "--output", path, *options)
    # No native driver: the one in Python is what is tested here, on any machine.
    done = stretto("tune", "-n", 2, *words, "--json", "-", STRETTO_BENCH_DRIVERS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "through Python" in done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(path.read_text()) and document["schema"] == "stretto.table/1"
    (entry,) = document["entries"]
    assert (entry["collective"], entry["ranks"], entry["same_process"]) == ("all_reduce", 2, bool(options))
    assert [row["bytes"] for row in entry["rows"]] == [256, 4096]
    if not options:
        explained = json_of("explain", "all_reduce", "4K", "-n", 2, STRETTO_TABLE=str(path))
        row = entry["rows"][1]
        assert explained["why"] == "table"
        assert (explained["chosen"]["algorithm"], explained["chosen"]["protocol"]) == (
            row["algorithm"],
            row["protocol"],
        )


def test_tune_command_lines(tmp_path: Path) -> None:
    assert stretto("tune", "--collective", "send").returncode == 2
    assert stretto("tune", "--sizes", "1K:1").returncode == 2
    (tmp_path / "x.json").write_text("not json")
    done = stretto("tune", "--output", tmp_path / "x.json")
    assert done.returncode == 1 and "is no table" in done.stderr


def test_interrupted_tune_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    with started("tune", "-n", 2, "--output", path, TMPDIR=str(tmp_path)) as job:
        wait_for(lambda: len(doctor_module.descendants(job.pid)) >= 2, 60, "ranks start")
        ranks = doctor_module.descendants(job.pid)
        time.sleep(0.5)
        os.kill(job.pid, signal.SIGINT)
        job.communicate(timeout=20)
        assert job.returncode == 130
        assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert list(tmp_path.iterdir()) == []


# --- the package ---


def test_a_c_program_builds_against_the_package_and_runs(tmp_path: Path) -> None:
    import shutil
    import subprocess

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None, "the package was built with a compiler"
    source = Path(__file__).parents[2] / "examples" / "01_hello.c"
    library = package.library_path()
    build = [
        compiler,
        "-Wall",
        "-Werror",
        source,
        f"-I{package.include_path()}",
        library,
        f"-Wl,-rpath,{library.parent}",
    ]
    subprocess.run([*build, "-o", tmp_path / "hello"], check=True, timeout=60)
    done = subprocess.run([tmp_path / "hello"], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"rank {rank} of 4: 6" for rank in range(4)]


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_examples() -> None:
    import subprocess

    assert "rank 3 of 4: [6. 6. 6. 6.]" in stretto("run", "-n", 4, EXAMPLES / "01_hello.py").stdout
    done = subprocess.run(
        [sys.executable, EXAMPLES / "02_threads.py"], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    split = stretto("run", "-n", 4, EXAMPLES / "03_split.py")
    assert "rank 2: my neighbour in the row is rank 3" in split.stdout, split.stderr
    failure = stretto("run", "-n", 3, EXAMPLES / "04_failure.py")
    assert failure.returncode == 137
    assert "rank 1 of 2 goes on: [3. 3. 3. 3.]" in failure.stdout, failure.stdout + failure.stderr


def test_the_package_is_typed_and_lazy() -> None:
    import subprocess

    assert (Path(package.__file__).parent / "py.typed").exists()
    text = "import sys, stretto; print('numpy' in sys.modules, 'typer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]

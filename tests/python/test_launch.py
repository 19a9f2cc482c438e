"""Where a rank finds its number: the environments of all launchers, and how the unique id travels without one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from jobs import environment
from stretto import launch, rendezvous
from stretto.errors import InvalidUsage, SystemCallError, Timeout

ID = bytes(range(128))
STRETTO = {"STRETTO_RANK": "1", "STRETTO_RANKS": "2", "STRETTO_UNIQUE_ID": ID.hex()}
TORCHRUN = {
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"},
    **{"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "job"},
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "PMIX_NAMESPACE": "n@1",
}
MPIEXEC = {"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3", "PMI_PORT": "host:1"}
SRUN = {"SLURM_PROCID": "4", "SLURM_NTASKS": "5", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NNODES": "1"}


@pytest.mark.parametrize(
    ("variables", "launcher", "rank", "ranks"),
    [
        (STRETTO, "stretto run", 1, 2),
        (TORCHRUN, "torchrun", 3, 4),
        (MPIRUN, "mpirun", 2, 3),
        (MPIEXEC, "mpiexec", 0, 3),
        (SRUN, "srun", 4, 5),
        (SRUN | MPIRUN | TORCHRUN | STRETTO, "stretto run", 1, 2),
        (SRUN | MPIRUN | TORCHRUN, "torchrun", 3, 4),
        (SRUN | MPIRUN, "mpirun", 2, 3),
    ],
)
def test_launchers(variables: dict[str, str], launcher: str, rank: int, ranks: int) -> None:
    place = launch.place(variables)
    assert (place.launcher, place.rank, place.ranks, place.one_host) == (launcher, rank, ranks, True)


def test_jobs_are_told_apart() -> None:
    for variables in (TORCHRUN, MPIRUN, MPIEXEC, SRUN):
        for name, other in (
            ("TORCHELASTIC_RUN_ID", "x"),
            ("PMIX_NAMESPACE", "x"),
            ("PMI_PORT", "x"),
            ("SLURM_JOB_ID", "x"),
        ):
            if name in variables:
                assert launch.place(variables).job != launch.place(variables | {name: other}).job


def test_several_hosts() -> None:
    assert not launch.place(TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}).one_host
    assert not launch.place(MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}).one_host
    assert not launch.place(SRUN | {"SLURM_NNODES": "2"}).one_host
    assert launch.place({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}).one_host


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "no launcher"),
        ({"RANK": "0"}, "no launcher"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 and WORLD_SIZE=2"),
        ({**STRETTO, "STRETTO_UNIQUE_ID": "12"}, "hexadecimal"),
        ({**STRETTO, "STRETTO_UNIQUE_ID": "z" * 256}, "hexadecimal"),
    ],
)
def test_nonsense_is_refused(variables: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidUsage, match=words):
        launch.place(variables)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of our own for the files, and no variable that changes how ranks meet."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("STRETTO_RENDEZVOUS", "STRETTO_RENDEZVOUS_PORT", "STRETTO_RENDEZVOUS_SECRET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def place_of(rank: int, **changes: object) -> launch.Place:
    facts = {"launcher": "torchrun", "ranks": 2, "job": "j", "one_host": True, "master": ("127.0.0.1", 29500)}
    return launch.Place(rank=rank, **{**facts, **changes})  # type: ignore[arg-type]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize("one_host", [True, False])
def test_the_id_travels(runtime: Path, monkeypatch: pytest.MonkeyPatch, one_host: bool) -> None:
    monkeypatch.setenv("STRETTO_RENDEZVOUS_PORT", free_port())
    learned: list[bytes] = []
    other = threading.Thread(target=lambda: learned.append(rendezvous.learn(place_of(1, one_host=one_host), 0, 10)))
    other.start()
    time.sleep(0.1)
    with rendezvous.publish(place_of(0, one_host=one_host), 0, ID):
        other.join(10)
    assert learned == [ID]
    assert list(runtime.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("one_host", [True, False])
def test_a_rank_that_looks_for_rank_0_for_long_says_so_once(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, one_host: bool
) -> None:
    monkeypatch.setenv("STRETTO_RENDEZVOUS_PORT", free_port())
    monkeypatch.setenv("STRETTO_WARN_AFTER", "0.2")
    with warnings.catch_warnings(record=True) as told, pytest.raises(Timeout):
        warnings.simplefilter("always")
        rendezvous.learn(place_of(1, one_host=one_host), 0, 1)
    assert len(told) == 1
    assert re.search(
        r"rank 1 of 2 .* has waited 0\.\d+ s, and goes on waiting: .* rank 0's unique id", str(told[0].message)
    )
    monkeypatch.setenv("STRETTO_WARN_AFTER", "0")
    with warnings.catch_warnings(record=True) as told, pytest.raises(Timeout):
        warnings.simplefilter("always")
        rendezvous.learn(place_of(1, one_host=one_host), 0, 0.5)
    assert told == []


@pytest.mark.parametrize("one_host", [True, False])
def test_other_jobs_and_other_generations_are_not_mixed_up(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, one_host: bool
) -> None:
    monkeypatch.setenv("STRETTO_RENDEZVOUS_PORT", free_port())
    with rendezvous.publish(place_of(0, one_host=one_host), 0, ID):
        for place, generation in ((place_of(1, one_host=one_host, job="k"), 0), (place_of(1, one_host=one_host), 1)):
            with pytest.raises(Timeout, match="rank 1 of 2"):
                rendezvous.learn(place, generation, 0.3)
        with monkeypatch.context() as patch:
            patch.setenv("STRETTO_RENDEZVOUS_SECRET", "s")
            with pytest.raises(Timeout):
                rendezvous.learn(place_of(1, one_host=one_host), 0, 0.3)


def test_what_a_killed_job_left_is_ignored_and_removed(runtime: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with rendezvous.publish(place_of(0), 0, ID):
        file = next((runtime / "stretto").iterdir())
        good = file.read_text().split()
        for fields in (
            [good[0], str(gone.pid), good[2], good[3]],  # its writer is gone
            [good[0], good[1], "1", good[3]],  # another process has its number now
            [good[0], good[1], good[2], good[3][:-2]],
            ["garbage"],
            [],
        ):
            file.write_text(" ".join(fields))
            with pytest.raises(Timeout):
                rendezvous.learn(place_of(1), 0, 0.05)
        stale = file.with_name("0" * 32 + ".id")
        stale.write_text(f"stretto1 {gone.pid} 1 {ID.hex()}")
    with rendezvous.publish(place_of(0), 1, ID):
        assert not stale.exists()
    assert list(runtime.iterdir()) == []


def test_a_directory_that_others_may_enter_is_refused(runtime: Path) -> None:
    folder = runtime / "stretto"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(SystemCallError, match="mode 0700"):
        rendezvous.private_directory()
    folder.rmdir()
    folder.symlink_to(runtime)
    with pytest.raises(SystemCallError, match="must be a directory"):
        rendezvous.private_directory()


def test_strangers_on_the_port_get_nothing(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("STRETTO_RENDEZVOUS_PORT", port)
    place = place_of(1, one_host=False)
    with rendezvous.publish(place_of(0, one_host=False), 0, ID):
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(28), b"stretto1" + bytes(20), b"x" * 100_000):
            with socket.create_connection(("127.0.0.1", int(port)), timeout=5) as stranger:
                said = b""
                try:
                    stranger.sendall(garbage)
                    stranger.shutdown(socket.SHUT_WR)
                    while more := stranger.recv(4096):
                        said += more
                except OSError:
                    pass  # it has hung up on us
                assert ID not in said and len(said) <= 48
        silent = socket.create_connection(("127.0.0.1", int(port)), timeout=5)
        assert rendezvous.learn(place, 0, 5) == ID, "a silent client holds up nobody"
        silent.close()


def test_what_travels_by_tcp_is_covered(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("STRETTO_RENDEZVOUS_PORT", port)
    key = rendezvous._key(place_of(1, one_host=False), 0)
    with (
        rendezvous.publish(place_of(0, one_host=False), 0, ID),
        socket.create_connection(("127.0.0.1", int(port)), timeout=5) as client,
    ):
        mine = os.urandom(16)
        client.sendall(b"stretto1" + (1).to_bytes(4, "little") + mine)
        answer = rendezvous._receive(client, 48)
        client.sendall(rendezvous._prove(key, b"client", mine, answer[:16], 1))
        covered = rendezvous._receive(client, 160)
        assert ID[:16] not in covered
        assert rendezvous._cover(key, mine, answer[:16], covered[:128]) == ID


def test_several_hosts_need_an_address(runtime: Path) -> None:
    with (
        pytest.raises(InvalidUsage, match="MASTER_ADDR"),
        rendezvous.publish(place_of(0, one_host=False, master=None), 0, ID),
    ):
        pass


SUM = "import numpy, stretto; c = stretto.init(); print(c.rank, c.size, c.all_reduce(numpy.ones(2))[0]); c.close()"


@pytest.mark.parametrize("variables", [TORCHRUN, MPIRUN, MPIEXEC, SRUN, TORCHRUN | {"STRETTO_RENDEZVOUS": "tcp"}])
def test_a_real_job_without_stretto_run(runtime: Path, variables: dict[str, str]) -> None:
    rank_name = next(name for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if name in variables)
    size_name = next(
        name for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS") if name in variables
    )
    shared = {**variables, size_name: "3", "XDG_RUNTIME_DIR": str(runtime)}
    shared |= {name: "3" for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE") if name in variables}
    if "MASTER_ADDR" in shared:
        shared |= {"MASTER_ADDR": "127.0.0.1", "STRETTO_RENDEZVOUS_PORT": free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUM],
            env=environment(**{**shared, rank_name: str(rank)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (2, 0, 1)
    ]
    try:
        said = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert sorted(out.strip() for out, _ in said) == ["0 3 3.0", "1 3 3.0", "2 3 3.0"], said
    assert list(runtime.iterdir()) == []


def test_without_a_launcher_the_way_out_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import stretto; stretto.init()"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "stretto run -n 4 script.py" in done.stderr


def test_mpirun_itself() -> None:
    """The real launcher, where it is installed beside this Python or on the PATH."""
    mpirun = shutil.which(
        "mpirun", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    )
    if mpirun is None:
        pytest.skip("no mpirun beside this Python or on the PATH")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = [mpirun, *root, "--oversubscribe", "--bind-to", "none", "-n", "3", sys.executable, "-c", SUM]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert sorted(done.stdout.split("\n")) == ["", "0 3 3.0", "1 3 3.0", "2 3 3.0"], done.stderr

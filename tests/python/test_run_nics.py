"""CPU ranks on two hosts with two network interfaces each (tests/python/namespaces.py): interfaces that go down while
ranks work, and packets that are lost.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import started, wait_for
from namespaces import Network, can_be_made, network
from test_run_hosts import write

needs_namespaces = pytest.mark.skipif(
    not can_be_made(), reason="no network namespaces with interfaces of their own can be made here"
)

LOST = "a flow is lost, the others go on with what it carried"

# Checks every sum until a file appears; writes down how far it is, and how it ended.
WORK = """
import json, pathlib, sys, time, numpy, stretto
folder = pathlib.Path(sys.argv[1])
comm = stretto.init()
values = numpy.arange(1 << 18, dtype="float32") % 1000
wrong = done = 0
end = {}
try:
    while True:
        values[0] = comm.rank == 0 and (folder / "stop").exists()
        result = comm.all_reduce(values + numpy.float32(done % 7))
        stop = result[0] != 2 * (done % 7)
        wrong += int((result[1:] != 2 * (values[1:] + done % 7)).sum())
        done += 1
        (folder / f"done{comm.rank}").write_text(str(done))
        if stop:
            break
except stretto.StrettoError as error:
    end = {"error": type(error).__name__, "words": str(error), "moment": time.time()}
(folder / f"end{comm.rank}").write_text(json.dumps({"wrong": wrong, "done": done, **end}))
"""


def done(folder: Path, rank: int) -> int:
    """Sums that a rank has checked."""
    with contextlib.suppress(OSError, ValueError):
        return int((folder / f"done{rank}").read_text())
    return 0


def ends(folder: Path) -> list[dict[str, object]]:
    return [json.loads((folder / f"end{rank}").read_text()) for rank in range(2)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path, interfaces=2) as made:
        yield made


@contextlib.contextmanager
def working(hosts: Network, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A rank on each host; returns when they have begun."""
    with started("run", "-n", 1, "--grace", 20, *hosts.options(), write(folder, WORK), folder, **variables) as job:
        wait_for(lambda: done(folder, 0) > 20 or job.poll() is not None, 90, "ranks work")
        yield job


def finish(job: subprocess.Popen[str], folder: Path) -> str:
    """Has the ranks stop; what they said on stderr."""
    (folder / "stop").touch()
    _, said = job.communicate(timeout=90)
    assert job.returncode == 0, said
    assert [one["wrong"] for one in ends(folder)] == [0, 0]
    return said


@needs_namespaces
def test_an_interface_of_two_that_goes_down(hosts: Network, tmp_path: Path) -> None:
    """The job goes on over the other, bytes intact, and says which it lost."""
    _, second = hosts.names
    log = tmp_path / "log.%p"
    with working(hosts, tmp_path, STRETTO_NET_SILENCE="2", NCCL_DEBUG_FILE=str(log)) as job:
        assert hosts.carried(second, "eth1") > 1 << 16, "nothing went over eth1, so its end would show nothing"
        hosts.link(second, "eth1", "down")

        def said() -> str:
            return "".join(file.read_text() for file in tmp_path.glob("log.*"))

        wait_for(lambda: LOST in said() or job.poll() is not None, 90, "the lost connection is told of")
        before = done(tmp_path, 0)
        wait_for(lambda: done(tmp_path, 0) > before + 20 or job.poll() is not None, 90, "ranks go on")
        finish(job, tmp_path)
    assert LOST in said() and "10.77.1." in said()


@needs_namespaces
def test_when_all_interfaces_are_down_both_sides_are_told(hosts: Network, tmp_path: Path) -> None:
    with working(hosts, tmp_path) as job:
        for interface in ("eth0", "eth1"):
            hosts.link(hosts.names[1], interface, "down")
        down = time.time()  # a busy machine takes a while for that
        job.communicate(timeout=90)
    for rank, end in enumerate(ends(tmp_path)):
        seconds = float(str(end["moment"])) - down
        print(f"rank {rank} was told after {seconds:.2f} s: {end['words']}")
        assert end["error"] == "RemoteError" and end["wrong"] == 0
        # STRETTO_NET_SILENCE is 4 s; the rest is what a busy machine may take.
        assert seconds < 20
        assert f"rank {1 - rank}" in str(end["words"]) and "all_reduce" in str(end["words"])


@needs_namespaces
def test_packets_that_are_lost_cost_time_alone(hosts: Network, tmp_path: Path) -> None:
    if not all([hosts.lose(name, 200) for name in hosts.names]):
        pytest.skip("iptables and its statistic match cannot be had here")
    with working(hosts, tmp_path) as job:
        assert LOST not in finish(job, tmp_path)


# Rank 0 comes late to each barrier; each rank says what has left its host over eth0 meanwhile.
LATE = """
import os, pathlib, time, stretto
sent = pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes")
comm = stretto.init()
comm.barrier()
before = int(sent.read_text())
for _ in range(30):
    if comm.rank == 0:
        time.sleep(0.15)
    comm.barrier()
os.write(1, f"BYTES {int(sent.read_text()) - before}\\n".encode())
"""


@needs_namespaces
def test_waits_of_a_slow_job_do_not_fill_the_network(tmp_path: Path) -> None:
    """A rank that waits for long asks the others how they are, by rank 0's host, which tells all. Were each wait to
    ask, ranks that wait for a slow network would fill it with questions.
    """
    script = write(tmp_path, LATE)
    with network(tmp_path) as hosts:
        options = [*hosts.options(), "-n", "4", "--no-tag"]
        with started("run", *options, script) as job:
            out, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    sent = [int(line.split()[1]) for line in out.splitlines() if line.startswith("BYTES")]
    assert len(sent) == 8 and max(sent) < 1_000_000, sent

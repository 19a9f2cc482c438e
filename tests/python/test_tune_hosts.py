"""`stretto tune --hosts`: links between hosts are measured, written into the table, and planned by."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import started, stretto, wait_for
from namespaces import Network, network, this_host
from stretto.processes import descendants
from stretto.tuning import host_links, table

GUARD = 240.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path) as made:
        yield made


EXPLAINS = """
import json, sys, stretto
comm = stretto.init()
if comm.rank == 0:
    print("SAYS", json.dumps(comm.explain("all_reduce", 64 << 20)))
comm.barrier()
"""


def test_links_are_measured_and_planned_by(hosts: Network, tmp_path: Path) -> None:
    """A link of 200 Mbit/s moves 25 bytes in a microsecond, less what headers take, and half a megabyte at once after
    a rest.
    """
    if hosts.spaces:
        for name in hosts.names:
            hosts.shape(name, "eth0", "200mbit")
    path = tmp_path / "table.json"
    done = stretto("tune", *hosts.options(), "--quick", "--output", path, "--json", "-", seconds=GUARD)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(path.read_text()) and "entries" not in document
    (pair,) = document["machine"]["pairs"]
    assert (pair["from"], pair["to"]) == tuple(hosts.names)
    links = document["between_hosts"]
    assert all(links[name] == pair[name] for name in links) and len(links) == 4
    assert links["hop_us"] > 1
    if hosts.spaces:
        assert 15 < links["bytes_per_us"] < 30 and 15 < links["host_bytes_per_us"] < 30, links

    script = tmp_path / "explains.py"
    script.write_text(EXPLAINS)
    table_of_all = ("--env", f"STRETTO_TABLE={path}")
    done = stretto("run", *hosts.options(), *table_of_all, "-n", "1", "--no-tag", script, seconds=GUARD)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAYS ")]
    explained = json.loads(line.removeprefix("SAYS "))
    assert explained["machine"]["between_hosts"] == {**links, "measured": True}
    assert "the model has the table's links between hosts" in explained["table"]["note"]
    # Two ranks send each other as many bytes as the buffer has.
    predicted = explained["chosen"]["predicted_us"]
    assert predicted == pytest.approx((64 << 20) / links["bytes_per_us"], rel=0.3)


def test_ranks_with_other_links_are_refused(hosts: Network, tmp_path: Path) -> None:
    """They would plan differently."""
    script = tmp_path / "joins.py"
    script.write_text(
        "import os, stretto\n"
        f"os.environ['STRETTO_TABLE'] = {str(tmp_path)!r} + f\"/{{os.environ['STRETTO_RANK']}}.json\"\n"
        "stretto.init()\n"
    )
    for rank in range(2):
        links = {"hop_us": 6.0 + rank, "message_us": 3.0, "bytes_per_us": 1500.0, "host_bytes_per_us": 1500.0}
        table.write(tmp_path / f"{rank}.json", table.with_host_links({}, links, {}))
    done = stretto("run", *hosts.options(), "-n", "1", script, seconds=GUARD)
    assert done.returncode != 0 and "different measured tables" in done.stderr, done.stderr


def test_a_host_that_cannot_be_reached_is_named(hosts: Network, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    done = stretto("tune", *hosts.options("unreachable"), "--output", path, seconds=GUARD)
    assert done.returncode == 1 and "tune: unreachable: " in done.stderr and "No route" in done.stderr, done.stderr
    assert not path.exists()


def test_a_place_that_cannot_be_written_to_is_told() -> None:
    answer = host_links.obey({"do": "write", "path": "/proc/none/table.json", "document": {}})
    assert "/proc/none" in answer["error"]


def test_a_host_that_is_lost_meanwhile_ends_all(hosts: Network, tmp_path: Path) -> None:
    """The other one waits for it, for as long as ranks wait for each other."""
    path = tmp_path / "table.json"
    began = time.monotonic()
    with started("tune", *hosts.options(), "--output", path) as process:

        def members() -> list[int]:
            found = []
            for pid in descendants(process.pid):
                with contextlib.suppress(OSError):
                    if b"stretto.tuning.host_links" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        found.append(pid)
            return found

        wait_for(lambda: len(members()) == 2, GUARD, "both hosts have begun")
        lost = members()
        os.kill(lost[1], signal.SIGKILL)
        _, told = process.communicate(timeout=GUARD)
    assert process.returncode == 1 and "tune: 1" in told and "killed by signal 9" in told, told
    assert not path.exists() and time.monotonic() - began < 60


def test_three_hosts_are_measured_each_with_the_next(tmp_path: Path) -> None:
    """All of them are this one, by other names."""
    hosts = this_host(tmp_path, 3)
    path = tmp_path / "table.json"
    done = stretto("tune", *hosts.options(), "--quick", "--output", path, "--json", "-", seconds=GUARD)
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)["machine"]["pairs"]
    first, second, third = hosts.names
    assert {(pair["from"], pair["to"]) for pair in pairs} == {(first, second), (second, third), (first, third)}
    again = stretto("tune", *hosts.options(), "--quick", "--output", path, seconds=GUARD, STRETTO_TABLE="/no/table")
    assert again.returncode == 0, again.stderr


def test_interrupted_it_leaves_nothing(hosts: Network, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    with started("tune", *hosts.options("silent"), "--output", path) as process:
        wait_for(hosts.asked.exists, GUARD, "the silent host is asked")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=GUARD)
    assert process.returncode == 130 and "not written everywhere" in told and not path.exists(), told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--hosts", "a"), "fewer than two hosts"),
        (("--hosts", "a,a"), "each host once"),
        (("--hosts", "a,b:2"), "without a number of ranks"),
        (("--hosts", "a,,b"), "is no host"),
        (("--hosts", "a,b", "--ranks", "2"), "--ranks says nothing"),
        (("--hosts", "a,b", "--device", "cuda"), "--device says nothing"),
        (("--reach", "3"), "there is no --hosts"),
        (("--env", "A=1"), "there is no --hosts"),
    ],
)
def test_command_lines_that_cannot_be_meant_are_refused(words: tuple[str, ...], told: str) -> None:
    done = stretto("tune", *words, "--remote-shell", "false") if "--hosts" in words else stretto("tune", *words)
    assert done.returncode == 2 and told in done.stderr, done.stderr


def test_a_table_keeps_what_was_measured_before() -> None:
    links = {"hop_us": 20.0, "message_us": 3.0, "bytes_per_us": 120.0, "host_bytes_per_us": 120.0}
    alone = table.with_host_links({}, links, {"hosts": ["a", "b"]})
    assert alone["between_hosts"] == links and "entries" not in alone
    one = table.entry("all_reduce", 2, {"cores": 2, "reach": True, "same_process": False}, [])
    both = table.with_entries(alone, [one], {"hostname": "a"})
    assert both["between_hosts"] == links and both["entries"] == [one] and both["machine"]["hostname"] == "a"
    again = table.with_host_links(both, {**links, "hop_us": 30.0}, {"hosts": ["a", "c"]})
    assert again["entries"] == [one] and again["between_hosts"]["hop_us"] == 30.0
    assert again["machine"]["hosts"] == ["a", "c"]


def test_each_host_is_measured_with_the_next_and_the_slowest_link_counts() -> None:
    assert host_links.neighbours(2) == [(0, 1)]
    assert host_links.neighbours(3) == [(0, 1), (1, 2), (0, 2)]
    assert len(host_links.neighbours(16)) == 16
    pairs = [
        {"from": 0, "to": 1, "hop_us": 5.0, "message_us": 2.0, "bytes_per_us": 900.0, "host_bytes_per_us": 950.0},
        {"from": 1, "to": 2, "hop_us": 9.0, "message_us": 1.0, "bytes_per_us": 120.0, "host_bytes_per_us": 480.0},
    ]
    found = host_links.slowest(pairs)
    assert found == {"hop_us": 9.0, "message_us": 2.0, "bytes_per_us": 120.0, "host_bytes_per_us": 480.0}


def test_the_table_of_hosts_has_one_name_on_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert table.default_path_of_hosts() == Path("/somewhere/stretto/table-hosts.json")

"""`stretto audit` of several hosts: faults of made-up networks, and hosts that are network namespaces, reached by a
stand-in for ssh (tests/python/namespaces.py) or as the ranks of a launcher.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import STRETTO, alive, environment, started, stretto, wait_for
from namespaces import Network as Namespaces
from namespaces import can_be_made, network
from stretto.audit import blocks, compare, page, run, table
from stretto.audit.context import Context
from stretto.audit.echo import Echo, Unreachable, try_out
from stretto.audit.finding import BETWEEN_HOSTS, Finding, Severity
from stretto.audit.network import Network, Port, Way
from stretto.bench.drivers import find_program
from stretto.processes import descendants
from test_audit import document

needs_namespaces = pytest.mark.skipif(not can_be_made(), reason="no network namespaces can be made here")

# ---- Made-up networks -------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
A_WAY = Way(
    "a", "b", interface="eth0", address="10.0.0.2", mtu=9000, offset_us=5.0, error_us=30.0, gbps=2.0, sockets_gbps=2.2,
    half_us=20.0, sockets_half_us=15.0, small_noise=1.1, large_noise=1.1,
)  # fmt: skip


def made_up(**changes: Any) -> Network:
    """Three hosts with nothing wrong but what is changed of the way from a to b."""
    ways = [dataclasses.replace(A_WAY, source=one, target=two) for one in NAMES for two in NAMES if one != two]
    changed = [dataclasses.replace(way, **changes) if way.name == "a to b" else way for way in ways]
    ports = {name: Port("eth0", 9000, 25000) for name in NAMES}
    return Network(NAMES, {}, tuple(changed), ports, dict.fromkeys(NAMES, (32768, 60999)))


def with_port(port: Port) -> Network:
    network = made_up()
    return dataclasses.replace(network, ports={**network.ports, "c": port})


# Check, the network, how grave, the subject, and a word of the cause or the next step.
MADE_UP: list[tuple[str, Network, Severity, str, str]] = [
    (
        "network.hosts",
        dataclasses.replace(made_up(), lost={"b": "nothing was heard of it for 15 s"}),
        Severity.ERROR,
        "b",
        "down",
    ),
    ("network.reach", made_up(problem="10.0.0.2: timed out"), Severity.ERROR, "a to b", "firewall"),
    ("network.reach", made_up(gbps=None, unmeasured="the other side has gone"), Severity.ERROR, "a to b", "p2p serve"),
    ("network.data", made_up(wrong=3), Severity.ERROR, "a to b", "network card"),
    (
        "network.latency",
        made_up(half_us=300.0, sockets_half_us=250.0, error_us=280.0),
        Severity.WARNING,
        "a to b",
        "switch",
    ),
    ("network.latency", made_up(half_us=900.0), Severity.WARNING, "a to b", "STRETTO_NET_"),
    ("network.bandwidth", made_up(gbps=0.2, sockets_gbps=0.2), Severity.WARNING, "a to b", "cable"),
    (
        "network.bandwidth",
        made_up(gbps=0.2, sockets_gbps=0.2, small_noise=9.0),
        Severity.WARNING,
        "a to b",
        "other traffic",
    ),
    ("network.bandwidth", made_up(gbps=0.7, sockets_gbps=4.0), Severity.WARNING, "a to b", "STRETTO_NET_"),
    (
        "network.bandwidth",
        dataclasses.replace(made_up(), ports={"a": Port("eth0", 1500, 100000)}),
        Severity.WARNING,
        "a to b",
        "socket buffers",
    ),
    ("network.mtu", made_up(large=False, gbps=None), Severity.ERROR, "a to b", "ping -M do -s 8972"),
    ("network.mtu", with_port(Port("eth0", 1500, 25000)), Severity.WARNING, "", "lost its configuration"),
    ("network.speed", with_port(Port("eth0", 9000, 10000)), Severity.WARNING, "c", "transceiver"),
    (
        "network.ports",
        dataclasses.replace(made_up(), port_ranges={"a": (32768, 60999), "b": (1024, 9999)}),
        Severity.NOTE,
        "",
        "firewall",
    ),
    ("network.clock", made_up(offset_us=-3e6), Severity.NOTE, "a to b", "time service"),
]


def look(id: str, network: Network) -> list[Finding]:
    (one,) = table.checks([id])
    return run.look(one, Context(environment={}, network=network))


def gravest(findings: list[Finding]) -> Finding:
    return max(findings, key=lambda finding: finding.severity)


@pytest.mark.parametrize(
    ("id", "network", "severity", "subject", "word"), MADE_UP, ids=[f"{case[0]} {case[4]}" for case in MADE_UP]
)
def test_a_made_up_fault_between_hosts_is_named(
    id: str, network: Network, severity: Severity, subject: str, word: str
) -> None:
    found = gravest(look(id, network))
    assert (found.severity, found.subject) == (severity, subject), found
    assert found.expected and word in found.cause + found.next_step, found


def test_a_network_with_nothing_wrong_has_no_finding() -> None:
    slow_but_alike = [dataclasses.replace(way, half_us=500.0, sockets_half_us=450.0) for way in made_up().ways]
    for well in (made_up(), dataclasses.replace(made_up(), ways=tuple(slow_but_alike)), Network(("a",))):
        for one in table.checks([BETWEEN_HOSTS]):
            assert gravest(look(one.id, well)).severity is Severity.OK, one.id


def test_of_one_host_nothing_between_hosts_is_asked() -> None:
    assert all(one.section != BETWEEN_HOSTS for one in table.of_one_host())
    done = stretto("audit", "--only", "network")
    assert done.returncode == 2 and "--hosts" in done.stderr


def test_two_hosts_are_compared_by_their_names() -> None:
    slow = document(pairs={"0>1": 5.0, "1>0": 10.0}, facts={**document()["facts"], "governors": ["powersave"]})
    lines = compare.compare([("a", document()), ("b", slow)], machines=True).lines
    assert "governors: () on a, ['powersave'] on b" in lines
    assert any(line.startswith("messages from rank 0 to 1: 10 GB/s on a, 5 on b (-50%, worse") for line in lines)
    lines = compare.compare([("a", document()), ("b", document())], machines=True).lines
    assert lines == ["a and b differ by no more than the noise of both audits."]


def test_the_echo_knows_clock_and_packets() -> None:
    echo = Echo("127.0.0.1")
    try:
        line = try_out("127.0.0.1", echo.port)
    finally:
        echo.close()
    assert line.large and line.mtu > 1000 and line.interface_address == "127.0.0.1"
    assert line.error_us > 0 and abs(line.offset_us) <= line.error_us + 1000
    with pytest.raises(Unreachable, match="refused"):
        try_out("127.0.0.1", echo.port)


# ---- Hosts over a remote shell ----------------------------------------------------------------------------------


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Namespaces]:
    with network(tmp_path) as made:
        yield made


QUICK = ["--quick", "--only", "machine.clocksource", "--only", "machine.temporary", "--only", "network"]


def audited(*arguments: object, seconds: float = 200) -> dict[str, Any]:
    done = stretto("audit", *arguments, "--json", "-", seconds=seconds)
    assert done.returncode in (0, 3, 4), done.stderr
    assert "Traceback" not in done.stderr
    return dict(json.loads(done.stdout))


def of(document: dict[str, Any], id: str) -> list[dict[str, Any]]:
    """Findings that are above a note."""
    return [one for one in document["findings"] if one["id"] == id and one["severity"] in ("warning", "error")]


def test_two_hosts_give_one_page(hosts: Namespaces, tmp_path: Path) -> None:
    found = audited(*hosts.options(), *QUICK, "--markdown", tmp_path / "page.md")
    assert found["schema"] == "stretto.audit-hosts/1"
    assert [host["name"] for host in found["hosts"]] == hosts.names
    for host in found["hosts"]:
        ids = {one["id"] for one in host["audit"]["findings"]}
        assert ids == {"machine.clocksource", "machine.temporary"} and not host["lost"]
    ways = {(way["source"], way["target"]): way for way in found["network"]}
    first, second = hosts.names
    assert set(ways) == {(first, second), (second, first)}
    for way in ways.values():
        assert way["problem"] == way["unmeasured"] == "" and way["wrong"] == 0 and way["large"]
        assert way["gbps"] > 0 and way["sockets_gbps"] > 0 and way["half_us"] > 0 and way["error_us"] > 0
        assert abs(way["offset_us"]) <= way["error_us"] + 1000, "both hosts have this machine's clock"
        assert way["interface"] == ("eth0" if hosts.spaces else "lo")
    assert not of(found, "network.hosts") + of(found, "network.reach") + of(found, "network.data")
    text = (tmp_path / "page.md").read_text()
    assert f"| {first} to {second} |" in text and f"## Host {second}" in text and "What differs" in text


def test_a_stored_audit_of_hosts_is_shown(hosts: Namespaces, tmp_path: Path) -> None:
    stored = tmp_path / "hosts.json"
    done = stretto("audit", *hosts.options(), *QUICK, "--skip", "network", "--json", stored)
    again = stretto("audit", "--from", stored)
    assert again.returncode == done.returncode and f"Host {hosts.names[1]}" in again.stdout, again.stderr
    html = page.html(blocks.blocks_of_hosts(json.loads(stored.read_text())), "audit", [])
    assert f"Host {hosts.names[0]}" in html
    refused = stretto("audit", "--from", stored, "--compare", stored)
    assert refused.returncode == 2 and "--compare" in refused.stderr


@pytest.mark.parametrize(
    ("more", "words", "reason"),
    [
        ("unreachable", [], "No route to host"),
        ("silent", ["--reach", "12"], "it did not answer within 12 s"),
    ],
)
def test_a_host_that_cannot_be_reached_is_a_finding(
    hosts: Namespaces, more: str, words: list[str], reason: str
) -> None:
    found = audited(*hosts.options(more), *words, *QUICK)
    (lost,) = of(found, "network.hosts")
    assert lost["subject"] == more and reason in lost["measured"] and "--remote-shell" in lost["next_step"]
    assert [host["audit"] is None for host in found["hosts"]] == [False, False, True]
    assert len(found["network"]) == 2, "the others are audited"


def test_no_host_that_can_be_reached(hosts: Namespaces) -> None:
    done = stretto("audit", *hosts.options()[2:], "--hosts", "unreachable", *QUICK, "--json", "-")
    assert done.returncode == 4, done.stderr
    assert [host["audit"] for host in json.loads(done.stdout)["hosts"]] == [None]


def test_a_package_that_is_missing_there_is_a_finding(hosts: Namespaces) -> None:
    found = audited(*hosts.options(), "--remote-python", "/no/python", *QUICK)
    assert len(of(found, "network.hosts")) == 2
    assert all("install it at that path" in one["next_step"] for one in of(found, "network.hosts"))


def members(host: str = "") -> list[int]:
    """Of the audits' processes on made-up hosts, and of what they started."""
    return [pid for pid, words in _commands() if "stretto.audit.member" in words and host in _variable(pid)]


def _commands() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _variable(pid: int, name: str = "NCCL_HOSTID") -> str:
    with contextlib.suppress(OSError):
        for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if one.startswith(name.encode() + b"="):
                return one.decode().partition("=")[2]
    return ""


def of_this_test(hosts: Namespaces) -> list[int]:
    """All processes on its hosts."""
    marked = [pid for pid, _ in _commands() if _variable(pid, "AUDIT_TEST") == str(hosts.shell)]
    return [pid for pid in marked if alive(pid)]


@contextlib.contextmanager
def busy_audit(hosts: Namespaces) -> Iterator[subprocess.Popen[str]]:
    """One whose hosts measure their platform."""
    mark = ["--env", f"AUDIT_TEST={hosts.shell}"]
    command = ["audit", *hosts.options(), *mark, "--only", "platform.wake", "--only", "network", "--json", "-"]

    def drivers() -> int:
        own = of_this_test(hosts)
        return sum("platform_driver" in words and pid in own for pid, words in _commands())

    with started(*command) as launcher:
        wait_for(lambda: drivers() == 2, 60, "both hosts measure")
        yield launcher


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_audit_that_is_ended_leaves_nothing_on_any_host(hosts: Namespaces, number: signal.Signals) -> None:
    with busy_audit(hosts) as launcher:
        assert len(of_this_test(hosts)) >= 4
        launcher.send_signal(number)
        _, said = launcher.communicate(timeout=60)
        assert launcher.returncode == (130 if number == signal.SIGINT else -9 if number == signal.SIGKILL else 143)
        assert "Traceback" not in said
        wait_for(lambda: not of_this_test(hosts), 30, "nothing is left")


def test_an_audit_that_is_ended_while_a_host_is_waited_for(hosts: Namespaces) -> None:
    mark = ["--env", f"AUDIT_TEST={hosts.shell}"]
    with started("audit", *hosts.options("silent"), *mark, *QUICK) as launcher:
        wait_for(hosts.asked.exists, 60, "the silent host is asked")
        time.sleep(2.0)
        launcher.send_signal(signal.SIGINT)
        _, said = launcher.communicate(timeout=60)
        assert launcher.returncode == 130 and "Traceback" not in said, said
        wait_for(lambda: not of_this_test(hosts), 30, "nothing is left")


def test_without_a_remote_shell(hosts: Namespaces) -> None:
    done = stretto("audit", *hosts.options(), "--remote-shell", "/no/ssh", *QUICK)
    assert done.returncode == 1 and "cannot start /no/ssh: No such file" in done.stderr


def test_a_host_that_dies_in_the_middle_is_a_finding(hosts: Namespaces) -> None:
    with busy_audit(hosts) as launcher:
        dying = [pid for pid in of_this_test(hosts) if pid in members(hosts.names[1])]
        assert len(dying) == 1
        os.kill(dying[0], signal.SIGKILL)
        out, said = launcher.communicate(timeout=200)
        assert launcher.returncode == 4 and "Traceback" not in said, said
        found = json.loads(out)
        (lost,) = of(found, "network.hosts")
        assert lost["subject"] == hosts.names[1] and "killed by signal 9" in lost["measured"]
        assert found["hosts"][0]["audit"] is not None
        wait_for(lambda: not of_this_test(hosts), 30, "nothing is left")


@needs_namespaces
def test_a_slow_way_is_named(hosts: Namespaces) -> None:
    first, second = hosts.names
    hosts.shape(second, "eth0", "200mbit")
    found = of(audited(*hosts.options(), *QUICK), "network.bandwidth")
    # A busy machine may slow down Stretto beside a plain socket as well: against the other ways one alone is slow.
    (slow,) = [one for one in found if "a port of a switch" in one["cause"]]
    assert slow["subject"] == f"{second} to {first}" and "other traffic" in slow["cause"]


@needs_namespaces
def test_different_mtus_are_named(hosts: Namespaces) -> None:
    hosts.link(hosts.names[0], "eth0", "mtu", "9000")
    found = audited(*hosts.options(), *QUICK)
    assert "eth0 9000" in of(found, "network.mtu")[0]["measured"]
    assert any("interface eth0: mtu: 9000 on" in line for line in found["differences"]["lines"])


@needs_namespaces
def test_large_packets_that_are_dropped_are_named(hosts: Namespaces) -> None:
    """The second host's port takes smaller packets than the first one was told of by its own connections."""
    first, second = hosts.names
    hosts.link(first, "eth0", "mtu", "9000")
    space = hosts.spaces[second]
    hosts.link(first, "eth0", "gso_max_segs", "1")
    route = ["ip", "-n", space, "route", "replace", "10.77.0.0/24", "dev", "eth0", "advmss", "8960"]
    done = subprocess.run(route, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    found = of(audited(*hosts.options(), *QUICK), "network.mtu")
    assert any(one["subject"] == f"{first} to {second}" and "ping -M do" in one["next_step"] for one in found), found


@needs_namespaces
def test_a_way_that_is_closed_is_named(hosts: Namespaces) -> None:
    first, second = hosts.names
    block = ["ip", "-n", hosts.spaces[first], "route", "add", "blackhole", second]
    subprocess.run(block, check=True, timeout=30)
    closed = of(audited(*hosts.options(), *QUICK), "network.reach")
    assert f"{first} to {second}" in [one["subject"] for one in closed]
    assert all("firewall" in one["cause"] for one in closed)


def test_what_cannot_go_together() -> None:
    for words in (["--hosts", "a", "--compare", "x"], ["--hosts", "a,a"], ["--hosts", "a:3"], ["--reach", "3"]):
        done = stretto("audit", *words)
        assert done.returncode == 2 and "audit: " in done.stderr, words


# ---- Hosts as the ranks of a launcher ---------------------------------------------------------------------------


@contextlib.contextmanager
def ranks(hosts: Namespaces, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """As torchrun starts one process on each host."""
    made = []
    for rank, name in enumerate(hosts.names):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(hosts.names)),
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": hosts.names[0],
            "STRETTO_RENDEZVOUS_SECRET": str(hosts.shell),
            **hosts.variables(),
        }
        command = [*hosts.inside(name), *STRETTO, "audit", *arguments]
        pipe = subprocess.PIPE
        made.append(
            subprocess.Popen(
                command, stdout=pipe, stderr=pipe, text=True, env=environment(**variables), start_new_session=True
            )
        )
    try:
        yield made
    finally:
        for process in made:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_ranks_of_a_launcher_are_hosts(hosts: Namespaces) -> None:
    with ranks(hosts, *QUICK, "--json", "-") as (first, second):
        out, said = first.communicate(timeout=200)
        assert first.returncode in (0, 3), said
        assert second.communicate(timeout=60)[0] == "" and second.returncode == 0
    found = json.loads(out)
    assert [host["name"] for host in found["hosts"]] == hosts.names
    assert all(host["audit"] is not None for host in found["hosts"])
    assert len(found["network"]) == 2 and all(way["gbps"] > 0 for way in found["network"])


def test_a_rank_that_dies_is_a_finding(hosts: Namespaces) -> None:
    with ranks(hosts, "--only", "platform.wake", "--only", "network", "--json", "-") as (first, second):

        def measures(rank: subprocess.Popen[str]) -> bool:
            own = descendants(rank.pid)
            return any("platform_driver" in words and pid in own for pid, words in _commands())

        wait_for(lambda: measures(first) and measures(second), 60, "both hosts measure")
        time.sleep(0.5)
        second.kill()
        out, said = first.communicate(timeout=200)
        assert first.returncode == 4 and "Traceback" not in said, said
    found = json.loads(out)
    assert [one["subject"] for one in of(found, "network.hosts")] == [hosts.names[1]]
    assert found["hosts"][0]["audit"] is not None


@pytest.mark.parametrize("names", [["one", "one"], ["one", "two"]])
def test_ranks_of_mpirun_are_hosts_each_once(names: list[str]) -> None:
    """On this machine, whose name they are told."""
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun beside this Python or on the PATH")
    command = [str(mpirun), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
    for name in names:
        command += ["-n", "1", "-x", f"NCCL_HOSTID={name}", *STRETTO, "audit", *QUICK, "--json", "-", ":"]
    command.pop()
    variables = environment(NCCL_SOCKET_IFNAME="lo")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=variables, check=False)
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    assert [host["name"] for host in found["hosts"]] == list(dict.fromkeys(names))
    assert len(found["network"]) == len(set(names)) * (len(set(names)) - 1)

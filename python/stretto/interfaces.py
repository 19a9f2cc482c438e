"""This host's network interfaces and their addresses, and the rule by which NCCL_SOCKET_IFNAME names some of them."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

USUAL = "^docker,lo,virbr,veth,br-"  # where NCCL_SOCKET_IFNAME is not set: src/net/tcp/settings.cpp
_SIOCGIFCONF = 0x8912
_ENTRY = 40  # bytes of an ifreq
_MOST_ADDRESSES = 1024


def addresses() -> Iterator[tuple[str, str]]:
    """Interfaces with their addresses, those of IPv4 first; an interface may have several."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        entries = array.array("B", bytes(_MOST_ADDRESSES * _ENTRY))
        where, size = entries.buffer_info()
        answer = fcntl.ioctl(any_socket, _SIOCGIFCONF, struct.pack("iP", size, where))
        for at in range(0, struct.unpack_from("i", answer)[0], _ENTRY):
            name = entries[at : at + 16].tobytes().partition(b"\0")[0].decode()
            # Of another address there may be a label behind the name.
            yield name.partition(":")[0], socket.inet_ntoa(entries[at + 20 : at + 24].tobytes())
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            number, *_, name = line.split()
            yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number))


def interface_of(address: str) -> str | None:
    """The network interface that has this address, as its first or as another one; None if none has."""
    wanted = address.partition("%")[0]
    with contextlib.suppress(OSError):
        wanted = socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, wanted))
    return next((name for name, one in addresses() if one == wanted), None)


def matching(text: str, names: list[str]) -> list[str]:
    """Those that NCCL_SOCKET_IFNAME names by NCCL's rule: beginnings of names, =whole names, ^all others."""
    without = text.startswith("^")
    text = text.removeprefix("^")
    whole = text.startswith("=")
    parts = [part for part in text.removeprefix("=").split(",") if part]
    return [
        name for name in names if without != any(name == part if whole else name.startswith(part) for part in parts)
    ]

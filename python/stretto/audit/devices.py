"""What the kernel says of PCI bridges, of network interfaces' drivers, and in its log of GPUs: what the file system has
no text of. Nothing here fails: what cannot be read is None.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import struct
from collections import Counter
from pathlib import Path

_SIOCETHTOOL = 0x8946
_RINGS, _SEGMENTATION, _MERGING = 0x10, 0x1E, 0x2B  # ETHTOOL_GRINGPARAM, ETHTOOL_GTSO, ETHTOOL_GGRO
_NUMBERS_OF_RINGS = 9
_RX_MOST, _RX = 1, 5
_LEAST_RECORD = 8192
_MOST_LOG = 16 << 20
_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_BRIDGE = "0x0604"
_FIRST_EXTENDED, _ACS = 0x100, 0x000D
_REDIRECT = 0x04 | 0x08  # of requests, and of completions


def _ethtool(interface: str, command: int, numbers: int) -> list[int] | None:
    """What the interface's driver answers: so many numbers, the first of which is the command."""
    values = (ctypes.c_uint32 * numbers)(command)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(values))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            fcntl.ioctl(asked, _SIOCETHTOOL, request)
    except OSError:
        return None
    return list(values)


def rings(interface: str) -> tuple[int, int] | None:
    """Packets that an interface has room for before the kernel takes them: now, and at most."""
    found = _ethtool(interface, _RINGS, _NUMBERS_OF_RINGS)
    return (found[_RX], found[_RX_MOST]) if found and found[_RX_MOST] else None


def offloads(interface: str) -> tuple[bool | None, bool | None]:
    """Whether the interface cuts large sends into packets, and whether received packets are put together."""
    found = [_ethtool(interface, command, 2) for command in (_SEGMENTATION, _MERGING)]
    cuts, merges = (None if one is None else bool(one[1]) for one in found)
    return cuts, merges


def xids(root: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Of each GPU's errors in the kernel's log: its place on the bus, the error's number, and how often."""
    text = bytearray()
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while len(text) < _MOST_LOG:
            try:
                record = os.read(log, _LEAST_RECORD)
            except BrokenPipeError:
                continue  # It was overwritten meanwhile; the next one is the oldest.
            if not record:
                break
            text += record
    except BlockingIOError:
        pass  # The end of what has been written.
    except OSError:
        return None
    finally:
        os.close(log)
    found = Counter((match[1].decode().lower(), int(match[2])) for match in _XID.finditer(text))
    return tuple((bus, number, count) for (bus, number), count in sorted(found.items()))


def _acs_control(config: bytes) -> int:
    """Of the extended capability; 0 where a device has none."""
    at = _FIRST_EXTENDED
    for _ in range(64):  # A list that goes round is a device that does not answer.
        if at < _FIRST_EXTENDED or at + 8 > len(config):
            return 0
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = header >> 20
    return 0


def redirecting_bridges(root: Path) -> tuple[str, ...] | None:
    """PCI bridges whose ACS sends what passes between devices below them up to the root complex. None: only root may
    read that.
    """
    found, read = [], False
    for place in sorted((root / "sys/bus/pci/devices").glob("*")):
        with contextlib.suppress(OSError):
            if not (place / "class").read_text().startswith(_BRIDGE):
                continue
            config = (place / "config").read_bytes()
            read = read or len(config) > _FIRST_EXTENDED
            if _acs_control(config) & _REDIRECT:
                found.append(place.name)
    return tuple(found) if read else None

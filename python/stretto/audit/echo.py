"""What lies between two hosts, by a connection of Python's own: whether one can be made, how large its packets may be,
and how far the clocks lie apart.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass

_CONNECT_SECONDS = 5.0
_EXCHANGES = 64
_TIME, _BULK = b"t", b"b"
# More than a window's worth of packets as large as they may be.
_BULK_BYTES = 256 << 10
_MOST_CONNECTIONS = 64
_IP_MTU, _IPV6_MTU = 14, 24


class Unreachable(OSError):
    """No connection, or one that carries nothing; the text says why."""


@dataclass(frozen=True)
class Line:
    """What one connection says. `mtu`: bytes of the largest packet that the kernel sends there; `large`: whether
    packets of that size arrive; the other host's clock is ahead by `offset_us`, which is known but for `error_us`.
    """

    interface_address: str
    mtu: int
    large: bool
    offset_us: float
    error_us: float
    half_us: float


class Echo:
    """Answers at one address until close(): each byte with this host's time, and much data when all of it is there."""

    def __init__(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=_MOST_CONNECTIONS)
        self.port = int(self._listener.getsockname()[1])
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            self._places.acquire()
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(2 * _CONNECT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while what := connection.recv(1):
                    if what == _BULK:
                        _read(connection, _BULK_BYTES)
                    connection.sendall(time.time_ns().to_bytes(8, "big"))
        finally:
            self._places.release()


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        data = connection.recv(min(size, 1 << 16))
        if not data:
            raise ConnectionError("the other host closed the connection")
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def try_out(address: str, port: int) -> Line:
    """Raises `Unreachable`."""
    try:
        connection = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
    except OSError as problem:
        raise Unreachable(str(problem)) from problem
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            offset, error = min((_exchange(connection) for _ in range(_EXCHANGES)), key=lambda one: one[1])
        except OSError as problem:
            raise Unreachable(f"a connection that carries nothing: {problem}") from problem
        level, option = (socket.IPPROTO_IPV6, _IPV6_MTU) if ":" in address else (socket.IPPROTO_IP, _IP_MTU)
        mtu = connection.getsockopt(level, option)
        own = str(connection.getsockname()[0])
        return Line(own, mtu, _carries_large(connection), offset / 1e3, error / 1e3, error / 1e3)


def _exchange(connection: socket.socket) -> tuple[float, float]:
    """By how many nanoseconds the other clock is ahead, and by how many that may be wrong."""
    began = time.time_ns()
    connection.sendall(_TIME)
    theirs = int.from_bytes(_read(connection, 8), "big")
    ended = time.time_ns()
    return theirs - (began + ended) / 2, (ended - began) / 2


def _carries_large(connection: socket.socket) -> bool:
    try:
        connection.sendall(_BULK + bytes(_BULK_BYTES))
        _read(connection, 8)
    except OSError:
        return False
    return True

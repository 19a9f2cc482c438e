"""The ranks of a job that run on this machine, as processes: started, heard, signalled and ended whatever happens.

Each rank leads a session of its own, so that a signal from the terminal reaches only the process that started it,
which forwards it, and so that what a rank started ends with it. If that process is killed, the kernel kills the ranks.
Used by `stretto run` and, for ranks on other hosts, by its agent there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from stretto.cli.frames import Writer

STDOUT, STDERR = 1, 2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Listener(Protocol):
    """Who is told what ranks do. A rank has the number that it was started with."""

    def began(self, number: int, pid: int) -> None: ...

    def printed(self, number: int, stream: int, data: bytes) -> None:
        """`data` is empty at the end of the stream."""

    def ended(self, number: int, status: int) -> None:
        """`status` as waitpid has it: negative for a signal."""


def program(words: list[str]) -> list[str]:
    """A .py file is run by this Python; everything else as it stands."""
    return [sys.executable, *words] if words[0].endswith(".py") else words


def start_process(
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which the kernel kills when this one ends. Raises OSError."""
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        command,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


# Reads the sessions that have begun, and as negative numbers those that have ended; ends the others at the end of it.
_KEEPER = """
import os, signal, sys
sessions = set()
for line in sys.stdin:
    number = int(line)
    sessions.add(number) if number > 0 else sessions.discard(-number)
for number in sessions:
    try:
        os.killpg(number, signal.SIGKILL)
    except OSError:
        pass
"""


class Keeper:
    """A process that ends the sessions of ranks when this one is gone, however that went: where it was killed, the
    kernel ends the ranks themselves alone.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-ISs", "-c", _KEEPER]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True, bufsize=0
        )

    def note(self, session: int) -> None:
        """It has begun; with a minus, it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"%d\n" % session)


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    pidfd: int
    writer: Writer | None = None  # to its stdin


class Processes:
    """What `selector` finds ready has a function to call as its data."""

    def __init__(self, selector: selectors.BaseSelector, listener: Listener) -> None:
        self._selector = selector
        self._listener = listener
        self._running: dict[int, _Running] = {}
        self._pipes: dict[IO[bytes], Callable[[], None]] = {}  # that ranks print into, and what reads them

    def start(
        self,
        number: int,
        command: Sequence[str],
        environment: dict[str, str],
        *,
        hears: tuple[int, ...],
        talks: bool = False,
    ) -> None:
        """`hears`: the streams that the listener is told of; the others are this process's own. `talks`: it reads what
        `tell` says; otherwise there is nothing to read. Raises OSError.
        """
        pipes = {stream: subprocess.PIPE if stream in hears else None for stream in (STDOUT, STDERR)}
        stdin = subprocess.PIPE if talks else subprocess.DEVNULL
        process = start_process(command, environment, stdin=stdin, stdout=pipes[STDOUT], stderr=pipes[STDERR])
        writer = Writer(self._selector, process.stdin.fileno()) if process.stdin is not None else None
        running = _Running(process, os.pidfd_open(process.pid), writer)
        self._running[number] = running
        self._selector.register(running.pidfd, selectors.EVENT_READ, lambda: self._reap(number))
        for stream, pipe in ((STDOUT, process.stdout), (STDERR, process.stderr)):
            if pipe is not None:
                self._hear(number, stream, pipe)
        self._listener.began(number, process.pid)

    def hear(self, on: bool) -> None:
        """Whether what ranks print is read. While it is not, they wait when their pipes are full."""
        for pipe, read in self._pipes.items():
            if on:
                self._selector.register(pipe, selectors.EVENT_READ, read)
            else:
                self._selector.unregister(pipe)

    def send(self, signal_number: int) -> None:
        """To the sessions of all ranks that run."""
        for running in self._running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.process.pid, signal_number)

    def tell(self, number: int, data: bytes) -> None:
        running = self._running.get(number)
        if running is not None and running.writer is not None:
            running.writer.write(data)

    def kill_all(self) -> None:
        self.send(signal.SIGKILL)
        for number in list(self._running):
            self._reap(number)

    def _hear(self, number: int, stream: int, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)

        def read() -> None:
            data = os.read(pipe.fileno(), 65536)
            if not data:
                self._selector.unregister(pipe)
                del self._pipes[pipe]
                pipe.close()
            self._listener.printed(number, stream, data)

        self._pipes[pipe] = read
        self._selector.register(pipe, selectors.EVENT_READ, read)

    def _reap(self, number: int) -> None:
        running = self._running.pop(number)
        self._selector.unregister(running.pidfd)
        # Its session first, while its number is still taken by it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(running.process.pid, signal.SIGKILL)
        status = running.process.wait()
        os.close(running.pidfd)
        if running.writer is not None and running.process.stdin is not None:
            running.writer.close()
            running.process.stdin.close()
        self._listener.ended(number, status)

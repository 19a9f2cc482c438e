"""Starting the processes of a job and ending them, whatever happens: used by `stretto run`.

Each rank leads a session of its own, so that a signal from the terminal reaches only this process, which
forwards it, and so that what a rank started ends with it. If this process is killed, the kernel kills the
ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, BinaryIO

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TIMED_OUT = 124
_PR_SET_PDEATHSIG = 1
_KILL_AFTER = 2.0
_libc = ctypes.CDLL(None)


@dataclass
class Rank:
    """One process of the job. `status` is what waitpid says: negative for a signal, None while it runs."""

    number: int
    process: subprocess.Popen[bytes]
    pidfd: int
    began: float
    ended: float = 0.0
    status: int | None = None

    def end_text(self) -> str:
        if self.status is not None and self.status < 0:
            try:
                name = f"signal {-self.status} ({signal.Signals(-self.status).name})"
            except ValueError:
                name = f"signal {-self.status}"
            return f"was killed by {name}"
        return f"ended with status {self.status}"

    def exit_status(self) -> int:
        """As a shell counts it."""
        assert self.status is not None
        return 128 - self.status if self.status < 0 else self.status


@dataclass
class Job:
    """Starts one process per rank and waits for them. `environments` has one set of variables per rank."""

    command: list[str]
    environments: list[dict[str, str]]
    tag: bool = False
    grace: float = 3.0
    timeout: float | None = None
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)
    ranks: list[Rank] = field(default_factory=list)
    first_failure: Rank | None = None
    _verdict: int | None = None
    _terminate_at: float | None = None
    _kill_at: float | None = None

    def run(self) -> int:
        """Returns the exit status: 0, that of the first rank that failed, 124 after the timeout, 128 +
        signal.
        """
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector, self._signals(selector):
            try:
                for number in range(len(self.environments)):
                    self._start(number, selector)
                while any(rank.status is None for rank in self.ranks) or self._open_outputs(selector):
                    self._step(selector, deadline)
            finally:
                self._kill_all()
        if self._verdict is not None:
            return self._verdict
        return self.first_failure.exit_status() if self.first_failure is not None else 0

    def _start(self, number: int, selector: selectors.BaseSelector) -> None:
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        pipe = subprocess.PIPE if self.tag else None
        process = subprocess.Popen(
            self.command,
            env=self.environments[number],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        rank = Rank(number, process, os.pidfd_open(process.pid), time.monotonic())
        self.ranks.append(rank)
        selector.register(rank.pidfd, selectors.EVENT_READ, rank)
        if process.stdout is not None and process.stderr is not None:
            for source, target in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
                os.set_blocking(source.fileno(), False)
                selector.register(source, selectors.EVENT_READ, Output(number, source, target))

    def _step(self, selector: selectors.BaseSelector, deadline: float | None) -> None:
        moments = [moment for moment in (deadline, self._terminate_at, self._kill_at) if moment is not None]
        if self._verdict is not None and deadline in moments:
            moments.remove(deadline)
        wait = max(0.0, min(moments) - time.monotonic()) if moments else None
        for key, _ in selector.select(wait):
            if isinstance(key.data, Rank):
                selector.unregister(key.fd)
                self._reap(key.data)
            elif isinstance(key.data, Output):
                if not key.data.copy():
                    selector.unregister(key.fileobj)
                    key.data.source.close()
            else:
                for number in os.read(key.fd, 64):
                    self._signalled(number)
        self._act(deadline)

    def _act(self, deadline: float | None) -> None:
        now = time.monotonic()
        if deadline is not None and now >= deadline and self._verdict is None:
            self._verdict = TIMED_OUT
            self.say(f"stretto run: not done after {self.timeout:g} s (--timeout); ending {self._running()}")
            self._terminate_at = now
        if self._terminate_at is not None and now >= self._terminate_at:
            self._terminate_at, self._kill_at = None, now + _KILL_AFTER
            self._send(signal.SIGTERM)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._send(signal.SIGKILL)

    def _reap(self, rank: Rank) -> None:
        # Its session first, while its number is still taken by it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(rank.process.pid, signal.SIGKILL)
        rank.status = rank.process.wait()
        rank.ended = time.monotonic()
        os.close(rank.pidfd)
        if rank.status == 0 or self.first_failure is not None or self._verdict is not None:
            return
        self.first_failure = rank
        running = self._running()
        rest = f"; {running} have {self.grace:g} s to end by themselves" if running else ""
        self.say(f"stretto run: rank {rank.number} (pid {rank.process.pid}) {rank.end_text()}{rest}")
        self._terminate_at = time.monotonic() + self.grace

    def _signalled(self, number: int) -> None:
        if number not in FORWARDED:
            return
        if self._verdict is not None:
            self._send(signal.SIGKILL)  # Asked twice: no more patience.
            return
        self._verdict = 128 + number
        self.say(f"stretto run: {signal.Signals(number).name}; ending {self._running() or 'nothing'}")
        self._send(number)
        self._terminate_at = time.monotonic() + self.grace

    def _running(self) -> str:
        alive = [str(rank.number) for rank in self.ranks if rank.status is None]
        return f"rank{'s' if len(alive) > 1 else ''} {', '.join(alive)}" if alive else ""

    def _send(self, number: int) -> None:
        for rank in self.ranks:
            if rank.status is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.process.pid, number)

    def _kill_all(self) -> None:
        self._send(signal.SIGKILL)
        for rank in self.ranks:
            if rank.status is None:
                rank.status = rank.process.wait()
                rank.ended = time.monotonic()
                os.close(rank.pidfd)

    def _open_outputs(self, selector: selectors.BaseSelector) -> bool:
        return any(isinstance(key.data, Output) for key in selector.get_map().values())

    @contextlib.contextmanager
    def _signals(self, selector: selectors.BaseSelector) -> Iterator[None]:
        """Signals become readable bytes for as long as the block lasts."""

        def nothing(number: int, frame: FrameType | None) -> None:
            """The byte in the socket is the message."""

        inner, outer = socket.socketpair()
        inner.setblocking(False)
        outer.setblocking(False)
        before = {number: signal.signal(number, nothing) for number in FORWARDED}
        previous = signal.set_wakeup_fd(inner.fileno())
        selector.register(outer, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in before.items():
                signal.signal(number, handler)
            inner.close()
            outer.close()


@dataclass
class Output:
    """One rank's stdout or stderr, copied line by line behind its number."""

    rank: int
    source: IO[bytes]
    target: BinaryIO
    pending: bytes = b""

    def copy(self) -> bool:
        """Copies what there is; False at the end."""
        data = os.read(self.source.fileno(), 65536)
        lines = (self.pending + data).split(b"\n")
        self.pending = lines.pop()
        if not data and self.pending:
            lines, self.pending = [self.pending], b""
        if lines:
            self.target.write(b"".join(b"[%d] %s\n" % (self.rank, line) for line in lines))
            self.target.flush()
        return bool(data)

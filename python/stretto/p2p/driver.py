"""A measuring program that is asked by lines on its stdin and answers each by a line of JSON (benchmarks/net)."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from typing import Any

from stretto.cli.output import printable
from stretto.cli.rank_processes import start_process

_MOST_LINE = 16 << 20


class Failed(RuntimeError):
    """A driver could not do what it was asked, or ended; the text says which and why."""


class Driver:
    """Started with the object, ended by close(), which gives it `patience` seconds to end by itself."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str] | None = None, patience: float = 2.0
    ) -> None:
        self.name = name
        self._patience = patience
        pipe = subprocess.PIPE
        try:
            self._process = start_process(command, environment, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise Failed(f"{name}: cannot start {command[0]}: {error.strerror}") from error
        self._text = b""
        self._complaints = b""
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            self._selector.register(stream, selectors.EVENT_READ, stream is self._process.stdout)

    def ask(self, line: str, seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")
        except OSError:
            raise Failed(self._how_ended()) from None
        return self.answer(seconds)

    def answer(self, seconds: float | None) -> dict[str, Any]:
        """The next; None: waits for as long as the program runs."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._text:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Failed(f"{self.name}: no answer within {seconds:g} s")
            for key, _ in self._selector.select(left):
                self._read(key.fd, is_answer=key.data)
        line, _, self._text = self._text.partition(b"\n")
        try:
            answer = dict(json.loads(line))
        except (ValueError, TypeError):
            raise Failed(f"{self.name}: {printable(line[:200].decode(errors='replace'))}") from None
        if not answer.get("ok"):
            raise Failed(f"{self.name}: {printable(str(answer.get('error')))}")
        return answer

    def close(self) -> None:
        """In words first: the end of its stdin does not reach a program under mpirun."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self._process.stdin.fileno(), b"quit\n")
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._patience)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()

    def _read(self, descriptor: int, *, is_answer: bool) -> None:
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._selector.unregister(descriptor)
        if is_answer:
            self._text += data
            if not data or len(self._text) > _MOST_LINE:
                raise Failed(self._how_ended())
        else:
            self._complaints = (self._complaints + data)[-4096:]

    def _how_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        for key in list(self._selector.get_map().values()):
            if not key.data:
                os.set_blocking(key.fd, False)
                with contextlib.suppress(BlockingIOError):
                    self._complaints += os.read(key.fd, 4096)
        words = [printable(line) for line in self._complaints.decode(errors="replace").splitlines() if line.strip()]
        status = self._process.returncode
        how = "said no more" if status is None else f"ended with status {status}"
        return f"{self.name} {how}" + (f" ({'; '.join(words[-3:])})" if words else "")

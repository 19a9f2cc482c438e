"""One implementation's running ranks, and the line protocol with them (benchmarks/driver.hpp has the words).

Every rank sleeps on a FIFO of its own until a command is written to it, so that what is idle takes no time
from what is measured. Every wait here has a deadline, and a rank that dies is noticed at once because its
answering FIFO ends.
"""

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from stretto.cli.rank_processes import start_process

Reply = dict[str, Any]
# How often a wait looks whether the processes still live. Seldom, because looking takes time from the ranks.
_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 5.0
_LAST_MOMENTS_SECONDS = 1.0
_DYING_SECONDS = 0.3
# For which a process that was killed is waited for. One in the middle of a call into a driver may never end.
_KILLED_SECONDS = 5.0
_MOST_EXTENSIONS = 9
# How often a watcher looks.
LOOK_SECONDS = 2.0
_LOG_LINES = 12


class JobError(RuntimeError):
    """An implementation crashed, hung or answered nonsense; it cannot be measured any further."""


class Unsupported(RuntimeError):
    """The implementation has no such operation; the reason is the text."""


@dataclass(frozen=True)
class Launch:
    """How to start a job: each command is one process, each with all of `environment` on top of ours."""

    commands: list[list[str]]
    environment: dict[str, str] = field(default_factory=dict)


class Watcher(Protocol):
    """Looks at processes that are waited for, every LOOK_SECONDS."""

    def restart(self) -> None:
        """A wait begins."""

    def __call__(self) -> bool:
        """Whether to go on waiting."""


def _by_what(status: int) -> str:
    """The end of a sentence: by which signal a process died, or with which status it ended."""
    return f", killed by {signal.Signals(-status).name}" if status < 0 else f" with status {status}"


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, so that no rank is left behind."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Job:
    """Started by the constructor; close() or kill() ends it. `watcher`: who decides how long its answers are waited
    for, instead of a time.
    """

    def __init__(self, name: str, launch: Launch, ranks: int, folder: Path) -> None:
        self.name = name
        self.version = ""
        self.gpu = ""
        self.startup_seconds = 0.0
        self.watcher: Watcher | None = None
        self.unanswered = False  # while it is waited for, and when that was interrupted
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pids: list[int] = []
        self._in: list[int] = []
        self._out: list[int] = []
        self._pending = [b""] * ranks
        self._ending = False
        for rank in range(ranks):
            self._open_channel(rank)
        try:
            self._spawn(launch)
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the ranks' processes, by rank, once they are ready."""
        return list(self._pids)

    @property
    def started(self) -> list[int]:
        """The processes that were started, whether they are ready or not."""
        return [process.pid for process in self._processes]

    def wait_ready(self, seconds: float) -> None:
        """Returns when every rank has said that it is there."""
        began = time.monotonic()
        replies = self._collect(seconds, "to start")
        self.startup_seconds = time.monotonic() - began
        self._pids = [int(reply["pid"]) for reply in replies]
        self.version = str(replies[0]["version"])
        self.gpu = str(replies[0].get("gpu", ""))

    def ask(self, command: str, seconds: float) -> list[Reply]:
        """Sends a command to all ranks; their replies, by rank.

        A watcher is asked within these seconds and after them whether to wait on. It is over after ten times `seconds`
        whatever it says. The ranks themselves give up a little later than we do, should nobody be left to end them.
        """
        if self.watcher is not None:
            self.watcher.restart()  # before the ranks work: looking takes time from them
        line = f"{command} seconds={int(seconds * (1 + _MOST_EXTENSIONS)) + 30}\n".encode()
        for descriptor in self._in:
            os.write(descriptor, line)
        replies = self._collect(seconds, f"to answer: {command}")
        for reply in replies:
            if "unsupported" in reply:
                raise Unsupported(str(reply["unsupported"]))
        return replies

    def close(self, seconds: float = math.inf) -> str:
        """Lets the ranks end by themselves, then ends what is left. Returns what went wrong, or nothing. `seconds`: how
        long they may take to answer, and as long again to end, if that is less than usual.
        """
        problem, grace = "", min(_GRACE_SECONDS, seconds)
        try:
            self._ending, self.watcher = True, None
            self.ask("quit", grace)
            deadline = time.monotonic() + grace
            for process in self._processes:
                status = process.wait(max(0.1, deadline - time.monotonic()))
                if status != 0:
                    problem = f"ended with status {status}{self._log_tail()}"
        except (JobError, Unsupported, OSError) as error:
            problem = str(error)
        except subprocess.TimeoutExpired:
            problem = f"did not end within {grace:g} s of being told to"
        self.kill()
        return problem

    def kill(self, seconds: float = _KILLED_SECONDS) -> None:
        """Ends every process of the job, whatever state it is in. May be called again. One that has not ended so many
        seconds after it was killed is left behind (`left_behind`).
        """
        for pid in filter(self._is_ours, self._pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        deadline = time.monotonic() + seconds
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self._pids = []
        for descriptor in self._in + self._out:
            os.close(descriptor)
        self._in, self._out = [], []

    @property
    def left_behind(self) -> list[int]:
        """Processes that do not end although they were killed."""
        return [process.pid for process in self._processes if process.poll() is None]

    def _is_ours(self, pid: int) -> bool:
        """Whether the number still belongs to the rank that told it, which may be no child of ours."""
        try:
            return str(self._folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _open_channel(self, rank: int) -> None:
        inward, outward = self._folder / f"in.{rank}", self._folder / f"out.{rank}"
        os.mkfifo(inward, 0o600)
        os.mkfifo(outward, 0o600)
        # Read and write: opening does not wait for the rank, and writing to a dead one raises no signal.
        self._in.append(os.open(inward, os.O_RDWR | os.O_CLOEXEC))
        self._out.append(os.open(outward, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))

    def _spawn(self, launch: Launch) -> None:
        with (self._folder / "log").open("ab") as log:
            for command in launch.commands:
                environment = {**os.environ, **launch.environment}
                process = start_process(command, environment, stdout=log.fileno(), stderr=subprocess.STDOUT)
                self._processes.append(process)

    def _collect(self, seconds: float, purpose: str) -> list[Reply]:
        self.unanswered = True
        try:
            replies = self._collected(seconds, purpose)
        except Exception:  # No more is waited for; what interrupts a wait may ask who was waited for.
            self.unanswered = False
            raise
        self.unanswered = False
        return replies

    def _collected(self, seconds: float, purpose: str) -> list[Reply]:
        looks, most = 1, 0
        if self.watcher is not None:
            looks = max(1, math.ceil(seconds / LOOK_SECONDS))
            most = looks * (1 + _MOST_EXTENSIONS) - 1
        seconds /= looks
        deadline, extensions = time.monotonic() + seconds, 0
        replies: dict[int, Reply] = {}
        with selectors.DefaultSelector() as selector:
            for rank, descriptor in enumerate(self._out):
                selector.register(descriptor, selectors.EVENT_READ, rank)
            while len(replies) < len(self._out):
                left = deadline - time.monotonic()
                if left <= 0 and extensions < most and self.watcher is not None and self.watcher():
                    deadline, extensions = time.monotonic() + seconds, extensions + 1
                    continue
                if left <= 0:
                    silent = [rank for rank in range(len(self._out)) if rank not in replies]
                    waited = seconds * (1 + extensions)
                    raise JobError(f"rank {silent} took more than {waited:.0f} s {purpose}{self._log_tail()}")
                for key, _ in selector.select(min(left, _LOOK_SECONDS)):
                    line = self._read_line(key.data)
                    if line is not None:
                        replies[key.data] = self._parse(key.data, line)
                        selector.unregister(key.fd)
                if len(replies) < len(self._out):
                    self._check_processes()
        return [replies[rank] for rank in sorted(replies)]

    def _read_line(self, rank: int) -> bytes | None:
        with contextlib.suppress(BlockingIOError):
            got = os.read(self._out[rank], 65536)
            if not got:
                raise JobError(f"rank {rank} died{self._how_died()}{self._log_tail()}")
            self._pending[rank] += got
        line, newline, rest = self._pending[rank].partition(b"\n")
        if not newline:
            return None
        self._pending[rank] = rest
        return line

    def _parse(self, rank: int, line: bytes) -> Reply:
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise JobError(f"rank {rank} answered {line[:200]!r}, which is no JSON") from error
        if not isinstance(reply, dict):
            raise JobError(f"rank {rank} answered {line[:200]!r}, which is no object")
        # At once: the other ranks may wait for this one, and would answer only much later.
        if not reply.get("ok") and "unsupported" not in reply:
            # Who hears of a failure first may be another rank than the one that failed, which has printed why, or died:
            # its connections end a moment before it does.
            self._expect_alive()
            raise JobError(f"rank {rank}: {reply.get('error', 'no reason given')}{self._log_tail()}")
        return reply

    def _check_processes(self) -> None:
        for number, process in enumerate(self._processes):
            status = process.poll()
            # A rank that was told to quit may be gone before another has said that it will be.
            if status is not None and not (self._ending and status == 0):
                who = f"rank {number}" if len(self._processes) == len(self._out) else "a process"
                raise JobError(f"{who} died{_by_what(status)}{self._log_tail()}")

    def _expect_alive(self) -> None:
        deadline = time.monotonic() + _DYING_SECONDS
        while time.monotonic() < deadline:
            self._check_processes()
            time.sleep(0.01)

    def _how_died(self) -> str:
        """By what a process ended, where one has and did not mean to: its FIFO ends a moment before it does."""
        deadline = time.monotonic() + _LAST_MOMENTS_SECONDS
        while time.monotonic() < deadline:
            for status in (process.poll() for process in self._processes):
                if status:
                    return _by_what(status)
            time.sleep(0.01)
        return ""

    def _log_tail(self) -> str:
        """The last lines that the processes printed, for a person to read."""
        time.sleep(0.05)  # the cause is often printed just after the fact
        text = (self._folder / "log").read_text(errors="replace").strip()
        return "; it printed:\n" + "\n".join(text.splitlines()[-_LOG_LINES:]) if text else ""

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

from stretto.cli.output import printable
from stretto.cli.outputs import Output, Tracebacks
from stretto.cli.verdict import Log, Story, first, suspect
from stretto.failures import LOG_VARIABLE

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TIMED_OUT = 124
_PR_SET_PDEATHSIG = 1
_KILL_AFTER = 2.0
# A program that writes nothing down and fails may have done so because of a rank that is about to die by a signal.
_SILENT_SECONDS = 0.25
# For what ended ranks have printed to be read.
_LAST_WORDS = 1.0
_LONGEST_SLEEP = 3600.0  # select takes no more than some days
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
    sent: float | None = None  # when it was first sent a signal from here: what it ends by afterwards is no failure
    story: Story | None = None

    def failed_by_itself(self) -> bool:
        return self.status not in (None, 0) and self.sent is None

    def end_text(self) -> str:
        if not self.failed_by_itself():
            return "failed"
        if self.status is not None and self.status < 0:
            try:
                name = f"signal {-self.status} ({signal.Signals(-self.status).name})"
            except ValueError:
                name = f"signal {-self.status}"
            return f"was killed by {name}"
        return f"ended with status {self.status}"

    def exit_status(self) -> int:
        """As a shell counts it; of a rank that was ended here before it could end by its failure, what that would
        have given.
        """
        if not self.failed_by_itself() and self.story is not None:
            return self.story.status
        assert self.status is not None
        return 128 - self.status if self.status < 0 else self.status


@dataclass
class Job:
    """Starts one process per rank and waits for them. `environments` has one set of variables per rank.

    `threads`: all ranks are threads of the only process, which says itself which of them failed first.
    """

    command: list[str]
    environments: list[dict[str, str]]
    tag: bool = False
    grace: float = 3.0
    timeout: float | None = None
    threads: bool = False
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)
    ranks: list[Rank] = field(default_factory=list)
    first_failure: Rank | None = None
    _tracebacks: Tracebacks = field(default_factory=lambda: Tracebacks(sys.stderr.buffer))
    _log: Log = field(default_factory=Log)
    _verdict: int | None = None
    _judge_at: float | None = None
    _terminate_at: float | None = None
    _kill_at: float | None = None

    def run(self) -> int:
        """Returns the exit status: 0, that of the first rank that failed, 124 after the timeout, 128 +
        signal.
        """
        self._tracebacks.tag = self.tag
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector, self._signals(selector):
            try:
                for number in range(len(self.environments)):
                    self._start(number, selector)
                while any(rank.status is None for rank in self.ranks) or self._may_print(selector):
                    self._step(selector, deadline)
            finally:
                self._kill_all()
                for output in self._outputs(selector):
                    output.let_go()
                self._tracebacks.show()
                self._log.stories()
                self._log.close()
        if self._verdict is not None:
            return self._verdict
        return self.first_failure.exit_status() if self.first_failure is not None else 0

    def _start(self, number: int, selector: selectors.BaseSelector) -> None:
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        tells = self.tag or len(self.environments) > 1
        process = subprocess.Popen(
            self.command,
            env={**self.environments[number], LOG_VARIABLE: self._log.path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.tag else None,
            stderr=subprocess.PIPE if tells else None,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        rank = Rank(number, process, os.pidfd_open(process.pid), time.monotonic())
        self.ranks.append(rank)
        selector.register(rank.pidfd, selectors.EVENT_READ, rank)
        for source, target, collected in (
            (process.stdout, sys.stdout.buffer, None),
            (process.stderr, sys.stderr.buffer, self._tracebacks),
        ):
            if source is not None:
                os.set_blocking(source.fileno(), False)
                selector.register(source, selectors.EVENT_READ, Output(number, source, target, self.tag, collected))

    def _step(self, selector: selectors.BaseSelector, deadline: float | None) -> None:
        outputs = self._outputs(selector)
        timers = [deadline, self._judge_at, self._terminate_at, self._kill_at, self._tracebacks.due()]
        timers += [output.due() for output in outputs]
        if not self._running():
            timers.append(self._last_end() + _LAST_WORDS)
        moments = [moment for moment in timers if moment is not None]
        if self._verdict is not None and deadline in moments:
            moments.remove(deadline)
        wait = min(max(0.0, min(moments) - time.monotonic()), _LONGEST_SLEEP) if moments else None
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
        self._show_tracebacks(outputs)
        self._act(deadline)

    def _show_tracebacks(self, outputs: list[Output]) -> None:
        now = time.monotonic()
        for output in outputs:
            if (due := output.due()) is not None and now >= due:
                output.let_go()
        if (due := self._tracebacks.due()) is not None and now >= due:
            self._tracebacks.show()

    def _act(self, deadline: float | None) -> None:
        now = time.monotonic()
        if self._judge_at is not None and now >= self._judge_at:
            self._judge_at = None
            self._judge(silent_too=True)
        if deadline is not None and now >= deadline and self._verdict is None:
            self._judge(at_last=True)
            self._verdict = TIMED_OUT
            self.say(f"stretto run: not done after {self.timeout:g} s (--timeout); ending {self._running()}")
            self._terminate_at = now
        if self._terminate_at is not None and now >= self._terminate_at:
            self._judge(at_last=True)
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
        if rank.failed_by_itself() and self.first_failure is None and self._verdict is None:
            now = time.monotonic()
            if self._terminate_at is None and self._kill_at is None:
                self._terminate_at, self._judge_at = now + self.grace, now + _SILENT_SECONDS
            self._judge()
        if not self._running():
            self._judge(at_last=True)

    def _judge(self, *, silent_too: bool = False, at_last: bool = False) -> None:
        """Names the first failure as soon as no later end can change who that is; `at_last`: whoever it seems to be.

        A rank that failed because it lost another is not named while that other may still end.
        """
        if self.first_failure is not None or self._verdict is not None:
            return
        if not any(rank.failed_by_itself() for rank in self.ranks):
            return
        stories = self._log.stories()
        found = first(
            suspect(
                rank.number,
                None if self.threads else stories.get(rank.number),
                rank.ended if rank.failed_by_itself() else None,
                rank.status is not None and rank.status < 0 and rank.status != -signal.SIGABRT,
            )
            for rank in self.ranks
            if rank.status != 0
        )
        if found is None or not (found.certain or at_last or (silent_too and found.silent)):
            return
        self.first_failure = self.ranks[found.number]
        self._name(self.first_failure, stories.get(found.number))

    def _name(self, rank: Rank, story: Story | None) -> None:
        running = self._running()
        self._judge_at = None
        who = f"rank {rank.number} (pid {rank.process.pid})"
        if self.threads:
            who = f"the process of all ranks (pid {rank.process.pid})"
            if self._log.verdict is not None:
                number, story = self._log.verdict
                who = f"rank {number} (a thread of pid {rank.process.pid})"
        rank.story = story
        words = f" ({printable(story.words)})" if story is not None and story.words and rank.status != 0 else ""
        left = max(0.0, self._terminate_at - time.monotonic()) if self._terminate_at is not None else 0.0
        have = "have" if running.startswith("ranks") else "has"
        rest = f"; {running} {have} {left:.2g} s to end by themselves" if running and left > 0 else ""
        self.say(f"stretto run: {who} {rank.end_text()}{words}{rest}")

    def failed_rank(self) -> int | None:
        """The number of the first failure; None if no rank failed, or none of several threads can be named."""
        if self.first_failure is None or not self.threads:
            return None if self.first_failure is None else self.first_failure.number
        return None if self._log.verdict is None else self._log.verdict[0]

    def _signalled(self, number: int) -> None:
        if number not in FORWARDED:
            return
        if self._verdict is not None:
            self._send(signal.SIGKILL)  # Asked twice: no more patience.
            return
        self._judge(at_last=True)
        self._verdict = 128 + number
        self.say(f"stretto run: {signal.Signals(number).name}; ending {self._running() or 'nothing'}")
        self._send(number)
        self._terminate_at = time.monotonic() + self.grace

    def _running(self) -> str:
        alive = [str(rank.number) for rank in self.ranks if rank.status is None]
        return f"rank{'s' if len(alive) > 1 else ''} {', '.join(alive)}" if alive else ""

    def _send(self, number: int) -> None:
        now = time.monotonic()
        for rank in self.ranks:
            if rank.status is None:
                rank.sent = now if rank.sent is None else rank.sent
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(rank.process.pid, number)

    def _kill_all(self) -> None:
        self._send(signal.SIGKILL)
        for rank in self.ranks:
            if rank.status is None:
                rank.status = rank.process.wait()
                rank.ended = time.monotonic()
                os.close(rank.pidfd)

    @staticmethod
    def _outputs(selector: selectors.BaseSelector) -> list[Output]:
        return [key.data for key in selector.get_map().values() if isinstance(key.data, Output)]

    def _last_end(self) -> float:
        return max((rank.ended for rank in self.ranks), default=0.0)

    def _may_print(self, selector: selectors.BaseSelector) -> bool:
        """Once all ranks have ended: what they left running in sessions of its own may hold their pipes for ever."""
        return bool(self._outputs(selector)) and time.monotonic() < self._last_end() + _LAST_WORDS

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

"""The ranks of a job from their start to their end, whatever happens: used by `stretto run`.

`Job` hears what ranks print, write down and end with, says which failed first, and ends the others. Where they run is
the matter of its `Ranks`: on this machine (`LocalRanks`), or on other hosts (`stretto.cli.hosts`).
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from stretto.cli.output import printable
from stretto.cli.outputs import Output, Tracebacks, ranks_text
from stretto.cli.printer import MOST_WAITING, Printer
from stretto.cli.rank_processes import STDERR, STDOUT, Listener, Processes
from stretto.cli.verdict import Log, Stories, Story, first, suspect
from stretto.failures import LOG_VARIABLE

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
TIMED_OUT = 124
HOST_LOST = 255  # the status of ranks of which nothing is known any more, as ssh has it
_KILL_AFTER = 2.0
# A program that writes nothing down and fails may have done so because of a rank that is about to die by a signal.
_SILENT_SECONDS = 0.25
# For what ended ranks have printed to be read.
_LAST_WORDS = 1.0
_LONGEST_SLEEP = 3600.0  # select takes no more than some days


class JobListener(Listener, Protocol):
    """Who is told of all that happens to ranks, wherever they run."""

    def noted(self, lines: bytes, later: float = 0.0) -> None:
        """What ranks have written down (`Stories.take`)."""

    def lost(self, numbers: Sequence[int], why: str) -> None:
        """Nothing will be heard of these ranks any more."""


class Ranks(Protocol):
    """Where the ranks of a job run."""

    hears: tuple[int, ...]  # the streams of each rank that the listener is told of

    def start(self, selector: selectors.BaseSelector, listener: JobListener) -> None:
        """What the selector finds ready has a function to call as its data. Raises OSError."""

    def hear(self, on: bool) -> None:
        """Whether what ranks print is read; on from the start, and each call changes it."""

    def act(self) -> float | None:
        """What is to be done at times; when to be called again, at the latest. Raises `StartFailed`."""

    def tell_notes(self) -> None:
        """Tells the listener what ranks have written down by now."""

    def send(self, signal_number: int) -> None:
        """To all that run."""

    def kill_all(self) -> None:
        """Returns when none runs any more, or what could be done for that is done."""

    def close(self) -> None: ...


class StartFailed(Exception):
    """Some ranks could not be started; the text says where and why."""


class LocalRanks:
    """On this machine. `environments` has one set of variables per rank; `hears`: which streams the job passes on."""

    def __init__(self, command: list[str], environments: list[dict[str, str]], hears: tuple[int, ...]) -> None:
        self._command = command
        self._environments = environments
        self.hears = hears
        self._log = Log()
        self._listener: JobListener | None = None
        self._processes: Processes | None = None

    def start(self, selector: selectors.BaseSelector, listener: JobListener) -> None:
        self._listener = listener
        self._processes = Processes(selector, listener)
        for number, environment in enumerate(self._environments):
            variables = {**environment, LOG_VARIABLE: self._log.path}
            self._processes.start(number, self._command, variables, hears=self.hears)

    def hear(self, on: bool) -> None:
        if self._processes is not None:
            self._processes.hear(on)

    def act(self) -> float | None:
        return None

    def tell_notes(self) -> None:
        while self._listener is not None and (lines := self._log.fresh()):
            self._listener.noted(lines)

    def send(self, signal_number: int) -> None:
        if self._processes is not None:
            self._processes.send(signal_number)

    def kill_all(self) -> None:
        if self._processes is not None:
            self._processes.kill_all()

    def close(self) -> None:
        self._log.close()


@dataclass
class Rank:
    """One rank of the job. `status` is what waitpid says: negative for a signal, None while it runs."""

    number: int
    host: str = ""  # empty: this machine
    pid: int | None = None
    began: float = 0.0
    ended: float = 0.0
    status: int | None = None
    sent: float | None = None  # when it was first sent a signal from here: what it ends by afterwards is no failure
    lost: str = ""  # why nothing is known of it any more
    story: Story | None = None

    def failed_by_itself(self) -> bool:
        return self.status not in (None, 0) and self.sent is None

    def died(self) -> bool:
        """By what nobody does himself, as programs do by SIGABRT when a call has failed."""
        by_signal = self.status is not None and self.status < 0 and self.status != -signal.SIGABRT
        return by_signal or self.lost != ""

    def end_text(self) -> str:
        if self.lost:
            return f"was lost with its host: {self.lost}"
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
    """Has one process per rank started and waits for them. `hosts`: that of each rank, "" for this machine.

    `threads`: all ranks are threads of the only process, which says itself which of them failed first.
    """

    where: Ranks
    hosts: Sequence[str]
    tag: bool = False
    grace: float = 3.0
    timeout: float | None = None
    threads: bool = False
    ranks: list[Rank] = field(default_factory=list)
    first_failure: Rank | None = None
    _printers: dict[int, Printer] = field(default_factory=lambda: {one: Printer(one) for one in (STDOUT, STDERR)})
    _outputs: dict[tuple[int, int], Output] = field(default_factory=dict)  # by rank and stream, until they end
    _stories: Stories = field(default_factory=Stories)
    _verdict: int | None = None
    _judge_at: float | None = None
    _terminate_at: float | None = None
    _kill_at: float | None = None
    _ending: bool = False
    _paused: bool = False  # ranks are not read, as nobody reads what they print
    _resumed: float = 0.0
    _hurried: bool = False  # what nobody reads is dropped
    _tracebacks: Tracebacks = field(init=False)
    _news: socket.socket = field(init=False)  # a byte for each signal, and zeros of printers

    def __post_init__(self) -> None:
        self._tracebacks = Tracebacks(self._printers[STDERR], self._tag_of if self.tag else lambda _: b"")

    def run(self) -> int:
        """Returns the exit status: 0, that of the first rank that failed, 124 after the timeout, 128 +
        signal. Raises `StartFailed`, or OSError where that happens on this machine.
        """
        self.ranks = [Rank(number, host) for number, host in enumerate(self.hosts)]
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector, self._signals(selector):
            try:
                self.where.start(selector, self)
                while self._alive() or self._may_print():
                    self._step(selector, deadline)
            finally:
                self._end()
            self._deliver(deadline)
        if self._verdict is not None:
            return self._verdict
        return self.first_failure.exit_status() if self.first_failure is not None else 0

    def _end(self) -> None:
        self._ending = True
        self._mark_sent()
        self.where.kill_all()
        for output in self._outputs.values():
            output.let_go()
        self._tracebacks.show()
        self.where.close()

    def _deliver(self, deadline: float | None) -> None:
        """Waits for what was printed to be read, as long as nobody asks for an end."""
        hurried = self._hurried
        if self._verdict is not None:
            deadline = time.monotonic() + _KILL_AFTER
        with selectors.DefaultSelector() as selector:
            selector.register(self._news, selectors.EVENT_READ)
            while self._unread(0) and self._hurried == hurried:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._verdict = self._verdict or TIMED_OUT
                    return
                if selector.select(left if left is None else min(left, _LONGEST_SLEEP)):
                    self._hear_news()
        self._check_printers()

    def _unread(self, most: int) -> bool:
        return any([printer.waits(most) for printer in self._printers.values()])

    def _check_printers(self) -> None:
        for printer in self._printers.values():
            if printer.error is not None:
                raise printer.error

    def _say(self, text: str) -> None:
        self._printers[STDERR].write(f"{text}\n".encode())

    def began(self, number: int, pid: int) -> None:
        rank = self.ranks[number]
        rank.pid, rank.began = pid, time.monotonic()
        tag = self._tag_of([number]) if self.tag else b""
        for stream in self.where.hears:
            tracebacks = self._tracebacks if stream == STDERR else None
            self._outputs[number, stream] = Output(number, self._printers[stream], tag, tracebacks)

    def printed(self, number: int, stream: int, data: bytes) -> None:
        self._outputs[number, stream].take(data)
        if not data:
            del self._outputs[number, stream]

    def noted(self, lines: bytes, later: float = 0.0) -> None:
        self._stories.take(lines, later)

    def ended(self, number: int, status: int) -> None:
        rank = self.ranks[number]
        rank.status, rank.ended = status, time.monotonic()
        if self._ending:
            return
        if rank.failed_by_itself() and self.first_failure is None and self._verdict is None:
            now = time.monotonic()
            if self._terminate_at is None and self._kill_at is None:
                self._terminate_at, self._judge_at = now + self.grace, now + _SILENT_SECONDS
            self._judge()
        if not self._alive():
            self._judge(at_last=True)

    def lost(self, numbers: Sequence[int], why: str) -> None:
        gone = [number for number in numbers if self.ranks[number].status is None]
        for number in numbers:
            for stream in self.where.hears:
                if (number, stream) in self._outputs:
                    self.printed(number, stream, b"")
        for number in gone:
            self.ranks[number].lost = why
        for number in gone:
            self.ended(number, HOST_LOST)

    def _tag_of(self, ranks: list[int]) -> bytes:
        """ "[3] ", or "[host 3] " where there are others."""
        hosts = list(dict.fromkeys(self.ranks[rank].host for rank in ranks))
        numbers = ranks_text(ranks).partition(" ")[2]
        return f"[{numbers}] ".encode() if hosts == [""] else f"[{','.join(hosts)} {numbers}] ".encode()

    def _step(self, selector: selectors.BaseSelector, deadline: float | None) -> None:
        outputs = list(self._outputs.values())
        timers = [deadline, self._judge_at, self._terminate_at, self._kill_at, self._tracebacks.due()]
        timers += [output.due() for output in outputs]
        timers.append(self.where.act())
        if not self._alive() and not self._paused:
            timers.append(self._last_words_until())
        moments = [moment for moment in timers if moment is not None]
        if self._verdict is not None and deadline in moments:
            moments.remove(deadline)
        wait = min(max(0.0, min(moments) - time.monotonic()), _LONGEST_SLEEP) if moments else None
        for key, _ in selector.select(wait):
            key.data()
        self._check_printers()
        self._show_tracebacks(outputs)
        self._act(deadline)
        self._pace()

    def _pace(self) -> None:
        """Ranks wait while nobody reads what they print, unless this is the end."""
        full = self._unread(MOST_WAITING // 2 if self._paused else MOST_WAITING) and not self._hurried
        if full != self._paused:
            self._paused, self._resumed = full, time.monotonic()
            self.where.hear(not full)

    def _hurry(self) -> None:
        self._hurried = True
        for printer in self._printers.values():
            printer.lossy = True

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
            self._say(f"stretto run: not done after {self.timeout:g} s (--timeout); ending {self._running()}")
            self._terminate_at = now
        if self._terminate_at is not None and now >= self._terminate_at:
            self._judge(at_last=True)
            self._terminate_at, self._kill_at = None, now + _KILL_AFTER
            self._send(signal.SIGTERM)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._send(signal.SIGKILL)
            if self._verdict is not None:
                self._hurry()

    def _judge(self, *, silent_too: bool = False, at_last: bool = False) -> None:
        """Names the first failure as soon as no later end can change who that is; `at_last`: whoever it seems to be.

        A rank that failed because it lost another is not named while that other may still end.
        """
        if self.first_failure is not None or self._verdict is not None:
            return
        if not any(rank.failed_by_itself() for rank in self.ranks):
            return
        self.where.tell_notes()
        found = first(
            suspect(
                rank.number,
                None if self.threads or rank.lost else self._stories.get(rank.number),
                rank.ended if rank.failed_by_itself() else None,
                rank.died(),
            )
            for rank in self.ranks
            if rank.status != 0
        )
        if found is None or not (found.certain or at_last or (silent_too and found.silent)):
            return
        self.first_failure = self.ranks[found.number]
        self._name(self.first_failure, self._stories.get(found.number))

    def _name(self, rank: Rank, story: Story | None) -> None:
        running = self._running()
        self._judge_at = None
        where = f" on {printable(rank.host)}" if rank.host else ""
        who = f"rank {rank.number}{where}" + (f" (pid {rank.pid})" if rank.pid is not None else "")
        if self.threads:
            who = f"the process of all ranks (pid {rank.pid})"
            if self._stories.verdict is not None:
                number, story = self._stories.verdict
                who = f"rank {number} (a thread of pid {rank.pid})"
        rank.story = story
        words = f" ({printable(story.words)})" if story is not None and story.words and rank.status != 0 else ""
        left = max(0.0, self._terminate_at - time.monotonic()) if self._terminate_at is not None else 0.0
        have = "have" if running.startswith("ranks") else "has"
        rest = f"; {running} {have} {left:.2g} s to end by themselves" if running and left > 0 else ""
        self._say(f"stretto run: {who} {rank.end_text()}{words}{rest}")

    def failed_rank(self) -> int | None:
        """The number of the first failure; None if no rank failed, or none of several threads can be named."""
        if self.first_failure is None or not self.threads:
            return None if self.first_failure is None else self.first_failure.number
        return None if self._stories.verdict is None else self._stories.verdict[0]

    def _signalled(self, number: int) -> None:
        if number not in FORWARDED:
            return
        if self._verdict is not None or not self._alive():
            # Asked twice, or there is nothing but reading to wait for: no more patience.
            self._verdict = self._verdict or 128 + number
            self._hurry()
            if self._alive():
                self._send(signal.SIGKILL)
            return
        self._judge(at_last=True)
        self._verdict = 128 + number
        self._say(f"stretto run: {signal.Signals(number).name}; ending {self._running() or 'nothing'}")
        self._send(number)
        self._terminate_at = time.monotonic() + self.grace

    def _running(self) -> str:
        alive = [str(rank.number) for rank in self.ranks if rank.status is None]
        return f"rank{'s' if len(alive) > 1 else ''} {', '.join(alive)}" if alive else ""

    def _alive(self) -> bool:
        return any(rank.status is None for rank in self.ranks)

    def _mark_sent(self) -> None:
        now = time.monotonic()
        for rank in self.ranks:
            if rank.status is None:
                rank.sent = now if rank.sent is None else rank.sent

    def _send(self, number: int) -> None:
        self._mark_sent()
        self.where.send(number)

    def _last_end(self) -> float:
        return max((rank.ended for rank in self.ranks), default=0.0)

    def _may_print(self) -> bool:
        """Once all ranks have ended: what they left running in sessions of its own may hold their pipes for ever."""
        return bool(self._outputs) and (self._paused or time.monotonic() < self._last_words_until())

    def _last_words_until(self) -> float:
        return max(self._last_end(), self._resumed) + _LAST_WORDS

    def _hear_news(self) -> None:
        for number in self._news.recv(64):
            self._signalled(number)

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

        def wake() -> None:
            inner.send(b"\0")

        self._news = outer
        for printer in self._printers.values():
            printer.wake = wake
        selector.register(outer, selectors.EVENT_READ, self._hear_news)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in before.items():
                signal.signal(number, handler)
            inner.close()
            outer.close()

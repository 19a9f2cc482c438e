"""Ranks on other hosts: `stretto run --hosts` and `stretto audit --hosts`.

One remote shell a host (ssh, or what --remote-shell says) starts `stretto.cli.host_agent` there and carries frames both
ways. A job begins when every agent has answered: the first host's makes the unique id, so that ranks meet in their own
network, which the launcher's machine need not be part of. Variables go through the pipe, where no list of processes
shows them. When the launcher ends, its shells do, and the agents see the end of their input.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from stretto.cli.frames import ALIVE_EVERY, GREETING, Frame, NoFrame, Reader, Writer, pack
from stretto.cli.launcher import JobListener, StartFailed
from stretto.cli.output import printable
from stretto.cli.rank_processes import STDERR, STDOUT, start_process
from stretto.errors import InvalidArgument

REMOTE_SHELL = "ssh -o BatchMode=yes -o ConnectTimeout=10"
_SILENCE = 15.0  # seconds without a word of an agent, which has one every two
_AWAY = 4.0  # seconds between two rounds of our own, after which nobody's silence means anything: we were stopped
_PREPARE_SECONDS = 30.0  # after all have answered
_LAST_SECONDS = 5.0  # for agents to end their ranks, and for shells to end after them
_MOST_CHATTER = 64 << 10  # of a shell's start-up files
_MOST_COMPLAINTS = 4096


@dataclass(frozen=True)
class Host:
    name: str
    ranks: int


def parse_hosts(text: str, ranks: int) -> list[Host]:
    """From "a,user@b:2": names, with the number of ranks there where it is not `ranks`. Raises `InvalidArgument`."""
    hosts = []
    for word in text.split(","):
        # An address of IPv6 has colons of its own, unless it stands in brackets.
        name, colon, number = word.strip().rpartition(":")
        if not colon or (":" in name and not name.endswith("]")):
            name, number = word.strip(), str(ranks)
        user, at, address = name.rpartition("@")
        name = user + at + address.removeprefix("[").removesuffix("]")
        if not name or name.startswith("-") or not number.isdecimal() or int(number) < 1:
            raise InvalidArgument(f"--hosts {text}: {word!r} is no host; write NAME or NAME:RANKS, with commas between")
        hosts.append(Host(name, int(number)))
    return hosts


@dataclass(frozen=True)
class Launch:
    """What to start, and how. `seconds`: how long a host may take to answer. `alone`: each host's ranks serve by
    themselves: one that cannot be used is lost, and the others begin. `talks`: ranks read what `Hosts.tell` says.
    """

    command: list[str]
    variables: dict[str, str]
    folder: str
    shell: list[str]
    python: str
    seconds: float
    alone: bool = False
    talks: bool = False


@dataclass
class _Connection:
    """To one host. `failed`: why there is none (any more)."""

    host: Host
    ranks: list[int]
    shell: subprocess.Popen[bytes]
    writer: Writer
    reader: Reader = field(default_factory=Reader)
    chatter: bytes | None = b""  # until the agent's greeting
    complaints: bytes = b""  # what the shell has printed on stderr
    heard: float = 0.0
    later: float | None = None  # by which this host's clock is ahead of that one's
    greeted: bool = False
    prepared: bool = False
    failed: str = ""
    reads: Callable[[], None] | None = None  # what its agent says; None once that has ended

    def has_said_more(self) -> bool:
        """What has not been read yet."""
        assert self.shell.stdout is not None
        poll = select.poll()
        poll.register(self.shell.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def last_words(self) -> str:
        lines = [printable(line.strip()) for line in self.complaints.decode(errors="replace").splitlines()]
        return "; ".join(line for line in lines[-3:] if line)[-600:]


class Hosts:
    """The ranks of a job, contiguous on each host in the order of `hosts`."""

    hears: tuple[int, ...] = (STDOUT, STDERR)

    def __init__(self, hosts: list[Host], launch: Launch) -> None:
        self._hosts = hosts
        self._launch = launch
        self._connections: list[_Connection] = []
        self._deadline: float | None = time.monotonic() + launch.seconds  # of what is waited for; None: nothing
        self._maker: _Connection | None = None  # of the unique id
        self._running = False
        self._refused = False  # by an agent
        self._said = 0.0
        self._acted = time.monotonic()

    def start(self, selector: selectors.BaseSelector, listener: JobListener) -> None:
        self._selector = selector
        self._listener = listener
        agent = f"exec {shlex.quote(self._launch.python)} -m stretto.cli.host_agent"
        first = 0
        for host in self._hosts:
            pipe = subprocess.PIPE
            command = [*self._launch.shell, host.name, agent]
            shell = start_process(command, stdin=pipe, stdout=pipe, stderr=pipe)
            assert shell.stdin is not None
            ranks = list(range(first, first + host.ranks))
            first += host.ranks
            connection = _Connection(host, ranks, shell, Writer(selector, shell.stdin.fileno()))
            self._connections.append(connection)
            self._listen(connection)

    def act(self) -> float | None:
        now = time.monotonic()
        if now - self._said >= ALIVE_EVERY:
            self._said = now
            self._tell_all(pack("alive"))
        self._judge_silence(now)
        if not self._running or self._refused:
            self._go_on(now)
        return self._said + ALIVE_EVERY

    def hear(self, on: bool) -> None:
        """An agent that is not read reads its ranks no more either, once the pipe is full."""
        for one in self._connections:
            pipe = one.shell.stdout
            if on and one.reads is not None and pipe is not None:
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, one.reads)
            elif one.reads is not None and pipe is not None:
                self._selector.unregister(pipe.fileno())

    def _judge_silence(self, now: float) -> None:
        """What waits to be read is no silence, however long it has waited, nor is time when nobody here listened."""
        away, self._acted = now - self._acted, now
        if away > _AWAY:
            for one in self._connections:
                one.heard = now
            if self._deadline is not None:
                self._deadline += away
        for one in self._connections:
            if one.greeted and not one.failed and now - one.heard > _SILENCE and not one.has_said_more():
                self._fail(one, f"nothing was heard of it for {_SILENCE:g} s")

    def tell_notes(self) -> None:
        """They come by themselves."""

    def send(self, signal_number: int) -> None:
        if self._running:
            self._tell_all(pack("signal", number=int(signal_number)))
            return
        self._running = True  # There is nothing to begin any more.
        for one in self._connections:
            self._close(one)
            for rank in one.ranks:
                self._listener.ended(rank, -signal_number)

    def tell(self, rank: int, data: bytes) -> None:
        """To its stdin, where the job talks to its ranks."""
        for one in self._connections:
            if rank in one.ranks and not one.failed:
                one.writer.write(pack("told", data, rank=rank))

    def kill_all(self) -> None:
        """An agent ends its ranks at the end of its input, and ends itself when none is left."""
        self._tell_all(pack("signal", number=int(signal.SIGKILL)))
        for one in self._connections:
            one.writer.drain(0, 0.1)
            self._close(one)
        deadline = time.monotonic() + _LAST_SECONDS
        for one in self._connections:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.shell.wait(max(0.0, deadline - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.shell.pid, signal.SIGKILL)
            one.shell.wait()

    def close(self) -> None:
        for one in self._connections:
            for pipe in (one.shell.stdout, one.shell.stderr):
                if pipe is not None:
                    pipe.close()

    # --- Until the ranks begin. ---

    def _go_on(self, now: float) -> None:
        """The next step, when all hosts have done the last one."""
        waiting = [one for one in self._connections if not one.failed and not one.greeted]
        if self._deadline is not None and now > self._deadline:
            self._judge_lateness(waiting)
            waiting = []
        failed = [one for one in self._connections if one.failed]
        if failed and not waiting and not self._launch.alone:
            raise StartFailed("\n".join(f"host {printable(one.host.name)}: {one.failed}" for one in failed))
        usable = [one for one in self._connections if not one.failed]
        if not usable:
            self._begin("")
        elif not waiting and all(one.prepared for one in usable) and usable[0] is not self._maker:
            self._maker = usable[0]
            self._maker.writer.write(pack("make"))

    def _judge_lateness(self, waiting: list[_Connection]) -> None:
        for one in waiting:
            seconds = self._launch.seconds
            self._fail(one, f"it did not answer within {seconds:g} s (--reach)", _mend_shell(self._launch, one))
        if not waiting:
            late = [one for one in self._connections if not one.failed and not one.prepared]
            for one in late or [one for one in (self._maker,) if one is not None]:
                self._fail(one, f"it answered, and did not get ready within {_PREPARE_SECONDS:g} s")
        # Those that are left have the time that each step has.
        self._deadline = time.monotonic() + _PREPARE_SECONDS

    def _prepare(self, connection: _Connection, version: str) -> None:
        from stretto import __version__

        connection.greeted = True
        if version != __version__:
            mend = "install the same version on all hosts, or name a Python that has it by --remote-python"
            self._fail(connection, f"it has stretto {version}, and this host {__version__}", mend)
            return
        facts = {"variables": self._launch.variables, "folder": self._launch.folder, "several": len(self._hosts) > 1}
        connection.writer.write(pack("prepare", b"", **facts))
        if all(one.greeted for one in self._connections):
            self._deadline = time.monotonic() + _PREPARE_SECONDS

    def _begin(self, unique_id: str) -> None:
        self._running, self._deadline = True, None
        for one in self._connections:
            if one.failed:
                self._listener.lost(one.ranks, one.failed)
        ranks = sum(host.ranks for host in self._hosts)
        variables = {"STRETTO_RANKS": str(ranks), "STRETTO_UNIQUE_ID": unique_id}
        if "MASTER_ADDR" not in self._launch.variables:
            variables["MASTER_ADDR"] = self._hosts[0].name.rpartition("@")[2]
        facts = {"command": self._launch.command, "variables": variables, "talks": self._launch.talks}
        for one in self._connections:
            if not one.failed:
                one.writer.write(pack("start", b"", **facts, ranks=one.ranks))

    # --- What comes from a host. ---

    def _listen(self, connection: _Connection) -> None:
        streams = ((connection.shell.stdout, self._take), (connection.shell.stderr, self._complain))
        for pipe, take in streams:
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            read = partial(self._read, connection, pipe.fileno(), take)
            self._selector.register(pipe.fileno(), selectors.EVENT_READ, read)
            if pipe is connection.shell.stdout:
                connection.reads = read

    def _read(self, connection: _Connection, descriptor: int, take: Callable[[_Connection, bytes], None]) -> None:
        data = os.read(descriptor, 1 << 16)
        if not data:
            self._selector.unregister(descriptor)
        take(connection, data)

    def _complain(self, connection: _Connection, data: bytes) -> None:
        connection.complaints = (connection.complaints + data)[-_MOST_COMPLAINTS:]

    def _take(self, connection: _Connection, data: bytes) -> None:
        if not data:
            connection.reads = None
        if connection.failed:
            return  # What a host says after it was given up changes nothing.
        if not data:
            self._shell_ended(connection)
            return
        connection.heard = time.monotonic()
        if connection.chatter is not None:
            text = connection.chatter + data
            before, greeting, data = text.partition(GREETING)
            if not greeting:
                connection.chatter = before[-_MOST_CHATTER:]
                return
            connection.chatter = None
        try:
            for frame in connection.reader.feed(data):
                self._hear(connection, frame)
                if connection.failed:
                    return
        except (NoFrame, KeyError, ValueError, TypeError) as error:
            self._fail(connection, f"its agent said what it never says: {printable(str(error))}")

    def _hear(self, connection: _Connection, frame: Frame) -> None:
        head, data = frame
        what = head["what"]
        if what in ("began", "printed", "ended") and head["rank"] not in connection.ranks:
            raise ValueError(f"rank {head['rank']}")
        if "now" in head:
            later = time.monotonic() - float(head["now"])
            connection.later = later if connection.later is None else min(connection.later, later)
        if what == "hello":
            self._prepare(connection, str(head["version"]))
        elif what == "prepared":
            connection.prepared = True
        elif what == "made":
            self._begin(str(head["unique_id"]))
        elif what == "refused" and self._launch.alone:
            self._fail(connection, str(head["why"]))
        elif what == "refused":
            connection.failed = str(head["why"])
            self._refused = True
        elif what == "began":
            self._listener.began(head["rank"], int(head["pid"]))
        elif what == "printed":
            self._listener.printed(head["rank"], int(head["stream"]), data)
        elif what == "noted":
            self._listener.noted(data, connection.later or 0.0)
        elif what == "ended":
            self._listener.ended(head["rank"], int(head["status"]))

    def _shell_ended(self, connection: _Connection) -> None:
        """Its output has ended, and it is about to."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            connection.shell.wait(1.0)
        assert connection.shell.stderr is not None
        with contextlib.suppress(BlockingIOError):
            self._complain(connection, os.read(connection.shell.stderr.fileno(), _MOST_COMPLAINTS))
        status = connection.shell.returncode
        words = connection.last_words() or (connection.chatter or b"").decode(errors="replace").strip()[-300:]
        how = f"its remote shell ended with status {status}" if status is not None else "its remote shell said no more"
        why = f"{how} ({printable(words)})" if words else how
        self._fail(connection, why, "" if connection.greeted else _mend(self._launch, connection))

    def _fail(self, connection: _Connection, why: str, mend: str = "") -> None:
        """Of a host whose ranks run: they are lost; otherwise act() says it, when the others are known too."""
        if connection.failed:
            return
        connection.failed = f"{why}. {mend}" if mend else why
        self._close(connection)
        if self._running:
            self._listener.lost(connection.ranks, why)

    def _close(self, connection: _Connection) -> None:
        connection.writer.close()
        if connection.shell.stdin is not None and not connection.shell.stdin.closed:
            with contextlib.suppress(OSError):
                connection.shell.stdin.close()

    def _tell_all(self, frame: bytes) -> None:
        for one in self._connections:
            if one.greeted and not one.failed:
                one.writer.write(frame)


def _mend(launch: Launch, connection: _Connection) -> str:
    """What to do where the agent never answered."""
    said = connection.last_words()
    if "No module named" in said:
        return f"Install stretto there for {launch.python}, or name a Python that has it by --remote-python"
    if connection.shell.returncode in (126, 127):
        return f"{launch.python} must run there: install it at that path, or name another by --remote-python"
    return _mend_shell(launch, connection)


def _mend_shell(launch: Launch, connection: _Connection) -> str:
    words: Sequence[str] = [*launch.shell, connection.host.name, "true"]
    return f"`{shlex.join(words)}` must end by itself and without a question; --remote-shell chooses another shell"

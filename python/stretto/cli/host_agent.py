"""What `stretto run --hosts` starts on each host through the remote shell: starts the host's ranks, passes on what they
print, write down and end with, and ends them when told to, when the launcher ends, or when nothing is heard of it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from types import FrameType
from typing import Any

from stretto.cli.frames import ALIVE_EVERY, GREETING, MOST_DATA, Frame, NoFrame, Reader, Writer, pack
from stretto.cli.rank_processes import STDERR, STDOUT, Keeper, Processes, program
from stretto.cli.verdict import Log
from stretto.failures import LOG_VARIABLE
from stretto.interfaces import USUAL, interface_of

_SILENCE = 60.0  # seconds without a word of the launcher: it, or the way to it, is gone
_MOST_PENDING = 1 << 20  # bytes that wait for the launcher, before ranks that print have to


class _LauncherGone(Exception):
    pass


def _arrival() -> str:
    """NCCL_SOCKET_IFNAME for the network interface by which sshd was reached. Where that is loopback, which no other
    host can reach, or not known: for what the net takes by itself.
    """
    fields = os.environ.get("SSH_CONNECTION", "").split()
    name = interface_of(fields[2]) if len(fields) == 4 else None
    return f"={name}" if name is not None and name != "lo" else USUAL


class Agent:
    """Is the listener of its own `Processes`, and tells the launcher what it hears."""

    def __init__(self, source: int, target: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._source = source
        self._reader = Reader()
        self._writer = Writer(self._selector, target)
        self._processes = Processes(self._selector, self)
        self._keeper = Keeper()
        self._sessions: dict[int, int] = {}
        self._log = Log()
        self._heard = self._said = time.monotonic()

    def run(self) -> int:
        """Returns when the launcher is gone, or has no more to say; no rank runs any more then."""
        self._selector.register(self._source, selectors.EVENT_READ, self._hear)
        self._writer.write(GREETING)
        self._say("hello", version=_version(), pid=os.getpid(), now=time.monotonic())
        try:
            while True:
                for key, _ in self._selector.select(ALIVE_EVERY / 2):
                    key.data()
                self._tell()
        except (_LauncherGone, NoFrame):
            return 0
        finally:
            with contextlib.suppress(_LauncherGone):
                self._processes.kill_all()

    def began(self, number: int, pid: int) -> None:
        self._sessions[number] = pid
        self._keeper.note(pid)
        self._say("began", rank=number, pid=pid)

    def printed(self, number: int, stream: int, data: bytes) -> None:
        self._say("printed", data, rank=number, stream=stream)

    def ended(self, number: int, status: int) -> None:
        self._keeper.note(-self._sessions.pop(number))
        self._tell()  # What it wrote down comes before its end.
        self._say("ended", rank=number, status=status)

    def _say(self, what: str, data: bytes = b"", **facts: object) -> None:
        self._said = time.monotonic()
        self._writer.write(pack(what, data, **facts))
        if not self._writer.drain(_MOST_PENDING, _SILENCE):
            raise _LauncherGone

    def _tell(self) -> None:
        """Regular news: what ranks have written down, and that this host is alive."""
        while noted := self._log.fresh():
            # More than a frame holds is a line that nobody of us wrote, with some of ours behind it.
            self._say("noted", noted[-MOST_DATA:])
        now = time.monotonic()
        if now - self._said >= ALIVE_EVERY:
            self._say("alive", now=now)
        if now - self._heard > _SILENCE:
            raise _LauncherGone

    def _hear(self) -> None:
        data = os.read(self._source, 65536)
        if not data:
            raise _LauncherGone
        self._heard = time.monotonic()
        for head, payload in self._reader.feed(data):
            self._obey(head, payload)

    def _obey(self, head: dict[str, Any], payload: bytes) -> None:
        if head["what"] == "prepare":
            self._prepare(head)
        elif head["what"] == "make":
            self._make()
        elif head["what"] == "start":
            self._start(head)
        elif head["what"] == "told":
            self._processes.tell(int(head["rank"]), payload)
        elif head["what"] == "signal":
            self._processes.send(int(head["number"]))

    def _prepare(self, head: dict[str, Any]) -> None:
        os.environ.update(head["variables"])
        chosen = os.environ.get("NCCL_SOCKET_IFNAME")
        if not chosen and head["several"]:
            os.environ["NCCL_SOCKET_IFNAME"] = _arrival()
        try:
            os.chdir(head["folder"])
        except OSError as error:
            self._say("refused", why=f"it cannot enter the folder {head['folder']}: {error.strerror}")
            return
        self._say("prepared")

    def _make(self) -> None:
        """The id is answered for by this process, which lives as long as the job, and by this host's network."""
        from stretto import StrettoError, unique_id

        try:
            self._say("made", unique_id=unique_id().hex())
        except StrettoError as error:
            self._say("refused", why=str(error))

    def _start(self, head: dict[str, Any]) -> None:
        command = program(head["command"])
        numbers = list(head["ranks"])
        os.environ.update(head["variables"], STRETTO_LOCAL_RANKS=str(len(numbers)))
        for number in numbers:
            environment = {**os.environ, "STRETTO_RANK": str(number), LOG_VARIABLE: self._log.path}
            try:
                self._processes.start(number, command, environment, hears=(STDOUT, STDERR), talks=head["talks"])
            except OSError as error:
                self._say("refused", why=f"it cannot start {command[0]}: {error.strerror or error}")
                return


def _version() -> str:
    from stretto import __version__

    return __version__


def _leave(number: int, frame: FrameType | None) -> None:
    raise _LauncherGone


def main() -> int:
    # Nothing that is printed here may come between frames.
    source, target = os.dup(STDIN := 0), os.dup(STDOUT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), STDIN)
    os.dup2(STDERR, STDOUT)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    return Agent(source, target).run()


__all__ = ["Agent", "Frame", "main"]

if __name__ == "__main__":
    sys.exit(main())

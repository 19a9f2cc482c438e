"""The hosts of an audit of several, however they are reached: each is asked for something, and answers or is lost."""

from __future__ import annotations

import json
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stretto.audit.member import Answer, Command
from stretto.cli.hosts import Hosts
from stretto.cli.output import printable
from stretto.cli.rank_processes import STDERR

_END_SECONDS = 5.0
_LONGEST_SLEEP = 0.5
_MOST_COMPLAINTS = 4096


class Crew(Protocol):
    """`names`: of the hosts; `gone`: those that are lost, and why."""

    names: list[str]
    gone: dict[str, str]

    def ask(self, commands: Mapping[str, Command], seconds: float) -> dict[str, Answer]:
        """What each host answers; nothing of one that is lost, or that is lost now."""


class Agents:
    """One member a host, over a remote shell and its agent. Hears what they say, as `Hosts` tells it."""

    def __init__(self, names: list[str], where: Hosts, doing: Callable[[str, str], None]) -> None:
        self.names = names
        self.gone: dict[str, str] = {}
        self._where = where
        self._doing = doing
        self._text = dict.fromkeys(names, b"")
        self._complaints = dict.fromkeys(names, b"")
        self._answers: dict[str, Answer] = {}
        self._running: set[str] = set()
        self._selector = selectors.DefaultSelector()
        where.start(self._selector, self)

    def wait_begun(self) -> None:
        """Returns when each host is there, or lost."""
        self._until(lambda: len(self._running) + len(self.gone) >= len(self.names), None)

    def ask(self, commands: Mapping[str, Command], seconds: float) -> dict[str, Answer]:
        asked = [name for name in commands if name not in self.gone]
        self._answers = {}
        for name in asked:
            self._where.tell(self.names.index(name), json.dumps(commands[name]).encode() + b"\n")
        self._until(lambda: all(name in self._answers or name in self.gone for name in asked), seconds)
        for name in asked:
            if name not in self._answers and name not in self.gone:
                self._lose(name, f"it did not do {commands[name]['do']!r} within {seconds:g} s")
        return dict(self._answers)

    def close(self) -> None:
        """Members end what they have started; what is left then is killed, on each host."""
        try:
            self._where.send(signal.SIGTERM)
            self._until(lambda: not self._running, _END_SECONDS)
        finally:
            self._where.kill_all()
            self._where.close()
            self._selector.close()

    def _until(self, done: Callable[[], bool], seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while not done():
            if deadline is not None and time.monotonic() > deadline:
                return
            self._where.act()
            for key, _ in self._selector.select(_LONGEST_SLEEP):
                key.data()

    def _lose(self, name: str, why: str) -> None:
        self._running.discard(name)
        said = [line for line in self._complaints[name].decode(errors="replace").splitlines() if line.strip()]
        self.gone.setdefault(name, why + (f" (it printed: {printable('; '.join(said[-3:]))})" if said else ""))

    # --- What `Hosts` tells. ---

    def began(self, number: int, pid: int) -> None:
        self._running.add(self.names[number])

    def printed(self, number: int, stream: int, data: bytes) -> None:
        name = self.names[number]
        if stream == STDERR:
            self._complaints[name] = (self._complaints[name] + data)[-_MOST_COMPLAINTS:]
            return
        *lines, self._text[name] = (self._text[name] + data).split(b"\n")
        for line in lines:
            try:
                answer = dict(json.loads(line))
            except (ValueError, TypeError):
                self._lose(name, f"its audit said what none says: {printable(line[:80].decode(errors='replace'))}")
                return
            if "doing" in answer:
                self._doing(name, str(answer["doing"]))
            else:
                self._answers[name] = answer

    def noted(self, lines: bytes, later: float = 0.0) -> None:
        """Members write nothing down."""

    def ended(self, number: int, status: int) -> None:
        by = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._lose(self.names[number], f"the audit's process there {by}")

    def lost(self, numbers: Sequence[int], why: str) -> None:
        for number in numbers:
            self._lose(self.names[number], why)

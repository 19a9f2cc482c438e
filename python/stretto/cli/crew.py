"""One process on each of several hosts, over remote shells: each is asked for something, and answers or is lost. Used
by `stretto audit --hosts` and `stretto top --hosts`; a question and an answer are a line of JSON each.
"""

from __future__ import annotations

import json
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stretto.cli.hosts import Hosts
from stretto.cli.output import printable
from stretto.cli.rank_processes import STDERR

_END_SECONDS = 5.0
_LONGEST_SLEEP = 0.5
_MOST_COMPLAINTS = 4096

Command = dict[str, Any]
Answer = dict[str, Any]


def _nothing(host: str, text: str) -> None:
    """For members that do not say what they are doing."""


class Agents:
    """One member a host, over a remote shell and its agent. Hears what they say, as `Hosts` tells it. `names`: of the
    hosts; `gone`: those that are lost, and why; `what` they do, in a word; `doing` is told how far they are.
    """

    def __init__(self, names: list[str], where: Hosts, what: str, doing: Callable[[str, str], None] = _nothing) -> None:
        self.names = names
        self.gone: dict[str, str] = {}
        self._where = where
        self._what = what
        self._doing = doing
        self._text = dict.fromkeys(names, b"")
        self._complaints = dict.fromkeys(names, b"")
        self._answers: dict[str, Answer] = {}
        self._running: set[str] = set()
        self._selector = selectors.DefaultSelector()
        where.start(self._selector, self)

    def wait_begun(self) -> None:
        """Returns when each host is there, or lost: `Hosts` gives up those that do not come."""
        self._until(lambda: len(self._running) + len(self.gone) >= len(self.names), None)

    def rest(self, seconds: float) -> None:
        """Lets time pass. Agents that hear nothing of us for a minute end."""
        self._until(lambda: False, seconds)

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
            self._where.act()
            left = _LONGEST_SLEEP if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(min(left, _LONGEST_SLEEP)):
                key.data()
            if deadline is not None and time.monotonic() >= deadline:
                return

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
        if name in self.gone:
            return  # it answers what was asked before it was given up
        *lines, self._text[name] = (self._text[name] + data).split(b"\n")
        for line in lines:
            try:
                answer = dict(json.loads(line))
            except (ValueError, TypeError):
                self._lose(
                    name, f"its {self._what} said what none says: {printable(line[:80].decode(errors='replace'))}"
                )
                return
            if "doing" in answer:
                self._doing(name, str(answer["doing"]))
            else:
                self._answers[name] = answer

    def noted(self, lines: bytes, later: float = 0.0) -> None:
        """Members write nothing down."""

    def ended(self, number: int, status: int) -> None:
        by = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._lose(self.names[number], f"the process of {self._what} there {by}")

    def lost(self, numbers: Sequence[int], why: str) -> None:
        for number in numbers:
            self._lose(self.names[number], why)

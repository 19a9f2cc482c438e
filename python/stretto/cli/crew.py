"""One process on each of several hosts, over remote shells: each is asked for something, and answers or is lost. Used
by `stretto audit --hosts`, `stretto top --hosts` and `stretto tune --hosts`; a question and an answer are a line of
JSON each (`stretto.by_lines`).
"""

from __future__ import annotations

import contextlib
import json
import selectors
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from stretto.by_lines import Answer, Command
from stretto.cli.hosts import Hosts, Launch, parse_hosts
from stretto.cli.output import printable, stop
from stretto.cli.rank_processes import STDERR
from stretto.cli.reach import Reach, variables_for_hosts
from stretto.errors import InvalidArgument

_END_SECONDS = 5.0
_LONGEST_SLEEP = 0.5
_MOST_COMPLAINTS = 4096


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

    def ask(self, commands: Mapping[str, Command], seconds: float, all_or_none: bool = False) -> dict[str, Answer]:
        """Waits until all have answered or are gone; `all_or_none`: or until one is gone or answers with an error,
        because the others may wait for that one.
        """
        asked = [name for name in commands if name not in self.gone]

        def fails(name: str) -> bool:
            return name in self.gone or "error" in self._answers.get(name, ())

        self._answers = {}
        for name in asked:
            self._where.tell(self.names.index(name), json.dumps(commands[name]).encode() + b"\n")
        self._until(
            lambda: (
                all(name in self._answers or name in self.gone for name in asked)
                or (all_or_none and any(fails(name) for name in commands))
            ),
            seconds,
        )
        if all_or_none and any(fails(name) for name in commands):
            return dict(self._answers)
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


@contextlib.contextmanager
def agents(verb: str, module: str, reach: Reach, doing: Callable[[str, str], None] = _nothing) -> Iterator[Agents]:
    """`python -m MODULE` on each of the hosts, for `stretto VERB`, which ends with a reason where that cannot be. They
    have begun, or are lost, after `wait_begun`. None is left when the block ends.
    """
    from stretto.bench.job import terminable

    try:
        places = parse_hosts(reach.hosts, 1)
    except InvalidArgument as problem:
        stop(f"{verb}: {problem}")
    names = [place.name for place in places]
    if len(set(names)) < len(names) or any(place.ranks != 1 for place in places):
        stop(f"{verb}: --hosts {reach.hosts}: each host once, and without a number of ranks")
    launch = Launch(
        [reach.remote_python, "-m", module],
        variables_for_hosts(verb, reach.env),
        "/",
        shlex.split(reach.remote_shell),
        reach.remote_python,
        reach.seconds,
        alone=True,
        talks=True,
    )
    with terminable():
        try:
            crew = Agents(names, Hosts(places, launch), verb, doing)
        except OSError as problem:
            stop(f"{verb}: cannot start {reach.remote_shell}: {problem.strerror or problem}", 1)
        with contextlib.closing(crew):
            yield crew

"""Whether processes that have not answered are slow, starved by other programs, or hang."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import stretto
from stretto import _native

# Seconds without a sign of work after which a process that has its core hangs, where there is no time to wait longer.
HANGS_AFTER = 5.0
# Of the time in which no rank began an operation, at most so much may have been spent waiting for a core.
_MOST_STARVED = 0.25


class Progress:
    """Whether ranks have begun operations lately: those that have are slow, and do not hang. `patience`: seconds
    without a new operation after which they do; those that wait for a core, or cannot be looked at, have `most`, if
    that is more. `by_memory`: they are no ranks of Stretto, or not yet, and are at work when they read something or
    touch memory for the first time. `hangs_after`: the least silence that says anything.
    """

    def __init__(
        self,
        pids: Sequence[int],
        patience: float = 0.0,
        most: float = 0.0,
        by_memory: bool = False,
        hangs_after: float = HANGS_AFTER,
    ) -> None:
        self._pids, self._patience, self._most = list(pids), patience, max(patience, most)
        self._by_memory, self._hangs_after = by_memory, hangs_after
        self.restart()

    def restart(self) -> None:
        """From now on: what came before is no silence."""
        self._since, self._begun, self._delays = time.monotonic(), self._signs(), self._waited()

    def __call__(self) -> bool:
        """Looks again; whether to go on waiting."""
        begun = self._signs()
        if begun != self._begun:
            self._since, self._begun, self._delays = time.monotonic(), begun, self._waited()
        if self._begun is None or (self.silent >= self._patience and self.starved):
            return self.silent < self._most
        return self.silent < self._patience

    @property
    def silent(self) -> float:
        """Seconds since a sign of work was last seen."""
        return time.monotonic() - self._since

    @property
    def hangs(self) -> bool:
        """By what was seen last. Nobody knows of processes that cannot be looked at."""
        return self._begun is not None and self.silent > self._hangs_after and not self.starved

    @property
    def what(self) -> str:
        """In words, for how long there was no sign of work."""
        seconds = f"in the last {self.silent:.0f} s"
        if self._by_memory:
            return f"its processes read nothing and touched no new memory {seconds}"
        return f"no operation began {seconds}"

    @property
    def starved(self) -> bool:
        """Whether some rank has waited for a core for much of that time, or the kernel does not say."""
        now = self._waited()
        if len(now) < len(self._pids) or len(self._delays) < len(self._pids):
            return True
        most = max((now[pid] - self._delays[pid] for pid in self._pids), default=0.0)
        return most > _MOST_STARVED * self.silent

    def _signs(self) -> list[int] | None:
        return self._touched() if self._by_memory else self._operations()

    def _operations(self) -> list[int] | None:
        """How many operations each rank has begun. None where the flight recorders cannot be read."""
        try:
            reading = json.loads(_native.Watch(",".join(str(pid) for pid in self._pids)).read())
        except stretto.StrettoError:
            return None
        return [member["begun"] for one in reading["communicators"] for member in one["members"]]

    def _touched(self) -> list[int] | None:
        """Of each process the page faults, and the bytes that it has read. None where the kernel does not say."""
        found = []
        for pid in self._pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                read = Path(f"/proc/{pid}/io").read_text().split()[1]
                found += [int(fields[7]), int(fields[9]), int(read)]
            except (OSError, ValueError, IndexError):
                return None
        return found

    def _waited(self) -> dict[int, float]:
        """Seconds for which the threads of each process, added up, were ready to run and had no core; without those
        processes of which the kernel does not say it.
        """
        found: dict[int, float] = {}
        for pid in self._pids:
            try:
                texts = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]
                waited = sum(int(text.split()[1]) for text in texts) / 1e9
            except (OSError, ValueError, IndexError):
                continue
            if texts:
                found[pid] = waited
        return found


def waited_for(pids: Sequence[int]) -> str:
    """What the flight recorders say of ranks that do not answer."""
    try:
        text = stretto.doctor(",".join(str(pid) for pid in pids))["text"]
    except stretto.StrettoError as error:
        return f"; {error}"
    return f"; the flight recorders say: {' '.join(text.split())[:400]}" if text else ""

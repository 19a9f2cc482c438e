"""Whether ranks that have not answered are slow, starved by other programs, or hang."""

from __future__ import annotations

import json
import time
from pathlib import Path

import stretto
from stretto import _native

# How often ranks that have not answered are looked at: how exactly it is known when one was last seen at work.
LOOK_SECONDS = 2.0
# Of the time in which no rank began an operation, at most so much may have been spent waiting for a core.
_MOST_STARVED = 0.25


class Progress:
    """Whether ranks have begun operations lately: those that have are slow, and do not hang. `patience`: seconds
    without a new operation after which they do.
    """

    def __init__(self, pids: list[int], patience: float = 0.0) -> None:
        self._pids, self._patience = pids, patience
        self._since, self._begun, self._delays = time.monotonic(), self._operations(), self._waited()

    def __call__(self) -> bool:
        """Looks again; whether to go on waiting."""
        begun = self._operations()
        if begun != self._begun:
            self._since, self._begun, self._delays = time.monotonic(), begun, self._waited()
        return time.monotonic() - self._since < self._patience

    @property
    def silent(self) -> float:
        """Seconds since an operation was last seen to begin."""
        return time.monotonic() - self._since

    @property
    def starved(self) -> bool:
        """Whether some rank has waited for a core for much of that time, or the kernel does not say."""
        now = self._waited()
        if len(now) < len(self._pids) or len(self._delays) < len(self._pids):
            return True
        most = max((now[pid] - self._delays[pid] for pid in self._pids), default=0.0)
        return most > _MOST_STARVED * self.silent

    def _operations(self) -> list[int]:
        try:
            reading = json.loads(_native.Watch(",".join(str(pid) for pid in self._pids)).read())
        except stretto.StrettoError:
            return []
        return [member["begun"] for one in reading["communicators"] for member in one["members"]]

    def _waited(self) -> dict[int, float]:
        """Seconds for which the threads of each process, added up, were ready to run and had no core."""
        found: dict[int, float] = {}
        for pid in self._pids:
            try:
                texts = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]
                found[pid] = sum(int(text.split()[1]) for text in texts) / 1e9
            except (OSError, ValueError, IndexError):
                continue
        return found


def waited_for(pids: list[int]) -> str:
    """What the flight recorders say of ranks that do not answer."""
    try:
        text = stretto.doctor(",".join(str(pid) for pid in pids))["text"]
    except stretto.StrettoError as error:
        return f"; {error}"
    return f"; the flight recorders say: {' '.join(text.split())[:400]}" if text else ""

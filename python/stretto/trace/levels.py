"""Levels for spans that overlap, where a viewer's rows hold only what nests: each span goes on the first level of its
lane where it nests with what is there.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

_MOST_INTERVALS = 2_000  # kept of one level


@dataclass
class _Level:
    """What is there, as intervals that do not overlap: those that nest in another are part of it."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def put(self, start: int, end: int) -> bool:
        """Puts a span there that ends no earlier than all before it; False where the two would not nest, or touch."""
        first = bisect_left(self.starts, start)
        if first < len(self.starts) and self.starts[first] == start:
            return False  # which of the two holds the other, a viewer could not tell
        if first > 0 and self.ends[first - 1] >= start:
            return False
        del self.starts[first:], self.ends[first:]
        self.starts.append(start)
        self.ends.append(end)
        if len(self.starts) > _MOST_INTERVALS:
            self._forget()
        return True

    def _forget(self) -> None:
        """Makes one interval of the older half. A long span that begins within it then goes on another level."""
        half = len(self.starts) // 2
        self.starts[:half], self.ends[:half] = [self.starts[0]], [self.ends[half - 1]]


@dataclass
class Row:
    """The levels of what does not nest, in any order: each span goes on the first level that has ended before it, and
    on the last what finds none.
    """

    last: int = 255
    _ends: list[int] = field(default_factory=list)

    def level(self, start: int, end: int) -> int:
        for number, before in enumerate(self._ends):
            if before < start:
                self._ends[number] = end
                return number
        if len(self._ends) == self.last:
            return self.last
        self._ends.append(end)
        return len(self._ends) - 1


@dataclass
class Lane:
    """The levels of one lane. Spans come in the order of their ends."""

    last: int = 255  # the level that takes what finds no other
    _levels: list[_Level] = field(default_factory=list)

    def level(self, start: int, end: int) -> int:
        for number, level in enumerate(self._levels):
            if level.put(start, end):
                return number
        if len(self._levels) <= self.last:
            self._levels.append(_Level([start], [end]))
        return len(self._levels) - 1

    def __len__(self) -> int:
        return len(self._levels)

"""From ticks to nanoseconds. Processes of one boot of a host share a counter, so their anchors are one set; other hosts
are joined by the realtime that their anchors name, which is as good as their clocks were set.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stretto.trace import layout
from stretto.trace.model import Quality
from stretto.trace.raw import RawFile, note

Times = npt.NDArray[np.int64]
Anchor = tuple[int, int, int, int]  # ticks, monotonic, realtime, uncertainty

_FARTHEST = 1 << 62
_WINDOW_NS = 50_000_000  # anchors nearer to each other than this say more of their jitter than of the clock
_SAME_NS = 1_000_000  # how far an anchor may lie from where the others put it


@dataclass
class Clock:
    """Ticks to nanoseconds of CLOCK_MONOTONIC, linear between the anchors and beyond them."""

    ticks: npt.NDArray[np.uint64]
    monotonic: Times
    slope: npt.NDArray[np.float64]  # nanoseconds a tick, from each anchor on; one at least
    to_realtime: int = 0  # realtime less monotonic
    identity: bool = False

    def ns(self, ticks: npt.NDArray[np.uint64]) -> Times:
        if self.identity:
            return np.minimum(ticks, np.uint64(_FARTHEST)).astype(np.int64)
        place = np.clip(np.searchsorted(self.ticks, ticks, side="right") - 1, 0, len(self.slope) - 1)
        away = (ticks - self.ticks[place]).view(np.int64) * self.slope[place]
        away = np.clip(np.rint(away), -_FARTHEST / 2, _FARTHEST / 2).astype(np.int64)
        return np.asarray(np.clip(self.monotonic[place] + away, -_FARTHEST, _FARTHEST))

    def one(self, ticks: int) -> int:
        return int(self.ns(np.array([ticks], np.uint64))[0])


def _rate(first: Anchor, last: Anchor) -> float:
    """Nanoseconds a tick; 0 where the two do not say."""
    if last[0] <= first[0] or last[1] <= first[1]:
        return 0.0
    rate = (last[1] - first[1]) / (last[0] - first[0])
    return rate if 0.01 <= rate <= 1000 else 0.0


def _sound(anchors: list[Anchor]) -> list[Anchor]:
    return sorted(one for one in anchors if max(one[1], one[2]) < _FARTHEST // 2)


def _thinned(anchors: list[Anchor]) -> list[Anchor]:
    """The most certain of each window, in order, and none that goes backwards."""
    width = max(1, min(_WINDOW_NS, (anchors[-1][1] - anchors[0][1]) // 2))
    best: dict[int, Anchor] = {}
    for one in anchors:
        window = (one[1] - anchors[0][1]) // width
        if window not in best or one[3] < best[window][3]:
            best[window] = one
    kept: list[Anchor] = []
    for one in (best[window] for window in sorted(best)):
        if kept and one[1] - kept[-1][1] < width // 2:
            if one[3] < kept[-1][3]:
                kept[-1] = one
        elif not kept or _rate(kept[-1], one):
            kept.append(one)
    return kept


@dataclass
class _Host:
    """What all files of one boot say of its counter."""

    anchors: list[Anchor] = field(default_factory=list)
    rate: float = 0.0

    def agrees(self, anchors: list[Anchor]) -> bool:
        """Whether these can be anchors of the same counter."""
        if not self.anchors:
            return True
        mine = self.anchors[0]
        for one in (anchors[0], anchors[-1]):
            ticks, nanoseconds = one[0] - mine[0], one[1] - mine[1]
            rate = _rate(*sorted((mine, one)))
            near = abs(nanoseconds - ticks * (self.rate or 1.0)) < _SAME_NS
            if not near and not (rate and (not self.rate or abs(rate / self.rate - 1) < 0.01)):
                return False
        return True

    def add(self, anchors: list[Anchor]) -> None:
        self.anchors = sorted(self.anchors + anchors)
        self.rate = _rate(self.anchors[0], self.anchors[-1])

    def clock(self, file: RawFile, quality: Quality) -> Clock:
        if file.header["clock"] == layout.CLOCK_MONOTONIC:
            offset = self.anchors[0][2] - self.anchors[0][1] if self.anchors else 0
            nothing = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0)
            return Clock(*nothing, to_realtime=offset, identity=True)
        kept = _thinned(self.anchors) if self.anchors else []
        rates = [_rate(first, last) for first, last in itertools.pairwise(kept)]
        kept = kept or [(0, 0, 0, 0)]
        if not rates:
            # Both count from about the boot on.
            rates = [_rate((0, 0, 0, 0), kept[0]) or 1.0]
            name = file.path.name
            note(
                quality,
                f"{name}: the rate of its counter is a guess ({rates[0]:.6g} ns a tick): it has one anchor only",
            )
        ticks, monotonic = np.array([one[0] for one in kept], np.uint64), np.array([one[1] for one in kept], np.int64)
        return Clock(ticks, monotonic, np.array(rates), kept[0][2] - kept[0][1])


def clocks(files: list[RawFile], quality: Quality) -> list[Clock]:
    """One for each file; the same one for those that share a counter."""
    hosts: dict[tuple[bytes, int, int], _Host] = {}
    own: dict[int, tuple[bytes, int, int]] = {}
    sound = [_sound(file.definitions.anchors) for file in files]
    longest = sorted(range(len(files)), key=lambda one: sound[one][0][1] - sound[one][-1][1] if sound[one] else 0)
    for number in longest:
        header, anchors = files[number].header, sound[number]
        key = (bytes(header["boot"]), int(header["clock"]), 0)
        host = hosts.setdefault(key, _Host())
        if anchors and not host.agrees(anchors):
            name = files[number].path.name
            note(quality, f"{name}: its clock is not that of the others of its host; it is joined by realtime")
            key = (*key[:2], number + 1)
            host = hosts.setdefault(key, _Host())
        if anchors:
            host.add(anchors)
        own[number] = key
    made = {key: host.clock(files[_first(own, key)], quality) for key, host in hosts.items()}
    return [made[own[number]] for number in range(len(files))]


def _first(own: dict[int, tuple[bytes, int, int]], key: tuple[bytes, int, int]) -> int:
    return next(number for number in sorted(own) if own[number] == key)

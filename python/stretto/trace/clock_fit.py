"""What one clock says in terms of another: maps, and their estimate from events that order or join the two.

An estimate stands on three kinds of evidence: events of clock a known to come before or after events of clock b, which
bound the offset for certain, and events that happen at about the same time on both, which place it within the bounds.
Used by `align`, and its maps by who draws; integers are nanoseconds.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from stretto.trace.columns import Float, Int, empty

_WINDOWS = 32
_FEW = 3
_MAX_SLOPE = 150e-6  # between two clocks; oscillators keep within 50 ppm each
_FLOOR_NS = 50.0  # no estimate is better than the stamps
_SKEW_SHARE = 0.1  # ends of one operation differ from rank to rank by up to this part of it, in every operation alike
_KNOTS = 65
_COARSEST_NS = 10_000


@dataclass(frozen=True)
class ClockMap:
    """Takes times of one clock to another: an offset, a slope, and what is left of both between knots."""

    origin: int
    base: int
    slope: float
    knots: Float
    rest: Float

    @property
    def offset_ns(self) -> int:
        """What it adds to a time at its origin."""
        return self.base + round(float(np.interp(0.0, self.knots, self.rest)))

    def __call__(self, moments: Int) -> Int:
        x = (moments - self.origin).astype(np.float64)
        offset = self.slope * x + np.interp(x, self.knots, self.rest)
        return moments + self.base + np.rint(offset).astype(np.int64)

    @cached_property
    def _lists(self) -> tuple[list[float], list[float]]:
        return self.knots.tolist(), self.rest.tolist()

    def one(self, moment: int) -> int:
        """The same for one, which NumPy takes twenty times as long for."""
        x = float(moment - self.origin)
        knots, rest = self._lists
        place = bisect_right(knots, x)
        if 0 < place < len(knots):
            share = (x - knots[place - 1]) / (knots[place] - knots[place - 1])
            left = rest[place - 1] + share * (rest[place] - rest[place - 1])
        else:
            left = rest[min(place, len(rest) - 1)]
        return moment + self.base + round(self.slope * x + left)


def through(local: Int, other: Int) -> ClockMap:
    """The map through these points, linear between them; `local` ascends."""
    origin, base = int(local[0]), int(other[0]) - int(local[0])
    x = (local - origin).astype(np.float64)
    y = (other - local - base).astype(np.float64)
    slope = float(y[-1] / x[-1]) if x[-1] > 0 else 0.0
    return ClockMap(origin, base, slope, x, y - slope * x)


IDENTITY = ClockMap(0, 0, 0.0, np.zeros(1), np.zeros(1))


@dataclass(frozen=True)
class Evidence:
    """Pairs of times (clock a, clock b). `before`: what a stamped happened no later than what b stamped; `after`: no
    sooner; `same`: about then. `lasted` says for each of `same` how long that operation moved data at most.
    """

    before: tuple[Int, Int]
    after: tuple[Int, Int]
    same: tuple[Int, Int] = field(default_factory=lambda: (empty(), empty()))
    lasted: Int = field(default_factory=empty)


@dataclass(frozen=True)
class Fit:
    """Clock a in terms of clock b. `error`: how far that can be wrong if `Evidence.same` happened together; `most`: by
    the bounds alone, infinite where these contradict each other or there are none on one side. `broken` is the share of
    bounds that the best line breaks.
    """

    map: ClockMap
    error: float
    most: float
    low: int  # the range of a that the evidence spans
    high: int
    broken: float


def fit(evidence: Evidence) -> Fit | None:
    """None where the evidence does not bound the offset from both sides, nor say what happened together."""
    every = [part for part in (evidence.before, evidence.after, evidence.same) if len(part[0])]
    two_sided = len(evidence.before[0]) and len(evidence.after[0])
    if not every or not (two_sided or len(evidence.same[0]) >= _FEW):
        return None
    low = min(int(part[0].min()) for part in every)
    high = max(int(part[0].max()) for part in every)
    pick = evidence.same if len(evidence.same[0]) else every[0]
    base = int(np.median(pick[1] - pick[0]))
    sides = [_points(part, low, base) for part in (evidence.before, evidence.after, evidence.same)]
    if len(sides[2][0]) >= _FEW:
        slope, level, knots, rest, spread = _middle(sides[2], evidence.lasted)
        spread += sum(_resolution(stamps) for stamps in evidence.same)
    else:
        slope, level, knots, rest, spread = _between(sides[0], sides[1])
    return _bounded(ClockMap(low, base, slope, knots, level + rest), sides[0], sides[1], spread, (low, high))


def _points(pairs: tuple[Int, Int], origin: int, base: int) -> tuple[Float, Float]:
    return (pairs[0] - origin).astype(np.float64), (pairs[1] - pairs[0] - base).astype(np.float64)


def _resolution(stamps: Int) -> float:
    """What the clock counts by: GPUs' count by up to 1 us, which no spread of their differences shows."""
    step = int(np.gcd.reduce(stamps - stamps[0]))
    return float(min(step, _COARSEST_NS)) if len(stamps) > 2 * _FEW else 0.0


def _windows(x: Float, most: int = _WINDOWS) -> list[Int]:
    """Rows in order of time, in as many equal parts as make sense."""
    order = np.argsort(x, kind="stable").astype(np.int64)
    return [part for part in np.array_split(order, min(most, len(x))) if len(part)]


def _line(x: Float, y: Float) -> tuple[float, float]:
    """The median of all slopes between two points, and the level that leaves half of the points on either side."""
    i, j = np.triu_indices(len(x), 1)
    apart = x[j] - x[i]
    slopes = (y[j] - y[i])[apart > 0] / apart[apart > 0]
    slope = float(np.clip(np.median(slopes), -_MAX_SLOPE, _MAX_SLOPE)) if len(slopes) else 0.0
    return slope, float(np.median(y - slope * x))


def _sigma(values: Float) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _middle(points: tuple[Float, Float], lasted: Int) -> tuple[float, float, Float, Float, float]:
    """(slope, level, knots, rest, error) through what happened together. Short operations end most closely so."""
    brief = lasted <= 2 * np.quantile(lasted, 0.25) if len(lasted) else np.ones(len(points[0]), np.bool_)
    x, y = points[0][brief], points[1][brief]
    parts = _windows(x)
    centers = np.array([float(np.median(x[part])) for part in parts])
    slope, level = _line(centers, np.array([float(np.median(y[part])) for part in parts]))
    spread = _sigma(y - slope * x - level)
    near = np.abs(y - slope * x - level) <= 5 * spread + 1
    if near.sum() >= 2 * _FEW and np.ptp(x[near]) > 0:
        refined = float(np.polyfit(x[near] - x[near].mean(), y[near], 1)[0])
        slope = float(np.clip(refined, -_MAX_SLOPE, _MAX_SLOPE))
        level = float(np.median(y[near] - slope * x[near]))
    rest = y - slope * x - level
    spread = _sigma(rest)
    bends = np.array([float(np.median(rest[part])) for part in parts])
    doubt = np.array([1.25 * spread / np.sqrt(len(part)) for part in parts])
    # A bend that noise does not explain is the clock's: its rate changes with temperature. No rate changes so much that
    # a clock would be faster or slower than clocks are: that is a busy machine.
    steps = np.abs(np.diff(bends)) <= _MAX_SLOPE * np.diff(centers)
    bent = len(parts) == _WINDOWS and bool(np.max(np.abs(bends) - 5 * doubt) > 0) and bool(steps.all())
    skew = _SKEW_SHARE * float(np.median(lasted[brief])) if len(lasted) else 0.0
    error = 3 * spread + skew + 2 * spread / np.sqrt(len(x))
    if bent:
        edges = np.array([x.min(), x.max()])
        inner, outer = (bends[1] - bends[0]) / np.diff(centers[:2]), (bends[-1] - bends[-2]) / np.diff(centers[-2:])
        first, last = bends[0] + inner * (edges[0] - centers[0]), bends[-1] + outer * (edges[1] - centers[-1])
        knots = np.concatenate((edges[:1], centers, edges[1:]))
        return slope, level, knots, np.concatenate((first, bends, last)), error
    return slope, level, np.zeros(1), np.zeros(1), error


def _between(before: tuple[Float, Float], after: tuple[Float, Float]) -> tuple[float, float, Float, Float, float]:
    """The line in the middle of upper and lower bounds, window by window."""
    edges = np.linspace(
        min(before[0].min(), after[0].min()),
        max(before[0].max(), after[0].max()) + 1,
        1 + min(_WINDOWS, 1 + len(before[0]) // 8),
    )
    middles, centers = [], []
    for begin, end in itertools.pairwise(edges):
        upper = before[1][(before[0] >= begin) & (before[0] < end)]
        lower = after[1][(after[0] >= begin) & (after[0] < end)]
        if len(upper) and len(lower):
            middles.append((upper.min() + lower.max()) / 2)
            centers.append((begin + end) / 2)
    if not middles:
        middles, centers = [(before[1].min() + after[1].max()) / 2], [0.0]
    slope, level = _line(np.array(centers), np.array(middles))
    return slope, level, np.zeros(1), np.zeros(1), np.inf


def _bounded(
    found: ClockMap, before: tuple[Float, Float], after: tuple[Float, Float], spread: float, span: tuple[int, int]
) -> Fit:
    """The map moved to where the bounds allow it, and how far from it the truth can be."""

    def rest(points: tuple[Float, Float]) -> Float:
        return points[1] - found.slope * points[0] - np.interp(points[0], found.knots, found.rest)

    upper, lower = rest(before), rest(after)
    shift, hard = 0.0, np.inf
    high, low = _edges(before[0], upper), -_edges(after[0], -lower)
    if len(high) and len(low):
        # Within all bounds if that can be; in the middle where they say more than the ends do. The truth may come as
        # near to the loosest bound as it likes.
        tight = (float(low.max()), float(high.min()))
        shift = float(np.clip(0.0, *tight)) if tight[0] <= tight[1] else 0.0
        middle = (tight[0] + tight[1]) / 2
        # Bounds that contradict each other are of a map that is not straight or not level: they say nothing of it, or
        # no more than how far they are apart, where nothing else does.
        if tight[0] <= tight[1] or spread == np.inf:
            hard = _farthest(high, low, shift)
        if tight[0] <= tight[1] and _farthest(high, low, middle) < spread:
            shift, hard = middle, _farthest(high, low, middle)
    slack = 3 * spread if spread < np.inf else _FLOOR_NS
    wrong = int((upper < shift - slack).sum() + (lower > shift + slack).sum())
    broken = wrong / max(1, len(upper) + len(lower))
    moved = ClockMap(found.origin, found.base, found.slope, found.knots, found.rest + shift)
    most = _most(moved, (before[0], upper - shift), (after[0], lower - shift))
    return Fit(moved, max(_FLOOR_NS, min(hard, spread)), max(_FLOOR_NS, most), span[0], span[1], broken)


def _most(found: ClockMap, upper: tuple[Float, Float], lower: tuple[Float, Float]) -> float:
    """How far from the map the truth can be anywhere: it is within each bound at the time of that, and goes away from
    the map no faster than clocks can. Infinite where bounds contradict each other, as a wrong stamp has them do.
    """
    steep = abs(found.slope) + float(np.abs(np.diff(found.rest) / np.diff(found.knots)).max(initial=0.0)) + _MAX_SLOPE
    x = np.concatenate((upper[0], lower[0]))
    order = np.argsort(x, kind="stable")
    x, rise = x[order], steep * x[order]
    high, low = (
        np.concatenate(sides)[order]
        for sides in ((upper[1], np.full(len(lower[1]), np.inf)), (np.full(len(upper[1]), np.inf), -lower[1]))
    )
    # The least of all bounds, each looser with the time from it; between two bounds both are.
    high, low = (
        np.minimum(
            np.minimum.accumulate(side - rise) + rise,
            np.minimum.accumulate((side + rise)[::-1])[::-1] - rise,
        )
        for side in (high, low)
    )
    if (high + low < 0).any():
        return np.inf
    return max(
        float(max(side[0], side[-1], ((side[1:] + side[:-1] + np.diff(rise)) / 2).max(initial=0.0)))
        for side in (high, low)
    )


def _farthest(high: Float, low: Float, shift: float) -> float:
    return max(float(high.max()) - shift, shift - float(low.min()), 0.0)


def _edges(x: Float, rest: Float) -> Float:
    """The least upper bound in each part of the recording; one stamp in a hundred may be wrong."""
    if len(rest) == 0:
        return np.zeros(0)
    parts = _windows(x, min(_WINDOWS, max(1, len(x) // 200)))
    return np.array([float(np.partition(rest[part], len(part) // 100)[len(part) // 100]) for part in parts])


def reach(
    count: int, edges: dict[tuple[int, int], Fit], spans: list[tuple[int, int]], roots: list[int]
) -> tuple[list[ClockMap], Float, Float, Int]:
    """Maps of all clocks to the first root that they are linked to, the errors of these maps, how far they can be off
    at most, and each clock's root: along the links whose errors add up to least. A clock that nothing links to an
    earlier root is its own root.
    """
    links: dict[int, list[tuple[int, float, Fit, bool]]] = {}
    for (a, b), found in edges.items():
        links.setdefault(b, []).append((a, found.error, found, True))
        links.setdefault(a, []).append((b, found.error, found, False))
    maps = [IDENTITY] * count
    errors, most, home = np.full(count, np.inf), np.full(count, np.inf), np.full(count, -1, np.int64)
    for root in roots:
        queue = [(0.0, 0, root, IDENTITY, 0.0)] if home[root] < 0 else []
        turn = 0  # tells equal errors apart
        while queue:
            error, _, clock, own, bound = heappop(queue)
            if home[clock] >= 0:
                continue
            maps[clock], errors[clock], most[clock], home[clock] = own, error, bound, root
            for other, more, found, forward in links.get(clock, ()):
                if home[other] < 0:
                    turn += 1
                    step = found.map if forward else inverse(found)
                    heappush(queue, (error + more, turn, other, chain(step, own, spans[other]), bound + found.most))
    return maps, errors, most, home


def inverse(found: Fit) -> ClockMap:
    """From clock b back to clock a."""
    local = _samples((found.low, found.high))
    return through(found.map(local), local)


def chain(first: ClockMap, second: ClockMap, span: tuple[int, int]) -> ClockMap:
    """`first`, then `second`, as one map, exact at many points of `span`."""
    local = _samples(span)
    return through(local, second(first(local)))


def _samples(span: tuple[int, int]) -> Int:
    return np.linspace(0, max(1, span[1] - span[0]), _KNOTS).astype(np.int64) + span[0]

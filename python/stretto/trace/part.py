"""A part of a recording, by time: which segments have to be read for it, and which spans lie in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from stretto.errors import InvalidArgument
from stretto.trace.job import Job, Source
from stretto.trace.model import Columns, Recording
from stretto.trace.raw import Segment

Rows = npt.NDArray[np.bool_]
Chosen = list[list[list[Segment]]]  # of each source and thread

_LEAST, _MOST = -(1 << 62), 1 << 62
# How far hosts' own clocks may be apart: what is read is chosen before they are aligned.
_MARGIN_NS = 5_000_000_000


@dataclass(frozen=True)
class Part:
    """From `begin` to `end`, in nanoseconds of the recording."""

    begin: int = _LEAST
    end: int = _MOST

    @staticmethod
    def of_seconds(begin: float | None, end: float | None) -> Part:
        """As people say it; None where it has no end."""
        for name, one in (("from", begin), ("to", end)):
            if one is not None and math.isnan(one):
                raise InvalidArgument(f"--{name} {one}: a number of seconds")
        if begin is not None and end is not None and not begin < end:
            raise InvalidArgument(f"--from {begin:g} --to {end:g}: nothing lies between")
        limits = [round(min(max(one, -1e9), 1e9) * 1e9) if one is not None else None for one in (begin, end)]
        return Part(_LEAST if limits[0] is None else limits[0], _MOST if limits[1] is None else limits[1])

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return self.begin == _LEAST and self.end == _MOST


WHOLE = Part()


def segments(job: Job, part: Part) -> Chosen:
    """The segments that may hold something of the part; a thread's next segment begins where one ends."""
    margin = _MARGIN_NS if len({id(source.clock) for source in job.sources}) > 1 else 0
    return [
        [_of_thread(source, thread, part, margin) for thread in source.file.events.values()] for source in job.sources
    ]


def _of_thread(source: Source, thread: list[Segment], part: Part, margin: int) -> list[Segment]:
    begins = source.times(np.array([one.first_ticks for one in thread], np.uint64))
    ends = np.append(begins[1:], _MOST)
    kept = (begins <= part.end + margin) & (ends >= part.begin - margin)
    return [one for one, keep in zip(thread, kept.tolist(), strict=True) if keep]


def _mapped(old: npt.NDArray[np.generic], kept: Rows) -> npt.NDArray[np.int64]:
    """Rows of the whole recording as rows of the kept ones; -1 for those that are gone."""
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    at = old.astype(np.int64)
    return np.where(at >= 0, numbers[np.maximum(at, 0)], -1) if len(numbers) else np.full(len(at), -1)


def selected(recording: Recording, kept: Rows) -> Recording:
    """The recording with these spans and their states only."""
    spans = {name: values[kept] for name, values in recording.spans.items()}
    owner = _mapped(recording.states["span"], kept)
    stays = (owner >= 0) | (recording.states["span"].astype(np.int64) < 0)
    states: Columns = {name: values[stays] for name, values in recording.states.items()}
    states["span"] = owner[stays].astype(recording.states["span"].dtype)
    return replace(recording, spans=spans, states=states)


def within(recording: Recording, part: Part, without: frozenset[int] = frozenset()) -> Rows:
    """Which spans overlap the part, and are of no type that is left out."""
    spans = recording.spans
    start, stop = spans["start"].astype(np.int64), spans["stop"].astype(np.int64)
    last = np.where(stop == -1, np.iinfo(np.int64).max, np.maximum(stop, start))
    return (last >= part.begin) & (start <= part.end) & ~np.isin(spans["type"], sorted(without))


def cut(recording: Recording, part: Part, without: frozenset[int] = frozenset()) -> Recording:
    """The recording without what lies outside of the part or is of these types. Raises where nothing is left."""
    if part.is_whole and not without:
        return recording
    made = selected(recording, within(recording, part, without))
    if len(made.spans["start"]) == 0:
        last = max(0, int(recording.spans["stop"].max(initial=0))) / 1e9
        raise InvalidArgument(f"no event is left of this recording, which ends at {last:.3f} s")
    return made

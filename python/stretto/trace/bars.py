"""Where a span is drawn, and from when to when, for formats that draw: the lane of its thread and communicator, or of
its kernel's channel, and a level of that lane. Kernels lie where their GPU's clock has them, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stretto.trace import layout
from stretto.trace.job import Job
from stretto.trace.levels import Lane, Row
from stretto.trace.model import EventType
from stretto.trace.spans import Joiner, Span

KERNELS = frozenset((int(EventType.KERNEL_CH), int(EventType.KERNEL_PHASE)))
KERNEL_STOPS = (22, 31)  # KernelChStop, KernelPhaseStop
Place = tuple[int, int, int]  # thread, context, channel; -1 what is none


@dataclass(slots=True)
class Bar:
    """`clock_error` in ns where the times are a GPU's; None where they are the span's own."""

    place: Place
    level: int
    start: int
    end: int
    clock_error: int | None = None


def place_of(span: Span) -> Place:
    """The lane of a span."""
    channel = -1
    if span.type in KERNELS:
        said = span.value("channel")
        channel = layout.NONE if said is None else int(said)
    return span.thread, span.context, channel


def on_gpu(job: Job, span: Span) -> tuple[int, int, int] | None:
    """When the GPU says that it was, and the error of that."""
    clock = job.gpus.get(span.context)
    began = span.value("gpu_ns")
    if clock is None or not began:
        return None
    ended = next((argument for _, state, _, argument in span.states if state in KERNEL_STOPS), None)
    if ended is None or ended < began:
        return None
    return clock.to_recording.one(began), clock.to_recording.one(ended), clock.error_ns


class Bars:
    """Gives spans their bars, in the order of their ends."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lanes: dict[Place, Lane | Row] = {}

    def __call__(self, span: Span) -> Bar:
        place = place_of(span)
        if span.type not in KERNELS:
            return Bar(place, self._levels(place, Lane).level(span.start, span.end), span.start, span.end)
        start, end, error = on_gpu(self._job, span) or (span.start, span.end, None)
        return Bar(place, self._levels(place, Row).level(start, end), start, end, error)

    def _levels(self, place: Place, kind: type[Lane] | type[Row]) -> Lane | Row:
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = kind()
        return lane


def draw(job: Job, one: Callable[[Span, Bar], None], flush: Callable[[], None], progress: Callable[[int], None]) -> int:
    """Gives all spans with their bars to `one`; returns how many."""
    joiner, bars = Joiner(job), Bars(job)
    count = 0
    for count, span in enumerate(joiner.spans(), 1):
        one(span, bars(span))
        if count % 1000 == 0:
            flush()
            progress(joiner.events)
    flush()
    progress(joiner.events)
    return count

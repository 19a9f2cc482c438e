"""Where a span is drawn, for formats whose rows hold what nests: calls on the row of their thread, in the order in
which they were made; kernels on a row of their channel, where their GPU's clock has them, as far as that is known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stretto.trace import layout
from stretto.trace.job import Job
from stretto.trace.levels import Lane, Row
from stretto.trace.model import EventType
from stretto.trace.spans import Joiner, Span

KERNELS = frozenset((int(EventType.KERNEL_CH), int(EventType.KERNEL_PHASE)))
KERNEL_STOPS = (22, 31)  # KernelChStop, KernelPhaseStop
NEVER = 255  # the level of spans that never stopped: they have one for themselves, and no length
Place = tuple[int, int, int]  # thread, context, channel; -1 what tells no rows apart


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


class Plan:
    """A first reading: a span is drawn from its start, and only its end says on which level of its row."""

    def __init__(self, job: Job, progress: Callable[[int], None]) -> None:
        self._levels = bytearray()
        self._lanes: dict[Place, Lane] = {}
        self._apart = _serving_several(job)
        self._kernels: dict[Place, Row] = {}
        self._started = 0
        joiner = Joiner(job, self._note)
        for count, span in enumerate(joiner.spans()):
            if count % 1000 == 0:
                progress(joiner.events)
            if span.stop is not None and span.type not in KERNELS:
                lane = self._lanes.setdefault(self.place(span), Lane(last=NEVER - 1))
                self._levels[span.number] = lane.level(span.at, span.until)

    def _note(self, span: Span) -> None:
        span.number = len(self._levels)
        self._levels.append(NEVER)

    def place(self, span: Span) -> Place:
        """The row of a span, but for its level."""
        if span.type in KERNELS:
            said = span.value("channel")
            return span.thread, span.context, layout.NONE if said is None else int(said)
        return span.thread, span.context if span.thread in self._apart else -1, -1

    def begin(self, span: Span) -> int:
        """Numbers a span of the second reading as it starts, and gives its level. What was overwritten between the two
        readings (flight mode, still running) has none.
        """
        span.number = self._started
        self._started += 1
        return self.level(span)

    def level(self, span: Span) -> int:
        return self._levels[span.number] if span.number < len(self._levels) else NEVER

    def kernel(self, job: Job, span: Span) -> tuple[int, int, int, int | None]:
        """Level, begin and end of a kernel, and the error of the GPU's clock; None where the host saw it so."""
        start, end, error = on_gpu(job, span) or (span.start, span.end, None)
        return self._kernels.setdefault(self.place(span), Row(last=NEVER)).level(start, end), start, end, error


def _serving_several(job: Job) -> set[int]:
    """Threads that call for several ranks of one communicator: each of these ranks has rows of its own."""
    found = set()
    for source in job.sources:
        own = [context.communicator for context in job.contexts if context.process == source.number]
        if len(set(own)) == len(own):
            continue
        served: dict[tuple[int, int], set[int]] = {}
        for segments in source.file.events.values():
            for block in (block for segment in segments for block in source.file.blocks(segment)):
                thread = source.thread(block.thread)
                contexts = source.contexts(block.context[block.kind == layout.START])
                for context in np.unique(contexts[contexts >= 0]).tolist():
                    served.setdefault((thread, job.contexts[context].communicator), set()).add(context)
        found |= {thread for (thread, _), contexts in served.items() if len(contexts) > 1}
    return found

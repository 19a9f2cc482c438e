"""What converters call things: tracks, spans, and the collective that a span is one rank's part of."""

from __future__ import annotations

import zlib

from stretto.trace import layout
from stretto.trace.columns import Owners
from stretto.trace.job import Job
from stretto.trace.model import EventType
from stretto.trace.spans import Span

_MASK = (1 << 64) - 1
# Types that others name as their parent.
PARENTS = frozenset(
    int(kind)
    for kind in (
        EventType.GROUP,
        EventType.COLL,
        EventType.P2P,
        EventType.PROXY_OP,
        EventType.PROXY_STEP,
        EventType.KERNEL_CH,
        EventType.GROUP_API,
        EventType.COLL_API,
        EventType.P2P_API,
        EventType.CE_COLL,
    )
)


def span_name(span: Span) -> str:
    """For example "Coll AllReduce"."""
    kind = layout.type_name(span.type)
    what = span.value("function") or span.value("phase_name")
    if what is None and span.type == EventType.PROXY_OP:
        what = "Send" if span.value("is_send") else "Receive"
    return f"{kind} {what}" if what else kind


def process_name(job: Job, process: int) -> str:
    about = job.processes[process]
    return f"process {about.pid} {about.program.split(' ', 1)[0]}".rstrip()


def rank_text(rank: int, ranks: int) -> str:
    """ABI v1 to v3 do not say how many ranks there are."""
    return f"rank {rank if rank >= 0 else '?'} of {ranks if ranks > 0 else '?'}"


def communicator_name(job: Job, context: int) -> str:
    if context < 0:
        return "no communicator"
    about = job.contexts[context]
    name = f"{about.name} " if about.name else ""
    return f"communicator {name}0x{about.communicator:x} {rank_text(about.rank, about.ranks)}"


def thread_name(job: Job, thread: int) -> str:
    about = job.threads[thread]
    return f"{about.name} {about.tid}" if about.name else f"thread {about.tid}"


def mixed(value: int) -> int:
    """Any number as one of 64 bits that looks random, never 0 (Steele, Lea and Flood's SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return (value ^ value >> 31) or 1


def collective(job: Job, span: Span) -> int | None:
    """The same number on all ranks of one collective, and on no other: from (communicator, function, sequence)."""
    sequence = span.value("sequence")
    if sequence is None or span.context < 0:
        return None
    function = zlib.crc32(span.value("function").encode())
    return mixed(mixed(mixed(job.contexts[span.context].communicator) ^ function) + sequence)


class Links:
    """Numbers for links from a span to its children, which no two spans share: an id is unique in its process alone."""

    def __init__(self, job: Job) -> None:
        self._owners = Owners(job.processes)

    def number(self, id_: int, process: int) -> int:
        owner = self._owners.one(id_ >> 40 & 0xFFFF, process)
        return mixed(id_ ^ mixed(owner if owner >= 0 else process))


def nth(number: int) -> str:
    """16th, 1st."""
    tens = number // 10 % 10
    ending = "th" if tens == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

"""A recording as an OTF2 archive, for Vampir, Scalasca and what else reads it. A host is a node of the system tree, a
process a location group, and a thread a location, on which calls nest in the order in which they were made (spans that
overlap lie on more of them, as regions of a location must nest); a channel of a kernel is a stream of the process's
accelerator. A span is a region; one rank's part in a collective is a collective operation of its communicator as well.

Needs the package `otf2`. Reads the recording twice, as `bars.Plan` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import otf2
import otf2.error
from otf2.enums import (
    CollectiveOp,
    CollectiveRoot,
    GroupType,
    LocationGroupType,
    LocationType,
    Paradigm,
    RegionRole,
    Type,
)

from stretto.errors import StrettoError
from stretto.trace import layout
from stretto.trace.bars import KERNELS, NEVER, Place, Plan
from stretto.trace.job import Job
from stretto.trace.model import EventType
from stretto.trace.naming import communicator_name, process_name, span_name, thread_name
from stretto.trace.spans import Joiner, Span

_CHUNK = 256 << 10  # of each location's events, in memory
_ROLES = {
    "AllReduce": (RegionRole.COLL_ALL2ALL, CollectiveOp.ALLREDUCE),
    "AllGather": (RegionRole.COLL_ALL2ALL, CollectiveOp.ALLGATHER),
    "ReduceScatter": (RegionRole.COLL_ALL2ALL, CollectiveOp.REDUCE_SCATTER),
    "AlltoAll": (RegionRole.COLL_ALL2ALL, CollectiveOp.ALLTOALL),
    "Broadcast": (RegionRole.COLL_ONE2ALL, CollectiveOp.BCAST),
    "Scatter": (RegionRole.COLL_ONE2ALL, CollectiveOp.SCATTER),
    "Reduce": (RegionRole.COLL_ALL2ONE, CollectiveOp.REDUCE),
    "Gather": (RegionRole.COLL_ALL2ONE, CollectiveOp.GATHER),
}
_TYPE_ROLES = {
    EventType.P2P: RegionRole.POINT2POINT,
    EventType.P2P_API: RegionRole.POINT2POINT,
    EventType.PROXY_OP: RegionRole.DATA_TRANSFER,
    EventType.PROXY_STEP: RegionRole.DATA_TRANSFER,
    EventType.NET_PLUGIN: RegionRole.DATA_TRANSFER,
    EventType.KERNEL_CH: RegionRole.KERNEL,
    EventType.KERNEL_PHASE: RegionRole.KERNEL,
}
_COLLECTIVES = (EventType.COLL, EventType.CE_COLL)
_LARGEST = (1 << 64) - 1


class _Ranks(Plan):
    """Where the operations of each rank are, as well."""

    def __init__(self, job: Job, progress: Callable[[int], None]) -> None:
        self.places: dict[int, Place] = {}  # of contexts
        super().__init__(job, progress)

    def _note(self, span: Span) -> None:
        super()._note(span)
        if span.type in _COLLECTIVES and span.context >= 0:
            self.places.setdefault(span.context, self.place(span))


class _Archive:
    """The second reading: writes events as they come. A location's events are in order because the stream is."""

    def __init__(self, job: Job, plan: _Ranks, archive: Any) -> None:
        self._job, self._plan, self._archive = job, plan, archive
        self._registry = archive.definitions
        self._nodes: dict[str, Any] = {}
        self._groups: dict[tuple[int, bool], Any] = {}
        self._writers: dict[tuple[Place, int], Any] = {}
        self._locations: dict[tuple[Place, int], Any] = {}
        self._regions: dict[str, Any] = {}
        self._communicators: dict[int, Any] = {}
        self._places: dict[Any, dict[int, int]] = {}  # of each communicator, where its ranks are among its members
        self._attributes = {
            name: self._registry.attribute(name, type=Type.UINT64) for name in ("id", "parent", "sequence", "count")
        }
        self._never: dict[Place, int] = {}  # the last of those that have no length
        self.regions = 0
        self._define_communicators()

    def _define_communicators(self) -> None:
        ranks = {context: self._location(place, context, 0) for context, place in sorted(self._plan.places.items())}
        if not ranks:
            return
        # Ranks that one thread serves have locations of their own: the plan tells them apart.
        self._registry.group("ranks", GroupType.COMM_LOCATIONS, Paradigm.CUDA, members=list(ranks.values()))
        by_communicator: dict[int, list[int]] = {}
        for context in ranks:
            by_communicator.setdefault(self._job.contexts[context].communicator, []).append(context)
        for communicator, contexts in by_communicator.items():
            contexts.sort(key=lambda one: self._job.contexts[one].rank)
            about = self._job.contexts[contexts[0]]
            name = f"{about.name} 0x{communicator:x}".strip()
            members = [ranks[one] for one in contexts]
            group = self._registry.group(name, GroupType.COMM_GROUP, Paradigm.CUDA, members=members)
            made = self._registry.comm(name, group)
            self._communicators.update(dict.fromkeys(contexts, made))
            # To OTF2 a rank is a place among the members; ranks that left no file have none.
            self._places[made] = {self._job.contexts[one].rank: place for place, one in enumerate(contexts)}

    def _group(self, process: int, accelerator: bool) -> Any:
        key = process, accelerator
        if key not in self._groups:
            host = self._job.processes[process].host
            if host not in self._nodes:
                root = self._nodes.setdefault("", None) or self._registry.system_tree_node("machine")
                self._nodes[""] = root
                self._nodes[host] = self._registry.system_tree_node(host or "host", "node", root)
            name = process_name(self._job, process)
            if accelerator:
                owner = self._group(process, False)
                kind = LocationGroupType.ACCELERATOR
                made = self._registry.location_group(f"GPU of {name}", kind, self._nodes[host], owner)
            else:
                made = self._registry.location_group(name, LocationGroupType.PROCESS, self._nodes[host])
            self._groups[key] = made
        return self._groups[key]

    def _location(self, place: Place, context: int, level: int) -> Any:
        if (place, level) not in self._locations:
            process = self._job.threads[place[0]].process
            name = thread_name(self._job, place[0]) if place[2] < 0 else f"channel {place[2]}"
            if place[1] >= 0:
                name = f"{communicator_name(self._job, context)}: {name}"
            name += " (never stopped)" if level == NEVER else f" ({level + 1})" if level else ""
            kind = LocationType.ACCELERATOR_STREAM if place[2] >= 0 else LocationType.CPU_THREAD
            group = self._group(process, place[2] >= 0)
            self._locations[place, level] = self._registry.location(name, type=kind, group=group)
        return self._locations[place, level]

    def _writer(self, span: Span, level: int) -> Any:
        place = self._plan.place(span)
        if (place, level) not in self._writers:
            location = self._location(place, span.context, level)
            self._writers[place, level] = self._archive.event_writer_from_location(location)
        return self._writers[place, level]

    def _region(self, span: Span) -> Any:
        name = span_name(span)
        if name not in self._regions:
            function = span.value("function") or ""
            role = _TYPE_ROLES.get(EventType(span.type) if span.type in layout.TYPE_NAMES else EventType.UNKNOWN)
            role = role or (_ROLES[function][0] if function in _ROLES else RegionRole.FUNCTION)
            self._regions[name] = self._registry.region(name, region_role=role, paradigm=Paradigm.USER)
        return self._regions[name]

    def _time(self, time: int) -> int:
        return max(0, time + self._job.origin_realtime_ns)

    def start(self, span: Span) -> None:
        level = self._plan.begin(span)
        if span.type in KERNELS:
            return  # their GPU says when they began, but not before they have ended
        self._enter(span, level, span.start)
        if level == NEVER:
            self._writer(span, level).leave(self._time(span.start), self._region(span))
        elif self._communicator(span) is not None:
            self._writer(span, level).mpi_collective_begin(self._time(span.start))

    def _enter(self, span: Span, level: int, time: int) -> None:
        said = {self._attributes["id"]: span.id, self._attributes["parent"]: span.parent}
        for name in ("sequence", "count"):
            value = span.value(name)
            if isinstance(value, int):
                said[self._attributes[name]] = value
        self._writer(span, level).enter(self._time(time), self._region(span), attributes=said)
        self.regions += 1

    def end(self, span: Span) -> None:
        if span.type in KERNELS:
            self._kernel(span)
            return
        level = self._plan.level(span)
        if level == NEVER or span.stop is None:
            return
        writer, time, communicator = self._writer(span, level), self._time(span.stop), self._communicator(span)
        if communicator is not None:
            operation = _ROLES[span.value("function")][1]
            root = self._root(span, operation, communicator)
            size = max(0, span.value("traffic_bytes") or 0)
            writer.mpi_collective_end(time, operation, communicator, root, size, size)
        writer.leave(time, self._region(span))

    def _kernel(self, span: Span) -> None:
        place, start, end, level = self._plan.place(span), span.start, span.start, NEVER
        if span.stop is not None:
            level, start, end, _ = self._plan.kernel(self._job, span)
        if level == NEVER:
            start = end = self._never[place] = max(self._never.get(place, start), start)
        self._enter(span, level, start)
        self._writer(span, level).leave(self._time(end), self._region(span))

    def _root(self, span: Span, operation: Any, communicator: Any) -> int:
        rooted = operation in (CollectiveOp.BCAST, CollectiveOp.REDUCE, CollectiveOp.SCATTER, CollectiveOp.GATHER)
        root = self._places[communicator].get(span.value("root")) if rooted else None
        return int(CollectiveRoot.NONE.value) if root is None else root

    def _communicator(self, span: Span) -> Any:
        if span.type not in _COLLECTIVES or span.value("function") not in _ROLES:
            return None
        return self._communicators.get(span.context)


def write(job: Job, folder: Path, progress: Callable[[int], None]) -> int:
    """Returns the number of regions. The folder is made, and must not be there."""
    plan = _Ranks(job, progress)
    with otf2.writer.open(str(folder), timer_resolution=10**9, chunk_size_events=_CHUNK) as archive:
        archive.creator = "stretto trace"
        made = _Archive(job, plan, archive)
        joiner = Joiner(job, made.start)
        try:
            for count, span in enumerate(joiner.spans()):
                made.end(span)
                if count % 1000 == 0:
                    progress(joiner.events)
        except otf2.error.Error as error:
            raise StrettoError(f"{folder}: the OTF2 library: {error}") from error
    progress(joiner.events)
    return made.regions

"""A recording in memory: one row a span (an event's start joined with its stop), one row a state, in NumPy columns.

Times are int64 nanoseconds on the clock of the recording's first process (`Process.offset_ns` says how each came
there), counted from `Recording.origin_realtime_ns`. Text columns hold indices into `Recording.strings`; 0 is the empty
string. A number that was not recorded is -1 (ABI versions differ in what they say). Plain data: share it freely, change
it nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt


class EventType(IntEnum):
    """Bit numbers of NCCL's event types (profiler ABI v7)."""

    GROUP = 0
    COLL = 1
    P2P = 2
    PROXY_OP = 3
    PROXY_STEP = 4
    PROXY_CTRL = 5
    KERNEL_CH = 6
    NET_PLUGIN = 7
    GROUP_API = 8
    COLL_API = 9
    P2P_API = 10
    KERNEL_LAUNCH = 11
    CE_COLL = 12
    CE_SYNC = 13
    CE_BATCH = 14
    KERNEL_PHASE = 15
    UNKNOWN = 255


@dataclass
class Process:
    """One file of the recording."""

    host: str
    pid: int
    tag: int
    program: str
    boot: bytes
    abi: int
    nccl_version: int
    mask: int
    flight: bool
    closed: bool
    error: str
    path: str
    offset_ns: int = 0  # added to this process's own clock to come to the recording's
    drift_ppm: float = 0.0
    error_ns: int = 0  # half-width of the offset's error bar; -1: nothing links this clock to the first one
    dropped: int = 0
    unmatched: int = 0
    self_ns: float = 0.0  # mean time spent inside one callback, as the plugin sampled it; 0 unknown
    stretto: str = ""  # its version, if that is the library


@dataclass
class Thread:
    """A thread of one process."""

    process: int
    tid: int
    name: str


@dataclass
class Context:
    """One rank's membership of one communicator: what `init` said."""

    process: int
    communicator: int  # equal on all ranks
    name: str
    rank: int
    ranks: int
    nodes: int
    init_ns: int
    finalize_ns: int  # -1 while open
    every: int = 1  # of each function's operations those are recorded whose number is a multiple of it


# Columns of `Recording.spans` and their types. `sequence` counts per (communicator, function).
SPAN_COLUMNS: dict[str, type[np.generic]] = {
    "type": np.uint8,
    "process": np.int32,
    "thread": np.int32,
    "context": np.int32,  # -1 none
    "rank": np.int32,  # as the context says it; the descriptor's own where there is no context
    "id": np.uint64,
    "parent": np.uint64,
    "start": np.int64,
    "stop": np.int64,  # -1: never stopped
    "sequence": np.int64,
    "count": np.int64,
    "function": np.uint32,  # strings
    "data_type": np.uint32,
    "algorithm": np.uint32,
    "protocol": np.uint32,
    "peer": np.int32,  # or the root
    "channel": np.int32,  # of KernelCh, KernelPhase, ProxyOp; how many channels in Coll and P2p
    "gpu_start": np.int64,  # raw %globaltimer; -1 none
    "gpu_stop": np.int64,
    "stream": np.uint64,
    # Steps of ProxyOp, step of ProxyStep, depth of GroupApi, plugin of NetPlugin, phase of KernelPhase, ceSequence of
    # CeColl, ranks of CeSync, operations of CeBatch.
    "detail": np.int64,
    # What else a descriptor says, for those who show all of it. `function` also holds Send or Receive of ProxyOp and
    # the name of a KernelPhase, `count` the chunk bytes of ProxyOp and the bytes of CeBatch, `protocol` the
    # synchronisation strategy of CeColl.
    "group": np.uint64,  # id of the legacy Group
    "user_tag": np.uint64,
    "send_buffer": np.uint64,  # or the only one
    "receive_buffer": np.uint64,
    "traffic_bytes": np.int64,
    "op": np.uint32,  # strings
    "kernel_variant": np.uint32,  # strings
    "warps": np.int32,
    "flag": np.int32,  # isSymmetric, graphCaptured, isSend, intraBatchSync, isComplete, useIntraSync: by type
    "owner_pid": np.int32,  # of ProxyOp: the process whose operation it is
}

STATE_COLUMNS: dict[str, type[np.generic]] = {
    "span": np.int64,  # row of the span; -1 when its start is not there
    "time": np.int64,
    "state": np.int32,
    "count": np.int32,
    "argument": np.int64,
    "argument2": np.int64,
}

Columns = dict[str, npt.NDArray[np.generic]]


@dataclass
class Quality:
    """What was lost or looks wrong; counts over the whole recording, `notes` in words."""

    dropped: int = 0
    overwritten: int = 0  # segments, in flight mode
    unmatched_starts: int = 0
    unmatched_stops: int = 0
    duplicate_stops: int = 0
    damaged_segments: int = 0
    unreadable: int = 0  # files
    suspect_stamps: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class Recording:
    """All processes of one job."""

    processes: list[Process]
    threads: list[Thread]
    contexts: list[Context]
    strings: list[str]
    spans: Columns  # every column of SPAN_COLUMNS, equal lengths, sorted by start
    states: Columns  # every column of STATE_COLUMNS, sorted by time
    origin_realtime_ns: int
    quality: Quality = field(default_factory=Quality)

    def hosts(self) -> int:
        """How many there are. Containers of several hosts may have one name: boots tell them apart."""
        return len({(process.host, process.boot) for process in self.processes})

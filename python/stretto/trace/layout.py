"""The bytes of a recording, as docs/recording.md says them: NumPy types for headers and records, and names for numbers.
Used by the reader alone.
"""

from __future__ import annotations

import numpy as np

from stretto.trace.model import EventType

MAGIC = b"STRETREC"
VERSION = 1
HEADER_BYTES = 4096
SEGMENT_HEADER_BYTES = 64
SEGMENT_MAGIC = 0x47455353
SMALLEST_SEGMENT, LARGEST_SEGMENT = 4096, 16 << 20
NONE = 0xFFFFFFFF
NONE64 = (1 << 64) - 1

DEFINITIONS, EVENTS = 1, 2  # kinds of segments
START, STOP, STATE, INIT, FINALIZE, CHANGE = 1, 2, 3, 4, 5, 6  # kinds of records in segments of events
STRING, CONTEXT, THREAD, ANCHOR, FORK, FOREIGN, SAMPLE = 32, 33, 34, 35, 36, 37, 38  # and of definitions
CLOCK_COUNTER, CLOCK_MONOTONIC = 1, 2

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("segment_bytes", "<u4"),
        ("mode", "<u4"),
        ("segments", "<u8"),
        ("dropped", "<u8"),
        ("process_start", "<u8"),
        ("pid", "<u4"),
        ("tag", "<u2"),
        ("clock", "u1"),
        ("state", "u1"),
        ("boot", "V16"),
        ("mask", "<u8"),
        ("abi", "<u4"),
        ("nccl_version", "<u4"),
        ("unmatched", "<u8"),
        ("self_ticks", "<u8"),
        ("self_samples", "<u8"),
        ("host", "S64"),
        ("program", "S256"),
        ("error", "S64"),
        ("window", "<u8", (3,)),
        ("stretto", "S24"),
    ]
)

SEGMENT = np.dtype(
    [
        ("magic", "<u4"),
        ("kind", "<u4"),
        ("committed", "<u8"),
        ("sequence", "<u8"),
        ("first_ticks", "<u8"),
        ("dropped", "<u8"),
        ("thread", "<u4"),
        ("generation", "<u4"),
        ("zero", "<u8", (2,)),
    ]
)

_COMMON = [("id", "<u8"), ("parent", "<u8"), ("rank", "<i4"), ("threads", "<u4")]

# What follows the common fields of a start. The names are those of the JSON lines.
_STARTS: dict[EventType, list[tuple[str, str]]] = {
    EventType.GROUP: [],
    EventType.COLL: [
        ("sequence", "<u8"),
        ("count", "<u8"),
        ("send_buffer", "<u8"),
        ("receive_buffer", "<u8"),
        ("parent_group", "<u8"),
        ("user_tag", "<u8"),
        ("traffic_bytes", "<u8"),
        ("function", "<u4"),
        ("data_type", "<u4"),
        ("algorithm", "<u4"),
        ("protocol", "<u4"),
        ("kernel_variant", "<u4"),
        ("root", "<i4"),
        ("channels", "<u2"),
        ("warps", "u1"),
        ("is_symmetric", "u1"),
        ("op", "<u4"),
        ("is_collnet", "<u4"),
        ("is_nvls", "<u4"),
    ],
    EventType.P2P: [
        ("count", "<u8"),
        ("buffer", "<u8"),
        ("parent_group", "<u8"),
        ("user_tag", "<u8"),
        ("function", "<u4"),
        ("data_type", "<u4"),
        ("peer", "<i4"),
        ("channels", "<u4"),
    ],
    EventType.PROXY_OP: [
        ("owner_pid", "<i4"),
        ("channel", "<u4"),
        ("peer", "<i4"),
        ("steps", "<i4"),
        ("chunk_bytes", "<i4"),
        ("is_send", "<u4"),
    ],
    EventType.PROXY_STEP: [("step", "<i4")],
    EventType.PROXY_CTRL: [],
    EventType.KERNEL_CH: [("channel", "<u4"), ("_0", "<u4"), ("gpu_ns", "<u8")],
    EventType.NET_PLUGIN: [("plugin", "<i8"), ("data", "V40")],
    EventType.GROUP_API: [("depth", "<i4"), ("graph_captured", "<u4")],
    EventType.COLL_API: [
        ("count", "<u8"),
        ("stream", "<u8"),
        ("user_tag", "<u8"),
        ("function", "<u4"),
        ("data_type", "<u4"),
        ("root", "<i4"),
        ("graph_captured", "<u4"),
    ],
    EventType.P2P_API: [
        ("count", "<u8"),
        ("stream", "<u8"),
        ("user_tag", "<u8"),
        ("function", "<u4"),
        ("data_type", "<u4"),
        ("graph_captured", "<u4"),
    ],
    EventType.KERNEL_LAUNCH: [("stream", "<u8")],
    EventType.CE_COLL: [
        ("sequence", "<u8"),
        ("count", "<u8"),
        ("send_buffer", "<u8"),
        ("receive_buffer", "<u8"),
        ("stream", "<u8"),
        ("user_tag", "<u8"),
        ("ce_sequence", "<u8"),
        ("function", "<u4"),
        ("data_type", "<u4"),
        ("root", "<i4"),
        ("sync_strategy", "<u4"),
        ("intra_batch_sync", "<u4"),
        ("batch_size", "<u4"),
        ("batches", "<u4"),
    ],
    EventType.CE_SYNC: [("is_complete", "<u4"), ("ranks", "<i4")],
    EventType.CE_BATCH: [("operations", "<u8"), ("bytes", "<u8"), ("use_intra_sync", "<u8")],
    EventType.KERNEL_PHASE: [
        ("channel", "<u4"),
        ("phase", "<u4"),
        ("phase_name", "<u4"),
        ("_0", "<u4"),
        ("gpu_ns", "<u8"),
    ],
    EventType.UNKNOWN: [("nccl_type", "<u8")],
}

# Fields that are numbers of string definitions.
TEXT = frozenset(
    ("function", "data_type", "algorithm", "protocol", "kernel_variant", "op", "sync_strategy", "phase_name")
)


def _whole_words(fields: list[tuple[str, str]]) -> np.dtype[np.void]:
    plain = np.dtype(fields)
    return np.dtype([*fields, ("_pad", f"V{-plain.itemsize % 8}")]) if plain.itemsize % 8 else plain


STARTS: dict[int, np.dtype[np.void]] = {int(kind): _whole_words([*_COMMON, *rest]) for kind, rest in _STARTS.items()}
STOP_FIELDS = np.dtype([("id", "<u8")])
STATE_FIELDS = np.dtype([("id", "<u8"), ("state", "<u4"), ("count", "<u4"), ("argument", "<u8"), ("argument2", "<u8")])

TYPE_NAMES: dict[int, str] = {
    0: "Group",
    1: "Coll",
    2: "P2p",
    3: "ProxyOp",
    4: "ProxyStep",
    5: "ProxyCtrl",
    6: "KernelCh",
    7: "NetPlugin",
    8: "GroupApi",
    9: "CollApi",
    10: "P2pApi",
    11: "KernelLaunch",
    12: "CeColl",
    13: "CeSync",
    14: "CeBatch",
    15: "KernelPhase",
    255: "Unknown",
}

# NCCL's enumeration of states; those of the first ABI versions (0 to 7) were given up later, their numbers were not.
STATE_NAMES: dict[int, str] = {
    0: "ProxyOpSendPosted",
    1: "ProxyOpSendRemFifoWait",
    2: "ProxyOpSendTransmitted",
    3: "ProxyOpSendDone",
    4: "ProxyOpRecvPosted",
    5: "ProxyOpRecvReceived",
    6: "ProxyOpRecvTransmitted",
    7: "ProxyOpRecvDone",
    8: "ProxyStepSendGPUWait",
    9: "ProxyStepSendWait",
    10: "ProxyStepRecvWait",
    11: "ProxyStepRecvFlushWait",
    12: "ProxyStepRecvGPUWait",
    13: "ProxyCtrlIdle",
    14: "ProxyCtrlActive",
    15: "ProxyCtrlSleep",
    16: "ProxyCtrlWakeup",
    17: "ProxyCtrlAppend",
    18: "ProxyCtrlAppendEnd",
    19: "ProxyOpInProgress",
    20: "ProxyStepSendPeerWait",
    21: "NetPluginUpdate",
    22: "KernelChStop",
    23: "GroupStartApiStop",
    24: "GroupEndApiStart",
    25: "CeCollStart",
    26: "CeCollComplete",
    27: "CeSyncStart",
    28: "CeSyncComplete",
    29: "CeBatchStart",
    30: "CeBatchComplete",
    31: "KernelPhaseStop",
    1000: "Replayed",  # no state of NCCL's
}


def type_name(number: int) -> str:
    return TYPE_NAMES.get(number, f"Type{number}")


def state_name(number: int) -> str:
    return STATE_NAMES.get(number, f"State{number}")

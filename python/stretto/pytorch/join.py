"""How the ranks of a group meet: by PyTorch's store, which every group comes with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from stretto import _native
from stretto.communicator import Communicator


def join(store: Any, rank: int, size: int, timeout: timedelta, name: str) -> Communicator:
    """The group's communicator of host ranks. Returns when all ranks have joined.

    Raises `DistBackendError`, with the ranks that are missing, if they do not come within `timeout`.
    """
    if size == 1:
        return Communicator(_native.join(1, _native.make_unique_id(), 0, name, host=True))
    if rank == 0:
        store.set("stretto/id", _native.make_unique_id())
    store.set(_mark(rank), b"")
    marks = [_mark(other) for other in range(size)]
    try:
        # Before joining, which has a deadline of its own that PyTorch does not know of.
        store.wait(marks, timeout)
    except RuntimeError as error:
        missing = [str(other) for other in range(size) if not store.check([_mark(other)])]
        if not missing:
            raise
        raise dist.DistBackendError(
            f"stretto: rank {rank} of {size} waited {timeout.total_seconds():g} s to make group {name!r}, and did not "
            f"see rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        ) from error
    return Communicator(_native.join(size, bytes(store.get("stretto/id")), rank, name, host=True))


def _mark(rank: int) -> str:
    return f"stretto/rank{rank}"

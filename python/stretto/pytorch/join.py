"""How the ranks of a group meet: by PyTorch's store, which every group comes with.

A store may outlive many groups, some of the same name: nothing that one has left there may be taken for the next one's.
So what the ranks meet by is deleted when all have joined, and everything after that has a part of the store whose name
no other group has.
"""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from stretto import _native
from stretto.communicator import Communicator
from stretto.patience import Patience
from stretto.pytorch.tensors import expect_device, memory, stream_of
from stretto.values import op_code

_FIRST_NAP, _LONGEST_NAP, _SLICE = 0.0002, 0.02, 0.2  # seconds


def join(
    store: Any, rank: int, size: int, timeout: timedelta, name: str, device: torch.device | None = None
) -> tuple[Communicator, Any]:
    """The group's communicator, of ranks on GPUs (`device`: this rank's) or of host ranks, and its own part of the
    store. Returns when all ranks have joined.

    Raises `DistBackendError`, with the ranks that are missing, if they do not come within `timeout`.
    """
    if size == 1:
        unique_id = _native.make_unique_id()
        return _member(1, unique_id, 0, name, device), _own_part(store, unique_id)
    if rank == 0:
        store.set("stretto/id", _native.make_unique_id())
    try:
        # Before joining, which has a deadline of its own that PyTorch does not know of.
        meet(store, "stretto", rank, size, timeout, f"make group {name!r}")
        unique_id = bytes(store.get("stretto/id"))
        communicator = _member(size, unique_id, rank, name, device)
    finally:
        store.delete_key(f"stretto/{rank}")
        if rank == 0:
            store.delete_key("stretto/id")
    # Nobody meets for the next group of this name before all have deleted theirs.
    _barrier(communicator, device, timeout)
    return communicator, _own_part(store, unique_id)


def _member(size: int, unique_id: bytes, rank: int, name: str, device: torch.device | None) -> Communicator:
    if device is None:
        return Communicator(_native.join(size, unique_id, rank, name, host=True))
    with torch.cuda.device(device):
        communicator = Communicator(_native.join(size, unique_id, rank, name))
    expect_device(communicator, device)
    return communicator


def _barrier(communicator: Communicator, device: torch.device | None, timeout: timedelta) -> None:
    """On GPUs: raises `DistBackendError`, and ends the communicator, if it fails or is not over within `timeout`."""
    if device is None:
        return communicator.barrier()
    arrived = memory(torch.zeros(1, device=device))
    communicator._native.all_reduce(arrived, arrived, op_code("sum"), -1, stream_of(device))
    await_end(communicator, device, timeout)


def await_end(communicator: Communicator, device: torch.device, timeout: timedelta) -> None:
    """Returns when the device's current stream has done what was submitted, the group's first operations.

    Raises `DistBackendError`, and ends the communicator, if one fails or it is not done within `timeout`.
    """
    over = torch.cuda.Event()
    over.record(torch.cuda.current_stream(device))
    until = time.monotonic() + timeout.total_seconds()
    nap = _FIRST_NAP
    while not over.query():
        if time.monotonic() > until:
            break
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
    if not over.query() or communicator._native.async_error() != 0:
        communicator.abort()
        raise dist.DistBackendError(
            f"stretto: rank {communicator.rank} of {communicator.size}: the first operation of the group's GPUs "
            "failed, or not all ranks came to it; the log says who"
        )


def _own_part(store: Any, unique_id: bytes) -> Any:
    """A digest, as the id itself is a secret of the ranks'."""
    return dist.PrefixStore(f"stretto/{hashlib.sha256(unique_id).hexdigest()[:32]}/", store)


def meet(store: Any, key: str, rank: int, size: int, timeout: timedelta, purpose: str) -> None:
    """Returns when all ranks have called it with this key, which is used once.

    Raises `DistBackendError`, with the ranks that are missing, if they do not come within `timeout`.
    """
    store.set(f"{key}/{rank}", b"")
    seconds = timeout.total_seconds()
    until = time.monotonic() + seconds
    keys = [f"{key}/{other}" for other in range(size)]
    patience = Patience()
    while not await_keys(store, keys, min(until, time.monotonic() + _SLICE)):
        if patience.is_over():
            patience.tell(f"stretto: rank {rank} of {size}", f"to {purpose} it does not see {_missing(store, keys)}")
        if time.monotonic() > until and (missing := _missing(store, keys)):
            raise dist.DistBackendError(
                f"stretto: rank {rank} of {size} waited {seconds:g} s to {purpose}, and did not see {missing}"
            )


def _missing(store: Any, keys: list[str]) -> str:
    ranks = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""


def await_keys(store: Any, keys: list[str], until: float) -> bool:
    """Whether all were set by then. Never holds on to the store: other threads may need it to get as far."""
    nap = _FIRST_NAP
    while not store.check(keys):
        if time.monotonic() > until:
            return False
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
    return True

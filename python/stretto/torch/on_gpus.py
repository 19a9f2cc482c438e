"""Communicators for CUDA tensors: one for each group of `torch.distributed`, of whatever backend. `stretto.torch` and
`stretto.engines` use it.

A communicator is made at the group's first operator on CUDA tensors, by all of its ranks together, on the GPU that the
tensors are on. It goes with the group, or when it is forgotten.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from stretto.communicator import Communicator
from stretto.errors import StrettoError
from stretto.patience import seconds_of
from stretto.pytorch.join import await_end, join

_MADE: weakref.WeakKeyDictionary[Any, Communicator | Exception] = weakref.WeakKeyDictionary()


def communicator_of(group: Any, device: torch.device) -> Communicator:
    """The group's communicator of ranks on GPUs.

    Raises `RuntimeError` where the first call would be part of a CUDA graph, `DistBackendError` with the ranks that are
    missing if they do not come within STRETTO_INIT_TIMEOUT seconds. What kept one from being made is raised again by
    each later operator of the group: its ranks no longer agree on how often they have tried.
    """
    made = _MADE.get(group)
    if made is None:
        with torch.cuda.device(device):
            _expect_no_capture()
            made = _tried(group, device)
        _MADE[group] = made
    if isinstance(made, Exception):
        raise made
    return made


def expect_ready(device: torch.device) -> None:
    """Raises what keeps this rank from `communicator_of`, as far as it shows without the others."""
    if device.type != "cuda":
        raise ValueError(f"stretto: the group's tensors are on {device}, and not on a GPU")
    with torch.cuda.device(device):
        _expect_no_capture()


def try_out(communicator: Communicator, device: torch.device, call: Callable[[], None]) -> None:
    """Calls it and waits for the end of the operations that it submits to the device's current stream.

    Raises what the call does; `DistBackendError`, and ends the communicator, if an operation fails or is not over
    within STRETTO_INIT_TIMEOUT seconds.
    """
    with torch.cuda.device(device):
        call()
        await_end(communicator, device, _timeout())


def forget(group: Any, failed: bool = False) -> None:
    """Frees the group's communicator, if there is one; the group's next operator makes another. `failed`: other ranks
    may have none, and are not waited for.
    """
    made = _MADE.pop(group, None)
    if isinstance(made, Communicator) and not made.closed:
        if failed:
            made.abort()
        else:
            made.close()


def _timeout() -> timedelta:
    return timedelta(seconds=seconds_of("STRETTO_INIT_TIMEOUT"))


def _expect_no_capture() -> None:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "stretto: the first operator of a group on CUDA tensors makes the group's communicator, which no CUDA "
            "graph can hold: call an operator once before the capture"
        )


def _tried(group: Any, device: torch.device) -> Communicator | Exception:
    store = dist.PrefixStore("stretto.torch/", c10d._get_process_group_store(group))
    name = str(getattr(group, "group_name", ""))
    try:
        return join(store, dist.get_rank(group), dist.get_world_size(group), _timeout(), name, device)[0]
    except (StrettoError, dist.DistBackendError, ValueError) as error:
        return error

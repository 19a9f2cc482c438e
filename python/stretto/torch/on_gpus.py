"""Communicators for CUDA tensors: one for each group of `torch.distributed`, of whatever backend. `stretto.torch` alone
uses it.

A communicator is made at the group's first operator on CUDA tensors, by all of its ranks together, on the GPU that the
tensors are on. It goes with the group.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from stretto.communicator import Communicator
from stretto.errors import StrettoError
from stretto.patience import seconds_of
from stretto.pytorch.join import join

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


def _expect_no_capture() -> None:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "stretto: the first operator of a group on CUDA tensors makes the group's communicator, which no CUDA "
            "graph can hold: call an operator once before the capture"
        )


def _tried(group: Any, device: torch.device) -> Communicator | Exception:
    store = dist.PrefixStore("stretto.torch/", c10d._get_process_group_store(group))
    timeout = timedelta(seconds=seconds_of("STRETTO_INIT_TIMEOUT"))
    name = str(getattr(group, "group_name", ""))
    try:
        return join(store, dist.get_rank(group), dist.get_world_size(group), timeout, name, device)[0]
    except (StrettoError, dist.DistBackendError, ValueError) as error:
        return error

"""All-reduce + residual add + RMSNorm of an engine's group, as one operator of `stretto.torch`.

The operators need a communicator of their own for each group. `open_group` makes it and gives it a name that is the
same in every run of the engine, so that compiled code may hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stretto_engines import say

_TYPES = ("torch.float32", "torch.float16", "torch.bfloat16")
_TRIED_HIDDEN = 64
_OPEN: set[str] = set()


def name_of(engine: str, group: str) -> str:
    """What the operators call an engine's group."""
    return f"{engine} {group}"


def is_open(name: str) -> bool:
    return name in _OPEN


def any_open() -> bool:
    return bool(_OPEN)


def open_group(
    engine: str,
    group: str,
    device_group: Any,
    cpu_group: Any,
    device: Any,
    reason: Callable[[], str] = lambda: "",
) -> bool:
    """Whether all ranks of the group have the operators now, one fused call of which was run to its end. All of them
    must call it, also a rank that cannot have them, and before any CUDA graph is captured.

    `device_group` and `cpu_group` are the engine's two groups of torch.distributed, the second one for CPU tensors.
    `reason`: why this rank cannot have them; nothing where it can. What it raises is a reason too. Raises what
    torch.distributed does where a rank does not come to the vote.
    """
    name = name_of(engine, group)
    if name in _OPEN:
        return True
    # A rank that went on alone would wait for ever: all have it, or none. The first vote is for what fails at once, as
    # a rank that does not join keeps its peers waiting for STRETTO_INIT_TIMEOUT seconds.
    if not vote(engine, group, cpu_group, first_of(reason, lambda: _not_ready(device))):
        return False
    opened = False
    try:
        opened = vote(engine, group, cpu_group, first_of(lambda: _tried(device_group, device, name)))
    finally:
        if not opened:
            _let_go(engine, name, device_group, failed=True)
    if opened:
        _OPEN.add(name)
    return opened


def vote(engine: str, group: str, cpu_group: Any, reason: str) -> bool:
    """Whether no rank of the group has a reason against the fused call. All of them must call it. The first rank that
    has one says it.
    """
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(cpu_group), dist.get_world_size(cpu_group)
    first = torch.tensor([rank if reason else size], device="cpu")
    dist.all_reduce(first, op=dist.ReduceOp.MIN, group=cpu_group)
    if int(first) == rank:
        say(engine, f"no all-reduce and RMSNorm in one call ({group}): {reason}")
    return bool(int(first) == size)


def first_of(*reasons: Callable[[], str]) -> str:
    """The first reason that there is; an exception is one. A rank that raised would leave its peers waiting."""
    try:
        return next((found for reason in reasons if (found := reason())), "")
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _not_ready(device: Any) -> str:
    from stretto.torch import on_gpus

    on_gpus.expect_ready(device)
    return ""


def _tried(device_group: Any, device: Any, name: str) -> str:
    """Makes the communicator and runs one small call, as the library may refuse a call on a communicator that it has
    made. The call also loads what a CUDA graph could not.
    """
    import torch

    from stretto.torch import all_reduce_add_rms_norm, on_gpus, use

    communicator = on_gpus.communicator_of(device_group, device)
    use(communicator, name)

    def call() -> None:
        part = torch.zeros(1, _TRIED_HIDDEN, dtype=torch.bfloat16, device=device)
        weight = torch.ones(_TRIED_HIDDEN, dtype=torch.bfloat16, device=device)
        all_reduce_add_rms_norm(part, part, weight, group=name)

    on_gpus.try_out(communicator, device, call)
    return ""


def _let_go(engine: str, name: str, device_group: Any, failed: bool) -> None:
    try:
        from stretto.torch import on_gpus, use

        use(None, name)
        on_gpus.forget(device_group, failed)
    except Exception as error:  # The engine goes on, or ends, without it.
        say(engine, f"{name} was not closed ({type(error).__name__}: {' '.join(str(error).split())})")


def close_group(engine: str, group: str, device_group: Any) -> None:
    """Closes the group's communicator. All ranks of the group call it. A group that is not open: nothing."""
    name = name_of(engine, group)
    if name in _OPEN:
        _OPEN.discard(name)
        _let_go(engine, name, device_group, failed=False)


def refuse(input: Any, residual: Any, weight: Any) -> str:
    """Why a call is not served; nothing where it is. Looks at shapes and types alone, which all ranks share, so that
    all ranks decide alike. `residual` and `weight` may be None.
    """
    if str(input.dtype) not in _TYPES:
        return f"a fused all-reduce and RMSNorm of {input.dtype} is not served"
    if weight is not None and weight.dtype != input.dtype:
        return f"a fused all-reduce and RMSNorm of {input.dtype} with a weight of {weight.dtype} is not served"
    if residual is not None and residual.dtype != input.dtype:
        return f"a fused all-reduce and RMSNorm of {input.dtype} with a residual of {residual.dtype} is not served"
    if weight is not None and tuple(weight.shape) != tuple(input.shape[-1:]):
        return "a fused all-reduce and RMSNorm over a part of each token is not served"
    if residual is not None and tuple(residual.shape) != tuple(input.shape):
        return "a fused all-reduce and RMSNorm with a residual of another shape is not served"
    return ""

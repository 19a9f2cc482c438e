"""All-reduce + residual add + RMSNorm of an engine's group, as one operator of `stretto.torch`.

The operators need a communicator of their own for each group. `open_group` makes it and gives it a name that is the
same in every run of the engine, so that compiled code may hold it.
"""

from __future__ import annotations

from typing import Any

from stretto_engines import say

_TYPES = ("torch.float32", "torch.float16", "torch.bfloat16")
_OPEN: set[str] = set()


def name_of(engine: str, group: str) -> str:
    """What the operators call an engine's group."""
    return f"{engine} {group}"


def is_open(name: str) -> bool:
    return name in _OPEN


def any_open() -> bool:
    return bool(_OPEN)


def open_group(engine: str, group: str, device_group: Any, cpu_group: Any, device: Any) -> bool:
    """Whether all ranks of the group have the operators now. All of them call it, before any CUDA graph is captured.

    `device_group` and `cpu_group` are the engine's two groups of torch.distributed, the second one for CPU tensors.
    """
    import torch
    import torch.distributed as dist

    name = name_of(engine, group)
    if name in _OPEN:
        return True
    communicator, problem = _tried(device_group, device)
    # A rank that went on alone would wait for ever: all have it, or none.
    everywhere = torch.tensor([int(communicator is not None)], device="cpu")
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN, group=cpu_group)
    if not int(everywhere):
        say(engine, f"no communicator for the fused all-reduce and RMSNorm ({problem}): {engine} keeps its own")
        return False
    from stretto.torch import use

    use(communicator, name)
    _OPEN.add(name)
    return True


def _tried(device_group: Any, device: Any) -> tuple[Any, str]:
    """The communicator, or none and why."""
    try:
        from stretto.torch.on_gpus import communicator_of

        return communicator_of(device_group, device), "another rank of the group could not make its own"
    except Exception as error:  # A rank that raised would leave its peers waiting for its vote.
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"


def close_group(engine: str, group: str) -> None:
    """Forgets the communicator. A group that is not open: nothing."""
    name = name_of(engine, group)
    if name in _OPEN:
        from stretto.torch import use

        use(None, name)
        _OPEN.discard(name)


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

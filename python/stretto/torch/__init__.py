"""PyTorch operators: what a model calls between its layers, as operators that `torch.compile` keeps in its graphs:
in their order, and where their results have no use as well.

    import torch, torch.distributed as dist, stretto.torch
    dist.init_process_group("stretto")
    hidden, residual = stretto.torch.all_reduce_add_rms_norm(partial, residual, weight, epsilon=1e-6)

Each operator takes the name of its group: that of a `torch.distributed` group (the default one if it is left out), or
one that `use` has given to a `stretto.Communicator`. CPU tensors want a group of the backend "stretto". CUDA tensors
take one of any backend, say "nccl": the group's first operator makes a communicator of this library beside it, with all
ranks of the group and before any capture. They run on the current stream, and in CUDA graphs. The operators have no
gradients. All ranks call the same operators in the same order.
"""

from __future__ import annotations

import torch

from stretto.communicator import Communicator
from stretto.torch import operators as _operators

__all__ = ["all_reduce", "all_reduce_add_rms_norm", "all_reduce_add_rms_norm_fp8", "use"]


def use(communicator: Communicator | None, name: str) -> None:
    """Makes `communicator` the group `name` of the operators; None forgets the name.

    A compiled graph holds the name and not the communicator, so that a new one may take its place.
    """
    if not name:
        raise ValueError("stretto.torch.use: the empty name is that of torch.distributed's default group")
    if communicator is None:
        _operators.COMMUNICATORS.pop(name, None)
    else:
        _operators.COMMUNICATORS[name] = communicator


def all_reduce(input: torch.Tensor, op: str = "sum", *, group: str = "") -> torch.Tensor:
    """A new tensor: all ranks' `input`, reduced by "sum", "prod", "max", "min" or "avg"."""
    reduced: torch.Tensor = torch.ops.stretto.all_reduce(input, op, group)
    return reduced


def all_reduce_add_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    *,
    epsilon: float = 1e-6,
    bias: torch.Tensor | None = None,
    group: str = "",
) -> tuple[torch.Tensor, torch.Tensor]:
    """All ranks' `input` summed, plus `residual` and `bias`; and that normalised by the root mean square of its last
    axis, times `weight`. Returns the normalised tensor and the sum that it is made of, which is the next residual.

    `input` and `residual`: (..., hidden), float32, float16 or bfloat16; `weight` and `bias`: (hidden,). Bits do not
    depend on the number of tokens.
    """
    normalised, added = torch.ops.stretto.all_reduce_add_rms_norm(
        input, residual, weight, bias, epsilon=epsilon, group=group
    )
    return normalised, added


def all_reduce_add_rms_norm_fp8(
    input: torch.Tensor,
    residual: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    *,
    epsilon: float = 1e-6,
    scale: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float8_e4m3fn,
    bias: torch.Tensor | None = None,
    group: str = "",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same with the normalised tensor in 8 bits: divided by `scale` (one float32), or, without one, each token by a
    scale of its own. Returns the 8-bit tensor, the scales ((..., 1), or `scale`), and the next residual.

    `dtype`: float8_e4m3fn or float8_e5m2.
    """
    quantised, scales, added = torch.ops.stretto.all_reduce_add_rms_norm_fp8(
        input, residual, weight, bias, scale, epsilon=epsilon, dtype=dtype, group=group
    )
    return quantised, scales if scale is None else scale, added

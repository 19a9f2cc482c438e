"""Which tensors of an engine are served by this library."""

from __future__ import annotations

from typing import Any

# torch's names of what the engines' bindings of ncclAllReduce take.
_TYPES = {"torch.float16", "torch.bfloat16", "torch.float32", "torch.float64", "torch.int32", "torch.int64"}


def refuse(tensor: Any) -> str:
    """Why a tensor is not served; nothing where it is."""
    if not tensor.is_cuda:
        return "an all-reduce of CPU tensors is not served"
    if str(tensor.dtype) not in _TYPES:
        return f"an all-reduce of {tensor.dtype} is not served"
    return "" if tensor.is_contiguous() else "an all-reduce of tensors that are not contiguous is not served"

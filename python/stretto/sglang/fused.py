"""SGLang's all-reduce + residual add + RMSNorm, in one call of this library.

On NVIDIA's GPUs SGLang's norms call `flashinfer_allreduce_residual_rmsnorm` where FlashInfer's fusion is on; the
method `fused_allreduce_rmsnorm` of a custom all-reduce is asked on AMD's alone. SGLang makes FlashInfer's workspaces in
`pre_initialize_workspaces`, before it captures CUDA graphs: there the groups get their communicator, and from then on
FlashInfer has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stretto_engines import say

from stretto.engines import fused, switch
from stretto.engines.contract import SGLANG_FUSED

_ENGINE = "SGLang"
_MODULE = "sglang.srt.layers.flashinfer_comm_fusion"
# Of a group: the operators' name for it.
_NAME = "_stretto_fused"


def register(registry: Any, hook_type: Any) -> None:
    """Registers the hooks, also where SGLang has its fusion otherwise than expected: all ranks come to the vote."""
    registry.register(f"{_MODULE}.pre_initialize_workspaces", around_workspaces, hook_type.AROUND)
    registry.register(f"{_MODULE}.flashinfer_allreduce_residual_rmsnorm", around_fused, hook_type.AROUND)


def _group(attention: bool) -> Any:
    from sglang.srt.layers.flashinfer_comm_fusion import resolve_fusion_group

    return resolve_fusion_group(use_attn_tp_group=attention)[2]


def _groups() -> list[Any]:
    """Those that the norms sum over, of more than one rank: that of the experts and that of attention, or one."""
    found = {id(group): group for group in (_group(attention) for attention in (False, True))}
    return [group for group in found.values() if group.world_size > 1]


def around_workspaces(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """All ranks come here, once for each model, where FlashInfer's fusion is on and before any graph is captured."""
    if not _take():
        original(*args, **kwargs)


def _take() -> bool:
    """Whether the norms of all ranks of tensor parallelism are ours now. SGLang's own workspaces are made by all of
    them together, though a group of attention or of experts may be a part of them: all take it, or none.
    """
    from sglang.srt.runtime_context import get_parallel

    whole = get_parallel().tp_group
    if not fused.vote(_ENGINE, whole.unique_name, whole.cpu_group, fused.first_of(_why_not)):
        return False
    groups = [group for group in _groups() if getattr(group, _NAME, None) is None]
    opened = [group for group in groups if _open(group)]
    reason = "" if opened == groups else "a group of it has none"
    if not fused.vote(_ENGINE, whole.unique_name, whole.cpu_group, reason):
        for group in opened:
            fused.close_group(_ENGINE, group.unique_name, group.device_group)
        return False
    for group in groups:
        setattr(group, _NAME, fused.name_of(_ENGINE, group.unique_name))
        if group.rank_in_group == 0:
            say(_ENGINE, f"all-reduce and RMSNorm in one call ({group.unique_name})")
    return True


def _why_not() -> str:
    """Why the norms do not call for a sum with RMSNorm, or not as expected. What SGLang raises for a backend that it
    cannot have it raises again where it makes the workspaces.
    """
    misfit = switch.misfit(_ENGINE, SGLANG_FUSED)
    if misfit:
        return misfit
    from sglang.srt.layers.flashinfer_comm_fusion import resolve_flashinfer_allreduce_fusion_backend
    from sglang.srt.layers.layer_boundary.residual.add_norm import flashinfer_ar_fusion_applies

    if resolve_flashinfer_allreduce_fusion_backend() is None:
        return "SGLang has FlashInfer's all-reduce fusion off"
    if not flashinfer_ar_fusion_applies(1):
        return (
            "SGLang does not fuse here (FlashInfer is missing or was found unusable, the GPU is none of compute "
            "capability 9.0 or 10.x, or attention is data-parallel)"
        )
    _groups()  # What it raises is a reason as well.
    return ""


def _open(group: Any) -> bool:
    groups = (group.device_group, group.cpu_group)
    return fused.open_group(_ENGINE, group.unique_name, *groups, group.device)


def around_fused(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """SGLang's own, by whatever parameters it has, where no group has the call."""
    return _norm(original, *args, **kwargs) if fused.any_open() else original(*args, **kwargs)


def _norm(
    original: Callable[..., Any],
    input_tensor: Any,
    residual: Any,
    weight: Any,
    *,
    eps: float = 1e-6,
    use_attn_tp_group: bool = True,
    **rest: Any,
) -> Any:
    """The normalised tensor and the next residual, both new. None for both where the call is not served, after which
    SGLang's norm calls an all-reduce and normalises what it returns.
    """
    name = getattr(_group(use_attn_tp_group), _NAME, None)
    if name is None:
        return original(input_tensor, residual, weight, eps=eps, use_attn_tp_group=use_attn_tp_group, **rest)
    reason = fused.refuse(input_tensor, residual, weight)
    if reason:
        _tell(f"{reason}: all-reduce and norm stay apart there")
        return None, None
    import stretto.torch

    return stretto.torch.all_reduce_add_rms_norm(input_tensor, residual, weight, epsilon=eps, group=name)


def _tell(text: str) -> None:
    """Not while code is compiled, which a line on stderr would cut in two."""
    import torch

    if not torch.compiler.is_compiling():
        say(_ENGINE, text)

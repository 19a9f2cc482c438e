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
    """Registers the hooks. Where SGLang has its fusion otherwise than expected: none, and a line."""
    if not switch.fits(_ENGINE, SGLANG_FUSED, "fusion of all-reduce and RMSNorm"):
        return
    registry.register(f"{_MODULE}.pre_initialize_workspaces", around_workspaces, hook_type.AROUND)
    registry.register(f"{_MODULE}.flashinfer_allreduce_residual_rmsnorm", around_fused, hook_type.AROUND)


def _group(attention: bool) -> Any:
    from sglang.srt.layers.flashinfer_comm_fusion import resolve_fusion_group

    return resolve_fusion_group(use_attn_tp_group=attention)[2]


def around_workspaces(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """All ranks come here, once for each model, where FlashInfer's fusion is on and before any graph is captured."""
    if not all([_open(_group(attention)) for attention in (False, True)]):
        original(*args, **kwargs)


def _open(group: Any) -> bool:
    if group.world_size == 1 or getattr(group, _NAME, None):
        return True
    if not fused.open_group(_ENGINE, group.unique_name, group.device_group, group.cpu_group, group.device):
        return False
    setattr(group, _NAME, fused.name_of(_ENGINE, group.unique_name))
    if group.rank_in_group == 0:
        say(_ENGINE, f"all-reduce and RMSNorm in one call ({group.unique_name})")
    return True


def around_fused(
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

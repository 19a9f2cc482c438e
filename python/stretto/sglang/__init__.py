"""SGLang's plugin (entry point `stretto_engines:sglang`): with STRETTO_SGLANG=1 the tensor-parallel all-reduce is ours,
and so is the RMSNorm behind it where SGLang fuses the two (`fused`).

SGLang's registry of hooks puts ours around a group's all-reduce, once eager and once inside the operator of
compiled code that returns a new tensor; compiled code that SGLang sends to its other two operators stays there. The
communicator is SGLang's binding of nccl.h on our libnccl.so.2, and belongs to the group (docs/inference.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stretto_engines import say

from stretto.engines import switch, tensors
from stretto.engines.contract import SGLANG
from stretto.library import nccl_library_path
from stretto.sglang import fused

ENGINE = "SGLang"
VERSIONS = ("0.5.23",)
_GROUP = "sglang.srt.distributed.parallel_state.GroupCoordinator"
# Whose ranks share a layer's partial sums.
_GROUPS = ("tp", "attention_tp", "moe_tp")
_HELD = "_stretto_communicator"
# GroupCoordinator.all_reduce goes there under compilation, past the operator that our hook is in.
_NOT_TAKEN = (
    "compiled code keeps SGLang's where that uses FlashInfer, or reduces in place for want of a fast communicator"
)


def register() -> None:
    """Called in each of SGLang's processes where the plugin is on, before it applies the hooks."""
    if not switch.served(ENGINE, "sglang", VERSIONS, SGLANG):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    switch.stay_deterministic("SGLANG_ENABLE_DETERMINISTIC_INFERENCE")
    HookRegistry.register(f"{_GROUP}.__init__", after_init, HookType.AFTER)
    HookRegistry.register(f"{_GROUP}.all_reduce", around_all_reduce, HookType.AROUND)
    HookRegistry.register(f"{_GROUP}._all_reduce_out_place", around_out_place, HookType.AROUND)
    fused.register(HookRegistry, HookType)


def after_init(_: None, group: Any, *args: Any, **kwargs: Any) -> None:
    """Gives a group of tensor parallelism its communicator. All its ranks are here."""
    if group.world_size > 1 and group.unique_name.split(":")[0] in _GROUPS and group.device.type == "cuda":
        setattr(group, _HELD, _open(group))


def _open(group: Any) -> Any:
    from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator

    library = str(nccl_library_path())
    opened = PyNcclCommunicator(group=group.cpu_group, device=group.device, library_path=library)
    if not opened.available:
        say(ENGINE, f"SGLang's binding of NCCL did not take {library}: SGLang keeps its own all-reduce")
        return None
    if group.rank_in_group == 0:
        say(ENGINE, f"all-reduce of {group.world_size} ranks ({group.unique_name}) by {library}; {_NOT_TAKEN}")
    return opened


def _compiling() -> bool:
    import torch

    return bool(torch.compiler.is_compiling())


def around_all_reduce(original: Callable[..., Any], group: Any, input_: Any) -> Any:
    """Sums over the group, into a new tensor. Compiled code goes to an operator of SGLang: see the next hook."""
    if _compiling():
        return original(group, input_)
    return _reduce(group, input_, lambda: original(group, input_))


def around_out_place(original: Callable[..., Any], group: Any, input_: Any, outplace_all_reduce_method: str) -> Any:
    """The same inside SGLang's operator."""
    return _reduce(group, input_, lambda: original(group, input_, outplace_all_reduce_method))


def _reduce(group: Any, input_: Any, otherwise: Callable[[], Any]) -> Any:
    held = getattr(group, _HELD, None)
    if held is None:
        return otherwise()
    reason = tensors.refuse(input_)
    if reason:
        say(ENGINE, f"{reason}: SGLang's own takes it")
        return otherwise()
    # SGLang's binding is off but where it is wanted.
    with held.change_state(enable=True):
        return held.outplace_all_reduce(input_)

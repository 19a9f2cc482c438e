"""What a plugin relies on in an engine: names, and how it calls them or is called in their place. Nothing is imported
but the standard library, so tools/engine_contracts can read this file alone.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Use:
    """A function or method by its full name, and the call that must be possible: so many positional arguments, `self`
    among them, and these keywords.
    """

    name: str
    positional: int = 0
    keywords: tuple[str, ...] = ()

    def misfit(self, signature: inspect.Signature) -> str:
        """Why the call is not possible; nothing where it is."""
        try:
            signature.bind(*[None] * self.positional, **dict.fromkeys(self.keywords))
        except TypeError as error:
            return f"{self.name}{signature}: {error}"
        return ""


_VLLM = "vllm.distributed.device_communicators"
VLLM = (
    Use("vllm.platforms.cuda.CudaPlatformBase.get_device_communicator_cls", 1),
    Use(
        f"{_VLLM}.cuda_communicator.CudaCommunicator.__init__",
        1,
        ("cpu_group", "device", "device_group", "unique_name", "use_all2all"),
    ),
    Use(f"{_VLLM}.cuda_communicator.CudaCommunicator.all_reduce", 2),
    Use(f"{_VLLM}.cuda_communicator.CudaCommunicator.destroy", 1),
    Use(f"{_VLLM}.pynccl.PyNcclCommunicator.__init__", 1, ("group", "device", "library_path")),
    Use(f"{_VLLM}.pynccl.PyNcclCommunicator.all_reduce", 2),
    Use(f"{_VLLM}.pynccl.PyNcclCommunicator.destroy", 1),
)

# What the plugin puts its own in the place of for the pass that fuses all-reduce and RMSNorm, when vLLM loads it.
VLLM_PASSES = (
    Use("vllm.platforms.interface.Platform.get_pass_manager_cls", 1),
    Use("vllm.envs.compile_factors", 0),
)

# Of that pass, beyond all this: its place, and the operators that it looks for in graphs.
_PASSES = "vllm.compilation.passes"
VLLM_FUSED = (
    *VLLM_PASSES,
    Use(f"{_PASSES}.pass_manager.PostGradPassManager.configure", 2),
    Use(f"{_PASSES}.fusion.allreduce_rms_fusion.AllReduceFusionPass.__init__", 2),
    Use(f"{_PASSES}.fusion.allreduce_rms_fusion.AllReduceFusionPass.is_applicable_for_range", 2),
    Use(f"{_PASSES}.vllm_inductor_pass.VllmInductorPass.__init__", 2),
    Use(f"{_PASSES}.vllm_inductor_pass.VllmInductorPass.time_and_log", 1),
    Use(f"{_PASSES}.inductor_pass.InductorPass.hash_source", 3),
    Use("vllm.config.compilation.PassConfig.flashinfer_max_size", 2),
    Use("vllm.distributed.parallel_state.all_reduce", 0, ("tensor", "group_name")),
    Use("vllm.ir.ops.layernorm.rms_norm", 0, ("x", "weight", "epsilon", "variance_size")),
    Use("vllm.ir.ops.layernorm.fused_add_rms_norm", 0, ("x", "x_residual", "weight", "epsilon", "variance_size")),
)

_SGLANG = "sglang.srt.distributed"
SGLANG = (
    Use("sglang.srt.plugins.hook_registry.HookRegistry.register", 4),
    Use(f"{_SGLANG}.parallel_state.GroupCoordinator.all_reduce", 2),
    Use(f"{_SGLANG}.parallel_state.GroupCoordinator._all_reduce_out_place", 3),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.__init__", 1, ("group", "device", "library_path")),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.outplace_all_reduce", 2),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.change_state", 1, ("enable",)),
)

# Of the fused all-reduce and RMSNorm, beyond that: the function that SGLang's norms call, what it makes before CUDA
# graphs are captured, which group it is of, and whether they call it at all.
_FUSION = "sglang.srt.layers.flashinfer_comm_fusion"
SGLANG_FUSED = (
    Use(
        f"{_FUSION}.flashinfer_allreduce_residual_rmsnorm",
        0,
        ("input_tensor", "residual", "weight", "eps", "max_token_num", "use_attn_tp_group"),
    ),
    Use(f"{_FUSION}.pre_initialize_workspaces", 0, ("max_token_num", "hidden_dim", "dtype")),
    Use(f"{_FUSION}.resolve_fusion_group", 0, ("use_attn_tp_group",)),
    Use(f"{_FUSION}.resolve_flashinfer_allreduce_fusion_backend", 0),
    Use("sglang.srt.layers.layer_boundary.residual.add_norm.flashinfer_ar_fusion_applies", 1),
    Use("sglang.srt.runtime_context.get_parallel", 0),
)

ENGINES = {"vllm": (*VLLM, *VLLM_FUSED), "sglang": (*SGLANG, *SGLANG_FUSED)}


def _function(name: str) -> Callable[..., Any]:
    """The function behind a name; of a class method the one with its class as first argument."""
    owner, _, attribute = name.rpartition(".")
    found = inspect.getattr_static(pkgutil.resolve_name(owner), attribute)
    return getattr(found, "__func__", found)  # type: ignore[no-any-return]


def misfits(uses: Iterable[Use]) -> list[str]:
    """What the installed engine does not have, or has otherwise."""
    found = []
    for use in uses:
        try:
            found.append(use.misfit(inspect.signature(_function(use.name))))
        except Exception as error:  # Importing an engine's module runs its code: anything can come out of it.
            found.append(f"{use.name}: {' '.join(str(error).split())}")
    return [text for text in found if text]

"""vLLM's plugin (entry point `stretto_engines:vllm`): with STRETTO_VLLM=1 the tensor-parallel all-reduce is ours, and
so is the RMSNorm behind it where vLLM's compiler fuses the two.

vLLM asks its platform for the class of device communicators; here that becomes `communicator.StrettoCommunicator`,
which is vLLM's own with another all-reduce in front. It also asks for the class of its compiler's passes; that becomes
`passes.StrettoPassManager`, which is vLLM's own with another pass where all-reduce and RMSNorm are fused
(docs/inference.md).
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

from stretto_engines import say

import stretto
from stretto.engines import fused, switch
from stretto.engines.contract import VLLM, VLLM_PASSES, misfits

ENGINE = "vLLM"
VERSIONS = ("0.33",)
_OWN = "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"
_OURS = "stretto.vllm.communicator.StrettoCommunicator"
_OWN_PASSES = "vllm.compilation.passes.pass_manager.PostGradPassManager"
_OUR_PASSES = "stretto.vllm.passes.StrettoPassManager"


def register() -> None:
    """Called in each of vLLM's processes where the plugin is on. Again: does nothing more."""
    if not switch.served(ENGINE, "vllm", VERSIONS, VLLM):
        return
    from vllm.platforms import current_platform

    if not current_platform.is_cuda():
        say(ENGINE, "this platform is not CUDA: vLLM keeps its own all-reduce")
        return
    named = current_platform.get_device_communicator_cls()
    if named not in (_OWN, _OURS):
        say(ENGINE, f"another plugin has put {named} in place: it stays there")
        return
    _take_passes()
    switch.stay_deterministic("VLLM_BATCH_INVARIANT")
    type(current_platform).get_device_communicator_cls = classmethod(_our_class)


def _take_passes() -> None:
    """The all-reduce goes on where this cannot be: `communicator` says it, when it is asked for the fused call."""
    try:
        from vllm import envs
        from vllm.platforms import current_platform

        if misfits(VLLM_PASSES) or current_platform.get_pass_manager_cls() not in (_OWN_PASSES, _OUR_PASSES):
            return
        # vLLM finds compiled code of earlier runs again by these values.
        envs.environment_variables["STRETTO_VLLM"] = _what_compiled_code_needs
        type(current_platform).get_pass_manager_cls = classmethod(_our_passes)
    except Exception as error:
        say(ENGINE, f"vLLM's compiler passes stay ({type(error).__name__}: {' '.join(str(error).split())})")


def passes_are_taken() -> bool:
    """Whether vLLM asks us for the class of its compiler's passes."""
    from vllm.platforms import current_platform

    return getattr(current_platform.get_pass_manager_cls, "__func__", None) is _our_passes


def _our_class(_: Any) -> str:
    return _OURS


def _our_passes(_: Any) -> str:
    """Asked for when a model is compiled: the device communicators are there by then."""
    return _OUR_PASSES if fused.any_open() else _OWN_PASSES


def sources() -> str:
    """Of what decides which steps of a graph become our operators, and how these are called."""
    from stretto.vllm import graph

    return inspect.getsource(graph) + inspect.getsource(fused)


def _what_compiled_code_needs() -> str:
    if not fused.any_open():
        return ""
    return f"fused, {stretto.__version__}, {hashlib.sha256(sources().encode()).hexdigest()[:16]}"

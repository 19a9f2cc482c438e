"""vLLM's plugin (entry point `stretto_engines:vllm`): with STRETTO_VLLM=1 the tensor-parallel all-reduce is ours, and
so is the RMSNorm behind it where vLLM's compiler fuses the two.

vLLM asks its platform for the class of device communicators; here that becomes `communicator.StrettoCommunicator`,
which is vLLM's own with another all-reduce in front. It also asks for the class of its compiler's passes; that becomes
`passes.StrettoPassManager`, which is vLLM's own with another pass where all-reduce and RMSNorm are fused
(docs/inference.md).
"""

from __future__ import annotations

from typing import Any

from stretto_engines import say

import stretto
from stretto.engines import fused, switch
from stretto.engines.contract import VLLM

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
    from vllm import envs
    from vllm.platforms import current_platform

    if not current_platform.is_cuda():
        say(ENGINE, "this platform is not CUDA: vLLM keeps its own all-reduce")
        return
    named = current_platform.get_device_communicator_cls()
    if named not in (_OWN, _OURS):
        say(ENGINE, f"another plugin has put {named} in place: it stays there")
        return
    if passes_can_be_taken():
        # vLLM finds compiled code of earlier runs again by these values.
        envs.environment_variables["STRETTO_VLLM"] = _what_compiled_code_needs
        type(current_platform).get_pass_manager_cls = classmethod(_our_passes)
    switch.stay_deterministic("VLLM_BATCH_INVARIANT")
    type(current_platform).get_device_communicator_cls = classmethod(_our_class)


def passes_can_be_taken() -> bool:
    """Whether the compiler's passes are vLLM's own, or ours already."""
    from vllm.platforms import current_platform

    return current_platform.get_pass_manager_cls() in (_OWN_PASSES, _OUR_PASSES)


def _our_class(_: Any) -> str:
    return _OURS


def _our_passes(_: Any) -> str:
    """Asked for when a model is compiled: the device communicators are there by then."""
    return _OUR_PASSES if fused.any_open() else _OWN_PASSES


def _what_compiled_code_needs() -> str:
    return f"fused, {stretto.__version__}" if fused.any_open() else ""

"""vLLM's plugin (entry point `stretto_engines:vllm`): with STRETTO_VLLM=1 the tensor-parallel all-reduce is ours.

vLLM asks its platform for the class of device communicators; here that becomes `communicator.StrettoCommunicator`,
which is vLLM's own with another all-reduce in front. All-reduce fused with RMSNorm stays vLLM's own
(docs/inference.md).
"""

from __future__ import annotations

from typing import Any

from stretto_engines import say

from stretto.engines import switch
from stretto.engines.contract import VLLM

ENGINE = "vLLM"
VERSIONS = ("0.33",)
_OWN = "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"
_OURS = "stretto.vllm.communicator.StrettoCommunicator"


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
    switch.stay_deterministic("VLLM_BATCH_INVARIANT")
    type(current_platform).get_device_communicator_cls = classmethod(_our_class)


def _our_class(_: Any) -> str:
    return _OURS

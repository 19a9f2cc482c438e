"""vLLM's device communicator with this library's all-reduce in front. Imported by vLLM, by name."""

from __future__ import annotations

from typing import Any

from stretto_engines import say
from vllm.config import CompilationMode, get_current_vllm_config_or_none
from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator

from stretto.engines import fused, switch, tensors
from stretto.engines.contract import VLLM_FUSED
from stretto.library import nccl_library_path
from stretto.vllm import ENGINE, passes_are_taken


class StrettoCommunicator(CudaCommunicator):  # type: ignore[misc]
    """Of tensor parallelism; other groups, and tensors that are not served, have vLLM's own all-reduce.

    The communicator of this library is vLLM's binding of nccl.h on our libnccl.so.2: it runs on the current stream and
    in graphs. All-reduce with RMSNorm has one of its own, which is made where vLLM's compiler is to fuse the two.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stretto: Any = None
        if self.world_size > 1 and self.unique_name.split(":")[0] == "tp":
            self._stretto = self._open()
            self._open_fused()

    def _open(self) -> Any:
        library = str(nccl_library_path())
        opened = PyNcclCommunicator(group=self.cpu_group, device=self.device, library_path=library)
        if opened.disabled:
            say(ENGINE, f"vLLM's binding of NCCL did not take {library}: vLLM keeps its own all-reduce")
            return None
        self._tell(f"all-reduce of {self.world_size} ranks ({self.unique_name}) by {library}")
        return opened

    def _open_fused(self) -> None:
        """All ranks of the group come here, and all vote."""
        groups = (self.device_group, self.cpu_group)
        if fused.open_group(ENGINE, self.unique_name, *groups, self.device, _why_apart):
            self._tell(f"all-reduce and RMSNorm in one call ({self.unique_name})")

    def _tell(self, text: str) -> None:
        if self.rank_in_group == 0:
            say(ENGINE, text)

    def all_reduce(self, input_: Any) -> Any:
        """Sums over the group, into a new tensor of the same shape and type."""
        if self._stretto is None:
            return super().all_reduce(input_)
        reason = tensors.refuse(input_)
        if reason:
            say(ENGINE, f"{reason}: vLLM's own takes it")
            return super().all_reduce(input_)
        return self._stretto.all_reduce(input_)

    def destroy(self) -> None:
        """Frees what this library and vLLM hold."""
        fused.close_group(ENGINE, self.unique_name, self.device_group)
        if self._stretto is not None:
            self._stretto.destroy()
            self._stretto = None
        super().destroy()


def _why_apart() -> str:
    """Why vLLM's compiler will not fuse the two; nothing where it will."""
    config = get_current_vllm_config_or_none()
    if config is None or config.compilation_config.mode != CompilationMode.VLLM_COMPILE:
        return "vLLM does not compile this model"
    if not config.compilation_config.pass_config.fuse_allreduce_rms:
        return "vLLM's pass_config has fuse_allreduce_rms off"
    misfit = switch.misfit(ENGINE, VLLM_FUSED)
    return misfit or ("" if passes_are_taken() else "another plugin has put its compiler passes in place")

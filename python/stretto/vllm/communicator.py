"""vLLM's device communicator with this library's all-reduce in front. Imported by vLLM, by name."""

from __future__ import annotations

from typing import Any

from stretto_engines import say
from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator
from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator

from stretto.engines import tensors
from stretto.library import nccl_library_path
from stretto.vllm import ENGINE


class StrettoCommunicator(CudaCommunicator):  # type: ignore[misc]
    """Of tensor parallelism; other groups, and tensors that are not served, have vLLM's own all-reduce.

    The communicator of this library is vLLM's binding of nccl.h on our libnccl.so.2: it runs on the current stream and
    in graphs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stretto: Any = None
        if self.world_size > 1 and self.unique_name.split(":")[0] == "tp":
            self._stretto = self._open()

    def _open(self) -> Any:
        library = str(nccl_library_path())
        opened = PyNcclCommunicator(group=self.cpu_group, device=self.device, library_path=library)
        if opened.disabled:
            say(ENGINE, f"vLLM's binding of NCCL did not take {library}: vLLM keeps its own all-reduce")
            return None
        if self.rank_in_group == 0:
            say(ENGINE, f"all-reduce of {self.world_size} ranks ({self.unique_name}) by {library}")
        return opened

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
        """Frees both communicators."""
        if self._stretto is not None:
            self._stretto.destroy()
            self._stretto = None
        super().destroy()

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

_SGLANG = "sglang.srt.distributed"
SGLANG = (
    Use("sglang.srt.plugins.hook_registry.HookRegistry.register", 4),
    Use(f"{_SGLANG}.parallel_state.GroupCoordinator.all_reduce", 2),
    Use(f"{_SGLANG}.parallel_state.GroupCoordinator._all_reduce_out_place", 3),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.__init__", 1, ("group", "device", "library_path")),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.outplace_all_reduce", 2),
    Use(f"{_SGLANG}.device_communicators.pynccl.PyNcclCommunicator.change_state", 1, ("enable",)),
)

ENGINES = {"vllm": VLLM, "sglang": SGLANG}


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

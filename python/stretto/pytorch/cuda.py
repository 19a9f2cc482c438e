"""The way to PyTorch's ProcessGroupNCCL, which runs on this library if it is what the process has as libnccl.so.2."""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from stretto.library import nccl_library_path
from stretto.loaded import SONAME


def make(store: Any, rank: int, size: int, timeout: timedelta, name: str, options: Any) -> Any:
    """A process group for CUDA tensors. Communicators are made at their first use.

    Raises `RuntimeError` if CUDA tensors would be served by another NCCL.
    """
    if not dist.is_nccl_available():
        raise RuntimeError("stretto: this PyTorch has no NCCL support, so that the group cannot serve CUDA tensors")
    if not _nccl_is_ours():
        raise RuntimeError(
            "stretto: CUDA tensors go through PyTorch's ProcessGroupNCCL, which is bound to another NCCL in this "
            f"process: import stretto.nccl before torch, or start with LD_PRELOAD={nccl_library_path()}"
        )
    if not isinstance(options, dist.ProcessGroupNCCL.Options):
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
    within = dist.PrefixStore("cuda/", store)
    outer = dist.ProcessGroup(within, rank, size)
    kind = dist.ProcessGroup.BackendType.NCCL
    outer._set_default_backend(kind)
    outer._register_backend(torch.device("cuda"), kind, dist.ProcessGroupNCCL(within, rank, size, options))
    outer._set_group_name(name)
    return outer


def _nccl_is_ours() -> bool:
    """Asks the dynamic linker what it gives to whoever wants libnccl.so.2."""
    try:
        bound = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return hasattr(bound, "strettoVersion")

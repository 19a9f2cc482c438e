"""Puts Stretto in NCCL's place for everything that this process loads afterwards:

    import stretto.nccl  # before torch, cupy or anything else that links libnccl.so.2
    import torch

The dynamic linker takes a library that is already loaded under the name libnccl.so.2 instead of searching for one,
also where a program's own search path (DT_RPATH, as in PyTorch's wheel) goes before LD_LIBRARY_PATH. Child processes
that start anew import it again, or get LD_PRELOAD; forked ones have it. `loaded()` says what a process really uses.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from stretto.errors import InvalidUsage
from stretto.library import nccl_library_path
from stretto.loaded import SONAME, mapped_files


def loaded() -> list[Path]:
    """The files that are mapped as libnccl.so.2 into this process, in the order of their addresses. The one that was
    loaded first is the one that others are bound to."""
    # A package of a distribution has it as libnccl.so.2.28.9.
    return [Path(path) for path in mapped_files(os.getpid()) if Path(path).name.startswith(SONAME)]


def _load() -> ctypes.CDLL:
    ours = nccl_library_path().resolve()
    others = [path for path in loaded() if path.resolve() != ours]
    if others:
        because = " (by torch)" if "torch" in sys.modules else ""
        raise InvalidUsage(
            f"{others[0]} is loaded already{because}, and programs are bound to it: import stretto.nccl before "
            f"whatever loads NCCL, or start with LD_PRELOAD={ours}"
        )
    return ctypes.CDLL(str(ours), mode=ctypes.RTLD_GLOBAL)


library = _load()

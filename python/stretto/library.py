"""What can be asked of the library without a communicator, and where its files are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stretto import _native
from stretto.values import DType, Op, byte_count, known_dtype_code, op_code, text, whole_number


def explain(
    collective: str, size: int, ranks: int, *, dtype: DType = "float32", op: Op = "sum", hidden: int = 0
) -> dict[str, Any]:
    """How an operation of `size` bytes (of the larger buffer) between `ranks` ranks of this machine would
    run. `hidden`: of all_reduce_add_rms_norm, the elements of a token.

    Returns the JSON "stretto.explain/1": candidates, predicted times in microseconds, which won and why.
    """
    question = (text(collective, "collective"), byte_count(size, "size"))
    ranks = whole_number(ranks, "ranks", 1)
    how = (known_dtype_code(dtype), op_code(op), ranks, byte_count(hidden, "hidden"))
    return dict(json.loads(_native.explain(*question, *how)))


def doctor(target: str) -> dict[str, Any]:
    """What the flight recorders of other processes say: which rank holds a job up, who died, where ranks disagree.

    `target`: process ids, "123,124"; files of recorders (*.flight) and folders of them, one a line; or "", for the last
    of this user's jobs that did not end in peace, or runs. The processes may hang, spin or be stopped; they are not
    disturbed. Returns the JSON "stretto.doctor/1". Raises `InvalidArgument` for a target that is none of these,
    `InvalidUsage` where there is no recorder, `SystemCallError` where the kernel does not let us look.
    """
    return dict(json.loads(_native.doctor(text(target, "target"))))


def build() -> dict[str, Any]:
    """How the library was built: version, commit (None where it is not known), compiler and, with CUDA, its compiler's
    version and what GPU kernels there are. Returns the JSON "stretto.build/1".
    """
    return dict(json.loads(_native.build()))


def parameters() -> dict[str, Any]:
    """The environment variables that the library reads, with their values, defaults and help."""
    return dict(json.loads(_native.parameters()))


def topology() -> dict[str, Any]:
    """What this machine has and how it is connected."""
    return dict(json.loads(_native.topology()))


def _folder() -> Path:
    # Beside the extension: in an editable installation that is not where the Python files are.
    return Path(_native.__file__).resolve().parent


def library_path() -> Path:
    """libstretto.so, for linking and for dlopen."""
    return _folder() / "lib" / "libstretto.so"


def nccl_library_path() -> Path:
    """The same library as libnccl.so.2, for LD_PRELOAD and for VLLM_NCCL_SO_PATH."""
    return _folder() / "lib" / "libnccl.so.2"


def include_path() -> Path:
    """The folder of nccl.h and stretto.h."""
    return _folder() / "include"


def profiler_plugin_path() -> Path:
    """libnccl-profiler-stretto.so, for NCCL_PROFILER_PLUGIN: what NCCL and Stretto tell their work to."""
    return _folder() / "lib" / "libnccl-profiler-stretto.so"


def net_plugin_path() -> Path:
    """libnccl-net-stretto.so, for NCCL_NET_PLUGIN: moves the bytes of NVIDIA's NCCL between hosts over TCP."""
    return _folder() / "lib" / "libnccl-net-stretto.so"

"""Lists of names on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from stretto.bench.options import UsageError

GPU_BACKENDS = (
    *("stretto", "stretto-fused", "nccl", "torch-one-shot", "torch-two-shot", "vllm-custom"),
    *("sglang-one-shot", "sglang-two-shot"),
)
"""Of a layer on GPUs (`gpu_backends`)."""


def chosen(flag: str, text: str, known: Sequence[str]) -> list[str]:
    """Those of a list with commas, each once, in its order. UsageError for one that is not known."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise UsageError(f"--{flag} {name}: choose from {', '.join(known)}")
    if not names:
        raise UsageError(f"--{flag}: at least one of {', '.join(known)}")
    return names

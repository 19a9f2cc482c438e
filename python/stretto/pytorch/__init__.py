"""PyTorch's backend "stretto": `torch.distributed.init_process_group("stretto")`.

PyTorch 2.14 and later find it by entry point; before that, `import stretto.pytorch` and `register()` come first.

A group serves CPU tensors by host ranks of this library, and CUDA tensors by PyTorch's own ProcessGroupNCCL, which must
be on this library too (`stretto.nccl`). What is where in this package:

* `group`: the process group, whose methods PyTorch calls.
* `collectives` and `point_to_point`: what these methods do with CPU tensors.
* `reductions` and `tensors`: which operators and tensors the library takes as they are, and what is made of the others.
* `lane`: in which thread and order operations run, and what ends them; `work`: what PyTorch waits for.
* `cuda`: the way to ProcessGroupNCCL.

docs/decisions/0025 says why it is Python.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]

_OLDEST = (2, 11)


def register() -> None:
    """Makes "stretto" known to `torch.distributed`. Again: does nothing.

    Raises `RuntimeError` if this PyTorch is older than 2.11, or has no `torch.distributed`.
    """
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise RuntimeError(f'the backend "stretto" needs PyTorch 2.11 or later, and this is {torch.__version__}')
    if not torch.distributed.is_available():
        raise RuntimeError("this PyTorch was built without torch.distributed")
    if "STRETTO" in torch.distributed.Backend._plugins:
        return
    torch.distributed.Backend.register_backend("stretto", _make, extended_api=True, devices=["cpu", "cuda"])


def _make(options: Any, backend_options: Any) -> Any:
    from stretto.pytorch.group import StrettoGroup

    return StrettoGroup.join(
        options.store, options.group_rank, options.group_size, options.timeout, options.group_id, backend_options
    )

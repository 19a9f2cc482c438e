"""The operators of `stretto.torch`, as PyTorch knows them: what they compute on CPU and on CUDA tensors, and what a
compiler is told of their results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch.distributed import distributed_c10d as c10d

from stretto import _native
from stretto.communicator import Communicator
from stretto.pytorch.group import StrettoGroup
from stretto.pytorch.tensors import NATIVE, check, check_like, expect_device, memory, stream_of
from stretto.torch.on_gpus import communicator_of
from stretto.values import op_code

Job: TypeAlias = Callable[[_native.Communicator, _native.Stream | None], None]
"""One operation of a communicator, on a CUDA stream or, of ranks in host memory, on none."""

COMMUNICATORS: dict[str, Communicator] = {}
"""By the names that `stretto.torch.use` has given."""

_DEVICES = ("cpu", "cuda")
_PER_TOKEN, _PER_TENSOR = 1, 2  # strettoScale_t


def _run(group: str, device: torch.device, job: Job) -> None:
    """Runs it with the group's communicator for the device, after what was submitted to that before."""
    communicator = COMMUNICATORS.get(group)
    if communicator is None:
        found = _process_group(group)
        if device.type == "cpu":
            return _on_cpu(found, group).run(lambda native: job(native, None))
        communicator = communicator_of(found, device)
    expect_device(communicator, device)
    job(communicator._native, stream_of(device))


def _process_group(name: str) -> Any:
    if name:
        return c10d._resolve_process_group(name)
    if dist.group.WORLD is None:
        raise ValueError(
            "stretto: torch.distributed has no default group: init_process_group first, or name a communicator that "
            "stretto.torch.use was given"
        )
    return dist.group.WORLD


def _on_cpu(found: Any, name: str) -> StrettoGroup:
    if not isinstance(found, StrettoGroup):
        raise ValueError(
            f"stretto: group {name!r} is of another backend, and the tensors are on the CPU, where the operators want "
            "one of the backend 'stretto': init_process_group('stretto')"
        )
    return found


def _shaped(input: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _check_shapes(
    input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    """Of tensors that are there, or of a compiler's that have no memory."""
    if input.dim() == 0:
        raise ValueError("stretto: the input has no axis: the last one is a token's elements")
    hidden = (input.shape[-1],)
    for name, tensor, shape in (
        ("residual", residual, tuple(input.shape)),
        ("weight", weight, hidden),
        ("bias", bias, hidden),
    ):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"stretto: {name} has shape {tuple(tensor.shape)} and needs {shape}")


def _arrays(
    input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> dict[str, object]:
    """What is read, by the library's names; checked and contiguous."""
    name = "all_reduce_add_rms_norm"
    check(name, input, device=input.device)
    _check_shapes(input, residual, weight, bias)
    arrays: dict[str, object] = {"input": memory(input.contiguous())}
    for key, tensor in {"residual": residual, "weight": weight, "bias": bias}.items():
        if tensor is not None:
            check_like(name, tensor.numel(), input.dtype, tensor, device=input.device)
            arrays[key] = memory(tensor.contiguous())
    return arrays


def _run_norm(
    group: str, input: torch.Tensor, arrays: dict[str, object], epsilon: float, quantisation: tuple[int, int]
) -> None:
    hidden = input.shape[-1]

    def job(native: _native.Communicator, stream: _native.Stream | None) -> None:
        native.all_reduce_add_rms_norm(arrays, hidden, epsilon, -1, quantisation, stream)

    _run(group, input.device, job)


@torch.library.custom_op("stretto::all_reduce", mutates_args=(), device_types=_DEVICES)  # type: ignore[untyped-decorator]
def all_reduce(input: torch.Tensor, op: str, group: str) -> torch.Tensor:
    check("all_reduce", input, device=input.device)
    plain, reduced = input.contiguous(), _shaped(input)
    code = op_code(op)  # type: ignore[arg-type]
    arrays = memory(plain), memory(reduced)
    _run(group, input.device, lambda native, stream: native.all_reduce(*arrays, code, -1, stream))
    return reduced


@all_reduce.register_fake  # type: ignore[untyped-decorator]
def _(input: torch.Tensor, op: str, group: str) -> torch.Tensor:
    return _shaped(input)


@torch.library.custom_op("stretto::all_reduce_add_rms_norm", mutates_args=(), device_types=_DEVICES)  # type: ignore[untyped-decorator]
def all_reduce_add_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    epsilon: float,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    arrays = _arrays(input, residual, weight, bias)
    normalised, added = _shaped(input), _shaped(input)
    arrays |= {"out": memory(normalised), "residual_out": memory(added)}
    _run_norm(group, input, arrays, epsilon, (0, 0))
    return normalised, added


@all_reduce_add_rms_norm.register_fake  # type: ignore[untyped-decorator]
def _(
    input: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    epsilon: float,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_shapes(input, residual, weight, bias)
    return _shaped(input), _shaped(input)


def _quantised(
    input: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three results. Without scales of their own, which an operator may not return twice, none."""
    scales = (*input.shape[:-1], 1) if scale is None else (0,)
    return (
        torch.empty(input.shape, dtype=dtype, device=input.device),
        torch.empty(scales, dtype=torch.float32, device=input.device),
        _shaped(input),
    )


@torch.library.custom_op("stretto::all_reduce_add_rms_norm_fp8", mutates_args=(), device_types=_DEVICES)  # type: ignore[untyped-decorator]
def all_reduce_add_rms_norm_fp8(
    input: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor | None,
    *,
    epsilon: float,
    dtype: torch.dtype,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if dtype not in (torch.float8_e4m3fn, torch.float8_e5m2):
        raise ValueError(f"stretto: tokens are quantised to float8_e4m3fn or float8_e5m2, and not to {dtype}")
    arrays = _arrays(input, residual, weight, bias)
    quantised, scales, added = _quantised(input, scale, dtype)
    if scale is not None:
        check_like("all_reduce_add_rms_norm_fp8", 1, torch.float32, scale, device=input.device)
    arrays |= {
        "residual_out": memory(added),
        "quantised": memory(quantised),
        "scales": memory(scales if scale is None else scale.contiguous()),
    }
    how = (_PER_TOKEN if scale is None else _PER_TENSOR, NATIVE[dtype])
    _run_norm(group, input, arrays, epsilon, how)
    return quantised, scales, added


@all_reduce_add_rms_norm_fp8.register_fake  # type: ignore[untyped-decorator]
def _(
    input: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor | None,
    *,
    epsilon: float,
    dtype: torch.dtype,
    group: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _check_shapes(input, residual, weight, bias)
    return _quantised(input, scale, dtype)


# A rank whose graph leaves one out, or calls two of them in another order, keeps its peers waiting.
for _operator in (all_reduce, all_reduce_add_rms_norm, all_reduce_add_rms_norm_fp8):
    _register_effectful_op(_operator._opoverload, _EffectType.ORDERED)

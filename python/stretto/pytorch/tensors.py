"""How the library sees a tensor: an address, a number of elements and their type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto import _native
from stretto.values import DTYPES

BYTES = DTYPES.index("uint8")

_NAMES = {"float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}

NATIVE: dict[Any, int] = {getattr(torch, _NAMES.get(name, name)): code for code, name in enumerate(DTYPES)}
"""The element types that the library has, with their `ncclDataType_t`."""


def is_plain(tensor: Any) -> bool:
    """Whether the elements lie after one another in memory, with the values that they stand for."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check(operation: str, *tensors: Any) -> None:
    """Raises `ValueError` for what is no dense tensor in CPU memory."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"stretto: {operation} takes tensors, and got a {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise ValueError(f"stretto: {operation} takes dense tensors, and got one of layout {tensor.layout}")
        if tensor.device.type != "cpu":
            raise ValueError(
                f"stretto: {operation} got tensors on cpu and on {tensor.device}: all of a call must be on one device"
            )


def check_like(operation: str, count: int, dtype: Any, *tensors: Any) -> None:
    """Raises `ValueError` unless all have `count` elements of type `dtype`."""
    check(operation, *tensors)
    for tensor in tensors:
        if tensor.numel() != count or tensor.dtype != dtype:
            raise ValueError(
                f"stretto: {operation} needs tensors of {count} elements of {dtype}, and got one of {tensor.numel()} "
                f"elements of {tensor.dtype}"
            )


def memory(tensor: Any) -> _native.Memory:
    """A plain tensor that is moved and not reduced, of any type."""
    code = NATIVE.get(tensor.dtype)
    return bytes_of(tensor) if code is None else _native.Memory(tensor.data_ptr(), tensor.numel(), code, tensor)


def bytes_of(tensor: Any) -> _native.Memory:
    """A plain tensor as its bytes."""
    return _native.Memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(), BYTES, tensor)


class Staging:
    """Plain tensors in place of those that are not. `finish` gives the results to those that they stand for."""

    def __init__(self) -> None:
        self._back: list[tuple[Any, Any]] = []

    def read(self, tensor: Any) -> Any:
        return tensor if is_plain(tensor) else tensor.detach().resolve_conj().resolve_neg().contiguous()

    def write(self, tensor: Any) -> Any:
        """For a tensor whose values do not matter before."""
        if is_plain(tensor):
            return tensor
        return self._stand_in(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))

    def change(self, tensor: Any) -> Any:
        """For a tensor that is read and written."""
        if is_plain(tensor):
            return tensor
        return self._stand_in(
            tensor, tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        )

    def gathered(self, tensors: Sequence[Any]) -> Any:
        """One tensor of all their elements, after one another, to be read."""
        together = adjacent(tensors)
        return together if together is not None else torch.cat([self.read(one).detach().reshape(-1) for one in tensors])

    def spread(self, tensors: Sequence[Any]) -> Any:
        """One tensor for all their elements, after one another, to be written."""
        together = adjacent(tensors)
        if together is not None:
            return together
        whole = torch.empty(sum(one.numel() for one in tensors), dtype=tensors[0].dtype)
        position = 0
        for one in tensors:
            self._back.append((one, whole[position : position + one.numel()].view(one.shape)))
            position += one.numel()
        return whole

    def finish(self) -> None:
        for target, values in self._back:
            target.detach().copy_(values)

    def _stand_in(self, target: Any, values: Any) -> Any:
        self._back.append((target, values))
        return values


def adjacent(tensors: Sequence[Any]) -> Any | None:
    """The one tensor that they are the parts of, in order, if they lie after one another in one storage."""
    first = tensors[0]
    storage = first.untyped_storage().data_ptr()
    position, end = first.data_ptr(), 0
    for one in tensors:
        if not is_plain(one) or one.untyped_storage().data_ptr() != storage or one.data_ptr() != position + end:
            return None
        end += one.numel() * one.element_size()
    return first.detach().as_strided((end // first.element_size(),), (1,), first.storage_offset())


def seen(job: Callable[[], None], staging: Staging) -> Callable[[], None]:
    """`job`, and then what `staging` has to give back."""
    if not staging._back:
        return job

    def both() -> None:
        job()
        staging.finish()

    return both

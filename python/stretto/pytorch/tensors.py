"""How the library sees a tensor: an address, a number of elements and their type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto import _native
from stretto.communicator import Communicator
from stretto.values import DTYPES

BYTES = DTYPES.index("uint8")

_NAMES = {"float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}

NATIVE: dict[Any, int] = {getattr(torch, _NAMES.get(name, name)): code for code, name in enumerate(DTYPES)}
"""The element types that the library has, with their `ncclDataType_t`."""


CPU = torch.device("cpu")


def is_plain(tensor: Any) -> bool:
    """Whether the elements lie after one another in memory, with the values that they stand for."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check(operation: str, *tensors: Any, device: torch.device = CPU) -> None:
    """Raises `ValueError` for what is no dense tensor in the device's memory."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"stretto: {operation} takes tensors, and got a {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise ValueError(f"stretto: {operation} takes dense tensors, and got one of layout {tensor.layout}")
        if tensor.device != device:
            raise ValueError(
                f"stretto: {operation} got tensors on {device} and on {tensor.device}: all of a call must be on one "
                "device"
            )


def check_like(operation: str, count: int, dtype: Any, *tensors: Any, device: torch.device = CPU) -> None:
    """Raises `ValueError` unless all have `count` elements of type `dtype`."""
    check(operation, *tensors, device=device)
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


def stream_of(device: torch.device) -> _native.Stream | None:
    """What a call on tensors of `device` runs on: its current CUDA stream; the host's memory has none."""
    return _native.Stream(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else None


def expect_device(communicator: Communicator, device: torch.device) -> None:
    """Raises `ValueError` unless this rank of the communicator keeps its data where tensors of `device` are."""
    if communicator.device == (device.index if device.type == "cuda" else None):
        return
    place = "in host memory" if communicator.device is None else f"on cuda:{communicator.device}"
    why = ""
    if communicator.device is None:
        why = ": STRETTO_DEVICE=cpu is set, or this installation has no CUDA (`stretto info` says so)"
    raise ValueError(f"stretto: the tensors are on {device}, and this rank of the group is {place}{why}")


class Staging:
    """Plain tensors in place of those that are not. `prepare` gives them the values of those that they stand for, and
    `finish` gives the results back: both when the operation runs, as those before it may still change the values.
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any]] = []  # (to, from)
        self._after: list[tuple[Any, Any]] = []

    def read(self, tensor: Any) -> Any:
        return self._plain(tensor, reads=True)

    def write(self, tensor: Any) -> Any:
        """For a tensor whose values do not matter before."""
        return self._plain(tensor, writes=True)

    def change(self, tensor: Any) -> Any:
        """For a tensor that is read and written."""
        return self._plain(tensor, reads=True, writes=True)

    def gathered(self, tensors: Sequence[Any]) -> Any:
        """One tensor of all their elements, after one another, to be read."""
        return self._together(tensors, self._before)

    def spread(self, tensors: Sequence[Any]) -> Any:
        """One tensor for all their elements, after one another, to be written."""
        return self._together(tensors, self._after)

    def copy(self, target: Any, source: Any) -> None:
        """`target` gets the values of `source` before the operation."""
        self._before.append((target, source))

    def prepare(self) -> None:
        _copy_all(self._before)

    def finish(self) -> None:
        _copy_all(self._after)

    def around(self, job: Callable[[], None]) -> Callable[[], None]:
        """`job` between `prepare` and `finish`."""
        if not self._before and not self._after:
            return job

        def whole() -> None:
            self.prepare()
            job()
            self.finish()

        return whole

    def _plain(self, tensor: Any, reads: bool = False, writes: bool = False) -> Any:
        if is_plain(tensor):
            return tensor
        plain = torch.empty(tensor.shape, dtype=tensor.dtype)
        if reads:
            self._before.append((plain, tensor))
        if writes:
            self._after.append((tensor, plain))
        return plain

    def _together(self, tensors: Sequence[Any], copies: list[tuple[Any, Any]]) -> Any:
        together = adjacent(tensors)
        if together is not None:
            return together
        whole = torch.empty(sum(one.numel() for one in tensors), dtype=tensors[0].dtype)
        for part, one in zip(whole.split([one.numel() for one in tensors]), tensors, strict=True):
            here = part.view(one.shape)
            copies.append((here, one) if copies is self._before else (one, here))
        return whole


def _copy_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    for target, source in pairs:
        target.detach().copy_(source.detach())


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

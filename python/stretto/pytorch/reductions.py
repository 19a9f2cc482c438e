"""Which of PyTorch's reductions the library does, and what is made of the others.

The library has sum, product, least, greatest, average and "multiply, then sum" for its twelve element types. Logic on
bool is one of these on bytes. What is left (bitwise operators, 16-bit integers, products of complex numbers) is
*folded*: an all-to-all brings each rank its part of everybody's elements, PyTorch reduces these, and an all-gather
hands the results round. That is what a reduction costs anyway, and one copy more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from stretto import _native
from stretto.pytorch.tensors import BYTES, NATIVE
from stretto.values import OPERATORS, scalar_bytes

_Op = dist.ReduceOp.RedOpType
Fold = Callable[[Any], Any]


class Kind(NamedTuple):
    """How tensors of one type are reduced by one operator: by the library's own `op` on elements of `type`, or, if
    there is a `fold`, by that, which makes one row of many.
    """

    op: int = 0
    type: int = BYTES
    fold: Fold | None = None
    scalar: float | None = None
    pairs: bool = False  # complex numbers, reduced as their two parts

    def count(self, elements: int) -> int:
        return 2 * elements if self.pairs else elements


_NAMES = {_Op.SUM: "sum", _Op.PRODUCT: "prod", _Op.MIN: "min", _Op.MAX: "max", _Op.AVG: "avg"}
_OPS = {op: OPERATORS.index(name) for op, name in _NAMES.items()}
_ON_BOOL = {_Op.SUM: "max", _Op.PRODUCT: "min", _Op.MIN: "min", _Op.MAX: "max", _Op.BAND: "min", _Op.BOR: "max"}
_PAIRS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
_WIDE = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_BITWISE = {_Op.BAND: torch.bitwise_and, _Op.BOR: torch.bitwise_or, _Op.BXOR: torch.bitwise_xor}
_BY_TWO = {_Op.SUM: torch.add, _Op.PRODUCT: torch.mul, _Op.MIN: torch.minimum, _Op.MAX: torch.maximum, **_BITWISE}

_known: dict[tuple[Any, Any], Kind] = {}


def kind_of(reduce_op: Any, dtype: Any) -> Kind:
    """Raises `ValueError` for an operator that the type does not have."""
    op = reduce_op if isinstance(reduce_op, _Op) else reduce_op.op
    kind = _known.get((op, dtype))
    if kind is None:
        kind = _find(op, dtype, reduce_op)
        if op != _Op.PREMUL_SUM:
            _known[op, dtype] = kind
    return kind


def _find(op: Any, dtype: Any, reduce_op: Any) -> Kind:
    if op == _Op.PREMUL_SUM:
        return _premultiplied(dtype, reduce_op)
    if op in _OPS and dtype in NATIVE:
        return Kind(_OPS[op], NATIVE[dtype])
    if dtype == torch.bool and op in _ON_BOOL:
        return Kind(OPERATORS.index(_ON_BOOL[op]))
    if dtype in _PAIRS and op in (_Op.SUM, _Op.AVG):
        return Kind(_OPS[op], NATIVE[_PAIRS[dtype]], pairs=True)
    whole = dtype in (torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64) or dtype in _WIDE
    if op in _BITWISE and whole:
        return Kind(fold=partial(_fold, _BY_TWO[op], False, dtype))
    if dtype in (torch.int16, torch.uint16) and (op in _BY_TWO or op == _Op.AVG):
        return Kind(fold=partial(_fold, _BY_TWO.get(op, torch.add), op == _Op.AVG, dtype))
    if dtype in _PAIRS and op == _Op.PRODUCT:
        return Kind(fold=partial(_fold, torch.mul, False, dtype))
    raise ValueError(f"stretto: {_name(op)} of {dtype} is not defined")


def _premultiplied(dtype: Any, reduce_op: Any) -> Kind:
    if dtype not in NATIVE or not dtype.is_floating_point:
        raise ValueError(f"stretto: PREMUL_SUM is for floating-point numbers, and not for {dtype}")
    factor = reduce_op.__getstate__()[1]
    return Kind(type=NATIVE[dtype], scalar=float(factor))


def _name(op: Any) -> str:
    return str(op).rpartition(".")[2]


def _fold(by_two: Callable[..., Any], average: bool, dtype: Any, rows: Any) -> Any:
    wide = rows if dtype == torch.uint64 else rows.to(_WIDE.get(dtype, dtype))
    if dtype == torch.uint64:
        wide = rows.view(torch.int64)
    if average:
        # Of 16-bit integers, whose sum fits into 64 bits.
        total = wide.to(torch.int64).sum(0)
        return torch.div(total, len(rows), rounding_mode="trunc").to(dtype)
    result = wide[0].clone()
    for row in wide[1:]:
        result = by_two(result, row)
    return result.view(dtype) if dtype == torch.uint64 else result.to(dtype)


class Operator:
    """The library's number of a kind's operator, made on the communicator for as long as a `with` block lasts."""

    def __init__(self, native: _native.Communicator, kind: Kind) -> None:
        self._native = native
        self._kind = kind
        self._made: int | None = None

    def __enter__(self) -> int:
        if self._kind.scalar is None:
            return self._kind.op
        scalar = scalar_bytes(self._kind.scalar, self._kind.type)
        self._made = self._native.create_pre_mul_sum(scalar, self._kind.type)
        return self._made

    def __exit__(self, *_: object) -> None:
        if self._made is not None and not self._native.closed:
            self._native.destroy_op(self._made)

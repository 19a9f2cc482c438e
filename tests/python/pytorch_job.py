"""What the ranks of a PyTorch job in tests/python/test_pytorch.py share: who they are, what each of them brings to an
operation, what must come out, and the two lists of cases.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Where there is no job, the cases are only listed.
RANK, SIZE = int(os.environ.get("STRETTO_RANK", "0")), int(os.environ.get("STRETTO_RANKS", "1"))
Op = dist.ReduceOp
CASES: dict[str, Callable[[], None]] = {}
ALONE: dict[str, Callable[[], None]] = {}
THREE: set[str] = set()  # of those, the ones that have three ranks, not two


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def alone(function: Callable[[], None]) -> Callable[[], None]:
    """One that leaves the group broken."""
    ALONE[function.__name__] = function
    return function


def alone_of_three(function: Callable[[], None]) -> Callable[[], None]:
    THREE.add(function.__name__)
    return alone(function)


def of(rank: int, shape: Any = (7,), dtype: Any = torch.float32) -> torch.Tensor:
    """What rank `rank` brings: small whole numbers, which every type holds exactly."""
    count = 1
    for length in torch.Size(shape):
        count *= length
    values = (torch.arange(count) * 3 + 5 * rank) % 4
    return values.reshape(shape).to(dtype)


def mine(shape: Any = (7,), dtype: Any = torch.float32) -> torch.Tensor:
    return of(RANK, shape, dtype)


def everybodys(shape: Any = (7,), dtype: Any = torch.float32) -> list[torch.Tensor]:
    return [of(rank, shape, dtype) for rank in range(SIZE)]


def same(got: Any, wanted: Any) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got, wanted)
    assert torch.equal(got.to(torch.complex128), wanted.to(torch.complex128)), (got, wanted)


def refuses(kind: type[BaseException], words: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was raised, and should have been: {words}")


def reduced(op: Any, dtype: Any, shape: Any = (7,)) -> torch.Tensor:
    """By plain arithmetic of PyTorch on wide numbers."""
    if dtype == torch.bool:
        rows = torch.stack([row.to(torch.int64) for row in everybodys(shape, dtype)])
        wide = {Op.SUM: rows.amax(0), Op.PRODUCT: rows.amin(0), Op.MIN: rows.amin(0), Op.MAX: rows.amax(0)}
        wide[Op.BAND], wide[Op.BOR], wide[Op.BXOR] = rows.amin(0), rows.amax(0), rows.sum(0) % 2
        return wide[op].to(torch.bool)
    rows = torch.stack(
        [row.to(torch.complex128 if dtype.is_complex else torch.float64) for row in everybodys(shape, dtype)]
    )
    if op == Op.SUM:
        return rows.sum(0).to(dtype)
    if op == Op.PRODUCT:
        return rows.prod(0).to(dtype)
    if op == Op.AVG:
        mean = rows.sum(0) / SIZE
        return (mean if dtype.is_floating_point or dtype.is_complex else mean.trunc()).to(dtype)
    if op in (Op.MIN, Op.MAX):
        return (rows.amin(0) if op == Op.MIN else rows.amax(0)).to(dtype)
    whole = rows.to(torch.int64)
    result = whole[0]
    for row in whole[1:]:
        result = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}[op](result, row)
    return result.to(dtype)

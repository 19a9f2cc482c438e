"""What a collective must give, computed by NumPy alone; and inputs for which every order of summing gives the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

TYPES: dict[str, Any] = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
}


def source(dtype: str, count: int, rank: int, op: str = "sum") -> Any:
    """Small whole numbers, different per rank and index; 1 and 2 for products, so that fp8 holds them for 3 ranks."""
    index = np.arange(count)
    values = (index + rank) % 2 + 1 if op == "prod" else (index * 3 + rank * 5) % 4
    if dtype.startswith(("int", "float", "bf")) and op != "prod":
        values = values * np.where((index + rank) % 3 == 0, -1, 1)
    return values.astype(TYPES[dtype])


def reduced(inputs: list[Any], op: str) -> Any:
    """In rank order, in float64 or 64-bit whole numbers, rounded once."""
    dtype = inputs[0].dtype
    floating = dtype.name.startswith(("float", "bfloat"))
    wide = [one.astype(np.float64 if floating else np.int64) for one in inputs]
    if op == "avg":
        total = np.sum(wide, axis=0)
        mean = total / len(inputs) if floating else np.sign(total) * (np.abs(total) // len(inputs))
        return mean.astype(dtype)
    function = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[op]
    return function(wide, axis=0).astype(dtype)


def assert_same(actual: Any, expected: Any, op: str = "sum") -> None:
    """To the last bit; but a mean may be one rounding of its type away."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if op == "avg" and actual.dtype.name.startswith(("float", "bfloat")):
        eps = float(ml_dtypes.finfo(actual.dtype).eps)
        np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=eps)
        return
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))

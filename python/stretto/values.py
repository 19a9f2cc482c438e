"""Element types and reduction operators: how users name them, and the numbers that the library knows them
by.
"""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Literal, TypeAlias

from stretto import _native
from stretto.errors import InvalidArgument

DTYPES: tuple[str, ...] = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
)
"""The twelve element types, in the order of `ncclDataType_t`."""

OPERATORS: tuple[str, ...] = ("sum", "prod", "max", "min", "avg")
"""The built-in operators, in the order of `ncclRedOp_t`."""

_OP_CODES = {name: code for code, name in enumerate(OPERATORS)}

DType: TypeAlias = object
"""A name of `DTYPES`, a `numpy.dtype` or scalar type, one of ml_dtypes' types, or a `torch.dtype`."""


class PreMulSum:
    """The operator "multiply my input by a scalar, then sum", made by `Communicator.pre_mul_sum`.

    It belongs to one communicator and one element type. Free it with `close()` or a `with` block; closing the
    communicator frees it too.
    """

    def __init__(self, native: _native.Communicator, code: int) -> None:
        self._native = native
        self._code: int | None = code

    @property
    def code(self) -> int:
        if self._code is None:
            raise InvalidArgument("this operator is closed")
        return self._code

    def close(self) -> None:
        """Frees the operator; operations that already run are not disturbed. Again: does nothing."""
        if self._code is not None:
            code, self._code = self._code, None
            self._native.destroy_op(code)

    def __enter__(self) -> PreMulSum:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._native.inherited:
            self.close()


Op: TypeAlias = Literal["sum", "prod", "max", "min", "avg"] | PreMulSum
"""A built-in operator by name, or one made by `Communicator.pre_mul_sum`."""


def op_code(op: Op) -> int:
    """The `ncclRedOp_t`. Raises `InvalidArgument` for an unknown name."""
    code = _OP_CODES.get(op)  # type: ignore[arg-type]
    if code is not None:
        return code
    if isinstance(op, PreMulSum):
        return op.code
    raise InvalidArgument(f"op={op!r}: the operators are {', '.join(OPERATORS)} and comm.pre_mul_sum(scalar)")


def dtype_code(dtype: DType | None) -> int:
    """The `ncclDataType_t` of a type however it is named; -1 for None. Raises `InvalidArgument` for any
    other.
    """
    if dtype is None:
        return -1
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    code = _native.type_code(str(name).removeprefix("torch."))
    if code < 0:
        raise InvalidArgument(f"dtype={dtype!r}: the element types are {', '.join(DTYPES)}")
    return code


def scalar_bytes(value: float, code: int) -> bytes:
    """`value` as one element of the type. float8 needs the package ml_dtypes, which knows how to round to
    it.
    """
    name = DTYPES[code]
    if name == "bfloat16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        if bits & 0x7FFFFFFF > 0x7F800000:  # NaN: rounding must not turn it into infinity
            return struct.pack("<H", bits >> 16 | 0x40)
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if name.startswith("float8"):
        try:
            import ml_dtypes
        except ImportError as error:
            raise InvalidArgument(f"a scalar of type {name} needs the package ml_dtypes") from error
        kind = ml_dtypes.float8_e4m3fn if name == "float8e4m3" else ml_dtypes.float8_e5m2
        return bytes(kind(value).tobytes())
    import numpy

    return numpy.array(value, dtype=name).tobytes()

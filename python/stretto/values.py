"""Element types and reduction operators: how users name them, and the numbers that the library knows them
by.
"""

from __future__ import annotations

import math
import operator
import reprlib
import struct
from types import TracebackType
from typing import Any, Literal, TypeAlias

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

_INT32 = 1 << 31
_INT64 = 1 << 63

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
        """Its number in nccl.h, as an `ncclRedOp_t`. Raises `InvalidArgument` once it is closed."""
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


def shown(value: object) -> str:
    """A value as messages show it: short, whatever it is."""
    try:
        return reprlib.repr(value)
    except Exception:  # a user's own __repr__
        return f"a {type(value).__name__}"


def whole_number(value: object, what: str, least: int = -_INT32, most: int = _INT32 - 1) -> int:
    """`value`, if it is an int or can stand for one. Raises `InvalidArgument` if not, or if it is out of range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(
            f"{what}={shown(value)}: it must be a whole number, and is a {type(value).__name__}"
        ) from None
    if not least <= number <= most:
        raise InvalidArgument(f"{what}={shown(number)}: it must be {least} to {most}")
    return number


def byte_count(value: object, what: str) -> int:
    """A number of bytes, 0 or more."""
    return whole_number(value, what, 0, _INT64 - 1)


def text(value: object, what: str) -> str:
    """`value`, if it is a text that C can take."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}={shown(value)}: it must be a text, and is a {type(value).__name__}")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidArgument(f"{what}={shown(value)}: it must be a text without NUL and without lone surrogates")
    return value


def op_code(op: Op) -> int:
    """The `ncclRedOp_t`. Raises `InvalidArgument` for an unknown name."""
    if isinstance(op, str):
        code = _OP_CODES.get(op)
        if code is not None:
            return code
    elif isinstance(op, PreMulSum):
        return op.code
    raise InvalidArgument(f"op={shown(op)}: the operators are {', '.join(OPERATORS)} and comm.pre_mul_sum(scalar)")


def dtype_code(dtype: DType | None) -> int:
    """The `ncclDataType_t` of a type however it is named; -1 for None. Raises `InvalidArgument` for any
    other.
    """
    return -1 if dtype is None else known_dtype_code(dtype)


def known_dtype_code(dtype: DType) -> int:
    """`dtype_code` where there is no array whose own type None could mean."""
    try:
        name = (
            dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
        )
        code = _native.type_code(text(str(name), "dtype").removeprefix("torch."))
    except Exception:  # whatever the attributes of an object that is no type do
        code = -1
    if code < 0:
        raise InvalidArgument(f"dtype={shown(dtype)}: the element types are {', '.join(DTYPES)}")
    return code


def scalar_bytes(value: float, code: int) -> bytes:
    """`value` as one element of the type. Raises `InvalidArgument` if it is no number or has no such element. float8
    needs the package ml_dtypes, which knows how to round to it.
    """
    name = DTYPES[code]
    try:
        return _scalar_bytes(value, name)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            f"scalar={shown(value)}: it must be a number that is an element of type {name}"
        ) from error


def _scalar_bytes(value: float, name: str) -> bytes:
    import numpy

    if "int" in name:
        number = float(value)
        whole = int(value) if isinstance(value, int) or number.is_integer() else operator.index(value)  # type: ignore[arg-type]
        limits = numpy.iinfo(name)
        if not limits.min <= whole <= limits.max:
            raise OverflowError(name)
        return numpy.array(whole, dtype=name).tobytes()
    number = float(value)
    if name == "bfloat16":
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        if bits & 0x7FFFFFFF > 0x7F800000:  # NaN: rounding must not turn it into infinity
            return struct.pack("<H", bits >> 16 | 0x40)
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    with numpy.errstate(over="ignore"):
        element = _float8(number, name) if name.startswith("float8") else numpy.array(number, dtype=name)
    if math.isfinite(number) and not math.isfinite(float(element)):
        raise OverflowError(name)
    return bytes(element.tobytes())


def _float8(number: float, name: str) -> Any:
    try:
        import ml_dtypes
    except ImportError as error:
        raise InvalidArgument(f"a scalar of type {name} needs the package ml_dtypes") from error
    return (ml_dtypes.float8_e4m3fn if name == "float8e4m3" else ml_dtypes.float8_e5m2)(number)

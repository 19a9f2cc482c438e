"""What the package needs to know about arrays beyond their bytes: their shape, and how to make another one
like it.
"""

from __future__ import annotations

import operator
from typing import Any

from stretto.errors import InvalidArgument


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape, for anything that has one or speaks the buffer protocol."""
    shape = getattr(array, "shape", None)
    if shape is not None:
        try:
            return tuple(operator.index(length) for length in shape)
        except TypeError as error:
            kind = type(array).__name__
            raise InvalidArgument(f"array is a {kind}, whose shape is not one of numbers: give out=") from error
    try:
        return tuple(memoryview(array).shape or ())
    except (TypeError, ValueError, BufferError) as error:
        kind = type(array).__name__
        raise InvalidArgument(f"array is a {kind}: pass a NumPy array, or give out= for the result") from error


def empty(like: Any, shape: tuple[int, ...]) -> Any:
    """An uninitialised array of `like`'s kind and element type: PyTorch's for PyTorch's, NumPy's for all
    others.
    """
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    import numpy

    dtype = getattr(like, "dtype", None)
    if isinstance(dtype, numpy.dtype):
        return numpy.empty(shape, dtype)
    try:
        dtype = numpy.from_dlpack(like).dtype if hasattr(like, "__dlpack__") else numpy.asarray(memoryview(like)).dtype
    except Exception as error:  # the object's own methods run
        kind = type(like).__name__
        raise InvalidArgument(f"array is a {kind}, of which no other can be made ({error}): give out=") from error
    return numpy.empty(shape, dtype)


def parts(shape: tuple[int, ...], size: int, what: str) -> tuple[int, ...]:
    """The shape of one of `size` equal parts along the first axis. Raises `InvalidArgument` if it does not
    divide.
    """
    if not shape or shape[0] % size != 0:
        raise InvalidArgument(
            f"{what} has shape {shape}: its first axis must be a multiple of the {size} ranks, or give out="
        )
    return (shape[0] // size, *shape[1:])


def whole(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape of `size` such arrays after one another along the first axis."""
    return (size * shape[0], *shape[1:]) if shape else (size,)


def expect_shape(shape: tuple[int, ...], **arrays: Any) -> None:
    """Raises `InvalidArgument` for the first of `arrays` that is there and has another shape."""
    for name, array in arrays.items():
        if array is not None and (found := shape_of(array)) != shape:
            raise InvalidArgument(f"{name} has shape {found} and needs {shape}")

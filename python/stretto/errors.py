"""What can go wrong, one class per `ncclResult_t`.

The text of an error is the library's own (`ncclGetLastError`): what failed, on which rank and to which peer,
the likely cause and the next step.
"""

from __future__ import annotations

from typing import ClassVar

from stretto import failures


class StrettoError(Exception):
    """Base of all errors of the library. `code` is the `ncclResult_t`, 0 where no call of the library was
    involved.
    """

    code: ClassVar[int] = 0


class UnhandledCudaError(StrettoError):
    """A CUDA call failed."""

    code = 1


class SystemCallError(StrettoError, OSError):
    """The operating system or the network refused something that the library needs."""

    code = 2

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class InternalError(StrettoError):
    """A mistake of the library itself: please report it with the text."""

    code = 3


class InvalidArgument(StrettoError, ValueError):
    """One argument is wrong by itself: a shape, a type, a rank out of range."""

    code = 4


class InvalidUsage(StrettoError):
    """The call is wrong here: out of order, not supported, or the ranks disagree about it."""

    code = 5


class RemoteError(StrettoError):
    """A peer died, aborted, cannot be reached or did not come in time."""

    code = 6


class Timeout(StrettoError, TimeoutError):
    """The other ranks of the job were not found within `STRETTO_INIT_TIMEOUT` seconds."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


_BY_CODE: dict[int, type[StrettoError]] = {
    kind.code: kind
    for kind in (
        UnhandledCudaError,
        SystemCallError,
        InternalError,
        InvalidArgument,
        InvalidUsage,
        RemoteError,
    )
}


def from_result(code: int, text: str) -> StrettoError:
    """The exception for an `ncclResult_t` other than success."""
    kind = _BY_CODE.get(code)
    if kind is RemoteError:
        failures.current().note_loss()
    return kind(text) if kind is not None else StrettoError(f"ncclResult_t {code}: {text}")

"""What may be an array, what is refused, and in which words."""

from __future__ import annotations

import array
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import stretto


class OnlyDlpack:
    """An array that speaks DLPack and nothing else; `versioned` is whether it knows DLPack 1.0."""

    def __init__(self, values: Any, versioned: bool = True) -> None:
        self.values = values
        self.versioned = versioned

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.versioned:
            raise TypeError("unexpected argument max_version")
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OnDevice(OnlyDlpack):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def refused(function: Callable[[stretto.Communicator], object], words: str) -> None:
    """One rank is enough: wrong arguments are refused before anything is sent."""
    with comm_of_one() as comm, pytest.raises(stretto.InvalidArgument, match=words):
        function(comm)


def comm_of_one() -> stretto.Communicator:
    return stretto.init(rank=0, ranks=1, unique_id=stretto.unique_id())


def doubled(make: Callable[[], Any], see: Callable[[Any], Any], dtype: str | None = None) -> None:
    """Two ranks add up ones."""

    def body(comm: stretto.Communicator) -> None:
        x = make()
        assert comm.all_reduce(x, dtype=dtype) is x
        np.testing.assert_array_equal(see(x), np.full(6, 2))

    stretto.threads(2, body)


def test_buffers_of_other_types() -> None:
    doubled(lambda: array.array("d", [1] * 6), np.asarray)
    doubled(lambda: array.array("l", [1] * 6), np.asarray)
    doubled(lambda: bytearray([1] * 6), list)
    doubled(lambda: memoryview(bytearray([1] * 6)), list)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned: bool) -> None:
    for dtype in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint32", "uint64"):
        doubled(lambda dtype=dtype: OnlyDlpack(np.ones((2, 3), dtype), versioned), lambda x: x.values.ravel())


def test_dlpack_gives_the_array_back() -> None:
    import sys

    values = np.ones(6)
    before = sys.getrefcount(values)
    with comm_of_one() as comm:
        for _ in range(10):
            comm.all_reduce(OnlyDlpack(values))
    assert sys.getrefcount(values) == before


def test_torch_cpu_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        doubled(lambda dtype=dtype: torch.ones(6, dtype=dtype), lambda x: x.to(torch.float64).numpy())


def test_bytes_taken_as_another_type() -> None:
    ones = np.ones(6, ml_dtypes.bfloat16)
    doubled(lambda: ones.view(np.uint16).copy(), lambda x: x.view(ml_dtypes.bfloat16).astype(float), "bfloat16")
    doubled(lambda: bytearray(np.ones(6, "float32").tobytes()), lambda x: np.frombuffer(x, "float32"), "float32")
    doubled(
        lambda: np.ones(6, "float8_e4m3fn").view("uint8"),
        lambda x: x.view("float8_e4m3fn").astype(float),
        "float8_e4m3fn",
    )
    doubled(lambda: np.ones(6, ml_dtypes.bfloat16), lambda x: x.astype(float), ml_dtypes.bfloat16)  # type: ignore[arg-type]


def test_what_is_not_contiguous_is_refused() -> None:
    refused(lambda comm: comm.all_reduce(np.zeros(10)[::2]), "not contiguous")
    refused(lambda comm: comm.all_reduce(np.zeros((4, 4)).T), "not contiguous")
    refused(lambda comm: comm.all_reduce(OnlyDlpack(np.zeros((4, 4)).T)), "not contiguous")
    refused(lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(8)[::2]), "out is not contiguous")
    refused(lambda comm: comm.all_reduce(np.zeros((3, 3), ml_dtypes.bfloat16).T), "not contiguous")


def test_what_is_read_only_is_refused_where_it_is_written() -> None:
    x = np.zeros(4)
    x.flags.writeable = False
    refused(lambda comm: comm.all_reduce(x), "read-only")
    refused(lambda comm: comm.all_reduce(b"1234"), "read-only")
    with comm_of_one() as comm:
        comm.all_reduce(x, out=np.empty(4))
        comm.broadcast(x)  # root only reads
        comm.gather(x)


def test_what_is_no_array_is_refused() -> None:
    refused(lambda comm: comm.all_reduce([1, 2, 3]), "is a list: pass a NumPy array")
    refused(lambda comm: comm.all_reduce(3.0), "is a float")
    refused(lambda comm: comm.all_reduce(np.array([object()])), "holds Python objects")
    refused(lambda comm: comm.all_reduce(np.array([object()]), dtype="int64"), "holds Python objects")
    refused(lambda comm: comm.all_reduce(np.zeros(3, "int16")), "no collective takes")
    refused(lambda comm: comm.all_reduce(np.zeros(3, "complex64")), "no collective takes")
    refused(lambda comm: comm.all_reduce(OnDevice(np.zeros(3))), "not the CPU")


def test_wrong_shapes_types_and_names() -> None:
    refused(lambda comm: comm.all_reduce(np.zeros(3), out=np.zeros(4)), "3 elements and out has 4")
    refused(lambda comm: comm.all_reduce(np.zeros(3), out=np.zeros(3, "float32")), "float64 and out of type float32")
    refused(lambda comm: comm.all_reduce(np.zeros(3), "mean"), "operators are sum, prod")  # type: ignore[arg-type]
    refused(lambda comm: comm.all_reduce(np.zeros(3), dtype="float12"), "element types are int8")
    refused(lambda comm: comm.all_reduce(np.zeros(3), dtype="float32"), "cannot be taken as float32")
    refused(lambda comm: comm.all_to_all(x := np.zeros(3), out=x), "in place")
    refused(lambda comm: comm.broadcast(np.zeros(3), root=7), "7")
    refused(lambda comm: comm.scatter(None), "root must give")
    refused(lambda comm: comm.split(-2), "color")

    def body(comm: stretto.Communicator) -> None:
        with pytest.raises(stretto.InvalidArgument, match="multiple of the 2 ranks"):
            comm.reduce_scatter(np.zeros(3))
        with pytest.raises(stretto.InvalidArgument, match="size times out"):
            comm.reduce_scatter(np.zeros(4), out=np.zeros(3))
        if comm.rank == 1:
            with pytest.raises(stretto.InvalidArgument, match="out= on every rank but root"):
                comm.scatter(None)

    stretto.threads(2, body)


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(stretto.InvalidArgument, ValueError)
    assert issubclass(stretto.Timeout, TimeoutError)
    assert str(stretto.SystemCallError("no such thing")) == "no such thing"


def test_a_refused_array_is_not_held() -> None:
    """A bytearray cannot grow while somebody holds its buffer."""
    x = bytearray(7)
    refused(lambda comm: comm.all_reduce(x, dtype="float32"), "cannot be taken")
    x.append(1)


def test_other_threads_run_while_an_operation_waits() -> None:
    ticks = []
    comms = stretto.init_all(2)
    waiting = threading.Thread(target=lambda: comms[0].all_reduce(np.zeros(4)))
    waiting.start()
    for _ in range(20):
        time.sleep(0.005)
        ticks.append(1)
    assert waiting.is_alive(), "rank 1 has not called yet"
    comms[1].all_reduce(np.zeros(4))
    waiting.join(10)
    assert not waiting.is_alive()
    for comm in comms:
        comm.close()

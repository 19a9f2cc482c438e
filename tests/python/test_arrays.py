"""What may be an array, what is refused, and in which words."""

from __future__ import annotations

import array
import ctypes
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


class Odd:
    """An object whose DLPack methods give, or raise, what they are told."""

    def __init__(self, capsule: object, device: object = (1, 0)) -> None:
        self.capsule = capsule
        self.device = device

    @staticmethod
    def give(what: object) -> object:
        if isinstance(what, BaseException):
            raise what
        return what

    def __dlpack__(self, **options: object) -> object:
        return self.give(self.capsule)

    def __dlpack_device__(self) -> object:
        return self.give(self.device)


class OnlyCapsule:
    def __dlpack__(self, **options: object) -> object:
        return np.zeros(3).__dlpack__()


class DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


def capsule_of(tensor: DlTensor) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(tensor), b"dltensor", None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "array is a NoneType: pass a NumPy array"),
        ({}, "array is a dict: pass a NumPy array"),
        ([1, "a"], "array is a list: pass a NumPy array"),
        (Odd(None), "whose __dlpack__ returned a NoneType: it must be a DLPack capsule"),
        (Odd(5), "whose __dlpack__ returned a int"),
        (Odd(BufferError("no export")), "array is a Odd, whose __dlpack__ raised BufferError: no export"),
        (Odd(TypeError("mine")), "whose __dlpack__ raised TypeError: mine"),
        (Odd(None, ValueError("nowhere")), "whose __dlpack_device__ raised ValueError: nowhere"),
        (Odd(None, 5), "whose __dlpack_device__ returned a int: it must be a tuple of two"),
        (Odd(None, ()), "whose __dlpack_device__ returned a tuple: it must be a tuple of two"),
        (Odd(None, ("cpu", 0)), "whose __dlpack_device__ returned a tuple: it must be a tuple of two whole"),
        (OnlyCapsule(), "has __dlpack__ and no __dlpack_device__"),
    ],
)
def test_odd_arrays_are_refused_in_words(given: object, words: str) -> None:
    refused(lambda comm: comm.all_reduce(given), words)
    refused(lambda comm: comm.send(given, 0), words)
    if given is not None:  # for `out` that means none
        refused(lambda comm: comm.all_reduce(np.zeros(3), out=given), words.replace("array is", "out is"))


def test_an_array_that_fails_by_itself_is_the_cause() -> None:
    own = BufferError("no export")
    with comm_of_one() as comm, pytest.raises(stretto.InvalidArgument) as caught:
        comm.all_reduce(Odd(own))
    assert caught.value.__cause__ is own
    with comm_of_one() as comm, pytest.raises(KeyboardInterrupt):
        comm.all_reduce(Odd(KeyboardInterrupt()))


def test_a_capsule_is_taken_once_and_a_memoryview_is_not_released() -> None:
    used = np.zeros(3).__dlpack__()
    np.from_dlpack(Odd(used))
    refused(lambda comm: comm.all_reduce(Odd(used)), "not return a fresh DLPack capsule .its name is used_dltensor")
    view = memoryview(bytearray(8))
    view.release()
    refused(lambda comm: comm.all_reduce(view), "array is a memoryview, whose buffer raised ValueError: operation forb")


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimensions": -1},
        {"dimensions": 1 << 30},
        {"shape": (-3,)},
        {"shape": (1 << 62,)},
        {"shape": (1 << 40, 1 << 40), "dimensions": 2},
        {"shape": None},
        {"data": None},
        {"bits": 0},
        {"lanes": 0},
    ],
)
def test_a_tensor_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    values = (ctypes.c_float * 3)(1, 2, 3)
    sizes = wrong.get("shape", (3,))
    shape = (ctypes.c_int64 * 4)(*(sizes or ()))
    tensor = DlTensor(ctypes.addressof(values), 1, 0, 1, 2, 32, 1, shape, None, 0)
    if "shape" not in wrong:  # without what is wrong it would be taken
        with comm_of_one() as comm:
            comm.all_reduce(Odd(capsule_of(tensor)))
    for name, value in wrong.items():
        if name != "shape":
            setattr(tensor, name, value)
        elif value is None:
            tensor.shape = ctypes.POINTER(ctypes.c_int64)()
    refused(lambda comm: comm.all_reduce(Odd(capsule_of(tensor))), "makes no sense")


def test_what_is_no_shape_is_refused() -> None:
    class Shaped:
        shape: object = 5

    refused(lambda comm: comm.all_gather(Shaped()), "whose shape is not one of numbers")
    Shaped.shape = ("a",)
    refused(lambda comm: comm.all_gather(Shaped()), "whose shape is not one of numbers")
    Shaped.shape = (3,)
    refused(lambda comm: comm.all_gather(Shaped()), "of which no other can be made")
    refused(lambda comm: comm.all_gather(None), "array is a NoneType")
    refused(lambda comm: comm.reduce_scatter([1, "a"]), "array is a list")


BIG = 1 << 70


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda comm, x: comm.all_reduce(x, stream=5), "stream=5: it must be a stretto.Stream or None"),
        (lambda comm, x: comm.all_reduce(x, stream=comm), "it must be a stretto.Stream or None"),
        (lambda comm, x: comm.all_reduce(x, ["sum"]), "operators are sum"),
        (lambda comm, x: comm.all_reduce(x, dtype=[1]), "element types are int8"),
        (lambda comm, x: comm.all_reduce(x, dtype="float64\0x"), "element types are int8"),
        (lambda comm, x: comm.broadcast(x, root="a"), "root='a': it must be a whole number, and is a str"),
        (lambda comm, x: comm.broadcast(x, root=1.5), "root=1.5: it must be a whole number"),
        (lambda comm, x: comm.broadcast(x, root=BIG), "root=1180591620717411303424: it must be"),
        (lambda comm, x: comm.reduce(x, root=-1), "root=-1: the ranks of this communicator are 0 to 0"),
        (lambda comm, x: comm.reduce(x, root=None), "root=None: it must be a whole number"),
        (lambda comm, x: comm.gather(x, root="0"), "root='0'"),
        (lambda comm, x: comm.scatter(x, root=7), "root=7: the ranks"),
        (lambda comm, x: comm.send(x, "a"), "peer='a'"),
        (lambda comm, x: comm.recv(x, 1 << 40), "peer=1099511627776: the ranks"),
        (lambda comm, x: comm.split("a"), "color='a'"),
        (lambda comm, x: comm.split(BIG), "color=.* it must be"),
        (lambda comm, x: comm.split(0, "a"), "key='a'"),
        (lambda comm, x: comm.shrink(5), "exclude=5: it must be a list of ranks"),
        (lambda comm, x: comm.shrink(["a"]), "exclude='a'"),
        (lambda comm, x: comm.shrink([-1]), "exclude=-1: the ranks"),
        (lambda comm, x: comm.explain(5, 4), "collective=5: it must be a text"),
        (lambda comm, x: comm.explain("all_reduce", -1), "size=-1: it must be 0 to"),
        (lambda comm, x: comm.explain("all_reduce", 4, dtype=None), "dtype=None"),
        (lambda comm, x: comm.force("all_reduce", 5), "algorithm=5"),
        (lambda comm, x: comm.force("all_reduce", None, None, -1), "chunk_bytes=-1"),
        (lambda comm, x: comm.pre_mul_sum("x"), "scalar='x': it must be a number that is an element of type float32"),
        (lambda comm, x: comm.pre_mul_sum(2.0, None), "dtype=None"),
        (lambda comm, x: comm.pre_mul_sum(300, "int8"), "scalar=300"),
        (lambda comm, x: comm.pre_mul_sum(2.5, "int32"), "scalar=2.5"),
        (lambda comm, x: comm.pre_mul_sum(1e300, "bfloat16"), "element of type bfloat16"),
        (lambda comm, x: comm.pre_mul_sum(1e300, "float16"), "element of type float16"),
        (lambda comm, x: comm.pre_mul_sum(1e6, "float8e4m3"), "element of type float8e4m3"),
        (lambda comm, x: comm.pre_mul_sum(x), "scalar=array"),
        (lambda comm, x: stretto.explain("all_reduce", 4, "a"), "ranks='a'"),
        (lambda comm, x: stretto.doctor(5), "target=5"),
        (lambda comm, x: stretto.init_all("3"), "ranks='3'"),
        (lambda comm, x: stretto.init_all(1 << 31), "ranks=2147483648: it must be 1 to"),
        (lambda comm, x: stretto.threads("2", print), "ranks='2'"),
        (lambda comm, x: stretto.threads(1, None), "function=None"),
        (lambda comm, x: stretto.init(rank="0", ranks=1, unique_id=bytes(128)), "rank='0'"),
        (lambda comm, x: stretto.init(rank=0, ranks=1, unique_id="abc"), "unique_id='abc'"),
        (lambda comm, x: stretto.init(name=5), "name=5: it must be a text"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call: Callable[[Any, Any], object], words: str) -> None:
    refused(lambda comm: call(comm, np.zeros(4)), words)


def test_whole_numbers_of_other_kinds_are_taken() -> None:
    with comm_of_one() as comm:
        assert comm.broadcast(np.ones(3), root=np.int64(0))[0] == 1
        with comm.pre_mul_sum(np.float32(3), "int32") as triple:
            assert comm.all_reduce(np.ones(3, "int32"), triple)[0] == 3
        with comm.pre_mul_sum(float("inf"), "float16") as endless:
            assert comm.all_reduce(np.ones(3, "float16"), endless)[0] == np.inf


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

"""What the PyTorch backend asks of the binding: arrays by their addresses, and communicators for host memory whatever
STRETTO_DEVICE says.
"""

from __future__ import annotations

import sys

import numpy
import pytest
import stretto
from stretto import _native
from stretto.values import DTYPES

FLOAT32 = DTYPES.index("float32")


def memory(array: numpy.ndarray, count: int | None = None) -> _native.Memory:
    return _native.Memory(array.ctypes.data, array.size if count is None else count, FLOAT32, array)


def test_an_address_stands_for_an_array() -> None:
    def body(comm: stretto.Communicator) -> list[float]:
        x, out = numpy.full(5, comm.rank + 1, "float32"), numpy.zeros(5, "float32")
        comm._native.all_reduce(memory(x), memory(out), 0, -1, None)
        here = memory(out)
        comm._native.all_reduce(here, here, 0, -1, None)
        return [float(value) for value in out]

    assert stretto.threads(2, body) == [[6.0] * 5] * 2


def test_addresses_are_held_to_what_arrays_are() -> None:
    with stretto.init_all(1)[0] as comm:
        x, out = numpy.zeros(5, "float32"), numpy.zeros(4, "float32")
        with pytest.raises(stretto.InvalidArgument, match="5 elements and out has 4"):
            comm._native.all_reduce(memory(x), memory(out), 0, -1, None)
    for wrong in (-1, len(DTYPES)):
        with pytest.raises(stretto.InvalidArgument, match="type"):
            _native.Memory(x.ctypes.data, 5, wrong, x)


def test_memory_keeps_its_owner() -> None:
    x = numpy.zeros(5, "float32")
    before = sys.getrefcount(x)
    here = memory(x)
    assert sys.getrefcount(x) == before + 1
    del here
    assert sys.getrefcount(x) == before


def test_a_host_rank_asks_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # A value that is none: whoever reads it is refused.
    monkeypatch.setenv("STRETTO_DEVICE", "abacus")
    with pytest.raises(stretto.InvalidUsage, match="STRETTO_DEVICE=abacus"):
        _native.join(1, _native.make_unique_id(), 0, "")
    native = _native.join(1, _native.make_unique_id(), 0, "", host=True)
    x = numpy.full(3, 2, "float32")
    native.all_reduce(memory(x), memory(x), 0, -1, None)
    assert x.tolist() == [2.0] * 3
    child = native.split(0, 0)
    assert child is not None
    child.destroy()
    native.destroy()

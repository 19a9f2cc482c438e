"""Every collective, type and operator through NumPy, against an oracle; ranks are threads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import stretto
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import TYPES, assert_same, reduced, source

OPS = ("sum", "prod", "max", "min", "avg")


def parts(whole: Any, ranks: int, rank: int) -> Any:
    return np.split(whole, ranks)[rank]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_reductions_of_every_type_and_operator(dtype: str, op: str) -> None:
    ranks, count = 3, 101
    inputs = [source(dtype, ranks * count, rank, op) for rank in range(ranks)]
    right = reduced(inputs, op)

    def body(comm: stretto.Communicator) -> None:
        mine = inputs[comm.rank]
        out = np.empty_like(mine)
        assert comm.all_reduce(mine, op, out=out) is out
        assert_same(out, right, op)
        assert_same(mine, inputs[comm.rank])
        in_place = mine.copy()
        assert comm.all_reduce(in_place, op) is in_place
        assert_same(in_place, right, op)
        assert_same(comm.reduce_scatter(mine, op), parts(right, ranks, comm.rank), op)
        result = comm.reduce(mine, op, root=1, out=np.empty_like(mine) if comm.rank == 1 else None)
        assert (result is None) == (comm.rank != 1)
        if result is not None:
            assert_same(result, right, op)

    stretto.threads(ranks, body)


@pytest.mark.parametrize("dtype", TYPES)
def test_movements_of_every_type(dtype: str) -> None:
    ranks, count = 4, 33
    small = [source(dtype, count, rank) for rank in range(ranks)]
    large = [source(dtype, ranks * count, rank) for rank in range(ranks)]

    def body(comm: stretto.Communicator) -> None:
        rank = comm.rank
        assert_same(comm.all_gather(small[rank]), np.concatenate(small))
        assert_same(comm.all_to_all(large[rank]), np.concatenate([parts(one, ranks, rank) for one in large]))
        assert_same(comm.broadcast(small[rank].copy(), root=2), small[2])
        gathered = comm.gather(small[rank], root=3)
        assert (gathered is None) == (rank != 3)
        if gathered is not None:
            assert_same(gathered, np.concatenate(small))
        part = np.empty(count, TYPES[dtype])
        assert_same(comm.scatter(large[rank] if rank == 1 else None, root=1, out=part), parts(large[1], ranks, rank))
        other = np.empty_like(small[rank])
        with comm.group():
            comm.send(small[rank], (rank + 1) % ranks)
            comm.recv(other, (rank - 1) % ranks)
        assert_same(other, small[(rank - 1) % ranks])

    stretto.threads(ranks, body)


def test_a_probe_says_whose_message_is_there() -> None:
    def body(comm: stretto.Communicator) -> None:
        if comm.rank != 0:
            comm.send(np.full(1000, comm.rank), 0)
            return
        waits = {1, 2}
        while waits:
            for peer in [peer for peer in waits if comm.probe(peer)]:
                assert_same(comm.recv(np.empty(1000, int), peer), np.full(1000, peer))
                waits.remove(peer)
        with pytest.raises(stretto.InvalidArgument, match="peer=3"):
            comm.probe(3)
        until = time.monotonic() + 20
        with pytest.raises(stretto.RemoteError, match="rank 1, which has finalised"):
            while time.monotonic() < until:
                assert not comm.probe(1)

    stretto.threads(3, body)


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(1, 6),
    count=st.one_of(st.integers(0, 40), st.integers(1000, 70_000)),
    dtype=st.sampled_from(("int8", "float16", "float32", "float64", "bfloat16")),
    offset=st.integers(0, 3),
    op=st.sampled_from(("sum", "max", "min")),
)
def test_any_count_and_alignment(ranks: int, count: int, dtype: str, offset: int, op: str) -> None:
    inputs = [source(dtype, ranks * count, rank, op) for rank in range(ranks)]
    right = reduced(inputs, op)

    def shifted(array: Any) -> Any:
        """A copy at an address that is a multiple of the element's size and of nothing larger."""
        room = np.empty(array.size + offset, array.dtype)[offset:]
        room[...] = array
        return room

    def body(comm: stretto.Communicator) -> None:
        mine = shifted(inputs[comm.rank])
        assert_same(comm.reduce_scatter(mine, op), parts(right, ranks, comm.rank))
        part = shifted(parts(inputs[comm.rank], ranks, 0))
        assert_same(comm.all_gather(part), np.concatenate([parts(one, ranks, 0) for one in inputs]))
        assert_same(comm.all_reduce(mine, op), right)

    stretto.threads(ranks, body)


def test_in_place_forms() -> None:
    ranks, count = 4, 10

    def body(comm: stretto.Communicator) -> None:
        whole = np.full(ranks * count, -1.0)
        mine = whole[comm.rank * count : (comm.rank + 1) * count]
        mine[:] = comm.rank
        assert comm.all_gather(mine, out=whole) is whole
        np.testing.assert_array_equal(whole, np.repeat(np.arange(4.0), count))
        comm.reduce_scatter(whole, out=mine)
        np.testing.assert_array_equal(mine, np.full(count, 4.0 * comm.rank))

    stretto.threads(ranks, body)


def test_shapes_of_results() -> None:
    def body(comm: stretto.Communicator) -> None:
        assert comm.all_gather(np.zeros((3, 5), "float32")).shape == (6, 5)
        assert comm.all_gather(np.zeros(())).shape == (2,)
        assert comm.reduce_scatter(np.zeros((4, 7), "int32")).shape == (2, 7)
        assert comm.all_to_all(np.zeros((4, 2), "int8")).shape == (4, 2)
        assert comm.all_reduce(np.zeros((2, 3, 4))).shape == (2, 3, 4)

    stretto.threads(2, body)


def test_pre_mul_sum() -> None:
    def body(comm: stretto.Communicator) -> None:
        for dtype in ("float32", "float16", "bfloat16", "float8e5m2", "int32"):
            x = source(dtype, 50, comm.rank)
            right = reduced([source(dtype, 50, rank) * TYPES[dtype](rank + 1) for rank in range(2)], "sum")
            with comm.pre_mul_sum(comm.rank + 1, dtype=dtype) as op:
                assert_same(comm.all_reduce(x, op), right)
        with pytest.raises(stretto.InvalidArgument, match="closed"):
            comm.all_reduce(np.zeros(4, "float32"), op)

    stretto.threads(2, body)


def test_one_thread_drives_all_ranks_in_a_group() -> None:
    comms = stretto.init_all(3)
    assert [comm.rank for comm in comms] == [0, 1, 2]
    arrays = [np.full(8, comm.rank, "int64") for comm in comms]
    with stretto.group():
        for comm, array in zip(comms, arrays, strict=True):
            comm.all_reduce(array)
    assert all((array == 3).all() for array in arrays)
    with pytest.raises(ZeroDivisionError), stretto.group():
        comms[0].all_reduce(arrays[0])
        raise ZeroDivisionError
    assert (arrays[0] == 3).all(), "a group that raises submits nothing"
    for comm in comms:
        comm.close()


def test_arrays_of_a_group_are_kept_until_it_ends() -> None:
    comms = stretto.init_all(2)
    with stretto.group():
        results = [comm.all_gather(np.full(1000, comm.rank, "int32")) for comm in comms]
    for result in results:
        np.testing.assert_array_equal(result, np.repeat([0, 1], 1000))
    for comm in comms:
        comm.close()


def test_streams_return_at_once_and_keep_order() -> None:
    def body(comm: stretto.Communicator) -> None:
        with stretto.Stream() as stream:
            x = np.ones(100_000, "float32")
            for _ in range(5):
                comm.all_reduce(x, stream=stream)
            comm.all_reduce(np.ones(10), stream=stream)  # kept alive by the stream
            stream.synchronize()
            assert stream.idle()
            assert (x == 2.0**5).all()

    stretto.threads(2, body)


def test_split_shrink_and_barrier() -> None:
    def body(comm: stretto.Communicator) -> None:
        child = comm.split(color=comm.rank % 2, key=-comm.rank)
        assert child is not None and child.size == 2
        assert child.rank == (0 if comm.rank >= 2 else 1), "the larger rank has the smaller key"
        x = child.all_reduce(np.array([comm.rank]))
        assert x[0] == {0: 2, 1: 4}[comm.rank % 2]
        child.close()
        assert (comm.split(color=None if comm.rank == 3 else 0) is None) == (comm.rank == 3)
        comm.barrier()
        if comm.rank != 1:
            fewer = comm.shrink([1])
            assert (fewer.rank, fewer.size) == ({0: 0, 2: 1, 3: 2}[comm.rank], 3)
            fewer.barrier()
            fewer.close()

    stretto.threads(4, body)


def test_counters_explain_and_force() -> None:
    def body(comm: stretto.Communicator) -> None:
        x = np.zeros(1024, "float32")
        for _ in range(3):
            comm.all_reduce(x)
        counters = comm.counters()
        assert counters["operations"] == 3 and counters["bytes"] == 3 * x.nbytes and counters["init_ns"] > 0
        document = comm.explain("all_reduce", x.nbytes)
        assert document["schema"] == "stretto.explain/1" and document["chosen"] is not None
        other = next(one for one in document["candidates"] if one["possible"] and not one["chosen"])
        comm.force("all_reduce", other["algorithm"], other["protocol"])
        forced = comm.explain("all_reduce", x.nbytes)
        assert (forced["chosen"]["algorithm"], forced["why"]) == (other["algorithm"], "forced")
        comm.all_reduce(x)
        comm.force("all_reduce", None)
        assert comm.explain("all_reduce", x.nbytes)["chosen"] == document["chosen"]
        with pytest.raises(stretto.StrettoError, match="one_shot"):
            comm.force("all_reduce", "no_such_algorithm")

    stretto.threads(2, body)


def normalised(added: Any, weight: Any, epsilon: float) -> Any:
    wide = added.astype("float64")
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + epsilon) * weight.astype("float64")


@pytest.mark.parametrize("shape", [(1, 512), (2, 3, 1000), (40, 7)])
def test_all_reduce_add_rms_norm(shape: tuple[int, ...]) -> None:
    ranks = 3
    random = np.random.default_rng(5)
    inputs = [random.standard_normal(shape).astype("float32") for _ in range(ranks)]
    residual = random.standard_normal(shape).astype("float32")
    weight, bias = (random.standard_normal(shape[-1]).astype("float32") for _ in range(2))

    def body(comm: stretto.Communicator) -> None:
        mine, kept = inputs[comm.rank].copy(), residual.copy()
        total = np.empty_like(mine)
        out, added = comm.all_reduce_add_rms_norm(mine, kept, weight, epsilon=1e-5, bias=bias, reduced=total)
        assert out is mine and added is kept
        np.testing.assert_allclose(total, sum(inputs), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(added, total + residual + bias, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(out, normalised(added, weight, 1e-5), rtol=1e-5, atol=1e-6)
        again, other = comm.all_reduce_add_rms_norm(inputs[comm.rank], out=np.empty_like(mine))
        np.testing.assert_array_equal(other, total)
        np.testing.assert_allclose(again, normalised(total, np.ones(shape[-1]), 1e-6), rtol=1e-5, atol=1e-6)

    stretto.threads(ranks, body)


def test_all_reduce_add_rms_norm_in_eight_bits() -> None:
    rows, hidden = 5, 64
    inputs = np.arange(rows * hidden, dtype="float32").reshape(rows, hidden) / 100

    def body(comm: stretto.Communicator) -> None:
        quantised = stretto.Quantised(np.empty((rows, hidden), "uint8"), np.empty(rows, "float32"))
        out, _ = comm.all_reduce_add_rms_norm(inputs.copy(), quantised=quantised)
        np.testing.assert_array_equal(quantised.scales, abs(out).max(-1) / np.float32(448))
        # The largest of each token is the largest number of the type.
        assert (quantised.array.max(-1) == 0x7E).all()
        one = stretto.Quantised(quantised.array, np.array([np.inf], "float32"), "float8e5m2", per_token=False)
        comm.all_reduce_add_rms_norm(inputs.copy(), quantised=one)
        assert not quantised.array.any()

    stretto.threads(2, body)


def test_what_all_reduce_add_rms_norm_refuses() -> None:
    def body(comm: stretto.Communicator) -> None:
        array = np.ones((2, 8), "float32")
        with pytest.raises(stretto.InvalidArgument, match=r"residual has shape \(8,\) and needs \(2, 8\)"):
            comm.all_reduce_add_rms_norm(array, np.ones(8, "float32"))
        with pytest.raises(stretto.InvalidArgument, match=r"residual_out has shape \(16,\) and needs \(2, 8\)"):
            comm.all_reduce_add_rms_norm(array, residual_out=np.ones(16, "float32"))
        with pytest.raises(stretto.InvalidArgument, match=r"bias has shape \(2, 4\) and needs \(8,\)"):
            comm.all_reduce_add_rms_norm(array, bias=np.ones((2, 4), "float32"))
        with pytest.raises(stretto.InvalidArgument, match="weight has elements of type float64 and needs float32"):
            comm.all_reduce_add_rms_norm(array, None, np.ones(8, "float64"))
        with pytest.raises(stretto.InvalidArgument, match="array has no axis"):
            comm.all_reduce_add_rms_norm(np.float32(1).reshape(()))
        with pytest.raises(stretto.InvalidArgument, match="tokens are float32, float16 or bfloat16"):
            comm.all_reduce_add_rms_norm(np.ones((2, 8), "int32"))

    stretto.threads(1, body)

"""Every operation of the PyTorch backend, one after another in one job: each case runs on all ranks, and says what must
come out.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from pytorch_job import RANK, SIZE, Op, case, everybodys, mine, of, reduced, refuses, same
from torch.distributed import distributed_c10d

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
WHOLES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
ARITHMETIC = (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG)
BITWISE = (Op.BAND, Op.BOR, Op.BXOR)


def _kinds() -> list[tuple[Any, Any]]:
    kinds = [(op, dtype) for op in ARITHMETIC for dtype in FLOATS + WHOLES]
    kinds += [(op, dtype) for op in BITWISE for dtype in WHOLES]
    kinds += [(op, torch.bool) for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, *BITWISE)]
    return kinds


@case
def every_operator_and_type() -> None:
    for op, dtype in _kinds():
        for shape in ((7,), (SIZE, 3), (), (0,)):
            x = mine(shape, dtype)
            dist.all_reduce(x, op)
            same(x, reduced(op, dtype, shape))
            y = mine(shape, dtype)
            dist.reduce(y, SIZE - 1, op)
            same(y, reduced(op, dtype, shape) if RANK == SIZE - 1 else mine(shape, dtype))
        out = torch.empty(3, dtype=dtype)
        dist.reduce_scatter_tensor(out, mine((SIZE * 3,), dtype), op)
        same(out, reduced(op, dtype, (SIZE * 3,))[3 * RANK : 3 * RANK + 3])


@case
def complex_numbers() -> None:
    for dtype in (torch.complex64, torch.complex128):
        x = mine(dtype=dtype) * (1 + 2j)
        dist.all_reduce(x)
        same(x, sum(row * (1 + 2j) for row in everybodys(dtype=dtype)))
        y = mine(dtype=dtype)
        options = distributed_c10d.AllreduceOptions()
        options.reduceOp = Op.PRODUCT
        dist.group.WORLD.allreduce([y], options).wait()
        same(y, reduced(Op.PRODUCT, dtype))
        z = torch.conj(mine(dtype=dtype) * 1j)
        dist.group.WORLD.broadcast([z], distributed_c10d.BroadcastOptions()).wait()
        same(z.resolve_conj(), of(0, dtype=dtype) * -1j)
        negative = torch.conj(mine(dtype=dtype) * 1j).imag
        dist.all_reduce(negative)
        same(negative.resolve_neg(), -sum(row.real for row in everybodys(dtype=dtype)))


@case
def multiplied_first() -> None:
    x = mine()
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    same(x, reduced(Op.SUM, torch.float32) * 0.5)
    refuses(
        ValueError, "floating-point", lambda: dist.all_reduce(mine(dtype=torch.int32), dist._make_nccl_premul_sum(2.0))
    )


@case
def refused_kinds() -> None:
    refuses(ValueError, "BAND of torch.float32", lambda: dist.all_reduce(mine(), Op.BAND))
    refuses(ValueError, "AVG of torch.bool", lambda: dist.all_reduce(mine(dtype=torch.bool), Op.AVG))
    refuses(ValueError, "layout", lambda: dist.all_reduce(mine().to_sparse()))
    refuses(ValueError, "and got one of", lambda: dist.all_gather_into_tensor(torch.empty(5), mine()))
    mixed = [mine((3,), torch.float64), *(mine((3,)) for _ in range(SIZE - 1))]
    refuses(ValueError, "torch.float64", lambda: dist.group.WORLD.reduce_scatter([torch.empty(3)], [mixed]))
    refuses(
        ValueError,
        "split sizes",
        lambda: dist.all_to_all_single(torch.empty(9), torch.empty(9), [9] * SIZE, [9] * SIZE),
    )
    refuses(ValueError, "this rank itself", lambda: dist.group.WORLD.send([mine()], RANK, 0))
    dist.barrier()  # Nothing was begun.


@case
def not_contiguous() -> None:
    x = mine((6, 4)).t()
    dist.all_reduce(x)
    same(x, reduced(Op.SUM, torch.float32, (6, 4)).t())
    whole = mine((8,)).clone()
    dist.broadcast(whole[::2], 1)
    wanted = mine((8,))
    wanted[::2] = of(1, (8,))[::2]
    same(whole, wanted)
    out = torch.zeros(3, SIZE).t()
    dist.all_gather_into_tensor(out.contiguous().view(-1), mine((3,)))
    rows = [torch.zeros(3, 2).t() for _ in range(SIZE)]
    dist.all_gather(rows, mine((2, 3)))
    for rank, row in enumerate(rows):
        same(row, of(rank, (2, 3)))


@case
def moved_types() -> None:
    """Whatever the elements are, their bytes move."""
    types = [*FLOATS, *WHOLES, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
    for dtype in types:
        x = mine(dtype=dtype)
        dist.broadcast(x, 1)
        same(x, of(1, dtype=dtype))
        rows = [torch.empty(7, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(rows, mine(dtype=dtype))
        for rank, row in enumerate(rows):
            same(row, of(rank, dtype=dtype))
        parts = everybodys((3,), dtype) if RANK == 0 else None
        got = torch.empty(3, dtype=dtype)
        dist.scatter(got, parts, 0)
        same(got, of(RANK, (3,), dtype))
        back = [torch.empty(3, dtype=dtype) for _ in range(SIZE)] if RANK == 0 else None
        dist.gather(got, back, 0)
        for rank, row in enumerate(back or []):
            same(row, of(rank, (3,), dtype))


@case
def gathers() -> None:
    out = torch.empty(SIZE * 7)
    dist.all_gather_into_tensor(out, mine())
    same(out, torch.cat(everybodys()))
    uneven = [torch.empty(rank + 1) for rank in range(SIZE)]
    dist.all_gather(uneven, mine((RANK + 1,)))
    for rank, row in enumerate(uneven):
        same(row, of(rank, (rank + 1,)))
    one = torch.empty(SIZE, 5)
    dist.all_gather(list(one.unbind()), mine((5,)))
    same(one, torch.stack(everybodys((5,))))
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(SIZE)]
    dist.all_gather_coalesced(lists, [mine((2,)), mine((3,))])
    for rank, row in enumerate(lists):
        same(row[0], of(rank, (2,)))
        same(row[1], of(rank, (3,)))


@case
def reduce_scatters() -> None:
    out = torch.empty(4)
    dist.reduce_scatter(out, [mine((4,)) + part for part in range(SIZE)])
    same(out, sum(row + RANK for row in everybodys((4,))))
    uneven = torch.empty(RANK + 1)
    dist.reduce_scatter(uneven, [mine((part + 1,)) for part in range(SIZE)], Op.MAX)
    same(uneven, reduced(Op.MAX, torch.float32, (RANK + 1,)))


@case
def all_to_alls() -> None:
    source = torch.arange(2 * SIZE) + 100 * RANK
    out = torch.empty_like(source)
    dist.all_to_all_single(out, source)
    same(out, torch.cat([torch.arange(2 * RANK, 2 * RANK + 2) + 100 * rank for rank in range(SIZE)]))
    # Rank a gives rank b as many rows as a + b, which is none for (0, 0).
    rows = torch.cat([torch.full((RANK + peer, 3), 10 * RANK + peer) for peer in range(SIZE)])
    sizes = [RANK + peer for peer in range(SIZE)]
    got = torch.empty((sum(sizes), 3), dtype=rows.dtype)
    dist.all_to_all_single(got, rows, sizes, sizes)
    same(got, torch.cat([torch.full((RANK + peer, 3), 10 * peer + RANK) for peer in range(SIZE)]))
    lists = [torch.empty(peer + RANK + 1) for peer in range(SIZE)]
    dist.all_to_all(lists, [torch.full((RANK + peer + 1,), 1.0 * RANK) for peer in range(SIZE)])
    for peer, row in enumerate(lists):
        same(row, torch.full((RANK + peer + 1,), 1.0 * peer))


@case
def coalesced() -> None:
    tensors = [mine((3,)), mine((5, 2)), mine(())]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same(tensor, reduced(Op.SUM, torch.float32, tensor.shape))
    with dist._coalescing_manager() as manager:
        ones = [mine((3,)), mine((4,))]
        for tensor in ones:
            dist.all_reduce(tensor)
    for tensor in ones:
        same(tensor, reduced(Op.SUM, torch.float32, tensor.shape))
    outs = [torch.empty(2 * SIZE), torch.empty(3 * SIZE)]
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_gather_into_tensor(outs[0], mine((2,)))
        dist.all_gather_into_tensor(outs[1], mine((3,)))
    manager.wait()
    same(outs[0], torch.cat(everybodys((2,))))
    same(outs[1], torch.cat(everybodys((3,))))
    parts = [torch.empty(2), torch.empty(3)]
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(parts[0], mine((2 * SIZE,)))
        dist.reduce_scatter_tensor(parts[1], mine((3 * SIZE,)))
    same(parts[0], reduced(Op.SUM, torch.float32, (2 * SIZE,))[2 * RANK :][:2])
    same(parts[1], reduced(Op.SUM, torch.float32, (3 * SIZE,))[3 * RANK :][:3])


@case
def large() -> None:
    for count in (1 << 14, 1 << 20, (1 << 22) + 3):
        x = mine((count,))
        dist.all_reduce(x)
        same(x, reduced(Op.SUM, torch.float32, (count,)))


@case
def asynchronous() -> None:
    tensors = [mine((count,)) for count in (3, 1 << 20, 5, 1 << 16)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    assert all(isinstance(work, dist.Work) for work in works)
    between = mine((9,))
    dist.all_reduce(between)  # After those before it.
    assert all(work.is_completed() for work in works)
    for work, tensor in zip(works, tensors, strict=True):
        assert work.wait() and work.is_success() and work.exception() is None
        same(tensor, reduced(Op.SUM, torch.float32, tensor.shape))
    same(between, reduced(Op.SUM, torch.float32, (9,)))


@case
def what_must_be_copied_is_copied_in_order() -> None:
    """Lists and tensors that are not contiguous: an operation sees what those before it in the queue have made."""
    x, square, whole = mine((4,)), mine((3, 3)), mine((4,), torch.int16)
    uneven = mine((RANK + 1,))
    parts, rows = torch.empty(4), [torch.empty(rank + 1) for rank in range(SIZE)]
    works = [
        dist.all_reduce(torch.ones(1 << 20), async_op=True),  # long enough for the others to be queued
        dist.all_reduce(x, async_op=True),
        dist.reduce_scatter(parts, [x for _ in range(SIZE)], async_op=True),
        dist.all_reduce(square, async_op=True),
        dist.all_reduce(square.t(), async_op=True),
        dist.broadcast(uneven[:1], 1, async_op=True),
        dist.all_gather(rows, uneven, async_op=True),
        dist.all_reduce(whole, async_op=True),
        dist.reduce(whole, 1, async_op=True),
    ]
    for work in works:
        work.wait()
    total = reduced(Op.SUM, torch.float32, (4,))
    same(x, total)
    same(parts, total * SIZE)
    same(square, reduced(Op.SUM, torch.float32, (3, 3)) * SIZE)
    for rank, row in enumerate(rows):
        same(row, torch.cat([of(1, (1,)), of(rank, (rank + 1,))[1:]]))
    same(whole, reduced(Op.SUM, torch.int16, (4,)) * (SIZE if RANK == 1 else 1))


@case
def returns_before_it_is_done() -> None:
    x = mine()
    if RANK == 0:
        work = dist.all_reduce(x, async_op=True)
        assert not work.is_completed()
        refuses(dist.DistBackendError, "it goes on", lambda: work.wait(timedelta(seconds=0.1)))
        dist.group.WORLD.get_group_store().set("go", "1")
        work.wait()
    else:
        while not dist.group.WORLD.get_group_store().check(["go"]):
            time.sleep(0.01)
        dist.all_reduce(x)
    same(x, reduced(Op.SUM, torch.float32))


@case
def futures() -> None:
    x = mine()
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), reduced(Op.SUM, torch.float32) * 2)
    y = mine()

    def again(_: Any) -> torch.Tensor:  # one that waits for another, within a callback
        result: torch.Tensor = dist.all_reduce(y, async_op=True).get_future().wait()[0]
        return result

    same(dist.all_reduce(mine(), async_op=True).get_future().then(again).wait(), reduced(Op.SUM, torch.float32))


@case
def sends_and_receives() -> None:
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in (1, 100, 1 << 20):
        got = torch.empty(count)
        # All wait for their left neighbour before anybody has been asked to send.
        receiving = dist.irecv(got, left)
        sending = dist.isend(mine((count,)), right)
        receiving.wait()
        sending.wait()
        same(got, of(left, (count,)))
    if RANK == 0:
        dist.send(torch.arange(4), 1)
        got = torch.empty(4, dtype=torch.int64)
        dist.recv(got, 1)
        same(got, torch.arange(4) + 1)
    elif RANK == 1:
        got = torch.empty(4, dtype=torch.int64)
        assert dist.recv(got, 0) == 0
        dist.send(got + 1, 0)


@case
def tags() -> None:
    if RANK == 0:
        works = [dist.isend(torch.full((3,), tag), 1, tag=tag) for tag in (7, 5, 6)]
        for work in works:
            work.wait()
    elif RANK == 1:
        got = {tag: torch.empty(3, dtype=torch.int64) for tag in (5, 6, 7)}
        works = [dist.irecv(got[tag], 0, tag=tag) for tag in (5, 6)]
        for work in works:
            work.wait()
        dist.recv(got[7], 0, tag=7)  # Which came first, and was kept.
        for tag, tensor in got.items():
            same(tensor, torch.full((3,), tag))


@case
def tags_wait_for_nobody() -> None:
    """The second receive is done although the first is not."""
    if RANK == 0:
        dist.send(torch.full((3,), 5), 1, tag=5)
        dist.recv(torch.empty(1), 1)
        dist.send(torch.full((3,), 3), 1, tag=3)
    elif RANK == 1:
        got = {tag: torch.empty(3, dtype=torch.int64) for tag in (3, 5)}
        works = {tag: dist.irecv(got[tag], 0, tag=tag) for tag in (3, 5)}
        works[5].wait()
        dist.send(torch.zeros(1), 0)
        works[3].wait()
        for tag, tensor in got.items():
            same(tensor, torch.full((3,), tag))


@case
def transfers_beside_collectives() -> None:
    got = torch.empty(5)
    receiving = dist.irecv(got, 1) if RANK == 0 else None
    x = mine()
    dist.all_reduce(x)
    if RANK == 1:
        dist.send(mine((5,)), 0)
    if receiving is not None:
        receiving.wait()
        same(got, of(1, (5,)))
    same(x, reduced(Op.SUM, torch.float32))


@case
def from_any_source() -> None:
    """What one rank sends comes in its order, and each message says whose it is."""
    messages = 30
    if RANK == 0:
        came = [0] * SIZE
        for _ in range(messages * (SIZE - 1)):
            got = torch.empty(3)
            source = dist.recv(got, tag=5)
            same(got, of(source, (3,)) + 10 * came[source])
            came[source] += 1
        assert came == [0] + [messages] * (SIZE - 1)
    else:
        for number in range(messages):
            dist.send(mine((3,)) + 10 * number, 0, tag=5)


@case
def from_any_source_beside_others() -> None:
    """Receives from any rank that wait for long leave other tags, and what was asked of a rank by name, to others."""
    big = (1 << 18,)
    if RANK == 0:
        tensors = [torch.empty(big) for _ in range(SIZE - 1)]
        works = [dist.irecv(tensor, tag=9) for tensor in tensors]
        for source in range(SIZE - 1, 0, -1):
            named = torch.empty(5)
            assert dist.recv(named, source, tag=4) == source
            same(named, of(source, (5,)))
        for work in works:
            work.wait()
        sources = [work._source_rank() for work in works]
        assert sorted(sources) == list(range(1, SIZE)), sources
        for source, tensor in zip(sources, tensors, strict=True):
            same(tensor, of(source, big))
        assert dist.recv(torch.empty(0), tag=6) == 1
    else:
        works = [dist.isend(mine(big), 0, tag=9), dist.isend(mine((5,)), 0, tag=4)]
        for work in works:
            work.wait()
        if RANK == 1:
            dist.send(torch.empty(0), 0, tag=6)


@case
def from_any_source_in_another_thread() -> None:
    """Each rank takes what all others send, while it sends to all others."""
    rows = [torch.empty(1000) for _ in range(SIZE - 1)]
    sources: list[int] = []
    taker = threading.Thread(target=lambda: sources.extend(dist.recv(row, tag=3) for row in rows))
    taker.start()
    for peer in range(SIZE):
        if peer != RANK:
            dist.send(mine((1000,)), peer, tag=3)
    taker.join()
    assert sorted(sources) == [peer for peer in range(SIZE) if peer != RANK], sources
    for source, row in zip(sources, rows, strict=True):
        same(row, of(source, (1000,)))


@case
def batches() -> None:
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.empty(1 << 18)
    operations = [dist.P2POp(dist.isend, mine((1 << 18,)), right), dist.P2POp(dist.irecv, got, left)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    same(got, of(left, (1 << 18,)))


@case
def objects() -> None:
    gathered: list[Any] = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK})
    assert gathered == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]
    sent = ["a", 1] if RANK == 0 else [None, None]
    dist.broadcast_object_list(sent, 0)
    assert sent == ["a", 1]
    back: list[Any] | None = [None] * SIZE if RANK == 1 else None
    dist.gather_object(RANK, back, 1)
    assert back is None or back == list(range(SIZE))
    part: list[Any] = [None]
    dist.scatter_object_list(part, [[rank] for rank in range(SIZE)] if RANK == 0 else None, 0)
    assert part == [[RANK]]


@case
def barriers() -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.group.WORLD.monitored_barrier(timedelta(seconds=30))


@case
def groups() -> None:
    half = dist.new_group([0, 1])
    x = mine()
    dist.all_reduce(x, group=half)
    same(x, of(0) + of(1) if RANK < 2 else mine())
    if RANK < 2:
        assert dist.get_backend(half) == "stretto" and dist.get_world_size(half) == 2
        dist.destroy_process_group(half)
    many = [dist.new_group(list(range(SIZE))) for _ in range(3)]
    tensors = [mine() for _ in many]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, many, strict=True)]
    for work, tensor in reversed(list(zip(works, tensors, strict=True))):
        work.wait()
        same(tensor, reduced(Op.SUM, torch.float32))
    part = dist.group.WORLD.split_group(list(range(SIZE))[::-1])
    y = mine()
    part.broadcast(y, distributed_c10d.BroadcastOptions()).wait()
    same(y, of(SIZE - 1))
    part.shutdown()


def train_alike(parallel: Any, whole: Any) -> None:
    """Three steps of both, of a rank's part of the inputs and of all of them."""
    inputs = torch.randn(SIZE * 2, 8)
    for model, data in ((parallel, inputs[2 * RANK : 2 * RANK + 2]), (whole, inputs)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()


@case
def groups_of_one_name_follow_each_other() -> None:
    """What the first has left in the store is not taken for the second's."""
    for _ in range(2):
        if RANK == 0:
            time.sleep(0.3)
        part = dist.group.WORLD.split_group(list(range(SIZE)))
        x = mine()
        part.allreduce([x]).wait()
        same(x, reduced(Op.SUM, torch.float32))
        part.monitored_barrier(timedelta(seconds=30))
        if RANK == 0:
            part.send([mine()], 1, 0).wait()
        elif RANK == 1:
            part.recv([x], 0, 0).wait()
            same(x, of(0))
        part.shutdown()


@case
def data_parallel() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    whole = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    whole.load_state_dict(model.state_dict())
    train_alike(torch.nn.parallel.DistributedDataParallel(model), whole)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b)


@case
def fully_sharded() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    whole = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    whole.load_state_dict(model.state_dict())
    fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
    train_alike(model, whole)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a.full_tensor(), b)


@case
def distributed_tensors() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (SIZE,))
    a, b = of(0, (4 * SIZE, 6)), of(1, (6, 2 * SIZE))
    for placed in (Shard(0), Shard(1)):
        left = distribute_tensor(a, mesh, [placed])
        product = left @ distribute_tensor(b, mesh, [Shard(0) if placed == Shard(1) else Replicate()])
        same(product.full_tensor(), a @ b)
    same(distribute_tensor(a, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)]).full_tensor(), a)


@case
def functional() -> None:
    import torch.distributed._functional_collectives as functions

    group = dist.group.WORLD
    same(functions.all_reduce(mine(), "sum", group) + 0, reduced(Op.SUM, torch.float32))
    same(functions.all_gather_tensor(mine(), 0, group) + 0, torch.cat(everybodys()))
    part = functions.reduce_scatter_tensor(mine((2 * SIZE,)), "sum", 0, group)
    same(part + 0, reduced(Op.SUM, torch.float32, (2 * SIZE,))[2 * RANK :][:2])
    same(functions.broadcast(mine(), 1, group) + 0, of(1))
    both = functions.all_reduce_coalesced([mine((2,)), mine((3,))], "sum", group)
    for tensor in both:
        same(tensor + 0, reduced(Op.SUM, torch.float32, tensor.shape))
    swapped = functions.all_to_all_single(mine((SIZE,)), None, None, group)
    same(swapped + 0, torch.stack([of(rank, (SIZE,))[RANK] for rank in range(SIZE)]))

"""What goes wrong in a job of the PyTorch backend, and what its ranks are told: each case has a job for itself."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from pytorch_job import RANK, alone, alone_of_three, mine, of, refuses


@alone
def a_dead_peer_is_named() -> None:
    dist.barrier()
    if RANK == 1:
        os._exit(3)
    begun = time.monotonic()
    refuses(dist.DistBackendError, "rank 1", lambda: dist.all_reduce(mine((1 << 20,))))
    assert time.monotonic() - begun < 5
    refuses(dist.DistBackendError, "rank 1", lambda: dist.all_reduce(mine()))  # It stays broken.


@alone
def a_dead_peer_is_named_to_a_work() -> None:
    dist.barrier()
    if RANK == 1:
        os._exit(3)
    work = dist.all_reduce(mine(), async_op=True)
    refuses(dist.DistBackendError, "rank 1", work.wait)
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), dist.DistBackendError)
    refuses(RuntimeError, "rank 1", dist.all_reduce(mine(), async_op=True).get_future().wait)


@alone
def a_dead_peer_is_named_before_its_first_message() -> None:
    if RANK == 1:
        os._exit(3)
    refuses(dist.DistBackendError, "lost rank 1", lambda: dist.recv(mine(), 1))


@alone
def a_peer_that_left_before_its_first_message_is_named() -> None:
    dist.barrier()
    if RANK == 1:
        dist.group.WORLD.shutdown()
    else:
        begun = time.monotonic()
        refuses(dist.DistBackendError, "rank 1 has left", lambda: dist.recv(mine(), 1))
        refuses(dist.DistBackendError, "rank 1 has left", lambda: dist.send(mine(), 1))
        assert time.monotonic() - begun < 30


@alone
def a_dead_peer_is_named_by_its_rank_in_the_group() -> None:
    """Not by its number between the two that send and receive."""
    if RANK == 1:
        dist.send(mine(), 0)
        os._exit(3)
    dist.recv(mine(), 1)
    refuses(dist.DistBackendError, "rank 0 lost rank 1 ", lambda: dist.recv(mine(), 1))


@alone
def a_timeout_is_kept() -> None:
    dist.barrier()
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    begun = time.monotonic()
    if RANK == 0:
        refuses(dist.DistBackendError, "timeout of 1 s", lambda: dist.all_reduce(mine()))
        assert 0.9 < time.monotonic() - begun < 4
    else:
        time.sleep(3)
        refuses(dist.DistBackendError, "rank 0", lambda: dist.all_reduce(mine()))


@alone
def a_receive_has_a_timeout() -> None:
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    if RANK == 0:
        refuses(dist.DistBackendError, "receiving from rank 1", lambda: dist.recv(torch.empty(3), 1))
    else:
        time.sleep(3)


@alone
def a_receive_that_nobody_waits_for_has_no_timeout() -> None:
    """One that is called early, for a message that may come at any time, as with Gloo."""
    dist.barrier()
    dist.group.WORLD.set_timeout(timedelta(seconds=5))
    if RANK == 0:
        got = torch.empty(7)
        work = dist.irecv(got, 1)
        time.sleep(8)
        work.wait()
        assert torch.equal(got, of(1))
    else:
        time.sleep(8)
        dist.send(mine(), 0)
        time.sleep(1)


@alone
def a_way_that_was_given_up_stays_so() -> None:
    """And whoever comes there late keeps its own timeout."""
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    store = dist.group.WORLD.get_group_store()
    if RANK == 0:
        refuses(dist.DistBackendError, "has not called send", lambda: dist.recv(torch.empty(3), 1))
        store.set("given up", "")
    else:
        store.wait(["given up"])
    for _ in range(2):
        begun = time.monotonic()
        refuses(
            dist.DistBackendError,
            "timeout of 1 s",
            lambda: dist.recv(torch.empty(3), 1) if RANK == 0 else dist.send(mine((3,)), 0),
        )
        assert time.monotonic() - begun < 10
    if RANK == 0:
        store.wait(["told"])
    else:
        store.set("told", "")


@alone
def the_end_does_not_wait_for_receives() -> None:
    dist.barrier()
    work = dist.irecv(torch.empty(3), 1 - RANK)
    begun = time.monotonic()
    dist.group.WORLD.shutdown()
    assert time.monotonic() - begun < 30
    refuses(dist.DistBackendError, f"receiving from rank {1 - RANK}", work.wait)


@alone
def abort_wakes_the_others() -> None:
    dist.barrier()
    if RANK == 0:
        time.sleep(0.5)
        dist.group.WORLD.abort()
        refuses(dist.DistBackendError, "", lambda: dist.all_reduce(mine()))
    else:
        refuses(dist.DistBackendError, "rank 0", lambda: dist.all_reduce(mine()))


@alone
def ranks_that_disagree() -> None:
    refuses(dist.DistBackendError, "rank", lambda: dist.all_reduce(mine((3 + RANK,))))


@alone
def a_message_of_another_size() -> None:
    if RANK == 0:
        dist.send(torch.zeros(3), 1)
    elif RANK == 1:
        refuses(ValueError, "12 bytes", lambda: dist.recv(torch.zeros(4), 0))
    dist.barrier()


@alone_of_three
def a_dead_peer_is_named_to_who_takes_any_message() -> None:
    dist.barrier()
    if RANK == 1:
        os._exit(3)
    begun = time.monotonic()
    refuses(dist.DistBackendError, "rank 1", lambda: dist.recv(mine()))
    assert time.monotonic() - begun < 5


@alone_of_three
def a_rank_that_left_sends_nothing_and_the_others_do() -> None:
    got = torch.empty(7)
    if RANK == 1:
        dist.send(mine(), 0)
        dist.group.WORLD.shutdown()
    elif RANK == 2:
        time.sleep(2)
        dist.send(mine(), 0)
        dist.group.WORLD.shutdown()
    else:
        assert [dist.recv(got), dist.recv(got)] == [1, 2]
        assert torch.equal(got, of(2))
        refuses(dist.DistBackendError, "all other ranks have left the group", lambda: dist.recv(got))


@alone_of_three
def what_ranks_sent_before_they_left_is_received() -> None:
    got = torch.empty(7)
    if RANK != 0:
        dist.send(mine(), 0)
        dist.send(mine(), 0)
        dist.group.WORLD.shutdown()
        return
    assert [dist.recv(got, 1), dist.recv(got, 2)] == [1, 2]
    store = dist.group.WORLD.get_group_store()
    while not store.check(["left/1", "left/2"]):
        time.sleep(0.01)
    assert sorted([dist.recv(got), dist.recv(got)]) == [1, 2]
    refuses(dist.DistBackendError, "all other ranks have left the group", lambda: dist.recv(got))


@alone_of_three
def a_timeout_that_ends_a_way_leaves_the_others() -> None:
    """Rank 0 names rank 1, which sends nothing more, and takes any message after that."""
    got = torch.empty(7)
    if RANK == 0:
        assert sorted([dist.recv(got), dist.recv(got)]) == [1, 2]
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        refuses(dist.DistBackendError, "timeout of 1 s", lambda: dist.recv(got, 1))
        dist.group.WORLD.set_timeout(timedelta(seconds=30))
        assert dist.recv(got) == 2
        dist.group.WORLD.set_timeout(timedelta(seconds=1))
        refuses(dist.DistBackendError, "receiving from any rank: an operation", lambda: dist.recv(got))
        dist.group.WORLD.set_timeout(timedelta(seconds=30))
        assert dist.recv(got, 2) == 2  # Its way goes on.
    else:
        dist.send(mine(), 0)
        time.sleep(3)
        if RANK == 2:
            dist.send(mine(), 0)
            time.sleep(3)
            dist.send(mine(), 0)
    dist.barrier()


@alone_of_three
def a_receive_from_any_rank_has_a_timeout() -> None:
    dist.barrier()
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    if RANK == 0:
        begun = time.monotonic()
        for _ in range(2):
            refuses(dist.DistBackendError, "receiving from any rank: an operation", lambda: dist.recv(torch.empty(3)))
        assert time.monotonic() - begun < 10
    else:
        time.sleep(4)


@alone_of_three
def the_end_does_not_wait_for_receives_from_any_rank() -> None:
    dist.barrier()
    work = dist.irecv(torch.empty(3))
    time.sleep(0.5)
    begun = time.monotonic()
    dist.group.WORLD.shutdown()
    assert time.monotonic() - begun < 30
    refuses(dist.DistBackendError, "receiving from any rank", work.wait)


@alone_of_three
def a_message_of_another_size_for_any_rank() -> None:
    if RANK == 0:
        refuses(ValueError, "12 bytes with tag 0 came from rank 2", lambda: dist.recv(torch.zeros(4)))
    elif RANK == 2:
        dist.send(torch.zeros(3), 0)
    dist.barrier()

"""What the operations do with CPU tensors: each function makes the job that a lane runs.

They take plain tensors (`tensors.Staging` makes them so) and a communicator of host ranks, and refuse at once what can
be seen to be wrong without the other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stretto import _native, group
from stretto.pytorch.reductions import Kind, Operator
from stretto.pytorch.tensors import bytes_of, memory

Job = Callable[[], None]
Native = _native.Communicator

_NO_ROOT = 0
_OWN = -1  # the type that the memory says


def _as(kind: Kind, tensor: Any) -> _native.Memory:
    return _native.Memory(tensor.data_ptr(), kind.count(tensor.numel()), kind.type, tensor)


def in_turn(jobs: Sequence[Job]) -> Job:
    """All of them, one after another."""

    def job() -> None:
        for one in jobs:
            one()

    return job


# --- Reductions. ---


def all_reduce(native: Native, tensor: Any, kind: Kind) -> Job:
    """In place."""
    if kind.fold is not None:
        return lambda: _all_fold(native, tensor, kind.fold)
    here = _as(kind, tensor)
    if kind.scalar is None:
        op = kind.op
        return lambda: native.all_reduce(here, here, op, _OWN, None)

    def job() -> None:
        with Operator(native, kind) as made:
            native.all_reduce(here, here, made, _OWN, None)

    return job


def all_reduce_many(native: Native, tensors: Sequence[Any], kind: Kind) -> Job:
    """Each in place, all as one operation."""
    if kind.fold is not None:
        jobs = [all_reduce(native, tensor, kind) for tensor in tensors]
        return in_turn(jobs)
    here = [_as(kind, tensor) for tensor in tensors]

    def job() -> None:
        with Operator(native, kind) as op, group():
            for one in here:
                native.all_reduce(one, one, op, _OWN, None)

    return job


def reduce(native: Native, tensor: Any, kind: Kind, root: int) -> Job:
    """In place on root; the others' tensors keep their values."""
    if kind.fold is not None:
        return lambda: _all_fold(native, tensor if native.rank == root else tensor.clone(), kind.fold)
    here = _as(kind, tensor)

    def job() -> None:
        with Operator(native, kind) as op:
            native.reduce(here, here, op, root, _OWN, None)

    return job


def reduce_scatter(native: Native, source: Any, target: Any, kind: Kind) -> Job:
    """`source`: as many times the elements of `target` as there are ranks."""
    if kind.fold is not None:
        fold = kind.fold

        def folded() -> None:
            rows = _everybodys_parts(native, source.view(-1), target.numel())
            target.view(-1).copy_(fold(rows))

        return folded
    this, there = _as(kind, source), _as(kind, target)

    def job() -> None:
        with Operator(native, kind) as op:
            native.reduce_scatter(this, there, op, _OWN, None)

    return job


def reduce_scatter_many(native: Native, pairs: Sequence[tuple[Any, Any]], kind: Kind) -> Job:
    """Of (source, target), all as one operation."""
    if kind.fold is not None:
        jobs = [reduce_scatter(native, source, target, kind) for source, target in pairs]
        return in_turn(jobs)
    here = [(_as(kind, source), _as(kind, target)) for source, target in pairs]

    def job() -> None:
        with Operator(native, kind) as op, group():
            for this, there in here:
                native.reduce_scatter(this, there, op, _OWN, None)

    return job


def reduce_each(native: Native, sources: Sequence[Any], target: Any, kind: Kind) -> Job:
    """Item r of everybody's `sources`, whose sizes differ, reduced to rank r's `target`."""
    if kind.fold is not None:
        raise ValueError("stretto: reduce_scatter of parts of different sizes has no bitwise or 16-bit operators")
    here = [_as(kind, source) for source in sources]
    there = _as(kind, target)

    def job() -> None:
        with Operator(native, kind) as op, group():
            for root, this in enumerate(here):
                native.reduce(this, there if root == native.rank else this, op, root, _OWN, None)

    return job


def _everybodys_parts(native: Native, source: Any, part: int) -> Any:
    """This rank's part of every rank's `source`: shape (ranks, part)."""
    rows = torch.empty((native.size, part), dtype=source.dtype)
    native.all_to_all(bytes_of(source), bytes_of(rows), _NO_ROOT, _OWN, None)
    return rows


def _all_fold(native: Native, tensor: Any, fold: Any) -> None:
    flat = tensor.view(-1)
    part = -(-flat.numel() // native.size)
    padded = torch.zeros(part * native.size, dtype=tensor.dtype)
    padded[: flat.numel()] = flat
    mine = fold(_everybodys_parts(native, padded, part))
    native.all_gather(bytes_of(mine), bytes_of(padded), _NO_ROOT, _OWN, None)
    flat.copy_(padded[: flat.numel()])


# --- Moving. ---


def broadcast(native: Native, tensor: Any, root: int) -> Job:
    here = memory(tensor)
    return lambda: native.broadcast(here, here, root, _OWN, None)


def broadcast_each(native: Native, rows: Sequence[Sequence[Any]]) -> Job:
    """Everything of `rows[r]` gets rank r's values, all as one operation. This rank's row holds its values."""
    here = [[memory(tensor) for tensor in row] for row in rows]

    def job() -> None:
        with group():
            for root, row in enumerate(here):
                for one in row:
                    native.broadcast(one, one, root, _OWN, None)

    return job


def all_gather(native: Native, source: Any, target: Any) -> Job:
    """`target`: as many times the elements of `source` as there are ranks."""
    this, there = memory(source), memory(target)
    return lambda: native.all_gather(this, there, _NO_ROOT, _OWN, None)


def all_gather_many(native: Native, pairs: Sequence[tuple[Any, Any]]) -> Job:
    """Of (source, target), all as one operation."""
    here = [(memory(source), memory(target)) for source, target in pairs]

    def job() -> None:
        with group():
            for this, there in here:
                native.all_gather(this, there, _NO_ROOT, _OWN, None)

    return job


def gather(native: Native, source: Any, target: Any | None, root: int) -> Job:
    """`target`: on root alone."""
    this = memory(source)
    there = this if target is None else memory(target)
    return lambda: native.gather(this, there, root, _OWN, None)


def scatter(native: Native, source: Any | None, target: Any, root: int) -> Job:
    """`source`: on root alone."""
    there = memory(target)
    this = there if source is None else memory(source)
    return lambda: native.scatter(this, there, root, _OWN, None)


def all_to_all(native: Native, source: Any, target: Any) -> Job:
    """Of equal parts."""
    this, there = memory(source), memory(target)
    return lambda: native.all_to_all(this, there, _NO_ROOT, _OWN, None)


def exchange(native: Native, sources: Sequence[Any], targets: Sequence[Any]) -> Job:
    """Item p of `sources` goes to rank p, item p of `targets` comes from it; sizes may differ, also be 0."""
    mine = native.rank
    sent = [(peer, memory(one)) for peer, one in enumerate(sources) if peer != mine and one.numel()]
    got = [(peer, memory(one)) for peer, one in enumerate(targets) if peer != mine and one.numel()]

    def job() -> None:
        targets[mine].copy_(sources[mine])
        with group():
            for peer, one in sent:
                native.send(one, one, peer, _OWN, None)
            for peer, one in got:
                native.recv(one, one, peer, _OWN, None)

    return job


def barrier(native: Native) -> Job:
    return native.barrier

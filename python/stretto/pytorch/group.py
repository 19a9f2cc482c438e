"""The process group: PyTorch calls these methods, by the names and with the arguments of its own groups.

CPU tensors are served here, CUDA tensors by `cuda.make`'s group. Each method looks at its tensors, refuses what is
wrong with `ValueError`, and submits one job to the group's lane. PyTorch calls some operations by two names, an old and
a new one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from stretto.communicator import Communicator
from stretto.errors import StrettoError
from stretto.pytorch import collectives, cuda, reductions
from stretto.pytorch.join import join, meet
from stretto.pytorch.lane import Lane
from stretto.pytorch.point_to_point import Boxes
from stretto.pytorch.tensors import Staging, check, check_like, is_plain
from stretto.pytorch.work import FINISHED, Work

Job = Callable[[], None]

_ALLREDUCE = c10d.AllreduceOptions()
_ALLREDUCE_COALESCED = c10d.AllreduceCoalescedOptions()
_BROADCAST = c10d.BroadcastOptions()
_REDUCE = c10d.ReduceOptions()
_ALLGATHER = c10d.AllgatherOptions()
_REDUCE_SCATTER = c10d.ReduceScatterOptions()
_GATHER = c10d.GatherOptions()
_SCATTER = c10d.ScatterOptions()
_ALLTOALL = c10d.AllToAllOptions()
_BARRIER = c10d.BarrierOptions()


class _Place(torch._C._distributed_c10d.Backend):  # type: ignore[misc]
    """What stands where PyTorch looks for a device's backend."""

    def getBackendName(self) -> str:
        return "stretto"


class StrettoGroup(dist.ProcessGroup):  # type: ignore[misc]
    """One rank of a group. Made by `join`."""

    def __init__(self, store: Any, communicator: Communicator, timeout: timedelta, name: str, options: Any) -> None:
        super().__init__(communicator.rank, communicator.size)
        self._store = store
        self._communicator = communicator
        self._native = communicator._native
        self._rank = communicator.rank
        self._size = communicator.size
        self._name = name
        self._description = "undefined"
        self._timeout = timeout
        self._seconds = timeout.total_seconds()
        self._options = options
        self._lane = Lane(f"stretto group {name!r}, rank {self._rank} of {self._size}", communicator.abort)
        self._boxes = Boxes(store, name, self._rank, self._lane.what, self._check, self._native.async_error)
        self._on_cuda: Any = None
        self._sequence = 0
        self._ended = False
        self._register_place()

    def _register_place(self) -> None:
        """Gives PyTorch's own group, of which this one is a kind, a backend to find where it insists on one (the hooks
        of its flight recorder, from 2.15 on, which is also the first that can make one). No operation gets there.
        """
        try:
            self._place = _Place(self._rank, self._size)
        except TypeError:
            return
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, self._place)

    @classmethod
    def join(cls, store: Any, rank: int, size: int, timeout: timedelta, name: str, options: Any) -> StrettoGroup:
        """Returns when all ranks of the group have called it."""
        try:
            communicator, own_part = join(store, rank, size, timeout, name)
        except StrettoError as error:
            raise dist.DistBackendError(
                f"stretto: rank {rank} of {size} could not join group {name!r}: {error}"
            ) from error
        return cls(own_part, communicator, timeout, name, options)

    # --- Who this is. ---

    def getBackendName(self) -> str:
        return "stretto"

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc

    def name(self) -> str:
        return "stretto"

    def get_group_store(self) -> Any:
        return self._store

    @property
    def _device_types(self) -> list[Any]:
        devices = [torch.device("cpu")]
        if torch.cuda.is_available():
            devices.append(torch.device("cuda"))
        return devices

    def _get_backend(self, device: Any) -> Any:
        """PyTorch asks it what it can do: this group itself for the CPU."""
        device = torch.device(device)
        return self if device.type == "cpu" else self._cuda()._get_backend(device)

    get_backend = _get_backend

    supports_splitting = True
    supports_coalescing = False
    supports_time_estimate = False
    supports_shrinking = False
    supports_tensor_alloc = False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives this rank has begun."""
        return self._sequence

    def run(self, job: Callable[[Any], None]) -> None:
        """Runs what PyTorch has no name for, with the group's communicator, after what was submitted before; returns
        when it is done (`stretto.torch`).
        """
        self._sequence += 1
        self._lane.run(lambda: job(self._native), self._seconds)

    # --- Reductions. ---

    def allreduce(self, tensors: Any, opts: Any = _ALLREDUCE, timeout: timedelta | None = None) -> Any:
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().allreduce([tensor], _with_op(opts, c10d.AllreduceOptions))
        opts = _with_op(opts, c10d.AllreduceOptions)
        kind = reductions.kind_of(opts.reduceOp, tensor.dtype)
        check("all_reduce", tensor)
        if is_plain(tensor):
            return self._do(collectives.all_reduce(self._native, tensor, kind), opts, [tensor])
        staging = Staging()
        job = collectives.all_reduce(self._native, staging.change(tensor), kind)
        return self._do(staging.around(job), opts, [tensor])

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = _ALLREDUCE_COALESCED) -> Any:
        if tensors[0].is_cuda:
            return self._cuda().allreduce_coalesced(tensors, opts)
        check("all_reduce_coalesced", *tensors)
        if len({tensor.dtype for tensor in tensors}) > 1:
            raise ValueError("stretto: all_reduce_coalesced takes tensors of one element type")
        kind = reductions.kind_of(opts.reduceOp, tensors[0].dtype)
        staging = Staging()
        plain = [staging.change(tensor) for tensor in tensors]
        return self._do(staging.around(collectives.all_reduce_many(self._native, plain, kind)), opts, list(tensors))

    def reduce(self, tensors: Any, opts: Any = _REDUCE) -> Any:
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().reduce([tensor], opts)
        kind = reductions.kind_of(opts.reduceOp, tensor.dtype)
        check("reduce", tensor)
        root = self._peer("reduce", opts.rootRank)
        staging = Staging()
        plain = staging.change(tensor) if root == self._rank else staging.read(tensor)
        return self._do(staging.around(collectives.reduce(self._native, plain, kind, root)), opts, [tensor])

    def _reduce_scatter_base(self, output: Any, source: Any, opts: Any = _REDUCE_SCATTER) -> Any:
        if output.is_cuda:
            return self._cuda()._reduce_scatter_base(output, source, opts)
        kind = reductions.kind_of(opts.reduceOp, output.dtype)
        check("reduce_scatter", output)
        check_like("reduce_scatter", self._size * output.numel(), output.dtype, source)
        staging = Staging()
        job = collectives.reduce_scatter(self._native, staging.read(source), staging.write(output), kind)
        return self._do(staging.around(job), opts, [output])

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(
        self, outputs: Sequence[Any], sources: Sequence[Any], opts: Any = _REDUCE_SCATTER
    ) -> Any:
        if outputs[0].is_cuda:
            return self._cuda().reduce_scatter_tensor_coalesced(outputs, sources, opts)
        staging = Staging()
        pairs = []
        for output, source in zip(outputs, sources, strict=True):
            check("reduce_scatter", output)
            check_like("reduce_scatter", self._size * output.numel(), outputs[0].dtype, source)
            pairs.append((staging.read(source), staging.write(output)))
        kind = reductions.kind_of(opts.reduceOp, outputs[0].dtype)
        return self._do(staging.around(collectives.reduce_scatter_many(self._native, pairs, kind)), opts, list(outputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def reduce_scatter(self, outputs: Any, sources: Any, opts: Any = _REDUCE_SCATTER) -> Any:
        output, parts = _one(outputs), self._per_rank("reduce_scatter", _one(sources))
        if output.is_cuda:
            return self._cuda().reduce_scatter([output], [parts], opts)
        check("reduce_scatter", output)
        kind = reductions.kind_of(opts.reduceOp, output.dtype)
        check_like("reduce_scatter", output.numel(), output.dtype, parts[self._rank])
        for part in parts:
            check_like("reduce_scatter", part.numel(), output.dtype, part)
        staging = Staging()
        if len({part.numel() for part in parts}) == 1:
            whole = staging.gathered(parts)
            job = collectives.reduce_scatter(self._native, whole, staging.write(output), kind)
        else:
            plain = [staging.read(part) for part in parts]
            job = collectives.reduce_each(self._native, plain, staging.write(output), kind)
        return self._do(staging.around(job), opts, [output])

    # --- Moving. ---

    def broadcast(self, tensors: Any, opts: Any = _BROADCAST) -> Any:
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().broadcast([tensor], opts)
        check("broadcast", tensor)
        root = self._peer("broadcast", opts.rootRank)
        staging = Staging()
        plain = staging.read(tensor) if root == self._rank else staging.write(tensor)
        return self._do(staging.around(collectives.broadcast(self._native, plain, root)), opts, [tensor])

    def _allgather_base(self, output: Any, source: Any, opts: Any = _ALLGATHER) -> Any:
        if source.is_cuda:
            return self._cuda()._allgather_base(output, source, opts)
        check("all_gather", source)
        check_like("all_gather", self._size * source.numel(), source.dtype, output)
        staging = Staging()
        job = collectives.all_gather(self._native, staging.read(source), staging.write(output))
        return self._do(staging.around(job), opts, [output])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(
        self, outputs: Sequence[Any], sources: Sequence[Any], opts: Any = _ALLGATHER
    ) -> Any:
        if sources[0].is_cuda:
            return self._cuda().allgather_into_tensor_coalesced(outputs, sources, opts)
        staging = Staging()
        pairs = []
        for output, source in zip(outputs, sources, strict=True):
            check("all_gather", source)
            check_like("all_gather", self._size * source.numel(), source.dtype, output)
            pairs.append((staging.read(source), staging.write(output)))
        return self._do(staging.around(collectives.all_gather_many(self._native, pairs)), opts, list(outputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather(self, outputs: Any, sources: Any, opts: Any = _ALLGATHER) -> Any:
        source, parts = _one(sources), self._per_rank("all_gather", _one(outputs))
        if source.is_cuda:
            return self._cuda().allgather([parts], [source], opts)
        check("all_gather", source, *parts)
        check_like("all_gather", source.numel(), source.dtype, parts[self._rank])
        staging = Staging()
        if len({(part.numel(), part.dtype) for part in parts}) == 1:
            job = collectives.all_gather(self._native, staging.read(source), staging.spread(parts))
        else:
            rows = [[staging.write(part)] for part in parts]
            staging.copy(rows[self._rank][0], source)
            job = collectives.broadcast_each(self._native, rows)
        return self._do(staging.around(job), opts, [parts])

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Any]], sources: Sequence[Any], opts: Any = _ALLGATHER
    ) -> Any:
        """`outputs[r]`: one tensor for each of rank r's `sources`."""
        if sources[0].is_cuda:
            return self._cuda().allgather_coalesced(outputs, sources, opts)
        rows = self._per_rank("all_gather_coalesced", outputs)
        staging = Staging()
        plain = []
        for row in rows:
            for part, source in zip(row, sources, strict=True):
                check_like("all_gather_coalesced", source.numel(), source.dtype, part)
            plain.append([staging.write(part) for part in row])
        for part, source in zip(plain[self._rank], sources, strict=True):
            staging.copy(part, source)
        job = collectives.broadcast_each(self._native, plain)
        return self._do(staging.around(job), opts, [list(row) for row in rows])

    def gather(self, outputs: Any, sources: Any, opts: Any = _GATHER) -> Any:
        source = _one(sources)
        if source.is_cuda:
            return self._cuda().gather(outputs, sources, opts)
        check("gather", source)
        root = self._peer("gather", opts.rootRank)
        staging = Staging()
        parts: list[Any] = []
        target = None
        if root == self._rank:
            parts = self._per_rank("gather", _one(outputs))
            check_like("gather", source.numel(), source.dtype, *parts)
            target = staging.spread(parts)
        job = collectives.gather(self._native, staging.read(source), target, root)
        return self._do(staging.around(job), opts, [parts])

    def gather_single(self, output: Any, source: Any, opts: Any = _GATHER) -> Any:
        if source.is_cuda:
            return self._cuda().gather_single(output, source, opts)
        check("gather", source)
        root = self._peer("gather", opts.rootRank)
        staging = Staging()
        target = None
        if root == self._rank:
            check_like("gather", self._size * source.numel(), source.dtype, output)
            target = staging.write(output)
        job = collectives.gather(self._native, staging.read(source), target, root)
        return self._do(staging.around(job), opts, [output])

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, sources: Any, opts: Any = _SCATTER) -> Any:
        output = _one(outputs)
        if output.is_cuda:
            return self._cuda().scatter(outputs, sources, opts)
        check("scatter", output)
        root = self._peer("scatter", opts.rootRank)
        staging = Staging()
        whole = None
        if root == self._rank:
            parts = self._per_rank("scatter", _one(sources))
            check_like("scatter", output.numel(), output.dtype, *parts)
            whole = staging.gathered(parts)
        job = collectives.scatter(self._native, whole, staging.write(output), root)
        return self._do(staging.around(job), opts, [output])

    def alltoall(self, outputs: Sequence[Any], sources: Sequence[Any], opts: Any = _ALLTOALL) -> Any:
        if outputs[0].is_cuda:
            return self._cuda().alltoall(outputs, sources, opts)
        targets, parts = self._per_rank("all_to_all", outputs), self._per_rank("all_to_all", sources)
        check("all_to_all", *targets, *parts)
        check_like("all_to_all", parts[self._rank].numel(), parts[self._rank].dtype, targets[self._rank])
        staging = Staging()
        plain = [staging.read(part) for part in parts]
        job = collectives.exchange(self._native, plain, [staging.write(target) for target in targets])
        return self._do(staging.around(job), opts, list(targets))

    def alltoall_base(
        self,
        output: Any,
        source: Any,
        output_sizes: Sequence[int] = (),
        source_sizes: Sequence[int] = (),
        opts: Any = _ALLTOALL,
    ) -> Any:
        """Sizes are rows of the first axis, for each rank; none: equal parts."""
        if output.is_cuda:
            return self._cuda().alltoall_base(output, source, output_sizes, source_sizes, opts)
        check("all_to_all_single", output, source)
        if source.dtype != output.dtype:
            raise ValueError(f"stretto: all_to_all_single from {source.dtype} to {output.dtype}")
        staging = Staging()
        plain, target = staging.read(source), staging.write(output)
        if not output_sizes and not source_sizes:
            self._divides(source)
            check_like("all_to_all_single", source.numel(), source.dtype, output)
            job = collectives.all_to_all(self._native, plain, target)
        else:
            job = collectives.exchange(self._native, self._rows(plain, source_sizes), self._rows(target, output_sizes))
        return self._do(staging.around(job), opts, [output])

    all_to_all_single = alltoall_base

    def _divides(self, tensor: Any) -> None:
        if tensor.dim() == 0 or tensor.size(0) % self._size != 0:
            raise ValueError(
                f"stretto: all_to_all_single of shape {tuple(tensor.shape)} without split sizes: its first axis must "
                f"be a multiple of the {self._size} ranks"
            )

    def _rows(self, tensor: Any, sizes: Sequence[int]) -> Sequence[Any]:
        if not sizes:
            self._divides(tensor)
            sizes = [tensor.size(0) // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != tensor.size(0):
            raise ValueError(
                f"stretto: all_to_all_single with split sizes {list(sizes)}: they must be {self._size} that make "
                f"{tensor.size(0)} together, the first axis of the tensor"
            )
        return list(torch.split(tensor, list(sizes)))

    def barrier(self, opts: Any = _BARRIER) -> Any:
        if opts.device_ids or (opts.device is not None and opts.device.type == "cuda"):
            return self._cuda().barrier(opts)
        return self._do(collectives.barrier(self._native), opts, [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier by way of the store, whose error names all ranks that are missing, whatever `wait_all_ranks` is."""
        self._sequence += 1
        key = f"monitored/{self._sequence}"
        meet(self._store, key, self._rank, self._size, timeout or self._timeout, "pass a monitored barrier")

    # --- Point to point. ---

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().send([tensor], peer, tag)
        check("send", tensor)
        peer = self._other("send", peer)
        staging = Staging()
        plain = staging.read(tensor)
        staging.prepare()
        return self._boxes.outbox(peer).send(plain, tag, self._seconds)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().recv([tensor], peer, tag)
        check("recv", tensor)
        peer = self._other("recv", peer)
        staging = Staging()
        return self._boxes.inbox(peer).receive(staging.write(tensor), tag, self._seconds, staging.finish, [tensor])

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """The work's `source_rank` says who sent."""
        if self._size == 2:
            return self.recv(tensors, 1 - self._rank, tag)
        tensor = _one(tensors)
        if tensor.is_cuda:
            return self._cuda().recv_anysource([tensor], tag)
        check("recv", tensor)
        staging = Staging()
        return self._boxes.any_source.receive(staging.write(tensor), tag, self._seconds, staging.finish, [tensor])

    def _check(self, peer: int | None) -> None:
        """Raises `DistBackendError` if the group has lost a rank, or `peer` (None: every other rank) has left it."""
        if not self._boxes.is_whole():  # Any operation says which rank is lost.
            self._lane.run(self._native.barrier, self._seconds)
        if self._boxes.have_left(range(self._size) if peer is None else [peer]):
            who = "all other ranks have" if peer is None else f"rank {peer} has"
            raise dist.DistBackendError(f"{self._lane.what}: {who} left the group")

    # --- Other groups from this one. ---

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        **_: Any,
    ) -> StrettoGroup | None:
        """A group of `ranks` of this one, all of which call; None for a rank that is not among them."""
        if self._rank not in ranks:
            return None
        name = group_name or f"{self._name}:split:{'-'.join(map(str, ranks))}"
        part = StrettoGroup.join(
            dist.PrefixStore(f"{name}/", self._store),
            list(ranks).index(self._rank),
            len(ranks),
            timeout or self._timeout,
            name,
            opts or self._options,
        )
        part._description = group_desc or "undefined"
        return part

    # --- Ending. ---

    def set_timeout(self, timeout: timedelta) -> None:
        """For operations from now on."""
        self._timeout = timeout
        self._seconds = timeout.total_seconds()
        if self._on_cuda is not None:
            self._on_cuda.set_timeout(timeout)

    def shutdown(self) -> None:
        """Returns when what was submitted has ended, and leaves the group in peace. Receives that wait are given up."""
        if self._ended:
            return
        self._ended = True
        self._lane.drain()
        self._lane.close()
        if self._on_cuda is not None:
            self._on_cuda.shutdown()
        self._boxes.drain()
        # When a peer sees a way end, it can know why. The store may have gone with the rank that kept it.
        with contextlib.suppress(RuntimeError):
            self._store.set(f"left/{self._rank}", b"")
        for box in self._boxes.all():
            box.end()
        self._communicator.close()

    def abort(self) -> None:
        """Ends what runs, on this rank and on the others, which get an error that says so."""
        self._ended = True
        if self._on_cuda is not None:
            self._on_cuda.abort()
        for box in self._boxes.all():
            box.abort()
        self._communicator.abort()
        for lane in self._lanes():
            lane.close()

    def _wait_for_pending_works(self) -> None:
        for lane in self._lanes():
            lane.drain()

    def _lanes(self) -> list[Lane]:
        return [self._lane, *(box.lane for box in self._boxes.all())]

    # --- What all of them need. ---

    def _do(self, job: Job, opts: Any, results: Any) -> Any:
        """Has the job run: now, for a synchronous call, which PyTorch returns from only when it is done."""
        self._sequence += 1
        seconds = self._limit(opts.timeout)
        if not opts.asyncOp:
            self._lane.run(job, seconds)
            return FINISHED
        return self._lane.submit(Work(self._lane, job, seconds, results))

    def _limit(self, timeout: timedelta) -> float:
        seconds = timeout.total_seconds()
        return seconds if seconds > 0 else self._seconds or math.inf

    def _cuda(self) -> Any:
        if self._on_cuda is None:
            self._on_cuda = cuda.make(self._store, self._rank, self._size, self._timeout, self._name, self._options)
        return self._on_cuda

    def _peer(self, operation: str, rank: int) -> int:
        if not 0 <= rank < self._size:
            raise ValueError(
                f"stretto: {operation} with rank {rank}: the ranks of this group are 0 to {self._size - 1}"
            )
        return rank

    def _other(self, operation: str, rank: int) -> int:
        if self._peer(operation, rank) == self._rank:
            raise ValueError(f"stretto: {operation} with rank {rank}, which is this rank itself: copy the tensor")
        return rank

    def _per_rank(self, operation: str, tensors: Sequence[Any]) -> list[Any]:
        if len(tensors) != self._size:
            raise ValueError(
                f"stretto: {operation} of {self._size} ranks needs as many tensors, and got {len(tensors)}"
            )
        return list(tensors)


def _one(tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"stretto: one tensor of each rank takes part in an operation, and {len(tensors)} were given")
    return tensors[0]


def _with_op(opts: Any, kind: type[Any]) -> Any:
    """A group's method also takes a bare operator where options are meant."""
    if isinstance(opts, kind):
        return opts
    made = kind()
    made.reduceOp = opts
    return made

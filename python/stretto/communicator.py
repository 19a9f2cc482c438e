"""One rank's handle on a job: the collectives, point to point, and what can be asked about them."""

from __future__ import annotations

import atexit
import json
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from stretto import _native, failures
from stretto.arrays import empty, expect_shape, parts, shape_of, whole
from stretto.errors import InvalidArgument, StrettoError
from stretto.values import (
    DType,
    Op,
    PreMulSum,
    byte_count,
    dtype_code,
    known_dtype_code,
    op_code,
    scalar_bytes,
    shown,
    text,
    whole_number,
)

A = TypeVar("A")
"""A NumPy array, or anything in CPU memory with the buffer protocol or DLPack: contiguous in row-major
order.
"""

_open: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Stream:
    """Host operations in order, in the background: pass it as `stream=` and the call returns at once.

    The arrays of an operation stay in use, and are kept alive, until `synchronize()` has returned or
    `idle()` was true.
    """

    def __init__(self) -> None:
        self._native = _native.Stream()

    def synchronize(self) -> None:
        """Waits until everything submitted is done. Raises what befell it."""
        self._native.synchronize()

    def idle(self) -> bool:
        """Whether everything submitted is done; never waits."""
        return self._native.idle()

    def close(self) -> None:
        """Waits for what was submitted and frees the stream."""
        self._native.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._native.inherited:
            self.close()


@dataclass(frozen=True)
class Quantised:
    """Where `Communicator.all_reduce_add_rms_norm` puts an 8-bit copy of the normalised tokens."""

    array: Any
    """As many elements as the tokens have, of one byte each."""
    scales: Any
    """float32: one for each token, which are written; or a single one. Elements are multiplied by its reciprocal,
    rounded to float32, and rounded to `dtype`, saturating.
    """
    dtype: DType = "float8e4m3"
    """float8e4m3 or float8e5m2."""
    per_token: bool = True
    """Whether each token has a scale of its own: its largest magnitude, or 1/512 if that is more, over the largest
    number of `dtype`.
    """

    def codes(self) -> tuple[int, int]:
        """As the library numbers them: strettoScale_t and ncclDataType_t."""
        return (1 if self.per_token else 2), known_dtype_code(self.dtype)


@contextmanager
def group() -> Iterator[None]:
    """Collects the operations of the block and submits them together when it ends.

    Sends and receives of one group make progress together, and one thread can serve several communicators.
    Results are there when the block has ended. Groups nest; a block that raises submits nothing. Belongs to
    its thread.

    Raises the first error of the whole group; nothing of it has then been submitted.
    """
    _native.group_start()
    try:
        yield
    except BaseException:
        _native.group_discard()
        raise
    _native.group_end()


def _stream(stream: Stream | None) -> _native.Stream | None:
    if stream is None:
        return None
    if not isinstance(stream, Stream):
        raise InvalidArgument(f"stream={shown(stream)}: it must be a stretto.Stream or None")
    return stream._native


class Communicator:
    """One rank of a fixed set of ranks. Made by `stretto.init`, `stretto.init_all` and `stretto.threads`.

    All ranks make the same collective calls in the same order, with the same number of elements, type,
    operator and root; where they differ, each raises `InvalidUsage` with both sides named. One communicator
    takes one call at a time; `abort` may come from any thread at any moment.

    Arrays are contiguous and in CPU memory. `dtype` says what their bytes are where the array cannot
    (bfloat16 in a `uint16` array, float32 in a `bytearray`). A call returns when its operation is done,
    unless it is given a `stream` or stands in a `group`. The GIL is released meanwhile.

    Every operation raises `InvalidArgument` for a wrong argument, `InvalidUsage` when the ranks disagree or
    the communicator is closed, and `RemoteError` when a peer is gone.

    Used as a context manager it is closed at the end of the block, and aborted if the block raises.

    A forked child, such as a data loader's worker, has a copy that it cannot use: its calls raise
    `InvalidUsage`, and it may end, forget the copy or leave the block without any effect on the parent.
    """

    def __init__(self, native: _native.Communicator, record: failures.RankRecord | None = None) -> None:
        self._native = native
        self._rank = native.rank
        self._size = native.size
        # Of the rank whose failure aborts this communicator: for a child its parent's, whatever thread asked for it.
        self._record = failures.current() if record is None else record
        self._record.communicators.add(self)
        _open.add(self)

    @property
    def rank(self) -> int:
        """This participant's number, 0 to size - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    @property
    def device(self) -> int | None:
        """The GPU that this rank is on, as CUDA counts them in this process; None for a rank in host memory."""
        return self._native.device

    def _rank_number(self, value: int, what: str) -> int:
        number = whole_number(value, what, -(1 << 63), (1 << 63) - 1)
        if not 0 <= number < self._size:
            raise InvalidArgument(f"{what}={number}: the ranks of this communicator are 0 to {self._size - 1}")
        return number

    @property
    def closed(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._native.closed

    # --- Collectives that keep the shape: in place unless `out` is given. ---

    def all_reduce(
        self,
        array: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A:
        """Reduces all ranks' arrays, element by element; every rank gets the same bits.

        `array` and `out`: n elements each, of any shape. Returns the array that holds the result: `out`, or
        `array`.
        """
        target = array if out is None else out
        self._native.all_reduce(array, target, op_code(op), dtype_code(dtype), _stream(stream))
        return target

    def reduce(
        self,
        array: A,
        op: Op = "sum",
        root: int = 0,
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A | None:
        """`all_reduce` with the result on rank `root` alone.

        `array` and, on root, `out`: n elements each. Returns the result on root and None elsewhere, where
        `array` keeps its values and `out` is not used.
        """
        root = self._rank_number(root, "root")
        here = self._rank == root
        target = out if here and out is not None else array
        self._native.reduce(array, target, op_code(op), root, dtype_code(dtype), _stream(stream))
        return target if here else None

    def broadcast(
        self,
        array: A,
        root: int = 0,
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A:
        """Gives every rank the values of root's `array`.

        `array` and `out`: n elements each. Returns the array that holds the values: `out`, or `array`.
        """
        target = array if out is None else out
        root = self._rank_number(root, "root")
        self._native.broadcast(array, target, root, dtype_code(dtype), _stream(stream))
        return target

    def all_reduce_add_rms_norm(
        self,
        array: A,
        residual: A | None = None,
        weight: A | None = None,
        *,
        epsilon: float = 1e-6,
        bias: A | None = None,
        out: A | None = None,
        residual_out: A | None = None,
        reduced: A | None = None,
        quantised: Quantised | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> tuple[A, A]:
        """Reduces all ranks' arrays, adds `residual`, and normalises each token by its root mean square: what
        tensor parallelism does between two layers, in one operation.

        `array`, `residual`, `out`, `residual_out`, `reduced`: shape (..., hidden), float32, float16 or bfloat16.
        `weight` and `bias`: (hidden,). The sum plus `residual` plus `bias` goes to `residual_out` (`residual` itself
        if None, or a new array where there is no residual); that, over sqrt(mean of its squares + `epsilon`) and times
        `weight`, goes to `out` (`array` itself if None); the sum alone to `reduced`, and an 8-bit copy of the
        normalised tokens to `quantised`, where these are given. Returns `out` and `residual_out`.

        The bits are those of an `all_reduce` in rank order (STRETTO_DETERMINISTIC=1) and of this library's norm after
        it, and do not depend on the number of tokens; other norms may differ in the last place (include/stretto.h says
        how exact this one is). All ranks give the same shape, type, epsilon and quantisation, and a residual and a bias
        all or none. `residual_out` may be `residual`, and one of `out`, `residual_out` and `reduced` may be `array`;
        nothing else that is written may overlap anything.
        """
        shape = shape_of(array)
        if not shape:
            raise InvalidArgument("array has no axis: the last one is a token's elements")
        expect_shape(shape, residual=residual, out=out, residual_out=residual_out, reduced=reduced)
        expect_shape(shape[-1:], weight=weight, bias=bias)
        target = array if out is None else out
        added = residual_out if residual_out is not None else residual if residual is not None else empty(array, shape)
        arrays = {
            "input": array,
            "residual": residual,
            "weight": weight,
            "bias": bias,
            "out": target,
            "residual_out": added,
            "reduced": reduced,
        }
        how = (0, 0)
        if quantised is not None:
            arrays |= {"quantised": quantised.array, "scales": quantised.scales}
            how = quantised.codes()
        self._native.all_reduce_add_rms_norm(arrays, shape[-1], float(epsilon), dtype_code(dtype), how, _stream(stream))
        return target, added

    # --- Collectives that change the shape: the result is `out`, or a new array of the same kind. ---

    def reduce_scatter(
        self,
        array: A,
        op: Op = "sum",
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A:
        """Reduces all ranks' arrays and gives part i of the result to rank i.

        `array`: shape (size * k, ...); `out`: (k, ...), new if None. In place: `out` is this rank's part of
        `array`. Returns `out`.
        """
        target = empty(array, parts(shape_of(array), self._size, "array")) if out is None else out
        self._native.reduce_scatter(array, target, op_code(op), dtype_code(dtype), _stream(stream))
        return target

    def all_gather(
        self, array: A, *, out: A | None = None, dtype: DType | None = None, stream: Stream | None = None
    ) -> A:
        """Puts all ranks' arrays after one another, in the order of ranks, on every rank.

        `array`: shape (k, ...); `out`: (size * k, ...), new if None. In place: `array` is this rank's part
        of `out`. Returns `out`.
        """
        target = empty(array, whole(shape_of(array), self._size)) if out is None else out
        self._native.all_gather(array, target, 0, dtype_code(dtype), _stream(stream))
        return target

    def all_to_all(
        self, array: A, *, out: A | None = None, dtype: DType | None = None, stream: Stream | None = None
    ) -> A:
        """Gives part i of this rank's array to rank i, and gets this rank's part of every rank's array.

        `array` and `out`: shape (size * k, ...); `out` is new if None, and never `array`. Returns `out`.
        """
        target = empty(array, shape_of(array)) if out is None else out
        if target is array:
            raise InvalidArgument("all_to_all does not work in place: give another out=, or none")
        self._native.all_to_all(array, target, 0, dtype_code(dtype), _stream(stream))
        return target

    def gather(
        self,
        array: A,
        root: int = 0,
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A | None:
        """`all_gather` on rank `root` alone.

        `array`: shape (k, ...); `out`, on root: (size * k, ...), new if None. Returns `out` on root, None
        elsewhere.
        """
        root = self._rank_number(root, "root")
        if self._rank != root:
            self._native.gather(array, array, root, dtype_code(dtype), _stream(stream))
            return None
        target = empty(array, whole(shape_of(array), self._size)) if out is None else out
        self._native.gather(array, target, root, dtype_code(dtype), _stream(stream))
        return target

    def scatter(
        self,
        array: A | None,
        root: int = 0,
        *,
        out: A | None = None,
        dtype: DType | None = None,
        stream: Stream | None = None,
    ) -> A:
        """Gives part i of root's `array` to rank i.

        `array`, on root: shape (size * k, ...), elsewhere None; `out`: (k, ...), which only root may leave
        out. Returns `out`.
        """
        root = self._rank_number(root, "root")
        if self._rank != root:
            if out is None:
                raise InvalidArgument("scatter: give out= on every rank but root, which alone knows the shape")
            self._native.scatter(out, out, root, dtype_code(dtype), _stream(stream))
            return out
        if array is None:
            raise InvalidArgument("scatter: root must give the array")
        target: A = empty(array, parts(shape_of(array), self._size, "array")) if out is None else out
        self._native.scatter(array, target, root, dtype_code(dtype), _stream(stream))
        return target

    # --- Point to point. ---

    def send(self, array: A, peer: int, *, dtype: DType | None = None, stream: Stream | None = None) -> None:
        """Sends n elements to rank `peer`, which receives as many of the same type.

        May wait for the receive: two ranks that send to each other do so in one `group`.
        """
        self._native.send(array, array, self._rank_number(peer, "peer"), dtype_code(dtype), _stream(stream))

    def recv(self, array: A, peer: int, *, dtype: DType | None = None, stream: Stream | None = None) -> A:
        """Receives n elements from rank `peer` into `array`, and returns it."""
        self._native.recv(array, array, self._rank_number(peer, "peer"), dtype_code(dtype), _stream(stream))
        return array

    def probe(self, peer: int) -> bool:
        """Whether the first part of a message from rank `peer` is there: `recv` would begin at once. Waits for nothing;
        False while operations of this rank are under way. Of ranks in host memory. Raises `RemoteError` when `peer` has
        left and nothing of it is there.
        """
        return self._native.probe(self._rank_number(peer, "peer"))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._native.barrier()

    def group(self) -> AbstractContextManager[None]:
        """`stretto.group()`."""
        return group()

    def pre_mul_sum(self, scalar: float, dtype: DType = "float32") -> PreMulSum:
        """Makes the operator "multiply my input by `scalar`, then sum", for arrays of type `dtype`.

        Each rank gives a scalar of its own.
        """
        code = known_dtype_code(dtype)
        return PreMulSum(self._native, self._native.create_pre_mul_sum(scalar_bytes(scalar, code), code))

    # --- Other communicators from this one. ---

    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Makes one communicator per color among all ranks, all of which call.

        Its ranks are ordered by `key` (this rank's number if None), ties by their old number. A color is 0
        or more; None joins none of them and gets None.
        """
        if color is not None:
            color = whole_number(color, "color")
            if color < 0:
                raise InvalidArgument(f"color={color}: a color is 0 or more, and None joins no communicator")
        native = self._native.split(color, self._rank if key is None else whole_number(key, "key"))
        return None if native is None else Communicator(native, self._record)

    def shrink(self, exclude: Sequence[int], *, abort: bool = False) -> Communicator:
        """Makes a communicator of the ranks that are not in `exclude`; only they call.

        They keep their order. With `abort`, running operations are ended first and the excluded may be dead:
        what a survivor of a `RemoteError` needs.
        """
        try:
            ranks = list(exclude)
        except TypeError:
            raise InvalidArgument(f"exclude={shown(exclude)}: it must be a list of ranks") from None
        numbers = [self._rank_number(rank, "exclude") for rank in ranks]
        return Communicator(self._native.shrink(numbers, bool(abort)), self._record)

    # --- Ending. ---

    def finalize(self) -> None:
        """Announces that no more operations come and waits for those that were submitted; `close` or `abort`
        follows.
        """
        self._native.finalize()

    def close(self) -> None:
        """Finalizes and frees the communicator. Again, or after `abort`: does nothing."""
        _open.discard(self)
        self._native.destroy()

    def abort(self) -> None:
        """Ends what runs, whatever the peers do, in under a second, and frees the communicator.

        Any thread may call it; a call that waits meanwhile in another thread raises, and so do the peers'
        calls.
        """
        _open.discard(self)
        self._native.abort()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._native.inherited:
            return  # A forked child leaves the block by itself; the parent is still in it.
        if error is None:
            self.close()
        else:
            self._record.note_failure(error)
            self.abort()

    # --- Asking. ---

    def counters(self) -> dict[str, int]:
        """Counts since this rank joined: init times in ns (`init_ns`, `init_bootstrap_ns`,
        `init_connect_ns`), `operations`, `bytes`, `slow_waits`, `sleeps`, `wakeups`, `allocations`,
        `window_bytes`.
        """
        return self._native.counters()

    def explain(
        self, collective: str, size: int, *, dtype: DType = "float32", op: Op = "sum", hidden: int = 0
    ) -> dict[str, Any]:
        """How an operation of `size` bytes would run here: the candidates, their predicted times, which won
        and why.

        `size` is that of the larger buffer; `hidden`, of all_reduce_add_rms_norm, the elements of a token. The result
        is the JSON "stretto.explain/1".
        """
        question = (text(collective, "collective"), byte_count(size, "size"))
        return dict(
            json.loads(
                self._native.explain(*question, known_dtype_code(dtype), op_code(op), byte_count(hidden, "hidden"))
            )
        )

    def force(self, collective: str, algorithm: str | None, protocol: str | None = None, chunk_bytes: int = 0) -> None:
        """Makes `collective` run by this algorithm from now on; None goes back to the planner.

        All ranks do the same between the same two operations. What is not there is refused, with the list of
        what is.
        """
        self._native.force(
            text(collective, "collective"),
            None if algorithm is None else text(algorithm, "algorithm"),
            None if protocol is None else text(protocol, "protocol"),
            byte_count(chunk_bytes, "chunk_bytes"),
        )

    def __repr__(self) -> str:
        return f"<stretto.Communicator rank {self._rank} of {self._size}{', closed' if self.closed else ''}>"


@atexit.register
def _end_all() -> None:
    """A program that ends without closing still parts from its peers: in peace, or in alarm if it ends by an
    error. A forked child does so for what it made itself.
    """
    failures.note_end()
    failed = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if failed is not None:
        failures.current().note_failure(failed)
    part_from_peers([one for one in _open if not one._native.inherited], failed is not None)


def part_from_peers(communicators: Sequence[Communicator], failed: bool) -> None:
    """Ends what a rank has left open."""
    for communicator in communicators:
        try:
            if failed:
                communicator.abort()
            else:
                communicator.close()
        except StrettoError as error:
            print(f"stretto: closing {communicator!r} at exit: {error}", file=sys.stderr)

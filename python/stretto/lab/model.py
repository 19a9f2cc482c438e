"""A Qwen3 layer in NumPy, cut for tensor parallelism as serving engines cut it, with random weights.

The projections into heads and into the intermediate are cut by columns, those back by rows; after each of the latter
the ranks' partial sums are all-reduced, and the sum is added to the residual and normalised. A rank keeps its heads'
part of the key-value cache. Key-value heads are copied where there are more ranks than of them.

Every rank makes the whole matrix of a layer from one seed and keeps its shard, so the weights are the same for every
number of ranks, and one rank without shards gives the result that the others must have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
# What is to be multiplied, and the products of all ranks added: (batch, k) and (k, hidden).
Product = tuple[Array, Array]
EPSILON = 1e-6
_ROPE_BASE = 1e6
_NORM_WEIGHTS = 4  # matrices of a layer, and the number that norms take in its seed


@dataclass(frozen=True)
class Shape:
    """A model's. `scaled` makes width and depth of heads smaller and leaves their numbers."""

    hidden: int = 4096
    layers: int = 36
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 12288

    def scaled(self, scale: int, layers: int) -> Shape:
        """Hidden, intermediate and the heads' size divided by `scale`; ValueError where that leaves no whole number."""
        if scale < 1 or any(size % scale for size in (self.hidden, self.intermediate, self.head_dim // 2)):
            raise ValueError(f"a scale of {scale} leaves no whole sizes: 1, 2, 4, 8, 16, 32 or 64")
        sizes = (self.hidden // scale, layers, self.heads, self.kv_heads, self.head_dim // scale)
        return Shape(*sizes, self.intermediate // scale)

    def refuse(self, ranks: int) -> str:
        """Why so many ranks cannot share it; nothing where they can."""
        if self.heads % ranks or self.intermediate % ranks or max(ranks, self.kv_heads) % min(ranks, self.kv_heads):
            return (
                f"{self.heads} heads and {self.kv_heads} key-value heads cannot be cut for {ranks} ranks: 1, 2, 4 or 8"
            )
        return ""

    @property
    def weight_bytes(self) -> int:
        """Of all layers."""
        heads = (self.heads + 2 * self.kv_heads) * self.head_dim
        own = self.hidden * (heads + self.heads * self.head_dim + 3 * self.intermediate)
        return 4 * self.layers * own


QWEN3_8B = Shape()


class Parts:
    """Where the time of a step goes, in nanoseconds: `spent(part)` gives it what has passed since the last call."""

    NAMES = ("gemm", "attention", "communication", "norm", "activation")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        self.totals = dict.fromkeys(self.NAMES, 0)
        self._last = self._clock()

    def spent(self, part: str) -> None:
        now = self._clock()
        self.totals[part] += now - self._last
        self._last = now


def rms_norm(x: Array, weight: Array) -> Array:
    """Each row by its root mean square, times the weight."""
    scale = 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(EPSILON))
    return np.asarray(x * scale * weight, np.float32)


def random(seed: tuple[int, ...], *shape: int) -> Array:
    """The same for one seed in every process."""
    return np.random.Generator(np.random.SFC64(seed)).standard_normal(shape, np.float32)


class Layer:
    """One rank's shard of one layer, and its part of the cache, of `context` tokens and the one that is decoded."""

    def __init__(self, shape: Shape, number: int, rank: int, ranks: int) -> None:
        self._shape, self._number = shape, number
        self._heads = part(shape.heads, rank, ranks)
        copies = max(1, ranks // shape.kv_heads)
        self._kv = part(shape.kv_heads, rank // copies, ranks // copies)
        own = part(shape.intermediate, rank, ranks)
        self._qkv = self._head_projection()
        self._out = self._matrix(1, shape.heads * shape.head_dim, shape.hidden)[
            columns(self._heads, shape.head_dim)
        ].copy()
        gate_up = self._matrix(2, shape.hidden, 2 * shape.intermediate)
        self._gate_up = np.hstack([gate_up[:, : shape.intermediate][:, own], gate_up[:, shape.intermediate :][:, own]])
        self._down = self._matrix(3, shape.intermediate, shape.hidden)[own].copy()
        norms = 1 + 0.1 * random((number, _NORM_WEIGHTS), 2, shape.hidden)
        self.input_norm, self.post_norm = norms
        self._q_norm, self._k_norm = 1 + 0.1 * random((number, _NORM_WEIGHTS, 1), 2, shape.head_dim)

    def _matrix(self, which: int, rows: int, columns: int) -> Array:
        return random((self._number, which), rows, columns) * np.float32(rows**-0.5)

    def _head_projection(self) -> Array:
        shape, size = self._shape, self._shape.head_dim
        whole = self._matrix(0, shape.hidden, (shape.heads + 2 * shape.kv_heads) * size)
        q, k, v = np.split(whole, [shape.heads * size, (shape.heads + shape.kv_heads) * size], axis=1)
        return np.hstack(
            [q[:, columns(self._heads, size)], k[:, columns(self._kv, size)], v[:, columns(self._kv, size)]]
        )

    def fill_cache(self, batch: int, context: int) -> None:
        """Keys and values of the tokens before, the same for every number of ranks."""
        shape = self._shape
        whole = random((self._number, _NORM_WEIGHTS, 2), 2, shape.kv_heads, batch, context + 1, shape.head_dim)
        self._keys, self._values = (np.ascontiguousarray(one) for one in whole[:, self._kv])
        self._rope = rotation(context, shape.head_dim)

    def attend(self, x: Array, parts: Parts) -> Product:
        """This rank's partial sums of the attention block."""
        batch, size = len(x), self._shape.head_dim
        heads, kv = self._heads.stop - self._heads.start, self._kv.stop - self._kv.start
        projected = x @ self._qkv
        parts.spent("gemm")
        q, k, v = np.split(projected.reshape(batch, -1, size), [heads, heads + kv], axis=1)
        q, k = rms_norm(q, self._q_norm), rms_norm(k, self._k_norm)
        parts.spent("norm")
        self._keys[:, :, -1] = _rotate(k, self._rope).transpose(1, 0, 2)
        self._values[:, :, -1] = v.transpose(1, 0, 2)
        grouped = _rotate(q, self._rope).reshape(batch, kv, heads // kv, size).transpose(1, 0, 2, 3)
        scores = grouped @ self._keys.transpose(0, 1, 3, 2) * np.float32(size**-0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        seen = (scores / scores.sum(axis=-1, keepdims=True)) @ self._values
        flat = seen.transpose(1, 0, 2, 3).reshape(batch, heads * size)
        parts.spent("attention")
        return flat, self._out

    def feed(self, x: Array, parts: Parts) -> Product:
        """This rank's partial sums of the MLP."""
        projected = x @ self._gate_up
        parts.spent("gemm")
        gate, up = np.split(projected, 2, axis=1)
        active = gate / (1 + np.exp(-gate)) * up
        parts.spent("activation")
        return np.asarray(active), self._down


def part(count: int, rank: int, ranks: int) -> slice:
    """A rank's of so many columns or heads."""
    each = count // ranks
    return slice(rank * each, (rank + 1) * each)


def columns(heads: slice, size: int) -> slice:
    """Those of a slice of heads."""
    return slice(heads.start * size, heads.stop * size)


def rotation(position: int, size: int) -> tuple[Array, Array]:
    """Cosines and sines by which a head of the token at `position` is turned, of half a head each."""
    angles = position * _ROPE_BASE ** (-np.arange(0, size, 2) / size)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
    cos, sin = rotation
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


class Model:
    """One rank's layers. `step` decodes one token of each sequence of the batch."""

    def __init__(self, shape: Shape, rank: int, ranks: int) -> None:
        self._shape = shape
        self._layers = [Layer(shape, number, rank, ranks) for number in range(shape.layers)]
        self._final_norm: Array = np.ones(shape.hidden, np.float32)
        self._input: Array = np.empty(0, np.float32)

    def prepare(self, batch: int, context: int) -> None:
        """A batch of sequences of so many tokens each."""
        self._input = random((batch, context), batch, self._shape.hidden)
        for layer in self._layers:
            layer.fill_cache(batch, context)

    def step(self, backend: Any, parts: Parts) -> Array:
        """The last hidden states, normalised: (batch, hidden). The same each time."""
        residual = self._input.copy()
        parts.clear()
        x = rms_norm(residual, self._layers[0].input_norm)
        parts.spent("norm")
        following = [layer.input_norm for layer in self._layers[1:]] + [self._final_norm]
        for layer, next_norm in zip(self._layers, following, strict=True):
            x = backend.reduce_add_norm(layer.attend(x, parts), residual, layer.post_norm, parts)
            x = backend.reduce_add_norm(layer.feed(x, parts), residual, next_norm, parts)
        return np.asarray(x)


def reference(shape: Shape, batch: int, context: int, alone: Any, clock: Callable[[], int]) -> Array:
    """What one rank computes without shards. One layer at a time is in memory."""
    residual, parts = random((batch, context), batch, shape.hidden), Parts(clock)
    pending: Product | None = None
    for number in range(shape.layers):
        layer = Layer(shape, number, 0, 1)
        layer.fill_cache(batch, context)
        if pending is None:
            x = rms_norm(residual, layer.input_norm)
        else:
            x = alone.reduce_add_norm(pending, residual, layer.input_norm, parts)
        x = alone.reduce_add_norm(layer.attend(x, parts), residual, layer.post_norm, parts)
        pending = layer.feed(x, parts)
    assert pending is not None, "a model has a layer"
    return np.asarray(alone.reduce_add_norm(pending, residual, np.ones(shape.hidden, np.float32), parts))

"""The Qwen3 layers of `model` on a GPU, in bfloat16: the same cuts for tensor parallelism, PyTorch's GEMMs and
attention, and kernels of the lab between them.

Every rank makes the whole matrix of a layer from one seed on its own GPU and keeps its shard; GPUs of one model make
the same numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stretto.lab.gpu_backends import Alone, Backend
from stretto.lab.gpu_kernels import add_rms_norm, place_heads, silu_mul
from stretto.lab.model import EPSILON, Shape, columns, part, rotation

TYPE = torch.bfloat16
_NORMS, _CACHE = 4, 5  # the matrices are 0 to 3 of a layer's seed


class Layer:
    """One rank's shard of one layer, and its part of the cache."""

    def __init__(self, shape: Shape, number: int, rank: int, ranks: int, device: torch.device) -> None:
        self._shape, self._number, self._device = shape, number, device
        self._heads = part(shape.heads, rank, ranks)
        copies = max(1, ranks // shape.kv_heads)
        self._kv = part(shape.kv_heads, rank // copies, ranks // copies)
        size, own = shape.head_dim, part(shape.intermediate, rank, ranks)
        # Rows of the first and the third are what they give, so shards of both are rows.
        q, k, v = self._matrix(0, (shape.heads + 2 * shape.kv_heads) * size, shape.hidden).split(
            [shape.heads * size, shape.kv_heads * size, shape.kv_heads * size]
        )
        self._qkv = torch.cat([q[columns(self._heads, size)], k[columns(self._kv, size)], v[columns(self._kv, size)]])
        self._out = self._matrix(1, shape.hidden, shape.heads * size)[:, columns(self._heads, size)].contiguous()
        gate, up = self._matrix(2, 2 * shape.intermediate, shape.hidden).split(shape.intermediate)
        self._gate_up = torch.cat([gate[own], up[own]])
        self._down = self._matrix(3, shape.hidden, shape.intermediate)[:, own].contiguous()
        self.input_norm, self.post_norm = 1 + 0.1 * self._random(_NORMS, 2, shape.hidden)
        self._head_norms = tuple(1 + 0.1 * self._random(_NORMS, 2, size))

    def _random(self, which: int, *shape: int) -> torch.Tensor:
        return random(self._number * 16 + which, self._device, *shape)

    def _matrix(self, which: int, rows: int, width: int) -> torch.Tensor:
        """Gives `rows` numbers for each token of `width`."""
        return self._random(which, rows, width) * width**-0.5

    def fill_cache(self, batch: int, context: int) -> None:
        """Keys and values of the tokens before, and a place for those of the next."""
        shape = self._shape
        whole = self._random(_CACHE, 2, batch, shape.kv_heads, context + 1, shape.head_dim)
        keys, values = whole[:, :, self._kv].contiguous()
        self._cache = keys, values
        halves = rotation(context, shape.head_dim)
        self._rotation = torch.cat([torch.from_numpy(half) for half in halves]).to(self._device)

    def attend(self, x: torch.Tensor, backend: Backend) -> torch.Tensor:
        """This rank's partial sums of the attention block."""
        tokens, size = len(x), self._shape.head_dim
        projected = F.linear(x, self._qkv).view(tokens, -1, size)
        q = place_heads(projected, self._head_norms, self._rotation, self._cache, EPSILON)
        seen = F.scaled_dot_product_attention(q.unsqueeze(2), *self._cache, enable_gqa=True)
        return backend.product(seen.reshape(tokens, -1), self._out)

    def feed(self, x: torch.Tensor, backend: Backend) -> torch.Tensor:
        """This rank's partial sums of the MLP."""
        return backend.product(silu_mul(F.linear(x, self._gate_up)), self._down)


def random(seed: int, device: torch.device, *shape: int) -> torch.Tensor:
    made = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=made, device=device, dtype=TYPE)


class Model:
    """One rank's layers. `step` decodes one token of each sequence of the batch."""

    def __init__(self, shape: Shape, rank: int, ranks: int, device: torch.device) -> None:
        self._shape, self._device = shape, device
        self._layers = [Layer(shape, number, rank, ranks, device) for number in range(shape.layers)]

    def prepare(self, batch: int, context: int) -> None:
        self._input = _input(self._shape, batch, context, self._device)
        for layer in self._layers:
            layer.fill_cache(batch, context)

    def step(self, backend: Backend) -> torch.Tensor:
        """The last hidden states, normalised: (batch, hidden). The same each time."""
        residual = torch.zeros_like(self._input)
        x = add_rms_norm(self._input, residual, self._layers[0].input_norm, EPSILON)
        following = [layer.input_norm for layer in self._layers[1:]] + [_final_norm(self._shape, self._device)]
        for layer, next_norm in zip(self._layers, following, strict=True):
            x, residual = backend.reduce_add_norm(layer.attend(x, backend), residual, layer.post_norm)
            x, residual = backend.reduce_add_norm(layer.feed(x, backend), residual, next_norm)
        return x


def _input(shape: Shape, batch: int, context: int, device: torch.device) -> torch.Tensor:
    return random(1 << 30 | context, device, batch, shape.hidden)


def _final_norm(shape: Shape, device: torch.device) -> torch.Tensor:
    return torch.ones(shape.hidden, dtype=TYPE, device=device)


def reference(shape: Shape, batch: int, context: int, device: torch.device) -> torch.Tensor:
    """What one rank computes without shards. One layer at a time is in memory."""
    alone, residual = Alone(), _input(shape, batch, context, device)
    partial: torch.Tensor | None = None
    for number in range(shape.layers):
        layer = Layer(shape, number, 0, 1, device)
        layer.fill_cache(batch, context)
        if partial is None:
            partial, residual = residual, torch.zeros_like(residual)
        x, residual = alone.reduce_add_norm(partial, residual, layer.input_norm)
        x, residual = alone.reduce_add_norm(layer.attend(x, alone), residual, layer.post_norm)
        partial = layer.feed(x, alone)
    assert partial is not None, "a model has a layer"
    return alone.reduce_add_norm(partial, residual, _final_norm(shape, device))[0]

"""What lies between the GEMMs of a layer on a GPU, each one kernel, as serving engines have it: Triton's, for bfloat16.

Imported by the ranks of `stretto lab` on GPUs alone. Rows are tokens, contiguous in memory; a head's size and the
hidden size are any number up to what one block holds (65536).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _add_rms_norm(x, residual, weight, out, hidden, epsilon, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    place = token * hidden + at
    added = tl.load(x + place, inside, 0.0).to(tl.float32) + tl.load(residual + place, inside, 0.0).to(tl.float32)
    rounded = added.to(residual.dtype.element_ty)
    tl.store(residual + place, rounded, inside)
    kept = rounded.to(tl.float32)
    factor = tl.rsqrt(tl.sum(kept * kept, 0) / hidden + epsilon)
    scaled = kept * factor * tl.load(weight + at, inside, 0.0).to(tl.float32)
    tl.store(out + place, scaled.to(out.dtype.element_ty), inside)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Adds `x` to the residual, in place, and returns each row of that by its root mean square, times the weight."""
    tokens, hidden = x.shape
    out = torch.empty_like(x)
    _add_rms_norm[(tokens,)](
        x, residual, weight, out, hidden, epsilon, BLOCK=triton.next_power_of_2(hidden), num_warps=8
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _norm_and_rotate(source, weight, rotation, target, epsilon, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    half: tl.constexpr = SIZE // 2
    at = tl.arange(0, half)
    first, second = tl.load(source + at).to(tl.float32), tl.load(source + half + at).to(tl.float32)
    factor = tl.rsqrt((tl.sum(first * first, 0) + tl.sum(second * second, 0)) / SIZE + epsilon)
    first = first * factor * tl.load(weight + at).to(tl.float32)
    second = second * factor * tl.load(weight + half + at).to(tl.float32)
    cos, sin = tl.load(rotation + at), tl.load(rotation + half + at)
    tl.store(target + at, (first * cos - second * sin).to(target.dtype.element_ty))
    tl.store(target + half + at, (second * cos + first * sin).to(target.dtype.element_ty))


@triton.jit  # type: ignore[untyped-decorator]
def _place_heads(projected, norms, rotation, targets, counts, epsilon, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """One head of one token: a query or a key is normalised and rotated, a value is moved."""
    heads, kv, length = counts
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = projected + (token * (heads + 2 * kv) + head) * SIZE
    if head < heads:
        _norm_and_rotate(source, norms[0], rotation, targets[0] + (token * heads + head) * SIZE, epsilon, SIZE)
    elif head < heads + kv:
        key = targets[1] + ((token * kv + head - heads) * length + length - 1) * SIZE
        _norm_and_rotate(source, norms[1], rotation, key, epsilon, SIZE)
    else:
        at = tl.arange(0, SIZE)
        value = targets[2] + ((token * kv + head - heads - kv) * length + length - 1) * SIZE
        tl.store(value + at, tl.load(source + at))


def place_heads(
    projected: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor],
    rotation: torch.Tensor,
    cache: tuple[torch.Tensor, torch.Tensor],
    epsilon: float,
) -> torch.Tensor:
    """`projected`: (tokens, heads + 2 kv heads, size), queries first, then keys, then values. Keys and values go to the
    last place of their token's cache, (tokens, kv heads, length, size) each; the queries come back, (tokens, heads,
    size). `rotation`: cosines and then sines, float32, of half a head each.
    """
    keys, values = cache
    tokens, all_heads, size = projected.shape
    kv, length = keys.shape[1], keys.shape[2]
    heads = all_heads - 2 * kv
    q = torch.empty((tokens, heads, size), dtype=projected.dtype, device=projected.device)
    _place_heads[(tokens, all_heads)](
        projected, norms, rotation, (q, keys, values), (heads, kv, length), epsilon, SIZE=size, num_warps=1
    )
    return q


@triton.jit  # type: ignore[untyped-decorator]
def _silu_mul(gate_up, out, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    row = gate_up + token * 2 * columns
    gate, up = tl.load(row + at, inside, 0.0).to(tl.float32), tl.load(row + columns + at, inside, 0.0).to(tl.float32)
    tl.store(out + token * columns + at, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """(tokens, 2 columns), the gates first: SiLU of the gates times the others."""
    tokens, columns = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, columns), dtype=gate_up.dtype, device=gate_up.device)
    _silu_mul[(tokens, triton.cdiv(columns, 1024))](gate_up, out, columns, BLOCK=1024)
    return out


PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("norm", ("_add_rms_norm", "_place_heads")),
    ("activation", ("_silu_mul",)),
    ("communication", ("stretto", "nccl", "all_reduce", "allreduce", "cross_device_reduce")),
    ("attention", ("flash", "fmha", "attention")),
)
"""The parts of a step, by what the names of their kernels hold; all others are GEMMs."""


def part_of(kernel: str) -> str:
    lower: Any = kernel.lower()
    return next((part for part, words in PARTS if any(word in lower for word in words)), "gemm")

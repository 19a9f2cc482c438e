"""vLLM's passes with this library's in the place of the one that fuses all-reduce and RMSNorm. Imported by vLLM, by
name, and where the device communicator has opened the fused call for a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from stretto_engines import say
from vllm import envs
from vllm.compilation.passes import pass_manager
from vllm.compilation.passes.vllm_inductor_pass import VllmInductorPass, VllmPatternMatcherPass

import stretto
from stretto.engines import fused
from stretto.vllm import ENGINE, graph, sources

# Parts of a model's code that was compiled before are found again by this.
_SOURCES = sources()


def name_of(group: str) -> str:
    """The operators' name of a vLLM group; nothing for one that is not open."""
    name = fused.name_of(ENGINE, group)
    return name if fused.is_open(name) else ""


class StrettoFusionPass(VllmPatternMatcherPass):  # type: ignore[misc]
    """In each graph of the compiler: all-reduce, RMSNorm, with and without residual and 8-bit result, in one call.

    It takes the graphs that vLLM's pass takes, those of at most as many tokens as `fi_allreduce_fusion_max_size_mb`
    allows. Where vLLM wants the same bits for every batch, or has no such limit, it takes all.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._most = None if envs.VLLM_BATCH_INVARIANT else _most_tokens(config)

    def is_applicable_for_range(self, compile_range: Any) -> bool:
        return self._most is None or bool(compile_range.end <= self._most)

    def uuid(self) -> str:
        return str(self.hash_source(type(self), _SOURCES, stretto.__version__))

    @VllmInductorPass.time_and_log  # type: ignore[untyped-decorator]
    def __call__(self, nodes: Any) -> None:
        operators = graph.Operators(
            torch.ops.stretto.all_reduce_add_rms_norm.default, torch.ops.stretto.all_reduce_add_rms_norm_fp8.default
        )
        self.matched_count = graph.fuse(nodes, name_of, operators, _refused)
        VllmPatternMatcherPass.match_table[self.pass_name] += self.matched_count


def _most_tokens(config: Any) -> int | None:
    size = config.compilation_config.pass_config.flashinfer_max_size(config.parallel_config.tensor_parallel_size)
    if size is None or config.model_config is None:
        return None
    return int(size // (config.model_config.get_hidden_size() * config.model_config.dtype.itemsize))


def _refused(reason: str) -> None:
    say(ENGINE, f"{reason}: all-reduce and norm stay apart there")


class StrettoPassManager(pass_manager.PostGradPassManager):  # type: ignore[misc]
    """vLLM's passes in vLLM's order. Its own fusion of all-reduce and RMSNorm is not made: it would take memory."""

    def configure(self, config: Any) -> None:
        with _in_place():
            super().configure(config)


@contextmanager
def _in_place() -> Iterator[None]:
    own = pass_manager.AllReduceFusionPass
    pass_manager.AllReduceFusionPass = StrettoFusionPass
    try:
        yield
    finally:
        pass_manager.AllReduceFusionPass = own

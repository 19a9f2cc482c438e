"""The plugins' fused step with PyTorch itself, on CPU tensors: graphs as Inductor gets them with operators of vLLM's
names, and code that SGLang compiles. Ranks are threads, results are compared with float64.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: graphs and operators are not tested here", allow_module_level=True)

import stretto
import stretto.torch
import torch
from engine_stand_ins import sglang_stand_in
from stretto.engines import fused
from stretto.sglang import fused as sglang_fused
from stretto.vllm import graph as steps
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

RANKS, SECONDS = 2, 120
_LIBRARIES = [torch.library.Library(name, "FRAGMENT") for name in ("vllm", "vllm_ir")]


def define(library: Any, schema: str, body: Callable[..., Any]) -> None:
    """An operator of vLLM's name and schema that knows shapes alone: what is left in a graph cannot be run."""
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, body, "Meta")


define(_LIBRARIES[0], "all_reduce(Tensor tensor, str group_name) -> Tensor", lambda tensor, _: torch.empty_like(tensor))
define(
    _LIBRARIES[1],
    "rms_norm(Tensor x, Tensor? weight, float epsilon, int? variance_size=None) -> Tensor",
    lambda x, *_: torch.empty_like(x),
)
define(
    _LIBRARIES[1],
    "fused_add_rms_norm(Tensor x, Tensor x_residual, Tensor? weight, float epsilon, int? variance_size=None)"
    " -> (Tensor, Tensor)",
    lambda x, *_: (torch.empty_like(x), torch.empty_like(x)),
)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A name for each rank's communicator."""
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    communicators = stretto.init_all(RANKS)
    names = [f"vLLM tp:{rank}" for rank in range(RANKS)]
    for name, communicator in zip(names, communicators, strict=True):
        stretto.torch.use(communicator, name)
    yield names
    for name, communicator in zip(names, communicators, strict=True):
        stretto.torch.use(None, name)
        communicator.abort()


def on_every_rank(body: Callable[[int], Any]) -> list[Any]:
    results: list[Any] = [None] * RANKS
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a rank hangs"
    for error in errors:
        raise error
    return results


def noise(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(part: Any, residual: Any, weight: Any, scale: Any, group: str) -> Any:
    """One step of each kind, in vLLM's operators."""
    ops, ir = torch.ops.vllm, torch.ops.vllm_ir
    summed = ops.all_reduce(part, group)
    first = ir.rms_norm(summed, weight, 1e-5)
    normalised, added = ir.fused_add_rms_norm(ops.all_reduce(part * 2, group), summed, weight, 1e-6)
    last, _ = ir.fused_add_rms_norm(ops.all_reduce(part * 4, group), residual, weight, 1e-6)
    limited = (last.to(torch.float32) * scale.reciprocal()).clamp(-448.0, 448.0)
    return first, normalised, added, limited.to(torch.float8_e4m3fn)


def graph_of(group: str, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, int, list[str]]:
    """The layer as the compiler's graph with our operators in it, how many they are, and what was refused."""
    refused: list[str] = []
    ours = torch.ops.stretto
    operators = steps.Operators(ours.all_reduce_add_rms_norm.default, ours.all_reduce_add_rms_norm_fp8.default)
    trace = make_fx(
        lambda *tensors: layer(*tensors, group), decomposition_table=select_decomp_table(), tracing_mode="fake"
    )
    module = trace(*inputs)
    count = steps.fuse(module.graph, lambda name: name, operators, refused.append)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module, count, refused


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_of_vllm_computes_what_it_did(groups: list[str], dtype: torch.dtype) -> None:
    tokens, hidden = 3, 512
    parts = [noise(rank, tokens, hidden).to(dtype) for rank in range(RANKS)]
    residual, weight = noise(8, tokens, hidden).to(dtype), (1 + noise(9, hidden) / 8).to(dtype)
    scale = torch.tensor([0.02])
    graphs = []
    for rank, group in enumerate(groups):
        module, count, refused = graph_of(group, (parts[rank], residual, weight, scale))
        assert (count, refused) == (3, [])
        targets = [str(node.target) for node in module.graph.nodes]
        assert targets.count("stretto.all_reduce_add_rms_norm.default") == 2
        assert targets.count("stretto.all_reduce_add_rms_norm_fp8.default") == 1
        assert not [target for target in targets if target.startswith("aten.clamp")]
        graphs.append(module)
    results = on_every_rank(lambda rank: graphs[rank](parts[rank], residual, weight, scale))

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype).double()

    def norm(tensor: torch.Tensor, epsilon: float) -> torch.Tensor:
        return tensor * torch.rsqrt(tensor.pow(2).mean(-1, keepdim=True) + epsilon) * weight.double()

    total = sum((part.double() for part in parts), torch.zeros(tokens, hidden, dtype=torch.float64))
    summed = rounded(total)
    added = rounded(rounded(2 * total) + summed)
    last = rounded(rounded(4 * total) + residual.double())
    bound = 2 * torch.finfo(dtype).eps
    for first, normalised, got, quantised in results:
        torch.testing.assert_close(first.double(), norm(summed, 1e-5), rtol=bound, atol=bound)
        torch.testing.assert_close(normalised.double(), norm(added, 1e-6), rtol=bound, atol=bound)
        torch.testing.assert_close(got.double(), added, rtol=bound, atol=bound)
        exact = (norm(last, 1e-6) / scale.double()).clamp(-448, 448)
        # Half the distance of float8_e4m3fn's values, and what a rounding to the type before may move.
        torch.testing.assert_close(quantised.double(), exact, rtol=1 / 16 + 2 * bound, atol=2.0**-10)


class Group:
    """One of SGLang's groups, with the operators' name for it."""

    def __init__(self, name: str) -> None:
        self.world_size = RANKS
        setattr(self, sglang_fused._NAME, name)


@pytest.mark.timeout(SECONDS)
def test_code_that_sglang_compiles_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    sglang_stand_in(monkeypatch, torch)
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    (alone,) = stretto.init_all(1)
    stretto.torch.use(alone, "SGLang alone")
    monkeypatch.setattr(fused, "_OPEN", {"SGLang alone"})
    group = Group("SGLang alone")
    import sglang.srt.layers.flashinfer_comm_fusion as comm

    monkeypatch.setattr(comm, "resolve_fusion_group", lambda *, use_attn_tp_group: (1, 0, group))

    def own(*_: Any, **__: Any) -> Any:
        raise AssertionError("SGLang's own was called")

    def layer(part: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
        return sglang_fused.around_fused(own, part, residual, weight, eps=1e-6, use_attn_tp_group=True)

    part, residual, weight = noise(0, 3, 512), noise(1, 3, 512), 1 + noise(2, 512) / 8
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        for got, plain in zip(compiled(part, residual, weight), layer(part, residual, weight), strict=True):
            assert torch.equal(got, plain)
        declined = torch.compile(lambda part: layer(part, residual, weight.double())[0] is None, fullgraph=True)
        assert declined(part)
    stretto.torch.use(None, "SGLang alone")
    alone.abort()

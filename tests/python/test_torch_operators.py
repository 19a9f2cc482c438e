"""`stretto.torch`: the operators against plain arithmetic, whole in compiled graphs, on ranks that are threads; on GPUs
too where there is one for each rank.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: its operators are not tested here", allow_module_level=True)

import stretto
import stretto.torch
import torch
import torch.distributed as dist

RANKS = 2
SECONDS = 120
PLACES = ["cpu"] + ["cuda"] * (torch.cuda.device_count() >= RANKS)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the ranks' tensors are."""
    monkeypatch.setenv("STRETTO_DEVICE", request.param)
    return str(request.param)


def device_of(rank: int, place: str) -> torch.device:
    return torch.device(place, rank) if place == "cuda" else torch.device(place)


@pytest.fixture
def groups(place: str) -> Iterator[list[str]]:
    """A name for each rank's communicator."""
    names = [f"test {rank}" for rank in range(RANKS)]
    communicators = stretto.init_all(RANKS)
    for name, communicator in zip(names, communicators, strict=True):
        stretto.torch.use(communicator, name)
    yield names
    for name, communicator in zip(names, communicators, strict=True):
        stretto.torch.use(None, name)
        communicator.abort()


def on_every_rank(names: list[str], body: Callable[[int, str], Any]) -> list[Any]:
    """What `body` returns on each rank. Raises what the first one raised."""
    results: list[Any] = [None] * len(names)
    errors: list[BaseException | None] = [None] * len(names)

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank, names[rank])
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a rank hangs"
    for error in errors:
        if error is not None:
            raise error
    return results


def tensors(
    rank: int, dtype: torch.dtype, *shape: int, place: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A rank's part, the residual and the weight."""
    device = device_of(rank, place)
    own, same = torch.Generator().manual_seed(rank + 1), torch.Generator().manual_seed(99)
    return (
        torch.randn(*shape, generator=own).to(device, dtype),
        torch.randn(*shape, generator=same).to(device, dtype),
        (1 + torch.randn(shape[-1], generator=same) / 8).to(device, dtype),
    )


def expected(dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised tensor and the residual, in float64 from parts that are rounded where the library rounds."""
    _, residual, weight = tensors(0, dtype, *shape)
    total = sum(tensors(rank, dtype, *shape)[0].double() for rank in range(RANKS))
    assert isinstance(total, torch.Tensor)
    added = (total.to(dtype).double() + residual.double()).to(dtype)
    factor = torch.rsqrt(added.double().pow(2).mean(-1, keepdim=True) + 1e-6)
    return added.double() * factor * weight.double(), added.double()


def assert_close(got: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    # One rounding of the type, and what a rounding of its operand may have moved it by.
    relative = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.cpu().double(), exact, rtol=relative, atol=relative)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 512), (3, 5, 1000), (64, 4096)])
def test_norm(groups: list[str], place: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def body(rank: int, group: str) -> tuple[torch.Tensor, torch.Tensor]:
        part, residual, weight = tensors(rank, dtype, *shape, place=place)
        return stretto.torch.all_reduce_add_rms_norm(part, residual, weight, group=group)

    results = on_every_rank(groups, body)
    for normalised, added in results:
        for got, exact in zip((normalised, added), expected(dtype, *shape), strict=True):
            assert got.shape == shape and got.dtype == dtype
            assert_close(got, exact, dtype)
        assert torch.equal(normalised.cpu(), results[0][0].cpu())


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("per_token", [True, False])
def test_quantised_norm(groups: list[str], place: str, dtype: torch.dtype, per_token: bool) -> None:
    scale = None if per_token else torch.tensor([0.02])

    def body(rank: int, group: str) -> tuple[torch.Tensor, ...]:
        part, residual, weight = tensors(rank, torch.bfloat16, 7, 512, place=place)
        own = None if scale is None else scale.to(part.device)
        normalised, _ = stretto.torch.all_reduce_add_rms_norm(part, residual, weight, group=group)
        return normalised, *stretto.torch.all_reduce_add_rms_norm_fp8(
            part, residual, weight, scale=own, dtype=dtype, group=group
        )

    for results in on_every_rank(groups, body):
        normalised, quantised, scales, _added = (one.cpu() for one in results)
        most = torch.finfo(dtype).max
        wanted = normalised.float().abs().amax(-1, keepdim=True) / most if per_token else scale
        assert torch.equal(scales, wanted)
        codes = (normalised.float() * (1 / scales)).clamp(-most, most).to(dtype)
        assert torch.equal(quantised.view(torch.uint8), codes.view(torch.uint8))


@pytest.mark.timeout(SECONDS)
def test_all_reduce(groups: list[str], place: str) -> None:
    def body(rank: int, group: str) -> torch.Tensor:
        part = torch.arange(10.0, device=device_of(rank, place))[::2] + rank
        return stretto.torch.all_reduce(part, "max", group=group)

    for got in on_every_rank(groups, body):
        assert torch.equal(got.cpu(), torch.arange(10.0)[::2] + RANKS - 1)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
def test_cuda_graphs_hold_operators(groups: list[str], place: str) -> None:
    def body(rank: int, group: str) -> list[torch.Tensor]:
        part, residual, weight = tensors(rank, torch.bfloat16, 4, 1024, place=place)
        inputs, results = part.clone(), []
        stream = torch.cuda.Stream(part.device)
        stream.wait_stream(torch.cuda.current_stream(part.device))
        with torch.cuda.device(rank), torch.cuda.stream(stream):
            stretto.torch.all_reduce_add_rms_norm(inputs, residual, weight, group=group)  # connects
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                normalised, _ = stretto.torch.all_reduce_add_rms_norm(inputs, residual, weight, group=group)
            for factor in (1, 2, 3):
                torch.mul(part, factor, out=inputs)
                graph.replay()
                results.append(normalised.cpu())
                plain, _ = stretto.torch.all_reduce_add_rms_norm(part * factor, residual, weight, group=group)
                results.append(plain.cpu())
        return results

    for results in on_every_rank(groups, body):
        for replayed, plain in zip(results[::2], results[1::2], strict=True):
            assert torch.equal(replayed, plain)
        assert not torch.equal(results[0], results[2])


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("place", PLACES[1:], indirect=True)
def test_tensors_of_another_device_are_refused(groups: list[str], place: str) -> None:
    with pytest.raises(ValueError, match="the tensors are on cpu, and this rank of the group is on cuda:0"):
        stretto.torch.all_reduce(torch.zeros(8), group=groups[0])
    with pytest.raises(ValueError, match="the tensors are on cuda:1, and this rank of the group is on cuda:0"):
        stretto.torch.all_reduce(torch.zeros(8, device="cuda:1"), group=groups[0])


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("place", ["cpu"], indirect=True)
def test_compiled_graphs_are_whole(groups: list[str]) -> None:
    graphs: list[Any] = []

    def keep(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def layer(part: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, group: str) -> torch.Tensor:
        hidden, added = stretto.torch.all_reduce_add_rms_norm(part * 2, residual, weight, group=group)
        return stretto.torch.all_reduce(hidden + added, group=group)

    compiled = torch.compile(layer, backend=keep, fullgraph=True)
    # One after the other, as a compiler is not for two threads: what runs are the graphs.
    made = []
    for rank, group in enumerate(groups):
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            compiled(*(torch.empty(3, 512), torch.empty(3, 512), torch.empty(512)), group)
        made.append(graphs[-1])
        names = [str(node.target) for node in graphs[-1].graph.nodes if node.op == "call_function"]
        assert any("all_reduce_add_rms_norm" in name for name in names), f"rank {rank}: {names}"

    def body(rank: int, group: str) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = tensors(rank, torch.float32, 3, 512)
        return made[rank](*inputs)[0], layer(*inputs, group)

    for from_graph, plain in on_every_rank(groups, body):
        assert torch.equal(from_graph, plain)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[stretto.Communicator]:
    """The only rank of the group "alone", in host memory."""
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    (communicator,) = stretto.init_all(1)
    stretto.torch.use(communicator, "alone")
    yield communicator
    stretto.torch.use(None, "alone")
    communicator.abort()


@pytest.mark.timeout(2 * SECONDS)
def test_compiled_graphs_keep_what_has_no_use(alone: stretto.Communicator) -> None:
    part, residual, weight = tensors(0, torch.float32, 3, 512)

    def layer(part: torch.Tensor) -> torch.Tensor:
        stretto.torch.all_reduce(part, group="alone")
        stretto.torch.all_reduce_add_rms_norm(part, residual, weight, group="alone")
        stretto.torch.all_reduce_add_rms_norm_fp8(part, residual, weight, group="alone")
        return part + 1

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    for turn in range(2):
        before = alone.counters()["operations"]
        assert torch.equal(compiled(part), part + 1)
        assert alone.counters()["operations"] - before == 3, f"turn {turn}: a peer would wait for the others"


@pytest.mark.timeout(SECONDS)
def test_operators_are_well_formed(alone: stretto.Communicator) -> None:
    part, residual, weight = tensors(0, torch.bfloat16, 3, 512)
    operators = torch.ops.stretto
    torch.library.opcheck(operators.all_reduce, (part, "sum", "alone"))
    rest = {"epsilon": 1e-6, "group": "alone"}
    torch.library.opcheck(operators.all_reduce_add_rms_norm, (part, residual, weight, None), rest)
    for scale in (None, torch.tensor([0.5])):
        torch.library.opcheck(
            operators.all_reduce_add_rms_norm_fp8,
            (part, residual, weight, None, scale),
            {**rest, "dtype": torch.float8_e4m3fn},
        )


def test_cpu_tensors_want_a_group_of_this_backend(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="is of another backend, and the tensors are on the CPU"):
            stretto.torch.all_reduce(torch.zeros(8))
    finally:
        dist.destroy_process_group()


def test_what_is_wrong_is_said() -> None:
    part, residual, weight = tensors(0, torch.float32, 3, 512)
    with pytest.raises(ValueError, match=r"no default group: init_process_group first"):
        stretto.torch.all_reduce(part)
    with pytest.raises(ValueError, match=r"512 elements of torch\.float32"):
        stretto.torch.all_reduce_add_rms_norm(part, residual, weight.double())
    with pytest.raises(ValueError, match="float8_e4m3fn or float8_e5m2"):
        stretto.torch.all_reduce_add_rms_norm_fp8(part, residual, weight, dtype=torch.int8)
    wrong = {
        "residual": (part, residual.reshape(-1), weight),
        "weight": (part, residual, weight[:256]),
        "residual ": (part, residual.t(), weight),
    }
    for name, given in wrong.items():
        with pytest.raises(ValueError, match=f"{name.strip()} has shape .* and needs "):
            stretto.torch.all_reduce_add_rms_norm(*given)
        with torch._subclasses.FakeTensorMode() as mode, pytest.raises(ValueError, match="and needs "):
            stretto.torch.all_reduce_add_rms_norm_fp8(*(mode.from_tensor(one) for one in given))
    with pytest.raises(ValueError, match=r"bias has shape \(3, 512\) and needs \(512,\)"):
        stretto.torch.all_reduce_add_rms_norm(part, residual, weight, bias=part)

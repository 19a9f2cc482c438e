"""vLLM's compiler with this library's plugin, on CPU tensors of two ranks.

Real: vLLM's package with all its dependencies, its platform, configuration, groups, IR operators, compiler backend,
passes and their order, Inductor; the plugin from its entry point on. Not real, for want of a GPU: the driver's
library (README.md), what the platform says of the GPU, the device communicators (torch.distributed's Gloo), and our
communicator, which is one of host ranks.
"""

import os
import sys
import tempfile
from datetime import timedelta
from typing import Any

RANKS, HIDDEN = 2, 512


def platform() -> Any:
    """vLLM's platform for CUDA without NVML, which is told of a GPU of compute capability 9.0."""
    import vllm.platforms
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability

    class NoGpu(cuda.NonNvmlCudaPlatform):
        get_device_capability = classmethod(lambda cls, device_id=0: DeviceCapability(9, 0))
        get_device_name = classmethod(lambda cls, device_id=0: "none")

    vllm.platforms._current_platform = NoGpu()
    return NoGpu


def host_communicator(group: Any, device: Any) -> Any:
    """In place of `stretto.torch.on_gpus.communicator_of`."""
    import torch.distributed as dist
    from stretto.pytorch.join import join
    from torch.distributed import distributed_c10d as c10d

    store = dist.PrefixStore("stretto.torch/", c10d._get_process_group_store(group))
    return join(store, dist.get_rank(group), dist.get_world_size(group), timedelta(seconds=60), "tp")[0]


def open_groups(rank: Any, config: Any, no_gpu: Any, meet: Any) -> None:
    """vLLM's groups with Gloo under them, and the fused call as the device communicator opens it."""
    import torch
    from stretto.torch import on_gpus
    from stretto.vllm.communicator import StrettoCommunicator
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator

    assert no_gpu.get_device_communicator_cls() == "stretto.vllm.communicator.StrettoCommunicator"
    assert issubclass(StrettoCommunicator, CudaCommunicator)
    base = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"
    no_gpu.get_device_communicator_cls = classmethod(lambda cls: base)
    torch.cuda.set_device = lambda *_: None
    on_gpus.communicator_of = host_communicator
    on_gpus.expect_ready = lambda device: None
    on_gpus.try_out = lambda communicator, device, call: call()
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(RANKS, rank, f"file://{meet}", rank, "gloo")
        parallel_state.initialize_model_parallel(RANKS)
        group = parallel_state.get_tp_group().device_communicator
        group._tell = lambda text: rank == 0 and print(f"said: {text}", flush=True)
        group.device = torch.device("cpu")
        StrettoCommunicator._open_fused(group)


def make_model(config: Any, prefix: Any) -> Any:
    import torch
    import vllm.ir.ops
    from torch import nn
    from vllm.compilation.decorators import support_torch_compile
    from vllm.distributed import tensor_model_parallel_all_reduce
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
    from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

    @support_torch_compile(dynamic_arg_dims={"x": 0})
    class Model(nn.Module):
        """The three shapes of the step in a model: behind the embedding, between layers, and before 8-bit matrices."""

        def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
            super().__init__()
            self.quantise = QuantFP8(static=True, group_shape=GroupShape.PER_TENSOR)

        def forward(self, x: Any, weight: Any, scale: Any) -> Any:
            residual = tensor_model_parallel_all_reduce(x)
            hidden = vllm.ir.ops.rms_norm(residual, weight, 1e-5)
            part = tensor_model_parallel_all_reduce(hidden)
            hidden, residual = vllm.ir.ops.fused_add_rms_norm(part, residual, weight, 1e-6)
            part = tensor_model_parallel_all_reduce(hidden)
            hidden, residual = vllm.ir.ops.fused_add_rms_norm(part, residual, weight, 1e-6)
            quantised, _ = self.quantise(hidden, scale)
            return quantised, residual

    return Model(vllm_config=config, prefix=prefix).to(torch.float32)


def exact(parts: Any, weight: Any, scale: Any, dtype: Any) -> Any:
    """In float64, with a rounding to the type wherever a tensor of the type lies between two operations."""
    import torch

    def rounded(tensor: Any) -> Any:
        return tensor.to(dtype).double()

    def norm(tensor: Any, epsilon: Any) -> Any:
        return rounded(tensor * torch.rsqrt(tensor.pow(2).mean(-1, keepdim=True) + epsilon) * weight.double())

    parts = [part.double() for part in parts]
    residual = rounded(sum(parts))
    hidden = norm(residual, 1e-5)
    for _ in range(2):
        residual = rounded(rounded(RANKS * hidden) + residual)
        hidden = norm(residual, 1e-6)
    return hidden / scale.double(), residual


def compare(model: Any, rank: Any, dtype: Any, tokens: Any) -> None:
    import torch

    def noise(seed: Any, *shape: int) -> Any:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

    parts = [noise(one, tokens, HIDDEN).to(dtype) for one in range(RANKS)]
    weight, scale = (1 + noise(9, HIDDEN) / 8).to(dtype), torch.tensor([0.02])
    with torch.no_grad():
        quantised, residual = model(parts[rank], weight, scale)
    hidden, added = exact(parts, weight, scale, dtype)
    step = torch.finfo(dtype).eps
    worst_residual = ((residual.double() - added).abs() / added.abs().clamp(min=1)).max().item() / step
    # Of 8 bits the spacing is 1/8 of the value, from 2^-9 on.
    limited = hidden.clamp(-448, 448)
    spacing = torch.exp2(torch.floor(torch.log2(limited.abs().clamp(min=2.0**-6)))) / 8
    worst = ((quantised.double() - limited).abs() / spacing).max().item()
    print(f"rank {rank}, {dtype}, {tokens} tokens: residual within {worst_residual:.2f} eps, 8 bits {worst:.3f} steps")
    assert worst_residual < 6 and worst < 1.1 and quantised.dtype == torch.float8_e4m3fn


def watch_graphs() -> list[Any]:
    """What each graph holds after our pass: our operators, and what writes 8 bits out."""
    from stretto.vllm import graph

    own, seen = graph.fuse, []

    def fuse(nodes: Any, *rest: Any) -> int:
        count = own(nodes, *rest)
        targets = [str(node.target) for node in nodes.nodes]
        ours = [f"stretto.all_reduce_add_rms_norm{kind}.default" for kind in ("", "_fp8")]
        clamps = sum(target.startswith("aten.clamp") for target in targets)
        seen.append([*(targets.count(name) for name in ours), clamps])
        return count

    graph.fuse = fuse
    return seen


def one_rank(rank: Any, no_gpu: Any, meet: Any) -> None:
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from stretto.engines.contract import ENGINES, misfits
    from vllm import __version__, envs
    from vllm.compilation.passes.vllm_inductor_pass import get_match_table
    from vllm.config import CompilationConfig, DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.forward_context import set_forward_context

    seen = watch_graphs()
    turns = ((torch.float32, "compiled"), (torch.bfloat16, "compiled"), (torch.bfloat16, "found again in vLLM's cache"))
    for turn, (dtype, how) in enumerate(turns):
        # What would tell models of two types apart is in the configuration of a model, which there is none of.
        os.environ["VLLM_CACHE_ROOT"] = f"{meet}-{dtype}"
        passes = {"fuse_allreduce_rms": True}
        compilation = CompilationConfig(mode=3, pass_config=passes, cudagraph_mode="NONE", compile_sizes=[])
        config = VllmConfig(compilation_config=compilation, device_config=DeviceConfig(device="cpu"))
        config.parallel_config.rank = rank
        if turn == 0:
            if rank == 0:
                print(f"vLLM {__version__}, torch {torch.__version__}; misfits: {misfits(ENGINES['vllm'])}")
            before = envs.compile_factors()["STRETTO_VLLM"]
            open_groups(rank, config, no_gpu, meet)
            print(f"rank {rank}: cache key {before!r}, then {envs.compile_factors()['STRETTO_VLLM']!r}")
            print(f"rank {rank}: passes {no_gpu.get_pass_manager_cls()}")
        matches = sum(get_match_table().values())
        with set_current_vllm_config(config):
            model = make_model(config, str(dtype))
        for tokens in (2, 3, 8, 64, 300):
            with set_forward_context(None, config):
                compare(model, rank, dtype, tokens)
        replaced = sum(get_match_table().values()) - matches
        print(f"rank {rank}, {dtype}, {how}: {replaced} steps replaced", flush=True)
        graphs, seen[:] = list(seen), []
        assert all(one == [2, 1, 0] for one in graphs), graphs
        print(f"rank {rank}, {dtype}: {len(graphs)} graphs, each with 2 calls, 1 with 8 bits, 0 clamps", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(STRETTO_VLLM="1", STRETTO_DEVICE="cpu", VLLM_CACHE_ROOT=folder)
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor", TORCHINDUCTOR_COMPILE_THREADS="1")
        # What takes longest is done once, before there are ranks.
        no_gpu = platform()
        import torch
        import vllm.compilation.decorators  # noqa: F401

        ranks = []
        for rank in range(RANKS):
            process = os.fork()
            if process == 0:
                one_rank(rank, no_gpu, f"{folder}/meet")
                sys.stdout.flush()
                os._exit(0)
            ranks.append(process)
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks))

"""SGLang's norms with this library's plugin, on CPU tensors of two ranks.

Real: SGLang's package with all its dependencies, its discovery of plugins and its registry of hooks, groups, RMSNorm
and GemmaRMSNorm with their `forward_with_allreduce_fusion`, the choice of the group; the plugin from its entry point
on. Not real, for want of a GPU: our communicator, which is one of host ranks. FlashInfer's kernels are not there.
"""

import os
import sys
import tempfile
from datetime import timedelta
from typing import Any

RANKS, HIDDEN = 2, 512


def host_communicator(group: Any, device: Any) -> Any:
    """In place of `stretto.torch.on_gpus.communicator_of`."""
    import torch.distributed as dist
    from stretto.pytorch.join import join
    from torch.distributed import distributed_c10d as c10d

    store = dist.PrefixStore("stretto.torch/", c10d._get_process_group_store(group))
    return join(store, dist.get_rank(group), dist.get_world_size(group), timedelta(seconds=60), group.group_name)[0]


def make_group(rank: Any, name: Any) -> Any:
    """One of SGLang's, as it makes them, on Gloo."""
    from sglang.srt.distributed.parallel_state import GroupCoordinator

    off = dict.fromkeys(
        (
            "use_pynccl",
            "use_mscclpp",
            "use_custom_allreduce",
            "use_torch_symm_mem_all_reduce",
            "use_hpu_communicator",
            "use_xpu_communicator",
        ),
        False,
    )
    return GroupCoordinator([list(range(RANKS))], rank, "gloo", group_name=name, **off)


def noise(seed: Any, *shape: int) -> Any:
    import torch

    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compare(rank: Any, kind: Any, dtype: Any, tokens: Any, attention: Any, compiled: Any) -> None:
    import torch
    from sglang.srt.layers import layernorm

    norm = getattr(layernorm, kind)(HIDDEN, eps=1e-6).to(dtype)
    own = noise(9, HIDDEN) / 8
    with torch.no_grad():
        norm.weight.copy_(own if kind == "GemmaRMSNorm" else 1 + own)
        if kind == "GemmaRMSNorm":
            norm.refresh_gemma_weight()
    weight = norm.gemma_weight if kind == "GemmaRMSNorm" else norm.weight
    parts = [noise(one, tokens, HIDDEN).to(dtype) for one in range(RANKS)]
    residual = noise(8, tokens, HIDDEN).to(dtype)
    before = residual.clone()
    call = norm.forward_with_allreduce_fusion
    if compiled:
        call = torch.compile(call, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        normalised, added = call(parts[rank], residual, use_attn_tp_group=attention)
    assert torch.equal(residual, before)
    total = sum(part.double() for part in parts).to(dtype).double()
    exact = (total + residual.double()).to(dtype).double()
    factor = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
    step = torch.finfo(dtype).eps
    worst = []
    for got, wanted in ((added, exact), (normalised, exact * factor * weight.double())):
        assert got.dtype == dtype
        worst.append(((got.double() - wanted).abs() / wanted.abs().clamp(min=1)).max().item() / step)
    how = "compiled" if compiled else "eager"
    print(f"rank {rank}, {kind}, {dtype}, {tokens} tokens, {how}: residual {worst[0]:.2f} eps, norm {worst[1]:.2f} eps")
    assert max(worst) < 2


def one_rank(rank: Any, meet: Any) -> None:
    import torch
    import torch.distributed as dist
    from sglang.srt.plugins import load_plugins

    load_plugins()
    import sglang
    from sglang.srt.layers import flashinfer_comm_fusion as comm
    from sglang.srt.layers.layer_boundary.residual import add_norm
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.runtime_context import get_parallel
    from stretto.engines.contract import ENGINES, misfits
    from stretto.torch import on_gpus

    if rank == 0:
        print(f"SGLang {sglang.__version__}, torch {torch.__version__}; misfits: {misfits(ENGINES['sglang'])}")
        print("hooks applied:", *sorted(HookRegistry._patched), sep="\n  ", flush=True)
    on_gpus.communicator_of = host_communicator
    on_gpus.expect_ready = lambda device: None
    on_gpus.try_out = lambda communicator, device, call: call()
    # A GPU that SGLang fuses on, and its option for that.
    add_norm.flashinfer_ar_fusion_applies = lambda batch_size: True
    comm.resolve_flashinfer_allreduce_fusion_backend = lambda: "trtllm"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=RANKS)
    groups = {name: make_group(rank, name) for name in ("attention_tp", "moe_tp")}
    sizes = {"tp_size": RANKS, "attn_tp_size": RANKS, "moe_tp_size": RANKS, "moe_ep_size": 1, "attn_tp_rank": rank}
    sizes |= {"attn_tp_group": groups["attention_tp"], "moe_tp_group": groups["moe_tp"], "tp_group": groups["moe_tp"]}
    with get_parallel().override(**sizes):
        comm.pre_initialize_workspaces(max_token_num=2048, hidden_dim=HIDDEN, dtype=torch.bfloat16)
        for dtype in (torch.float32, torch.bfloat16):
            for tokens in (1, 3, 64, 300):
                compare(rank, "RMSNorm", dtype, tokens, tokens != 3, compiled=False)
        compare(rank, "GemmaRMSNorm", torch.bfloat16, 8, True, compiled=False)
        compare(rank, "RMSNorm", torch.bfloat16, 8, True, compiled=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(STRETTO_SGLANG="1", STRETTO_DEVICE="cpu")
        # What takes longest is done once, before there are ranks.
        import sglang.srt.layers.layernorm  # noqa: F401

        ranks = []
        for rank in range(RANKS):
            process = os.fork()
            if process == 0:
                one_rank(rank, f"{folder}/meet")
                sys.stdout.flush()
                os._exit(0)
            ranks.append(process)
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in ranks))

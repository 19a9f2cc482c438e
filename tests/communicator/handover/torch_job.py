"""A PyTorch job of two ranks, one GPU for each: DDP, FSDP2, tensor parallelism, uneven all-to-all, split groups and
graphs, every result verified.

    python torch_job.py --library PATH/libnccl.so.2 --by import|preload|none [--hosts N] [--times N] [--at-once N]
    python torch_job.py --backend stretto

NCCL takes the ranks for ranks of two hosts unless --hosts says 1, so that Stretto hands them over to the real NCCL.
`import` loads the library as `import stretto.nccl` does, before torch; `none` is the real NCCL alone. With the backend
"stretto", which needs the Python package, the same groups also serve CPU tensors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def worker(given: argparse.Namespace) -> None:
    if given.backend == "stretto":
        import stretto.nccl  # before torch
    elif given.by == "import":
        ctypes.CDLL(given.library, mode=ctypes.RTLD_GLOBAL)
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    if given.backend == "stretto":
        import stretto.pytorch

        stretto.pytorch.register()
        dist.init_process_group("stretto")
        mixed(rank, device, torch, dist)
    else:
        dist.init_process_group("nccl", device_id=device)
    for part in (train, shard, split_tensors, exchange, groups, graphs):
        part(rank, device, torch, dist)
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libnccl" in line}
    handed_over = given.by in ("import", "preload") and given.hosts == 2
    assert not handed_over or len(mapped) >= 2, mapped
    dist.destroy_process_group()


def mixed(rank, device, torch, dist) -> None:
    """Tensors of both kinds in one group, by turns."""
    for where in (device, "cpu", device):
        x = torch.full((5000,), rank + 1, dtype=torch.float32, device=where)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full_like(x, 3)), where
        if rank == 0:
            dist.send(x, 1)
        else:
            y = torch.zeros_like(x)
            dist.recv(y, 0)
            assert torch.equal(x, y), where
    dist.barrier()


def layers(torch, device) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).to(device)


def learn(rank, device, torch, model, reference) -> None:
    """The model by this rank's half of each batch, the reference by all of it."""
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (model, reference)]
    generator = torch.Generator(device).manual_seed(2)
    for _ in range(10):
        batch = torch.randn(64, 512, device=device, generator=generator)
        for net, part, optimizer in zip((model, reference), (batch[rank::2], batch), optimizers, strict=True):
            optimizer.zero_grad()
            net(part).square().mean().backward()
            optimizer.step()


def train(rank, device, torch, dist) -> None:
    torch.manual_seed(1)
    reference = layers(torch, device)
    model = torch.nn.parallel.DistributedDataParallel(layers(torch, device))
    model.module.load_state_dict(reference.state_dict())
    learn(rank, device, torch, model, reference)
    for mine, whole in zip(model.module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-3, atol=1e-5)
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine.detach())
        assert torch.equal(both[0], both[1])


def shard(rank, device, torch, dist) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model, reference = layers(torch, device), layers(torch, device)
    model.load_state_dict(reference.state_dict())
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh(device.type, (2,)))
    learn(rank, device, torch, model, reference)
    for mine, whole in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.full_tensor(), whole, rtol=1e-3, atol=1e-5)


def split_tensors(rank, device, torch, dist) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(5)
    model, reference = layers(torch, device), layers(torch, device)
    model.load_state_dict(reference.state_dict())
    mesh = dist.device_mesh.init_device_mesh(device.type, (2,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    batch = torch.randn(64, 512, device=device, generator=torch.Generator(device).manual_seed(6))
    torch.testing.assert_close(model(batch), reference(batch), rtol=1e-3, atol=1e-4)


def exchange(rank, device, torch, dist) -> None:
    sizes = [[3, 70_001], [1_000_003, 5]]  # [from][to]
    sent = torch.cat([torch.full((sizes[rank][to],), 10 * rank + to, device=device) for to in range(2)])
    received = torch.empty(sizes[0][rank] + sizes[1][rank], dtype=sent.dtype, device=device)
    dist.all_to_all_single(received, sent, [sizes[0][rank], sizes[1][rank]], sizes[rank])
    wanted = torch.cat([torch.full((sizes[of][rank],), 10 * of + rank, device=device) for of in range(2)])
    assert torch.equal(received, wanted)


def groups(rank, device, torch, dist) -> None:
    everybody = dist.new_group([0, 1])
    alone = [dist.new_group([of]) for of in range(2)][rank]
    for group, wanted in ((everybody, 3), (alone, rank + 1)):
        x = torch.full((1000,), rank + 1, device=device)
        dist.all_reduce(x, group=group)
        assert torch.equal(x, torch.full_like(x, wanted))


def graphs(rank, device, torch, dist) -> None:
    x = torch.zeros(4096, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(rank + 1)
        dist.all_reduce(x)
    x.zero_()
    wanted = 0.0
    for _ in range(3):
        graph.replay()
        wanted = 2 * wanted + 3
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, wanted)), (x[0], wanted)


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def start(given: argparse.Namespace) -> list[subprocess.Popen]:
    port = free_port()
    ranks = []
    for rank in range(2):
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NCCL_HOSTID": f"host{rank % given.hosts}",
            "NCCL_SOCKET_IFNAME": "lo",
        }
        if given.by == "preload":
            env["LD_PRELOAD"] = given.library
        call = [sys.executable, __file__, "--worker", *sys.argv[1:]]
        ranks.append(subprocess.Popen(call, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return ranks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default="none")
    parser.add_argument("--by", choices=("import", "preload", "none"), default="none")
    parser.add_argument("--backend", choices=("nccl", "stretto"), default="nccl")
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=2)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    if given.backend == "stretto":
        given.hosts = 1
    if given.worker:
        worker(given)
        return 0
    good, left, began = 0, given.times, time.monotonic()
    while left > 0:
        jobs = [start(given) for _ in range(min(left, given.at_once))]
        left -= len(jobs)
        for ranks in jobs:
            texts = []
            for process in ranks:
                try:
                    texts.append(process.communicate(timeout=90)[0])
                except subprocess.TimeoutExpired:
                    process.kill()
                    texts.append("did not end in 90 s\n" + process.communicate()[0])
            fine = all(process.returncode == 0 for process in ranks)
            good += fine
            if not fine:
                print("\n".join(text[-1500:] for text in texts))
    how = f"backend {given.backend}, by {given.by}, hosts {given.hosts}"
    print(f"{how}: {good} of {given.times} passed in {time.monotonic() - began:.0f} s")
    return good != given.times


if __name__ == "__main__":
    sys.exit(main())

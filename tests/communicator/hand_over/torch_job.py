"""A PyTorch job of two ranks that NCCL takes for ranks of two hosts, so that Stretto hands it over to the real NCCL:
DDP, uneven all-to-all, split groups and graphs, every result verified. One GPU for each rank.

    python torch_job.py --library PATH/libnccl.so.2 --by import|preload|none [--times N] [--at-once N]

`import` loads the library as `import stretto.nccl` does, before torch; `none` is the real NCCL alone.
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


def worker(library: str, by: str) -> None:
    if by == "import":
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    train(rank, device, torch, dist)
    exchange(rank, device, torch, dist)
    groups(rank, device, torch, dist)
    graphs(rank, device, torch, dist)
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libnccl" in line}
    assert by == "none" or len(mapped) >= 2, mapped
    dist.destroy_process_group()


def train(rank, device, torch, dist) -> None:
    torch.manual_seed(1)
    reference = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).to(device)
    )
    model.module.load_state_dict(reference.state_dict())
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (model, reference)]
    generator = torch.Generator(device).manual_seed(2)
    for _ in range(10):
        batch = torch.randn(64, 512, device=device, generator=generator)
        for net, part, optimizer in zip((model, reference), (batch[rank::2], batch), optimizers, strict=True):
            optimizer.zero_grad()
            net(part).square().mean().backward()
            optimizer.step()
    for mine, whole in zip(model.module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-3, atol=1e-5)
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine.detach())
        assert torch.equal(both[0], both[1])


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


def start(library: str, by: str) -> list[subprocess.Popen]:
    port = free_port()
    ranks = []
    for rank in range(2):
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "NCCL_HOSTID": f"host{rank}",
            "NCCL_SOCKET_IFNAME": "lo",
        }
        if by == "preload":
            env["LD_PRELOAD"] = library
        call = [sys.executable, __file__, "--worker", "--library", library, "--by", by]
        ranks.append(subprocess.Popen(call, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return ranks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", default="none")
    parser.add_argument("--by", choices=("import", "preload", "none"), required=True)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--worker", action="store_true")
    given = parser.parse_args()
    if given.worker:
        worker(given.library, given.by)
        return 0
    good, left, began = 0, given.times, time.monotonic()
    while left > 0:
        jobs = [start(given.library, given.by) for _ in range(min(left, given.at_once))]
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
    print(f"by {given.by}: {good} of {given.times} passed in {time.monotonic() - began:.0f} s")
    return good != given.times


if __name__ == "__main__":
    sys.exit(main())

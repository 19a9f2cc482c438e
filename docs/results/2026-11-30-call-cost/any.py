"""Half of a ping-pong of 8 bytes: a receive that names its rank, and one from any source. any.py MEETING BACKEND"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

meeting, backend = sys.argv[1:]
rank, size = int(os.environ["STRETTO_RANK"]), int(os.environ["STRETTO_RANKS"])
torch.set_num_threads(1)
dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=size)
calls, batches = 200, 15
x = torch.zeros(2)
for kind in ("named", "any"):
    times = []
    for _ in range(batches):
        dist.barrier()
        begun = time.perf_counter()
        for call in range(calls):
            if rank == 0:
                assert (dist.recv(x, 1) if kind == "named" else dist.recv(x)) == 1
                dist.send(x, 1)
            elif rank == 1:
                x[0] = call
                dist.send(x, 0)
                dist.recv(x, 0)
                assert x[0] == call
        times.append((time.perf_counter() - begun) / calls / 2 * 1e6)
    if rank == 0:
        print(f"{backend} {kind}: least {min(times):.1f}, median {statistics.median(times):.1f} us", flush=True)
dist.barrier()
dist.destroy_process_group()

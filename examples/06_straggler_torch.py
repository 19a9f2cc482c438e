# Run it on a machine with 2 GPUs, with PyTorch, on NCCL or, by LD_PRELOAD, on Stretto:
#   stretto trace record --events all -o trace -- torchrun --nproc-per-node 2 examples/06_straggler_torch.py
#   stretto trace report trace
# Before every all-reduce of 2 MB one rank, drawn at random, sleeps for 200 us.
import os
import random
import sys
import time

import torch
import torch.distributed as dist

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
draw = random.Random(7)  # the same seed everywhere, so that all ranks know whose turn it is
late = [draw.randrange(size) for _ in range(STEPS)]
gradient = torch.ones(1 << 20, device=device, dtype=torch.bfloat16)
weights = torch.ones(512, 512, device=device)
dist.all_reduce(gradient)
torch.cuda.synchronize()
for turn in late:
    if turn == rank:
        time.sleep(200e-6)
    weights = weights @ weights * 1e-3
    dist.all_reduce(gradient, op=dist.ReduceOp.MAX)
    torch.cuda.synchronize()
right = bool((gradient == size).all())
dist.destroy_process_group()
print(f"rank {rank}: {'right' if right else 'WRONG'}; late {late.count(rank)} of {STEPS} times")

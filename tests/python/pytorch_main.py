"""One rank of a job of the PyTorch backend, started by `stretto run`. The first argument is the file that the ranks
meet by, the others are cases ("all" for all that can run one after another). Each rank prints "ok NAME RANK" for each.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import pytorch_cases  # noqa: F401  (fills CASES)
import pytorch_faults  # noqa: F401  (fills ALONE)
import torch
import torch.distributed as dist
from pytorch_job import ALONE, CASES, RANK, SIZE, THREE  # noqa: F401  (THREE is for the test)


def main() -> None:
    meeting, *names = sys.argv[1:]
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14):
        import stretto.pytorch

        stretto.pytorch.register()
    torch.set_num_threads(1)
    seconds = timedelta(seconds=60)
    dist.init_process_group("stretto", init_method=f"file://{meeting}", rank=RANK, world_size=SIZE, timeout=seconds)
    assert dist.get_backend() == "stretto"
    for name in CASES if names == ["all"] else names:
        {**CASES, **ALONE}[name]()
        print(f"ok {name} {RANK}\n", end="", flush=True)  # one write, as the ranks share stdout
    if any(name in ALONE for name in names):
        dist.group.WORLD.abort()
        return
    dist.destroy_process_group()
    print(f"ended {RANK}\n", end="", flush=True)


if __name__ == "__main__":
    main()

"""How the ranks of an engine's group come to one answer about the fused call, with PyTorch's own groups (Gloo)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: votes between its groups are not tested here", allow_module_level=True)

import stretto
import stretto.torch
import torch
from stretto.engines import fused
from stretto.torch import on_gpus

SECONDS = 300


# ---- A group's communicator, and that of a vote that was lost.


class ProcessGroup:
    """As much of one as a communicator is kept by."""


@pytest.mark.parametrize("failed", [False, True])
def test_a_communicator_that_is_forgotten_is_closed(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    (communicator,) = stretto.init_all(1)
    group = ProcessGroup()
    on_gpus._MADE[group] = communicator
    assert on_gpus.communicator_of(group, torch.device("cpu")) is communicator
    for _ in range(2):
        on_gpus.forget(group, failed)
    assert communicator.closed
    assert group not in on_gpus._MADE
    on_gpus._MADE[group] = ValueError("of the last try")
    on_gpus.forget(group, failed)
    assert group not in on_gpus._MADE


def test_a_group_without_a_gpu_is_not_ready() -> None:
    with pytest.raises(ValueError, match="not on a GPU"):
        on_gpus.expect_ready(torch.device("cpu"))


# ---- Votes between two processes, with torch.distributed's own collectives (Gloo).


def rank_of_two(rank: int, folder: str, refuses: bool) -> None:
    """Rank 1 cannot have the fused call. What the ranks send each other after that has to be what they meant."""
    import torch.distributed as dist
    from stretto.torch import on_gpus

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    made: list[str] = []
    forgotten: list[tuple[Any, bool]] = []

    def communicator_of(group: Any, device: Any) -> Any:
        if rank == 1:
            raise RuntimeError("no peer access")
        made.append("one")
        return stretto.init_all(1)[0]

    def reason() -> str:
        if refuses and rank == 1:
            raise ImportError("no module")
        return ""

    on_gpus.expect_ready = lambda device: None
    on_gpus.communicator_of = communicator_of
    on_gpus.try_out = lambda communicator, device, call: call()
    on_gpus.forget = lambda group, failed: forgotten.append((group, failed))
    world = dist.group.WORLD
    assert not fused.open_group("vLLM", "tp:0", world, world, torch.device("cpu"), reason)
    assert made == ([] if refuses or rank == 1 else ["one"])
    assert forgotten == ([] if refuses else [(world, True)])
    after = torch.tensor([10 + rank])
    dist.all_reduce(after)
    assert int(after) == 21
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("refuses", [True, False])
def test_a_rank_that_cannot_does_not_leave_its_peer_in_a_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    monkeypatch.setenv("STRETTO_DEVICE", "cpu")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    code = f"import test_engines_votes as t, sys; t.rank_of_two(int(sys.argv[1]), {str(tmp_path)!r}, {refuses})"
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank)],
            env={**os.environ, "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=SECONDS)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    words = "ImportError: no module" if refuses else "RuntimeError: no peer access"
    assert f"stretto: vLLM: no all-reduce and RMSNorm in one call (tp:0): {words}\n" in said[1]
    assert "stretto: vLLM" not in said[0]

"""SGLang's all-reduce + residual add + RMSNorm: which calls of its norms are taken, which are left, and what is said,
with stand-ins that have the recorded signatures.
"""

import sys
import types
from typing import Any

import pytest
import stretto_engines
from engine_stand_ins import VARIABLES, Tensor, function, sglang_stand_in, torch_stand_in
from stretto.engines import fused


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretto_engines, "_said", set())
    monkeypatch.setattr(fused, "_OPEN", set())
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    return torch_stand_in(monkeypatch)


class Group:
    """One of SGLang's groups after its own __init__."""

    def __init__(self, name: str, ranks: int = 2) -> None:
        self.unique_name, self.world_size, self.rank_in_group = name, ranks, 0
        self.cpu_group, self.device_group, self.device = "cpu", f"gpu of {name}", "cuda:1"


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch, torch: types.SimpleNamespace) -> dict[str, Any]:
    """SGLang with a group for attention and one for experts."""
    state = sglang_stand_in(monkeypatch)
    state["groups"] = {True: Group("attention_tp:0"), False: Group("moe_ep:0")}

    def resolve(*, use_attn_tp_group: bool) -> tuple[int, int, Group]:
        return 2, 0, state["groups"][use_attn_tp_group]

    sys.modules["sglang.srt.layers.flashinfer_comm_fusion"].resolve_fusion_group = resolve  # type: ignore[attr-defined]
    return state


def workspaces(sglang: dict[str, Any]) -> list[Any]:
    """What SGLang's own function got, when it makes its workspaces."""
    own: list[Any] = []
    hook, kind = sglang["hooks"]["pre_initialize_workspaces"]
    assert kind == "around"
    hook(lambda **given: own.append(given), max_token_num=2048, hidden_dim=64, dtype="torch.bfloat16")
    return own


def norm(sglang: dict[str, Any], *tensors: Tensor, attention: bool = True) -> Any:
    """As SGLang's norms call it (sglang/srt/layers/layernorm.py of 0.5.23)."""
    hook, kind = sglang["hooks"]["flashinfer_allreduce_residual_rmsnorm"]
    assert kind == "around"
    names = dict(zip(("input_tensor", "residual", "weight"), tensors, strict=True))
    return hook(
        lambda *given, **named: (given, named), **names, eps=1e-5, max_token_num=2048, use_attn_tp_group=attention
    )


TENSORS = (Tensor(), Tensor(), Tensor(shape=(64,)))


def test_sglang_fuses_by_this_library(
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    stretto_engines.sglang()
    assert workspaces(sglang) == []
    assert workspaces(sglang) == []
    assert sorted(torch.used) == ["SGLang attention_tp:0", "SGLang moe_ep:0"]
    assert torch.made == [("gpu of moe_ep:0", "cuda:1"), ("gpu of attention_tp:0", "cuda:1")]
    said = capsys.readouterr().err
    assert said.count("all-reduce and RMSNorm in one call") == 2
    for attention in (True, False):
        assert norm(sglang, *TENSORS, attention=attention) == ("normalised", "added")
    assert torch.calls == [(*TENSORS, 1e-5, "SGLang attention_tp:0"), (*TENSORS, 1e-5, "SGLang moe_ep:0")]


def test_sglang_that_made_no_workspaces_keeps_its_own(sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
    stretto_engines.sglang()
    named = {"eps": 1e-5, "max_token_num": 2048, "use_attn_tp_group": True}
    assert norm(sglang, *TENSORS) == (TENSORS, named)
    assert torch.calls == []


def test_groups_of_one_rank_need_nothing(sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
    sglang["groups"] = {True: Group("attention_tp:0"), False: Group("moe_tp:0", ranks=1)}
    stretto_engines.sglang()
    assert workspaces(sglang) == []
    assert list(torch.used) == ["SGLang attention_tp:0"]


def test_sglang_whose_ranks_cannot_keeps_its_own(
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.votes = 0
    stretto_engines.sglang()
    assert workspaces(sglang) == [{"max_token_num": 2048, "hidden_dim": 64, "dtype": "torch.bfloat16"}]
    assert torch.calls == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "SGLang keeps its own" in said


def test_what_is_not_served_is_declined_as_sglang_declines(
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    stretto_engines.sglang()
    workspaces(sglang)
    capsys.readouterr()
    other = (TENSORS[0], TENSORS[1], Tensor("torch.float32", shape=(64,)))
    for _ in range(2):
        assert norm(sglang, *other) == (None, None)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "weight of torch.float32" in said
    # A line would cut compiled code in two.
    sglang["torch"].compiler.is_compiling = lambda: True
    assert norm(sglang, Tensor("torch.float64"), *TENSORS[1:]) == (None, None)
    assert capsys.readouterr().err == ""
    assert torch.calls == []


def test_an_sglang_with_another_fusion_keeps_that_alone(
    sglang: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    other = sys.modules["sglang.srt.layers.flashinfer_comm_fusion"]
    other.pre_initialize_workspaces = function("size")  # type: ignore[attr-defined]
    stretto_engines.sglang()
    assert set(sglang["hooks"]) == {"__init__", "all_reduce", "_all_reduce_out_place"}
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pre_initialize_workspaces(size)" in said
    assert "SGLang keeps its own fusion of all-reduce and RMSNorm" in said

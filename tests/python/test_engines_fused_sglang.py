"""SGLang's all-reduce + residual add + RMSNorm: which calls of its norms are taken, which are left, and what is said,
with stand-ins that have the recorded signatures.
"""

import sys
import threading
import types
from typing import Any

import pytest
import stretto_engines
from engine_stand_ins import Tensor, function, nothing_said, sglang_stand_in, torch
from stretto.engines import fused, switch

__all__ = ["nothing_said", "torch"]  # fixtures


class Group:
    """One of SGLang's groups after its own __init__."""

    def __init__(self, name: str, ranks: int = 2) -> None:
        self.unique_name, self.world_size, self.rank_in_group = name, ranks, 0
        self.cpu_group, self.device_group, self.device = f"cpu of {name}", f"gpu of {name}", "cuda:1"


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
    whole, moe, attention = (("cpu of tp:0", True), ("cpu of moe_ep:0", True), ("cpu of attention_tp:0", True))
    assert torch.voted == [whole, moe, moe, attention, attention, whole, whole, whole]
    said = capsys.readouterr().err
    assert said.count("all-reduce and RMSNorm in one call") == 2
    for of_attention in (True, False):
        assert norm(sglang, *TENSORS, attention=of_attention) == ("normalised", "added")
    assert torch.calls == [(*TENSORS, 1e-5, "SGLang attention_tp:0"), (*TENSORS, 1e-5, "SGLang moe_ep:0")]


def test_sglang_that_made_no_workspaces_keeps_its_own(sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
    stretto_engines.sglang()
    tensors = dict(zip(("input_tensor", "residual", "weight"), TENSORS, strict=True))
    named = {**tensors, "eps": 1e-5, "max_token_num": 2048, "use_attn_tp_group": True}
    assert norm(sglang, *TENSORS) == ((), named)
    assert torch.calls == []


def test_groups_of_one_rank_need_nothing(sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
    sglang["groups"] = {True: Group("attention_tp:0"), False: Group("moe_tp:0", ranks=1)}
    stretto_engines.sglang()
    assert workspaces(sglang) == []
    assert list(torch.used) == ["SGLang attention_tp:0"]


def test_one_group_for_attention_and_experts_is_opened_once(
    sglang: dict[str, Any], torch: types.SimpleNamespace
) -> None:
    both = Group("tp:0")
    sglang["groups"] = {True: both, False: both}
    stretto_engines.sglang()
    assert workspaces(sglang) == []
    assert torch.made == [("gpu of tp:0", "cuda:1")]


OWN = [{"max_token_num": 2048, "hidden_dim": 64, "dtype": "torch.bfloat16"}]


def test_sglang_whose_ranks_cannot_keeps_its_own(
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.errors["call"] = RuntimeError("the ranks are NCCL's")
    stretto_engines.sglang()
    assert workspaces(sglang) == OWN
    assert (torch.calls, torch.used) == ([], {})
    assert norm(sglang, *TENSORS)[0] == ()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("in one call ")[2] for line in said] == [
        "(moe_ep:0): RuntimeError: the ranks are NCCL's",
        "(attention_tp:0): RuntimeError: the ranks are NCCL's",
        "(tp:0): a group of it has none",
    ]


def no_fusion() -> None:
    sys.modules["sglang.srt.layers.flashinfer_comm_fusion"].resolve_flashinfer_allreduce_fusion_backend = lambda: None  # type: ignore[attr-defined]


def no_backend() -> None:
    def resolve() -> str:
        raise ValueError("FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.")

    sys.modules["sglang.srt.layers.flashinfer_comm_fusion"].resolve_flashinfer_allreduce_fusion_backend = resolve  # type: ignore[attr-defined]


def no_flashinfer() -> None:
    name = "sglang.srt.layers.layer_boundary.residual.add_norm"
    sys.modules[name].flashinfer_ar_fusion_applies = lambda batch_size: False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_fusion, "fusion off"),
        (no_backend, "requires SM90"),
        (no_flashinfer, "FlashInfer is missing or was found unusable"),
    ],
)
def test_an_sglang_that_never_calls_the_norm_is_left_alone(
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], change: Any, words: str
) -> None:
    change()
    stretto_engines.sglang()
    assert workspaces(sglang) == OWN
    assert torch.made == []
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said


def test_what_sglang_raises_is_raised(sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
    no_backend()
    stretto_engines.sglang()
    hook, _ = sglang["hooks"]["pre_initialize_workspaces"]

    def own(**_: Any) -> None:
        sys.modules["sglang.srt.layers.flashinfer_comm_fusion"].resolve_flashinfer_allreduce_fusion_backend()

    with pytest.raises(ValueError, match="requires SM90"):
        hook(own, max_token_num=2048, hidden_dim=64, dtype="torch.bfloat16")


# ---- Four ranks, two of which have each group of attention and of experts.


class Ranks:
    """torch.distributed's votes between threads: of a group's members, which are its name here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sglang: dict[str, Any], torch: types.SimpleNamespace) -> None:
        self.barriers = {ranks: threading.Barrier(len(ranks)) for ranks in ((0, 1), (2, 3), (0, 1, 2, 3))}
        self.votes: dict[tuple[tuple[int, ...], int], int] = {}
        self.of_thread: dict[int, int] = {}
        self.groups: dict[int, Group] = {}
        self.forgotten = torch.forgotten
        distributed = sys.modules["torch.distributed"]
        monkeypatch.setattr(distributed, "get_rank", lambda group: group.index(self.rank()))
        monkeypatch.setattr(distributed, "get_world_size", len)
        monkeypatch.setattr(distributed, "all_reduce", self.all_reduce)
        whole = types.SimpleNamespace(unique_name="tp:0", cpu_group=(0, 1, 2, 3))
        context = sys.modules["sglang.srt.runtime_context"]
        monkeypatch.setattr(context, "get_parallel", lambda: types.SimpleNamespace(tp_group=whole))
        comm = sys.modules["sglang.srt.layers.flashinfer_comm_fusion"]
        monkeypatch.setattr(comm, "resolve_fusion_group", lambda *, use_attn_tp_group: (2, 0, self.groups[self.rank()]))

    def rank(self) -> int:
        return self.of_thread[threading.get_ident()]

    def all_reduce(self, vote: Any, op: str, group: tuple[int, ...]) -> None:
        self.votes[group, self.rank()] = vote[0]
        self.barriers[group].wait(10)
        vote[0] = min(self.votes[group, rank] for rank in group)
        self.barriers[group].wait(10)

    def run(self, body: Any) -> list[Any]:
        results: list[Any] = [None] * 4

        def one(rank: int) -> None:
            self.of_thread[threading.get_ident()] = rank
            # Processes have a module each, and threads one: the groups need names of their own.
            self.groups[rank] = Group(f"attention_tp:{rank}")
            self.groups[rank].cpu_group = (0, 1) if rank < 2 else (2, 3)  # type: ignore[assignment]
            results[rank] = body()

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        return results


@pytest.mark.parametrize("where", [None, "misfit", "communicator_of", "call"])
def test_all_ranks_take_it_or_none(
    monkeypatch: pytest.MonkeyPatch, sglang: dict[str, Any], torch: types.SimpleNamespace, where: str | None
) -> None:
    stretto_engines.sglang()
    ranks = Ranks(monkeypatch, sglang, torch)
    gpus, operators = sys.modules["stretto.torch.on_gpus"], sys.modules["stretto.torch"]
    places = {"misfit": switch, "communicator_of": gpus, "call": operators}
    if where is not None:
        name = "all_reduce_add_rms_norm" if where == "call" else where
        own = getattr(places[where], name)

        def fails_on_rank_3(*given: Any, **named: Any) -> Any:
            if ranks.rank() == 3:
                raise RuntimeError("not here")
            return own(*given, **named)

        monkeypatch.setattr(places[where], name, fails_on_rank_3)
    assert ranks.run(lambda: workspaces(sglang)) == [OWN if where else []] * 4
    assert fused.any_open() == (where is None)
    assert len(torch.used) == (0 if where else 4)
    # The group of ranks 0 and 1 had one each, and closes it together; in the other one not all have.
    closed = [("gpu of attention_tp:0", False), ("gpu of attention_tp:1", False)]
    failed = [("gpu of attention_tp:2", True), ("gpu of attention_tp:3", True)]
    assert sorted(torch.forgotten) == (closed + failed if where in ("communicator_of", "call") else [])


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
    sglang: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    other = sys.modules["sglang.srt.layers.flashinfer_comm_fusion"]
    other.flashinfer_allreduce_residual_rmsnorm = function("tensors")  # type: ignore[attr-defined]
    stretto_engines.sglang()
    # Its peers may be as expected, and must not be left alone with their vote.
    assert workspaces(sglang) == OWN
    assert torch.voted == [("cpu of tp:0", False)]
    hook, _ = sglang["hooks"]["flashinfer_allreduce_residual_rmsnorm"]
    assert hook(lambda tensors: tensors, TENSORS) == TENSORS
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "flashinfer_allreduce_residual_rmsnorm(tensors)" in said

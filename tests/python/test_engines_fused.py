"""vLLM's all-reduce + residual add + RMSNorm: which steps of its graphs are taken, which are left, and what is said,
with stand-ins that have the recorded signatures. With PyTorch's own graphs: test_engines_torch.py.
"""

import inspect
import operator
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

import pytest
import stretto_engines
from engine_stand_ins import (
    VLLM_PASSES,
    Graph,
    Node,
    Tensor,
    function,
    module,
    nothing_said,
    torch,
    vllm_stand_in,
)
from stretto import vllm as vllm_plugin
from stretto.engines import fused
from stretto.vllm import graph as steps

FLOAT32 = Tensor(dtype="torch.float32", shape=(1,))


__all__ = ["nothing_said", "torch"]  # fixtures


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch, torch: types.SimpleNamespace) -> Iterator[dict[str, Any]]:
    """vLLM that fuses all-reduce and RMSNorm."""
    classes = vllm_stand_in(monkeypatch)
    classes["config"].compilation_config.pass_config.fuse_allreduce_rms = True
    yield classes
    for name in ("stretto.vllm.communicator", "stretto.vllm.passes"):
        sys.modules.pop(name, None)


def vllm_group(name: str = "tp:0") -> Any:
    """The device communicator that vLLM makes for one of its groups."""
    platform = sys.modules["vllm.platforms"].current_platform
    owner, _, class_name = platform.get_device_communicator_cls().rpartition(".")
    made = getattr(import_module(owner), class_name)
    return made(cpu_group="cpu", device="cuda:1", device_group="gpu", unique_name=name, use_all2all=False)


def vllm_passes() -> str:
    return str(sys.modules["vllm.platforms"].current_platform.get_pass_manager_cls())


def cache_key() -> str:
    return str(sys.modules["vllm.envs"].environment_variables["STRETTO_VLLM"]())


# ---- One communicator for each group, on all ranks or on none.


def opened(reason: Any = lambda: "") -> bool:
    return fused.open_group("vLLM", "tp:0", "gpu", "cpu", "cuda:1", reason)


def test_a_group_gets_one_communicator(torch: types.SimpleNamespace) -> None:
    for _ in range(2):
        assert opened()
    assert torch.made == [("gpu", "cuda:1")]
    assert torch.used == {"vLLM tp:0": "communicator"}
    assert torch.tried == ["vLLM tp:0"]
    assert torch.forgotten == []
    for _ in range(2):
        fused.close_group("vLLM", "tp:0", "gpu")
    assert torch.used == {}
    assert torch.forgotten == [("gpu", False)]
    assert not fused.any_open()


@pytest.mark.parametrize("where", ["communicator_of", "call", "try_out"])
def test_a_rank_that_cannot_keeps_all_from_it(
    torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    torch.errors[where] = RuntimeError("the ranks of this\ncommunicator are NCCL's")
    assert not opened()
    assert not fused.any_open()
    assert torch.voted == [("cpu", True), ("cpu", False)]
    assert (torch.used, torch.forgotten) == ({}, [("gpu", True)])
    said = capsys.readouterr().err
    assert "in one call (tp:0): RuntimeError: the ranks of this communicator are NCCL's\n" in said
    assert said.count("\n") == 1


def missing() -> str:
    raise ImportError("no stretto.torch")


@pytest.mark.parametrize("reason", [lambda: "no stretto.torch", missing])
def test_a_reason_of_one_rank_is_a_vote_before_any_rank_waits(
    torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], reason: Any
) -> None:
    assert not opened(reason)
    assert torch.voted == [("cpu", False)]
    assert torch.made == []
    assert "no stretto.torch\n" in capsys.readouterr().err


def test_a_gpu_that_is_not_ready_is_a_vote_before_any_rank_waits(torch: types.SimpleNamespace) -> None:
    torch.errors["expect_ready"] = RuntimeError("a capture")
    assert not opened()
    assert (torch.voted, torch.made) == ([("cpu", False)], [])


@pytest.mark.parametrize(("vote", "made"), [(1, []), (2, [("gpu", "cuda:1")])])
def test_what_another_rank_says_is_not_said_again(
    torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], vote: int, made: list[Any]
) -> None:
    torch.refused[vote] = 3
    assert not opened()
    assert torch.made == made
    assert torch.forgotten == [("gpu", True)] * len(made)
    assert torch.used == {}
    assert not fused.any_open()
    assert capsys.readouterr().err == ""


def test_a_vote_that_fails_ends_the_start_and_keeps_nothing(torch: types.SimpleNamespace) -> None:
    def broken(group: Any, device: Any) -> str:
        torch.errors["all_reduce"] = RuntimeError("Connection closed by peer")
        return "communicator"

    sys.modules["stretto.torch.on_gpus"].communicator_of = broken  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="closed by peer"):
        opened()
    assert (torch.used, torch.forgotten) == ({}, [("gpu", True)])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((Tensor(), Tensor(), Tensor(shape=(64,))), ""),
        ((Tensor(), None, None), ""),
        ((Tensor(dtype="torch.float64"), None, None), "of torch.float64"),
        ((Tensor(), None, Tensor("torch.float32", shape=(64,))), "weight of torch.float32"),
        ((Tensor(), Tensor("torch.float32"), None), "residual of torch.float32"),
        ((Tensor(), None, Tensor(shape=(32,))), "part of each token"),
        ((Tensor(), Tensor(shape=(8, 64)), None), "residual of another shape"),
    ],
)
def test_what_is_served(given: tuple[Any, Any, Any], words: str) -> None:
    reason = fused.refuse(*given)
    assert words in reason
    assert bool(words) == bool(reason)


# ---- Graphs of vLLM's compiler.

OPERATORS = steps.Operators("stretto.norm", "stretto.norm_fp8")
NORM, ADD_NORM = "vllm_ir.rms_norm.default", "vllm_ir.fused_add_rms_norm.default"


class Model:
    """A graph with an all-reduce and a norm of its sum; what it is made of can be another than usual."""

    def __init__(self, adds: bool = True, group: str = "tp:0", weight: Tensor | None = None, extra: Any = ()) -> None:
        self.graph = graph = Graph()
        tensor = Tensor()
        self.scale = graph.placeholder("scale", FLOAT32)
        self.part, self.residual = graph.placeholder("part", tensor), graph.placeholder("residual", tensor)
        self.weight = graph.placeholder("weight", weight or Tensor(shape=(64,)))
        self.sum = graph.call_function("vllm.all_reduce.default", (self.part, group), value=tensor)
        if adds:
            given = (self.sum, self.residual, self.weight, 1e-5, *extra)
            self.norm = graph.call_function(ADD_NORM, given, value=(tensor, tensor))
            self.normalised = graph.call_function(operator.getitem, (self.norm, 0), value=tensor)
            self.added = graph.call_function(operator.getitem, (self.norm, 1), value=tensor)
        else:
            self.norm = graph.call_function(NORM, (self.sum, self.weight, 1e-5, *extra), value=tensor)
            self.normalised, self.added = self.norm, self.sum

    def use(self, *nodes: Node) -> None:
        for node in nodes:
            self.graph.call_function("use", (node,), value=node.meta["val"])

    def fuse(self) -> tuple[int, list[str]]:
        refused: list[str] = []
        count = steps.fuse(self.graph, {"tp:0": "vLLM tp:0"}.get, OPERATORS, refused.append)  # type: ignore[arg-type]
        self.graph.check()
        return count, refused

    def call(self, target: str) -> Node:
        (found,) = [node for node in self.graph.nodes if node.target == target]
        return found


def test_all_reduce_add_and_norm_become_one_call() -> None:
    model = Model()
    model.use(model.normalised, model.added)
    assert model.fuse() == (1, [])
    assert model.graph.targets() == ["stretto.norm", "[0]", "[1]", "use", "use"]
    call = model.call("stretto.norm")
    assert call.args == (model.part, model.residual, model.weight, None)
    assert call.kwargs == {"epsilon": 1e-5, "group": "vLLM tp:0"}
    uses = [node.args[0] for node in model.graph.nodes if node.target == "use"]
    assert [(use.args[0], use.args[1]) for use in uses] == [(call, 0), (call, 1)]


def test_the_last_norm_of_a_model_has_no_use_for_the_residual() -> None:
    model = Model()
    model.graph.erase_node(model.added)
    model.use(model.normalised)
    assert model.fuse() == (1, [])
    assert model.graph.targets() == ["stretto.norm", "[0]", "use"]


def test_the_first_norm_of_a_model_has_no_residual_and_gives_its_sum() -> None:
    model = Model(adds=False)
    # The sum may be used before the norm, and after it.
    with model.graph.inserting_before(model.norm):
        model.use(model.sum)
    model.use(model.normalised, model.sum)
    assert model.fuse() == (1, [])
    assert model.graph.targets() == ["stretto.norm", "[0]", "[1]", "use", "use", "use"]
    assert model.call("stretto.norm").args == (model.part, None, model.weight, None)


def quantised_by_operator(model: Model) -> Node:
    graph = model.graph
    empty = graph.call_function("aten.empty", (), value=Tensor("torch.float8_e4m3fn"))
    how = {"result": empty, "input": model.normalised, "scale": model.scale, "group_shape": [-1, -1]}
    call = graph.call_function("auto_functionalized", ("_C.static_scaled_fp8_quant.default",), how)
    return graph.call_function(operator.getitem, (call, 1), value=Tensor("torch.float8_e4m3fn"))


def quantised_by_arithmetic(model: Model, largest: float = 448.0) -> Node:
    graph = model.graph
    factor = graph.call_function("aten.reciprocal.default", (model.scale,), value=FLOAT32)
    node = graph.call_function("prims.convert_element_type.default", (model.normalised, "torch.float32"))
    node = graph.call_function("aten.mul.Tensor", (node, factor))
    node = graph.call_function("aten.clamp_min.default", (node, -largest))
    node = graph.call_function("aten.clamp_max.default", (node, largest))
    value = Tensor("torch.float8_e4m3fn")
    return graph.call_function("prims.convert_element_type.default", (node, "torch.float8_e4m3fn"), value=value)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("quantise", [quantised_by_operator, quantised_by_arithmetic])
def test_eight_bits_with_a_given_scale_come_from_the_same_call(adds: bool, quantise: Any) -> None:
    model = Model(adds)
    model.use(quantise(model), model.added)
    assert model.fuse() == (1, [])
    made = [one for one in model.graph.targets() if one not in ("aten.empty", "aten.reciprocal.default")]
    assert made == ["stretto.norm_fp8", "[0]", "[2]", "use", "use"]
    call = model.call("stretto.norm_fp8")
    assert call.args == (model.part, model.residual if adds else None, model.weight, None, model.scale)
    assert call.kwargs == {"epsilon": 1e-5, "group": "vLLM tp:0", "dtype": "torch.float8_e4m3fn"}


def test_eight_bits_of_another_kind_stay_behind_the_call() -> None:
    other_limits = Model()
    other_limits.use(quantised_by_arithmetic(other_limits, 240.0))
    both_are_used = Model()
    both_are_used.use(quantised_by_arithmetic(both_are_used), both_are_used.normalised)
    many_scales = Model()
    many_scales.scale.meta["val"] = Tensor("torch.float32", shape=(64,))
    many_scales.use(quantised_by_operator(many_scales))
    more_of_it = Model()
    quantised = quantised_by_operator(more_of_it)
    more = more_of_it.graph.call_function(operator.getitem, (quantised.args[0], 0), value=Tensor())
    more_of_it.use(quantised, more)
    for model in (other_limits, both_are_used, many_scales, more_of_it):
        assert model.fuse() == (1, [])
        assert "stretto.norm" in model.graph.targets()
        assert "stretto.norm_fp8" not in model.graph.targets()


def test_what_is_not_served_stays_in_the_graph() -> None:
    for model, words in (
        (Model(group="pp:0"), ""),
        (Model(weight=Tensor("torch.float32", shape=(64,))), "weight of torch.float32"),
        (Model(extra=(32,)), "part of each token"),
    ):
        model.use(model.normalised, model.added)
        before = model.graph.targets()
        count, refused = model.fuse()
        assert (count, model.graph.targets()) == (0, before)
        assert [words in reason for reason in refused] == [True] * bool(words)


def test_a_sum_that_is_used_without_its_residual_stays() -> None:
    model = Model()
    model.use(model.normalised, model.sum)
    assert model.fuse() == (0, [])


def test_a_weight_that_is_computed_after_the_all_reduce_is_not_moved_before_it() -> None:
    model = Model(adds=False)
    with model.graph.inserting_before(model.norm):
        late = model.graph.call_function("aten.add", (model.weight, 1.0), value=Tensor(shape=(64,)))
    model.norm.args = (model.sum, late, 1e-5)
    count, (refused,) = model.fuse()
    assert count == 0
    assert "weight that is computed" in refused


# ---- vLLM.


def test_vllm_fuses_by_this_library(
    vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        stretto_engines.vllm()
    assert vllm_passes() == VLLM_PASSES
    assert cache_key() == ""
    group = vllm_group()
    assert torch.made == [("gpu", "cuda:1")]
    assert torch.used == {"vLLM tp:0": "communicator"}
    assert "all-reduce and RMSNorm in one call (tp:0)" in capsys.readouterr().err
    assert vllm_passes() == "stretto.vllm.passes.StrettoPassManager"
    assert cache_key().startswith("fused, ")
    stretto_engines.vllm()
    assert vllm_passes() == "stretto.vllm.passes.StrettoPassManager"
    group.destroy()
    assert torch.used == {}
    assert torch.forgotten == [("gpu", False)]
    assert vllm_passes() == VLLM_PASSES


def vllm_that_does_not_compile(vllm: dict[str, Any]) -> None:
    vllm["config"].compilation_config.mode = 0


def vllm_that_does_not_fuse(vllm: dict[str, Any]) -> None:
    vllm["config"].compilation_config.pass_config.fuse_allreduce_rms = False


def vllm_with_another_pass(vllm: dict[str, Any]) -> None:
    vllm["AllReduceFusionPass"].__init__ = function("self, config, group")


def vllm_whose_configuration_fails(vllm: dict[str, Any]) -> None:
    def fail() -> None:
        raise RuntimeError("no configuration")

    sys.modules["vllm.config"].get_current_vllm_config_or_none = fail  # type: ignore[attr-defined]


def vllm_whose_ranks_cannot(vllm: dict[str, Any]) -> None:
    sys.modules["stretto.torch.on_gpus"].communicator_of = None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (vllm_that_does_not_compile, "vLLM does not compile this model"),
        (vllm_that_does_not_fuse, "fuse_allreduce_rms off"),
        (vllm_with_another_pass, "AllReduceFusionPass.__init__"),
        (vllm_whose_ranks_cannot, "TypeError: "),
        (vllm_whose_configuration_fails, "RuntimeError: no configuration"),
    ],
)
def test_vllm_keeps_its_own_fusion_with_one_line(
    vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], change: Any, words: str
) -> None:
    change(vllm)
    stretto_engines.vllm()
    group = vllm_group()
    assert group.all_reduce(Tensor()) == "PyNcclCommunicator.all_reduce"
    first, second = capsys.readouterr().err.splitlines()
    assert "all-reduce of 4 ranks" in first
    assert second.startswith("stretto: vLLM: no all-reduce and RMSNorm in one call (tp:0): ")
    assert words in second
    # The peers of a rank that cannot are not left alone.
    assert not torch.voted[-1][1]
    assert vllm_passes() == VLLM_PASSES
    assert cache_key() == ""


def test_other_groups_of_vllm_have_no_fused_call(vllm: dict[str, Any], torch: types.SimpleNamespace) -> None:
    stretto_engines.vllm()
    vllm_group("pp:0")
    assert torch.made == []


def test_passes_of_another_plugin_stay(
    vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    vllm["CudaPlatformBase"].get_pass_manager_cls = classmethod(lambda cls: "other.Passes")
    stretto_engines.vllm()
    assert vllm_group().all_reduce(Tensor()) == "PyNcclCommunicator.all_reduce"
    assert "RMSNorm in one call (tp:0): another plugin has put its compiler passes in place" in capsys.readouterr().err
    assert torch.made == []
    assert vllm_passes() == "other.Passes"


@pytest.mark.parametrize("missing", ["Platform.get_pass_manager_cls", "envs.compile_factors"])
def test_a_vllm_without_a_place_for_the_pass_has_our_all_reduce(
    vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    if missing.startswith("envs"):
        sys.modules["vllm.envs"].compile_factors = function("config")  # type: ignore[attr-defined]
    else:
        vllm["Platform"].get_pass_manager_cls = function("cls, config")
    stretto_engines.vllm()
    assert vllm_group().all_reduce(Tensor()) == "PyNcclCommunicator.all_reduce"
    assert missing in capsys.readouterr().err
    assert not vllm_plugin.passes_are_taken()
    assert vllm_passes() == VLLM_PASSES
    assert torch.made == []


def test_passes_that_cannot_be_asked_for_do_not_stop_the_all_reduce(
    vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(cls: Any) -> str:
        raise RuntimeError("no passes")

    vllm["CudaPlatformBase"].get_pass_manager_cls = classmethod(fail)
    stretto_engines.vllm()
    assert "compiler passes stay (RuntimeError: no passes)" in capsys.readouterr().err
    assert vllm_group().all_reduce(Tensor()) == "PyNcclCommunicator.all_reduce"
    assert torch.made == []


def test_the_cache_key_changes_with_what_makes_the_graphs(
    vllm: dict[str, Any], torch: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretto_engines.vllm()
    vllm_group()
    before = cache_key()
    assert cache_key() == before
    for changed in (steps, fused):
        source = inspect.getsource

        def other(of: Any, changed: Any = changed, source: Any = source) -> str:
            return str(source(of)) + "# changed" * (of is changed)

        with monkeypatch.context() as patch:
            patch.setattr(inspect, "getsource", other)
            assert cache_key() != before


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, vllm: dict[str, Any]) -> Any:
    """Our module of passes, on stand-ins for what vLLM's are made of."""
    own = sys.modules["vllm.compilation.passes.pass_manager"]
    base = vllm["VllmInductorPass"]
    base.time_and_log = staticmethod(lambda call: call)

    class PatternMatcher(base):  # type: ignore[misc, valid-type]
        pass_name = "StrettoFusionPass"
        match_table: ClassVar = {"StrettoFusionPass": 0}

        def __init__(self, config: Any) -> None:
            """Takes the configuration as vLLM's does."""

    sys.modules["vllm.compilation.passes.vllm_inductor_pass"].VllmPatternMatcherPass = PatternMatcher  # type: ignore[attr-defined]
    own.AllReduceFusionPass = vllm["AllReduceFusionPass"]  # type: ignore[attr-defined]
    vllm["PostGradPassManager"].configure = lambda self, config: setattr(
        self, "passes", [own.AllReduceFusionPass(config)]
    )
    module(monkeypatch, "torch").ops = types.SimpleNamespace(
        stretto=types.SimpleNamespace(
            all_reduce_add_rms_norm=types.SimpleNamespace(default="stretto.norm"),
            all_reduce_add_rms_norm_fp8=types.SimpleNamespace(default="stretto.norm_fp8"),
        )
    )
    return import_module("stretto.vllm.passes")


def test_our_pass_is_in_the_place_of_vllms(passes: Any, vllm: dict[str, Any]) -> None:
    manager = passes.StrettoPassManager()
    manager.configure(vllm["config"])
    assert [type(one) for one in manager.passes] == [passes.StrettoFusionPass]
    # vLLM's own is vLLM's again, for who asks it for one without us.
    own = sys.modules["vllm.compilation.passes.pass_manager"]
    assert own.AllReduceFusionPass is vllm["AllReduceFusionPass"]  # type: ignore[attr-defined]


def test_our_pass_takes_what_is_open_and_says_what_it_leaves(
    passes: Any, vllm: dict[str, Any], torch: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = passes.StrettoFusionPass(vllm["config"])
    model = Model()
    model.use(model.normalised, model.added)
    ours(model.graph)
    assert ours.matched_count == 0
    opened()
    ours(model.graph)
    assert ours.matched_count == 1
    assert type(ours).match_table["StrettoFusionPass"] == 1
    for _ in range(2):
        other = Model(weight=Tensor("torch.float32", shape=(64,)))
        ours(other.graph)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.endswith("all-reduce and norm stay apart there\n")


def test_graphs_of_an_older_plugin_are_not_found_again(passes: Any, vllm: dict[str, Any]) -> None:
    base = sys.modules["vllm.compilation.passes.vllm_inductor_pass"].VllmPatternMatcherPass  # type: ignore[attr-defined]
    base.hash_source = staticmethod(lambda *sources: sources)
    uuid = passes.StrettoFusionPass(vllm["config"]).uuid()
    assert "def _written_out" in uuid
    assert "def refuse" in uuid
    assert passes.stretto.__version__ in uuid


@pytest.mark.parametrize(
    ("invariant", "size", "most"), [(False, 2 << 20, 256), (False, None, None), (True, 2 << 20, None)]
)
def test_as_many_tokens_as_vllm_fuses(
    passes: Any, vllm: dict[str, Any], invariant: bool, size: int | None, most: int | None
) -> None:
    sys.modules["vllm.envs"].VLLM_BATCH_INVARIANT = invariant  # type: ignore[attr-defined]
    vllm["config"].compilation_config.pass_config.flashinfer_max_size = lambda ranks: size if ranks == 4 else 0
    ours = passes.StrettoFusionPass(vllm["config"])
    served = [ours.is_applicable_for_range(types.SimpleNamespace(end=end)) for end in (256, 257)]
    assert served == [True, most is None]

"""Stand-ins for vLLM and SGLang, with the signatures that were recorded of them (tests/python/engines)."""

import inspect
import json
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import stretto_engines
from stretto.engines import fused

ROOT = Path(__file__).resolve().parents[2]
RECORDED = {
    record["engine"]: record
    for record in (json.loads(path.read_text()) for path in sorted((ROOT / "tests/python/engines").glob("*.json")))
}
VARIABLES = ("STRETTO_VLLM", "STRETTO_SGLANG", "VLLM_BATCH_INVARIANT", "SGLANG_ENABLE_DETERMINISTIC_INFERENCE")
VLLM_PASSES = "vllm.compilation.passes.pass_manager.PostGradPassManager"
VLLM_COMMUNICATOR = "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"


def function(text: str, body: Callable[..., Any] = lambda *args, **kwargs: None) -> Callable[..., Any]:
    """A function with recorded parameters, which gives what it was called with to `body`."""
    space: dict[str, Any] = {"body": body}
    given = [word for word in text.split(", ") if word]
    words = [f"{word}None" if word.endswith("=") else word for word in given]
    names = [word.rstrip("=") for word in given if word not in ("*", "/")]
    passed = ", ".join(name if name.startswith("*") else f"{name}={name}" for name in names)
    exec(f"def made({', '.join(words)}): return body({passed})", space)
    return space["made"]  # type: ignore[no-any-return]


@dataclass
class Tensor:
    """As much of a CUDA tensor as the plugins look at."""

    dtype: str = "torch.bfloat16"
    is_cuda: bool = True
    contiguous: bool = True
    shape: tuple[int, ...] = (4, 64)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def numel(self) -> int:
        elements = 1
        for one in self.shape:
            elements *= one
        return elements


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A stand-in for a module, and for those that it is in. Once made it stays for the test."""
    for end in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:end])
        if part not in sys.modules or not hasattr(sys.modules[part], "__stand_in__"):
            made = types.ModuleType(part)
            made.__stand_in__ = True  # type: ignore[attr-defined]
            made.__path__ = []  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, part, made)
            if "." in part:
                monkeypatch.setattr(sys.modules[part.rpartition(".")[0]], part.rpartition(".")[2], made, False)
    return sys.modules[name]


def stand_in(monkeypatch: pytest.MonkeyPatch, engine: str, changed: dict[str, str] | None = None) -> dict[str, Any]:
    """Modules of an engine with all recorded classes and functions; an object notes what is called in its `calls`."""
    signatures = {**RECORDED[engine]["signatures"], **(changed or {})}
    classes: dict[str, Any] = {}
    for name, text in signatures.items():
        owner, _, method = name.rpartition(".")
        module_name, _, class_name = owner.rpartition(".")
        if class_name[0].islower():
            setattr(module(monkeypatch, owner), method, function(text, recorder(class_name, method)))
            continue
        made = classes.setdefault(owner, type(class_name, (), {}))
        setattr(module(monkeypatch, module_name), class_name, made)
        setattr(made, method, function(text, recorder(class_name, method)))
    monkeypatch.setattr(metadata, "version", lambda package: RECORDED[engine]["version"])
    return {owner.rpartition(".")[2]: made for owner, made in classes.items()}


def recorder(owner: str, method: str) -> Callable[..., Any]:
    """A body that notes the call with its object, and gives its own name."""

    def record(*rest: Any, **given: Any) -> Any:
        self = given.pop("self", None)
        if self is not None:
            self.__dict__.setdefault("calls", []).append((method, given))
        return None if method == "__init__" else f"{owner}.{method}"

    return record


def vllm_stand_in(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """vLLM on a machine with CUDA, which compiles its models and does not fuse all-reduce and RMSNorm."""
    classes = stand_in(monkeypatch, "vllm")
    platform = classes["CudaPlatformBase"]
    platform.is_cuda = lambda self: True
    platform.get_device_communicator_cls = classmethod(lambda cls: VLLM_COMMUNICATOR)
    platform.get_pass_manager_cls = classmethod(lambda cls: VLLM_PASSES)
    sys.modules["vllm.platforms"].current_platform = platform()  # type: ignore[attr-defined]
    sys.modules["vllm.envs"].environment_variables = {}  # type: ignore[attr-defined]
    sys.modules["vllm.envs"].VLLM_BATCH_INVARIANT = False  # type: ignore[attr-defined]
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]

    def begin(self: Any, cpu_group: Any, device: Any, device_group: Any, unique_name: str, use_all2all: bool) -> None:
        self.cpu_group, self.device, self.unique_name = cpu_group, device, unique_name
        self.device_group, self.world_size, self.rank_in_group = device_group, 4, 0

    # The contract is checked against the class as it was recorded.
    recorded = function(RECORDED["vllm"]["signatures"][f"{VLLM_COMMUNICATOR}.__init__"])
    begin.__signature__ = inspect.signature(recorded)  # type: ignore[attr-defined]
    classes["CudaCommunicator"].__init__ = begin
    classes["PyNcclCommunicator"].disabled = False
    config = vllm_config()
    sys.modules["vllm.config"].__dict__.update(
        CompilationMode=types.SimpleNamespace(NONE=0, VLLM_COMPILE=3), get_current_vllm_config_or_none=lambda: config
    )
    monkeypatch.setenv("STRETTO_VLLM", "1")
    for name in ("stretto.vllm.communicator", "stretto.vllm.passes"):
        sys.modules.pop(name, None)
    return {**classes, "config": config}


def vllm_config() -> Any:
    """As much of vLLM's configuration as the plugin looks at."""
    return types.SimpleNamespace(
        compilation_config=types.SimpleNamespace(
            mode=3,
            pass_config=types.SimpleNamespace(fuse_allreduce_rms=False, flashinfer_max_size=lambda ranks: 2 << 20),
        ),
        parallel_config=types.SimpleNamespace(tensor_parallel_size=4),
        model_config=types.SimpleNamespace(get_hidden_size=lambda: 4096, dtype=types.SimpleNamespace(itemsize=2)),
    )


class ChangedState:
    def __enter__(self) -> None:
        """On for the block."""

    def __exit__(self, *_: object) -> None:
        """Off again."""


def sglang_stand_in(monkeypatch: pytest.MonkeyPatch, torch: Any = None) -> dict[str, Any]:
    """SGLang, whose registry notes the hooks by the last part of their target; and a torch that does not compile, if
    none is given.
    """
    classes = stand_in(monkeypatch, "sglang")
    hooks: dict[str, Any] = {}
    registry = sys.modules["sglang.srt.plugins.hook_registry"]
    registry.HookType = types.SimpleNamespace(AFTER="after", AROUND="around")  # type: ignore[attr-defined]
    text = RECORDED["sglang"]["signatures"]["sglang.srt.plugins.hook_registry.HookRegistry.register"]

    def register(cls: Any, target: str, hook: Any, hook_type: str, source: Any) -> None:
        hooks[target.rpartition(".")[2]] = (hook, hook_type)

    whole = types.SimpleNamespace(unique_name="tp:0", cpu_group="cpu of tp:0")
    sys.modules["sglang.srt.runtime_context"].get_parallel = lambda: types.SimpleNamespace(tp_group=whole)  # type: ignore[attr-defined]
    comm = sys.modules["sglang.srt.layers.flashinfer_comm_fusion"]
    comm.resolve_flashinfer_allreduce_fusion_backend = lambda: "trtllm"  # type: ignore[attr-defined]
    applies = sys.modules["sglang.srt.layers.layer_boundary.residual.add_norm"]
    applies.flashinfer_ar_fusion_applies = lambda batch_size: True  # type: ignore[attr-defined]
    classes["HookRegistry"].register = classmethod(function(text, register))
    classes["PyNcclCommunicator"].available = True
    change = function("self, enable=", lambda self, enable: ChangedState())
    classes["PyNcclCommunicator"].change_state = change
    if torch is None:
        torch = module(monkeypatch, "torch")
        torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    monkeypatch.setenv("STRETTO_SGLANG", "1")
    return {**classes, "hooks": hooks, "torch": torch}


RANKS = 4


def torch_stand_in(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """torch, torch.distributed and stretto.torch of rank 0 of 4, as far as groups get communicators for the fused call.

    `refused`: which other rank has a reason against, by the vote, of which the first is 1; `voted`: by which groups and
    how this rank has voted; `made`: what communicators are made of; `used`: by the operators' names; `tried`: groups of
    the calls before a group is open; `calls`: those after; `forgotten`: groups, and whether that was for a failure;
    `errors`: what raises what.
    """
    state = types.SimpleNamespace(refused={}, voted=[], made=[], used={}, tried=[], calls=[], forgotten=[], errors={})
    torch = module(monkeypatch, "torch")
    distributed = module(monkeypatch, "torch.distributed")
    torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
    torch.bfloat16 = "torch.bfloat16"
    distributed.ReduceOp = types.SimpleNamespace(MIN="min")
    distributed.get_rank, distributed.get_world_size = lambda group: 0, lambda group: RANKS

    class Vote(list[int]):
        def __int__(self) -> int:
            return self[0]

    def tensor(values: list[int], device: str) -> Vote:
        assert device == "cpu"
        return Vote(values)

    def filled(*shape: int, dtype: str, device: Any) -> Tensor:
        return Tensor(dtype, shape=shape)

    torch.tensor, torch.zeros, torch.ones = tensor, filled, filled

    def expect(what: str) -> None:
        if what in state.errors:
            raise state.errors[what]

    def all_reduce(vote: Any, op: str, group: str) -> None:
        assert op == "min"
        assert group.startswith("cpu")
        state.voted.append((group, vote[0] == RANKS))
        vote[0] = min(vote[0], state.refused.get(len(state.voted), RANKS))
        expect("all_reduce")

    def communicator_of(group: Any, device: Any) -> str:
        expect("communicator_of")
        state.made.append((group, device))
        return "communicator"

    def use(communicator: Any, name: str) -> None:
        if communicator is None:
            state.used.pop(name, None)
        else:
            state.used[name] = communicator

    def fused(input: Any, residual: Any, weight: Any, *, epsilon: float = 1e-6, group: str) -> tuple[str, str]:
        if sys.modules["stretto.engines.fused"].is_open(group):
            state.calls.append((input, residual, weight, epsilon, group))
        else:
            expect("call")
            state.tried.append(group)
        return "normalised", "added"

    def try_out(communicator: Any, device: Any, call: Callable[[], None]) -> None:
        call()
        expect("try_out")

    distributed.all_reduce = all_reduce
    torch.distributed = distributed
    operators = types.ModuleType("stretto.torch")
    on_gpus = types.ModuleType("stretto.torch.on_gpus")
    operators.__dict__.update(use=use, all_reduce_add_rms_norm=fused, on_gpus=on_gpus)
    on_gpus.__dict__.update(
        communicator_of=communicator_of,
        expect_ready=lambda device: expect("expect_ready"),
        try_out=try_out,
        forget=lambda group, failed: state.forgotten.append((group, failed)),
    )
    monkeypatch.setitem(sys.modules, "stretto.torch", operators)
    monkeypatch.setattr(sys.modules["stretto"], "torch", operators, False)
    monkeypatch.setitem(sys.modules, "stretto.torch.on_gpus", on_gpus)
    return state


def modules(engine: str) -> dict[str, str]:
    """Sources with the recorded methods and functions."""
    classes: dict[tuple[str, str], str] = {}
    for name, text in RECORDED[engine]["signatures"].items():
        module_name, owner, method = name.rsplit(".", 2)
        words = ", ".join(f"{word}None" if word.endswith("=") else word for word in text.split(", "))
        if owner[0].islower():
            classes[f"{module_name}.{owner}", method] = f"def {method}({words}): pass\n"
            continue
        classes[module_name, owner] = (
            classes.get((module_name, owner), f"class {owner}:\n") + f"    def {method}({words}): pass\n"
        )
    made: dict[str, str] = {}
    for (module_name, _), source in classes.items():
        made[module_name] = made.get(module_name, "") + source
    return made


class Node:
    """As much of a node of `torch.fx` as the plugin looks at."""

    def __init__(self, op: str, target: Any, args: tuple[Any, ...] = (), kwargs: Any = None, value: Any = None) -> None:
        self.op, self.target, self.args, self.kwargs = op, target, args, dict(kwargs or {})
        self.meta = {"val": value}
        self.users: dict[Node, None] = {}
        for one in (*self.args, *self.kwargs.values()):
            if isinstance(one, Node):
                one.users[self] = None

    def replace_all_uses_with(self, other: "Node") -> None:
        for user in list(self.users):
            user.args = tuple(other if one is self else one for one in user.args)
            user.kwargs = {key: other if one is self else one for key, one in user.kwargs.items()}
            other.users[user] = None
        self.users.clear()


class Graph:
    """A graph of such nodes, in order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._at: Node | None = None

    def _add(self, node: Node) -> Node:
        self.nodes.insert(len(self.nodes) if self._at is None else self.nodes.index(self._at), node)
        return node

    def placeholder(self, name: str, value: Any) -> Node:
        return self._add(Node("placeholder", name, value=value))

    def call_function(self, target: Any, args: tuple[Any, ...] = (), kwargs: Any = None, value: Any = None) -> Node:
        return self._add(Node("call_function", target, args, kwargs, value))

    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        self._at = node
        yield
        self._at = None

    def erase_node(self, node: Node) -> None:
        assert not node.users
        self.nodes.remove(node)
        for one in (*node.args, *node.kwargs.values()):
            if isinstance(one, Node):
                one.users.pop(node, None)

    def targets(self) -> list[str]:
        """Of what it calls; of results that are taken out of one, which."""
        return [
            f"[{node.args[1]}]" if not isinstance(node.target, str) else node.target
            for node in self.nodes
            if node.op == "call_function"
        ]

    def check(self) -> None:
        """Each node comes after what it reads."""
        seen: set[Node] = set()
        for node in self.nodes:
            assert all(one in seen for one in (*node.args, *node.kwargs.values()) if isinstance(one, Node))
            seen.add(node)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(stretto_engines, "_said", set())
    monkeypatch.setattr(fused, "_OPEN", set())
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    return torch_stand_in(monkeypatch)

"""The plugins for inference engines: against the signatures that were recorded of the engines (tests/python/engines),
and with stand-ins that have these signatures. tools/engine_contracts records them.
"""

import inspect
import json
import os
import subprocess
import sys
import types
import zipfile
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
import stretto_engines
from engine_stand_ins import (
    RECORDED,
    ROOT,
    VARIABLES,
    Tensor,
    function,
    modules,
    sglang_stand_in,
    torch_stand_in,
    vllm_stand_in,
)
from stretto import sglang as sglang_plugin
from stretto import vllm as vllm_plugin
from stretto.engines import contract


@pytest.mark.parametrize("engine", contract.ENGINES)
def test_the_plugin_fits_what_was_recorded(engine: str) -> None:
    signatures = RECORDED[engine]["signatures"]
    uses = contract.ENGINES[engine]
    assert list(signatures) == [use.name for use in uses]
    assert [use.misfit(inspect.signature(function(signatures[use.name]))) for use in uses] == [""] * len(uses)


@pytest.mark.parametrize(("engine", "plugin"), [("vllm", vllm_plugin), ("sglang", sglang_plugin)])
def test_what_was_recorded_is_of_a_version_that_is_served(engine: str, plugin: Any) -> None:
    assert any(f"{RECORDED[engine]['version']}.".startswith(f"{version}.") for version in plugin.VERSIONS)


def test_a_changed_signature_does_not_fit() -> None:
    use = contract.Use("engine.Class.all_reduce", 2)
    assert use.misfit(inspect.signature(function("self, input_"))) == ""
    assert "too many positional" in use.misfit(inspect.signature(function("self")))
    assert "missing" in use.misfit(inspect.signature(function("self, input_, group")))
    keyword = contract.Use("engine.Class.__init__", 1, ("library_path",))
    assert "library_path" in keyword.misfit(inspect.signature(function("self, path=")))


def test_engines_find_the_plugins() -> None:
    for group, value in (
        ("vllm.general_plugins", "stretto_engines:vllm"),
        ("sglang.srt.plugins", "stretto_engines:sglang"),
    ):
        assert value in [entry.value for entry in metadata.entry_points(group=group)]


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretto_engines, "_said", set())
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STRETTO_DETERMINISTIC", "0")
    monkeypatch.delenv("STRETTO_DETERMINISTIC")


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch_stand_in(monkeypatch)
    return vllm_stand_in(monkeypatch)


def vllm_group(vllm: dict[str, Any], name: str = "tp:0") -> Any:
    """What vLLM makes of the class that its platform names."""
    platform = sys.modules["vllm.platforms"].current_platform
    module, _, class_name = platform.get_device_communicator_cls().rpartition(".")
    made = getattr(import_module(module), class_name)
    return made(cpu_group="cpu", device="cuda:1", device_group="gpu", unique_name=name, use_all2all=False)


def test_vllm_reduces_by_this_library(vllm: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    stretto_engines.vllm()
    stretto_engines.vllm()
    group = vllm_group(vllm)
    assert group.all_reduce(Tensor()) == "PyNcclCommunicator.all_reduce"
    begun, _ = group._stretto.calls
    assert begun[1]["group"] == "cpu"
    assert begun[1]["device"] == "cuda:1"
    assert Path(begun[1]["library_path"]).name.startswith("libnccl.so")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("stretto: vLLM: all-reduce of 4 ranks (tp:0) by ")
    off = "vLLM's pass_config has fuse_allreduce_rms off"
    assert second == f"stretto: vLLM: no all-reduce and RMSNorm in one call (tp:0): {off}"


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Tensor(dtype="torch.bool"), "torch.bool"),
        (Tensor(contiguous=False), "not contiguous"),
        (Tensor(is_cuda=False), "CPU tensors"),
    ],
)
def test_what_is_not_served_goes_to_vllm_with_one_line(
    vllm: dict[str, Any], capsys: pytest.CaptureFixture[str], tensor: Tensor, words: str
) -> None:
    stretto_engines.vllm()
    group = vllm_group(vllm)
    capsys.readouterr()
    for _ in range(2):
        assert group.all_reduce(tensor) == "CudaCommunicator.all_reduce"
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_other_groups_of_vllm_and_a_binding_that_is_off_have_vllms_own(vllm: dict[str, Any]) -> None:
    stretto_engines.vllm()
    assert vllm_group(vllm, "pp:0").all_reduce(Tensor()) == "CudaCommunicator.all_reduce"
    vllm["PyNcclCommunicator"].disabled = True
    assert vllm_group(vllm).all_reduce(Tensor()) == "CudaCommunicator.all_reduce"


def test_vllm_that_ends_frees_both(vllm: dict[str, Any]) -> None:
    stretto_engines.vllm()
    group = vllm_group(vllm)
    held = group._stretto
    group.destroy()
    group.destroy()
    assert [name for name, _ in held.calls] == ["__init__", "destroy"]
    assert [name for name, _ in group.calls] == ["destroy", "destroy"]


def unregistered(vllm: dict[str, Any]) -> bool:
    return not sys.modules["vllm.platforms"].current_platform.get_device_communicator_cls().startswith("stretto")


def test_vllm_off(vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for value, words in (("0", ""), ("", ""), ("yes", "neither 0 nor 1")):
        monkeypatch.setenv("STRETTO_VLLM", value)
        stretto_engines.vllm()
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == int(bool(words))
        assert unregistered(vllm)


def test_a_vllm_that_is_not_known_keeps_its_own(
    vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "0.34.1")
    stretto_engines.vllm()
    assert "vllm 0.34.1 is not served, 0.33 is" in capsys.readouterr().err
    monkeypatch.setattr(metadata, "version", lambda package: "0.33.2")
    vllm["PyNcclCommunicator"].__init__ = function("self, group, device")
    stretto_engines.vllm()
    assert "not as expected (vllm.distributed.device_communicators.pynccl" in capsys.readouterr().err
    assert unregistered(vllm)


def test_vllm_without_cuda_or_with_another_plugin_keeps_its_own(
    vllm: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    platform = vllm["CudaPlatformBase"]
    platform.is_cuda = lambda self: False
    stretto_engines.vllm()
    assert "not CUDA" in capsys.readouterr().err
    platform.is_cuda = lambda self: True
    platform.get_device_communicator_cls = classmethod(lambda cls: "other.Communicator")
    stretto_engines.vllm()
    assert "another plugin has put other.Communicator in place" in capsys.readouterr().err
    assert unregistered(vllm)


@pytest.mark.parametrize(("value", "bits"), [("1", "1"), ("0", None), (None, None)])
def test_batch_invariance_asks_for_rank_order(
    vllm: dict[str, Any], monkeypatch: pytest.MonkeyPatch, value: str | None, bits: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", value)
    stretto_engines.vllm()
    assert os.environ.get("STRETTO_DETERMINISTIC") == bits


class Group:
    """A GroupCoordinator after its own __init__."""

    def __init__(self, name: str = "tp:0", device: str = "cuda") -> None:
        self.unique_name, self.world_size, self.rank_in_group = name, 2, 0
        self.cpu_group, self.device = "cpu", types.SimpleNamespace(type=device)


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return sglang_stand_in(monkeypatch)


def test_sglang_reduces_by_this_library(sglang: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    stretto_engines.sglang()
    hooks = sglang["hooks"]
    assert {name: kind for name, (_, kind) in hooks.items()} == {
        "__init__": "after",
        "all_reduce": "around",
        "_all_reduce_out_place": "around",
        "pre_initialize_workspaces": "around",
        "flashinfer_allreduce_residual_rmsnorm": "around",
    }
    group = Group()
    assert hooks["__init__"][0](None, group, [[0, 1]], 0, use_pynccl=True) is None
    said = capsys.readouterr().err
    assert said.startswith("stretto: SGLang: all-reduce of 2 ranks (tp:0) by ")
    assert "compiled code keeps SGLang's where that uses FlashInfer, or reduces in place" in said
    own = lambda *given: "own"  # noqa: E731 (SGLang's function, as the hook gets it)
    assert hooks["all_reduce"][0](own, group, Tensor()) == "PyNcclCommunicator.outplace_all_reduce"
    assert hooks["_all_reduce_out_place"][0](own, group, Tensor(), "auto") == "PyNcclCommunicator.outplace_all_reduce"
    assert hooks["all_reduce"][0](own, group, Tensor(dtype="torch.bool")) == "own"
    assert "torch.bool" in capsys.readouterr().err
    sglang["torch"].compiler.is_compiling = lambda: True
    assert hooks["all_reduce"][0](own, group, Tensor()) == "own"


@pytest.mark.parametrize("group", [Group("pp:0"), Group("world:0"), Group(device="cpu")])
def test_other_groups_of_sglang_have_sglangs_own(sglang: dict[str, Any], group: Group) -> None:
    stretto_engines.sglang()
    sglang["hooks"]["__init__"][0](None, group)
    assert sglang["hooks"]["all_reduce"][0](lambda *given: "own", group, Tensor()) == "own"


def test_sglang_off(
    sglang: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "0.6.0")
    stretto_engines.sglang()
    assert "sglang 0.6.0 is not served, 0.5.23 is" in capsys.readouterr().err
    monkeypatch.setattr(metadata, "version", lambda package: "0.5.23")
    del sglang["GroupCoordinator"]._all_reduce_out_place
    stretto_engines.sglang()
    assert "_all_reduce_out_place" in capsys.readouterr().err
    monkeypatch.delenv("STRETTO_SGLANG")
    stretto_engines.sglang()
    assert sglang["hooks"] == {}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [ImportError("no pynvml"), RuntimeError("no\ndriver"), OSError("libcuda.so.1")])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_cannot_be_imported_goes_on_with_one_line(
    engine: str, error: Exception, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    request.getfixturevalue(engine)

    def broken(name: str) -> Any:
        raise error

    # The contract looks at the first, the plugin imports the second from it.
    for module, attribute in (("vllm.platforms", "current_platform"), ("sglang.srt.plugins.hook_registry", "HookType")):
        if module.startswith(engine):
            sys.modules[module].__dict__.pop(attribute)
            sys.modules[module].__getattr__ = broken  # type: ignore[attr-defined]
    getattr(stretto_engines, engine)()
    said = capsys.readouterr().err
    assert f"{type(error).__name__}: " in said
    assert "keeps its own all-reduce" in said
    assert said.count("\n") == 1


def test_an_engine_whose_modules_fail_is_not_as_expected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "engine_that_fails.py").write_text("raise RuntimeError('no driver')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert contract.misfits([contract.Use("engine_that_fails.Class.method", 1)]) == [
        "engine_that_fails.Class.method: no driver"
    ]


def test_a_plugin_that_is_off_loads_neither_engine_nor_library() -> None:
    code = (
        "import sys; sys.modules['vllm'] = sys.modules['sglang'] = None\n"
        "from importlib.metadata import entry_points\n"
        "for group in ('vllm.general_plugins', 'sglang.srt.plugins'): entry_points(group=group)['stretto'].load()()\n"
        "print('torch' in sys.modules, 'libstretto' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("False False\n", "")


def test_signatures_are_read_from_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "sglang-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sglang-9.9.dist-info/METADATA", "")
        for module, classes in modules("sglang").items():
            archive.writestr(module.replace(".", "/") + ".py", classes)
    command = [sys.executable, str(ROOT / "tools" / "engine_contracts"), "sglang", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert found["version"] == "9.9"
    assert found["signatures"] == RECORDED["sglang"]["signatures"]

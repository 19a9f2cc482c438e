"""lint runs every check and says which failed; here only its own reporting is looked at."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def lint(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    loader = importlib.machinery.SourceFileLoader("stretto_lint", str(TOOLS / "lint"))
    spec = importlib.util.spec_from_loader("stretto_lint", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "stretto_lint", module)
    loader.exec_module(module)
    return module


def test_one_failure_fails_all_and_hides_none(lint: ModuleType, monkeypatch, capfd) -> None:
    say = [sys.executable, "-c"]
    bad = lint.Step("bad", [*say, "print('a.cpp:3: wrong'); print('a.cpp:9: wrong'); exit(1)"], "mend it", brief=True)
    good = lint.Step("good", [*say, "pass"], "none")
    missing = lint.Step("missing", ["no-such-program"], "none")
    monkeypatch.setattr(lint, "steps", lambda: [bad, good, missing])
    assert lint.main() == 1
    out, err = capfd.readouterr()
    assert out.startswith("a.cpp\nlint: bad")
    assert "FAILED; mend: mend it" in out
    assert "FIX: `make setup`" in err
    assert out.endswith("lint: 1 passed, 2 failed bad missing\n")


def test_every_kind_of_source_is_covered(lint: ModuleType) -> None:
    steps = {step.name: step for step in lint.steps()}
    assert {"clang-format", "ruff check", "ruff format", "check_layers", "check_sizes", "check_words"} <= set(steps)
    assert any(name.endswith("nccl.h") for name in steps["clang-format"].inputs)
    assert any(name.endswith("tools/lint") for name in steps["ruff check"].inputs)

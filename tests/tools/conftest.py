"""A small checkout of its own for each test, and a way to run one of our tools on it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
Checked = subprocess.CompletedProcess[str]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    def put(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    (tmp_path / "tools").mkdir()
    # The limits of this repository, without what it excepts from them.
    limits = (TOOLS / "sizes.toml").read_text().split("[exceptions]")[0]
    (tmp_path / "tools" / "sizes.toml").write_text(limits + "[exceptions]\n")
    return put


@pytest.fixture
def check(tmp_path: Path) -> Callable[[str], Checked]:
    def run(tool: str) -> Checked:
        command = [sys.executable, str(TOOLS / tool), "--root", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run

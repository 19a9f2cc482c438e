"""The three commands of the README that lead from a slow job to its cause, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from jobs import GUARD, STRETTO, environment
from stretto.library import profiler_plugin_path

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/stretto"


def commands() -> list[list[str]]:
    """The words of each line that is set as code below the heading; `stretto` is the one that is tested."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## From a slow job to its cause\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    (\S.*)$", section, re.MULTILINE)
    parts = [[STRETTO if word == PROGRAM else [word] for word in shlex.split(line, comments=True)] for line in lines]
    return [[word for part in line for word in part] for line in parts]


# Each command may take as long as the limit of a test leaves it elsewhere.
@pytest.mark.timeout(3 * GUARD + 30)
@pytest.mark.skipif(not profiler_plugin_path().is_file(), reason="the profiler plugin is not built")
def test_three_commands_lead_from_a_slow_job_to_its_cause(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    seen = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    lines = commands()
    assert [line[len(STRETTO) :][:2] for line in lines] == [["trace", one] for one in ("record", "report", "view")]
    said = []
    for line in lines:
        surroundings = environment(BROWSER=f"{browser} %s")
        done = subprocess.run(line, cwd=tmp_path, env=surroundings, capture_output=True, text=True, timeout=GUARD)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    # What the README says that the second one answers, but for its numbers.
    assert re.search(r"Rank 2 was late[^:]*, beyond doubt: it came last to \d+ of the \d+\s+operations", said[1]), said[
        1
    ]
    assert re.search(r"Without its lateness the run is [\d.]+ % ", said[1])
    page = Path(seen.read_text().strip().removeprefix("file://"))
    assert page.parent == tmp_path
    assert re.search(r'id="recording">[A-Za-z0-9+/]+=*</script>', page.read_text(encoding="utf-8"))

"""tools/python_tests: what it shows and returns for files that pass, fail or are skipped, and how it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "python_tests"
PASSES = "def test_one():\n    assert True\n\ndef test_two():\n    assert True\n"
FAILS = "def test_wrong():\n    wanted = 1\n    assert wanted == 2\n"
SKIPS = "import pytest\npytest.skip('there is no moon', allow_module_level=True)\n"
WAITS = "import pathlib, time\n\ndef test_wait():\n    pathlib.Path({mark!r}).touch()\n    time.sleep(60)\n"


def written(folder: Path, **texts: str) -> list[str]:
    files = []
    for name, text in texts.items():
        file = folder / f"test_{name}.py"
        file.write_text(text)
        files.append(str(file))
    return files


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=60)


def test_files_that_pass_are_a_line_each(tmp_path: Path) -> None:
    done = ran("--jobs", "2", *written(tmp_path, one=PASSES, other=PASSES, skipped=SKIPS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": ok, ") == 3 and "there is no moon" in done.stdout
    assert "4 passed, 1 skipped" in done.stdout.splitlines()[-1]
    assert "test session starts" not in done.stdout


def test_a_failure_is_shown_and_named_at_the_end(tmp_path: Path) -> None:
    done = ran(*written(tmp_path, good=PASSES, bad=FAILS))
    assert done.returncode == 1
    assert "assert 1 == 2" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[-2].startswith("FAILED ") and lines[-2].endswith("test_bad.py")
    assert "1 failed" in lines[-1] and "2 passed" in lines[-1]


def test_a_file_without_tests_is_a_failure(tmp_path: Path) -> None:
    done = ran(*written(tmp_path, empty="x = 1\n"))
    assert done.returncode == 1 and "FAILED (exit 5)" in done.stdout


def test_it_can_be_stopped(tmp_path: Path) -> None:
    mark = tmp_path / "began"
    files = written(tmp_path, wait=WAITS.format(mark=str(mark)), later=PASSES)
    process = subprocess.Popen([sys.executable, TOOL, "--jobs", "1", *files], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mark.exists()
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    assert children
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "passed" not in output
    assert all(not Path(f"/proc/{child}").exists() for child in children)

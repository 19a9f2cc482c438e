"""tools/step: what it shows while a step runs, at its end, and that nothing is left of it."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
# These tests may run within a step themselves.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "MAKE_STEP"}


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """The script in a checkout of its own, where its logs are."""
    (tmp_path / "tools").mkdir()
    return Path(shutil.copy(TOOLS / "step", tmp_path / "tools"))


def run(step: Path, name: str, command: str) -> subprocess.CompletedProcess[str]:
    words = [str(step), name, "sh", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)


def until(file: Path) -> str:
    """A command that waits for a file, a minute at most."""
    return f"for i in $(seq 600); do [ -e {file} ] && break; sleep 0.1; done"


def logs(step: Path) -> Path:
    return step.parents[1] / ".cache" / "logs"


def test_a_short_step_is_one_line(step: Path) -> None:
    done = run(step, "short", "echo noise; echo '3 passed in 1 s'")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"short +ok +\d+ s  3 passed in 1 s\n", done.stdout)
    assert (logs(step) / "short.log").read_text() == "noise\n3 passed in 1 s\n"
    assert re.fullmatch(r"ok short +\d+ s +\d+ CPU s  3 passed in 1 s\n", (logs(step) / "steps").read_text())


def test_the_list_of_steps_has_cpu_time(step: Path) -> None:
    run(step, "busy", "python3 -c 'import time\nwhile time.process_time() < 1.2: pass'; exit 1")
    line = (logs(step) / "steps").read_text()
    assert (found := re.fullmatch(r"FAILED busy +\d+ s +(\d+) CPU s\n", line)) and 1 <= int(found[1]) <= 2


def test_a_long_step_says_every_10_seconds_how_far_it_is(step: Path) -> None:
    done = run(step, "long", "echo '[7/31] Building CXX object CMakeFiles/x.dir/src/base/log.cpp.o'; sleep 12")
    first, last = done.stdout.splitlines()
    assert re.fullmatch(r"long +\.\.\. +1[01] s  \[7/31\] log\.cpp\.o", first)
    assert re.fullmatch(r"long +ok +1[2-5] s *", last)


def test_a_failure_shows_the_end_of_the_log_and_where_all_of_it_is(step: Path) -> None:
    done = run(step, "bad", "seq 200; exit 3")
    assert done.returncode == 3
    head, *tail = done.stdout.splitlines()
    assert re.fullmatch(r"bad +FAILED +\d+ s  \(exit 3\)", head)
    assert tail == [str(number) for number in range(121, 201)]
    assert ".cache/logs/bad.log" in done.stderr and "seq 200" in done.stderr
    assert len((logs(step) / "bad.log").read_text().splitlines()) == 200


@pytest.mark.parametrize(
    "reason",
    [
        "tests/net/a_test.cpp:31: Failure",
        "==12==ERROR: LeakSanitizer: detected memory leaks",
        "src/base/log.cpp:7:3: runtime error: signed integer overflow",
        "E   AssertionError: assert 1 == 2",
    ],
    ids=["googletest", "asan", "ubsan", "pytest"],
)
def test_a_reason_far_from_the_end_of_the_log_is_shown(step: Path, reason: str) -> None:
    done = run(step, "bad", f"seq 50; echo '{reason}'; echo 'what it says'; seq 51 200; exit 1")
    _, *shown = done.stdout.splitlines()
    assert shown[:2] == [reason, "what it says"]
    assert shown[-81:] == ["--- the end of the log:", *(str(number) for number in range(121, 201))]


@pytest.mark.parametrize(
    "said",
    [
        " 3/44 Test  #8: api ..............................***Failed   12.01 sec",
        "FAILED: CMakeFiles/x.dir/src/base/log.cpp.o ",
        "[gw1] [ 33%] FAILED tests/python/test_cli.py::test_explain ",
        "tests/python/test_cli.py::test_explain FAILED [ 33%]",
    ],
    ids=["ctest", "ninja", "xdist", "pytest"],  # the texts would be taken for failures of these tests
)
def test_a_failure_is_named_while_the_rest_goes_on(step: Path, tmp_path: Path, said: str) -> None:
    words = [str(step), "tests", "sh", "-c", f"echo fine; echo '{said}'; {until(tmp_path / 'seen')}; exit 1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"tests: {said}\n"
        (tmp_path / "seen").touch()
        assert re.match(r"tests +FAILED", running.stdout.readline())


def test_a_step_within_a_step_is_part_of_it(step: Path) -> None:
    done = run(step, "outer", f"{step} inner echo deep")
    assert len(done.stdout.splitlines()) == 1
    assert (logs(step) / "outer.log").read_text() == "deep\n"
    assert not (logs(step) / "inner.log").exists()


def test_a_terminal_has_one_line_that_moves(step: Path) -> None:
    """The command goes on when the terminal has shown what it said."""
    names = ("one", "two")
    says = [f"echo '[{i}/2] {name}'; {until(step.parent / name)}" for i, name in enumerate(names, 1)]
    seen = {f"[{i}/2] {name}".encode(): step.parent / name for i, name in enumerate(names, 1)}
    shown = on_terminal(step, "; ".join(says), seen=seen)
    assert shown.count("\n") == 1
    assert "[1/2] one" in shown and "[2/2] two" in shown and "\r\x1b[K" in shown
    assert re.search(r"moving +ok", shown.splitlines()[-1])


def test_ctrl_c_leaves_nothing_behind(step: Path) -> None:
    mark = f"{600 + os.getpid() % 100}.{time.time_ns()}"  # a sleep that nobody else has
    shown = on_terminal(step, f"echo begun; sleep {mark}; echo not reached", keys=b"\x03")
    assert "ok" not in shown
    deadline = time.monotonic() + 10
    while (left := running(mark) + running(str(step))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def running(text: str) -> list[str]:
    """The command lines that hold the text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found


def on_terminal(step: Path, command: str, keys: bytes = b"", seen: dict[bytes, Path] | None = None) -> str:
    """Runs it on a terminal of its own and presses the keys after two seconds; what the terminal showed. Of what is in
    `seen`, a file is made once it has been shown.
    """
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(step, [str(step), "moving", "sh", "-c", command], ENVIRONMENT)
    shown = b""
    if keys:
        time.sleep(2)
        os.write(terminal, keys)
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
        for text, file in (seen or {}).items():
            if text in shown:
                file.touch()
    os.close(terminal)
    os.waitpid(process, 0)
    return shown.decode().replace("\r\n", "\n")

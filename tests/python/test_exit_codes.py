"""What every command ends with: 2 for a command line that asks for what cannot be, 1 for what fails, and a sentence."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import environment, stretto
from recording_writer import small
from stretto.library import profiler_plugin_path
from verbs import Verb, commands, everything, options_of_floats

needs_plugin = pytest.mark.skipif(not profiler_plugin_path().is_file(), reason="the profiler plugin is not built")
NOWHERE = "/dev/null/nowhere"  # not even for who may do everything


def test_no_option_takes_nan_for_a_number() -> None:
    found = options_of_floats()
    assert len(found) > 25 and [option for option, refused in found.items() if not refused] == []


def expect_sentence(done: subprocess.CompletedProcess[str], status: int) -> None:
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stderr.strip(), "it says why"
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("verb", everything(), ids=str)
def test_help_is_status_0(verb: Verb) -> None:
    for option in ("--help", "-h"):
        done = stretto(*verb.words, option)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("verb", everything(), ids=str)
def test_an_unknown_option_is_status_2(verb: Verb) -> None:
    expect_sentence(stretto(*verb.words, "--no-such-option"), 2)


WRONG = [
    "no_such_verb",
    "trace no_such_verb",
    "run",
    "run -n 0 true",
    "run -n 65 -- true",
    "run -n many -- true",
    f"run --json {NOWHERE} -- true",
    "run --threads -- true",
    "bench no_such_collective",
    "bench --ranks 0",
    "bench --ranks 3000",
    "bench -b eight",
    "bench --device tpu",
    f"bench --json {NOWHERE}/x.json",
    f"bench --csv {NOWHERE}/x.csv",
    f"bench --compare {NOWHERE}",
    "bench --json - --csv -",
    "bench --threshold -1",
    "bench --budget-ms nan",
    "bench --timeout inf",
    "explain",
    "explain all_reduce",
    "explain no_such_collective 1M",
    "explain all_reduce size",
    "explain all_reduce 1M --ranks 100000",
    "explain all_reduce 1M --dtype float7",
    f"explain all_reduce 1M --json {NOWHERE}",
    "tune --device tpu",
    "tune --ranks 1",
    "tune --collective no_such_collective",
    "tune --sizes large",
    f"tune --output {NOWHERE}/table.json",
    f"tune --json {NOWHERE}",
    "doctor --attach 1 --children 1",
    "doctor --attach 1 -- true",
    "doctor --nccl",
    "doctor --nccl --attach pid",
    f"topo --json {NOWHERE}",
    "topo more",
    f"info --json {NOWHERE}",
    "info --pid me",
    "lab no_such_verb",
    "lab all-reduce --ranks 0",
    "lab all-reduce --device tpu",
    "lab all-reduce --peers no_such_peer",
    "lab all-reduce -b eight",
    "lab all-reduce --budget-ms nan",
    f"lab all-reduce --json {NOWHERE}",
    f"lab all-reduce --csv {NOWHERE}",
    f"lab all-reduce --plot {NOWHERE}",
    "lab chain --length 0",
    "lab chain --work-us many",
    "lab chain --work-us nan",
    "lab chain --jitter-us inf",
    "lab chain --device cuda",
    "lab chain --ranks 1000",
    "lab straggler --ranks 1",
    "lab straggler --late-rank 7",
    "lab straggler --late-us nan",
    "lab straggler --place nowhere",
    f"lab straggler --recording {NOWHERE}",
    "lab layer --batch none",
    "lab layer --backends no_such_backend",
    "lab layer --scale 3",
    "lab decode --device tpu",
    "lab decode --ranks 3",
    "lab decode --batch 0",
    "lab sequence-parallel --device cuda",
    "lab sequence-parallel --batch 1 --ranks 2",
    "p2p --operation write",
    "p2p --ways sideways",
    "p2p -b 1M -e 1K",
    "p2p -b eight",
    "p2p --floor many",
    "p2p --flows 0",
    "p2p --peers nccl",
    "p2p serve --port 100000",
    f"p2p --json {NOWHERE}",
    f"p2p --log {NOWHERE}",
    f"p2p --plot {NOWHERE}",
    "top me",
    "top --sort no_such_column",
    "top --filter no_such:word",
    "p2p --budget-ms nan",
    "top --interval nan",
    "trace record --for nan -- true",
    "trace record --after nan -- true",
    "tune --seconds nan",
    "top --json -",
    "top --hosts a,a",
    "top 1 --hosts a",
    "top --reach 3",
    "audit --only nothing",
    "audit --ranks 1",
    "audit --ranks 100",
    "audit --quick --full",
    "audit other.json",
    f"audit --json {NOWHERE}",
    f"audit --markdown {NOWHERE}",
    f"audit --html {NOWHERE}",
    f"audit --compare {NOWHERE}",
    f"audit --from {NOWHERE}",
    f"audit --python {NOWHERE}",
    f"audit --library {NOWHERE}",
    "trace record",
    "trace record --events sometimes -- true",
    f"trace record --chain {NOWHERE}.so -- true",
    "trace record --every 0 -- true",
    "trace convert",
    f"trace convert {NOWHERE}",
    f"trace convert {NOWHERE} --to something",
    "trace report",
    f"trace report {NOWHERE} --from nan",
    f"trace report {NOWHERE} --top -1",
    "trace view --op AllReduce",
    "trace view --from 2",
    "trace view --without net",
    f"trace view {NOWHERE} --from 3 --to 2",
    f"trace view {NOWHERE} --without no_such_type",
    "trace window",
    "trace window . --for -1",
    "trace window . --for inf",
    "trace window . --after never",
    "trace record --for inf -- true",
    "trace record --on-demand --after 3 -- true",
    "trace info",
]


@pytest.mark.parametrize("verb", commands(), ids=str)
def test_every_command_has_a_line_that_cannot_be(verb: Verb) -> None:
    assert any(line.split()[: len(verb.words)] == verb.words for line in WRONG)


@pytest.mark.parametrize("line", WRONG)
def test_what_cannot_be_is_status_2(line: str) -> None:
    if "trace record --" in line and not profiler_plugin_path().is_file():
        pytest.skip("the profiler plugin is not built")
    expect_sentence(stretto(*line.split()), 2)


FAILS = [
    "run -n 1 -- false",
    f"bench --peers none --device cuda --library {NOWHERE}",
    "doctor --attach 999999999",
    "doctor --children 999999999",
    "doctor --nccl --attach 999999999",
    "info --pid 999999999",
    f"trace convert {NOWHERE} --to csv",
    f"trace report {NOWHERE}",
    f"trace view {NOWHERE}",
    f"trace info {NOWHERE}",
    f"trace window {NOWHERE}",
    "trace window .",
    "trace window . --stop",
    "top 999999999",
    "top 999999999 --once --json -",
    "p2p 127.0.0.1:9 --peers none --floor none",
    "p2p serve --bind 300.0.0.1",
    f"doctor {NOWHERE}",
    "doctor /dev/null",
    f"trace record --plugin {NOWHERE}.so -- true",
]


@pytest.mark.parametrize("line", FAILS)
def test_what_fails_is_status_1(line: str) -> None:
    expect_sentence(stretto(*line.split()), 1)


# Many lines, few that stay in a buffer to the end, and what Typer writes itself.
@pytest.mark.parametrize("line", ["explain all_reduce 1M --json -", "topo", "--version"])
def test_a_full_disk_on_stdout_is_a_sentence(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "stretto", *line.split()]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environment(), check=False
        )
    assert done.returncode == 1 and done.stderr == "stretto: cannot write: No space left on device\n", done.stderr


def test_nobody_may_listen() -> None:
    words = f"{shlex.quote(sys.executable)} -m stretto explain all_reduce 1M >&-"
    done = subprocess.run(
        words, shell=True, stderr=subprocess.PIPE, text=True, timeout=60, env=environment(), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("line", ["explain all_reduce 1M", "tune --quick"])
def test_a_variable_that_cannot_be_is_told(line: str) -> None:
    done = stretto(*line.split(), STRETTO_ALGO="no_such_algorithm")
    assert done.returncode in (1, 2) and "STRETTO_ALGO" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["run -n 2 --", "doctor --nccl --", "trace record -o {folder}/new --"])
def test_a_command_that_cannot_be_started_is_status_127(command: str, tmp_path: Path) -> None:
    if command.startswith("trace") and not profiler_plugin_path().is_file():
        pytest.skip("the profiler plugin is not built")
    expect_sentence(stretto(*command.format(folder=tmp_path).split(), "no_such_program"), 127)


@needs_plugin
def test_a_command_s_own_status_is_passed_on(tmp_path: Path) -> None:
    assert stretto("run", "-n", 2, "--", "sh", "-c", "exit 7").returncode == 7
    assert stretto("trace", "record", "-o", tmp_path / "run", "--", "sh", "-c", "exit 7").returncode == 7


@needs_plugin
def test_an_old_recording_is_replaced_only_by_force(tmp_path: Path) -> None:
    small().write(tmp_path)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    old = sorted(tmp_path.glob("*.rec"))
    done = stretto("trace", "record", "-o", tmp_path, "--", "true")
    expect_sentence(done, 2)
    assert "--force" in done.stderr and sorted(tmp_path.glob("*.rec")) == old
    done = stretto("trace", "record", "-o", tmp_path, "--force", "--", "true")
    assert done.returncode == 0 and "nothing was recorded" in done.stderr
    assert not list(tmp_path.glob("*.rec")) and other.read_text() == "mine"


@needs_plugin
def test_a_library_that_is_no_plugin_s_is_told_in_the_loader_s_words(tmp_path: Path) -> None:
    text = tmp_path / "plugin.so"
    text.write_text("no library")
    for name, words in ((str(text), "file too short"), ("libno_such_plugin.so", "cannot open shared object file")):
        done = stretto("trace", "record", "-o", tmp_path / "run", "--chain", name, "--", "true")
        expect_sentence(done, 2)
        assert f"--chain {name}" in done.stderr and words in done.stderr
    assert not (tmp_path / "run").exists()

"""`stretto trace record` and `info`: what the plugin writes is read, and a recording that is empty says why."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import stretto as package
from jobs import started, stretto, wait_for
from recording_writer import small
from stretto.library import profiler_plugin_path
from stretto.trace.model import EventType
from stretto.trace.raw import BadRecording
from stretto.trace.reader import load
from stretto.trace.record import Options, why_empty
from stretto.trace.summary import version_text

# Another build's, where the package was installed without it.
PLUGIN = (
    Path(os.environ.get("STRETTO_TEST_PLUGIN", "")) if "STRETTO_TEST_PLUGIN" in os.environ else profiler_plugin_path()
)
needs_plugin = pytest.mark.skipif(not PLUGIN.is_file(), reason="the profiler plugin is not built")

# Calls the plugin as NCCL 2.28 does: two contexts, an event within another, and a process that is killed if asked to.
HOST = """
import ctypes, os, signal, struct, sys
library = ctypes.CDLL(os.environ["NCCL_PROFILER_PLUGIN"])
words = (ctypes.c_void_p * 6).in_dll(library, "ncclProfiler_v5")
P, I = ctypes.c_void_p, ctypes.c_int
init = ctypes.CFUNCTYPE(I, P, ctypes.c_uint64, P, ctypes.c_char_p, I, I, I, P)(words[1])
start = ctypes.CFUNCTYPE(I, P, P, P)(words[2])
stop = ctypes.CFUNCTYPE(I, P)(words[3])
finalize = ctypes.CFUNCTYPE(I, P)(words[5])
rank, ranks, many = (int(word) for word in sys.argv[1:4])
context, mask = ctypes.c_void_p(), ctypes.c_int()
assert init(ctypes.byref(context), 0xABCDEF, ctypes.byref(mask), b"mine", 1, ranks, rank, None) == 0

def begin(type_, parent, rest):
    handle = ctypes.c_void_p()
    descriptor = ctypes.create_string_buffer(struct.pack("<QQi4x", type_, parent or 0, rank) + rest, 112)
    start(context, ctypes.byref(handle), descriptor)
    return handle

name = ctypes.create_string_buffer(b"AllReduce")
kind = ctypes.create_string_buffer(b"ncclFloat32")
for number in range(many):
    group = begin(1 << 8, None, struct.pack("<?xxxi", False, 1))
    words = (ctypes.addressof(name), 16, ctypes.addressof(kind), 0, 0x1000, False)
    call = begin(1 << 9, group.value, struct.pack("<QQQi4xQ?", *words))
    stop(call)
    stop(group)
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
finalize(context)
print("mask", mask.value)
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    script = tmp_path / "host.py"
    script.write_text(HOST)
    return script


def record(folder: Path, *arguments: object, **extra: str) -> tuple[int, str, str]:
    done = stretto("trace", "record", "--plugin", PLUGIN, "-o", folder, *arguments, **extra)
    return done.returncode, done.stdout, done.stderr


@needs_plugin
def test_records_every_process_of_a_command(tmp_path: Path, host: Path) -> None:
    folder = tmp_path / "run"
    both = f"{sys.executable} {host} 0 2 50 & {sys.executable} {host} 1 2 50; wait"
    status, said, told = record(folder, "--", "sh", "-c", both)
    assert status == 0 and said.count("mask") == 2
    assert "2 processes, 2 ranks of communicators, 404 events, 0 dropped" in told
    assert "stretto trace report" in told
    found = load(folder, align=False)
    assert sorted(one.rank for one in found.contexts) == [0, 1]
    assert {(one.communicator, one.name, one.ranks) for one in found.contexts} == {(0xABCDEF, "mine", 2)}
    assert found.spans["type"].tolist().count(EventType.COLL_API) == 100
    assert not any(found.quality.notes) and found.quality.unmatched_starts == 0
    calls = found.spans["type"] == EventType.COLL_API
    assert {found.strings[number] for number in found.spans["function"][calls].tolist()} == {"AllReduce"}
    assert np.all(np.isin(found.spans["parent"][calls], found.spans["id"][~calls]))
    assert all(one.closed and one.abi == 5 and one.self_ns >= 0 for one in found.processes)
    info = json.loads(stretto("trace", "info", folder, "--json", "-").stdout)
    assert info["events"] == 404 and info["processes"][0]["by_type"] == {"GroupApi": 50, "CollApi": 50}
    done = stretto("trace", "convert", folder, "--to", "jsonl", "-o", "-")
    assert len(done.stdout.splitlines()) == 404


@needs_plugin
def test_a_killed_process_leaves_what_it_did(tmp_path: Path, host: Path) -> None:
    folder = tmp_path / "run"
    status, _, told = record(folder, "--", host, 0, 2, 1000, "kill")
    assert status == 128 + signal.SIGKILL
    assert "4,001 events" in told and "not closed in order" in told
    found = load(folder, align=False)
    assert len(found.spans["id"]) == 2000 and np.all(found.spans["stop"] >= 0)


@needs_plugin
def test_events_mode_and_chain(tmp_path: Path, host: Path) -> None:
    status, said, _ = record(tmp_path / "a", "--events", "CollApi,groupapi", "--", host, 0, 1, 5)
    assert status == 0 and "mask 768" in said
    status, _, told = record(tmp_path / "b", "--events", "none", "--", host, 0, 1, 0)
    assert status == 0
    status, _, told = record(tmp_path / "c", "--flight", "--", host, 0, 1, 20000, STRETTO_TRACE_SEGMENT_BYTES="4K")
    assert status == 0 and "events" in told
    found = load(tmp_path / "c", align=False)
    assert found.processes[0].flight and found.quality.overwritten > 0 and len(found.spans["id"]) < 20000
    assert record(tmp_path / "d", "--events", "sometimes", "--", host, 0, 1, 5)[0] == 2
    status, _, told = record(tmp_path / "e", "--", host, 0, 1, 5, NCCL_PROFILER_PLUGIN="other.so")
    assert status == 0 and "--chain other.so keeps it" in told


@needs_plugin
def test_nothing_recorded_says_why(tmp_path: Path) -> None:
    status, _, told = record(tmp_path / "run", "--", "sh", "-c", "exit 3")
    assert status == 3
    assert "nothing was recorded" in told and "2.23" in told and "another host" in told


@needs_plugin
def test_wrong_command_lines(tmp_path: Path, host: Path) -> None:
    assert "nothing to run" in record(tmp_path / "run")[2]
    status, _, told = record(tmp_path / "run", "--", "no_such_program_here")
    assert status == 127 and "no_such_program_here" in told and not (tmp_path / "run").exists()
    small().write(tmp_path)
    status, _, told = record(tmp_path, "--", "true")
    assert status == 2 and "holds a recording already" in told
    done = stretto("trace", "record", "--plugin", tmp_path / "none.so", "--", "true")
    assert done.returncode == 1 and "none.so" in done.stderr and "make build" in done.stderr


@needs_plugin
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        "came = []\n"
        f"signal.signal({int(number)}, lambda *_: came.append(1))\n"
        "pathlib.Path(sys.argv[1]).write_text('ready')\n"
        "deadline = time.monotonic() + 30\n"
        "while not came and time.monotonic() < deadline: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "sys.exit(40 + len(came))\n"
    )
    ready = tmp_path / "ready"
    with started("trace", "record", "--plugin", PLUGIN, "-o", tmp_path / "run", "--", script, ready) as job:
        wait_for(ready.exists, 30, "the command starts")
        os.kill(job.pid, number)
        _, told = job.communicate(timeout=30)
    assert job.returncode == 41, told


@needs_plugin
def test_ranks_of_stretto_run(tmp_path: Path) -> None:
    """The library itself as the host of the plugin, through all of the launchers."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy, stretto\ncomm = stretto.init()\nfor _ in range(20): comm.all_reduce(numpy.ones(16, 'float32'))\n"
    )
    folder = tmp_path / "run"
    status, _, told = record(folder, "--", sys.executable, "-m", "stretto", "run", "-n", 3, script)
    assert status == 0, told
    found = load(folder)
    assert sorted(one.rank for one in found.contexts) == [0, 1, 2] and len(found.processes) == 3, told
    assert {one.stretto for one in found.processes} == {package.__version__}
    assert found.spans["type"].tolist().count(EventType.COLL_API) == 60
    colls = found.spans["type"] == EventType.COLL
    assert sorted(found.spans["sequence"][colls].tolist()) == sorted([*range(20)] * 3)


def test_info_for_people(tmp_path: Path) -> None:
    small(operations=5, dropped=3, program="train [bold]x[/bold]").write(tmp_path)
    done = stretto("trace", "info", tmp_path)
    assert done.returncode == 0
    for text in (
        "host 100",
        "train [bold]x[/bold]",
        "NCCL 2.28.9",
        "v5",
        "rank 0 of 2",
        "NCCL Progress 0",
        "dropped: 3",
    ):
        assert text in done.stdout, done.stdout
    assert "CollApi" in done.stdout
    small(pid=101, stretto="0.1.0").write(tmp_path)
    assert "  Stretto 0.1.0, profiler ABI v5" in stretto("trace", "info", tmp_path).stdout
    done = stretto("trace", "info", tmp_path / "nothing")
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_an_empty_recording_says_why(tmp_path: Path) -> None:
    one = {"error": "", "mask": 0, "nccl_version": 22304, "stretto_version": None}
    assert "mask of events is 0" in why_empty({"processes": [one]})[0]
    assert "disk full" in why_empty({"processes": [{**one, "error": "disk full"}]})[0]
    assert "NCCL 2.23.4" in why_empty({"processes": [{**one, "mask": 7}]})[0]
    assert "Stretto 0.2" in why_empty({"processes": [{**one, "mask": 7, "stretto_version": "0.2"}]})[0]
    assert [version_text(number) for number in (0, 2708, 22809, 23002)] == ["unknown", "2.7.8", "2.28.9", "2.30.2"]
    with pytest.raises(BadRecording):
        load(tmp_path)


def test_the_environment_is_the_outer_one_and_ours(tmp_path: Path) -> None:
    chained = tmp_path / "other.so"
    chained.write_bytes(b"")
    options = Options(tmp_path, Path("/lib/p.so"), "api", True, os.path.relpath(chained))
    made = options.environment({"PATH": "/bin", "NCCL_PROFILER_PLUGIN": "theirs"})
    assert made == {
        "PATH": "/bin",
        "NCCL_PROFILER_PLUGIN": "/lib/p.so",
        "STRETTO_TRACE_DIR": str(tmp_path),
        "STRETTO_TRACE_EVENTS": "api",
        "STRETTO_TRACE_MODE": "flight",
        "STRETTO_TRACE_CHAIN": str(chained),
    }
    for events in ("0x300", "768", "api,net", "KernelCh", "all"):
        Options(tmp_path, Path(__file__), events).check()

"""A job on several hosts that was recorded into one folder a host: the folders are read as one recording, and their
clocks are brought together, with an error that covers the truth.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from jobs import stretto
from recording_writer import Writer
from stretto.trace.analysis import analyse
from stretto.trace.reader import load
from stretto.trace.report_json import document

RANKS, HOSTS, OPERATIONS, LATE = 4, 2, 400, 200_000
OFFSET, DRIFT = 400_000_000, 50  # of the second host's clock: nanoseconds, millionths


def write(folder: Path, name: str) -> list[Path]:
    """Two ranks on each host, of which rank 3 comes 200 us late. `name`: the host's; where both have the same, as
    containers may, all that is in their files' names is the same too.
    """
    folders = [folder / f"host{number}" for number in range(HOSTS)]
    random = np.random.default_rng(7)
    noise = random.integers(0, 20_000, (OPERATIONS, RANKS)).tolist()
    ends = random.integers(0, 2_000, (OPERATIONS, RANKS)).tolist()
    for rank in range(RANKS):
        host = rank // (RANKS // HOSTS)

        def at(time: int, host: int = host) -> int:
            return time + host * (OFFSET + time * DRIFT // 1_000_000)

        anchors = [(at(time), at(time), 10**18 + at(time), 50) for time in (0, 10**9)]
        made = Writer(
            pid=10 + rank % 2,
            host=name.format(host),
            boot=bytes([65 + host]) * 16,
            anchors=anchors,
            segment_bytes=1 << 16,
        )
        comm, thread = made.context(rank, RANKS, communicator=9, name="world"), made.thread(1)
        for number in range(OPERATIONS):
            begin = 1_000_000 * (number + 1) + noise[number][rank] + (LATE if rank == 3 else 0)
            facts = {"function": "AllReduce", "data_type": "ncclFloat32", "count": 1024}
            coll = thread.start(1, at(begin), context=comm, sequence=number, **facts)
            thread.stop(coll, at(1_000_000 * (number + 1) + LATE + 40_000 + ends[number][rank]))
        folders[host].mkdir(exist_ok=True)
        made.write(folders[host])
    return folders


@pytest.mark.parametrize("name", ["node{}", "container"])
def test_folders_of_several_hosts_are_one_recording(tmp_path: Path, name: str) -> None:
    folders = write(tmp_path, name)
    recording = load(folders, align=False)
    found = document(analyse(recording), 1)
    hosts = [process.boot[0] - 65 for process in recording.processes]
    assert [(one["recorded"], one["complete"]) for one in found["communicators"]] == [([0, 1, 2, 3], True)]
    assert found["recording"]["hosts"] == HOSTS
    for clock, host in zip(found["clocks"], hosts, strict=True):
        # Of an offset that grows by the drift meanwhile.
        drifted = OPERATIONS * 1_000_000 * DRIFT // 1_000_000
        assert clock["error_ns"] >= 0
        assert abs(clock["offset_ns"] + host * OFFSET) <= clock["error_ns"] + host * drifted + 1
        assert clock["error_ns"] < 20_000
    (finding,) = found["verdict"]["findings"]
    assert finding["rank"] == 3 and finding["last"] > 0.99 * finding["counted"]


def test_a_host_whose_folder_is_missing_comes_first(tmp_path: Path) -> None:
    folders = write(tmp_path, "node{}")
    done = stretto("trace", "report", folders[0], "--json", tmp_path / "report.json")
    assert done.returncode == 0 and "No recording of ranks 2, 3 of world" in done.stdout, done.stdout
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["communicators"][0]["recorded"] == [0, 1] and not found["verdict"]["certain"]

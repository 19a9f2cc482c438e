"""`stretto audit --library`: what communicators of two libraries cost, measured in turns by nccl_driver on a stand-in
for CUDA, whose shims of a library take more than they should where a test wants that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from stretto.audit import beside, blocks, implementations, measurements, page, run, table
from stretto.audit.compare import metrics
from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity
from test_audit import HEALTHY, gravest
from test_audit_library import GPUS, VERSION, look, made, on_host

__all__ = ["made", "on_host"]  # fixtures


def costs_of(context: Context) -> dict[str, Finding]:
    ids = ("initialisation.beside", "memory.beside", "launch.beside")
    return {id: gravest(look(id, context)) for id in ids}


def test_what_communicators_of_two_libraries_cost_stands_in_one_table(on_host: Callable[..., Context]) -> None:
    checks = table.checks(["initialisation.beside", "memory.beside", "launch.beside"])
    made = run.run(on_host(), checks, lambda _: None)
    found = {one["id"]: one for one in made["findings"]}
    # What a call costs is not compared here: on the stand-in it waits for the other rank, which may have no core.
    assert found["initialisation.beside"]["severity"] == found["memory.beside"]["severity"] == "ok", found
    assert "of fewer ranks, 1: " in found["initialisation.beside"]["measured"], "of one rank too, beside two"
    for one in made["costs"]:
        assert sorted(one["makings"]) == ["1", "2"] and all(one["makings"].values())
        assert all(
            making["init"] > 0 and making["destroy"] > 0 for makings in one["makings"].values() for making in makings
        )
        assert one["each"]["descriptors"] >= 1 and one["each"]["host_bytes"] > 4096, "a communicator has a connection"
        assert one["left"]["descriptors"] == one["left"]["threads"] == 0
        assert one["startup_seconds"] > 0.001, "a process was started"
        assert 0 < min(one["calls"]["empty"]) < min(one["calls"]["call"])
    text = page.markdown(blocks.blocks(made, None), "audit")
    assert "## What communicators cost: this library and that of --library" in text
    assert "| ncclCommInitRank of 1 rank, at best |" in text and "| ncclCommInitRank of 2 ranks, at best |" in text
    assert "stretto: making a communicator of 2 ranks on GPUs" in metrics(made)


@pytest.mark.parametrize(
    ("fault", "id", "word"),
    [
        ("slow-init", "initialisation.beside", "plugin that is loaded"),
        ("greedy", "memory.beside", "buffers"),
        ("slow-call", "launch.beside", "profiler plugin"),
    ],
)
def test_what_this_library_takes_more_of_is_named(
    fault: str, id: str, word: str, on_host: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is on our side alone: the other library is told of none. One rank has nobody to wait for."""
    monkeypatch.setattr(measurements, "count_gpus", lambda: 1)
    plain = implementations.Beside.launch

    def well(self: Any, *arguments: Any) -> Any:
        launch = plain(self, *arguments)
        return dataclasses.replace(launch, environment={**launch.environment, "SHIM_FAULT": ""})

    monkeypatch.setattr(implementations.Beside, "launch", well)
    monkeypatch.setenv("SHIM_FAULT", fault)
    found = costs_of(on_host())
    assert found[id].severity is Severity.WARNING and word in found[id].cause, found[id]
    assert "times the other's" in found[id].measured
    others = [finding for name, finding in found.items() if name != id]
    assert all(finding.severity is Severity.OK for finding in others), others


def test_what_a_communicator_leaves_on_a_gpu_is_named(
    on_host: Callable[..., Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIM_FAULT", "leaks")
    found = {one.subject: one for one in look("memory.beside", on_host()) if one.subject}
    assert (
        found["stretto"].severity is Severity.WARNING and "leaves 128 MB of a GPU behind" in found["stretto"].measured
    )
    assert found["stretto-beside"].severity is Severity.NOTE, "that of another library is its makers' to mend"


def test_a_library_without_communicators_leaves_nothing_to_compare(
    on_host: Callable[..., Context], made: Callable[..., Path]
) -> None:
    found = costs_of(on_host(made("dead-costs", VERSION)))
    assert all(one.severity is Severity.WARNING and one.subject == "nccl" for one in found.values()), found


def test_what_communicators_cost_needs_gpus_and_another_library() -> None:
    without = costs_of(Context(environment={}, given=GPUS))
    assert all(one.severity is Severity.OK and "--library" in one.measured for one in without.values())
    alone = costs_of(Context(environment={}, given=HEALTHY, library=package.nccl_library_path()))
    assert all(one.severity is Severity.NOTE and "machine with GPUs" in one.measured for one in alone.values())


def test_phases_are_those_that_a_library_says(tmp_path: Path) -> None:
    line = (
        "node:1:2 [0] NCCL INFO Init timings - ncclCommInitRank: rank {} nranks {} total {} (kernels 0.15, alloc "
        "{}, bootstrap 0.02, allgathers 0.00, topo 0.05, graphs 0.00, connections 0.02, rest 0.01)\n"
    )
    (tmp_path / "said.1").write_text(line.format(0, 2, 0.57, 0.3) + line.format(0, 2, 0.59, 0.32) + "other words\n")
    (tmp_path / "said.2").write_text(line.format(1, 2, 9, 9) + line.format(0, 4, 9, 9))
    assert beside.said_phases(tmp_path, 2) == {
        "kernels": 150, "alloc": 310, "bootstrap": 20, "allgathers": 0, "topo": 50, "graphs": 0, "connections": 20,
        "rest": 10,
    }  # fmt: skip
    assert beside.said_phases(tmp_path, 8) == {}
    assert set(beside.says_phases(tmp_path)) == {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}
    own = {"init": 5.0, "meeting": 1.0, "connecting": 3.0}
    assert beside.own_phases(own) == {"meeting": 1.0, "connecting": 3.0, "elsewhere": 1.0}
    assert beside.own_phases({**own, "meeting": 0.0}) == {}, "another library has no such counters"

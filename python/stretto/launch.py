"""Which rank of how many this process is, as its launcher says it in the environment.

`stretto run`, torchrun, mpirun, MPICH's mpiexec and srun each have variables of their own. They are looked
for in that order, so that the launcher nearest to the process wins (`srun torchrun script.py` is torchrun's
job).

| launcher | rank and ranks | ranks on this host | the job is told apart by |
| --- | --- | --- | --- |
| `stretto run` | STRETTO_RANK, STRETTO_RANKS | all, or STRETTO_LOCAL_RANKS | STRETTO_UNIQUE_ID |
| torchrun, or by hand | RANK, WORLD_SIZE | LOCAL_WORLD_SIZE | TORCHELASTIC_RUN_ID, MASTER_ADDR, MASTER_PORT |
| Open MPI's mpirun | OMPI_COMM_WORLD_RANK, _SIZE | OMPI_COMM_WORLD_LOCAL_SIZE | PMIX_NAMESPACE |
| mpiexec (PMI) | PMI_RANK, PMI_SIZE | MPI_LOCALNRANKS | PMI_JOBID, PMI_KVSNAME, PMI_PORT |
| srun | SLURM_PROCID, SLURM_NTASKS | SLURM_NTASKS on one node | SLURM_JOB_ID, SLURM_STEP_ID |

Where a launcher leaves no name for its job, the number of the parent process is taken.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from stretto.errors import InvalidUsage

UNIQUE_ID_BYTES = 128

VARIABLES: tuple[tuple[str, str], ...] = (
    ("STRETTO_RANK", "this process's rank, set by `stretto run`"),
    ("STRETTO_RANKS", "the number of ranks, set by `stretto run`"),
    ("STRETTO_UNIQUE_ID", "the job's unique id in hexadecimal, set by `stretto run`; a secret"),
    ("STRETTO_LOCAL_RANKS", "the number of ranks on this host, set by `stretto run --hosts`"),
    ("STRETTO_REMOTE_SHELL", "what `stretto run --hosts` reaches other hosts by (default: ssh)"),
    ("STRETTO_RUN_LOG", "where ranks note their failures for `stretto run`, set by it"),
    (
        "STRETTO_RENDEZVOUS",
        "how ranks find each other without `stretto run`: file, tcp (default: by the launcher)",
    ),
    (
        "STRETTO_RENDEZVOUS_PORT",
        "TCP port at MASTER_ADDR for that (default: derived from MASTER_PORT and the job)",
    ),
    (
        "STRETTO_RENDEZVOUS_SECRET",
        "a secret that all ranks share, which authenticates and encrypts that exchange",
    ),
    ("STRETTO_VLLM", "1: vLLM's tensor-parallel all-reduce is this library's (default: 0)"),
    ("STRETTO_SGLANG", "1: the same in SGLang (default: 0)"),
)
"""The environment variables that Python reads; those of the library are in `stretto info`'s list."""


@dataclass(frozen=True)
class Place:
    """One process's place in its job. `job` is the same text on all its ranks, and on no other job's; `secret`: only
    they know it.
    """

    launcher: str
    rank: int
    ranks: int
    job: str
    one_host: bool
    master: tuple[str, int] | None = None
    unique_id: bytes | None = None

    @property
    def secret(self) -> bool:
        return self.launcher == "stretto run"


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise InvalidUsage(f"{name}={environment[name]}: not a whole number") from None


def _job(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = [f"{name}={environment[name]}" for name in names if environment.get(name)]
    return " ".join(found) or f"parent={os.getppid()}"


def _master(environment: Mapping[str, str]) -> tuple[str, int] | None:
    if not environment.get("MASTER_ADDR"):
        return None
    port = _number(environment, "MASTER_PORT") if environment.get("MASTER_PORT") else 29500
    return environment["MASTER_ADDR"], port


def _is_loopback(master: tuple[str, int] | None) -> bool:
    return master is None or master[0] in ("localhost", "::1") or master[0].startswith("127.")


def _from_stretto(environment: Mapping[str, str], rank: int, ranks: int) -> Place:
    text = environment.get("STRETTO_UNIQUE_ID", "")
    try:
        unique_id = bytes.fromhex(text)
    except ValueError:
        unique_id = b""
    if len(unique_id) != UNIQUE_ID_BYTES:
        raise InvalidUsage(
            f"STRETTO_UNIQUE_ID must be {2 * UNIQUE_ID_BYTES} hexadecimal digits, and has {len(text)} characters"
        )
    one_host = environment.get("STRETTO_LOCAL_RANKS", str(ranks)) == str(ranks)
    return Place("stretto run", rank, ranks, text, one_host, _master(environment), unique_id)


def _from_torchrun(environment: Mapping[str, str], rank: int, ranks: int) -> Place:
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
    master = _master(environment)
    local = environment.get("LOCAL_WORLD_SIZE")
    one_host = int(local) == ranks if local else _is_loopback(master)
    return Place("torchrun", rank, ranks, _job(environment, names), one_host, master)


def _from_openmpi(environment: Mapping[str, str], rank: int, ranks: int) -> Place:
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
    one_host = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", str(ranks)) == str(ranks)
    return Place("mpirun", rank, ranks, _job(environment, names), one_host, _master(environment))


def _from_pmi(environment: Mapping[str, str], rank: int, ranks: int) -> Place:
    names = ("PMI_JOBID", "PMI_KVSNAME", "PMI_PORT")
    one_host = environment.get("MPI_LOCALNRANKS", str(ranks)) == str(ranks)
    return Place("mpiexec", rank, ranks, _job(environment, names), one_host, _master(environment))


def _from_slurm(environment: Mapping[str, str], rank: int, ranks: int) -> Place:
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    nodes = environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES") or "1"
    return Place("srun", rank, ranks, _job(environment, names), nodes == "1", _master(environment))


_LAUNCHERS = (
    ("STRETTO_RANK", "STRETTO_RANKS", _from_stretto),
    ("RANK", "WORLD_SIZE", _from_torchrun),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", _from_openmpi),
    ("PMI_RANK", "PMI_SIZE", _from_pmi),
    ("SLURM_PROCID", "SLURM_NTASKS", _from_slurm),
)


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place. Raises `InvalidUsage` if no launcher left one, or left nonsense."""
    for rank_name, ranks_name, read in _LAUNCHERS:
        if rank_name in environment and ranks_name in environment:
            rank, ranks = _number(environment, rank_name), _number(environment, ranks_name)
            if not 0 <= rank < ranks:
                raise InvalidUsage(f"{rank_name}={rank} and {ranks_name}={ranks}: a rank is 0 to ranks - 1")
            return read(environment, rank, ranks)
    raise InvalidUsage(
        "no launcher has given this process a rank. Start it with `stretto run -n 4 script.py` (or torchrun, mpirun, "
        "srun), call stretto.init(rank=, ranks=, unique_id=), or use threads: stretto.threads(4, function)"
    )

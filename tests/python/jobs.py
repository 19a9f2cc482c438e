"""Running `stretto` in tests: with a deadline, and with nothing of it left when the test ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# What a test waits for at most where nothing is measured: less than the limit of a test.
GUARD = 110.0
STRETTO = [sys.executable, "-m", "stretto"]


def hanging(rank: int) -> str:
    """A script whose ranks wait for one in an all-reduce that it does not enter; each says first that it is there."""
    return f"""
import os, pathlib, sys, time, numpy, stretto
comm = stretto.init()
comm.barrier()
(pathlib.Path(sys.argv[1]) / f"ready{{comm.rank}}").write_text(str(os.getpid()))
if comm.rank == {rank}:
    time.sleep(1000)
comm.all_reduce(numpy.zeros(4096, "float32"))
"""


def environment(**extra: str) -> dict[str, str]:
    """This process's, without what an outer launcher may have left in it."""
    outer = ("STRETTO_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outer) and name not in names}
    return {**kept, "COLUMNS": "200", **extra}


def stretto(*arguments: object, seconds: float = GUARD, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    command = [*STRETTO, *(str(one) for one in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment(**extra))


def run_script(
    folder: Path,
    ranks: int,
    text: str,
    *options: object,
    arguments: Sequence[object] = (),
    seconds: float = GUARD,
    **extra: str,
) -> subprocess.CompletedProcess[str]:
    """`stretto run -n RANKS OPTIONS` of a script with this text and these arguments."""
    script = folder / "script.py"
    script.write_text(text)
    return stretto("run", "-n", ranks, *options, script, *arguments, seconds=seconds, **extra)


@contextlib.contextmanager
def started(*arguments: object, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a command in a session of its own; ends it with the block."""
    process = subprocess.Popen(
        [*STRETTO, *(str(one) for one in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**extra),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Programs that an audit runs and reads: in a session of their own, and for no longer than the audit lives, so that
nothing of them is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from stretto.audit.progress import Progress
from stretto.cli.rank_processes import start_process

_LOOK_SECONDS = 0.5
# For which a process that was killed is waited for. One that is in the middle of a call into a driver ends later.
_DYING_SECONDS = 1.0


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None, quiet: float = 0.0
) -> subprocess.CompletedProcess[str]:
    """What it printed and its status. After `seconds` (subprocess.TimeoutExpired), or when the audit is interrupted, it
    is killed together with the processes that it started. Bytes that are no text are replaced. `quiet`: that it hangs
    is known sooner, after so many seconds in which it has its core, reads nothing and touches no new memory.
    """
    own = None if environment is None else dict(environment)
    process = start_process(command, own, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        output, problems = _heard(process, command, max(0.0, seconds), quiet)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_DYING_SECONDS)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise
    texts = (text.decode(errors="replace") for text in (output, problems))
    return subprocess.CompletedProcess(list(command), process.returncode, *texts)


def _heard(
    process: subprocess.Popen[bytes], command: Sequence[str], seconds: float, quiet: float
) -> tuple[bytes, bytes]:
    if not quiet:
        return process.communicate(timeout=seconds)
    began, progress = time.monotonic(), Progress([process.pid], quiet, seconds, by_memory=True)
    while True:
        left = began + seconds - time.monotonic()
        try:
            return process.communicate(timeout=max(0.0, min(_LOOK_SECONDS, left)))
        except subprocess.TimeoutExpired as late:
            took = time.monotonic() - began
            if took >= seconds or not progress():
                raise subprocess.TimeoutExpired(late.cmd, round(took, 1)) from late

"""Programs that an audit runs and reads: in a session of their own, and for no longer than the audit lives, so that
nothing of them is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from stretto.cli.rank_processes import start_process


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it printed and its status. After `seconds` (subprocess.TimeoutExpired), or when the audit is interrupted, it
    is killed together with the processes that it started. Bytes that are no text are replaced.
    """
    own = None if environment is None else dict(environment)
    with start_process(command, own, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            output, problems = process.communicate(timeout=max(0.0, seconds))
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        texts = (text.decode(errors="replace") for text in (output, problems))
        return subprocess.CompletedProcess(list(command), process.returncode, *texts)

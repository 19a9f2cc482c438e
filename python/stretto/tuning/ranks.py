"""The ranks that a search measures: the native driver where it is installed, the one in Python otherwise."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import stretto
from stretto.bench.drivers import Missing
from stretto.bench.job import Job, Launch
from stretto.bench.options import Options
from stretto.bench.peers import Stretto

_START_SECONDS = 60.0


def _launch(ranks: int, threads: bool, folder: Path, most_bytes: int, say: Callable[[str], None]) -> Launch:
    # Not bound to cores: a bound rank counts its own core as all there are, and so would the table.
    options = Options(ranks=ranks, threads=threads, bind="none")
    try:
        # Room for the largest size; a page more, so that no two buffers end and begin on one.
        return Stretto().launch(options, folder, most_bytes + 4096)
    except Missing as reason:
        say(f"measured through Python, which adds about a microsecond to each call ({reason})")
    command = [sys.executable, "-m", "stretto.tuning.driver", "--folder", str(folder)]
    if threads:
        return Launch([[*command, "--threads", str(ranks)]])
    environment = {"STRETTO_RANKS": str(ranks), "STRETTO_UNIQUE_ID": stretto.unique_id().hex()}
    return Launch([[*command, "--rank", str(rank)] for rank in range(ranks)], environment)


@contextlib.contextmanager
def running(ranks: int, threads: bool, most_bytes: int, say: Callable[[str], None]) -> Iterator[Job]:
    """A job that waits for commands; ended, whatever happens, with the block."""
    with tempfile.TemporaryDirectory(prefix="stretto-tune-") as name:
        folder = Path(name)
        job = Job("stretto", _launch(ranks, threads, folder, most_bytes, say), ranks, folder)
        try:
            job.wait_ready(_START_SECONDS)
            yield job
            job.close()
        finally:
            job.kill()

"""The ranks that a search measures: the native driver where it is installed, else, for CPU ranks, the one in Python."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import stretto
from stretto.bench.drivers import Missing
from stretto.bench.gpu import need_gpus
from stretto.bench.job import Job, Launch, terminable
from stretto.bench.options import Options
from stretto.bench.peers import Stretto
from stretto.tuning import table

_START_SECONDS = 60.0
# CUDA is read from disk, where nothing is cached.
_GPU_START_SECONDS = 90.0


def _launch(options: Options, folder: Path, most_bytes: int, say: Callable[[str], None]) -> Launch:
    try:
        # Room for the largest size; a page more, so that no two buffers end and begin on one.
        return Stretto().launch(options, folder, most_bytes + 4096)
    except Missing as reason:
        if options.on_gpu:
            raise
        say(f"measured through Python, which adds about a microsecond to each call ({reason})")
    command = [sys.executable, "-m", "stretto.tuning.driver", "--folder", str(folder)]
    if options.threads:
        return Launch([[*command, "--threads", str(options.ranks)]])
    environment = {"STRETTO_RANKS": str(options.ranks), "STRETTO_UNIQUE_ID": stretto.unique_id().hex()}
    return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)], environment)


def _without_table(launch: Launch, folder: Path) -> Launch:
    """What an earlier table says must not be what this one is measured against: the model is."""
    empty = folder / "no-table.json"
    empty.write_text(json.dumps({"schema": table.SCHEMA, "machine": {}, "entries": []}))
    return dataclasses.replace(launch, environment={**launch.environment, "STRETTO_TABLE": str(empty)})


@contextlib.contextmanager
def running(options: Options, most_bytes: int, say: Callable[[str], None]) -> Iterator[Job]:
    """A job that waits for commands; ended, whatever happens, with the block. Raises `Missing` with the reason where
    there is nothing to start.
    """
    if options.on_gpu:
        need_gpus(options)
    with tempfile.TemporaryDirectory(prefix="stretto-tune-") as name, terminable():
        folder = Path(name)
        launch = _without_table(_launch(options, folder, most_bytes, say), folder)
        job = Job("stretto", launch, options.ranks, folder)
        try:
            job.wait_ready(_GPU_START_SECONDS if options.on_gpu else _START_SECONDS)
            yield job
            job.close()
        finally:
            job.kill()

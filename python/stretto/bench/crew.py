"""The jobs of one run: each implementation's ranks, started one after the other, and what is to be said of them."""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stretto.bench.drivers import Missing
from stretto.bench.job import Job, JobError
from stretto.bench.options import Options
from stretto.bench.peers import Peer

# Until ranks are ready, however short the limit of an operation is. A busy machine may start processes slowly; for GPUs
# they read CUDA, NCCL and torch from disk, gigabytes of them where nothing is cached.
_START_SECONDS, _GPU_START_SECONDS = 30.0, 90.0


class Failed(RuntimeError):
    """The run cannot give what was asked for; the text says why and what to do."""


class Crew:
    """All jobs of a run, and what there is to say about them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self.jobs: dict[str, Job] = {}
        self.failures: dict[str, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.unverified: set[str] = set()

    def start(self, peers: list[Peer], must: Peer) -> None:
        """Starts one after the other, so that none's start is slowed by another's. `must` has to succeed."""
        for peer in peers:
            try:
                self._start_one(peer)
            except (Missing, JobError, OSError) as error:
                if peer is must:
                    raise Failed(f"{peer.name}: {error}") from error
                # What is not installed is no failure, only less to compare with.
                if not isinstance(error, Missing):
                    self.failures[peer.name] = str(error)
                say(f"without {peer.name}: {error}")

    def _start_one(self, peer: Peer) -> None:
        options = self._options
        own = self._folder / peer.name
        own.mkdir()
        # Room for the largest size; a page more, so that no two buffers end and begin on one.
        launch = peer.launch(options, own, options.sizes[-1] + 4096)
        job = Job(peer.name, launch, options.ranks, own)
        self.jobs[peer.name] = job
        try:
            job.wait_ready(max(options.timeout, _GPU_START_SECONDS if options.on_gpu else _START_SECONDS))
        except JobError:
            self.jobs.pop(peer.name).kill()
            raise
        if not peer.verifies:
            self.unverified.add(peer.name)
        self.facts[peer.name] = {
            "version": job.version,
            "startup_seconds": round(job.startup_seconds, 3),
            "note": peer.note,
            **({"gpu": job.gpu} if job.gpu else {}),
        }

    def close(self, names: list[str]) -> None:
        """Lets those end by themselves, and takes note of what does not end well."""
        for name in names:
            problem = self.jobs[name].close()
            if problem:
                self.failures[name] = f"at its end: {problem}"

    def kill(self) -> None:
        for job in self.jobs.values():
            job.kill()


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="stretto-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

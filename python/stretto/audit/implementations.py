"""What stands beside this package's library in an audit, and how its ranks are started."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from stretto.bench.gpu import find_nccl, launch_library
from stretto.bench.job import Job, Launch
from stretto.bench.options import Options
from stretto.bench.peers import Nccl, Peer, Stretto
from stretto.bench.rows import Row
from stretto.loaded import identify


@dataclass(frozen=True)
class Contest:
    """Implementations in turns. `failures`: those that were left out, and why; `shared`: all ranks are on one GPU."""

    rows: list[Row]
    versions: dict[str, str]
    failures: dict[str, str]
    shared: bool = False


class OnePair(Stretto):
    """On two GPUs of the machine. `visible`: as CUDA_VISIBLE_DEVICES names them."""

    def __init__(self, visible: str) -> None:
        self._visible = visible

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        launch = super().launch(options, folder, buffer_bytes)
        here = {"CUDA_VISIBLE_DEVICES": self._visible}
        return dataclasses.replace(launch, environment={**launch.environment, **here})


class Beside(Peer):
    """Another build of this library, whose ranks may share a GPU."""

    name = "stretto-beside"
    note = "the libnccl.so.2 of --library"

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        return launch_library(self.name, find_nccl(options), options, folder, buffer_bytes)


class OtherBuild(Stretto):
    """Another build of this library, for ranks in host memory: the same driver, which that library is put before."""

    name = "stretto-beside"
    note = "the libnccl.so.2 of --library"

    def __init__(self, library: Path) -> None:
        self._library = library.resolve()

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        launch = super().launch(options, folder, buffer_bytes)
        first = {"LD_PRELOAD": f"{self._library}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")}
        return dataclasses.replace(launch, environment={**launch.environment, **first})

    def runs(self, job: Job) -> bool:
        """Whether its ranks have really loaded it."""
        return all(str(self._library) in Path(f"/proc/{pid}/maps").read_text() for pid in job.pids)


def other(library: Path | None) -> Peer:
    """What stands beside this package's library on GPUs."""
    return Beside() if library is not None and identify(str(library)).stretto else Nccl()

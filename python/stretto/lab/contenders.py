"""Who is compared: this library, baselines that have the structure of inference engines' all-reduces, and the peers of
`stretto bench`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from stretto.bench.drivers import find_driver
from stretto.bench.job import Launch
from stretto.bench.options import Options
from stretto.bench.peers import PEERS, Peer, Stretto, arguments, chosen_peers
from stretto.lab.names import chosen

# Names and structure: benchmarks/lab/kinds.hpp.
KINDS = {
    "1stage": "one stage, one staging buffer, barrier at the end",
    "1stage-2buf": "one stage, two staging buffers in turn, barrier at the end",
    "1stage-nosync": "one stage, two staging buffers in turn, no barrier at the end",
    "1stage-unsafe": "one stage, one staging buffer, no barrier at the end: wrong when a rank is late",
    "2stage": "two stages, barrier at the end",
    "2stage-nosync": "two stages, no barrier at the end",
}
UNSAFE = "1stage-unsafe"


class Baseline(Peer):
    """One kind of benchmarks/lab/kinds.hpp, between processes over shared memory."""

    def __init__(self, kind: str) -> None:
        self.name = kind  # type: ignore[misc]
        self.note = KINDS[kind]  # type: ignore[misc]

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        command = [str(find_driver("kinds_driver")), "--kind", self.name, *arguments(options, folder, buffer_bytes)]
        return Launch([[*command, "--rank", str(rank)] for rank in range(options.ranks)])


class Recorded(Stretto):
    """This library with the profiler plugin, whose recording goes to a folder."""

    def __init__(self, plugin: Path, recording: Path) -> None:
        self._environment = {"NCCL_PROFILER_PLUGIN": str(plugin), "STRETTO_TRACE_DIR": str(recording)}

    def launch(self, options: Options, folder: Path, buffer_bytes: int) -> Launch:
        launch = super().launch(options, folder, buffer_bytes)
        return dataclasses.replace(launch, environment={**launch.environment, **self._environment})


def contenders(text: str, device: str) -> list[Peer]:
    """Those beside this library: "all", "none" or a list with commas of kinds and of bench's peers. "all" leaves out
    the kind that gives wrong results.
    """
    if device != "cpu":
        return chosen_peers(text, device)
    kinds = {kind: Baseline(kind) for kind in KINDS}
    if text == "none":
        return []
    if text == "all":
        return [*(one for name, one in kinds.items() if name != UNSAFE), *chosen_peers("all", device)]
    known: dict[str, Peer] = {**kinds, **PEERS[device]}
    return [known[name] for name in chosen("peers", text, ["all", "none", *known])]

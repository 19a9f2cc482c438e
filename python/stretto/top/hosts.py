"""The jobs of several hosts as one sample: each host's member is asked, and what they answer is merged."""

from __future__ import annotations

import time
from typing import Any

from stretto.cli.crew import Agents
from stretto.top.merge import merged
from stretto.top.watcher import NoJob

# A host that does not answer within this is given up: the others' rows may not wait for longer.
_ANSWER_SECONDS = 10.0


class HostsWatcher:
    """What a `Watcher` is for one host. Raises `NoJob` where no host can be reached, or none has a job."""

    def __init__(self, crew: Agents) -> None:
        self._crew = crew
        crew.wait_begun()
        first = self.sample()
        if not first["communicators"]:
            raise NoJob("; ".join(first["problems"]) or "no host has a communicator of Stretto now")

    def sample(self) -> dict[str, Any]:
        """The document "stretto.top/1", with `hosts`. A host that is lost stays so."""
        began = time.monotonic()
        answers = self._crew.ask({name: {"do": "sample"} for name in self._crew.names}, _ANSWER_SECONDS)
        apart = time.monotonic() - began
        samples = {name: answers[name]["sample"] for name in self._crew.names if "sample" in answers.get(name, {})}
        idle = [f"host {name}: {answers[name]['nothing']}" for name in answers if "nothing" in answers[name]]
        problems = [f"host {name}: {text}" for name, sample in samples.items() for text in sample["problems"]]
        return {
            "schema": "stretto.top/1",
            "time": time.time(),
            "hosts": [
                {"name": name, "reached": name not in self._crew.gone, "why": self._crew.gone.get(name)}
                for name in self._crew.names
            ],
            "communicators": merged({name: one["communicators"] for name, one in samples.items()}, apart),
            "problems": self._lost() + idle + problems,
        }

    def rest(self, seconds: float) -> None:
        self._crew.rest(seconds)

    def _lost(self) -> list[str]:
        return [f"host {name}: {why}" for name, why in self._crew.gone.items()]

"""The hosts of an audit of several, however they are reached: over remote shells (`stretto.cli.crew.Agents`), or as the
ranks of a launcher (`stretto.audit.ranks.Ranks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stretto.by_lines import Answer, Command


class Crew(Protocol):
    """`names`: of the hosts; `gone`: those that are lost, and why."""

    names: list[str]
    gone: dict[str, str]

    def ask(self, commands: Mapping[str, Command], seconds: float) -> dict[str, Answer]:
        """What each host answers; nothing of one that is lost, or that is lost now."""

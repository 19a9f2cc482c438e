"""One host of `stretto top --hosts`: answers each line that it reads by one, the jobs of this host as they are now."""

from __future__ import annotations

import sys
from typing import Any

from stretto.by_lines import Line
from stretto.top.watcher import NoJob, Watcher


class Member:
    """Watches all that its user may look at."""

    def __init__(self) -> None:
        self._watcher: Watcher | None = None

    def answer(self) -> dict[str, Any]:
        """{"sample"}; {"nothing"} says why there is none now."""
        try:
            self._watcher = self._watcher or Watcher(None)
            return {"sample": self._watcher.sample()}
        except NoJob as error:
            self._watcher = None
            return {"nothing": str(error)}


def main() -> int:
    line, member = Line(), Member()
    for _ in line.commands():
        line.say(member.answer())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One host of `stretto top --hosts`: answers each line that it reads by one, the jobs of this host as they are now."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

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
    # Nothing else that is printed may come between answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: whoever asks tells us when to end
    member = Member()
    with contextlib.suppress(BrokenPipeError):
        for _ in sys.stdin:
            print(json.dumps(member.answer()), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

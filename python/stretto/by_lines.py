"""The other side of `stretto.cli.crew`: a process that is asked by lines of JSON and answers each by one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

Command = dict[str, Any]
Answer = dict[str, Any]


class Line:
    """To whoever asks. From now on what is printed goes to stderr, so that nothing comes between answers; and a SIGINT
    of a terminal is ignored, because whoever asks says when to end. `say` may be called by any thread.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._speaking = threading.Lock()

    def commands(self) -> Iterator[Command]:
        """Until whoever asks has gone."""
        for line in sys.stdin:
            yield json.loads(line)

    def say(self, answer: Answer) -> None:
        with self._speaking, contextlib.suppress(BrokenPipeError):
            print(json.dumps(answer), file=self._answers, flush=True)

"""What `stretto run --threads` starts: one Python whose threads each run the script as a rank."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, TextIO, cast

from stretto import failures
from stretto.communicator import part_from_peers
from stretto.rank_threads import Failure, RankThreads

_INTERRUPTED = 130
# For threads that unwind after Ctrl-C, and for what atexit does after a failure when the ranks have ended.
_LAST_SECONDS = 1.0
_said = threading.Lock()
_outputs: list[WholeLines] = []


class WholeLines:
    """Standard output of ranks that are threads: no other rank's text comes into the middle of a line.
    `print` writes a line and its end apart. What a thread has begun leaves with the end of its line, when the thread
    flushes, when it is long, or when Python ends; a thread that is given the number of one that has ended goes on
    with its line. Other methods are those of the stream below. Any thread.
    """

    MOST = 65536  # characters of a line that has not ended

    def __init__(self, below: TextIO) -> None:
        self._below = below
        self._begun: dict[int, str] = {}  # by thread
        # A pipe takes a long line in pieces. A debugger's prompt, or a destructor that prints, may come in between.
        self._lock = threading.RLock()
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._forked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        thread = threading.get_ident()
        with self._lock:
            begun = self._begun.pop(thread, "") + text
            whole, end, rest = begun.rpartition("\n")
            if len(rest) > self.MOST:
                whole, end, rest = begun, "", ""
            if rest:
                self._begun[thread] = self._begun.get(thread, "") + rest
            if whole or end:
                self._below.write(whole + end)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            if begun := self._begun.pop(threading.get_ident(), ""):
                self._below.write(begun)
            self._below.flush()

    def close(self) -> None:
        self.leave()
        self._below.close()

    def __enter__(self) -> WholeLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def leave(self) -> None:
        """Writes what any thread has begun, unless a thread that waits at a full pipe holds the lock."""
        if not self._lock.acquire(timeout=_LAST_SECONDS):
            return
        try:
            with contextlib.suppress(OSError, ValueError):
                begun = "".join(self._begun.values())
                self._begun.clear()
                self._below.write(begun)
                self._below.flush()
        finally:
            self._lock.release()

    def _at_exit(self) -> None:
        """Python flushes what sys.stdout is once more, when threads that hold the lock can no longer give it back."""
        self.leave()
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is self:
                setattr(sys, name, self._below)

    def _forked(self) -> None:
        """What threads have begun is the parent's to write."""
        self._begun.clear()
        self._lock = threading.RLock()


def main(arguments: list[str]) -> int:
    """`arguments`: the number of ranks, the seconds that ranks have to end after a failure, the script, and its
    arguments. Returns the exit status.
    """
    ranks, grace, script = int(arguments[0]), float(arguments[1]), Path(arguments[2])
    sys.argv = arguments[2:]
    sys.path[0] = str(script.resolve().parent)
    code = _compile(script)
    sys.stdout, sys.stderr = _in_whole_lines(sys.stdout), _in_whole_lines(sys.stderr)
    threads = RankThreads(ranks, lambda rank: _run_script(code, script), _say)
    try:
        threads.run(grace)
    except KeyboardInterrupt:
        threads.wait(_LAST_SECONDS)
        return _leave(_INTERRUPTED, bool(threads.running()))
    first = threads.first_failure()
    if first is None:
        return 0
    failures.note_verdict(first.rank, first.error)
    left = threads.running()
    threads.abort()
    _print(first, ranks, left, str(script))
    return _leave(failures.exit_code(first.error), bool(left))


def _in_whole_lines(stream: TextIO | None) -> TextIO:
    """None, which Python has for a file that was closed before it began, stays."""
    if stream is None:
        return cast("TextIO", None)
    _outputs.append(WholeLines(stream))
    return cast("TextIO", _outputs[-1])


def _compile(script: Path) -> CodeType:
    try:
        return compile(script.read_bytes(), str(script), "exec")
    except OSError as error:
        print(f"stretto run: cannot read {script}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except (SyntaxError, ValueError) as error:
        traceback.print_exception(error.with_traceback(None))
        sys.exit(1)


def _run_script(code: CodeType, script: Path) -> None:
    try:
        _execute(code, script)
    finally:
        for output in _outputs:
            with contextlib.suppress(OSError, ValueError):
                output.flush()


def _execute(code: CodeType, script: Path) -> None:
    try:
        exec(code, {"__name__": "__main__", "__file__": str(script), "__builtins__": __builtins__})
    except SystemExit as leaving:
        if failures.exit_code(leaving) != 0:
            raise
    # As at the end of a process: what the rank has left open is closed, so that no peer waits for it.
    record = failures.current()
    record.ending = True
    part_from_peers(list(record.communicators), failed=False)


def _say(failure: Failure) -> None:
    """At once, of the first that was no consequence; what is found to be the first failure is said at the end."""
    if failure.blame == failures.Blame.CAUSE and _said.acquire(blocking=False):
        words = failures.words_of(failure.error)
        print(f"stretto run: rank {failure.rank} failed ({words}); its communicators are aborted", file=sys.stderr)


def _print(first: Failure, ranks: int, left: list[int], script: str) -> None:
    note = f"on rank {first.rank} of {ranks} (a thread of this process)"
    if isinstance(first.error, SystemExit):
        if first.error.code is not None and not isinstance(first.error.code, int):
            print(first.error.code, file=sys.stderr)
    else:
        failures.add_note(first.error, note)
        traceback.print_exception(first.error.with_traceback(_of_script(first.error.__traceback__, script)))
    if left:
        which = f"rank{'s' if len(left) > 1 else ''} {', '.join(str(rank) for rank in left)}"
        print(f"stretto run: {which} did not end within the time of grace; the process ends without", file=sys.stderr)


def _of_script(trace: TracebackType | None, script: str) -> TracebackType | None:
    """Without the frames of ours that called the script."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found if found is not None else trace


def _leave(status: int, ranks_left: bool) -> int:
    """Ends in a bounded time. Threads that still run the script are not there to be waited for, and would be in the
    way of Python's own end.
    """

    def insist() -> None:
        time.sleep(_LAST_SECONDS)
        os._exit(status)

    threading.Thread(target=insist, daemon=True).start()
    if not ranks_left:
        return status
    atexit._run_exitfuncs()
    for output in _outputs:
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What `stretto run --threads` starts: one Python whose threads each run the script as a rank."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from types import CodeType, TracebackType

from stretto import failures
from stretto.communicator import part_from_peers
from stretto.rank_threads import Failure, RankThreads

_INTERRUPTED = 130
# For threads that unwind after Ctrl-C, and for what atexit does after a failure when the ranks have ended.
_LAST_SECONDS = 1.0
_said = threading.Lock()


def main(arguments: list[str]) -> int:
    """`arguments`: the number of ranks, the seconds that ranks have to end after a failure, the script, and its
    arguments. Returns the exit status.
    """
    ranks, grace, script = int(arguments[0]), float(arguments[1]), Path(arguments[2])
    sys.argv = arguments[2:]
    sys.path[0] = str(script.resolve().parent)
    code = _compile(script)
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
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

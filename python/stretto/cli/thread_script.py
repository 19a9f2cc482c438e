"""What `stretto run --threads` starts: one Python whose threads each run the script as a rank."""

from __future__ import annotations

import sys
from pathlib import Path

from stretto.start import run_threads


def main(arguments: list[str]) -> int:
    """`arguments`: the number of ranks, the script, and its arguments. Returns the exit status."""
    ranks, script = int(arguments[0]), Path(arguments[1])
    sys.argv = arguments[1:]
    sys.path[0] = str(script.resolve().parent)
    code = compile(script.read_bytes(), str(script), "exec")

    def body(rank: int) -> int:
        try:
            exec(code, {"__name__": "__main__", "__file__": str(script), "__builtins__": __builtins__})
        except SystemExit as leaving:
            if leaving.code is None or isinstance(leaving.code, int):
                return leaving.code or 0
            print(leaving.code, file=sys.stderr)
            return 1
        return 0

    return max(run_threads(ranks, body))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

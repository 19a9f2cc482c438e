"""Instructions of one call, by rank, counted by Valgrind's callgrind: count.py CALLS LIBRARY...

CALLS is calls.c, compiled. A rank's count is the difference of two runs of 500 and 1500 calls, so that what happens
once is not in it, over the functions that are named by no word of WAITS: what a wait costs depends on the other rank.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

WAITS = re.compile(r"wait|yield|malloc|free|memset|syscall|futex|clock|arena|tcache|sysmalloc")
LINE = re.compile(r"^ *([\d,]+) \([ \d.]+%\) +(?:\S*?:)?(.+?)(?: \[.*)?$")
ENTRIES = ("ncclAllReduce", "ncclSend", "ncclRecv")


def spent(folder: Path, calls: str, library: str, what: str, size: int, times: int) -> dict[str, int]:
    """Of all calls, by rank: rank 0 is the first thread that calls, whatever number the other one gets."""
    out = folder / f"{times}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}"]
    command += [f"--toggle-collect={name}" for name in ENTRIES]
    run = subprocess.run(
        [*command, calls, library, what, str(size), str(times)], capture_output=True, text=True, check=True
    )
    assert "0 wrong" in run.stdout, run.stdout
    ranks = {"rank 0": 0, "rank 1": 0}
    for number, file in enumerate(sorted(folder.glob(f"{times}-*"))):
        text = subprocess.run(["callgrind_annotate", "--threshold=100", file], capture_output=True, text=True).stdout
        for line in text.splitlines():
            if (found := LINE.match(line)) and "PROGRAM TOTALS" not in line and not WAITS.search(found[2]):
                ranks["rank 0" if number < 3 else "rank 1"] += int(found[1].replace(",", ""))
    return ranks


def main() -> None:
    calls, *libraries = sys.argv[1:]
    for what in ("message", "all-reduce"):
        for size in (8, 256, 1024):
            for library in libraries:
                with tempfile.TemporaryDirectory() as name:
                    few, many = (spent(Path(name), calls, library, what, size, times) for times in (500, 1500))
                each = {rank: (many[rank] - few[rank]) / 1000 for rank in few}
                words = "  ".join(f"{rank}: {count:8.1f}" for rank, count in each.items())
                print(f"{what:10} {size:5} B  {words}  {library}", flush=True)


if __name__ == "__main__":
    main()

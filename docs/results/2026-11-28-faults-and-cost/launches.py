"""launches.py PROGRAM OLD NEW --seconds N --jobs N [--same]: what direct operations of the library NEW take, over those
of OLD, over many launches of launch.c in random order. Which of the two is loaded first changes from launch to launch,
since the second of two equal ones was up to 1.24 times as slow at 16 MB. A launch is two processes on two cores of
their own; its value is the median over pairs of batches. The table has the geometric mean of the launches, with the
interval that holds it with 95 % (2,000 resamples). --same: also OLD against OLD.same, a copy of it."""

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

NAMES = ("all-reduce", "all-gather", "ping-pong")
ROW = re.compile(r"\s([0-9.]+) us\s+ratio ([0-9.]+)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--each", type=float, default=0.4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first-core", type=int, default=0)
    parser.add_argument("--bytes", default="1048576,4194304,16777216")
    parser.add_argument("--operations", default="0,1")
    parser.add_argument("--same", action="store_true", help="also old against old")
    parser.add_argument("--json")
    given = parser.parse_args()
    pairs = [(int(o), int(b)) for o in given.operations.split(",") for b in given.bytes.split(",")]
    cells = [(*pair, same) for pair in pairs for same in ((False, True) if given.same else (False,))]
    places: Queue[int] = Queue()
    for job in range(given.jobs):
        places.put(given.first_core + 2 * job)
    until = time.monotonic() + given.seconds
    found: dict[tuple[int, int, bool], list[tuple[float, float]]] = {cell: [] for cell in cells}
    bad: list[str] = []

    def launch(cell: tuple[int, int, bool], swapped: int) -> None:
        if time.monotonic() > until:
            return
        operation, size, same = cell
        core = places.get()
        pair = [given.old, given.old + ".same" if same else given.new]
        if swapped:
            pair.reverse()
        asked = [str(given.each), str(operation), str(size)]
        command = ["taskset", "-c", f"{core},{core + 1}", given.program, *pair, *asked]
        try:
            environment = {**os.environ, "STRETTO_ALGO": "direct"}
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
            row = ROW.search(done.stdout)
            if done.returncode != 0 or not row or "\n0 wrong" not in done.stdout:
                bad.append(f"{cell} rc {done.returncode}: {done.stdout[-200:]} {done.stderr[-200:]}")
            else:
                found[cell].append((float(row[1]), 1 / float(row[2]) if swapped else float(row[2])))
        except subprocess.TimeoutExpired:
            bad.append(f"{cell} took more than 60 s")
        finally:
            places.put(core)

    work = [(cell, i & 1) for i in range(1000) for cell in cells]

    # In blocks of all cells, each shuffled, so that every cell gets as many.
    ordered = []
    for i in range(0, len(work), len(cells) * 2):
        block = work[i : i + len(cells) * 2]
        random.shuffle(block)
        ordered += block
    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda one: launch(*one), ordered))
    for (operation, size, same), values in found.items():
        logs = [math.log(ratio) for _, ratio in values]
        if len(logs) < 3:
            continue
        means = sorted(sum(random.choices(logs, k=len(logs))) / len(logs) for _ in range(2000))
        times = sorted(us for us, _ in values)
        what = "old/old" if same else "new/old"
        mean, low, high = (math.exp(x) for x in (sum(logs) / len(logs), means[50], means[1949]))
        print(
            f"{NAMES[operation]:10s} {size:9d} B  {times[len(times) // 2]:10.1f} us  {what} {mean:.4f}  "
            f"({low:.4f} to {high:.4f})  {len(logs)} launches"
        )
    print(f"{len(bad)} failed", *bad[:3])
    if given.json:
        rows = [{"operation": NAMES[o], "bytes": b, "same": s, "launches": v} for (o, b, s), v in found.items()]
        Path(given.json).write_text(json.dumps(rows))
    sys.exit(bool(bad))


main()

"""What readings of its flight recorder cost a rank, whatever else the machine does: operations for each second of the
rank's own CPU time, with readings at 100 times the rate of `stretto top` and without, in turns (A B B A).

usage: cost.py TURNS
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time

import numpy
import stretto

READER = """
import sys, time
from stretto import _native
watch = _native.Watch(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    before, end, readings = time.process_time(), time.monotonic() + float(line), 0
    while time.monotonic() < end:
        watch.read()
        readings += 1
        time.sleep(0.01)
    print(readings, (time.process_time() - before) / max(readings, 1), flush=True)
"""
SECONDS = 0.4


def main() -> None:
    comm = stretto.init(rank=0, ranks=1, unique_id=stretto.unique_id())
    array = numpy.ones(2, "float32")
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdin and reader.stdout and reader.stdout.readline().strip() == "ready"
    # What the readings cost with the wrapper of a communicator that does nothing else is what is asked for.
    rates: dict[bool, list[float]] = {True: [], False: []}
    readings, each = [], []
    for turn in range(2 * int(sys.argv[1])):
        watched = (turn % 2 == 0) != (turn // 2 % 2 == 0)
        if watched:
            reader.stdin.write(f"{SECONDS}\n")
            reader.stdin.flush()
        begin, end, done = time.thread_time(), time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            for _ in range(200):
                comm.all_reduce(array)
            done += 200
        rates[watched].append(done / (time.thread_time() - begin))
        if watched:
            count, seconds = reader.stdout.readline().split()
            readings.append(int(count) / SECONDS)
            each.append(float(seconds))
    reader.stdin.close()
    reader.wait()
    ratios = [1 - one / other for one, other in zip(rates[True], rates[False], strict=True)]
    draws = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    rate = statistics.median(readings)
    print(
        json.dumps(
            {
                "turns": len(ratios),
                "operations_per_cpu_s_alone": round(statistics.median(rates[False])),
                "readings_per_s": round(rate, 1),
                "slower_percent_median": round(100 * statistics.median(ratios), 3),
                "slower_percent_90": [round(100 * draws[100], 3), round(100 * draws[1900], 3)],
                "slower_percent_at_1_a_second": round(100 * statistics.median(ratios) / rate, 5),
                "cpu_us_a_reading": round(1e6 * statistics.median(each), 1),
                "load_at_end": os.getloadavg()[0],
            }
        )
    )


main()

"""What a display costs the job that it watches: one job of CPU ranks, one `stretto top` on it that is stopped and
continued in turns, and the operations that the job did in each turn.

usage: turns.py RANKS COUNT TURNS SECONDS INTERVAL
"""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

JOB = """
import sys, time, numpy, stretto
comm = stretto.init()
array = numpy.ones(int(sys.argv[1]), "float32")
end = time.time() + float(sys.argv[2])
times = []
over = numpy.zeros(1, "float32")
while True:
    for _ in range(100):
        comm.all_reduce(array)
    times.append(time.time())
    over[0] = times[-1] > end
    if comm.all_reduce(over)[0] > 0:
        break
if comm.rank == 0:
    numpy.save(sys.argv[3], numpy.array(times))
"""


def start_top(job: int, interval: float) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp("stretto", ["stretto", "top", str(job), "--interval", str(interval)])

    def drain() -> None:
        while True:
            try:
                if not os.read(terminal, 65536):
                    return
            except OSError:
                return

    threading.Thread(target=drain, daemon=True).start()
    return pid


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    import numpy

    ranks, count, turns, seconds, interval = (float(one) for one in sys.argv[1:6])
    with tempfile.TemporaryDirectory() as folder:
        script, times = Path(folder) / "job.py", Path(folder) / "times.npy"
        script.write_text(JOB)
        length = turns * 2 * seconds + 6
        command = ["stretto", "run", "-n", str(int(ranks)), str(script), str(int(count)), str(length), str(times)]
        job = subprocess.Popen(command)
        time.sleep(3)
        top = start_top(job.pid, interval)
        time.sleep(2)
        before, periods = cpu_seconds(top), []
        for turn in range(int(2 * turns)):
            watched = (turn % 2 == 0) != (turn // 2 % 2 == 0)  # A B B A
            os.kill(top, signal.SIGCONT if watched else signal.SIGSTOP)
            begin = time.time()
            time.sleep(seconds)
            periods.append((watched, begin, time.time()))
        used = cpu_seconds(top) - before
        os.kill(top, signal.SIGCONT)
        os.kill(top, signal.SIGTERM)
        os.waitpid(top, 0)
        job.wait(timeout=60)
        marks = numpy.load(times)
    rates = [
        (watched, 100 * numpy.searchsorted(marks, [begin, end]).dot([-1, 1]) / (end - begin))
        for watched, begin, end in periods
    ]
    ratios = []
    for first, second in zip(rates[::2], rates[1::2], strict=True):
        watched, alone = (first, second) if first[0] else (second, first)
        ratios.append(float(watched[1] / alone[1]) - 1)
    draws = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    result = {
        "ranks": int(ranks),
        "bytes": int(count) * 4,
        "interval_s": interval,
        "turns": len(ratios),
        "seconds_a_turn": seconds,
        "operations_per_s_alone": round(statistics.median(rate for watched, rate in rates if not watched)),
        "change_percent_median": round(100 * statistics.median(ratios), 3),
        "change_percent_90": [round(100 * draws[100], 3), round(100 * draws[1900], 3)],
        "top_cpu_percent_of_a_core": round(100 * used / (seconds * turns), 3),
        "load_at_end": os.getloadavg()[0],
    }
    print(json.dumps(result))


main()

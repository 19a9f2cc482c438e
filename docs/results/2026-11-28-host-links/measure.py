"""Measures links between hosts (`stretto tune --hosts`), and all-reduces over them beside what the planner predicts.

    python docs/results/2026-11-28-host-links/measure.py --hosts 4 --ranks 4 --rate 1gbit --json rows.json

Hosts are network namespaces on this machine, whose interfaces are limited to RATE by `tc ... tbf`. Needs root, `ip` and
`tc`. Every result is verified; ring and stages take turns in one job.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "python"))

from namespaces import network

RANK = r"""
import json, os, sys, time
import numpy as np
import stretto

wanted = sys.argv[1].split(",")
turns, *sizes = (int(word) for word in sys.argv[2:])
comm = stretto.init()
for bytes in sizes:
    sent = np.full(bytes // 4, comm.rank + 1, np.float32)
    received = np.zeros_like(sent)
    comm.force("all_reduce", None)
    how = comm.explain("all_reduce", bytes)
    names = [one["algorithm"] for one in how["candidates"] if one["possible"] and one["protocol"] == "simple"]
    predicted = {one["algorithm"]: one["predicted_us"] for one in how["candidates"] if one["possible"]}
    took = {name: [] for name in names if name in wanted}
    for turn in range(turns + 1):
        for name in took:
            comm.force("all_reduce", name, "simple")
            received[:] = 0
            comm.barrier()
            began = time.perf_counter()
            comm.all_reduce(sent, out=received)
            mine = np.array([(time.perf_counter() - began) * 1e6])
            comm.force("all_reduce", None)
            slowest = float(comm.all_reduce(mine, op="max")[0])
            wrong = comm.all_reduce(np.array([np.count_nonzero(received != comm.size * (comm.size + 1) / 2)]))
            if wrong[0]:
                raise SystemExit(f"{name} of {bytes} bytes: {wrong[0]} wrong elements")
            if turn:
                took[name].append(slowest)
    if comm.rank == 0:
        row = {"bytes": bytes, "chosen": how["chosen"]["algorithm"], "us": took}
        print("ROW " + json.dumps({**row, "predicted_us": {name: predicted[name] for name in took}}), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=4, help="on each host")
    parser.add_argument("--rate", default="", help="of each interface, as tc has it (1gbit); else what the kernel does")
    parser.add_argument("--latency", default="20ms", help="what would wait in an interface for longer is dropped")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--algorithms", default="ring,stages,tree")
    parser.add_argument("--sizes", default="1048576,4194304,16777216,67108864")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    stretto = [sys.executable, "-m", "stretto"]
    with tempfile.TemporaryDirectory() as name, network(Path(name), hosts=given.hosts) as net:
        if given.rate:
            for host in net.names:
                net.shape(host, "eth0", given.rate, given.latency)
        table, script = Path(name) / "table.json", Path(name) / "rank.py"
        subprocess.run([*stretto, "tune", *net.options(), "--output", table], check=True, timeout=600)
        document = {"links": json.loads(table.read_text()), "jobs": []}
        script.write_text(RANK)
        for variables in ([], ["--env", f"STRETTO_TABLE={table}"]):
            words = [*net.options(), *variables, "-n", given.ranks, "--no-tag", script, given.algorithms, given.turns]
            command = [*stretto, "run", *words, *given.sizes.split(",")]
            done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, timeout=1200)
            rows = [json.loads(line.removeprefix("ROW ")) for line in done.stdout.splitlines() if "ROW " in line]
            document["jobs"].append({"measured_links": bool(variables), "rows": rows})
            print("with the measured links" if variables else "with the constants of loopback")
            for row in rows:
                for algorithm, took in row["us"].items():
                    best, predicted = sorted(took)[len(took) // 2], row["predicted_us"][algorithm]
                    mark = "chosen" if algorithm == row["chosen"] else ""
                    print(
                        f"{row['bytes']:>10} {algorithm:<9} {best / 1e3:9.2f} ms ({min(took) / 1e3:.2f} to "
                        f"{max(took) / 1e3:.2f}), predicted {predicted / 1e3:9.2f}: {predicted / best:.2f} {mark}"
                    )
            if done.returncode:
                raise SystemExit(done.returncode)
    if given.json:
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""net_driver in turns: our net with several settings, and plain sockets. Two processes for each setting.

    python3 turns.py NET_DRIVER [SECONDS [ROUNDS [SIZES [SETTINGS [FLOORS]]]]]

SIZES: bytes, with commas. SETTINGS: JSON, {"name": {"STRETTO_NET_THREADS": "8"}}. FLOORS: JSON, [["threads", 8],
["plain", 1]]. Prints medians: GB/s one way and both ways, and half a round trip in us. A wrong byte ends it.
"""

import json
import os
import statistics
import subprocess
import sys

DRIVER = sys.argv[1]
GIVEN = dict(enumerate(sys.argv[2:]))
BUDGET = float(GIVEN.get(0, "0.05"))  # seconds of a turn
ROUNDS = int(GIVEN.get(1, "5"))
SIZES = [int(size) for size in GIVEN.get(2, "65536,1048576,16777216").split(",")]
SETTINGS = json.loads(GIVEN.get(3, '{"default": {}}'))
FLOORS = json.loads(GIVEN.get(4, '[["threads", 8], ["plain", 1]]'))
MOST_UNDER_WAY = 256 << 20  # bytes


class Driver:
    def __init__(self, *arguments: str, env: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        everything = {**os.environ, **env}
        self.process = subprocess.Popen([DRIVER, *arguments], stdin=pipe, stdout=pipe, text=True, env=everything)

    def ask(self, line: str = "") -> dict:
        if line:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if not answer.get("ok") or answer.get("wrong", 0):
            sys.exit(f"{line}: {answer}")
        return answer


def open_all() -> tuple[dict[str, tuple[Driver, int]], list[Driver]]:
    """The ends to measure, by name, and the processes."""
    ends, drivers = {}, []
    for name, settings in SETTINGS.items():
        env = {"NCCL_SOCKET_IFNAME": "lo", **settings}
        serve = Driver("serve", "127.0.0.1", "0", env=env)
        go = Driver("go", "127.0.0.1", str(serve.ask()["port"]), env=env)
        go.ask()
        ends[name] = (go, go.ask("open net 1")["end"])
        if not drivers:
            for kind, flows in FLOORS:
                ends[f"{kind} {flows}"] = (go, go.ask(f"open {kind} {flows}")["end"])
        drivers += [serve, go]
    return ends, drivers


def turn(end: tuple[Driver, int], way: str, size: int, count: int, under_way: int) -> dict:
    return end[0].ask(f"turn {end[1]} {way} {size} {count} {under_way}")


def measure(ends: dict[str, tuple[Driver, int]], way: str, size: int) -> dict[str, float]:
    under_way = 1 if way == "pingpong" else max(1, min(8, MOST_UNDER_WAY // size))
    first = {name: turn(end, way, size, 8, under_way)["seconds"] / 8 for name, end in ends.items()}
    counts = {name: max(under_way, min(1 << 14, int(BUDGET / seconds))) for name, seconds in first.items()}
    found: dict[str, list[float]] = {name: [] for name in ends}
    for _ in range(ROUNDS):
        for name, end in ends.items():
            answer = turn(end, way, size, counts[name], under_way)
            moved = size * counts[name] * (2 if way == "both" else 1)
            rate = moved / answer["seconds"] / 1e9
            found[name].append(statistics.median(answer["halves"]) if way == "pingpong" else rate)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    ends, drivers = open_all()
    try:
        print(f"{'bytes':>10}", *[f"{name:>20}" for name in ends])
        for size in SIZES:
            rows = [measure(ends, way, size) for way in ("there", "both", "pingpong")]
            texts = [" ".join(f"{row[name]:.4g}" for row in rows) for name in ends]
            print(f"{size:>10}", *[f"{text:>20}" for text in texts], flush=True)
    finally:
        for driver in drivers:
            driver.process.kill()
            driver.process.wait()


if __name__ == "__main__":
    main()

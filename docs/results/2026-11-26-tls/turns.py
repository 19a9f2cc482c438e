"""Messages between two processes over net/tcp, in plain text and encrypted in turns.

Usage: python turns.py build/benchmarks/net_driver [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

SIZES = {"64 KB": 64 << 10, "1 MB": 1 << 20, "16 MB": 16 << 20}
BYTES_OF_A_TURN = 128 << 20
ROUND_TRIPS = {"64 KB": 400, "1 MB": 60, "16 MB": 6}


class Driver:
    def __init__(self, arguments: list[str], encrypted: bool) -> None:
        environment = dict(os.environ, STRETTO_TLS="1" if encrypted else "0", NCCL_SOCKET_IFNAME="lo")
        self.process = subprocess.Popen(
            arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> dict:
        assert self.process.stdout is not None
        got = json.loads(self.process.stdout.readline())
        if not got["ok"]:
            raise SystemExit(got["error"])
        return got

    def ask(self, line: str) -> dict:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self.answer()


def main() -> None:
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
    ends = {}
    servers = []
    for encrypted in (False, True):
        server = Driver([program, "serve", "127.0.0.1", "0", "0"], encrypted)
        servers.append(server)
        port = str(server.answer()["port"])
        client = Driver([program, "go", "127.0.0.1", port, "1"], encrypted)
        client.answer()
        ends[encrypted] = (client, client.ask("open net 1")["end"])
    rates: dict[tuple[str, str, bool], list[float]] = {}
    for _ in range(rounds + 1):
        for name, size in SIZES.items():
            for way in ("there", "both", "pingpong"):
                for encrypted, (client, end) in ends.items():
                    count = ROUND_TRIPS[name] if way == "pingpong" else BYTES_OF_A_TURN // size
                    in_flight = 1 if way == "pingpong" else 8
                    got = client.ask(f"turn {end} {way} {size} {count} {in_flight}")
                    assert got["wrong"] == 0
                    value = (
                        statistics.median(got["halves"]) if way == "pingpong" else size * count / got["seconds"] / 1e9
                    )
                    rates.setdefault((name, way, encrypted), []).append(value)
    print("| bytes | way | plain | encrypted | encrypted / plain |\n|---|---|---|---|---|")
    for name in SIZES:
        for way, unit in (("there", "GB/s"), ("both", "GB/s each way"), ("pingpong", "us, half a round trip")):
            cells = []
            for encrypted in (False, True):
                values = sorted(rates[name, way, encrypted][1:])  # the first is not counted
                quarter = len(values) // 4
                cells.append((statistics.median(values), f"{values[quarter]:.3g} to {values[-1 - quarter]:.3g}"))
            ratio = cells[1][0] / cells[0][0]
            shown = " | ".join(f"{median:.3g} ({spread})" for median, spread in cells)
            print(f"| {name} | {unit} | {shown} | {ratio:.2f} |")
    for client, _ in ends.values():
        client.process.terminate()
    for server in servers:
        server.process.terminate()


if __name__ == "__main__":
    main()

"""A driver without a library behind it, for the orchestrator's tests: it speaks the protocol and misbehaves.

The mode says how: `ok`, or one of the ways to go wrong below, from the size given by --at (in elements) on.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def answer(verb: str, words: dict[str, str], mode: str, us: float) -> dict[str, Any]:
    if verb == "prepare":
        if mode == "lose":
            return {"ok": False, "error": "lost rank 1"}
        if mode == "refuse":
            return {"ok": False, "error": "it went wrong elsewhere"}
        if mode == "unsupported":
            return {"ok": False, "unsupported": "not mine"}
        return {"ok": True, "wrong": 0, "how": {"algorithm": "fake", "protocol": "none"}}
    if verb == "measure":
        wrong = 3 if mode == "wrong" else 0
        return {"ok": True, "wrong": wrong, "batch_us": [us] * int(words["batches"])}
    if verb == "finish":
        return {"ok": True, "wrong": 0, "samples": 10, "p50": us, "p99": 2 * us, "max": 3 * us}
    return {"ok": True}


def misbehave(mode: str, rank: int) -> None:
    if mode == "crash" and rank == 1:
        print("this is the fake driver's last word", flush=True)
        os._exit(7)
    if mode == "lose" and rank == 1:
        time.sleep(0.1)
        os._exit(7)
    if mode == "refuse" and rank == 1:
        print("rank 1 says why", flush=True)
        time.sleep(600)
    if mode == "hang" and rank == 1:
        time.sleep(600)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--at", type=int, default=0)
    parser.add_argument("--us", type=float, default=10.0)
    known, _ = parser.parse_known_args()
    if known.mode == "stillborn":
        sys.exit("cannot start")
    with (
        (known.folder / f"in.{known.rank}").open() as commands,
        (known.folder / f"out.{known.rank}").open("w") as replies,
    ):
        first = {"ok": True, "rank": known.rank, "pid": os.getpid(), "implementation": "fake", "version": "1"}
        print(json.dumps(first), file=replies, flush=True)
        mode = "ok"
        for line in iter(commands.readline, ""):
            verb, *pairs = line.split()
            words = dict(pair.split("=", 1) for pair in pairs)
            if int(words.get("count", -1)) >= known.at:
                mode = known.mode
            misbehave(mode, known.rank)
            reply = "{" if mode == "garbage" else json.dumps(answer(verb, words, mode, known.us))
            print(reply, file=replies, flush=True)
            if verb == "quit":
                break
    return 0


if __name__ == "__main__":
    sys.exit(main())

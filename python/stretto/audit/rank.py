"""One rank of the audit: a process that `measurements` starts and asks over FIFOs (stretto.bench.job has the protocol).
It moves patterns through communicators, checks every element, and says what was wrong, how long it took and what it
left behind.

    python -m stretto.audit.rank --folder F --rank R --ranks N
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

import stretto
from stretto.audit import one_sided
from stretto.audit.patterns import Reply, Words, mistakes, pattern
from stretto.audit.rates import Ways

_SIZES = (8, 64, 4096, 65536 + 8, 1 << 20)
_MOST_FAILURES = 5
_LOAD_WORDS = 1 << 20  # more than a core's caches hold
_MARKS = 6
_ID_SECONDS = 60
_ROUNDS_TO_SETTLE = 50
_PR_SET_PDEATHSIG = 1
MOVING = ("all_gather", "all_to_all", "broadcast")
REDUCING = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Begun:
    """An operation that was submitted: what it is, and the arrays that its result is judged by when it has ended."""

    what: Reply
    got: Words
    wanted: Words
    before: Words


class Moves:
    """Sends and collectives of one communicator, checked."""

    def __init__(self, comm: stretto.Communicator) -> None:
        self._comm = comm
        self.failures: list[Reply] = []
        self.checked = 0

    def _judge(self, what: Reply, got: Words, wanted: Words, before: Words) -> None:
        self.checked += 1
        found = mistakes(got, wanted, before)
        if found is not None and len(self.failures) < _MOST_FAILURES:
            self.failures.append({**what, **found})

    def judge(self, begun: Iterable[Begun]) -> None:
        """What was begun and has ended since."""
        for one in begun:
            self._judge(one.what, one.got, one.wanted, one.before)

    def pair(self, source: int, target: int, bytes: int, generations: int, both: bool) -> None:
        """One direction, or both at once; the receiver's buffer keeps the generation before until the new one comes."""
        rank, peer = self._comm.rank, target if self._comm.rank == source else source
        if rank not in (source, target):
            return
        receives, sends = both or rank == target, both or rank == source
        buffer = numpy.zeros(bytes // 8, numpy.uint64)
        for generation in range(1, generations + 1):
            mine = pattern(len(buffer), rank, peer, generation)
            with stretto.group():
                if sends:
                    self._comm.send(mine, peer)
                if receives:
                    self._comm.recv(buffer, peer)
            if receives:
                wanted = pattern(len(buffer), peer, rank, generation)
                before = pattern(len(buffer), peer, rank, generation - 1)
                what = {"from": peer, "to": rank, "bytes": bytes, "generation": generation, "both": both}
                self._judge(what, buffer, wanted, before)

    def collective(self, name: str, bytes: int, generation: int, algorithm: str = "", root: int = 0) -> None:
        self.judge([self.begin(name, bytes, generation, algorithm, root)])

    def begin(
        self,
        name: str,
        bytes: int,
        generation: int,
        algorithm: str = "",
        root: int = 0,
        stream: stretto.Stream | None = None,
    ) -> Begun:
        """Without a stream and outside of a group it has ended when this returns."""
        comm, ranks, rank = self._comm, self._comm.size, self._comm.rank
        count = max(1, bytes // 8 // ranks)
        what = {"collective": name, "algorithm": algorithm, "bytes": bytes, "rank": rank, "generation": generation}

        def block(source: int, target: int, which: int) -> Words:
            return pattern(count, source, target, which)

        if name in REDUCING:
            # Sums of unsigned words wrap, so every one of them has one value whatever the order.
            whole = [pattern(count * ranks, source, 0, generation) for source in range(ranks)]
            total: Words = numpy.asarray(numpy.sum(whole, axis=0, dtype=numpy.uint64))
            if name == "all_reduce":
                result = comm.all_reduce(whole[rank].copy(), stream=stream)
                return Begun(what, result, total, whole[rank])
            part = slice(rank * count, (rank + 1) * count)
            scattered = numpy.zeros(count, numpy.uint64)
            comm.reduce_scatter(whole[rank], out=scattered, stream=stream)
            return Begun(what, scattered, total[part], numpy.zeros(count, numpy.uint64))
        out = numpy.full(count * ranks, generation - 1, numpy.uint64)
        before = out.copy()
        if name == "all_gather":
            comm.all_gather(block(rank, 0, generation), out=out, stream=stream)
            wanted = [block(source, 0, generation) for source in range(ranks)]
        elif name == "all_to_all":
            mine = numpy.concatenate([block(rank, peer, generation) for peer in range(ranks)])
            comm.all_to_all(mine, out=out, stream=stream)
            wanted = [block(source, rank, generation) for source in range(ranks)]
        else:
            wanted = [pattern(count * ranks, root, 0, generation)]
            comm.broadcast(wanted[0] if rank == root else before.copy(), root, out=out, stream=stream)
        what = {**what, "root": root} if name == "broadcast" else what
        return Begun(what, out, numpy.concatenate(wanted), before)

    def reply(self) -> Reply:
        return {"checked": self.checked, "failures": self.failures}


def mechanisms(comm: stretto.Communicator, name: str, bytes: int) -> list[tuple[str, str]]:
    """All algorithms, each by all of its protocols, that can run this here."""
    candidates = comm.explain(name, bytes, dtype="uint64")["candidates"]
    return list(dict.fromkeys((one["algorithm"], one["protocol"]) for one in candidates if one["possible"]))


class Clock:
    """Says the same on all ranks: whether rank 0 has used its time."""

    def __init__(self, comm: stretto.Communicator, seconds: float) -> None:
        self._comm, self._end = comm, time.monotonic() + seconds
        self.over = False

    def look(self) -> bool:
        flag = numpy.array([self._comm.rank == 0 and time.monotonic() > self._end], numpy.uint8)
        self.over = bool(self._comm.broadcast(flag)[0])
        return self.over


def check_pairs(comm: stretto.Communicator, seconds: float, generations: int) -> Reply:
    """Small sizes first; what the time does not hold is left out."""
    moves, clock = Moves(comm), Clock(comm, seconds)
    for size in _SIZES:
        if clock.look():
            break
        for source in range(comm.size):
            for target in range(comm.size):
                if source != target:
                    moves.pair(source, target, size, generations, both=False)
                if source < target:
                    moves.pair(source, target, size, generations, both=True)
    return {**moves.reply(), "cut_short": clock.over}


def check_collectives(
    comm: stretto.Communicator, seconds: float, generations: int, sizes: Sequence[int] = _SIZES
) -> Reply:
    """Each collective by each of its algorithms and protocols, and by the planner's choice; likewise."""
    moves, clock = Moves(comm), Clock(comm, seconds)
    for size in sizes:
        for name in (*REDUCING, *MOVING):
            if clock.look():
                break
            for algorithm, protocol in [("", ""), *mechanisms(comm, name, size)]:
                with _forced(comm, name, algorithm, protocol):
                    for generation in range(1, generations + 1):
                        how = f"{algorithm} {protocol}".strip()
                        moves.collective(name, size, generation, how, generation % comm.size)
    return {**moves.reply(), "cut_short": clock.over}


def check_streams(comm: stretto.Communicator, seconds: float, generations: int) -> Reply:
    """Collectives that follow each other on one stream, which a thread of the library carries out; likewise."""
    moves, clock = Moves(comm), Clock(comm, seconds)
    with stretto.Stream() as stream:
        for size in _SIZES:
            if clock.look():
                break
            for generation in range(1, generations + 1):  # not all at once, as each keeps its arrays until it is judged
                begun = [
                    moves.begin(name, size, generation, root=generation % comm.size, stream=stream)
                    for name in (*REDUCING, *MOVING)
                ]
                stream.synchronize()
                moves.judge(begun)
    return {**moves.reply(), "cut_short": clock.over}


@contextlib.contextmanager
def _forced(comm: stretto.Communicator, name: str, algorithm: str, protocol: str) -> Iterator[None]:
    if not algorithm:
        yield
        return
    comm.force(name, algorithm, protocol)
    try:
        yield
    finally:
        comm.force(name, None)


def _copy_until(done: threading.Event) -> None:
    source, target = numpy.ones(_LOAD_WORDS, numpy.uint64), numpy.empty(_LOAD_WORDS, numpy.uint64)
    while not done.is_set():
        numpy.copyto(target, source)  # which lets the interpreter go on


@contextlib.contextmanager
def loaded() -> Iterator[None]:
    """A thread beside the rank's takes its core and fills its caches meanwhile."""
    done = threading.Event()
    thread = threading.Thread(target=_copy_until, args=(done,))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def check_loaded(comm: stretto.Communicator, seconds: float, generations: int) -> Reply:
    """Pairs first, then collectives, while all cores are busy."""
    with loaded():
        pairs = check_pairs(comm, seconds / 2, generations)
        collectives = check_collectives(comm, seconds / 2, 1, (64, 65536 + 8))
    failures = [*pairs["failures"], *collectives["failures"]]
    cut_short = pairs["cut_short"] or collectives["cut_short"]
    return {"checked": pairs["checked"] + collectives["checked"], "failures": failures, "cut_short": cut_short}


def storm(comm: stretto.Communicator, seconds: float, seed: int) -> Reply:
    """Random operations of random sizes, the same on all ranks, until rank 0 says that it is time."""
    moves, draw, began = Moves(comm), random.Random(seed), time.monotonic()
    over, generation = numpy.zeros(1, numpy.uint64), 0
    while True:
        for _ in range(20):
            generation += 1
            size = 1 << draw.randrange(3, 19)
            if draw.random() < 0.3 and comm.size > 1:
                source, target = draw.sample(range(comm.size), 2)
                moves.pair(source, target, size, 1, draw.random() < 0.5)
            else:
                moves.collective(draw.choice((*REDUCING, *MOVING)), size, generation, root=draw.randrange(comm.size))
        over[0] = comm.rank == 0 and time.monotonic() - began > seconds
        if comm.all_reduce(over)[0]:
            return {**moves.reply(), "operations": generation}


def sizes_at_once(comm: stretto.Communicator, seconds: float) -> Reply:
    """Each collective of every size from 8 B to 1 MB, submitted together as one group."""
    moves, clock, generation = Moves(comm), Clock(comm, seconds), 0
    while not clock.over:
        generation += 1
        for name in (*REDUCING, *MOVING):
            if generation > 1 and clock.look():
                break
            with stretto.group():
                # Each second one ends in the middle of a line.
                begun = [moves.begin(name, (8 << step) + 8 * (step % 2), generation) for step in range(18)]
            moves.judge(begun)
    return moves.reply()


def communicators_at_once(comms: list[stretto.Communicator], clock: Clock) -> Reply:
    """Operations of all of them under way together, each on a stream of its own."""
    with contextlib.ExitStack() as streams:
        pairs = [(Moves(comm), streams.enter_context(stretto.Stream())) for comm in comms]
        generation = 0
        while generation == 0 or not clock.look():
            generation += 1
            begun = [
                [
                    moves.begin(name, 8 << (number + step) % 16, generation, stream=stream)
                    for step, name in enumerate((*REDUCING, *MOVING))
                ]
                for number, (moves, stream) in enumerate(pairs)
            ]
            for (moves, stream), own in zip(pairs, begun, strict=True):
                stream.synchronize()
                moves.judge(own)
    failures = [failure for moves, _ in pairs for failure in moves.failures]
    return {"checked": sum(moves.checked for moves, _ in pairs), "failures": failures[:_MOST_FAILURES]}


def as_threads(ranks: int, body: Callable[[stretto.Communicator], Reply]) -> Reply:
    """The same by rank threads of this process; their replies added up."""
    replies = stretto.threads(ranks, body)
    failures = [failure for reply in replies for failure in reply["failures"]]
    cut_short = any(reply.get("cut_short") for reply in replies)
    checked = sum(reply["checked"] for reply in replies)
    return {"checked": checked, "failures": failures[:_MOST_FAILURES], "cut_short": cut_short}


def holdings() -> dict[str, int]:
    """What this process has of the kernel now."""
    gc.collect()
    # Of the process alone: pages of files come and go as the kernel likes.
    (own,) = re.findall(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return {
        "bytes": int(own) << 10,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "mappings": Path("/proc/self/maps").read_bytes().count(b"\n"),
    }


def activity(comm: stretto.Communicator) -> dict[str, int]:
    """What the library and the kernel have counted of this rank until now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    counted = comm.counters()
    own = {name: counted[name] for name in ("operations", "allocations", "slow_waits", "sleeps", "wakeups")}
    return {**own, "switches": used.ru_nvcsw, "interruptions": used.ru_nivcsw, "faults": used.ru_minflt}


class Steady:
    """Operations that a job makes again and again, on arrays that it keeps: nothing new is needed for them."""

    def __init__(self, comm: stretto.Communicator) -> None:
        self._comm = comm
        self._arrays = [
            (numpy.zeros(words, numpy.uint64), numpy.zeros(words, numpy.uint64)) for words in (1, 512, 8192)
        ]
        self._gathered = numpy.zeros(512 * comm.size, numpy.uint64)
        self._next, self._last = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def round(self) -> int:
        """Returns how many operations it has made, of which a group is one."""
        comm = self._comm
        for array, out in self._arrays:
            comm.all_reduce(array, out=out)
        (_, middle), (_, large) = self._arrays[1:]
        comm.all_gather(middle, out=self._gathered)
        comm.broadcast(large)
        with stretto.group():
            comm.send(middle, self._next)
            comm.recv(self._arrays[1][0], self._last)
        return len(self._arrays) + 3


class Rank:
    """Answers commands with the communicator of all ranks, and with others that it makes."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.comm = stretto.init(rank=rank, ranks=ranks, unique_id=_learn(folder, rank))

    def make(self, ranks: int) -> tuple[stretto.Communicator | None, float]:
        """A communicator of the first `ranks` ranks, and the seconds that it took; None for the others."""
        id = self._name()
        if self.rank >= ranks:
            return None, 0.0
        began = time.monotonic()
        made = stretto.init(rank=self.rank, ranks=ranks, unique_id=id)
        return made, time.monotonic() - began

    def _name(self) -> bytes:
        """Of a new communicator, which rank 0 tells the others."""
        words = numpy.zeros(128, numpy.uint8)
        if self.rank == 0:
            words[:] = numpy.frombuffer(stretto.unique_id(), numpy.uint8)
        self.comm.broadcast(words)
        self.comm.barrier()
        return words.tobytes()

    def _window(self, made: bool, bytes: int = one_sided.BYTES) -> one_sided.Windows:
        return one_sided.Windows(self.rank, self.ranks, self._name(), made, bytes)

    def _one_sided(self, verb: str, generations: int, seconds: float) -> Reply:
        def agree(well: bool) -> bool:
            return bool(self.comm.all_reduce(numpy.array([well], numpy.uint8), "min")[0])

        check = {"order": one_sided.check_order, "windows": one_sided.check_windows}[verb]
        return check(self._window, agree, Clock(self.comm, seconds).look, generations)

    def answer(self, verb: str, numbers: dict[str, float]) -> Reply:
        generations = int(numbers.get("generations", 2))
        if verb == "pairs":
            return check_pairs(self.comm, numbers["for"], generations)
        if verb == "collectives":
            return check_collectives(self.comm, numbers["for"], generations)
        if verb in ("order", "windows"):
            return self._one_sided(verb, generations, numbers["for"])
        if verb in ("loaded", "streams"):
            check = check_loaded if verb == "loaded" else check_streams
            return check(self.comm, numbers["for"], generations)
        if verb == "storm":
            return storm(self.comm, numbers["for"], int(numbers["seed"]))
        if verb == "sizes":
            return sizes_at_once(self.comm, numbers["for"])
        if verb in ("threads", "oversubscribed"):
            return self._alone(verb, int(numbers["ranks"]), numbers["for"])
        commands: dict[str, Callable[..., Reply]] = {
            "inits": self._inits,
            "cycles": self._cycles,
            "open": self._open,
            "rates": self._rates,
            "crowd": self._crowd,
            "steady": self._steady,
        }
        return commands[verb](numbers)

    def _alone(self, verb: str, ranks: int, seconds: float) -> Reply:
        """Rank 0 by itself; the others sleep."""
        if self.rank:
            return {"checked": 0, "failures": []}
        if verb == "threads":
            return as_threads(ranks, lambda comm: check_collectives(comm, seconds, 2, (64, 65536 + 8)))
        return as_threads(ranks, lambda comm: storm(comm, seconds, 7))

    def _inits(self, numbers: dict[str, float]) -> Reply:
        """Communicators one after the other: how long each took, by phase, in milliseconds."""
        found: list[dict[str, float]] = []
        clock = Clock(self.comm, numbers["for"])
        for _ in range(int(numbers["count"])):
            if clock.look():
                break
            made, seconds = self.make(int(numbers["ranks"]))
            if made is not None:
                with made:
                    counted = made.counters()
                    found.append(
                        {
                            "wall": seconds * 1e3,
                            "bootstrap": counted["init_bootstrap_ns"] / 1e6,
                            "connect": counted["init_connect_ns"] / 1e6,
                            "window_bytes": counted["window_bytes"],
                        }
                    )
            self.comm.barrier()
        return {"inits": found}

    def _cycles(self, numbers: dict[str, float]) -> Reply:
        """Makes, uses and frees communicators; what the process has after some of them, more, and all."""
        count, marks, clock = int(numbers["count"]), [], Clock(self.comm, numbers["for"])
        array = numpy.ones(1024, numpy.uint64)
        for cycle in range(1, count + 1):
            made, _ = self.make(self.ranks)
            assert made is not None
            with made:
                made.all_reduce(array)
            if cycle % max(1, count // _MARKS) == 0:
                marks.append({"communicators": cycle, **holdings()})
                if len(marks) > 2 and clock.look():
                    break
        return {"marks": marks}

    def _open(self, numbers: dict[str, float]) -> Reply:
        """Many communicators at once, all used and checked: what each of them takes."""
        count, before, made = int(numbers["count"]), holdings(), []
        moves = Reply(checked=0, failures=[])
        for _ in range(count):
            one, _ = self.make(self.ranks)
            assert one is not None
            made.append(one)
        for one in made:
            checking = Moves(one)
            checking.collective("all_reduce", 65536, 1)
            checking.collective("all_gather", 65536, 1)
            moves["checked"] += checking.checked
            moves["failures"] += checking.failures
        after, counted = holdings(), made[0].counters()
        for one in made:
            one.close()
        each = {name: (after[name] - before[name]) / count for name in before}
        return {**moves, "communicators": count, "each": each, "window_bytes": counted["window_bytes"]}

    def _crowd(self, numbers: dict[str, float]) -> Reply:
        """Many communicators, all of them in use together."""
        with contextlib.ExitStack() as opened:
            comms = []
            for _ in range(int(numbers["count"])):
                made, _ = self.make(self.ranks)
                assert made is not None
                comms.append(opened.enter_context(made))
            return communicators_at_once(comms, Clock(self.comm, numbers["for"]))

    def _steady(self, numbers: dict[str, float]) -> Reply:
        """What operations take of the kernel and of the library once all has been made that they need."""
        steady, made, clock = Steady(self.comm), 0, Clock(self.comm, numbers["for"])
        settled = sum(steady.round() for _ in range(_ROUNDS_TO_SETTLE))
        held, before = holdings(), activity(self.comm)
        while made < numbers["count"] and not (made % 600 == 0 and clock.look()):
            made += steady.round()
        after, holds = activity(self.comm), holdings()
        grown = {name: holds[name] - held[name] for name in held}
        counted = {name: after[name] - before[name] for name in before}
        return {"settled": settled, "calls": made, "grown": grown, "counted": counted}

    def _rates(self, numbers: dict[str, float]) -> Reply:
        """Large messages of each pair, alone, by each way, in turns with a copy that does without the library."""
        bytes = int(numbers["bytes"])
        ways = Ways(self.comm, lambda made: self._window(made, bytes), bytes)
        found = ways.measure(int(numbers["count"]), Clock(self.comm, numbers["for"]).look)
        ways.close()
        return found


def _learn(folder: Path, rank: int) -> bytes:
    """The communicator's name: rank 0 makes it and leaves it in the job's folder."""
    path = folder / "id"
    if rank == 0:
        made = stretto.unique_id()
        draft = folder / "id.draft"
        draft.write_bytes(made)
        draft.rename(path)
        return made
    deadline = time.monotonic() + _ID_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 has made no {path}")
        time.sleep(0.005)
    return path.read_bytes()


def serve(folder: Path, rank: int, ranks: int) -> int:
    with (folder / f"in.{rank}").open() as commands, (folder / f"out.{rank}").open("w") as answers:

        def say(reply: Reply) -> None:
            answers.write(json.dumps(reply) + "\n")
            answers.flush()

        one = Rank(folder, rank, ranks)
        say({"ok": True, "rank": rank, "pid": os.getpid(), "version": stretto.__version__})
        for line in commands:
            verb, *words = line.split()
            numbers = {name: float(value) for name, _, value in (word.partition("=") for word in words)}
            # As in the native drivers: the last resort against a rank that nobody is left to end.
            signal.alarm(int(numbers.get("seconds", 0)))
            if verb == "quit":
                one.comm.close()
                say({"ok": True})
                return 0
            try:
                say({"ok": True, **one.answer(verb, numbers)})
            except stretto.StrettoError as failure:
                say({"ok": False, "error": str(failure)})
                return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    given = parser.parse_args()
    # Whatever ends the audit ends its ranks, those that hang in an operation among them.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= given.ranks:
        os.sched_setaffinity(0, {cores[given.rank]})
    return serve(given.folder, given.rank, given.ranks)


if __name__ == "__main__":
    sys.exit(main())

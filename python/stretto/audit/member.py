"""One host of an audit of several: it does what it is asked for by lines of JSON, and answers each by one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stretto.audit.echo import Echo, Unreachable, try_out
from stretto.bench.drivers import Missing, find_driver
from stretto.by_lines import Answer, Command, Line
from stretto.interfaces import USUAL, addresses, interface_of, matching
from stretto.p2p.driver import Driver, Failed
from stretto.p2p.measure import FLOOR, SUBJECT, Plan, opened, sweep

# What a launcher told this process, and not those that it starts.
_OF_LAUNCHERS = (
    *("STRETTO_RANK", "STRETTO_RANKS", "STRETTO_LOCAL_RANKS", "STRETTO_UNIQUE_ID", "STRETTO_RUN_LOG"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
)
_OF_LAUNCHERS_PREFIXES = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "TORCHELASTIC_")
_START_SECONDS = 60.0
_SMALL = Plan(8, 8, rounds=5, budget_ms=20, floor=(1,), ways=("pingpong",))
_LARGE = Plan(4 << 20, 4 << 20, rounds=5, budget_ms=40, in_flight=2, floor=(1,), ways=("there",))


def forget_launcher() -> None:
    """What is audited is the host, as any job would find it."""
    for name in list(os.environ):
        if name in _OF_LAUNCHERS or name.startswith(_OF_LAUNCHERS_PREFIXES):
            del os.environ[name]


class Member:
    """`doing`: is told of each check that begins."""

    def __init__(self, doing: Callable[[str], None] = lambda text: None) -> None:
        self._doing = doing
        self._echoes: list[Echo] = []
        self._server: Driver | None = None

    def obey(self, command: Command) -> Answer:
        """The answer; {"error"} where there is none."""
        does: dict[str, Callable[[Command], Answer]] = {
            "look": self._look,
            "listen": self._listen,
            "reach": self._reach,
            "serve": self._serve,
            "measure": self._measure,
        }
        try:
            return does[command["do"]](command)
        except (OSError, Missing, Failed) as problem:
            return {"error": str(problem) or type(problem).__name__}

    def close(self) -> None:
        for echo in self._echoes:
            echo.close()
        self._rest()

    def _rest(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _look(self, command: Command) -> Answer:
        """The audit of this host."""
        from stretto.audit.context import LEVELS, Context
        from stretto.audit.run import run
        from stretto.audit.table import of_one_host

        def paths(name: str) -> tuple[Path, ...]:
            return tuple(Path(text) for text in command[name])

        library = Path(command["library"]) if command["library"] else None
        context = Context(
            ranks=command["ranks"] or usual_ranks(),
            level=LEVELS[command["level"]],
            more_pythons=paths("pythons"),
            programs=paths("programs"),
            library=library,
        )
        return {"document": run(context, of_one_host(command["only"], command["skip"]), self._doing)}

    def _listen(self, _: Command) -> Answer:
        """Where this host may be reached, by the interfaces that its ranks take."""
        found = list(addresses())
        names = matching(os.environ.get("NCCL_SOCKET_IFNAME") or USUAL, [name for name, _ in found])
        places = []
        for name, address in found:
            if name in names and not address.startswith("fe80:"):
                self._echoes.append(Echo(address))
                places.append({"interface": name, "address": address, "port": self._echoes[-1].port})
        if not places:
            wanted = os.environ.get("NCCL_SOCKET_IFNAME") or USUAL
            listed = ", ".join(f"{name} {address}" for name, address in found) or "none"
            return {"error": f"no address of an interface that NCCL_SOCKET_IFNAME={wanted} names; it has {listed}"}
        return {"places": places}

    def _reach(self, command: Command) -> Answer:
        """Each other host, at the first of its addresses that answers."""
        return {"lines": {name: self._reach_one(places) for name, places in command["others"].items()}}

    def _reach_one(self, places: list[dict[str, Any]]) -> Answer:
        problems = []
        for place in places:
            try:
                line = try_out(place["address"], place["port"])
            except Unreachable as problem:
                problems.append(f"{place['address']}: {problem}")
                continue
            own = interface_of(line.interface_address) or ""
            return {**dataclasses.asdict(line), "interface": own, "address": place["address"]}
        return {"error": "; ".join(problems)}

    def _serve(self, command: Command) -> Answer:
        self._rest()
        self._server = Driver("net_driver", [str(find_driver("net_driver")), "serve", command["address"], "0"])
        return {"port": int(self._server.answer(_START_SECONDS)["port"])}

    def _measure(self, command: Command) -> Answer:
        """How fast messages are to where another host serves: Stretto's net and a plain socket in turns."""
        words = [str(find_driver("net_driver")), "go", command["address"], str(command["port"])]
        with contextlib.closing(Driver("net_driver", words)) as driver:
            net = driver.answer(_START_SECONDS)["net"]
            implementations = opened(driver, _LARGE)
            rows = [
                row for plan in (_SMALL, _LARGE) for found in sweep(implementations, plan, _quietly) for row in found
            ]
        return {"net": net, "rows": [{**row, "implementation": _short(row["implementation"])} for row in rows]}


def _quietly(text: str) -> None:
    """Whoever asked sees how far it is."""


def _short(name: str) -> str:
    return FLOOR if name.startswith(FLOOR) else SUBJECT


def usual_ranks() -> int:
    return min(4, max(2, len(os.sched_getaffinity(0))))


def main() -> int:
    from stretto.bench.job import terminable

    line = Line()
    forget_launcher()
    member = Member(lambda check: line.say({"doing": check}))
    with terminable(), contextlib.closing(member):
        for command in line.commands():
            line.say(member.obey(command))
    return 0


if __name__ == "__main__":
    sys.exit(main())

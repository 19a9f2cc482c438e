"""An audit of several hosts: each is audited by itself, all at once; then what lies between them is measured, pair by
pair; and the audits are compared with each other (schema "stretto.audit-hosts/1").
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from stretto.audit import compare
from stretto.audit.context import Context, Level
from stretto.audit.crew import Crew
from stretto.audit.finding import Check, from_document
from stretto.audit.network import Network, Port, Way, pairs_of
from stretto.audit.run import Document, look, worst
from stretto.audit.table import checks as table_of
from stretto.by_lines import Answer, Command
from stretto.p2p.measure import FLOOR, SUBJECT

SCHEMA = "stretto.audit-hosts/1"
# Beyond what an audit gives itself: programs that it waits for may take their own time on a busy host.
_LOOK_SECONDS = 240.0
_LISTEN_SECONDS = 30.0
_REACH_SECONDS = 30.0  # and for each other host
_MEASURE_SECONDS = 120.0


def audit(crew: Crew, ask: Command, checks: list[Check], level: Level, step: Callable[[str], None]) -> Document:
    """`ask`: what each host is to look at (Member); `checks`: those of the network. `step` is told what is done."""
    began = time.monotonic()
    step(f"auditing {len(crew.names)} hosts")
    answers = crew.ask({name: {"do": "look", **ask} for name in crew.names}, level.seconds + _LOOK_SECONDS)
    audits = {name: answers[name]["document"] for name in crew.names if "document" in answers.get(name, {})}
    lost = {name: str(answer["error"]) for name, answer in answers.items() if "error" in answer}
    network = _gather(crew, audits, lost, step) if checks else Network(tuple(crew.names), {**lost, **crew.gone})
    context = Context(level=level, environment={}, network=network)
    # Whatever was asked for, a host that is missing is said.
    judged = checks or table_of(["network.hosts"])
    findings = [finding for one in judged for finding in look(one, context)]
    compared = compare.compare(list(audits.items()), machines=True) if len(audits) > 1 else compare.Comparison()
    found = [*findings, *(from_document(one) for audit in audits.values() for one in audit["findings"])]
    return {
        "schema": SCHEMA,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "level": level.name,
        "seconds": round(time.monotonic() - began, 1),
        "verdict": worst(found).word,
        "hosts": [{"name": name, "audit": audits.get(name), "lost": network.lost.get(name, "")} for name in crew.names],
        "findings": [finding.document() for finding in findings],
        "network": [dataclasses.asdict(way) for way in network.ways],
        "differences": {"lines": compared.lines, "differences": compared.differences},
    }


def _gather(crew: Crew, audits: Mapping[str, Document], lost: dict[str, str], step: Callable[[str], None]) -> Network:
    step("connecting the hosts")
    listening = crew.ask({name: {"do": "listen"} for name in crew.names if name not in lost}, _LISTEN_SECONDS)
    lost = lost | {name: str(answer["error"]) for name, answer in listening.items() if "error" in answer}
    places = {name: listening[name]["places"] for name in crew.names if "places" in listening.get(name, {})}
    others = {
        name: {"do": "reach", "others": {other: places[other] for other in places if other != name}} for name in places
    }
    lines = crew.ask(others, _REACH_SECONDS * len(crew.names))
    ways = {
        (source, target): _way(source, target, line)
        for source in places
        for target, line in lines.get(source, {}).get("lines", {}).items()
    }
    for pair in pairs_of(list(places)):
        step(f"measuring {' and '.join(pair)}")
        for source, target in (pair, pair[::-1]):
            way = ways.get((source, target))
            if way is not None and not way.problem and way.large:
                ways[source, target] = _measured(crew, way)
    facts = {name: audit["facts"] for name, audit in audits.items() if audit["facts"]}
    ranges = {name: (int(one["ports"][0]), int(one["ports"][1])) for name, one in facts.items()}
    return Network(tuple(crew.names), {**lost, **crew.gone}, tuple(ways.values()), _ports(ways, facts), ranges)


def _way(source: str, target: str, line: Answer) -> Way:
    if "error" in line:
        return Way(source, target, problem=str(line["error"]))
    names = ("interface", "address", "mtu", "large", "offset_us", "error_us")
    return Way(source, target, **{name: line[name] for name in names})


def _measured(crew: Crew, way: Way) -> Way:
    """With messages of Stretto's net and of a plain socket. What seems slow is measured three times."""
    found = _measured_once(crew, way)
    for _ in range(2):
        if found.gbps is None or not found.seems_slow:
            break
        again = _measured_once(crew, way)
        found = found.best_of(again) if again.gbps is not None else again
    return found


def _measured_once(crew: Crew, way: Way) -> Way:
    served = crew.ask({way.target: {"do": "serve", "address": way.address}}, _MEASURE_SECONDS).get(way.target)
    if served is None or "error" in served:
        return _without(crew, way, served)
    go = {"do": "measure", "address": way.address, "port": served["port"]}
    answer = crew.ask({way.source: go}, _MEASURE_SECONDS).get(way.source)
    if answer is None or "error" in answer:
        return _without(crew, way, answer)
    rows: dict[tuple[str, str], Any] = {(row["implementation"], row["way"]): row for row in answer["rows"]}
    return dataclasses.replace(
        way,
        gbps=rows[SUBJECT, "there"]["gbps_best"],
        sockets_gbps=rows[FLOOR, "there"]["gbps_best"],
        half_us=rows[SUBJECT, "pingpong"]["us_best"],
        sockets_half_us=rows[FLOOR, "pingpong"]["us_best"],
        small_noise=_noise(rows, "us_best"),
        large_noise=_noise(rows, "gbps_best"),
        wrong=sum(int(row["wrong"]) for row in rows.values()),
    )


def _noise(rows: Mapping[tuple[str, str], Any], best: str) -> float:
    """How many times worse than the best turn the usual one was, of the rows that have such a measure."""
    usual = best.replace("best", "median")
    quotients = [row[usual] / max(1e-9, row[best]) for row in rows.values() if best in row]
    return float(max(max(one, 1 / max(1e-9, one)) for one in quotients))


def _without(crew: Crew, way: Way, answer: Answer | None) -> Way:
    """Of a host that is lost another check tells."""
    if answer is None and (way.source in crew.gone or way.target in crew.gone):
        return way
    return dataclasses.replace(way, unmeasured="no answer" if answer is None else str(answer["error"]))


def _ports(ways: Mapping[tuple[str, str], Way], facts: Mapping[str, Document]) -> dict[str, Port]:
    """By which interface each host reaches the others."""
    found: dict[str, Port] = {}
    for (source, _), way in ways.items():
        nics = {nic["name"]: nic for nic in facts.get(source, {}).get("nics", ())}
        if way.interface in nics:
            nic = nics[way.interface]
            found[source] = Port(way.interface, int(nic["mtu"]), nic["speed"])
    return found

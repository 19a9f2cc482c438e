"""`stretto tune --hosts`: measures the links between hosts, and writes them into the planner's table on each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stretto.cli.crew import Agents, agents
from stretto.cli.output import console, emit, stop, table
from stretto.cli.reach import Reach
from stretto.cli.working import Working

# A pair of hosts takes a few seconds; a quarter of an hour at 1 Mbit/s, where a message of 1 MB takes 8 s.
_MEET_SECONDS = 30.0
_SECONDS_OF_A_PAIR = 1800.0
_WRITE_SECONDS = 30.0
_MOST_TOGETHER = 4  # ranks of a host that send at once


def _ask(crew: Agents, commands: dict[str, dict[str, Any]], seconds: float) -> dict[str, dict[str, Any]]:
    """What all of them answer. Ends the command with the reason of the first that does not."""
    answers = crew.ask(commands, seconds, all_or_none=True)
    problems = {name: crew.gone.get(name) or answers.get(name, {}).get("error") for name in commands}
    for name, problem in problems.items():
        if problem is not None:
            stop(f"tune: {name}: {problem}", 1)
    return answers


def _measured(crew: Agents, quick: bool) -> list[dict[str, Any]]:
    """The pairs of hosts, by their names."""
    from stretto.tuning.host_links import neighbours

    names = crew.names
    met = _ask(crew, {name: {"do": "meet", "makes": name == names[0]} for name in names}, _MEET_SECONDS)
    width = min(_MOST_TOGETHER, *(answer["cores"] for answer in met.values()))
    common = {"do": "measure", "ids": met[names[0]]["ids"], "hosts": len(names), "width": width, "quick": quick}
    seconds = _SECONDS_OF_A_PAIR * len(neighbours(len(names)))
    answers = _ask(crew, {name: {**common, "host": host} for host, name in enumerate(names)}, seconds)
    pairs = [pair for name in names for pair in answers[name]["pairs"]]
    return [{**pair, "from": names[pair["from"]], "to": names[pair["to"]]} for pair in pairs]


def _show(pairs: list[dict[str, Any]], links: dict[str, float], path: Path, names: list[str]) -> None:
    columns = {
        "hop_us": "message of 8 bytes, \u00b5s",
        "message_us": "each further chunk, \u00b5s",
        "bytes_per_us": "one link, GB/s",
        "host_bytes_per_us": "all links, GB/s",
    }
    rows = table("from", "to", *columns.values(), right=(2, 3, 4, 5))
    for pair in [*pairs, {"from": "the slowest", "to": "", **links}] if len(pairs) > 1 else pairs:
        numbers = [pair[name] / (1000 if name.endswith("per_us") else 1) for name in columns]
        rows.add_row(pair["from"], pair["to"], *(f"{number:.3g}" for number in numbers))
    console.print(rows)
    console.print(f"Written to {path} here and on {', '.join(names)}. Use it:", soft_wrap=True)
    console.print(f"export STRETTO_TABLE={path}", soft_wrap=True)


def tune_links(reach: Reach, quick: bool, output: Path | None, json: str | None) -> None:
    """Writes the table at `output`, here and at the same path on each host."""
    from stretto.errors import StrettoError
    from stretto.tuning import table as tables
    from stretto.tuning.host_links import slowest

    path = (output or tables.default_path_of_hosts()).absolute()
    try:
        before = tables.read(path)
    except StrettoError as error:
        stop(f"tune: {error}", 1)
    with Working("reaching the hosts") as working, agents("tune", "stretto.tuning.host_links", reach) as crew:
        if len(crew.names) < 2:
            stop(f"tune: --hosts {reach.hosts}: there is no link between fewer than two hosts")
        crew.wait_begun()
        for name, why in crew.gone.items():
            stop(f"tune: {name}: {why}", 1)
        working.doing = "measuring the links"
        pairs = _measured(crew, quick)
        links = slowest(pairs)
        document = tables.with_host_links(before, links, {"hosts": crew.names, "pairs": pairs})
        working.doing = "writing the table"
        command = {"do": "write", "path": str(path), "document": document}
        _ask(crew, dict.fromkeys(crew.names, command), _WRITE_SECONDS)
    try:
        tables.write(path, document)
    except OSError as error:
        stop(f"tune: cannot write {path}: {error.strerror}", 1)
    emit(document, json, lambda: _show(pairs, links, path, crew.names))

"""The planner's table as a file: JSON "stretto.table/1", whose words are in src/planner/table.hpp."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import stretto
from stretto.drafts import drafted
from stretto.errors import InvalidArgument

SCHEMA = "stretto.table/1"


def default_path() -> Path:
    """~/.cache/stretto/table-HOST.json, or under $XDG_CACHE_HOME."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "stretto" / f"table-{platform.node() or 'host'}.json"


def default_path_of_hosts() -> Path:
    """The same for a table that several hosts share."""
    return default_path().with_name("table-hosts.json")


def entry(
    collective: str,
    ranks: int,
    machine: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    reduction: str | None = None,
) -> dict[str, Any]:
    """One case and its rows; `machine` is that of an explanation. `reduction`: on GPUs, of what reduces."""
    keys = ("gpu", "links", "version") if "gpu" in machine else ("cores", "reach")
    return {
        "collective": collective,
        "ranks": ranks,
        **{key: machine[key] for key in keys},
        "same_process": machine["same_process"],
        **({"reduction": reduction} if reduction else {}),
        "rows": list(rows),
    }


def _case(one: dict[str, Any]) -> tuple[object, ...]:
    shared = (one["collective"], one["ranks"], one["same_process"])
    if "gpu" in one:
        return (*shared, one["gpu"], one["links"], one["version"], one.get("reduction"))
    # With a core for every rank, further cores make no difference to the library.
    return (*shared, min(one["cores"], one["ranks"]), one["reach"])


def read(path: Path) -> dict[str, Any]:
    """An existing table; an empty one if there is no file. Raises `InvalidArgument` for anything else."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} is there and is no table: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InvalidArgument(f"{path} is there and is no {SCHEMA}: it will not be overwritten")
    return document


def merge(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Old entries of other cases, and all new ones."""
    cases = {_case(one) for one in new}
    return [one for one in old if _case(one) not in cases] + new


def host_facts() -> dict[str, Any]:
    """What people may want to know of the machine that CPU ranks were measured on."""
    facts = stretto.topology()
    known = {name: facts[name] for name in ("hostname", "processor", "usable_cores")}
    return {**known, "version": stretto.__version__}


def gpu_facts(machine: dict[str, Any]) -> dict[str, Any]:
    """The same of GPUs, from an explanation; no host's name, for such tables are shipped."""
    return {"gpu": machine["gpu"], "links": machine["links"], "driver": _driver(), "version": machine["version"]}


def _driver() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"\b\d{3,}(\.\d+)+\b", Path("/proc/driver/nvidia/version").read_text())
        if found:
            return found[0]
    return "unknown"


def with_entries(before: dict[str, Any], new: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """A table with these entries, and with what it had of other cases. `facts`: of where they were measured."""
    return {**before, **_head(facts), "entries": merge(before.get("entries", []), new)}


def with_host_links(before: dict[str, Any], links: dict[str, float], facts: dict[str, Any]) -> dict[str, Any]:
    """A table with these links between hosts, and with the entries that it had. Without any, the shipped ones hold."""
    return {**_head({**before.get("machine", {}), **facts}), "between_hosts": links, **_entries(before)}


def _entries(before: dict[str, Any]) -> dict[str, Any]:
    return {"entries": before["entries"]} if "entries" in before else {}


def _head(facts: dict[str, Any]) -> dict[str, Any]:
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return {"schema": SCHEMA, "machine": {**facts, "date": date}}


def write(path: Path, table: dict[str, Any]) -> None:
    """Replaces the file as a whole, so that no reader sees half of it. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with drafted(path) as draft:
        draft.write_text(json.dumps(table, indent=1) + "\n")

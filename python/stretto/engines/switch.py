"""Whether an engine is one that its plugin was written for, and what its deterministic mode asks of this library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import metadata

from stretto_engines import say

from stretto.engines.contract import Use, misfits


def served(engine: str, package: str, versions: tuple[str, ...], uses: Iterable[Use]) -> bool:
    """Whether the installed version is one that the plugin was written for, with all that it relies on."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    if not any(version == one or version.startswith(f"{one}.") for one in versions):
        say(
            engine, f"{package} {version} is not served, {' and '.join(versions)} is: {engine} keeps its own all-reduce"
        )
        return False
    problem = misfit(f"{package} {version}", uses)
    if problem:
        say(engine, f"{problem}: {engine} keeps its own all-reduce")
    return not problem


def misfit(engine: str, uses: Iterable[Use]) -> str:
    """Why the installed engine is not one that a part of the plugin can rely on; nothing where it is."""
    problems = misfits(uses)
    more = f", and {len(problems) - 1} more" * (len(problems) > 1)
    return f"{engine} is not as expected ({problems[0]}{more})" if problems else ""


def stay_deterministic(variable: str) -> None:
    """An engine's mode that wants the same bits for every batch gets rank-order reduction from every algorithm."""
    if os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off"):
        os.environ.setdefault("STRETTO_DETERMINISTIC", "1")

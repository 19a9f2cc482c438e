"""Whether a plugin is on. Engines load every installed plugin in every process, so what is off costs a look into the
environment and says nothing; what was asked for and cannot be says why in one line, and the engine goes on without.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import metadata

from stretto.engines.contract import Use, misfits

_said: set[str] = set()


def say(engine: str, text: str) -> None:
    """One line on stderr, once in each process."""
    if text not in _said:
        _said.add(text)
        print(f"stretto: {engine}: {text}", file=sys.stderr, flush=True)


def asked_for(engine: str, variable: str) -> bool:
    """By its variable: 1 is on, 0, nothing or no variable is off. Anything else is off, and is said."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        say(engine, f"{variable}={value} is neither 0 nor 1: {engine} keeps its own all-reduce")
    return value == "1"


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
    problems = misfits(uses)
    if problems:
        more = f", and {len(problems) - 1} more" * (len(problems) > 1)
        say(engine, f"{package} {version} is not as expected ({problems[0]}{more}): {engine} keeps its own all-reduce")
    return not problems


def stay_deterministic(variable: str) -> None:
    """An engine's mode that wants the same bits for every batch gets rank-order reduction from every algorithm."""
    if os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off"):
        os.environ.setdefault("STRETTO_DETERMINISTIC", "1")

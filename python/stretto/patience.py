"""Waits of Python's own that become long are told of once, as the library tells of its waits."""

from __future__ import annotations

import json
import time
import warnings

from stretto import _native


def seconds_of(name: str) -> float:
    """A variable of the environment that holds seconds, as the library reads it."""
    for parameter in json.loads(_native.parameters())["parameters"]:
        if parameter["name"] == name:
            return float(parameter["value"])
    raise AssertionError(f"the library has no {name}")


class Patience:
    """Of one wait, which asks often whether it is time to tell of it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._after: float | None = None
        self._told = False

    def is_over(self) -> bool:
        """True once, after STRETTO_WARN_AFTER seconds; never if that is 0."""
        waited = time.monotonic() - self._began
        if self._told or waited < 0.05:
            return False
        if self._after is None:
            self._after = seconds_of("STRETTO_WARN_AFTER") or float("inf")
        self._told = waited > self._after
        return self._told

    def tell(self, whose: str, missing: str) -> None:
        """Warns that a rank goes on waiting."""
        waited = time.monotonic() - self._began
        warnings.warn(
            f"{whose} has waited {waited:.3g} s, and goes on waiting: {missing}", RuntimeWarning, stacklevel=3
        )

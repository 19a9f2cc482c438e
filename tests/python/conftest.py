"""Fixtures that several modules of tests have."""

import os
from collections.abc import Iterator

import pytest
from jobs import wait_for
from planted import faulty, shim
from stretto.processes import descendants, recording

__all__ = ["faulty", "no_rank_is_left_behind", "shim"]


@pytest.fixture(autouse=True, scope="module")
def no_rank_is_left_behind() -> Iterator[None]:
    """Ranks that a module of tests started have ended with it: later tests ask for the ranks of their own children."""
    yield
    wait_for(lambda: not recording(descendants(os.getpid())), 5, "all ranks that these tests started have ended")

"""Long work shows on a terminal that it goes on, and leaves nothing there."""

from __future__ import annotations

import io
import time

import pytest
from stretto.cli import working
from stretto.cli.working import Working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, seconds: float) -> str:
    """What is written until something is, or so many seconds are over."""
    until = time.monotonic() + seconds
    at_work = Working("converting", stream)
    at_work(1234)
    with at_work:
        while not stream.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    return stream.getvalue()


def test_what_takes_long_is_shown_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_AFTER_S", 0.05)
    text = shown(Terminal(), 30)
    assert "s, 1,234 events" in text and text.endswith("\r\033[K")


def test_what_is_short_or_no_terminal_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(Terminal(), 0) == ""
    monkeypatch.setattr(working, "_AFTER_S", 0.0)
    assert shown(io.StringIO(), 0.1) == ""

"""One spelling of a unit in what people read: µs, ms and s, and GB/s for rates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import stretto

PACKAGE = Path(stretto.__file__).resolve().parent
# "us" stands behind a number, a field or another word; "μ" is the Greek letter, which looks like the sign of micro.
OTHER = re.compile(r"(?<![\w-])(us|usecs?|msecs?)(?!\w)|μs|\b[KMG]i?Bps\b|\b[KMG]i?B per s")
# Keys of JSON and of the drivers' lines, which programs read.
KEYS = {"us", "sleep of 1000 us"}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The string constants of a module with their lines, parts of formatted ones too, without docstrings."""
    tree = ast.parse(source)
    lone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in lone:
            yield node.lineno, node.value


def others(source: str) -> list[tuple[int, str]]:
    return [(line, text) for line, text in texts(source) if text not in KEYS and OTHER.search(text)]


@pytest.mark.parametrize("text", ['f"{time:.1f} us"', '"half round trip us"', '"μs"', '["12 usec"]', '"3 GBps"'])
def test_another_spelling_is_found(text: str) -> None:
    assert others(f"x = {text}")


def test_tables_and_messages_have_one_spelling() -> None:
    found = {path: others(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(found) > 100
    assert {str(path.relative_to(PACKAGE)): some for path, some in found.items() if some} == {}

"""What people read before they run anything: help that fits 80 columns, examples, completion, docstrings."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stretto as package
from jobs import stretto
from verbs import Verb, commands, everything

# Options of its own that a command shows without a heading, and under one heading.
MOST_APART, MOST_TOGETHER = 5, 9


@pytest.mark.parametrize("verb", everything(), ids=str)
def test_help_fits_80_columns(verb: Verb) -> None:
    assert max(len(line.rstrip()) for line in verb.help.split("\n")) <= 80
    assert "…" not in verb.help, "a word is cut"


@pytest.mark.parametrize("verb", everything(), ids=str)
def test_help_has_examples_of_this_command(verb: Verb) -> None:
    _, found, examples = verb.help.partition("Examples:")
    lines = [line.strip() for line in examples.split("\n") if line.strip()]
    assert found and lines
    for line in lines:
        words = [word for word in shlex.split(line) if "=" not in word or word.startswith("-")]
        assert words[: 1 + len(verb.words)] == ["stretto", *verb.words], line


def options_by_panel(text: str) -> dict[str, int]:
    """How many options each panel of a help shows, without --help itself."""
    found: dict[str, int] = {}
    for part in text.split("╭─ ")[1:]:
        lines = re.findall(r"^│ [* ] *--?\w.*$", part, re.MULTILINE)
        found[part.split(" ─")[0]] = len([line for line in lines if "--help" not in line])
    return found


@pytest.mark.parametrize("verb", commands(), ids=str)
def test_many_options_stand_in_groups(verb: Verb) -> None:
    found = options_by_panel(verb.help)
    assert found.pop("Options") <= MOST_APART
    assert all(count <= MOST_TOGETHER for count in found.values()), found


def help_of(name: str) -> str:
    return next(verb.help for verb in everything() if str(verb) == name)


def test_options_of_bench_stand_in_groups() -> None:
    text = help_of("bench")
    for panel in ("The job", "The operation", "Sizes and repetition", "Whom to compare with", "What comes out"):
        assert f"─ {panel} ─" in text


def test_n_is_explained_where_it_is_not_the_ranks() -> None:
    assert "as in nccl-tests" in help_of("bench")
    for verb in ("run", "tune", "explain"):
        assert re.search(r"--ranks\s+-n\b", help_of(verb)), verb


@pytest.mark.parametrize(("words", "found"), [("stretto ben", "bench"), ("stretto trace re", "record")])
def test_bash_completes(words: str, found: str) -> None:
    made = stretto("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert made.returncode == 0 and "_STRETTO_COMPLETE=complete_bash" in made.stdout, made.stderr
    count = len(words.split()) - 1
    done = stretto(_STRETTO_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(count))
    assert found in done.stdout.split(), done.stdout + done.stderr


def test_bash_completes_what_an_argument_may_be() -> None:
    done = stretto(_STRETTO_COMPLETE="complete_bash", COMP_WORDS="stretto bench all_", COMP_CWORD="2")
    assert {"all_reduce", "all_gather", "all_to_all"} <= set(done.stdout.split()), done.stdout + done.stderr


def public() -> Iterator[tuple[str, Any]]:
    """Every name that `import stretto` offers, and the methods and properties of its classes."""
    for name in package.__all__:
        value = getattr(package, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        yield name, value
        for member, one in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and (callable(one) or isinstance(one, property | classmethod | staticmethod)):
                yield f"{name}.{member}", one


def test_every_public_name_has_a_docstring() -> None:
    found = dict(public())
    assert len(found) > 40
    bare = [name for name, value in found.items() if not inspect.getdoc(value)]
    assert bare == []
    assert inspect.getdoc(package)


def test_every_module_has_a_docstring() -> None:
    root = Path(package.__file__).parent
    bare = [str(path) for path in root.rglob("*.py") if not path.read_text().startswith('"""')]
    assert bare == []

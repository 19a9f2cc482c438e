"""check_words finds paths of this machine, registry hosts, open ends and large files."""

from pathlib import Path

import pytest

OPEN = "TO" + "DO"
HOST = "py" + "pi.org"


def test_plain_text_passes(write, check) -> None:
    write("README.md", f"Run it in /tmp. A note may say {OPEN}; code may not.\n")
    write("viewer/package-lock.json", f'{{"resolved": "{HOST}"}}\n')
    done = check("check_words")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("docs/a.md", f"see https://{HOST}/x\n", "registry host"),
        ("src/a.cpp", f"// {OPEN}: later\n", "open end"),
        ("tools/program", f"#!/usr/bin/env python3\n# {OPEN}\n", "open end"),
        ("docs/big.txt", "x" * (1 << 20) + "x", "more than 1 MB"),
    ],
)
def test_a_bad_file_is_told(write, check, name: str, text: str, said: str) -> None:
    write(name, text)
    done = check("check_words")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}:")
    assert said in done.stderr
    assert "FIX: " in done.stderr


def test_two_types_of_one_name_are_told(write, check) -> None:
    write(
        "src/a.hpp",
        "namespace stretto::a {\nstruct Thing {\n  struct Part { int x; };\n};\nenum class Kind { kA };\n}\n",
    )
    write(
        "src/b.hpp",
        "namespace stretto::b {\nclass Thing;\nstruct Part {};\ntemplate <class Kind> struct Other {};\n}\n",
    )
    assert "Thing" not in check("check_words").stderr
    write("src/c.hpp", "namespace stretto::c {\nclass Thing final : Base<int> {};\n}\n")
    done = check("check_words")
    assert done.returncode == 1
    assert "declares the type Thing in stretto::c; stretto::a has one as well" in done.stderr
    assert "the type Part" not in done.stderr
    assert "the type Kind" not in done.stderr


def test_the_checkouts_own_path_is_found(write, check, tmp_path: Path) -> None:
    write("docs/a.md", f"first line\ncd {tmp_path}\n")
    done = check("check_words")
    assert done.returncode == 1
    assert "docs/a.md:2: names a path of this machine" in done.stderr


GLOSSARY = """
**Channel.** The resources of one block.

| say | not | may mean something else in |
|---|---|---|
| channel | `lane`, `track` | `src/gpu/` |
"""


def test_the_code_speaks_as_the_glossary_does(write, check) -> None:
    write("docs/glossary.md", GLOSSARY)
    write("src/gpu/a.hpp", "int lane();\n")
    write("src/b.hpp", "// A lane.\nint channel();\nint backtracks();\n")
    assert "glossary" not in check("check_words").stderr


def test_a_word_that_the_glossary_replaces_is_told(write, check) -> None:
    write("docs/glossary.md", GLOSSARY)
    write("src/b.hpp", "int channels;\nint firstLane;\nint tracks_;\n")
    done = check("check_words")
    assert done.returncode == 1
    assert "src/b.hpp:2: firstLane says lane" in done.stderr and "src/b.hpp:3: tracks_ says track" in done.stderr
    assert "FIX: say channel" in done.stderr


def test_a_word_of_the_glossary_that_nothing_uses_is_told(write, check) -> None:
    write("docs/glossary.md", GLOSSARY)
    write("src/b.hpp", "int block;\n")
    done = check("check_words")
    assert done.returncode == 1
    assert "docs/glossary.md:2: nothing says Channel" in done.stderr

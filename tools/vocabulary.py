"""Holds docs/glossary.md and the code together: what the glossary explains is used, and what it replaces is not."""

import re
from collections.abc import Iterator
from pathlib import Path

from findings import CXX, Finding, files
from type_names import tokens

GLOSSARY = "docs/glossary.md"
TERM = re.compile(r"^\*\*([^*]+?)\.?\*\*", re.MULTILINE)
# | say | not | may mean something else in |
ROW = re.compile(r"^\| ([^|`]+) \| ((?:`\w+`(?:, )?)+) \| ([^|]*) \|$", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def parts(identifier: str) -> set[str]:
    """The words that an identifier is made of, in the singular."""
    return {part.lower().removesuffix("s") for part in PART.findall(identifier)}


def replaced(glossary: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By word that is not used: the one to say, and the folders where it is another thing."""
    found = {}
    for match in ROW.finditer(glossary):
        for word in QUOTED.findall(match[2]):
            found[word.lower()] = (match[1].strip(), tuple(QUOTED.findall(match[3])))
    return found


def returned(root: Path, glossary: str) -> Iterator[Finding]:
    words = replaced(glossary)
    for file in files(root):
        path = file.relative_to(root).as_posix()
        if file.suffix not in CXX or not path.startswith("src/"):
            continue
        text = file.read_text(errors="replace")
        for identifier in sorted(set(tokens(text))):
            for word in sorted(parts(identifier) & words.keys()):
                instead, elsewhere = words[word]
                if path.startswith(elsewhere):
                    continue
                at = re.search(rf"\b{re.escape(identifier)}\b", text)
                yield Finding(
                    path,
                    line_of(text, at.start() if at else 0),
                    f"{identifier} says {word}",
                    f"{GLOSSARY} has one word for each thing, which readers know from elsewhere.",
                    f"say {instead}, or say in the glossary's last table where {word} means something else.",
                )


def unused(root: Path, glossary: str) -> Iterator[Finding]:
    kinds = {*CXX, ".py", ".ts", ".md"}
    others = [file for file in files(root) if file.suffix in kinds and file != root / GLOSSARY]
    texts = (file.read_text(errors="replace") for file in others)
    said = {part for text in texts for word in set(re.findall(r"\w+", text)) for part in parts(word)}
    for match in TERM.finditer(glossary):
        for term in re.split(r", | and ", match[1]):
            missing = [word for word in re.findall(r"\w+", term) if not parts(word) <= said]
            if missing:
                why = "who looks a word up has met it in the code or in a document."
                yield Finding(GLOSSARY, line_of(glossary, match.start()), f"nothing says {term}", why, "remove it.")


def vocabulary(root: Path) -> Iterator[Finding]:
    file = root / GLOSSARY
    if not file.is_file():
        return
    glossary = file.read_text()
    yield from returned(root, glossary)
    yield from unused(root, glossary)

"""Type names of src/ that two namespaces declare: who reads one of them must not have to ask which."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from findings import CXX, Finding, files

# Those that are left. A type that is local to a file, in a namespace without a name, does not count.
KNOWN = {
    "Challenge",
    "Descriptor",
    "Device",
    "Flow",
    "Hello",
    "Join",
    "Registration",
    "Rendezvous",
    "Request",
    "Session",
    "State",
    "Table",
}
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|\w+|::|[{};<>()=,]""", re.DOTALL
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
NO_CODE = ("//", "/*", '"', "'", 'R"')


def tokens(text: str) -> list[str]:
    found = (match[0] for match in TOKEN.finditer(DIRECTIVE.sub("", text)))
    return [token for token in found if not token.startswith(NO_CODE)]


def declared(text: str) -> Iterator[tuple[str, str]]:
    """The types that are defined in a namespace with a name, not in a type or a function: each with its namespace."""
    every = tokens(text)
    scopes: list[str | None] = []  # None: no namespace
    index = 0
    while index < len(every):
        token = every[index]
        end = index + 1
        if token == "namespace":
            while every[end] not in "{;=":
                end += 1
            if every[end] == "{":
                scopes.append("".join(every[index + 1 : end]) or "(anonymous)")
                end += 1
        elif token in ("struct", "class", "union", "enum") and every[index - 1] not in ("<", ",", "enum", "friend"):
            name, end = head(every, end)
            if name is not None:
                if None not in scopes and "(anonymous)" not in scopes:
                    yield name, "::".join(scope for scope in scopes if scope)
                scopes.append(None)
        elif token == "{":
            scopes.append(None)
        elif token == "}" and scopes:
            scopes.pop()
        index = end


def head(every: list[str], index: int) -> tuple[str | None, int]:
    """The name of the type whose body begins, and where that is; no name for what is declared or used only."""
    if every[index] in ("class", "struct"):
        index += 1
    if every[index] == "alignas":
        index = every.index(")", index) + 1
    name = every[index]
    end = index + 1
    while end < len(every) and every[end] not in "{;()=":
        end += 1
    is_body = end < len(every) and every[end] == "{" and every[index + 1] not in ("::", "<")
    return (name, end + 1) if is_body and re.fullmatch(r"[A-Za-z_]\w*", name) else (None, index)


def twice(root: Path) -> Iterator[Finding]:
    places: dict[str, dict[str, Path]] = defaultdict(dict)
    for file in files(root):
        if file.suffix in CXX and (root / "src") in file.parents:
            for name, namespace in declared(file.read_text()):
                places[name].setdefault(namespace, file)
    for name, spaces in sorted(places.items()):
        if len(spaces) < 2 or name in KNOWN:
            continue
        *_, (space, file) = spaces.items()
        what = f"declares the type {name} in {space}; {', '.join(list(spaces)[:-1])} has one as well"
        why = "who reads the name alone takes one for the other, and a search finds both."
        yield Finding(file.relative_to(root).as_posix(), 1, what, why, "give it a name of its own.")
    for name in sorted(KNOWN):
        if len(places[name]) < 2:
            why = "a free pass that nobody needs will be used."
            yield Finding("tools/type_names.py", 1, f"{name} is declared once by now", why, "delete its line.")

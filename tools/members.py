"""The classes of a C++ file and how many members each declares: data and functions, not what is nested.

It reads text, not a syntax tree: good for code that clang-format has laid out, without macros that declare.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from findings import blank

CLASS = re.compile(
    r"(?<![\w<,] )\b(class|struct|union)\s+(?:\[\[[^\]]*\]\]\s*)?(?:alignas\([^{};]*?\)\s*)?"
    r"((?:\w+::)*\w+)\s*(?:<[^;{}]*>\s*)?(?:final\s*)?(?::(?!:)[^;{}]*)?\{"
)
ACCESS = re.compile(r"^(?:(?:public|private|protected)\s*:\s*)+")
TEMPLATE = re.compile(r"^template\s*<")
NO_MEMBER = re.compile(r"^(?:using|typedef|friend|static_assert|class|struct|union|enum|concept)\b")
OBJECT_OF_NESTED = re.compile(r"^(?:const\s+)?(?:class|struct|union|enum)\b.*\}\s*\w", re.S)


@dataclass(frozen=True)
class Class:
    name: str
    line: int
    members: int


def closing(text: str, start: int) -> int:
    """Where the brace at `start` is closed."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


def statements(body: str) -> Iterator[str]:
    """What is declared in a body, one at a time, with nothing between its brackets."""
    now, depth, initialises = "", 0, False
    for position, character in enumerate(body):
        if character in "([{":
            now += character if depth == 0 else ""
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth > 0:
                continue
            now += character
            after = body[position + 1 :].lstrip()[:1]
            initialises = initialises or bool(re.search(r"\)\s*(?:noexcept\s*)?:[^:]", now))
            ends = after not in ({";", ",", "{"} if initialises or "=" in now else {";", ","})
            if character == "}" and ends and not (initialises and after == "{"):
                yield now.strip()
                now, initialises = "", False
        elif depth > 0:
            continue
        elif character == ";":
            yield now.strip()
            now, initialises = "", False
        else:
            now += character


def without_angles(text: str) -> str:
    """Without template arguments and parameters, from the innermost out."""
    shorter = re.sub(r"<[^<>()]*(?:\(\)[^<>()]*)*>", "", text)
    return text if shorter == text else without_angles(shorter)


def declared(statement: str) -> int:
    """How many members a statement declares: `int a, b;` two, a function one."""
    statement = re.sub(r"^\s*#.*$", "", statement, flags=re.M)
    plain = ACCESS.sub("", without_angles(statement).strip()).strip()
    plain = re.sub(r"^template\s*(?:requires\s*\(?\)?\s*)?", "", plain) if TEMPLATE.match(statement) else plain
    if not plain or (NO_MEMBER.match(plain) and not OBJECT_OF_NESTED.match(plain)):
        return 0
    head = re.split(r"[={]", plain, maxsplit=1)[0]
    return 1 if "(" in head else 1 + plain.count(",")


def classes_of(text: str) -> Iterator[Class]:
    bare = blank(text, strings=True)
    for match in CLASS.finditer(bare):
        if re.search(r"\benum\s*$", bare[: match.start()]):
            continue
        body = bare[match.end() : closing(bare, match.end() - 1)]
        count = sum(declared(statement) for statement in statements(body) if statement)
        yield Class(match[2], bare.count("\n", 0, match.start()) + 1, count)

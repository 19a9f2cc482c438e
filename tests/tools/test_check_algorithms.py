"""check_algorithms holds the page's table to the code's, and lets no algorithm find out what compiles."""

from collections.abc import Callable

import pytest
from conftest import Checked

ROWS = "    Row<C::kAllReduce,     A::kOneShot,  P::kLL,      D::kBoth, reduceOneShot,      AllReduceOneShotLines>,\n"
PAGE = """<!-- The table of algorithms, by tools/check_algorithms --write -->

| collective | algorithm | the same code on both | on hosts alone | on GPUs alone |
|---|---|---|---|---|
| all_reduce | one_shot | ll |  |  |

<!-- Its end -->
"""
GOOD = (
    "template <typename B>\nconcept SharesLines = requires {\n  requires B::kSharesLines;\n};\n"
    "template <SharesLines B> void f() { if constexpr (SharesLines<B>) {} }\n"
    "// Once there was `if constexpr (requires { b.pipeline(); })`.\n"
    "template <typename B>\nconcept ShareMembers = requires(B b, int n) {\n  { b.share(n) } -> std::same_as<int>;\n};\n"
    "template <ShareMembers B>\nrequires(B::Has::kLinks) void g() { static_assert(ShareMembers<B>); }\n"
)
FAST = "template <typename B> concept Fast = requires(B b) { b.fast(); };\n"


@pytest.fixture
def tree(write: Callable[[str, str], None]) -> Callable[[str, str], None]:
    write("src/algorithms/rows.hpp", ROWS)
    write("docs/design.md", PAGE)
    write("src/algorithms/good.hpp", GOOD)
    return write


def test_a_good_tree_passes(tree: Callable[[str, str], None], check: Callable[[str], Checked]) -> None:
    done = check("check_algorithms")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nvoid f() { if constexpr (requires { b.pipeline(); }) {} }\n", 2),
        ("void f() {\n  if constexpr (requires { requires B::kOneEpoch; }) {}\n}\n", 2),
        ("void f() {\n  constexpr bool kTogether = requires {\n    b.signalAll();\n  };\n}\n", 2),
        ("void f() {\n  if constexpr (!requires { b.pipeline(); }) {}\n}\n", 2),
        ("void f() {\n  if constexpr (A<B> &&\n      requires(B c) { c.pipeline(); }) {}\n}\n", 3),
        ("template <typename B>\nconstexpr bool kFast = requires(B b) { b.fast(); };\n", 2),
        ("template <typename B> requires requires(B b) { b.fast(); }\nvoid f() {}\n", 1),
        ("void f() {\n  using Fast = decltype(b.fast());\n}\n", 2),
        (f"{FAST}void f() {{ if constexpr (Fast<B>) {{}} }}\n", 2),
        (f"{FAST}constexpr bool kFast = A && Fast<B>;\n", 2),
    ],
)
def test_what_asks_whether_something_compiles_is_told(
    text: str, line: int, tree: Callable[[str, str], None], check: Callable[[str], Checked]
) -> None:
    tree("src/algorithms/bad.hpp", text)
    done = check("check_algorithms")
    assert done.returncode == 1
    assert f"src/algorithms/bad.hpp:{line}: an algorithm asks whether something compiles" in done.stderr


def test_a_table_that_is_not_the_codes_is_told(
    tree: Callable[[str, str], None], check: Callable[[str], Checked]
) -> None:
    tree("src/algorithms/rows.hpp", ROWS.replace("kBoth", "kHost"))
    done = check("check_algorithms")
    assert done.returncode == 1 and "docs/design.md:1: the table of algorithms is not that of" in done.stderr

"""What docs/releasing.md counts on: one version in all places, and a changelog in its form."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def found(path: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match, path
    return match[1]


def versions() -> dict[str, str]:
    lock = json.loads((ROOT / "viewer/package-lock.json").read_text())
    return {
        "CMakeLists.txt": found("CMakeLists.txt", r"^project\(stretto VERSION ([0-9.]+)"),
        "version.hpp": found("src/base/version.hpp", r'kLibraryVersion = "([0-9.]+)"'),
        "package.json": json.loads((ROOT / "viewer/package.json").read_text())["version"],
        "package-lock.json": lock["version"],
        "package-lock.json, the package": lock["packages"][""]["version"],
    }


def test_the_version_is_the_same_everywhere() -> None:
    assert len(set(versions().values())) == 1, versions()


def test_the_changelog_is_in_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", heading), heading
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for link in re.findall(r"\]\((docs/[^)#]*)", text):
        assert (ROOT / link).exists(), link


def test_the_release_of_a_version_is_in_the_changelog() -> None:
    """The version in the tree is either still to come or has its heading: never one that lies behind."""
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version = versions()["CMakeLists.txt"]
    parts = [tuple(int(part) for part in one.split(".")) for one in released]
    assert not parts or tuple(int(part) for part in version.split(".")) >= max(parts)


def test_documents_name_no_file_that_is_not_there() -> None:
    for path in (ROOT / "docs/releasing.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"):
        for link in re.findall(r"\]\(((?!https?:)[^)#]+)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name}: {link}"

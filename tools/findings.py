"""What the checkers in this folder share: which files there are, and how a finding is told.

A finding teaches. It names the place and the fact, then why the rule exists, then the mend.
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CXX = {".cpp", ".hpp", ".h", ".cu", ".cuh"}

# Comments, string and character literals. A quote after a digit separates thousands.
TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"([^(\s]*)\(.*?\)\1" | "(?:\\.|[^"\\\n])*" """
    r"""| (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.S | re.X,
)


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    what: str
    why: str
    fix: str

    def text(self) -> str:
        return f"{self.path}:{self.line}: {self.what}\n    Why: {self.why}\n    FIX: {self.fix}"


def blank(text: str, *, strings: bool) -> str:
    """Comments (and string contents) become spaces, so that lines and columns stay where they are."""

    def hide(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("/") or strings:
            return re.sub(r"[^\n]", " ", token)
        return token

    return TOKEN.sub(hide, text)


def files(root: Path) -> list[Path]:
    """The files of the checkout that git knows or would take, in order; every file where there is no git."""
    if not (root / ".git").exists():
        return sorted(path for path in root.rglob("*") if path.is_file())
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    # A file that was removed and not yet committed is still listed.
    return sorted(path for name in set(names.split("\0")) if name and (path := root / name).is_file())


def is_python(path: Path) -> bool:
    """By its name, or by its first line for the programs that have no suffix."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def root_argument(description: str) -> Path:
    parser = argparse.ArgumentParser(description=description)
    here = Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=Path, default=here, help="the checkout to look at (default: this one)")
    root: Path = parser.parse_args().root
    return root.resolve()


def report(tool: str, looked_at: int, found: list[Finding], noun: str = "file") -> int:
    """Prints what was found, and returns the exit status."""
    for finding in sorted(found):
        print(finding.text(), file=sys.stderr)
    if looked_at == 0:
        print(f"{tool}: found no {noun} to look at, which cannot be right", file=sys.stderr)
        return 2
    print(f"{tool}: {looked_at} {noun}s, {len(found)} problems")
    return 1 if found else 0

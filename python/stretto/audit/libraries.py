"""Which library a program would get under a name, by the dynamic linker's rules, and which functions of NCCL files
offer and want. Only files are read; `stretto doctor --nccl` tells of programs that run.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stretto.audit import child
from stretto.loaded import SONAME, Library, identify, needs_of

_DYNSYM = 11
_SYMBOL = struct.Struct("<IBBHQQ")
_WEAK = 2
_SYSTEM_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MOST_FILES = 400
_MOST_PYTHONS = 8
# For one interpreter, and for all of them.
_ASK_SECONDS = 20.0
_ALL_SECONDS = 30.0


@dataclass(frozen=True)
class Symbols:
    """Names of NCCL's functions that a file defines, and that it needs of others."""

    defined: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=64)
def symbols_of(file: Path) -> Symbols:
    """Nothing for what is no 64-bit ELF file with a table of dynamic symbols."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as text:
            return _parse(text) if text[:5] == b"\x7fELF\x02" else Symbols()
    except (OSError, ValueError, IndexError, OverflowError, struct.error):  # a file that is cut off or damaged
        return Symbols()


def _parse(text: mmap.mmap) -> Symbols:
    (sections,) = struct.unpack_from("<Q", text, 40)
    size, count = struct.unpack_from("<HH", text, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", text, sections + number * size) for number in range(count)]
    table = next((header for header in headers if header[1] == _DYNSYM), None)
    if table is None:
        return Symbols()
    names = headers[table[6]][4]
    defined, wanted = set(), set()
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(text[table[4] : table[4] + table[5]]):
        at = names + name
        if text[at : at + 4] != b"nccl" and text[at : at + 5] != b"pnccl":
            continue
        word = text[at : text.find(b"\0", at)].decode(errors="replace")
        if section:
            defined.add(word)
        elif info >> 4 != _WEAK:
            wanted.add(word)
    return Symbols(frozenset(defined), frozenset(wanted))


@functools.lru_cache(maxsize=1)
def _cache() -> dict[str, str]:
    """What the linker's cache says, by name."""
    for program in ("ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = child.run([program, "-p"], 10)
        except (OSError, subprocess.TimeoutExpired):
            continue
        found: dict[str, str] = {}
        for line in done.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow:
                found.setdefault(name.split(" ")[0], path)
        return found
    return {}


def preloaded(environment: Mapping[str, str]) -> list[str]:
    return environment.get("LD_PRELOAD", "").replace(":", " ").split()


def library_folders(environment: Mapping[str, str]) -> list[Path]:
    """LD_LIBRARY_PATH, in its order; an empty entry is the working folder."""
    text = environment.get("LD_LIBRARY_PATH", "")
    return [Path(entry or ".") for entry in text.split(":")] if text else []


def _own_folders(text: str | None, file: Path) -> list[Path]:
    origin = str(file.resolve().parent)
    return [
        Path(part.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for part in (text or "").split(":") if part
    ]


def find(name: str, needer: Path, environment: Mapping[str, str]) -> Path | None:
    """The file that `needer` would get for a name that it needs."""
    for entry in preloaded(environment):
        if Path(entry).name == name and Path(entry).is_file():
            return Path(entry)
    needs = needs_of(needer)
    folders = _own_folders(needs.rpath, needer) if needs.runpath is None else []
    folders += library_folders(environment) + _own_folders(needs.runpath, needer)
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    if name in _cache():
        return Path(_cache()[name])
    return next((Path(folder) / name for folder in _SYSTEM_FOLDERS if (Path(folder) / name).is_file()), None)


def reachable(environment: Mapping[str, str]) -> dict[Path, str]:
    """Every libnccl.so.2 that a program may get without a search path of its own, and by what; in the linker's
    order."""
    found: dict[Path, str] = {}
    for entry in preloaded(environment):
        if Path(entry).name == SONAME and Path(entry).is_file():
            found.setdefault(Path(entry).resolve(), "LD_PRELOAD")
    for folder in library_folders(environment):
        if (folder / SONAME).is_file():
            found.setdefault((folder / SONAME).resolve(), "LD_LIBRARY_PATH")
    if SONAME in _cache() and Path(_cache()[SONAME]).is_file():
        found.setdefault(Path(_cache()[SONAME]).resolve(), "the system's own folders")
    return found


def needers(program: Path, environment: Mapping[str, str]) -> list[Path]:
    """`program` and what it needs, as far as they are linked to libnccl.so.2."""
    seen, pending, found = {program.resolve()}, [program.resolve()], []
    while pending and len(seen) < _MOST_FILES:
        file = pending.pop(0)
        for name in needs_of(file).needed:
            if name == SONAME:
                found.append(file)
                continue
            library = find(name, file, environment)
            if library is not None and library.resolve() not in seen:
                seen.add(library.resolve())
                pending.append(library.resolve())
    return found


@functools.lru_cache(maxsize=64)
def kind_of(file: Path) -> Library:
    """Whose it is, and its version. NVIDIA's are hundreds of megabytes to read: once is enough."""
    return identify(str(file.resolve()))


def words(file: Path) -> str:
    """ "/usr/lib/libnccl.so.2 (NCCL 2.30.7)"."""
    library = kind_of(file)
    kind = {True: "Stretto", False: "NCCL", None: "not readable"}[library.stretto]
    return f"{file} ({kind}{' ' + library.version if library.version else ''})"


# ---- Pythons ----------------------------------------------------------------------------------------------------

_ASK = """
import importlib.util, json, sys
def place(name):
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return found and (found.origin or list(found.submodule_search_locations or [None])[0])
print(json.dumps({"version": sys.version.split()[0], "torch": place("torch"), "cupy": place("cupy_backends"),
                  "vllm": place("vllm"), "stretto": place("stretto")}))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter and the files of its packages that are linked to libnccl.so.2."""

    path: Path
    version: str
    users: tuple[tuple[str, Path], ...]  # what it is called, and the file


def ask_python(path: Path, seconds: float = _ASK_SECONDS) -> Python | None:
    """Runs it for as long as it takes to find, and not to import, what may need NCCL. None if it does not run."""
    import json

    try:
        answer = json.loads(child.run([str(path), "-c", _ASK], seconds).stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    users = []
    if answer["torch"]:
        folder = Path(answer["torch"]).parent
        name = f"torch {_version(folder)} of {path}"
        users += [(name, folder / "lib" / "libtorch_cuda.so")] if (folder / "lib/libtorch_cuda.so").is_file() else []
    if answer["cupy"]:
        for file in Path(answer["cupy"]).parent.glob("cuda/libs/nccl*.so"):
            users.append((f"CuPy of {path}", file))
    return Python(path, answer["version"], tuple(users))


def _version(torch: Path) -> str:
    try:
        text = (torch / "version.py").read_text(errors="replace")
    except OSError:
        return "of unknown version"
    lines = (line.partition("=") for line in text.splitlines() if line.startswith("__version__"))
    return next((value.strip().strip("'\"") for _, _, value in lines), "of unknown version")


def pythons(more: tuple[Path, ...], own: str, search: str) -> list[Python]:
    """The one that runs this, those on the path by their usual names, and those that were asked for."""
    candidates = [Path(own), *more]
    for folder in search.split(os.pathsep):
        candidates += [Path(folder) / name for name in ("python3", "python") if os.access(Path(folder) / name, os.X_OK)]
    found: dict[tuple[Path, Path], Path] = {}
    for path in candidates:
        # A virtual environment's Python is a link to another one: the folder tells them apart.
        found.setdefault((path.parent.resolve(), path.resolve()), path)
    end = time.monotonic() + _ALL_SECONDS
    answers = []
    for path in list(found.values())[:_MOST_PYTHONS]:
        left = end - time.monotonic()
        answers.append(ask_python(path, min(_ASK_SECONDS, left)) if left > 0 else None)
    return [answer for answer in answers if answer is not None]

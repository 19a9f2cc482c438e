"""Which libnccl a process has loaded, ours or NVIDIA's, who asked for it and what decided; or which one a command
loads. Reads /proc and the files; a process that is looked at does not notice.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SONAME = "libnccl.so.2"
# In our library only: the name of a function that it exports, and a text with its version.
_OURS = b"\0strettoVersion\0"
_OUR_VERSION = re.compile(rb"Stretto version (\d[\w.]*)")
_THEIR_VERSION = re.compile(rb"NCCL version (\d[\w.]*(?:\+[\w.]+)?)")
_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "VLLM_NCCL_SO_PATH", "STRETTO_REAL_NCCL", "STRETTO_DEVICE")


@dataclass(frozen=True)
class Library:
    """One file that serves NCCL's interface. `stretto` and `version` are None when the file cannot be read any more."""

    path: str
    stretto: bool | None
    version: str | None
    asked_by: str | None = None


@dataclass
class Loaded:
    """What one process has, in the order of loading where `ordered`."""

    pid: int
    command: str
    libraries: list[Library]
    ordered: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """stretto, nccl, both or none: what programs that are linked to libnccl.so.2 use. "both" only where it cannot
        be told which came first."""
        kinds = ["stretto" if one.stretto else "nccl" for one in self.libraries]
        if not kinds:
            return "none"
        return kinds[0] if self.ordered or len(set(kinds)) == 1 else "both"

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def identify(path: str, inside: Path = Path("/"), asked_by: str | None = None) -> Library:
    """Whether a file is ours, and its version. `inside` is the root that a process of another container sees."""
    try:
        with (inside / path.lstrip("/")).open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            stretto = text.find(_OURS) >= 0
            version = (_OUR_VERSION if stretto else _THEIR_VERSION).search(text)
            return Library(path, stretto, version[1].decode() if version else None, asked_by)
    except (OSError, ValueError):  # gone, forbidden, or empty
        return Library(path, None, None, asked_by)


def is_nccl(path: str) -> bool:
    return Path(path).name.startswith(("libnccl.so", "libstretto.so"))


def mapped_files(pid: int, proc: Path = Path("/proc")) -> list[str]:
    """The files that a process has mapped, by address, each once. OSError if it is gone or may not be looked at."""
    lines = (proc / str(pid) / "maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6]
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


def look_at(pid: int, proc: Path = Path("/proc")) -> Loaded:
    """What the running process `pid` has loaded."""
    place = proc / str(pid)
    mapped = mapped_files(pid, proc)
    environment = _environment(place)
    root = place / "root"
    inside = root if root.exists() else Path("/")
    libraries = [
        identify(path.removesuffix(" (deleted)"), inside)
        if not path.endswith(" (deleted)")
        else Library(path, None, None)
        for path in mapped
        if is_nccl(path.removesuffix(" (deleted)"))
    ]
    process = Loaded(pid, _command(place), libraries)
    process.remarks = _remarks(process, environment, _needers(mapped, inside))
    return process


def _command(place: Path) -> str:
    try:
        return (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _environment(place: Path) -> dict[str, str]:
    """As the process started; empty where it may not be read. Only what matters here."""
    try:
        entries = (place / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name in _VARIABLES and value}


# ---- What a file of machine code needs --------------------------------------------------------------------------


@dataclass(frozen=True)
class Needs:
    """The dynamic section of an ELF file."""

    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    soname: str | None = None


def needs_of(file: Path) -> Needs:
    """Nothing for what is no 64-bit ELF file, or has no such section."""
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as text:
            return _parse(text) if text[:5] == b"\x7fELF\x02" else Needs()
    except (OSError, ValueError, IndexError, OverflowError, struct.error):
        return Needs()


def _parse(text: mmap.mmap) -> Needs:
    loads, dynamic = [], None
    (headers,) = struct.unpack_from("<Q", text, 32)
    size, count = struct.unpack_from("<HH", text, 54)
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", text, headers + number * size)
        if kind == 1:
            loads.append((address, offset, length))
        elif kind == 2:
            dynamic = (offset, length)
    if dynamic is None:
        return Needs()
    entries = list(struct.iter_unpack("<QQ", text[dynamic[0] : dynamic[0] + dynamic[1] // 16 * 16]))
    strings = next((value for tag, value in entries if tag == 5), 0)
    base = next(
        (strings - address + offset for address, offset, length in loads if address <= strings < address + length), 0
    )

    def string(offset: int) -> str:
        return text[base + offset : text.find(b"\0", base + offset)].decode(errors="replace")

    def last(tag: int) -> str | None:
        return next((string(value) for kind, value in entries if kind == tag), None)

    return Needs(tuple(string(value) for tag, value in entries if tag == 1), last(15), last(29), last(14))


def _needers(mapped: list[str], inside: Path) -> dict[str, Needs]:
    """Those of the mapped files that are linked to libnccl.so.2."""
    found = {path: needs_of(inside / path.lstrip("/")) for path in mapped if ".so" in path or "/bin/" in path}
    return {path: needs for path, needs in found.items() if SONAME in needs.needed}


# ---- What to say ------------------------------------------------------------------------------------------------


def _remarks(process: Loaded, environment: dict[str, str], needers: dict[str, Needs]) -> list[str]:
    ours = [one for one in process.libraries if one.stretto]
    theirs = [one for one in process.libraries if one.stretto is False]
    remarks = [_about_needer(path, needs, environment, bool(theirs and not ours)) for path, needs in needers.items()]
    remarks += [
        f"LD_PRELOAD names {wanted}, which is not loaded: is the path right, and visible where the process runs?"
        for wanted in re.split(r"[ :]+", environment.get("LD_PRELOAD", ""))
        if is_nccl(wanted) and not any(Path(one.path).name == Path(wanted).name for one in process.libraries)
    ]
    remarks += [
        f"{one.path} cannot be read any more; it was replaced or removed since it was loaded."
        for one in process.libraries
        if one.stretto is None
    ]
    if ours and theirs:
        remarks.append(
            "Both are loaded. That is as it should be when Stretto was loaded first and handed a communicator over to "
            "NVIDIA's (NCCL_DEBUG=INFO says so). Loaded the other way round, programs use NVIDIA's: `stretto doctor "
            "--nccl -- COMMAND` tells the order."
        )
    elif theirs:
        remarks.append(
            "NVIDIA's is in use. For Stretto set LD_PRELOAD to its libnccl.so.2 (`stretto info` says where it lies), "
            "or import stretto.nccl before torch, cupy and the like."
        )
    elif not process.libraries:
        remarks.append("No libnccl is loaded (yet): most programs load it when they import or first use it.")
    return [remark for remark in remarks if remark]


def _about_needer(path: str, needs: Needs, environment: dict[str, str], wants: bool) -> str:
    if not wants:
        return ""
    if needs.rpath is not None and needs.runpath is None:
        ignored = " LD_LIBRARY_PATH, which is set, has no say in this." if "LD_LIBRARY_PATH" in environment else ""
        return f"{path} is linked to {SONAME} and has a DT_RPATH, which goes before LD_LIBRARY_PATH.{ignored}"
    return f"{path} is linked to {SONAME} and is what had it loaded."


# ---- What a command loads ---------------------------------------------------------------------------------------

_REQUEST = re.compile(r"\tfile=(\S+) \[\d+\];  (?:needed|dynamically loaded) by (.+) \[\d+\]$")
_INIT = re.compile(r"\tcalling init: (.+)$")


def trace(command: list[str], environment: dict[str, str] | None = None) -> tuple[int, list[Loaded]]:
    """Runs a command, with the loader writing down what it does; its status, and what each of its processes that
    loaded a libnccl had, in the order of loading. OSError if it cannot be started."""
    with tempfile.TemporaryDirectory(prefix="stretto-doctor-") as folder:
        inherited = dict(os.environ if environment is None else environment)
        inherited.update(LD_DEBUG="files", LD_DEBUG_OUTPUT=f"{folder}/loader")
        status = subprocess.run(command, env=inherited, check=False).returncode
        logs = sorted(Path(folder).glob("loader.*"), key=lambda log: int(log.suffix[1:]))
        found = [read_log(log, int(log.suffix[1:]), inherited) for log in logs]
    return status, [process for process in found if process.libraries]


def read_log(log: Path, pid: int, environment: dict[str, str]) -> Loaded:
    """What glibc's LD_DEBUG=files has written about one process."""
    asked: dict[str, str] = {}
    libraries: list[Library] = []
    program = ""
    for line in log.read_text(errors="replace").splitlines():
        if request := _REQUEST.search(line):
            asked.setdefault(Path(request[1]).name, request[2])
        elif initialised := _INIT.search(line):
            path = initialised[1]
            if is_nccl(path) and all(one.path != path for one in libraries):
                libraries.append(identify(path, asked_by=asked.get(Path(path).name)))
        elif "\tinitialize program: " in line:
            program = line.partition("\tinitialize program: ")[2]
    process = Loaded(pid, program, libraries, ordered=True)
    needers = {one.asked_by: needs_of(Path(one.asked_by)) for one in libraries if one.asked_by}
    known = {name: value for name, value in environment.items() if name in _VARIABLES and value}
    process.remarks = _remarks(
        process, known, {path: needs for path, needs in needers.items() if SONAME in needs.needed}
    )
    return process

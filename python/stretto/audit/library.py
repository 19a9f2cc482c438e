"""Checks of the file that --library names: any libnccl.so.2, without a GPU. What it does on GPUs is `gpus.beside`."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from stretto.audit import child, libraries
from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.gpu_ranks import rows_by_size
from stretto.audit.progress import HANGS_AFTER
from stretto.audit.words import bytes_text, microseconds
from stretto.bench.measure import SUBJECT
from stretto.loaded import SONAME, identify, needs_of

_MACHINES = {62: "x86_64", 183: "aarch64"}
_LOAD_SECONDS = 60.0
# How many times slower than another build of the same library nothing but a fault makes this one.
_BESIDE = 3.0
# Prints the version that it says and the files that came with it, or why it is not loaded. A library may print too,
# when it is loaded or when the process ends: what counts is the line with the mark, and the process ends at once.
_MARK = "stretto audit: "
_LOAD = (
    f"""
import ctypes, json, os, sys
def say(**what):
    os.write(1, ("\\n{_MARK}" + json.dumps(what) + "\\n").encode())
    os._exit(0)
"""
    + """
def files():
    return {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if ".so" in line}
before = files()
try:
    library = ctypes.CDLL(sys.argv[1])
    version = ctypes.c_int()
    status = library.ncclGetVersion(ctypes.byref(version))
    say(version=version.value, status=status, files=sorted(files() - before))
except (OSError, AttributeError) as problem:
    say(problem=str(problem))
"""
)


@dataclass(frozen=True)
class Loading:
    """What happens when a process loads the file."""

    problem: str = ""
    version: str = ""
    files: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def load(file: Path) -> Loading:
    """In a process of its own, which a constructor of the library may end or print from."""
    try:
        done = child.run([sys.executable, "-c", _LOAD, str(file)], _LOAD_SECONDS, quiet=HANGS_AFTER)
    except subprocess.TimeoutExpired as late:
        return Loading(f"a process that loads it did not end within {late.timeout:g} s")
    said = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
    try:
        (line,) = said
        answer = json.loads(line)
    except ValueError:
        return Loading(f"the process ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    if "problem" in answer or answer["status"] != 0:
        return Loading(answer.get("problem") or f"ncclGetVersion ends with {answer['status']}")
    return Loading("", version_text(answer["version"]), tuple(answer["files"]))


def version_text(code: int) -> str:
    """ "2.28.9" of 22809, as ncclGetVersion says it: of 2.9 and later with two digits for each part."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


@check("library.file", "what the file is", Severity.ERROR)
def file(context: Context) -> Iterator[Finding]:
    """Programs look for a name, and the linker for the machine's code; a file that has neither is found by nobody."""
    library = context.library
    if library is None:
        return
    with library.open("rb") as opened:
        head = opened.read(20)
    machine = _MACHINES.get(int.from_bytes(head[18:20], "little"), "another machine")
    if head[:5] != b"\x7fELF\x02" or machine != platform.machine():
        is_code = head[:4] == b"\x7fELF"
        yield error(
            f"{library} is {'code for ' + machine if is_code else 'no library'}",
            f"a shared library for {platform.machine()}",
            subject=str(library),
            certainty="possible",
            cause="a package for another machine, or a file that was cut off or is a linker script",
            next_step="pip install nvidia-nccl-cu13 here, or build it on this machine",
        )
        return
    soname = needs_of(library).soname
    if soname != SONAME:
        yield warning(
            f"{libraries.words(library)} calls itself {soname or 'nothing'}",
            f"{SONAME}, the name that programs are linked to",
            subject=str(library),
            certainty="possible",
            cause="it was linked without -soname, or is another library",
            next_step=f"LD_PRELOAD={library} has no effect on programs that look for {SONAME}; link it with its name",
        )
    else:
        yield ok(libraries.words(library), subject=str(library))


@check("library.needs", "which libraries it needs itself", Severity.ERROR)
def needs(context: Context) -> Iterator[Finding]:
    """By the linker's rules, as for a program that loads it: what it does not find ends the program at its start."""
    if context.library is None:
        return
    names = needs_of(context.library).needed
    found = {name: libraries.find(name, context.library, context.environment) for name in names}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        yield error(
            f"{context.library} needs {', '.join(missing)}, and nothing here has that name",
            f"{', '.join(found)}",
            certainty="possible",
            cause="a library that it was built with is not installed, or its folder is on no search path",
            next_step="install what has it; LD_LIBRARY_PATH names its folder",
        )
    else:
        yield ok(", ".join(f"{name} is {place}" for name, place in found.items()) or "nothing")


@check("library.loads", "whether a process here can load it", Severity.ERROR)
def loads(context: Context) -> Iterator[Finding]:
    """A file that is whole may still be for a newer C library, or end the process that loads it."""
    if context.library is None:
        return
    loading = load(context.library)
    written = identify(str(context.library.resolve()))
    if loading.problem:
        yield error(
            f"{context.library} is not loaded: {loading.problem}",
            "a library that is loaded and says its version",
            certainty="possible",
            cause="it was built for a newer C library or CUDA than is here, or is no NCCL",
            next_step=f"ldd -v {context.library}; use a build for this system",
        )
    elif not written.stretto and written.version and loading.version not in written.version:
        yield warning(
            f"it says that it is {loading.version}, and {written.version} is written in it",
            "one version",
            certainty="possible",
            cause="it passes calls on to another library, or was changed",
            next_step="see the files that it loads: " + ", ".join(loading.files),
        )
    else:
        yield ok(f"it speaks NCCL {loading.version}; with it come {', '.join(loading.files)}")


@check("library.functions", "its functions, against those of this package's library", Severity.WARNING)
def functions(context: Context) -> Iterator[Finding]:
    """Who is linked to a function that the file does not have fails when it is loaded, or at the first call; which
    programs here that are says environment.missing-symbols."""
    if context.library is None:
        return
    import stretto

    theirs = offered(context.library)
    ours = offered(stretto.nccl_library_path())
    lacks, more = sorted(ours - theirs), sorted(theirs - ours)
    text = f"{len(theirs)} functions of nccl.h; this package's has {len(ours)}"
    if "ncclAllReduce" not in theirs:
        yield warning(
            f"{context.library} has no ncclAllReduce; it has {text}",
            "a library with NCCL's functions",
            certainty="possible",
            cause="another library under this name, or one whose symbols were stripped or hidden",
            next_step=f"nm -D {context.library} | grep ncclAllReduce",
        )
    elif lacks or more:
        differs = [f"it lacks {_some(lacks)}"] if lacks else []
        differs += [f"it has {_some(more)} beside"] if more else []
        yield note(
            f"{text}; {'; '.join(differs)}",
            "the same functions",
            cause="another version of NCCL's interface",
            next_step="nothing, unless a program needs one of those: environment.missing-symbols",
        )
    else:
        yield ok(f"{text}, the same")


@check("library.speed", "five collectives of CPU ranks, against this package's library", Severity.WARNING)
def speed(context: Context) -> Iterator[Finding]:
    """Of another build of Stretto, such as one of before a change: both run in turns, by the same program, and every
    result is verified. NVIDIA's NCCL has no ranks in host memory; gpus.beside has it."""
    contest = context.beside_on_cpus
    if contest is None:
        return
    for name, reason in contest.failures.items():
        yield warning(
            f"without {name}: {reason.splitlines()[0]}",
            "a library whose ranks run here",
            subject=name,
            certainty="possible",
            cause="the file is cut off, was built for another system, or the ranks were refused something",
            next_step=f"LD_PRELOAD={context.library} stretto bench all_reduce says more",
        )
    noise = statistics.median(row["us_median"] / row["us_min"] for row in contest.rows)
    for collective in dict.fromkeys(row["collective"] for row in contest.rows):
        own = [row for row in contest.rows if row["collective"] == collective]
        sizes = {size: rows for size, rows in rows_by_size(own).items() if len(rows) == 2}
        if sizes:
            yield _compared(collective, sizes, noise)


def _compared(collective: str, sizes: dict[int, dict[str, Any]], noise: float) -> Finding:
    (ours, theirs) = (SUBJECT, next(name for name in next(iter(sizes.values())) if name != SUBJECT))
    wrong = [f"{name} at {bytes_text(size)}" for size, rows in sizes.items() for name in rows if rows[name]["wrong"]]
    if wrong:
        return error(
            f"{collective}: wrong elements by {', '.join(wrong)}",
            "none",
            subject=collective,
            certainty="possible",
            cause="a mistake of that library, or data that are changed on their way; see the correctness section",
            next_step="stretto audit --only correctness, with and without LD_PRELOAD of that library",
        )
    times = {size: rows[ours]["us_min"] / rows[theirs]["us_min"] for size, rows in sizes.items()}
    worst = max(times, key=times.__getitem__)
    text = f"{collective}: " + ", ".join(
        f"{bytes_text(size)} {microseconds(rows[ours]['us_min'])} against {microseconds(rows[theirs]['us_min'])}"
        for size, rows in sizes.items()
    )
    if times[worst] > _BESIDE * noise:
        return warning(
            f"{text}; {times[worst]:.1f} times at {bytes_text(worst)}",
            f"no more than {_BESIDE * noise:.1f} times the other's time, at best",
            subject=collective,
            certainty="possible",
            cause="a library in between that one of them alone is behind, or a build that became slower",
            next_step=f"unset LD_PRELOAD, and compare; `stretto explain {collective} {worst}` by each of them",
        )
    return ok(text, subject=collective)


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def offered(file: Path) -> set[str]:
    """Functions of nccl.h; names with a p before them are the same for profilers."""
    return {name for name in libraries.symbols_of(file.resolve()).defined if name.startswith("nccl")}

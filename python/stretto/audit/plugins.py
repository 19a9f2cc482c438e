"""Checks of what libraries here would load beside themselves, and of what they need below: plugins of NCCL and their
versions, and the CUDA of the driver.
"""

from __future__ import annotations

import functools
import mmap
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stretto.audit import child, libraries
from stretto.audit.context import Context
from stretto.audit.environment import users_of
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.loaded import SONAME

_LIBCUDA = "libcuda.so.1"
_COMPAT_FOLDERS = ("usr/local/cuda*/compat", "usr/local/cuda*/targets/*/compat")
_TRY_SECONDS = 60.0
# A library that has not been loaded after so many seconds in which it did nothing waits for something.
_QUIET_SECONDS = 10.0
_DLOPEN = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
_NOT_FILES = ("none", "STATIC_PLUGIN", "ib", "socket", "IB", "Socket")


@dataclass(frozen=True)
class Kind:
    """A kind of plugin. `variable` names one; `file`: how its files begin; `table`: the name of the table that it
    exports, without its version; `ours`: versions that Stretto calls.
    """

    variable: str
    file: str
    table: str
    ours: frozenset[int]

    def exported(self, file: Path) -> frozenset[int]:
        return self._versions(libraries.symbols_of(file.resolve()).defined)

    def called(self, library: Path) -> frozenset[int]:
        return self.ours if libraries.kind_of(library).stretto else self._versions(_tables(library))

    def _versions(self, names: frozenset[str]) -> frozenset[int]:
        found = (re.fullmatch(rf"{self.table}_v(\d+)", name) for name in names)
        return frozenset(int(one[1]) for one in found if one)


PLUGINS = {
    "profiler": Kind("NCCL_PROFILER_PLUGIN", "libnccl-profiler", "ncclProfiler", frozenset(range(5, 8))),
    "net": Kind("NCCL_NET_PLUGIN", "libnccl-net", "ncclNet(?:Plugin)?", frozenset(range(6, 13))),
    "tuner": Kind("NCCL_TUNER_PLUGIN", "libnccl-tuner", "ncclTunerPlugin", frozenset()),
}


@dataclass(frozen=True)
class Loader:
    """A libnccl that loads plugins, and who has loaded it."""

    who: str
    library: Path


def _loaders(context: Context) -> list[Loader]:
    """Each libnccl.so.2 that a program here would get, and this package's, once."""
    import stretto

    found = {stretto.nccl_library_path().resolve(): "this package"}
    for name, file in users_of(context):
        library = libraries.find(SONAME, file, context.environment)
        if library is not None:
            found.setdefault(library.resolve(), name)
    if context.library is not None:
        found.setdefault(context.library.resolve(), "--library")
    return [Loader(who, library) for library, who in found.items()]


_TABLE = re.compile(rb"nccl(?:Profiler|Net|NetPlugin|TunerPlugin)_v\d+\0")


@functools.lru_cache(maxsize=32)
def _tables(library: Path) -> frozenset[str]:
    """The names of plugins' tables that are written in NVIDIA's library, as it looks for these."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
            return frozenset(name[:-1].decode() for name in _TABLE.findall(text))
    except (OSError, ValueError):
        return frozenset()


def _versions(numbers: frozenset[int]) -> str:
    return ", ".join(f"v{number}" for number in sorted(numbers)) or "none"


@check("environment.plugins", "whether the profiler, net and tuner plugins can be loaded", Severity.WARNING)
def plugins(context: Context) -> Iterator[Finding]:
    """A plugin that does not load is left out with one line in a log that is off unless NCCL_DEBUG is set. Each
    libnccl.so.2 that a program here would get looks for it on a search path of its own."""
    for kind, about in PLUGINS.items():
        wanted = context.environment.get(about.variable, "")
        if wanted in _NOT_FILES:
            yield ok(f"{kind}: {about.variable}={wanted}", subject=kind)
            continue
        names = [wanted, f"{about.file}-{wanted}.so"] if wanted else [f"{about.file}.so"]
        seen: set[str] = set()
        for who, name in _files(names, context):
            if name in seen:
                continue
            subject = f"{kind}, {who}" if seen else kind
            seen.add(name)
            yield from _looked_at(kind, subject, [name] if name else names, context)


def _files(names: list[str], context: Context) -> Iterator[tuple[str, str]]:
    """By whom, and which file each libnccl here would load by these names; first by this Python, whose linker may know
    more than its files say (an empty name).
    """
    yield "this Python", ""
    for loader in _loaders(context):
        found = [libraries.find(name, loader.library, context.environment) for name in names if "/" not in name]
        mine = [libraries.find(name, Path(sys.executable), context.environment) for name in names if "/" not in name]
        place = next((one for one in found if one is not None), None)
        if place is not None and place.resolve() not in {one.resolve() for one in mine if one is not None}:
            yield loader.who, str(place)


def _looked_at(kind: str, subject: str, names: list[str], context: Context) -> Iterator[Finding]:
    about = PLUGINS[kind]
    wanted = context.environment.get(about.variable, "")
    try:
        found, why = _load_plugin(names, context)
    except subprocess.TimeoutExpired as hanging:
        yield warning(
            f"{hanging.cmd[-1]} is not loaded within {hanging.timeout:g} s",
            "a library that is loaded in milliseconds",
            subject=subject,
            certainty="possible",
            cause="a constructor of the plugin, or of a library that it needs, waits for something",
            next_step=f"set {about.variable}=none, or mend the plugin: a job that loads it hangs when it starts",
        )
        return
    # A name that only the linker knows the place of is taken on trust.
    bare = Path(found).is_file() and not about.exported(Path(found))
    if found and wanted and bare:
        yield warning(
            f"{about.variable}={wanted}: {found} exports no {about.table.replace('(?:Plugin)?', '')}_v...",
            f"a library with a table of the {kind} interface",
            subject=subject,
            certainty="certain",
            cause="it is no plugin of this kind",
            next_step=f"set {about.variable} to a {kind} plugin, or unset it",
        )
    elif found:
        yield ok(f"{kind}: {found} would be loaded", subject=subject)
    elif wanted or subject != kind:
        yield warning(
            f"{f'{about.variable}={wanted}' if wanted else names[0]} cannot be loaded: {why}",
            f"{names[0]} or {names[-1]} on the linker's search path" if wanted else "a library that the linker takes",
            subject=subject,
            certainty="possible",
            cause="the file is not there, is no library, or needs one that is not there",
            next_step=f"set {about.variable} to the whole path of the plugin; `ldd` says what it needs",
        )
    else:
        yield ok(f"{kind}: none", subject=subject)


def _load_plugin(names: list[str], context: Context) -> tuple[str, str]:
    """The first of the names that the linker takes, as a file where it can be told; else what it says of the first.
    Raises subprocess.TimeoutExpired for one that hangs.
    """
    first, quiet = "", context.quiet(_QUIET_SECONDS)
    for name in names:
        done = child.run([sys.executable, "-c", _DLOPEN, name], _TRY_SECONDS, context.environment, quiet)
        if done.returncode == 0:
            file = name if "/" in name else str(libraries.find(name, Path(sys.executable), context.environment) or name)
            return file, ""
        said = done.stderr.strip().splitlines()
        first = first or (said[-1].removeprefix("OSError: ") if said else f"status {done.returncode}")
    return "", first


@check("environment.plugin-versions", "plugins' tables, against those that each library looks for", Severity.WARNING)
def plugin_versions(context: Context) -> Iterator[Finding]:
    """A plugin exports a table by a name with a version. A library that looks for other versions goes on without the
    plugin, with one line in a log that is off unless NCCL_DEBUG is set."""
    looked_at = 0
    for kind, about in PLUGINS.items():
        wanted = context.environment.get(about.variable, "")
        names = [wanted, f"{about.file}-{wanted}.so"] if wanted else [f"{about.file}.so"]
        for loader in _loaders(context) if wanted not in _NOT_FILES else ():
            places = (libraries.find(name, loader.library, context.environment) for name in names if "/" not in name)
            own = Path(wanted) if "/" in wanted else next((one for one in places if one is not None), None)
            exported = about.exported(own) if own is not None and own.is_file() else frozenset[int]()
            called = about.called(loader.library) if exported else frozenset[int]()
            if own is None or not called:
                continue
            looked_at += 1
            text = (
                f"{kind}: {own} has {_versions(exported)}, and {libraries.words(loader.library)} of {loader.who} "
                f"looks for {_versions(called)}"
            )
            if exported & called:
                yield ok(text, subject=f"{kind}, {loader.who}")
                continue
            older = max(exported) < min(called)
            yield warning(
                text,
                "a version that both have",
                subject=f"{kind}, {loader.who}",
                certainty="certain",
                cause=f"the plugin is {'older' if older else 'newer'} than the library, which goes on without it",
                next_step=f"a {'newer' if older else 'older'} build of the plugin, or {about.variable}=none",
            )
    if not looked_at:
        yield ok("no plugin that a library here would load")


def _compatible(library: Path, context: Context) -> Path | None:
    """The libcuda of NVIDIA's compatibility package, if the linker takes it for this library."""
    found = libraries.find(_LIBCUDA, library, context.environment)
    return found if found is not None and "compat" in found.parts else None


def _too_new(text: str, loader: Loader, majors: tuple[int, int], context: Context) -> Finding:
    """Of a library of the first CUDA, where the driver has the second."""
    compatible = _compatible(loader.library, context)
    if compatible is not None:
        return ok(f"{text}; {compatible} stands before the driver's", subject=str(loader.library))
    beside = [file for folder in _COMPAT_FOLDERS for file in sorted(Path("/").glob(f"{folder}/{_LIBCUDA}"))]
    others = {
        name
        for python in context.pythons
        if python.path.parent.resolve() != Path(sys.executable).parent.resolve()
        for name, _ in python.users
    }
    # Nobody knows whether another Python is meant for GPUs, or what it is started with.
    return (warning if loader.who in others else error)(
        text,
        f"a library of CUDA {majors[1]} or older, or a driver of CUDA {majors[0]} or newer",
        subject=str(loader.library),
        certainty="likely",
        cause="the driver is older than the library: CUDA says that the driver version is insufficient, unless the "
        f"program finds a {_LIBCUDA} of the package cuda-compat, which is on no search path here",
        next_step=f"nvidia-nccl-cu{majors[1]} in place of it, a newer driver, or "
        + (f"{beside[0].parent} on LD_LIBRARY_PATH" if beside else "the package cuda-compat"),
    )


_CUDA = re.compile(r"\+cuda(\d+)\.(\d+)")


@check("environment.cuda", "the CUDA that each libnccl.so.2 was built with, against the driver's", Severity.ERROR)
def cuda(context: Context) -> Iterator[Finding]:
    """A driver runs programs of its own CUDA and of older ones. Of a newer one it runs those of the same major version,
    and refuses the others when the first communicator is made, unless NVIDIA's compatibility package is there."""
    driver = context.facts.driver_cuda
    if driver is None:
        yield ok("no NVIDIA driver that says its CUDA")
        return
    has = f"{driver // 1000}.{driver % 1000 // 10}"
    for loader in _loaders(context):
        written = _CUDA.search(libraries.kind_of(loader.library).version or "")
        if written is None:
            continue
        major, minor = int(written[1]), int(written[2])
        text = f"{loader.library} of {loader.who} is built with CUDA {major}.{minor}, and the driver has {has}"
        if major > driver // 1000:
            yield _too_new(text, loader, (major, driver // 1000), context)
        elif (major, minor) > (driver // 1000, driver % 1000 // 10):
            yield note(
                text,
                "a driver at least as new as the library",
                subject=str(loader.library),
                cause="of one major version, newer libraries run on older drivers without what the driver lacks",
                next_step="nothing, unless a function is refused; then a newer driver",
            )
        else:
            yield ok(text, subject=str(loader.library))

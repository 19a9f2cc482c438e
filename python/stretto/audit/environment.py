"""Checks of what programs here would load, and of the variables that decide it."""

from __future__ import annotations

import difflib
import filecmp
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from stretto.audit import child, libraries
from stretto.audit.context import Context
from stretto.audit.finding import Finding, Severity, check, error, note, ok, warning
from stretto.audit.nccl_variables import KNOWN
from stretto.interfaces import matching
from stretto.loaded import SONAME, identify

_TRY_SECONDS = 60.0
# Two rank threads and one operation: all that a variable can forbid is refused here, in the library's own words.
_TRY = """
import stretto
import numpy
stretto.threads(2, lambda comm: comm.all_reduce(numpy.ones(4, "float32")))
"""


def users_of(context: Context) -> list[tuple[str, Path]]:
    """Whatever here is linked to libnccl.so.2: its name and its file."""
    found = [user for python in context.pythons for user in python.users]
    for program in context.programs:
        found += [(str(program), file) for file in libraries.needers(program, context.environment)]
    return found


@check("environment.loaded", "which libnccl.so.2 each Python, torch and program would load", Severity.ERROR)
def loaded(context: Context) -> Iterator[Finding]:
    """The dynamic linker's rules decide it, and a search path inside the program goes before LD_LIBRARY_PATH."""
    users = users_of(context)
    for name, file in users:
        library = libraries.find(SONAME, file, context.environment)
        if library is None:
            yield error(
                f"{name} finds no {SONAME}",
                f"a {SONAME}, which {file} is linked to",
                subject=name,
                certainty="possible",
                cause="it is not installed, or its folder is on no search path",
                next_step="pip install nvidia-nccl-cu13, or set LD_PRELOAD to Stretto's (`stretto info` says "
                "where it is)",
            )
        else:
            yield ok(f"{name} loads {libraries.words(library)}", subject=name)
    if not users:
        yield ok(
            f"none of {len(context.pythons)} Pythons and {len(context.programs)} programs here is linked to {SONAME}"
        )


@check(
    "environment.missing-symbols", "functions that a program needs and its libnccl.so.2 does not have", Severity.ERROR
)
def missing_symbols(context: Context) -> Iterator[Finding]:
    """A library that is older than its user fails when it is loaded (PyTorch 2.14 and later need NCCL 2.30), or in the
    middle of a run. --library FILE says what a library that is not loaded yet would miss."""
    for name, file in users_of(context):
        library = context.library or libraries.find(SONAME, file, context.environment)
        if library is None:
            continue
        missing = sorted(libraries.symbols_of(file).wanted - libraries.symbols_of(library.resolve()).defined)
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            yield error(
                f"{libraries.words(library)} lacks {', '.join(missing[:3])}{more}, which {name} needs",
                f"all {len(libraries.symbols_of(file).wanted)} functions that {file} imports",
                subject=name,
                certainty="certain",
                cause=f"the library is older than what {name} was built for",
                next_step="use a newer libnccl.so.2: NVIDIA's that the package requires, or Stretto's",
            )
        else:
            yield ok(f"{name}: {libraries.words(library)} has all that it needs", subject=name)


@check("environment.two-libraries", "several libnccl.so.2 on the search path", Severity.WARNING)
def two_libraries(context: Context) -> Iterator[Finding]:
    """Programs may get different ones, and one process may load both: then names are bound to whichever came first."""
    found = libraries.reachable(context.environment)
    contents = {(identify(str(path)).stretto, identify(str(path)).version, path.stat().st_size) for path in found}
    listed = "; ".join(f"{libraries.words(path)} by {way}" for path, way in found.items())
    if len(contents) > 1:
        yield warning(
            listed,
            f"one {SONAME} that a program without a search path of its own can get",
            certainty="certain",
            cause="several installations on LD_PRELOAD, LD_LIBRARY_PATH and the system's folders; the first one "
            "listed wins",
            next_step="take all but one out of LD_LIBRARY_PATH; `stretto doctor --nccl -- COMMAND` says what a "
            "program takes",
        )
    else:
        yield ok(listed or f"no {SONAME} on LD_PRELOAD, LD_LIBRARY_PATH or in the system's folders")


@check("environment.stale-library", "another build of Stretto before the installed one", Severity.WARNING)
def stale_library(context: Context) -> Iterator[Finding]:
    """LD_LIBRARY_PATH goes before the package's own search path, so that even `import stretto` would run the other
    one."""
    import stretto

    own = stretto.library_path().resolve()
    stale = []
    for folder in libraries.library_folders(context.environment):
        for name in ("libstretto.so.0", "libstretto.so", SONAME):
            path = folder / name
            if path.is_file() and identify(str(path.resolve())).stretto and not _same_build(path, own):
                stale.append(path)
    if stale:
        yield warning(
            f"{libraries.words(stale[0])} stands on LD_LIBRARY_PATH",
            f"the installed {libraries.words(own)}",
            subject=str(stale[0]),
            certainty="certain",
            cause="an older build was left there: what is measured below is that one, where programs take it",
            next_step=f"take {stale[0].parent} out of LD_LIBRARY_PATH, or install the package that is wanted there",
        )
    else:
        yield ok(f"no other build than {libraries.words(own)}")


def _same_build(one: Path, own: Path) -> bool:
    """A package has its library under two names, one of which is its own file."""
    if one.resolve().parent == own.parent:
        return True
    return any(filecmp.cmp(one, file, shallow=False) for file in own.parent.glob("lib*.so*"))


@check("environment.preload", "files that LD_PRELOAD names", Severity.WARNING)
def preload(context: Context) -> Iterator[Finding]:
    """The linker says one line about a file that is not there, and goes on without it."""
    names = libraries.preloaded(context.environment)
    gone = [name for name in names if "/" in name and not Path(name).is_file()]
    if gone:
        yield warning(
            f"LD_PRELOAD names {gone[0]}, which is not there",
            "files that exist, on this host and in the container",
            subject=gone[0],
            certainty="possible",
            cause="a path of another machine, or a package that was removed: programs get what they would get "
            "without it",
            next_step="set LD_PRELOAD to `python -c 'import stretto; print(stretto.nccl_library_path())'`, or unset it",
        )
    else:
        yield ok(f"LD_PRELOAD: {' '.join(names) or 'not set'}")


@check("environment.unknown-variables", "variables that nothing reads", Severity.WARNING)
def unknown_variables(context: Context) -> Iterator[Finding]:
    """A misspelt variable has no effect and nobody says so."""
    import stretto

    known = {one["name"] for one in stretto.parameters()["parameters"]} | {name for name, _ in _python_variables()}
    known |= {"STRETTO_BENCH_DRIVERS"}
    bad = 0
    for name in sorted(context.environment):
        if name in known or name in KNOWN or not name.startswith(("STRETTO_", "NCCL_")):
            continue
        close = difflib.get_close_matches(name, [*known, *KNOWN], 1, 0.8)
        guess = f"; did you mean {close[0]}?" if close else ""
        measured = f"{name} is set, and nothing here reads it{guess}"
        if name.startswith("NCCL_") and not close:
            bad += 1
            yield note(measured, "variables of NCCL 2.32 or Stretto", subject=name, certainty="possible")
            continue
        bad += 1
        yield warning(
            measured,
            "a variable in `stretto info`'s list, or of NCCL 2.32",
            subject=name,
            certainty="possible",
            cause="a misspelling, or a variable of another version",
            next_step=f"rename it to {close[0]}" if close else f"unset {name}",
        )
    if not bad:
        yield ok("every STRETTO_ and NCCL_ variable that is set is known")


def _python_variables() -> tuple[tuple[str, str], ...]:
    from stretto import launch

    return launch.VARIABLES


def sentence_of(said: list[str]) -> str:
    """What the exception of a traceback says first: more lines of it may follow."""
    named = [line for line in said if re.match(r"[A-Za-z_][\w.]*: ", line)]
    return (named or said)[-1].partition(": ")[2] or said[-1]


@check("environment.refused-variables", "whether the library takes the variables that are set", Severity.ERROR)
def refused_variables(context: Context) -> Iterator[Finding]:
    """Two rank threads are tried with this environment: what a variable forbids, or names in vain, is refused by
    name."""
    context.say("trying two ranks with this environment")
    # No flight recorder stays of ranks that hang and are killed: `stretto doctor` would take them for a job.
    environment = {"STRETTO_INIT_TIMEOUT": "30", "STRETTO_FLIGHT_DIR": "none", **context.environment}
    if environment.get("STRETTO_DEVICE", "cuda") == "cuda":
        environment["STRETTO_DEVICE"] = "cpu"  # NumPy's arrays are memory of the host, also where there are GPUs
    try:
        done = child.run([sys.executable, "-c", _TRY], _TRY_SECONDS, environment, context.quiet(_TRY_SECONDS))
    except subprocess.TimeoutExpired as late:
        yield error(
            f"two ranks did not end an all-reduce within {late.timeout:g} s",
            "a few milliseconds",
            certainty="possible",
            cause="the environment, such as a plugin that waits for something, or a machine that runs nothing",
            next_step="run `NCCL_DEBUG=INFO stretto audit --only environment` and read what the ranks wait for",
        )
        return
    said = [line for line in done.stderr.strip().splitlines() if line.strip()]
    if done.returncode == 0:
        yield ok("two ranks run with this environment")
        return
    if done.returncode < 0:
        last = f"killed by signal {-done.returncode}"
    else:
        last = sentence_of(said) if said else f"status {done.returncode}"
    names = [
        name for name in context.environment if name.startswith(("STRETTO_", "NCCL_", "LD_")) and name in done.stderr
    ]
    yield error(
        f"two ranks cannot run with this environment: {last}",
        "an all-reduce of two rank threads",
        subject=", ".join(names),
        certainty="certain",
        cause=f"the value of {', '.join(names)}" if names else "see the sentence of the library",
        next_step=f"unset or mend {', '.join(names)}" if names else "mend what the sentence says",
    )


_PAIRS = (
    ("STRETTO_PROTO", "STRETTO_ALGO", False, "a protocol belongs to an algorithm, and none is forced"),
    ("STRETTO_TABLE", "STRETTO_ALGO", True, "the forced algorithm wins, and the table has no say"),
    ("STRETTO_TOPO_FILE", "STRETTO_TOPO_DUMP", True, "what is written is what was read, not what is here"),
)
_FORCING = ("STRETTO_ALGO", "STRETTO_PROTO", "STRETTO_LINK", "STRETTO_SPIN", "STRETTO_SLOT_BYTES", "STRETTO_CPU")


@check("environment.contradictions", "variables that contradict each other or the machine", Severity.WARNING)
def contradictions(context: Context) -> Iterator[Finding]:
    """Each is right by itself; together one of them has no effect."""
    values = {name: value for name, value in context.environment.items() if value}
    found = [
        (f"{one} is set {'beside' if both else 'without'} {other}", why, one)
        for one, other, both, why in _PAIRS
        if one in values and (other in values) == both
    ]
    if values.get("STRETTO_DEVICE") == "cuda" and not context.facts.driver:
        found.append(("STRETTO_DEVICE=cuda", "there is no NVIDIA driver on this machine", "STRETTO_DEVICE"))
    if values.get("NCCL_PROFILER_PLUGIN") == "none" and "STRETTO_PROFILE_EVERY" in values:
        found.append(
            ("STRETTO_PROFILE_EVERY beside NCCL_PROFILER_PLUGIN=none", "nobody is told", "STRETTO_PROFILE_EVERY")
        )
    if _seconds(values, "STRETTO_WARN_AFTER", 10) > _seconds(values, "STRETTO_TIMEOUT", 1800):
        found.append(
            ("STRETTO_WARN_AFTER above STRETTO_TIMEOUT", "a wait gives up before it is told of", "STRETTO_WARN_AFTER")
        )
    for measured, why, name in found:
        yield warning(
            measured,
            "variables that can all have an effect",
            subject=name,
            certainty="certain",
            cause=why,
            next_step=f"unset {name} or mend it",
        )
    forced = [name for name in _FORCING if name in values]
    if forced:
        yield note(
            f"{', '.join(f'{name}={values[name]}' for name in forced)}: the planner does not choose freely",
            "the planner's own choice",
            subject=", ".join(forced),
            next_step="what is measured below is with it; unset it for the machine's own speed",
        )
    if not found and not forced:
        yield ok("no variable contradicts another one or the machine")


def _seconds(values: dict[str, str], name: str, otherwise: float) -> float:
    try:
        return float(values.get(name, otherwise))
    except ValueError:
        return otherwise


@check("environment.interface", "the interface that NCCL_SOCKET_IFNAME names", Severity.ERROR)
def interface(context: Context) -> Iterator[Finding]:
    """Ranks of other hosts reach this one there; a name that fits nothing ends the job when it starts."""
    wanted = context.environment.get("NCCL_SOCKET_IFNAME", "")
    names = [nic.name for nic in context.facts.nics] + ["lo"]
    if not wanted:
        yield ok("NCCL_SOCKET_IFNAME is not set")
    elif not matching(wanted, names):
        yield error(
            f"NCCL_SOCKET_IFNAME={wanted} fits none of {', '.join(names)}",
            "the name, or the beginning of the name, of an interface of this host",
            subject=wanted,
            certainty="certain",
            cause="interfaces have other names on this host than on the one that the value is from",
            next_step="set it to one of those, or unset it",
        )
    else:
        yield ok(f"NCCL_SOCKET_IFNAME={wanted}: {', '.join(matching(wanted, names))}")


@check("environment.configuration", "NCCL's configuration files", Severity.NOTE)
def configuration(context: Context) -> Iterator[Finding]:
    """They set variables that no environment shows; NVIDIA's NCCL reads them, Stretto does not."""
    home = context.environment.get("HOME", "")
    files = [Path(context.environment.get("NCCL_CONF_FILE", "") or f"{home}/.nccl.conf"), Path("/etc/nccl.conf")]
    for file in files:
        if file.is_file():
            lines = [line for line in file.read_text(errors="replace").splitlines() if "=" in line and line[:1] != "#"]
            yield note(
                f"{file} sets {', '.join(line.partition('=')[0].strip() for line in lines) or 'nothing'}",
                "variables in the environment, where every program sees them",
                subject=str(file),
                next_step="remember it when NVIDIA's NCCL behaves otherwise than its environment says",
            )
    if not any(file.is_file() for file in files):
        yield ok("there are none")


@check("environment.kernels", "whether the package fits the machine's GPUs", Severity.WARNING)
def kernels(context: Context) -> Iterator[Finding]:
    """A package that was built without nvcc serves ranks in host memory only."""
    import stretto

    built = stretto.build()
    if context.facts.gpus and not built["cuda"]:
        yield warning(
            f"{len(context.facts.gpus)} GPUs, and a package without GPU kernels",
            "kernels for the GPUs of this machine",
            certainty="certain",
            cause="it was built where there was no nvcc",
            next_step="install a wheel with kernels, or build with CUDA 12.4 or newer (docs/installing.md)",
        )
    else:
        yield ok("no GPUs" if not context.facts.gpus else f"kernels for {json.dumps(built['kernels'])}")

"""Running a command with the profiler plugin, so that each of its processes that uses NCCL or Stretto leaves a file."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stretto.errors import InvalidArgument, InvalidUsage
from stretto.trace import layout
from stretto.trace.raw import BadRecording
from stretto.trace.summary import document, library_text

WORDS = ("none", "api", "default", "net", "timing", "all", *(layout.TYPE_NAMES[bit] for bit in range(16)))
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What --signal takes: signals that nobody uses to end a program.
SIGNALS = {"USR1": signal.SIGUSR1, "USR2": signal.SIGUSR2, "HUP": signal.SIGHUP}
_PR_SET_PDEATHSIG = 1
_COUNT_UP_TO = 2 << 30  # bytes: what is larger is not counted through at the end
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Options:
    """What `stretto trace record` was asked for."""

    folder: Path
    plugin: Path
    events: str | None = None
    flight: bool = False
    chain: str | None = None
    every: int | None = None
    force: bool = False
    after: float | None = None
    seconds: float | None = None
    on_demand: bool = False
    each: float | None = None
    signal: str | None = None

    def check(self) -> None:
        """Raises where recording could not work, before anything runs."""
        if not self.plugin.is_file():
            raise InvalidUsage(
                f"the profiler plugin is not at {self.plugin}: this installation was built without it; build it with "
                "`make build`, or name one with --plugin"
            )
        if self.events is not None and not _known(self.events):
            raise InvalidArgument(f"--events {self.events}: a number up to 0xffff, or words of: {', '.join(WORDS)}")
        if self.chain is not None and (problem := _problem_of_plugin(self.chain)):
            raise InvalidArgument(f"--chain {self.chain}: {problem}")
        self._check_windows()
        if not self.force and self._old():
            raise InvalidArgument(f"{self.folder} holds a recording already: choose another --output, or --force")

    def _check_windows(self) -> None:
        known = any(one is not None for one in (self.after, self.seconds, self.each))
        if self.on_demand and known:
            raise InvalidArgument(
                "--on-demand records nothing until `stretto trace window` asks: no --after, --for or --each"
            )
        if self.signal is not None and (known or self.on_demand):
            raise InvalidArgument(
                "--signal records from one signal to the next: no --after, --for, --each, --on-demand"
            )
        if self.signal is not None and self.signal not in SIGNALS:
            raise InvalidArgument(f"--signal {self.signal}: one of {', '.join(SIGNALS)}")
        if self.each is not None and not 0 < (self.seconds or 0) < self.each:
            raise InvalidArgument("--each S records --for seconds of each S: it needs a --for that is shorter")
        if self.chain is not None and (known or self.on_demand or self.signal is not None):
            raise InvalidArgument(
                "--chain: a second plugin hears everything all the time: no --after, --for, --each, --on-demand or "
                "--signal"
            )

    def _old(self) -> list[Path]:
        return list(self.folder.glob("*.rec")) if self.folder.is_dir() else []

    def remove_old(self) -> None:
        """With --force, the recording that the folder holds; nothing else in it."""
        for file in self._old():
            file.unlink()

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """The command's variables; its children inherit them."""
        made = {**outer, "NCCL_PROFILER_PLUGIN": str(self.plugin), "STRETTO_TRACE_DIR": str(self.folder)}
        if self.events is not None:
            made["STRETTO_TRACE_EVENTS"] = self.events
        if self.flight:
            made["STRETTO_TRACE_MODE"] = "flight"
        if self.every is not None:
            made["STRETTO_PROFILE_EVERY"] = str(self.every)
        if self.on_demand or self.signal is not None:
            made["STRETTO_TRACE_AFTER"] = "never"
        for variable, seconds in (("AFTER", self.after), ("FOR", self.seconds), ("EACH", self.each)):
            if seconds is not None:
                made[f"STRETTO_TRACE_{variable}"] = str(seconds)
        if self.chain is not None:
            path = Path(self.chain)
            made["STRETTO_TRACE_CHAIN"] = str(path.resolve()) if path.exists() else self.chain
        return made


def _known(events: str) -> bool:
    try:
        return 0 <= int(events, 0) <= 0xFFFF
    except ValueError:
        return all(word.lower() in [one.lower() for one in WORDS] for word in events.split(","))


def _problem_of_plugin(name: str) -> str | None:
    """Why a library cannot be loaded, in the loader's words; tried in a process of its own, which it may end."""
    path = str(Path(name).resolve()) if Path(name).exists() else name
    code = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as error: sys.exit(str(error))"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return done.stderr.strip() or f"a process that loads it ends with status {done.returncode}"


def default_folder() -> Path:
    return Path(time.strftime("stretto-trace-%Y%m%d-%H%M%S"))


def run_command(words: list[str], environment: dict[str, str], on_signal: Mapping[int, Callable[[], None]]) -> int:
    """Runs it to its end with our stdin, stdout and stderr; returns its status as a shell counts it.

    Signals that somebody sends us are passed on, but for those of `on_signal`. Those of the terminal are not: the
    command has had them already.
    """
    parent = os.getpid()
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    try:
        process = subprocess.Popen(words, env=environment, preexec_fn=prepare)
        while process.poll() is None:
            came = signal.sigtimedwait(watched, 1.0)
            if came is None or came.si_signo == signal.SIGCHLD:
                continue
            if came.si_signo in on_signal:
                on_signal[came.si_signo]()
            elif came.si_code <= 0:
                process.send_signal(came.si_signo)
        return 128 - process.returncode if process.returncode < 0 else process.returncode
    finally:
        while signal.sigtimedwait(watched, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def python_command(words: list[str]) -> list[str]:
    """A .py file is run by this Python; everything else as it stands."""
    return [sys.executable, *words] if words[0].endswith(".py") else words


def summary(folder: Path) -> dict[str, Any]:
    """What was recorded: the JSON "stretto.trace.info/1", or why there is nothing."""
    files = list(folder.glob("*.rec"))
    if not files:
        return {"processes": [], "why": why_nothing()}
    size = sum(file.stat().st_size for file in files)
    try:
        found = document([folder], count=size <= _COUNT_UP_TO)
    except BadRecording as error:
        return {"processes": [], "why": [str(error)]}
    found["why"] = why_empty(found) if found["events"] == 0 else []
    return found


def why_nothing() -> list[str]:
    """No process wrote a file: the plugin was never initialized."""
    return [
        "No process of the command loaded the profiler plugin. One of these is so:",
        "- it made no communicator of two or more ranks, or ended before;",
        "- its NCCL is older than 2.23, which has no profiler plugins (NCCL_DEBUG=INFO makes it say its version);",
        "- it ran where the environment does not reach: another host, a container, `env -i`, `sudo`;",
        "- the plugin could not be loaded or the folder not be written: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL says so.",
    ]


def why_empty(found: dict[str, Any]) -> list[str]:
    """There are files, and no event in any."""
    processes = found["processes"]
    errors = sorted({one["error"] for one in processes if one["error"]})
    if errors:
        return [f"Recording ended early: {', '.join(errors)}."]
    if all(one["mask"] == 0 for one in processes):
        return ["The mask of events is 0: give --events default, or leave it out."]
    libraries = ", ".join(sorted({library_text(one) for one in processes}))
    return [
        f"The plugin was loaded ({libraries}), and no event of the mask came: communicators of one rank, and "
        "replays of CUDA graphs without KernelCh, report none. --events all records every type there is.",
    ]

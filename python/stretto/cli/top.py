"""`stretto top`: what the ranks of a running job do, live."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from stretto.cli.flags import finite, flag
from stretto.cli.hosts import REMOTE_SHELL
from stretto.cli.output import JsonOption, console, emit, examples, say, stop
from stretto.cli.reach import HOSTS_PANEL, REACH_FLAGS, Reach, refuse_reach_options

_SHOWN = "What is shown"
SETTINGS = {
    "epilog": examples(
        "stretto top",
        "stretto top $(pgrep -f 'stretto run') --sort waited",
        "stretto top 4711 --filter state:wait",
        "stretto top 4711 --once --json -",
        "stretto top --hosts node1,node2",
    )
}


def _view(sort: str, reverse: bool, words: str, interval: float) -> Any:
    from stretto.top.screen import View
    from stretto.top.table import column_named, filter_of

    try:
        filter_of(words)
        return View(column_named(sort), reverse, words, interval=interval)
    except ValueError as error:
        stop(f"top: {error}")


def _print(sample: dict[str, Any], view: Any) -> None:
    from stretto.top.screen import body

    width = console.width if console.width else shutil.get_terminal_size().columns
    for line in body(sample, view, width):
        typer.echo("".join(text for text, _ in line).rstrip())


@contextlib.contextmanager
def _over_hosts(reach: Reach) -> Iterator[Any]:
    """A watcher of the jobs of these hosts. One that cannot be reached hides no other."""
    from stretto.cli.crew import agents
    from stretto.cli.working import Working
    from stretto.top.hosts import HostsWatcher

    with agents("top", "stretto.top.member", reach) as crew:
        with Working("reaching the hosts"):
            watcher = HostsWatcher(crew)
        yield watcher


@contextlib.contextmanager
def _here(pid: int | None) -> Iterator[Any]:
    from stretto.top.watcher import Watcher

    yield Watcher(pid)


def _once(watcher: Any, view: Any, json: str | None) -> None:
    watcher.sample()
    watcher.rest(view.interval)
    sample = {**watcher.sample(), "interval_s": view.interval}
    if not sample["communicators"]:
        stop("top: all communicators of the job are closed, or there are none yet", 1)
    emit(sample, json, lambda: _print(sample, view))


def _live(watcher: Any, view: Any) -> None:
    import curses

    from stretto.top.terminal import display

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        stop("top: this is no terminal; --once prints one table, and --once --json - writes JSON")
    try:
        last, end = display(watcher, view)
    except curses.error as error:
        stop(f"top: the terminal ({os.environ.get('TERM') or 'TERM is not set'}) cannot show it: {error}; use --once")
    if end is None or last is None:
        return
    _print(last, view)
    say(f"top: {end}")
    if any(one["verdict"] in ("left", "died", "failed", "disagree") for one in last["communicators"]):
        raise typer.Exit(3)


def top(
    context: typer.Context,
    pid: Annotated[
        int | None, typer.Argument(metavar="[PID]", help="A rank, or what started the ranks; without it, all jobs.")
    ] = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, print and end.")] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", "-d", metavar="S", min=0.1, max=60.0, callback=finite, help="Seconds."),
    ] = 1.0,
    sort: Annotated[str, flag(_SHOWN, "--sort", metavar="COLUMN", help="rank, calls/s, waited, late, ...")] = "rank",
    reverse: Annotated[bool, flag(_SHOWN, "--reverse", help="Sort the other way round.")] = False,
    words: Annotated[
        str, flag(_SHOWN, "--filter", metavar="WORDS", help="Ranks that match, say state:wait or rank:3.")
    ] = "",
    json: JsonOption = None,
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", metavar="A,B,...", help="All jobs of these hosts.", rich_help_panel=HOSTS_PANEL),
    ] = None,
    env: Annotated[list[str] | None, REACH_FLAGS["env"]] = None,
    remote_shell: Annotated[str, REACH_FLAGS["remote_shell"]] = REMOTE_SHELL,
    remote_python: Annotated[str, REACH_FLAGS["remote_python"]] = sys.executable,
    reach: Annotated[float, REACH_FLAGS["reach"]] = 30.0,
) -> None:
    """Show what the ranks of a running job do: operation, algorithm, calls and bytes a second, who waits for whom.

    PID is a rank, or the launcher (stretto run, torchrun, mpirun): ranks that share a communicator with one that is
    found are shown too. The job is only read, never stopped. With --once the exit status is 0; a display that ends
    with its job ends with 3 if a rank had died, failed or left without finalising. The keys are told by ?.

    With --hosts all jobs of these hosts are shown, which are reached by ssh without a password as by stretto run
    --hosts. A host that cannot be reached, or falls silent, is named below the others' ranks.
    """
    from stretto.top.watcher import NoJob

    view = _view(sort, reverse, words, interval)
    if json is not None and not once:
        stop("top: --json goes with --once")
    if hosts is None:
        refuse_reach_options("top", context)
        watched = _here(pid)
    elif pid is not None:
        stop(f"top: {pid} is a process of this host, and --hosts shows all jobs of others; --filter chooses from these")
    else:
        watched = _over_hosts(Reach(hosts, env or [], remote_shell, remote_python, reach))
    try:
        with watched as watcher:
            _once(watcher, view, json) if once else _live(watcher, view)
    except NoJob as error:
        stop(f"top: {error}", 1)

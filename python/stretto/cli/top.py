"""`stretto top`: what the ranks of a running job do, live."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Annotated, Any

import typer

from stretto.cli.output import JsonOption, console, emit, examples, say, stop

SETTINGS = {
    "epilog": examples(
        "stretto top",
        "stretto top $(pgrep -f 'stretto run') --sort waited",
        "stretto top 4711 --filter state:wait",
        "stretto top 4711 --once --json -",
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


def _once(watcher: Any, view: Any, json: str | None) -> None:
    watcher.sample()
    time.sleep(view.interval)
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
    pid: Annotated[
        int | None, typer.Argument(metavar="[PID]", help="A rank, or what started the ranks; without it, all jobs.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, print and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", "-d", metavar="S", min=0.1, max=60.0, help="Seconds.")] = 1.0,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="rank, calls/s, waited, late, ...")] = "rank",
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort the other way round.")] = False,
    words: Annotated[
        str, typer.Option("--filter", metavar="WORDS", help="Ranks that match, say state:wait or rank:3.")
    ] = "",
    json: JsonOption = None,
) -> None:
    """Show what the ranks of a running job do: operation, algorithm, calls and bytes a second, who waits for whom.

    PID is a rank, or the launcher (stretto run, torchrun, mpirun): ranks that share a communicator with one that is
    found are shown too. The job is only read, never stopped. With --once the exit status is 0; a display that ends
    with its job ends with 3 if a rank had died, failed or left without finalising. The keys are told by ?.
    """
    from stretto.top.watcher import NoJob, Watcher

    view = _view(sort, reverse, words, interval)
    if json is not None and not once:
        stop("top: --json goes with --once")
    try:
        watcher = Watcher(pid)
    except NoJob as error:
        stop(f"top: {error}", 1)
    if once:
        _once(watcher, view, json)
    else:
        _live(watcher, view)

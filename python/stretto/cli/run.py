"""`stretto run`: starts the ranks of a job on this machine."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer

from stretto.cli.launcher import Job
from stretto.cli.output import JsonOption, check_ranks, emit, examples, expect_writable, refuse_options, stop

_LONGEST = 1e9  # seconds: thirty years, where no clock overflows
# What follows the command's name is the command's own.
SETTINGS = {
    "context_settings": {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
    "epilog": examples(
        "stretto run -n 4 script.py --its own --options",
        "stretto run -n 4 --tag --timeout 60 -- ./program",
        "stretto run -n 2 --threads script.py",
    ),
}
_ENDS = "How it ends"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST:
        raise typer.BadParameter(f"{text}: seconds, from 0 to {_LONGEST:g}")
    return seconds


def _command(words: list[str], threads: int, grace: float) -> list[str]:
    """A .py file is run by this Python; everything else as it stands."""
    script = words[0].endswith(".py")
    if threads:
        if not script:
            stop("run --threads runs a Python script: its ranks are threads of one Python")
        return [sys.executable, "-m", "stretto.cli.thread_script", str(threads), str(grace), *words]
    return [sys.executable, *words] if script else words


def _heard() -> dict[str, str]:
    """Warnings are shown unless somebody has said what is: a rank that waits for long says so there."""
    return {"NCCL_DEBUG": "WARN", **os.environ}


def _environments(ranks: int) -> list[dict[str, str]]:
    from stretto import unique_id

    common = {**_heard(), "STRETTO_RANKS": str(ranks), "STRETTO_UNIQUE_ID": unique_id().hex()}
    return [{**common, "STRETTO_RANK": str(rank)} for rank in range(ranks)]


def _report(job: Job, status: int) -> dict[str, Any]:
    rows = [
        {
            "rank": rank.number,
            "pid": rank.process.pid,
            "status": rank.status if rank.status is not None and rank.status >= 0 else None,
            "signal": -rank.status if rank.status is not None and rank.status < 0 else None,
            "seconds": round(rank.ended - rank.began, 3),
        }
        for rank in job.ranks
    ]
    return {"schema": "stretto.run/1", "ranks": rows, "first_failure": job.failed_rank(), "exit_status": status}


def run(
    context: typer.Context,
    ranks: Annotated[int, typer.Option("--ranks", "-n", metavar="N", help="How many ranks.")] = 2,
    threads: Annotated[bool, typer.Option("--threads", help="Ranks as threads of one Python process.")] = False,
    tag: Annotated[bool, typer.Option("--tag", help="Put [RANK] before each line that a rank prints.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=_seconds, metavar="S", help="End the job after S seconds (status 124).", rich_help_panel=_ENDS
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            parser=_seconds,
            metavar="S",
            help="Seconds that ranks have to end by themselves.",
            rich_help_panel=_ENDS,
        ),
    ] = 3.0,
    json: JsonOption = None,
) -> None:
    """Run COMMAND as the ranks of one job: a .py file with its arguments, or any program after --.

    Programs find their rank in STRETTO_RANK and STRETTO_RANKS, and stretto.init() reads them. When a rank
    fails, the others have --grace seconds to fail by themselves (their library tells them at once), then
    they are ended. The exit status is that of the first failure: of the rank that failed by itself, and not of one
    that failed because it lost another, though it may have ended sooner. Tracebacks of ranks that fail alike are shown
    once. Ranks log their warnings (NCCL_DEBUG=WARN) where NCCL_DEBUG says nothing else.
    """
    words = list(context.args)
    if not words:
        stop("run: nothing to run. For example: stretto run -n 4 script.py")
    refuse_options("run", context)
    check_ranks("run", ranks)
    if threads and tag:
        stop("run: --tag tells processes apart, and with --threads there is only one")
    if json is not None and json != "-":
        expect_writable("run", json)
    environments = [_heard()] if threads else _environments(ranks)
    if tag:
        for environment in environments:
            environment.setdefault("PYTHONUNBUFFERED", "1")
    job = Job(_command(words, ranks if threads else 0, grace), environments, tag, grace, timeout, threads)
    try:
        status = job.run()
    except BrokenPipeError:
        # Whoever read our output has gone; the ranks are ended, and there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except OSError as error:
        stop(f"run: cannot start {words[0]}: {error.strerror or error}", 127)
        return
    emit(_report(job, status), json, lambda: None)
    raise typer.Exit(status)

"""`stretto run`: starts the ranks of a job on this machine, or on several."""

import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from stretto.cli.flags import flag, with_flags
from stretto.cli.hosts import REMOTE_SHELL, Hosts, Launch, parse_hosts
from stretto.cli.launcher import Job, LocalRanks, Ranks, StartFailed
from stretto.cli.output import (
    check_ranks,
    check_ranks_of_hosts,
    emit,
    examples,
    expect_writable,
    refuse_options,
    stop,
)
from stretto.cli.rank_processes import STDERR, STDOUT, program
from stretto.cli.reach import (
    HOSTS_PANEL,
    REACH_FLAGS,
    named_variables,
    refuse_reach_options,
    seconds_of,
    variables_for_hosts,
)

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
        "stretto run --hosts node1,node2 -n 4 script.py",
    ),
}
_ENDS = "How it ends"
_NOT_STARTED = 127


def _command(words: list[str], threads: int, grace: float) -> list[str]:
    if not threads:
        return program(words)
    if not words[0].endswith(".py"):
        stop("run --threads runs a Python script: its ranks are threads of one Python")
    return [sys.executable, "-m", "stretto.cli.thread_script", str(threads), str(grace), *words]


def _heard() -> dict[str, str]:
    """Warnings are shown unless somebody has said what is: a rank that waits for long says so there."""
    return {"NCCL_DEBUG": "WARN", **os.environ}


def _environments(ranks: int, own: dict[str, str]) -> list[dict[str, str]]:
    from stretto import unique_id

    common = {**_heard(), **own, "STRETTO_RANKS": str(ranks), "STRETTO_UNIQUE_ID": unique_id().hex()}
    return [{**common, "STRETTO_RANK": str(rank)} for rank in range(ranks)]


def _report(job: Job, status: int) -> dict[str, Any]:
    rows = [
        {
            "rank": rank.number,
            "host": rank.host or None,
            "pid": rank.pid,
            "status": rank.status if rank.status is not None and rank.status >= 0 else None,
            "signal": -rank.status if rank.status is not None and rank.status < 0 else None,
            "seconds": round(rank.ended - rank.began, 3) if rank.began else None,
        }
        for rank in job.ranks
    ]
    return {"schema": "stretto.run/1", "ranks": rows, "first_failure": job.failed_rank(), "exit_status": status}


def _local(words: list[str], options: "Options", tag: bool) -> LocalRanks:
    ranks, threads, grace = options.ranks, options.threads, options.grace
    own = named_variables("run", options.env or [])
    environments = [{**_heard(), **own}] if threads else _environments(ranks, own)
    if tag:
        for environment in environments:
            environment.setdefault("PYTHONUNBUFFERED", "1")
    hears = (STDOUT, STDERR) if tag else (STDERR,) if len(environments) > 1 else ()
    return LocalRanks(_command(words, ranks if threads else 0, grace), environments, hears)


@dataclass(frozen=True)
class Options:
    """Every field has one flag, declared in FLAGS. `tag`: None is where there are several hosts."""

    ranks: int = 2
    threads: bool = False
    tag: bool | None = None
    hosts: str | None = None
    env: list[str] | None = None
    remote_shell: str = REMOTE_SHELL
    remote_python: str = sys.executable
    reach: float = 30.0
    timeout: float | None = None
    grace: float = 3.0
    json: str | None = None


FLAGS: dict[str, Any] = {
    "ranks": flag(None, "--ranks", "-n", metavar="N", help="How many ranks; with --hosts, on each of them."),
    "threads": flag(None, "--threads", help="Ranks as threads of one Python process."),
    "tag": flag(
        None,
        "--tag/--no-tag",
        help="Put [RANK] before each line that a rank prints, [HOST RANK] with --hosts, where that is the default.",
        show_default=False,
    ),
    "hosts": flag(
        HOSTS_PANEL,
        "--hosts",
        metavar="A,B:RANKS,...",
        help="Where ranks run, the first on the first host; :RANKS where a host has another number of them than N.",
    ),
    **REACH_FLAGS,
    "timeout": flag(
        _ENDS, "--timeout", parser=seconds_of, metavar="S", help="End the job after S seconds (status 124)."
    ),
    "grace": flag(
        _ENDS, "--grace", parser=seconds_of, metavar="S", help="Seconds that ranks have to end by themselves."
    ),
    "json": flag(None, "--json", metavar="FILE", help="Write the result as JSON to FILE; - is stdout."),
}


def _far(words: list[str], options: Options) -> tuple[Ranks, list[str]]:
    """Ranks on other hosts, and the host of each."""
    places = parse_hosts(options.hosts or "", options.ranks)
    for place in places:
        check_ranks("run", place.ranks)
    check_ranks_of_hosts("run", sum(place.ranks for place in places))
    shell = shlex.split(options.remote_shell)
    variables = variables_for_hosts("run", options.env or [])
    launch = Launch(words, variables, str(Path.cwd()), shell, options.remote_python, options.reach)
    return Hosts(places, launch), [place.name for place in places for _ in range(place.ranks)]


def _check(words: list[str], context: typer.Context, options: Options) -> None:
    if not words:
        stop("run: nothing to run. For example: stretto run -n 4 script.py")
    refuse_options("run", context)
    check_ranks("run", options.ranks)
    if options.threads and (options.tag or options.hosts):
        does = "--hosts starts" if options.hosts else "--tag tells apart"
        stop(f"run: {does} processes, and with --threads there is only one")
    if options.hosts is None:
        refuse_reach_options("run", context)
    if options.json is not None and options.json != "-":
        expect_writable("run", options.json)


@with_flags(Options, FLAGS, context=True)
def run(context: typer.Context, **given: Any) -> None:
    """Run COMMAND as the ranks of one job: a .py file with its arguments, or any program after --.

    Programs find their rank in STRETTO_RANK and STRETTO_RANKS, and stretto.init() reads them. When a rank
    fails, the others have --grace seconds to fail by themselves (their library tells them at once), then
    they are ended. The exit status is that of the first failure: of the rank that failed by itself, and not of one
    that failed because it lost another, though it may have ended sooner. Tracebacks of ranks that fail alike are shown
    once. Ranks log their warnings (NCCL_DEBUG=WARN) where NCCL_DEBUG says nothing else.

    With --hosts ranks run on those hosts, reached by ssh without a password, in the folder of this name there. A host
    that cannot be reached is named before anything runs (status 127); when one is lost, or this command ends, no rank
    is left on any. NCCL_SOCKET_IFNAME says by which network ranks reach each other; without it they take the interface
    by which ssh came in.
    """
    words, options = list(context.args), Options(**given)
    _check(words, context, options)
    tag = bool(options.hosts) if options.tag is None else options.tag
    if options.hosts is not None:
        where, names = _far(words, options)
    else:
        where = _local(words, options, tag)
        names = [""] * (1 if options.threads else options.ranks)
    job = Job(where, names, tag, options.grace, options.timeout, options.threads)
    try:
        status = job.run()
    except BrokenPipeError:
        # Whoever read our output has gone; the ranks are ended, and there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(128 + signal.SIGPIPE) from None
    except StartFailed as error:
        stop(f"run: {error}", _NOT_STARTED)
        return
    except OSError as error:
        what = options.remote_shell if options.hosts else words[0]
        stop(f"run: cannot start {what}: {error.strerror or error}", _NOT_STARTED)
        return
    emit(_report(job, status), options.json, lambda: None)
    raise typer.Exit(status)

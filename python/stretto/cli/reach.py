"""How other hosts are reached: the flags that commands with --hosts share."""

import os
from dataclasses import dataclass
from typing import Any

import typer

from stretto.cli.flags import MOST_SECONDS, flag
from stretto.cli.output import stop

HOSTS_PANEL = "Several hosts"
# Of the caller's variables those that ranks on other hosts get: what the libraries read. The rest is that host's own.
_PASSED_ON = ("STRETTO_", "NCCL_", "OMP_", "CUDA_", "TORCH_", "PYTHONUNBUFFERED")
# Those of one process, one host (NCCL_HOSTID would make one host of all) or the launcher alone.
_OWN = (
    "STRETTO_RANK",
    "STRETTO_RANKS",
    "STRETTO_LOCAL_RANKS",
    "STRETTO_UNIQUE_ID",
    "STRETTO_RUN_LOG",
    "STRETTO_REMOTE_SHELL",
    "NCCL_HOSTID",
)


@dataclass(frozen=True)
class Reach:
    """What a command line says of hosts. `seconds`: that one has to answer."""

    hosts: str
    env: list[str]
    remote_shell: str
    remote_python: str
    seconds: float


def seconds_of(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        raise typer.BadParameter(f"{text}: seconds, from 0 to {MOST_SECONDS:g}")
    return seconds


REACH_FLAGS: dict[str, Any] = {
    "env": flag(
        HOSTS_PANEL,
        "--env",
        metavar="NAME[=VALUE]",
        help="One more variable for ranks. Those on other hosts get what begins with NCCL_, STRETTO_, CUDA_, OMP_ and "
        "TORCH_ as it is here.",
    ),
    "remote_shell": flag(
        HOSTS_PANEL,
        "--remote-shell",
        metavar="COMMAND",
        envvar="STRETTO_REMOTE_SHELL",
        help="What runs a command on a host, called as COMMAND HOST TEXT.",
    ),
    "remote_python": flag(
        HOSTS_PANEL,
        "--remote-python",
        metavar="PATH",
        help="The Python on the hosts that has stretto.",
        show_default="this one's path",
    ),
    "reach": flag(HOSTS_PANEL, "--reach", parser=seconds_of, metavar="S", help="Seconds that a host has to answer."),
}


def variables_for_hosts(command: str, more: list[str]) -> dict[str, str]:
    """Those that ranks on other hosts get. `more`: of --env."""
    found = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON) and name not in _OWN}
    return {"NCCL_DEBUG": "WARN", "PYTHONUNBUFFERED": "1", **found, **named_variables(command, more)}


def named_variables(command: str, words: list[str]) -> dict[str, str]:
    """What --env says: NAME=VALUE, or NAME with the value that it has here."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or (not equals and name not in os.environ):
            stop(f"{command}: --env {word}: write NAME=VALUE, or the NAME of a variable that is set here")
        found[name] = value if equals else os.environ[name]
    return found


def refuse_reach_options(command: str, context: typer.Context) -> None:
    for name in ("remote_shell", "remote_python", "reach"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            stop(f"{command}: --{name.replace('_', '-')} says how hosts are reached, and there is no --hosts")

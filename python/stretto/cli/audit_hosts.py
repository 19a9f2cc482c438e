"""`stretto audit` of several hosts: over remote shells (--hosts), or as the ranks of a launcher."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import typer

from stretto.cli.crew import agents
from stretto.cli.output import say, stop
from stretto.cli.reach import Reach
from stretto.cli.working import Working
from stretto.errors import InvalidUsage, StrettoError

if TYPE_CHECKING:
    from stretto import Communicator
    from stretto.audit.finding import Check
    from stretto.audit.member import Member
    from stretto.cli.audit import Given

_MOST_SECONDS = 300.0  # beyond an audit's own: for a rank that says nothing any more


def ranks_of_launcher() -> int:
    """How many ranks this process is one of; 1 where no launcher started it."""
    from stretto.launch import place

    try:
        return place().ranks
    except InvalidUsage:
        return 1


def _command(given: Given, level: str) -> dict[str, Any]:
    """What each host is to look at: Member's."""

    def paths(given: Any) -> list[str]:
        return [str(path.absolute()) for path in given or ()]

    return {
        "level": level,
        "ranks": given.ranks,
        "only": given.only,
        "skip": given.skip,
        "pythons": paths(given.python),
        "programs": paths(given.program),
        "library": str(given.library.absolute()) if given.library is not None else None,
    }


def over_shells(given: Given, level: str, between: list[Check]) -> dict[str, Any]:
    """On each host of --hosts. What fails is a finding."""
    from stretto.audit import several
    from stretto.audit.context import LEVELS

    reach = Reach(given.hosts or "", given.env or [], given.remote_shell, given.remote_python, given.reach)
    with Working("reaching the hosts") as working:

        def step(text: str) -> None:
            working.doing = text

        with agents("audit", "stretto.audit.member", reach, lambda host, check: step(f"{host}: {check}")) as crew:
            crew.wait_begun()
            return several.audit(crew, _command(given, level), between, LEVELS[level], step)


def as_ranks(given: Given, level: str, between: list[Check]) -> dict[str, Any]:
    """As the ranks of a launcher. Returns on rank 0; the others end here."""
    from stretto.audit.context import LEVELS
    from stretto.audit.member import Member
    from stretto.audit.ranks import joined
    from stretto.bench.job import terminable
    from stretto.launch import place

    here = place()
    say(f"joining as rank {here.rank} of {here.ranks} of {here.launcher}, whose variables are set here")
    try:
        with (
            terminable(),
            joined(LEVELS[level].seconds + _MOST_SECONDS) as comm,
            contextlib.closing(Member()) as member,
        ):
            document = _as_rank(comm, member, given, level, between)
    except StrettoError as error:
        stop(f"audit: rank {here.rank}: {error}", 1)
    if document is None:
        raise typer.Exit
    return document


def _as_rank(
    comm: Communicator, member: Member, given: Given, level: str, between: list[Check]
) -> dict[str, Any] | None:
    from stretto.audit import several
    from stretto.audit.context import LEVELS
    from stretto.audit.ranks import Ranks, serve

    if comm.rank != 0:
        serve(comm, member)
        return None
    with Working("meeting the other ranks") as working:

        def step(text: str) -> None:
            working.doing = text

        crew = Ranks(comm, member)
        document = several.audit(crew, _command(given, level), between, LEVELS[level], step)
        crew.end()
        return document

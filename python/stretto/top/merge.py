"""Communicators as several hosts see them, each its own ranks, made one. Pure.

Clocks of two hosts cannot be compared, so how long ranks of different hosts waited for each other is not known. Who has
not entered an operation that another is in is known by the operations' numbers, which all ranks count alike.
"""

from __future__ import annotations

from typing import Any

from stretto.top.table import duration

_VERDICTS = ("finished", "idle", "working", "left", "waiting", "failed", "disagree", "died")  # the worst comes last
_MOST_AWAITED = 16
_PATIENCE_SECONDS = 1.0  # what takes longer is a wait: kPatienceSeconds of observe/doctor.hpp
_MOST_NAMED = 8
_NOT_READ = "no recorder of "  # how a host's own sentence on ranks of other hosts begins (observe/doctor.cpp)

_Communicator = dict[str, Any]
_Member = dict[str, Any]


def merged(seen: dict[str, list[_Communicator]], apart: float) -> list[_Communicator]:
    """`seen`: by host, all at the same moment but for `apart` seconds. The worst comes first; `host` of each member is
    the name by which it was reached.
    """
    views: dict[tuple[str, int], dict[str, _Communicator]] = {}
    for host, communicators in seen.items():
        for one in communicators:
            views.setdefault((one["id"], one["ranks"]), {})[host] = one
    return sorted((_one(by_host, apart) for by_host in views.values()), key=lambda one: -_severity(one))


def _severity(communicator: _Communicator) -> int:
    return _VERDICTS.index(communicator["verdict"])


def _one(by_host: dict[str, _Communicator], apart: float) -> _Communicator:
    members: dict[int, _Member] = {}
    twice: set[str] = set()
    for host, view in by_host.items():
        for member in view["members"]:
            if members.setdefault(member["rank"], {**member, "host": host})["host"] != host:
                twice.add(host)
    several = len({member["host"] for member in members.values()}) > 1
    ranks = [members[rank] for rank in sorted(members)]
    if several:
        ranks = [{**member, "waited": None, "waited_for": [], "late": None, "followed_s": 0.0} for member in ranks]
        _await_others(ranks, apart)
    worst = max(by_host.values(), key=_severity)
    late = _behind(ranks) if several else None
    own = [
        f"{host}: {text}" if len(by_host) > 1 else text
        for host, view in sorted(by_host.items(), key=lambda item: -_severity(item[1]))
        for text in view["sentences"]
        if len(by_host) == 1 or not text.startswith(_NOT_READ)
    ]
    missing = [rank for rank in range(worst["ranks"]) if rank not in members] if len(by_host) > 1 else []
    return {
        **worst,
        "verdict": max(worst["verdict"], "waiting", key=_VERDICTS.index) if late else worst["verdict"],
        "sentences": [*([late] if late else []), *own, *_unseen(missing), *_doubled(sorted(twice))],
        "members": ranks,
    }


def _unseen(missing: list[int]) -> list[str]:
    return [f"{_NOT_READ}{_named(missing)} was read: on another host, or gone"] if missing else []


def _doubled(hosts: list[str]) -> list[str]:
    return [f"{host} shows ranks that a host before it has shown: is it the same one?" for host in hosts]


def _inside(member: _Member) -> bool:
    """In a collective operation: these have numbers."""
    operation = member["operation"]
    return operation is not None and operation["state"] == "running" and operation["sequence"] > 0


def _entered(member: _Member) -> int | None:
    """The collective that it has come to; None where its last operation was a message, which does not say."""
    operation = member["operation"]
    if operation is None:
        return 0
    return operation["sequence"] or None


def _await_others(members: list[_Member], apart: float) -> None:
    """Adds to each member's `awaits` the ranks of other hosts. What it has been in for a shorter time than hosts were
    asked apart, the others may have entered since.
    """
    for member in members:
        if not _inside(member) or member["operation"]["since_s"] <= apart:
            continue
        number = member["operation"]["sequence"]
        behind = [
            other["rank"]
            for other in members
            if other["host"] != member["host"] and (entered := _entered(other)) is not None and entered < number
        ]
        member["awaits"] = sorted({*member["awaits"], *behind})[:_MOST_AWAITED]


def _behind(members: list[_Member]) -> str | None:
    """Whom ranks of other hosts wait for in the first operation that somebody is stuck in; None where nobody is."""
    stuck = [
        member
        for member in members
        if _inside(member) and member["awaits"] and member["operation"]["since_s"] >= _PATIENCE_SECONDS
    ]
    if not stuck:
        return None
    first = min(stuck, key=lambda member: member["operation"]["sequence"])
    number = first["operation"]["sequence"]
    waiting = [member for member in stuck if member["operation"]["sequence"] == number]
    awaited = {rank for member in waiting for rank in member["awaits"]}
    longest = max(member["operation"]["since_s"] for member in waiting)
    late = [member for member in members if member["rank"] in awaited]
    return (
        f"{_with_hosts(late)} {'has' if len(late) == 1 else 'have'} not entered {first['operation']['text']};"
        f" {_with_hosts(waiting)} {'waits' if len(waiting) == 1 else 'wait'} since {duration(longest)}"
    )


def _with_hosts(members: list[_Member]) -> str:
    """rank 2 on node2; or ranks 0, 1 on node1 and rank 2 on node2."""
    by_host: dict[str, list[int]] = {}
    for member in members:
        by_host.setdefault(member["host"], []).append(member["rank"])
    return " and ".join(f"{_named(ranks)} on {host}" for host, ranks in by_host.items())


def _named(ranks: list[int]) -> str:
    some = ", ".join(map(str, ranks[:_MOST_NAMED])) + (
        f" and {len(ranks) - _MOST_NAMED} more" * (len(ranks) > _MOST_NAMED)
    )
    return f"rank{'s' * (len(ranks) > 1)} {some}"

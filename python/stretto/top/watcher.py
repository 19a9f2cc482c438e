"""Which processes make a job, and what they do: their flight recorders, read again and again."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Protocol

from stretto import _native, processes
from stretto.errors import InvalidUsage, StrettoError

# Processes that a job starts later are looked for this often.
_SECONDS_BETWEEN_LOOKS = 5.0
_Member = dict[str, Any]
_Key = tuple[str, int, int]


class NoJob(Exception):
    """There is nothing to watch; the text says why and what to do."""


def _communicators(pid: int) -> set[str]:
    """The identities of those that a process has now; none where it cannot be read."""
    try:
        return {str(one["id"]) for one in json.loads(_native.Watch(str(pid)).read())["communicators"]}
    except StrettoError:
        return set()


def _check(pid: int) -> None:
    """Raises `NoJob` unless it is a process that we may look at."""
    try:
        processes.records(pid)
    except PermissionError:
        raise NoJob(f"process {pid} belongs to somebody else: run as its user, or as root") from None
    except OSError:
        raise NoJob(f"there is no process {pid}") from None


def find(target: int | None) -> list[int]:
    """The processes of a job: `target` and what it has started, and whoever shares a communicator with one of these;
    without a target all of this host that we may look at. Raises `NoJob`.
    """
    us = os.getpid()
    if target is not None:
        _check(target)
    candidates = processes.recording([pid for pid in processes.everybody() if pid != us])
    if target is None:
        if not candidates:
            raise NoJob(
                "no process that you may look at has a communicator of Stretto now; `stretto doctor --nccl "
                "--attach PID` says which library a process uses"
            )
        return candidates
    own = {target, *processes.descendants(target)} & set(candidates)
    if not own:
        raise NoJob(
            f"process {target} and those that it started have no communicator of Stretto (or not yet, or no more); "
            f"`stretto doctor --nccl --children {target}` says which library they use"
        )
    held = {pid: _communicators(pid) for pid in candidates}
    shared = set().union(*(held[pid] for pid in own))
    return sorted(own | {pid for pid in candidates if held[pid] & shared})


def _rates(member: _Member, before: _Member | None) -> _Member:
    """What lies between two readings of one recorder."""
    seconds = (member["clock_ns"] - before["clock_ns"]) / 1e9 if before else 0.0
    known = before is not None and seconds > 0 and member["begun"] >= before["begun"]
    return {
        "calls_per_s": (member["begun"] - before["begun"]) / seconds if before and known else None,
        "bytes_per_s": (member["bytes"] - before["bytes"]) / seconds if before and known else None,
    }


def _shares(member: _Member, others_ns: int) -> _Member:
    """Times as parts of the time that could be followed: of its own, or of `others_ns`. None where none could."""
    window = member["window_ns"]
    waits = member["waited_for"] if window > 0 else []
    return {
        "followed_s": window / 1e9,
        "waited": member["waited_ns"] / window if window > 0 else None,
        "waited_for": [{"rank": one["rank"], "share": one["ns"] / window} for one in waits],
        # For how much of the others' time they waited for this one.
        "late": member["late_ns"] / others_ns if others_ns > 0 else None,
    }


_KEPT = ("rank", "host", "pid", "state", "process", "error", "awaits")


def _member(member: _Member, before: _Member | None, others_ns: int) -> _Member:
    operation = member["operation"]
    if operation is not None:
        operation["since_s"] = operation.pop("since_ns") / 1e9
    return {
        **{name: member[name] for name in _KEPT},
        "calls": member["begun"],
        "bytes": member["bytes"],
        **_rates(member, before),
        **_shares(member, others_ns),
        "operation": operation,
    }


class Watched(Protocol):
    """A job that is looked at again and again: of this host, or of several."""

    def sample(self) -> dict[str, Any]:
        """The document "stretto.top/1": rates are since the sample before, and None in the first."""

    def rest(self, seconds: float) -> None:
        """Lets time pass between two samples. Whoever waits in another way calls it now and then."""


class Watcher:
    """A job of this host."""

    def __init__(self, target: int | None) -> None:
        self._target = target
        self._pids = find(target)
        self._watch = self._open()
        self._looked = time.monotonic()
        self._before: dict[_Key, _Member] = {}

    def _open(self) -> _native.Watch:
        try:
            return _native.Watch(",".join(map(str, self._pids)))
        except InvalidUsage as error:
            raise NoJob(str(error)) from error

    def _look(self) -> None:
        """Processes that were started since. Those that have ended stay: how they ended is what one wants to see."""
        family = processes.everybody() if self._target is None else processes.descendants(self._target)
        new = processes.recording([pid for pid in family if pid not in self._pids and pid != os.getpid()])
        if new:
            self._pids = [pid for pid in self._pids if os.path.exists(f"/proc/{pid}")] + new  # noqa: PTH110
            self._watch = self._open()

    def sample(self) -> dict[str, Any]:
        now = time.monotonic()
        if now - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._looked = now
            self._look()
        reading = json.loads(self._watch.read())
        before, self._before = self._before, {}
        communicators = []
        for one in reading["communicators"]:
            members = []
            followed = sum(member["window_ns"] for member in one["members"])
            for member in one["members"]:
                key = (one["id"], member["rank"], member["pid"])
                self._before[key] = member
                members.append(_member(member, before.get(key), followed - member["window_ns"]))
            communicators.append({**one, "members": members})
        return {
            "schema": "stretto.top/1",
            "time": time.time(),
            "communicators": communicators,
            "problems": reading["problems"],
        }

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


def ending(sample: dict[str, Any]) -> str | None:
    """How the job has ended, as a sentence; None while a rank of it lives."""
    hosts = sample.get("hosts", [])
    if hosts and not any(host["reached"] for host in hosts):
        return "no host answers any more: " + "; ".join(sample["problems"])
    members = [member for one in sample["communicators"] for member in one["members"]]
    if any(member["process"] != "gone" for member in members):
        return None
    if not members or all(member["state"] == "finalized" for member in members):
        return "the job has ended: all ranks have finalized"
    sentences = [text for one in sample["communicators"] if one["verdict"] != "finished" for text in one["sentences"]]
    return "the job has ended: " + "; ".join(sentences[:4])

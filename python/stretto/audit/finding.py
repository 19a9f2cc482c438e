"""What a check says, how grave it is, and the decorator that makes a function a check of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from stretto.audit.context import Context

BETWEEN_HOSTS = "network"
SECTIONS = {
    "environment": "which libraries and plugins would be loaded, and what the variables say",
    "machine": "cores, memory, limits, network interfaces and GPUs, as the kernel tells of them",
    "correctness": "whether data arrive whole, for each pair, direction and mechanism",
    "latency": "operations of 8 B to 1 MB, and who comes last",
    "bandwidth": "large operations, against memcpy in the same run",
    "launch": "what a call costs the rank that makes it, whoever else is late",
    "initialisation": "how long communicators take to make, by phase and by ranks",
    "memory": "what a communicator takes, and what is left when it has gone",
    "counters": "what operations allocate, open and leave once a communicator has run for a while",
    "stress": "all sizes at once, many communicators, more ranks than cores, random operations, all verified",
    "gpus": "all-reduces between GPUs, verified, and another NCCL in turns with this one",
    "library": "with --library: what that libnccl.so.2 is, needs and offers",
    "platform": "what clocks, calls, locks, wake-ups, copies and sockets cost here",
    BETWEEN_HOSTS: "with --hosts or several ranks of a launcher: what lies between the hosts",
}

Certainty: TypeAlias = Literal["certain", "likely", "possible"]

# How the note of a check begins that had nothing to go by.
NOT_MEASURED = "not measured: "


class Severity(IntEnum):
    """OK and NOTE ask for nothing to be done; a WARNING costs speed or may cost a job, an ERROR does."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Finding:
    """One thing that a check found. `subject` tells findings of one check apart: a pair of ranks, a file, a GPU.

    `certainty` of the cause: certain (the kernel or the data say so), likely (a measurement, repeated) or possible (one
    of several).
    """

    severity: Severity
    measured: str
    expected: str = ""
    cause: str = ""
    next_step: str = ""
    certainty: str = "certain"
    subject: str = ""
    id: str = ""
    section: str = ""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "severity": self.severity.word}


def ok(measured: str, expected: str = "", **more: str) -> Finding:
    return Finding(Severity.OK, measured, expected, **more)


def note(measured: str, expected: str = "", **more: str) -> Finding:
    return Finding(Severity.NOTE, measured, expected, **more)


def warning(
    measured: str, expected: str, *, cause: str, next_step: str, certainty: Certainty, subject: str = ""
) -> Finding:
    """What asks for something to be done says why it is so, how sure that is, and what to do."""
    return _whole(Finding(Severity.WARNING, measured, expected, cause, next_step, certainty, subject))


def error(
    measured: str, expected: str, *, cause: str, next_step: str, certainty: Certainty, subject: str = ""
) -> Finding:
    """Likewise."""
    return _whole(Finding(Severity.ERROR, measured, expected, cause, next_step, certainty, subject))


def _whole(finding: Finding) -> Finding:
    for name in ("measured", "expected", "cause", "next_step"):
        if not getattr(finding, name).strip():
            raise ValueError(f"a finding above a note without its {name}: {finding}")
    return finding


def from_document(document: dict[str, Any]) -> Finding:
    return Finding(**{**document, "severity": Severity[document["severity"].upper()]})


Look = Callable[["Context"], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """One line of the table. `worst`: the gravest finding that it can give."""

    id: str
    title: str
    worst: Severity
    look: Look

    @property
    def section(self) -> str:
        return self.id.partition(".")[0]

    @property
    def why(self) -> str:
        """What it is good for: the docstring of its function, in one line."""
        return " ".join((self.look.__doc__ or "").split())


ALL: list[Check] = []
"""In the order of the modules' import, which `table` decides."""


def check(id: str, title: str, worst: Severity) -> Callable[[Look], Look]:
    """Makes a function a check. Its docstring says why anybody should care."""

    def add(look: Look) -> Look:
        ALL.append(Check(id, title, worst, look))
        return look

    return add

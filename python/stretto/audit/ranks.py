"""The hosts of an audit whose members are the ranks of a job: of mpirun, torchrun or srun, one on each host. Rank 0
asks; what it asks and what they answer goes through a communicator.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy

import stretto
from stretto import Communicator, StrettoError
from stretto.audit.member import Member, forget_launcher
from stretto.by_lines import Answer, Command

_TIMEOUT = "STRETTO_TIMEOUT"


def _exchange(comm: Communicator, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What each rank says, by rank."""
    text = json.dumps(mine).encode()
    sizes = comm.all_gather(numpy.array([len(text)], "int64"))
    padded = numpy.zeros(int(sizes.max()), "uint8")
    padded[: len(text)] = numpy.frombuffer(text, "uint8")
    everybody = comm.all_gather(padded).reshape(comm.size, -1)
    return [json.loads(row[:size].tobytes()) for row, size in zip(everybody, sizes, strict=True)]


def _host() -> dict[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    name = os.environ.get("NCCL_HOSTID") or socket.gethostname()
    return {"name": name, "id": f"{name} {boot.read_text() if boot.exists() else ''}"}


@contextlib.contextmanager
def joined(seconds: float) -> Iterator[Communicator]:
    """The job's communicator. A rank that says nothing for `seconds` is lost."""
    given = os.environ.get(_TIMEOUT)
    os.environ.setdefault(_TIMEOUT, f"{seconds:g}")
    comm = stretto.init()
    if given is None:
        del os.environ[_TIMEOUT]
    forget_launcher()
    try:
        yield comm
    except BaseException:
        comm.abort()
        raise
    comm.close()


class Ranks:
    """Rank 0's side. `names`: the hosts, each by its first rank."""

    def __init__(self, comm: Communicator, member: Member) -> None:
        self._comm, self._member = comm, member
        first: dict[str, int] = {}
        hosts = _exchange(comm, _host())
        for rank, host in enumerate(hosts):
            first.setdefault(host["id"], rank)
        self._rank_of: dict[str, int] = {}
        for rank in first.values():
            name = hosts[rank]["name"]
            self._rank_of[f"{name} (rank {rank})" if name in self._rank_of else name] = rank
        self.names = list(self._rank_of)
        self.gone: dict[str, str] = {}

    def ask(self, commands: Mapping[str, Command], seconds: float) -> dict[str, Answer]:
        """As long as a rank's answer may take is the communicator's matter (`joined`)."""
        if self.gone:
            return self._answer_alone(commands)
        asked = {str(self._rank_of[name]): command for name, command in commands.items()}
        own: Answer = {}
        try:
            _exchange(self._comm, {"commands": asked})
            own = self._member.obey(asked["0"]) if "0" in asked else {}
            answers = _exchange(self._comm, own)
        except StrettoError as error:
            self._lose(str(error))
            return {self.names[0]: own} if own else {}
        return {name: answers[self._rank_of[name]] for name in commands}

    def end(self) -> None:
        """Tells the others that this was all."""
        if self.gone:
            self._comm.abort()
            return
        with contextlib.suppress(StrettoError):
            _exchange(self._comm, {"end": True})

    def _answer_alone(self, commands: Mapping[str, Command]) -> dict[str, Answer]:
        me = self.names[0]
        return {me: self._member.obey(commands[me])} if me in commands else {}

    def _lose(self, why: str) -> None:
        """A communicator without one of its ranks is at its end: the others are not heard any more either."""
        named = {int(number) for number in re.findall(r"rank (\d+)", why)} - {0}
        for name, rank in self._rank_of.items():
            if rank != 0:
                lost = not named or rank in named
                self.gone[name] = why if lost else "not heard any more after another host was lost"


def serve(comm: Communicator, member: Member) -> None:
    """The other ranks' side, until rank 0 has no more to ask."""
    _exchange(comm, _host())
    while "commands" in (told := _exchange(comm, {})[0]):
        command = told["commands"].get(str(comm.rank))
        _exchange(comm, {} if command is None else member.obey(command))

"""A recording as JSON lines: one callback a line, in the order of time, with every field that it had; null where the
profiler interface in use did not say. Ids, addresses and tags are hexadecimal text, as they do not fit a double.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, TextIO

from stretto.trace import layout
from stretto.trace.events import HEXADECIMAL, Group, Values, groups
from stretto.trace.job import Job
from stretto.trace.spans import MOST_OPEN
from stretto.trace.stream import Batch, Piece, batches

_CALLS = {
    layout.START: "start",
    layout.STOP: "stop",
    layout.STATE: "state",
    layout.INIT: "init",
    layout.FINALIZE: "finalize",
}
# The rank of the context stands for the event's own; the descriptor's is kept beside it.
_NAMES = {"rank": "descriptor_rank"}


class _Lines:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._heads: dict[tuple[int, int, int, int], str] = {}
        self._texts: dict[str, str] = {}
        self._open: dict[int, dict[int, int]] = {}  # contexts of what is open, by id, of each process

    def head(self, thread: int, context: int, kind: int, number: int) -> str:
        """What all events of a thread, a context, a kind and a type say alike."""
        key = thread, context, kind, number
        if key not in self._heads:
            if len(self._heads) > 100_000:
                self._heads.clear()
            who = self._job.threads[thread]
            process = self._job.processes[who.process]
            document: dict[str, Any] = {"call": _CALLS[kind], "host": process.host, "pid": process.pid, "tid": who.tid}
            if context >= 0:
                about = self._job.contexts[context]
                document |= {"comm": f"0x{about.communicator:x}", "comm_name": about.name}
                document["rank"] = about.rank if about.rank >= 0 else None
                document["nranks"] = about.ranks if about.ranks > 0 else None
            else:
                document |= {"comm": None, "comm_name": None, "rank": None, "nranks": None}
            if kind in (layout.START, layout.STOP, layout.STATE):
                document["type"] = layout.type_name(number)
            self._heads[key] = json.dumps(document)[1:-1]
        return self._heads[key]

    def _json(self, name: str, values: Values) -> list[str] | Values:
        if name in layout.TEXT:
            for text in set(values):
                if text not in self._texts:
                    self._texts[text] = json.dumps(text)
            return [self._texts[text] for text in values]
        if name == "data":
            return [f'"{value.hex()}"' for value in values]
        if name in HEXADECIMAL:
            return ["null" if value is None else f'"0x{value:x}"' for value in values]
        return ["null" if value is None else value for value in values] if None in values else values

    def of_group(self, piece: Piece, group: Group) -> list[str]:
        rows = group.rows
        heads = [self.head(piece.thread, one, group.kind, group.type) for one in self._contexts(piece, group)]
        times = (piece.times[rows] + self._job.origin_realtime_ns).tolist()
        columns = [self._json(name, values) for name, values in zip(group.names, group.columns, strict=True)]
        fields = "".join(f', "{_NAMES.get(name, name)}": %s' for name in group.names)
        template = f'{{"ts_ns": %d, %s{fields}}}\n'
        if group.kind == layout.STATE:
            columns.append([layout.state_name(state) for state in group.columns[group.names.index("state")]])
            template = f'{{"ts_ns": %d, %s{fields}, "state_name": "%s"}}\n'
        return [template % row for row in zip(times, heads, *columns, strict=True)]

    def _contexts(self, piece: Piece, group: Group) -> list[int]:
        """What an event belongs to; a stop or a state to what its start does."""
        if group.kind not in (layout.STOP, layout.STATE):
            return list(piece.source.contexts(piece.block.context[group.rows]).tolist())
        known = self._open[piece.source.number]
        return [known.get(id_, -1) for id_ in group.columns[0]]

    def of_batch(self, batch: Batch) -> str:
        decoded = [list(groups(piece, self._job.strings)) for piece in batch.pieces]
        for piece, found in zip(batch.pieces, decoded, strict=True):
            known = self._open.setdefault(piece.source.number, {})
            for group in found:
                if group.kind == layout.START:
                    known.update(zip(group.columns[0], self._contexts(piece, group), strict=True))
        lines: list[list[str]] = []
        for piece, found in zip(batch.pieces, decoded, strict=True):
            mine = [""] * len(piece.times)
            for group in found:
                for row, line in zip(group.rows.tolist(), self.of_group(piece, group), strict=True):
                    mine[row] = line
            lines.append(mine)
        self._forget(batch, decoded)
        places = zip(batch.piece.tolist(), batch.row.tolist(), strict=True)
        return "".join([lines[piece][row] for piece, row in places])

    def _forget(self, batch: Batch, decoded: list[list[Group]]) -> None:
        for piece, found in zip(batch.pieces, decoded, strict=True):
            known = self._open[piece.source.number]
            for group in found:
                if group.kind == layout.STOP:
                    for id_ in group.columns[0]:
                        known.pop(id_, None)
            for id_ in list(itertools.islice(known, max(0, len(known) - MOST_OPEN))):
                del known[id_]


def write(job: Job, file: TextIO, progress: Callable[[int], None]) -> int:
    """Returns the number of lines; `progress` is told how many events are done."""
    lines = _Lines(job)
    done = 0
    for batch in batches(job):
        file.write(lines.of_batch(batch))
        done += len(batch.row)
        progress(done)
    return done

"""One file of a recording, read with every length and bound checked: the header, the definitions, and the events as
blocks of records that are known to be whole. Nothing here believes what the file says of itself.

Only `pread` touches the file, so one that is cut short while it is read gives less, and not a signal; a segment that
its writer takes over in the meantime (flight mode) is left out from there on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stretto.errors import StrettoError
from stretto.trace import layout
from stretto.trace.model import Quality

Words = npt.NDArray[np.uint64]
Index = npt.NDArray[np.int64]

LARGEST_TEXT = 64 << 20  # of all strings of one file together
MOST_DEFINITIONS = 4_000_000  # of one file
LARGEST_SAMPLE = 0xFFFFFFFF  # one operation in so many
_LARGEST_RECORD = 1 << 16  # bytes, and more
SMALLEST_WINDOW = 4096
_MOST_NOTHING = 10_000  # segments that are none: a file with a hole has no end of them


MOST_NOTES = 100


def note(quality: Quality, text: str) -> None:
    """Says something of the recording's quality; not for ever, as a damaged file has no end of it."""
    if len(quality.notes) < MOST_NOTES:
        quality.notes.append(text)
    elif len(quality.notes) == MOST_NOTES:
        quality.notes.append("and more of the kind")


class BadRecording(StrettoError):
    """A file that is no recording, or one of another version, or one that may not be read."""


@dataclass(frozen=True)
class Segment:
    """Where a segment lies, and what its header said when it was looked at."""

    offset: int
    committed: int
    sequence: int
    first_ticks: int
    dropped: int
    thread: int
    generation: int


@dataclass
class Block:
    """Records of one thread: `at` is where each begins in `words`, in words of eight bytes."""

    words: Words
    at: Index
    thread: int = layout.NONE

    def __post_init__(self) -> None:
        head = self.words[self.at]
        self.length: Index = ((head & np.uint64(0xFFFF)) >> np.uint64(3)).astype(np.int64)
        self.kind = (head >> np.uint64(16) & np.uint64(0xFF)).astype(np.uint8)
        self.type = (head >> np.uint64(24) & np.uint64(0xFF)).astype(np.uint8)
        self.context = (head >> np.uint64(32)).astype(np.uint32)
        self.ticks: Words = self.words[self.at + 1]

    def part(self, first: int, last: int) -> Block:
        """Neighbouring records of it, and no more of its memory than they are in."""
        begin = int(self.at[first])
        end = int(self.at[last]) if last < len(self.at) else len(self.words)
        return Block(self.words[begin:end], self.at[first:last] - begin, self.thread)

    def chosen(self, rows: Index) -> Block:
        return Block(self.words, self.at[rows], self.thread)

    def by_thread(self) -> Iterator[Block]:
        """The same, parted where another thread went on with the segment."""
        changes = np.flatnonzero((self.kind == layout.CHANGE) & (self.length > 2)).tolist()
        if not changes:
            yield self
            return
        thread = self.thread
        for first, last in itertools.pairwise([-1, *changes, len(self.at)]):
            if first >= 0:
                thread = int(self.words[self.at[first] + 2]) & layout.NONE
            if first + 1 < last:
                made = self.part(first + 1, last)
                made.thread = thread
                yield made
        self.thread = thread

    def fields(self, rows: Index, kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
        """What follows the head of these records; a field that a record is too short for is all ones."""
        count = kind.itemsize // 8
        where = self.at[rows, None] + np.arange(2, 2 + count)
        missing = np.arange(2, 2 + count) >= self.length[rows, None]
        if missing.any():
            found = self.words[np.where(missing, 0, where)]
            found[missing] = np.uint64(layout.NONE64)
        else:
            found = self.words[where]
        return np.ascontiguousarray(found).view(kind).reshape(len(rows))


@dataclass
class ContextDefinition:
    communicator: int
    name: int
    rank: int
    ranks: int
    nodes: int
    ticks: int


@dataclass
class Definitions:
    """What events of one file refer to by number."""

    strings: dict[int, str] = field(default_factory=dict)
    contexts: dict[int, ContextDefinition] = field(default_factory=dict)
    threads: dict[int, tuple[int, int]] = field(default_factory=dict)  # tid, name
    foreign: dict[int, tuple[int, int]] = field(default_factory=dict)  # contexts of others: tag, their number
    samples: dict[int, int] = field(default_factory=dict)  # contexts of whose operations every n-th is recorded: n
    anchors: list[tuple[int, int, int, int]] = field(default_factory=list)  # ticks, monotonic, realtime, uncertainty
    fork_of: int = 0
    text: int = 0

    def add(self, kind: int, ticks: int, data: bytes) -> None:
        """Takes one definition; one that is too short or inconsistent with itself raises ValueError."""
        try:
            self._add(kind, ticks, data)
        except struct.error as error:
            raise ValueError("a definition is too short") from error

    def _add(self, kind: int, ticks: int, data: bytes) -> None:
        if kind == layout.STRING:
            number, length = struct.unpack_from("<II", data)
            if length > len(data) - 8 or self.text + length > LARGEST_TEXT:
                raise ValueError("a string is longer than its record, or all are longer than can be believed")
            self.text += length
            self.strings[number] = data[8 : 8 + length].decode("utf-8", "replace")
        elif kind == layout.CONTEXT:
            number, rank, ranks, nodes, communicator, name, _ = struct.unpack_from("<IiiiQII", data)
            first = self.contexts[number].ticks if number in self.contexts else ticks
            self.contexts[number] = ContextDefinition(communicator, name, rank, ranks, nodes, first)
        elif kind == layout.THREAD:
            number, tid, name, _ = struct.unpack_from("<IIII", data)
            self.threads[number] = (tid, name)
        elif kind == layout.ANCHOR:
            self.anchors.append((ticks, *struct.unpack_from("<QQQ", data)))
        elif kind == layout.FORK:
            (self.fork_of,) = struct.unpack_from("<I", data)
        elif kind == layout.FOREIGN:
            number, tag, theirs = struct.unpack_from("<III", data)
            self.foreign[number] = (tag, theirs)
        elif kind == layout.SAMPLE:
            number, _, every = struct.unpack_from("<IIQ", data)
            if not 1 <= every <= LARGEST_SAMPLE:
                raise ValueError(f"every {every}-th operation is recorded: that cannot be")
            self.samples[number] = every


def walk(words: Words, end: int) -> tuple[Index, int]:
    """Where the records begin that are whole in the first `end` words, and where the first begins that is not."""
    # Only one word in six begins a record: looking there is cheaper than a list of all.
    sizes = np.ascontiguousarray(words[:end].view(np.uint16)[::4]).data
    found: list[int] = []
    note = found.append
    at = 0
    while at < end:
        size = sizes[at]
        step = size >> 3
        if size & 7 or step < 2 or at + step > end:
            break
        note(at)
        at += step
    return np.array(found, np.int64), at


class RawFile:
    """An open file of a recording. `quality` collects what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quality = Quality()
        self.events: dict[int, list[Segment]] = {}
        self._definition_segments: list[Segment] = []
        self._identity: tuple[int, int] | None = None
        with self._opened() as file:
            self.size = os.fstat(file).st_size
            self.header = self._read_header(file)
            self._index(file)
        self.definitions = self._read_definitions()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """The same file each time, open while the block lasts: a job has more files than a process may open."""
        file = _open(self.path)
        try:
            about = os.fstat(file)
            if self._identity not in (None, (about.st_dev, about.st_ino)):
                raise BadRecording(f"{self.path}: replaced while it was read")
            self._identity = about.st_dev, about.st_ino
            yield file
        finally:
            os.close(file)

    def text(self, name: str) -> str:
        """A text of the header."""
        return bytes(self.header[name]).split(b"\0")[0].decode("utf-8", "replace")

    def _read_header(self, file: int) -> np.void:
        data = os.pread(file, layout.HEADER_BYTES, 0)
        if len(data) < layout.HEADER_BYTES or data[:8] != layout.MAGIC:
            empty = " (it is empty)" if not data.strip(b"\0") else ""
            raise BadRecording(f"{self.path}: not a recording{empty}")
        header = _one(data, layout.HEADER)
        if header["version"] != layout.VERSION or header["header_bytes"] != layout.HEADER_BYTES:
            raise BadRecording(f"{self.path}: a recording of version {header['version']}; this reads version 1")
        size = int(header["segment_bytes"])
        if size & size - 1 or not layout.SMALLEST_SEGMENT <= size <= layout.LARGEST_SEGMENT:
            raise BadRecording(f"{self.path}: damaged: segments of {size} bytes")
        return header

    def _index(self, file: int) -> None:
        """Finds the segments of each thread."""
        size = int(self.header["segment_bytes"])
        # The last one may be there in part only: the file was cut, or copied while it grew.
        there = max(0, self.size - layout.HEADER_BYTES + size - layout.SEGMENT_HEADER_BYTES) // size
        claimed = int(self.header["segments"])
        if claimed > there:
            note(self.quality, f"{self.path.name}: cut short: {there} of {claimed} segments are there")
            self.quality.damaged_segments += min(claimed - there, 1 << 31)
        nothing = 0  # in a row
        for number in range(min(claimed, there)):
            is_one = self._index_one(file, layout.HEADER_BYTES + number * size, size - layout.SEGMENT_HEADER_BYTES)
            nothing = 0 if is_one else nothing + 1
            if nothing == _MOST_NOTHING:
                note(self.quality, f"{self.path.name}: damaged: what follows segment {number} is left out")
                break
        for segments in self.events.values():
            segments.sort(key=lambda one: one.sequence)
        self._definition_segments.sort(key=lambda one: one.sequence)

    def _index_one(self, file: int, offset: int, room: int) -> bool:
        """Whether there is a segment."""
        header = _segment_header(file, offset)
        if header is None or header["generation"] & 1:
            return False  # being taken over at this moment
        kind, committed = int(header["kind"]), int(header["committed"])
        if header["magic"] != layout.SEGMENT_MAGIC or kind not in (layout.DEFINITIONS, layout.EVENTS):
            self.quality.damaged_segments += 1
            return False
        here = min(room, self.size - offset - layout.SEGMENT_HEADER_BYTES) & ~7
        if committed > here or committed & 7:
            self.quality.damaged_segments += 1
            committed = min(committed, here) & ~7
        numbers = (int(header[name]) for name in ("sequence", "first_ticks", "dropped", "thread", "generation"))
        segment = Segment(offset, committed, *numbers)
        if kind == layout.DEFINITIONS:
            self._definition_segments.append(segment)
        else:
            self.events.setdefault(segment.thread, []).append(segment)
        return True

    def blocks(self, segment: Segment, window: int = layout.LARGEST_SEGMENT) -> Iterator[Block]:
        """The records of a segment, about `window` bytes at a time, each block of one thread."""
        window = max(window, SMALLEST_WINDOW) & ~7
        done, thread = 0, segment.thread
        while done < segment.committed:
            wanted = min(window, segment.committed - done)
            with self._opened() as file:
                data = os.pread(file, wanted, segment.offset + layout.SEGMENT_HEADER_BYTES + done)
                header = _segment_header(file, segment.offset)
            words = np.frombuffer(data, "<u8", len(data) // 8)
            if header is None or header["generation"] != segment.generation:
                self.quality.overwritten += 1
                return
            at, end = walk(words, len(words))
            if end == 0 and wanted < min(_LARGEST_RECORD, segment.committed - done):
                window = _LARGEST_RECORD  # a record that is longer than most windows
                continue
            if len(at):
                block = Block(words, at, thread)
                yield from block.by_thread()
                thread = block.thread
            done += end * 8
            # At the end of a window the last record may be cut. At the end of the segment, or where even a whole window
            # does not hold one record, it is none.
            if done < segment.committed and (done + wanted - end * 8 >= segment.committed or end == 0):
                self.quality.damaged_segments += 1
                return

    def _read_definitions(self) -> Definitions:
        made = Definitions()
        taken = 0
        for segment in self._definition_segments:
            for block in self.blocks(segment):
                taken += len(block.at)
                if taken > MOST_DEFINITIONS:
                    note(self.quality, f"{self.path.name}: more definitions than can be believed")
                    return made
                self._take(block, made)
        return made

    def _take(self, block: Block, into: Definitions) -> None:
        data = block.words.tobytes()
        places = zip(block.at.tolist(), block.length.tolist(), block.kind.tolist(), block.ticks.tolist(), strict=True)
        for at, length, kind, ticks in places:
            try:
                into.add(kind, ticks, data[8 * at + 16 : 8 * (at + length)])
            except ValueError as error:
                note(self.quality, f"{self.path.name}: {error}")
                self.quality.damaged_segments += 1
                return


def _segment_header(file: int, offset: int) -> np.void | None:
    data = os.pread(file, layout.SEGMENT_HEADER_BYTES, offset)
    return _one(data, layout.SEGMENT) if len(data) == layout.SEGMENT_HEADER_BYTES else None


def _one(data: bytes, kind: np.dtype[np.void]) -> np.void:
    found = np.frombuffer(data, kind, 1)[0]
    assert isinstance(found, np.void)
    return found


def _open(path: Path) -> int:
    """A regular file, and not through a link: what a trace's folder holds was put there by others."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "a symbolic link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        raise BadRecording(f"{path}: {why}") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadRecording(f"{path}: not a regular file")
    return file

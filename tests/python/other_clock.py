"""A recording that was made here, as its host would have written it with a clock of its own: every stamp is moved by an
offset and a drift, the boot id and the host's name are others.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from stretto.trace import layout

_ALL_HOSTS_NS = 1_000_000_000_000  # what differs between boots, and realtime makes up for


@dataclass(frozen=True)
class OtherClock:
    """`late_ns`: by how much it is ahead at `begin`; from there on it gains `ppm` millionths. `begin`: ticks and
    nanoseconds of one moment, as an anchor has them.
    """

    name: str
    late_ns: int
    ppm: float
    begin: tuple[int, int]

    @property
    def boot(self) -> bytes:
        return self.name.encode().ljust(16, b"\1")

    def ahead(self, since_ns: Any) -> Any:
        """Nanoseconds, so many after `begin`."""
        return self.late_ns + since_ns * self.ppm / 1e6

    def ticks(self, ticks: int, of_counter: bool) -> int:
        moved = ticks + round((ticks - self.begin[0]) * self.ppm / 1e6)
        return moved + (7_777_777_777 if of_counter else self.late_ns + _ALL_HOSTS_NS)

    def anchor(self, monotonic: int, realtime: int) -> tuple[int, int]:
        ahead = round(self.ahead(monotonic - self.begin[1]))
        return monotonic + ahead + _ALL_HOSTS_NS, realtime + ahead

    def rewrite(self, source: Path, target: Path) -> None:
        """Every word of the file that is a time; nothing else but whose it is."""
        data = bytearray(source.read_bytes())
        header = np.frombuffer(data, layout.HEADER, 1)[0]
        counter = int(header["clock"]) == layout.CLOCK_COUNTER
        size, count = int(header["segment_bytes"]), int(header["segments"])
        data[56:72] = self.boot
        data[112:176] = self.name.encode().ljust(64, b"\0")
        for number in range(count):
            self._segment(data, layout.HEADER_BYTES + number * size, counter)
        target.write_bytes(data)

    def _segment(self, data: bytearray, at: int, counter: bool) -> None:
        segment = np.frombuffer(data, layout.SEGMENT, 1, at)[0]
        first, end = int(segment["first_ticks"]), at + layout.SEGMENT_HEADER_BYTES + int(segment["committed"])
        struct.pack_into("<Q", data, at + 24, self.ticks(first, counter))
        at += layout.SEGMENT_HEADER_BYTES
        while at < end:
            length, kind = struct.unpack_from("<HB", data, at)
            struct.pack_into("<Q", data, at + 8, self.ticks(struct.unpack_from("<Q", data, at + 8)[0], counter))
            if kind == layout.ANCHOR:
                moved = self.anchor(*struct.unpack_from("<QQ", data, at + 16))
                struct.pack_into("<QQ", data, at + 16, *moved)
            assert length >= 16 and length % 8 == 0, "a record that is none"
            at += length

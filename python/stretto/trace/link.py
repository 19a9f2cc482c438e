"""The address of one operation: what a report writes beside it, what `stretto trace view --op` takes, and what the page
of the viewer reads in its own address behind `#op=` (viewer/src/hash.ts).
"""

from __future__ import annotations

import re

import numpy as np

from stretto.errors import InvalidArgument
from stretto.trace.columns import ints
from stretto.trace.model import EventType, Recording
from stretto.trace.operations import communicators_of

_FORM = re.compile(r"(?:#?op=)?(?P<communicator>[^,]+),(?P<function>[^,]+),(?P<number>\d{1,15})")


def link(communicator: int, function: str, number: int) -> str:
    """COMM,FUNCTION,NUMBER. COMM is the communicator's id, as the page spells it: several may have one name."""
    return f"{communicator & 0xFFFFFFFFFFFFFFFF:#x},{function},{number}"


def link_to(recording: Recording, text: str) -> str:
    """The link of the operation that `text` means; its communicator may go by its name too. Raises `InvalidArgument`
    where the recording has no such operation.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidArgument(f"--op {text}: write COMM,FUNCTION,NUMBER, as a report does under `link`")
    name, function, number = form["communicator"], form["function"], int(form["number"])
    communicators = [item for item in communicators_of(recording)[0] if item.goes_by(name)]
    if not communicators:
        raise InvalidArgument(f"--op {text}: no communicator {name} is in this recording, or in this part of it")
    for item in communicators:
        for spelled in _spellings(recording, function):
            if _is_there(recording, item.contexts, spelled, number):
                return link(item.number, recording.strings[spelled], number)
    raise InvalidArgument(f"--op {text}: no {function} #{number} of {name} is in this recording, or in this part of it")


def _spellings(recording: Recording, function: str) -> list[int]:
    return [number for number, one in enumerate(recording.strings) if one.lower() == function.lower()]


def _is_there(recording: Recording, contexts: tuple[int, ...], function: int, number: int) -> bool:
    spans = recording.spans
    there = np.isin(spans["type"], (EventType.COLL, EventType.CE_COLL)) & np.isin(ints(spans, "context"), contexts)
    there &= (ints(spans, "function") == function) & (ints(spans, "sequence") == number)
    return bool(there.any())

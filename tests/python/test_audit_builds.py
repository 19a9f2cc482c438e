"""`stretto audit --library` with another build of Stretto: five collectives of CPU ranks by both, in turns."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import stretto as package
from planted import LEVEL, Faulty
from stretto.audit import blocks, page
from stretto.audit.context import Context
from stretto.audit.finding import Severity
from test_audit import document, look

FIVE = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}


def another_build(folder: Path) -> Path:
    """The package's library with a byte more, in a file of its own."""
    file = folder / "libnccl.so.2"
    shutil.copy(package.nccl_library_path(), file)
    with file.open("ab") as opened:
        opened.write(b"4")
    return file


def test_another_build_stands_beside_this_one_in_five_collectives(faulty: Faulty, tmp_path: Path) -> None:
    """A library in between is before this package's, and behind the other build. Each all-reduce takes 2 ms more.
    Another collective may be slow on a busy machine too, but not in each of three looks.
    """
    slow = set(FIVE)
    for _ in range(3):
        context = faulty("slow")
        context.library = another_build(tmp_path)
        found = {one.subject: one for one in look("library.speed", context)}
        assert set(found) == FIVE, found
        slow &= {name for name, one in found.items() if one.severity > Severity.NOTE}
        assert "all_reduce" in slow and "in between" in found["all_reduce"].cause, found
        if slow == {"all_reduce"}:
            break
    assert slow == {"all_reduce"}, found
    text = page.markdown(blocks.blocks(document(beside=dataclasses.asdict(context.beside_on_cpus)), None), "audit")
    assert "Five collectives of CPU ranks" in text and text.count("| all_gather |") == 3, text


def test_a_library_that_is_no_build_of_this_one_has_no_ranks_in_host_memory(tmp_path: Path) -> None:
    other = tmp_path / "libnccl.so.2"
    other.write_bytes(b"NCCL version 2.30.7+cuda13.0 compiled with CUDA 13.0")
    (found,) = look("library.speed", Context(environment={}, level=LEVEL, library=other))
    assert found.severity is Severity.OK and found.measured == "nothing here to look at"

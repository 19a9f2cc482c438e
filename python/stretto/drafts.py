"""Files that have their name only once they are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Where to write the file, or the folder, that is to be at `path`: it comes there, as a whole, when the block ends
    well, and is removed otherwise. What is there and no file, such as /dev/null or a pipe, is written to as it stands,
    and a link goes on leading to where it led. Raises OSError.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            if draft.is_dir():
                shutil.rmtree(draft)
            else:
                draft.unlink(missing_ok=True)

"""Files that have their name only once they are whole; devices, pipes and links stay what they are."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from stretto.drafts import drafted


def write(path: Path, text: str) -> None:
    with drafted(path) as draft:
        draft.write_text(text)


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "old")
    with pytest.raises(RuntimeError), drafted(path) as draft:
        draft.write_text("half")
        assert path.read_text() == "old"
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    write(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_there_as_a_whole_or_not(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), drafted(tmp_path / "folder") as draft:
        draft.mkdir()
        (draft / "file").touch()
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with drafted(tmp_path / "folder") as draft:
        draft.mkdir()
    assert (tmp_path / "folder").is_dir()


def test_a_link_leads_where_it_led(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write(link, "text")
    assert link.is_symlink() and target.read_text() == "text"


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    with drafted(Path("/dev/null")) as draft:
        assert draft == Path("/dev/null")
    assert Path("/dev/null").is_char_device()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write(pipe, "text")
    reader.join(60)
    assert read == ["text"] and pipe.is_fifo()

"""Encryption that is asked for where OpenSSL is not: nothing is connected, and the words say why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stretto.library import nccl_library_path

# Python itself may need OpenSSL to load the package, so the library is called as a C program would.
ASK = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ncclGetLastError.restype = ctypes.c_char_p
print(library.ncclGetUniqueId(ctypes.create_string_buffer(128)), library.ncclGetLastError(None).decode())
"""


def asked(folder: Path, encrypted: str) -> tuple[int, str]:
    """The result of ncclGetUniqueId and the last error, where the loader looks into `folder` first."""
    command = [sys.executable, "-c", ASK, str(nccl_library_path())]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "STRETTO_TLS": encrypted}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    result, _, words = done.stdout.strip().partition(" ")
    return int(result), words


def test_without_openssl_nothing_is_connected_and_the_words_say_why(tmp_path: Path) -> None:
    (tmp_path / "libcrypto.so.3").write_bytes(b"")
    result, words = asked(tmp_path, "1")
    assert result == 2, "ncclSystemError"
    for part in ("STRETTO_TLS=1", "libcrypto.so.3", "libssl3", "nothing was sent in plain text"):
        assert part in words, words


def test_without_openssl_nothing_is_missed_by_who_does_not_encrypt(tmp_path: Path) -> None:
    for name in ("libcrypto.so.3", "libssl.so.3"):
        (tmp_path / name).write_bytes(b"")
    assert asked(tmp_path, "0") == (0, "")


def test_another_word_than_0_or_1_is_refused(tmp_path: Path) -> None:
    result, words = asked(tmp_path, "maybe")
    assert result == 5 and "STRETTO_TLS=maybe" in words

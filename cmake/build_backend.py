"""How the Python package is built: by scikit-build-core, and two things that it has to be told.

A package without GPU kernels has a version that says so, "0.1.0+cpu": the only thing that pip always shows at the end
of an installation, and what `pip list` has ever after. Package indexes take no such version, so that what they hold has
kernels. Whether there is a CUDA compiler must be known before the build, when pip asks for the version;
cmake/find_cuda.cmake finds out both times, and the build fails if it then finds another answer.

A source package carries the commit that it was made of.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from scikit_build_core import build as scikit
from scikit_build_core.build import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

HERE = Path(__file__).resolve().parent
COMMIT = HERE / "commit"
ANSWER = re.compile(r"STRETTO_CUDA_FOUND=(ON|OFF)")
SECONDS = 60
Settings = dict[str, Any] | None


def _with_version(settings: Settings) -> dict[str, Any]:
    """Decides the version, and has the build check it. pyproject.toml reads the variable."""
    known = dict(settings or {})
    names = ("STRETTO_CUDA", "STRETTO_NVCC")
    given = [f"-D{name}={known[key]}" for name in names if (key := f"cmake.define.{name}") in known]
    command = ["cmake", *given, "-P", str(HERE / "find_cuda.cmake")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    answer = ANSWER.search(done.stdout)
    if done.returncode != 0 or answer is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    os.environ["STRETTO_HAS_CUDA"] = answer[1]
    known["cmake.define.STRETTO_PROMISED_CUDA"] = answer[1]
    return known


def prepare_metadata_for_build_wheel(folder: str, settings: Settings = None) -> str:
    return scikit.prepare_metadata_for_build_wheel(folder, _with_version(settings))


def prepare_metadata_for_build_editable(folder: str, settings: Settings = None) -> str:
    return scikit.prepare_metadata_for_build_editable(folder, _with_version(settings))


def build_wheel(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    return scikit.build_wheel(folder, _with_version(settings), metadata)


def build_editable(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    return scikit.build_editable(folder, _with_version(settings), metadata)


def build_sdist(folder: str, settings: Settings = None) -> str:
    """Of a checkout or of an unpacked source package, whose commit then stays."""
    os.environ.pop("STRETTO_HAS_CUDA", None)
    if COMMIT.exists():
        return scikit.build_sdist(folder, settings)
    script = ["cmake", f"-DSOURCE={HERE.parent}", f"-DCOMMIT={COMMIT}", "-P", str(HERE / "build_facts.cmake")]
    subprocess.run(script, check=True, timeout=SECONDS)
    try:
        return scikit.build_sdist(folder, settings)
    finally:
        COMMIT.unlink()

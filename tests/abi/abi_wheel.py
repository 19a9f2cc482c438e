"""Where the two sides of the comparison are: NVIDIA's wheels and our build. A missing side is a failure."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = "2.32.3"  # what include/nccl.h speaks
OLD = "2.28.9"  # what programs that are still in use were built against
CACHED = {VERSION: "nccl-2.32", OLD: "nccl"}
VARIABLES = {VERSION: "STRETTO_TEST_NCCL", OLD: "STRETTO_TEST_OLD_NCCL"}


def wheel(version: str = VERSION) -> Path:
    """The folder with include/nccl.h and lib/libnccl.so.2 of nvidia-nccl-cu13."""
    cached = ROOT / ".cache" / CACHED[version] / "nvidia" / "nccl"
    folder = Path(os.environ.get(VARIABLES[version], cached))
    missing = [name for name in ("include/nccl.h", "lib/libnccl.so.2") if not (folder / name).is_file()]
    assert not missing, (
        f"{folder} lacks {' and '.join(missing)}: this test compares Stretto with NVIDIA's own NCCL. Get "
        f"it by `make setup`, which runs "
        f"`pip install --no-deps nvidia-nccl-cu13=={version} --target .cache/{CACHED[version]}`."
    )
    return folder


def build() -> Path:
    """The build folder with our two libraries."""
    folder = Path(os.environ.get("STRETTO_BUILD_DIR", ROOT / "build"))
    missing = [name for name in ("libnccl.so.2", "libstretto.so.0") if not (folder / name).exists()]
    assert not missing, f"{folder} lacks {' and '.join(missing)}: run `make build` first."
    return folder

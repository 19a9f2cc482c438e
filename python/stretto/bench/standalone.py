"""Runs one module of this package where the package itself cannot be imported: its compiled half is not built, or not
wanted. For machines that have the native drivers and no more, and for ranks that need only torch.

    python3 python/stretto/bench/standalone.py bench all_reduce --device cuda ...
    python3 python/stretto/bench/standalone.py tune --device cuda ...
    python3 python/stretto/bench/standalone.py distributed_driver --folder ...
"""

import importlib
import sys
import types
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def import_bare(name: str) -> types.ModuleType:
    """A module below `stretto`, without `stretto/__init__.py`, which needs the compiled half."""
    if "stretto" not in sys.modules:
        bare = types.ModuleType("stretto")
        bare.__path__ = [str(PACKAGE)]
        sys.modules["stretto"] = bare
    return importlib.import_module(name)


def main() -> int:
    # The folder of a script is searched first; its modules are meant to be found below `stretto` alone.
    sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != PACKAGE / "bench"]
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    name = sys.argv.pop(1)
    if name in ("bench", "tune"):
        import typer

        typer.run(getattr(import_bare(f"stretto.cli.{name}"), name))
        return 0
    return int(import_bare(f"stretto.bench.{name}").main())


if __name__ == "__main__":
    sys.exit(main())

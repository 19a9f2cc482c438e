"""Small operations of an old and a new source tree in turns, and every collective of the new one against OpenMPI.

    python3 measure.py OLD_TREE NEW_TREE [--cores 2,4] [--mpirun PATH] [--work DIR]

Builds the library of both trees without CUDA, runs `turns` five times (old against new, and old against a copy of
itself), then `sweep` twice, and prints one table. Needs cmake, ninja, a C and a C++ compiler, and OpenMPI's mpirun;
takes 6 minutes on 16 cores.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TURNS = HERE.parent / "2026-11-25-after-a-fault" / "turns.c"
RUNS, SWEEPS = 5, 2
SMALL = 4096
ROW = re.compile(r"(\S+)\s+(\d+) B .* ratio (\S+)")
SWEPT = re.compile(r"(\w+)\s+(\d+)\s+(\S+)\s+(\S+)\s+openmpi / library (\S+)")


def run(command: list[str], quietly: bool = True, **more: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=420, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    if not quietly:
        print(done.stdout, flush=True)
    return str(done.stdout)


def build(tree: Path, where: Path) -> Path:
    """The old tree takes warnings for errors, and forgets a header that newer compilers ask for."""
    where.mkdir(parents=True, exist_ok=True)
    compiler = where / "compiler"
    compiler.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX", "c++")} "$@" -Wno-error -include initializer_list\n')
    compiler.chmod(0o755)
    options = ["-DSTRETTO_CUDA=OFF", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={compiler}"]
    run(["cmake", "-S", str(tree), "-B", str(where), "-G", "Ninja", *options])
    run(["ninja", "-C", str(where), "-j", str(max(2, (os.cpu_count() or 2) // 2)), "libnccl.so.2"])
    return (where / "libnccl.so.2").resolve()


def compile_c(source: Path, tree: Path, program: Path) -> None:
    run([os.environ.get("CC", "cc"), "-O2", "-I", str(tree / "include"), str(source), "-o", str(program), "-ldl"])


def environment(mpirun: Path) -> dict[str, str]:
    beside = mpirun.resolve().parent.parent / "lib" / "libmpi.so.40"
    return (
        {**os.environ, "SWEEP_MPI": str(beside)}
        if "SWEEP_MPI" not in os.environ and beside.exists()
        else dict(os.environ)
    )


def turns(program: Path, cores: str, old: Path, other: Path) -> dict[tuple[str, int], list[float]]:
    ratios: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(RUNS):
        text = run(["taskset", "-c", cores, str(program), str(old), str(other), "0.5", str(SMALL)])
        for operation, size, ratio in ROW.findall(text):
            ratios[operation, int(size)].append(float(ratio))
    return ratios


def print_turns(new: dict[tuple[str, int], list[float]], same: dict[tuple[str, int], list[float]]) -> None:
    print("\nsmall operations, new / old: median of five runs (least to most) [the old one against its copy]")
    medians = []
    for row, ratios in new.items():
        medians.append(statistics.median(ratios))
        spread = f"({min(ratios):.3f} to {max(ratios):.3f}) [{statistics.median(same[row]):.3f}]"
        print(f"  {row[0]:<11}{row[1]:>6} B  {medians[-1]:.3f} {spread}")
    over = sum(median > 1.01 for median in medians)
    print(f"  mean {statistics.mean(medians):.3f}, {over} of {len(medians)} rows above 1.01, most {max(medians):.3f}")


def print_sweeps(swept: dict[str, dict[int, list[tuple[float, float, float]]]]) -> None:
    print("\ncollectives, OpenMPI's time / the new library's: median of the sweeps, fp32, two processes")
    for name, sizes in swept.items():
        ratio = {size: statistics.median(one[2] for one in found) for size, found in sizes.items()}
        slower = [f"{size} B {value:.2f}" for size, value in ratio.items() if value < 1]
        least = min(ratio, key=lambda size: ratio[size])
        line = f"  {name:<15} least {ratio[least]:.2f} at {least} B; {len(slower)} of {len(ratio)} sizes slower"
        print(line + (": " + ", ".join(slower) if slower else ""))
        if name == "all_reduce":
            large = {size: value for size, value in ratio.items() if size >= 1024}
            worst = min(large, key=lambda size: large[size])
            print(f"  {'':<15} from 1 KB on least {large[worst]:.2f} at {worst} B")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("old", type=Path)
    words.add_argument("new", type=Path)
    words.add_argument("--cores", default="2,4" if (os.cpu_count() or 1) > 4 else "0,1")
    words.add_argument("--mpirun", type=Path, default=shutil.which("mpirun"))
    words.add_argument("--work", type=Path, default=Path("/tmp/stretto-small-operations"))
    asked = words.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(lambda it: build(*it), [(asked.old, asked.work / "old"), (asked.new, asked.work / "new")])
    copy = asked.work / "copy.so"
    shutil.copyfile(old, copy)
    compile_c(TURNS, asked.new, asked.work / "turns")
    compile_c(HERE / "sweep.c", asked.new, asked.work / "sweep")
    against = turns(asked.work / "turns", asked.cores, old, new)
    same = turns(asked.work / "turns", asked.cores, old, copy)
    print_turns(against, same)
    if asked.mpirun is None:
        sys.exit("no mpirun on the PATH: nothing is compared with OpenMPI")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = [
        "taskset",
        "-c",
        asked.cores,
        str(asked.mpirun),
        "-n",
        "2",
        "--oversubscribe",
        "--bind-to",
        "none",
        *root,
    ]
    swept: dict[str, dict[int, list[tuple[float, float, float]]]] = defaultdict(lambda: defaultdict(list))
    variables = {**environment(asked.mpirun), "SWEEP_SECONDS": "0.2"}
    for _ in range(SWEEPS):
        text = run([*command, str(asked.work / "sweep"), str(new)], quietly=False, env=variables)
        for name, size, library, openmpi, ratio in SWEPT.findall(text):
            swept[name][int(size)].append((float(library), float(openmpi), float(ratio)))
    print_turns(against, same)
    print_sweeps(swept)


if __name__ == "__main__":
    main()

"""What the device API's functions for the host read and write has the layout that NVIDIA's header gives it.

That header wants CUDA's compiler, so the types are taken out of its text one by one.
"""

import re
import subprocess
from pathlib import Path

from abi_header import SYSTEM
from abi_wheel import ROOT, wheel

FOLDER = wheel() / "include" / "nccl_device"
ENUMS = ["ncclGinConnectionType_t", "ncclGinType_t", "ncclCftTeamMode_t"]
STRUCTS = {"ncclTeam": "core.h", "ncclMultimemHandle": "impl/core__types.h", "ncclCommProperties": "host.h"}
STUBS = Path(__file__).parent / "stubs" / "cuda"


def body_of(struct: str) -> str:
    match = re.search(rf"struct {struct} {{(.*?)\n}}", (FOLDER / STRUCTS[struct]).read_text(), re.DOTALL)
    assert match, struct
    return match[1]


def members_of(struct: str) -> list[str]:
    lines = re.sub(r"//.*|/\*.*?\*/", "", body_of(struct)).split(";")
    names = [
        re.sub(r"\[.*", "", part.split()[-1].lstrip("*")) for line in lines for part in line.split(",") if part.strip()
    ]
    assert names
    return names


def enum_of(name: str) -> tuple[str, list[str]]:
    text = (FOLDER / "core.h").read_text()
    declaration = next(
        part for part in re.findall(r"typedef enum {.*?}[^;]*;", text, re.DOTALL) if f"}} {name};" in part
    )
    return declaration, re.findall(r"\b(NCCL_\w+)(?= *[=,\n])", re.sub(r"//.*", "", declaration))


def print_layout(include: str, folder: Path) -> str:
    lines = []
    for struct in STRUCTS:
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        lines += [
            f'printf("{struct}.{name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct}*)nullptr)->{name}));'
            for name in members_of(struct)
        ]
    for name in ENUMS:
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{constant} %d\\n", (int){constant});' for constant in enum_of(name)[1]]
    body = "\n  ".join(lines)
    folder.mkdir()
    source = folder / "probe.cpp"
    source.write_text(f"#include <stdio.h>\n#include <stddef.h>\n{include}\nint main() {{\n  {body}\n}}\n")
    options = [f"-I{wheel() / 'include'}" if "typedef" in include else f"-I{ROOT / 'include'}", f"-I{STUBS}"]
    command = ["g++", "-std=c++20", "-w", *SYSTEM, *options, str(source), "-o", str(folder / "probe")]
    subprocess.run(command, check=True, timeout=120)
    return subprocess.run([str(folder / "probe")], check=True, capture_output=True, text=True, timeout=30).stdout


def test_layouts_are_the_same(tmp_path: Path) -> None:
    theirs = "#include <nccl.h>\n" + "\n".join(enum_of(name)[0] for name in ENUMS)
    theirs += "".join(f"\nstruct {struct} {{{body_of(struct)}\n}};" for struct in STRUCTS)
    expected = print_layout(theirs, tmp_path / "theirs")
    assert len(expected.splitlines()) > 40
    assert print_layout(f'#include "{ROOT}/src/api/nccl_device.hpp"', tmp_path / "ours") == expected

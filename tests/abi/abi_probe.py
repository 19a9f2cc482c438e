"""What a compiler makes of a version of nccl.h: a generated program prints every size, offset and value."""

import subprocess
from pathlib import Path

from abi_header import STUBS, SYSTEM, Declarations

# Old and new numbering of releases, and both sides of the switch between them.
VERSIONS = ["2, 8, 4", "2, 9, 0", "2, 28, 9", "2, 32, 3", "3, 0, 1"]
# A macro that initialises a struct, and the type it initialises.
INITIALIZERS = {
    "NCCL_CONFIG_INITIALIZER": "ncclConfig_t",
    "NCCL_COLLCONFIG_INITIALIZER": "ncclCollConfig_t",
    "NCCL_ENCRYPTION_CONFIG_INITIALIZER": "ncclEncryptionConfig_t",
    "NCCL_SIM_INFO_INITIALIZER": "ncclSimInfo_t",
}
NOT_VALUES = {"NCCL_VERSION", *INITIALIZERS}

COMMON = """
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#define SIZE(type) printf("sizeof " #type " %zu\\n", sizeof(type))
#define OFFSET(type, member) printf("offset " #type "." #member " %zu size %zu\\n", \\
    offsetof(type, member), sizeof(((type*)0)->member))
#define CONSTANT(name) printf("constant " #name " %lld\\n", (long long)(name))
static void bytes(const char* name, const void* data, size_t size) {
  printf("bytes %s ", name);
  for (size_t i = 0; i < size; i++) printf("%02x", ((const unsigned char*)data)[i]);
  printf("\\n");
}
"""
# Only in C++ can a program print its types: the compiler spells them out, parameters included.
CXX_ONLY = """
#include <typeinfo>
#define TYPE(type) printf("type " #type " %s\\n", typeid(type).name())
#define FUNCTION(function) printf("function " #function " %s\\n", typeid(decltype(function)).name())
#define MACRO(macro) printf("macro " #macro " %s ", typeid(macro).name())
"""
C_ONLY = """
#define TYPE(name)
#define FUNCTION(name)
#define MACRO(name) printf("macro " #name " ")
"""


def make_probe(declared: Declarations, language: str) -> str:
    lines = [f"SIZE({name}); TYPE({name});" for name in [*declared.structs, *declared.enums, *declared.aliases]]
    for name, (_, *members) in declared.structs.items():
        names = [member.split()[-1] for member in members]
        lines += [f"OFFSET({name}, {member});" for member in names]
    lines += [f"CONSTANT({name});" for name in declared.constants()]
    lines += [f"FUNCTION({name});" for name in declared.functions]
    lines += [f"MACRO({name}); {_print_value(name)}" for name in declared.macros if name not in NOT_VALUES]
    lines += [f'printf("version {v} %d\\n", NCCL_VERSION({v}));' for v in VERSIONS]
    for macro, kind in INITIALIZERS.items():
        if macro not in declared.macros:
            continue
        lines += [f'{{ {kind} value = {macro}; bytes("{macro}", &value, sizeof value); }}']
    body = "\n  ".join(lines)
    own = CXX_ONLY if language == "c++" else C_ONLY
    return f"{COMMON}{own}int main(void) {{\n  {body}\n  return 0;\n}}\n"


def _print_value(macro: str) -> str:
    if macro == "NCCL_SUFFIX":
        return f'printf("%s.\\n", {macro});'
    if macro == "NCCL_UNDEF_FLOAT":
        return f'printf("%.9g\\n", (double)({macro}));'
    return f'printf("%lld\\n", (long long)({macro}));'  # null pointers print as 0


def run_probe(source: str, language: str, include: Path, folder: Path, *, with_cuda: bool) -> dict[str, str]:
    """Compiles and runs the program; returns what it printed, keyed by the first two words of each line."""
    folder.mkdir(parents=True, exist_ok=True)
    program, file = folder / "probe", folder / ("probe.cpp" if language == "c++" else "probe.c")
    file.write_text(source)
    cuda = [f"-I{STUBS / 'cuda'}"] if with_cuda else []
    standard = "c++17" if language == "c++" else "c11"
    options = [f"-std={standard}", "-w", *SYSTEM, f"-I{include}", *cuda, "-o", str(program)]
    subprocess.run(["g++", "-x", language, str(file), *options], check=True, timeout=120)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=30).stdout
    return {" ".join(line.split()[:2]): line for line in printed.splitlines()}

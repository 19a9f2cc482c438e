"""What a version of nccl.h declares, as plain values that can be compared.

The header is preprocessed with the stub headers beside this file and nothing else, so that the result depends
neither on the machine nor on whether it has CUDA, and parsed by pycparser.
"""

import copy
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser  # type: ignore[import-untyped]

NOT_PUBLIC = ("NCCL_H_", "NCCL_OS_LINUX")
STUBS = Path(__file__).parent / "stubs"
# NVIDIA's newer headers declare one function only where this is defined; whoever builds NCCL defines it.
SYSTEM = ["-DNCCL_OS_LINUX"]
PUBLIC_MACRO = re.compile(r"#define (NCCL_\w+)(\([^)]*\))?\s*(.*)")


@dataclass
class Declarations:
    """Each dictionary is keyed by the name that a program writes."""

    functions: dict[str, str] = field(default_factory=dict)  # "ncclResult_t (int *)"
    enums: dict[str, list[str]] = field(default_factory=dict)  # typedef -> enumerators in order
    structs: dict[str, list[str]] = field(default_factory=dict)  # typedef -> "type member" in order
    aliases: dict[str, str] = field(default_factory=dict)  # any other typedef -> its type
    macros: dict[str, str] = field(default_factory=dict)  # "(X,Y)" and body, spaces removed

    def constants(self) -> list[str]:
        return [name for names in self.enums.values() for name in names]


def read_header(header: Path, *, with_cuda: bool) -> Declarations:
    include = [f"-I{STUBS / 'c'}", *([f"-I{STUBS / 'cuda'}"] if with_cuda else [])]
    text = _preprocess(["-P", *include, "-D__attribute__(x)=", *SYSTEM, str(header)])
    found = Declarations(macros=_macros(header, include))
    for node in c_parser.CParser().parse(text).ext:
        if isinstance(node, c_ast.Typedef):
            _add_typedef(found, node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            found.functions[node.name] = _prototype(node.type)
    return found


def _preprocess(arguments: list[str]) -> str:
    command = ["g++", "-x", "c", "-std=c99", "-E", "-nostdinc", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _macros(header: Path, include: list[str]) -> dict[str, str]:
    found = {}
    for line in _preprocess(["-dM", *include, *SYSTEM, str(header)]).splitlines():
        match = PUBLIC_MACRO.match(line)
        if match and match[1] not in NOT_PUBLIC:
            body = re.sub(r"\s", "", (match[2] or "") + match[3])
            found[match[1]] = body.replace(",}", "}")  # of an initialiser
    return found


def _add_typedef(found: Declarations, node: c_ast.Typedef) -> None:
    target = node.type.type if isinstance(node.type, c_ast.TypeDecl) else node.type
    if isinstance(target, c_ast.Enum):
        found.enums[node.name] = [entry.name for entry in target.values.enumerators]
    elif isinstance(target, c_ast.Struct) and target.decls:
        tag = target.name or "(no tag)"
        members = [f"{_spell(member.type)} {member.name}" for member in target.decls]
        found.structs[node.name] = [f"struct {tag}", *members]
    elif node.name.startswith("nccl") or node.name in ("cudaStream_t", "cudaEvent_t"):
        found.aliases[node.name] = _spell(node.type)


def _prototype(function: c_ast.FuncDecl) -> str:
    parameters = [_spell(entry.type) for entry in function.args.params] if function.args else []
    if parameters == ["void"]:  # `(void)` says the same as `()` did before C23
        parameters = []
    return f"{_spell(function.type)} ({', '.join(parameters)})"


def _spell(declared: c_ast.Node) -> str:
    """The type alone, without the name that it was declared for."""
    nameless = copy.deepcopy(declared)
    inner = nameless
    while not isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    inner.declname = None
    typename = c_ast.Typename(name=None, quals=[], align=None, type=nameless)
    return " ".join(c_generator.CGenerator().visit(typename).split())

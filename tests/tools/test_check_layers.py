"""check_layers lets good trees pass and tells, for each rule, the place, the reason and the mend."""

import pytest

GOOD = {
    "src/base/parameters.cpp": '#include "base/log.hpp"\nauto x = getenv("HOME");\n',
    "src/platform/linux/futex.cpp": "#include <sys/syscall.h>\n",
    "src/observe/flight_sources.cpp": "#include <dirent.h>\n",
    "src/platform/clock.hpp": '#ifdef __linux__\n#include "base/log.hpp"\n#endif\n',
    "src/primitives/host/pause.hpp": '#include <immintrin.h>\ninline void f() { asm volatile("pause"); }\n',
    "src/primitives/cuda/copy.cuh": '#include <cuda_bf16.h>\n#include "primitives/backend.hpp"\n',
    "src/algorithms/ring.hpp": '#include <vector>\n#include "memory/pool.hpp"\n#include "platform/a.hpp"\n',
    "src/api/nccl.cpp": '#include "nccl.h"\n#include "communicator/submit.hpp"\nvoid f(Communicator& c);\n',
    "src/links/tcp/link.hpp": '// getenv(x), Communicator&, asm(y)\nauto s = "getenv(z)"; int n = 1\'000;\n',
    "plugins/net/plugin.cpp": '#include "net_abi.hpp"\n#include "links/tcp/link.hpp"\n',
}

BAD = [
    ("src/base/log.cpp", '\n#include "platform/clock.hpp"\n', 2, "platform is above base"),
    ("src/links/a.hpp", '#include "bootstrap/b.hpp"\n', 1, "siblings"),
    ("src/executors/a.hpp", '#include "planner/choose.hpp"\n', 1, "siblings"),
    ("src/base/log.cpp", '#include "log.hpp"\n', 1, "rooted at src/"),
    ("src/base/log.cpp", '#include "../base/log.hpp"\n', 1, "rooted at src/"),
    ("src/primitives/host/a.hpp", '#include "primitives/cuda/b.cuh"\n', 1, "complete without the other"),
    ("src/primitives/cuda/a.cuh", '#include "primitives/host/b.hpp"\n', 1, "complete without the other"),
    ("src/algorithms/a.hpp", "int a;\n\n#if defined(__CUDA_ARCH__)\n#endif\n", 3, "__CUDA_ARCH__"),
    ("src/primitives/backend.hpp", "#ifdef __x86_64__\n#endif\n", 1, "__x86_64__"),
    ("src/executors/a.cpp", 'void f() {\n  __asm__ __volatile__("");\n}\n', 2, "inline assembly"),
    ("src/memory/a.cpp", "#include <immintrin.h>\n", 1, "intrinsics"),
    ("src/memory/a.cpp", "#include <arm_neon.h>\n", 1, "intrinsics"),
    ("src/planner/a.cpp", 'const char* x = std::getenv("X");\n', 1, "base/parameters.cpp"),
    ("plugins/net/a.cpp", 'const char* x = getenv("X");\n', 1, "base/parameters.cpp"),
    ("src/executors/a.hpp", "void launch(Communicator& c);\n", 1, "small struct"),
    ("src/links/a.hpp", "class Communicator;\n", 1, "small struct"),
    ("src/executors/a.cpp", "#include <cuda_runtime.h>\n", 1, "absent.cpp"),
    ("src/memory/a.hpp", "#include <cuda/std/atomic>\n", 1, "absent.cpp"),
    ("src/bootstrap/a.cpp", "#include <unistd.h>\n", 1, "one system's functions"),
    ("src/base/a.cpp", "#include <sys/stat.h>\n", 1, "one system's functions"),
    ("src/observe/flight_folder.cpp", "int a;\n", 1, "only shrink"),
    ("src/novel/a.hpp", "int a;\n", 1, "is in no layer"),
    ("plugins/net/a.cpp", '#include "api/export.hpp"\n', 1, "siblings"),
]


def test_a_good_tree_passes(write, check) -> None:
    for name, text in GOOD.items():
        write(name, text)
    done = check("check_layers")
    assert done.returncode == 0, done.stderr
    assert f"{len(GOOD)} files, 0 problems" in done.stdout


@pytest.mark.parametrize(("name", "text", "line", "said"), BAD)
def test_a_bad_file_is_told_how_to_mend(write, check, name: str, text: str, line: int, said: str) -> None:
    for other, good in GOOD.items():
        write(other, good)
    write(name, text)
    done = check("check_layers")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}:{line}: ")
    assert said in done.stderr
    assert "    Why: " in done.stderr
    assert "    FIX: " in done.stderr
    assert "1 problems" in done.stdout


def test_an_empty_tree_is_not_a_success(check) -> None:
    assert check("check_layers").returncode == 2

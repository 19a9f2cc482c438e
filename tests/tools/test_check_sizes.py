"""check_sizes counts lines, parameters and members, and keeps its exceptions shrinking."""

import subprocess
from pathlib import Path


def function(lines: int, name: str = "f") -> str:
    return f"void {name}() {{\n" + "  g();\n" * (lines - 2) + "}\n"


def exceptions(root: Path, entry: str) -> None:
    table = root / "tools" / "sizes.toml"
    table.write_text(table.read_text().split("[exceptions]")[0] + f"[exceptions]\n{entry}\n")


def commit(root: Path) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *arguments], cwd=root, check=True, timeout=60)


def test_what_just_fits_passes(write, check) -> None:
    write("src/a.cpp", function(80) + "int h(int a, int b, int c, int d, int e, int f, int g) { return a; }\n")
    write("src/b.cpp", "// line\n" * 600)
    write("src/c.cpp", "int ncclX(int a, int b, int c, int d, int e, int f, int g, int h) { return a; }\n")
    write("python/a.py", "def p(a, b, c, d: dict[str, int], e, f, g=(1, 2), *, h, i=1) -> None:\n    return a\n")
    done = check("check_sizes")
    assert done.returncode == 0, done.stderr


def test_too_large_is_told(write, check) -> None:
    write("src/a.cu", function(81, "longOne"))
    write("src/b.cpp", "// line\n" * 601)
    write("src/c.cpp", "int h(int a, int b, int c, int d, int e, int f, int g, int i) { return a; }\n")
    write("tools/program", "#!/usr/bin/env python3\ndef p(a, b, c, d, e, f, g, h, *, i):\n    return a\n")
    done = check("check_sizes")
    assert done.returncode == 1
    assert "src/a.cu:1: longOne has 81 lines, the limit is 80" in done.stderr
    assert "src/b.cpp:1: src/b.cpp has 601 lines, the limit is 600" in done.stderr
    assert "src/c.cpp:1: h has 8 parameters, the limit is 7" in done.stderr
    assert "tools/program:2: p has 8 parameters, the limit is 7" in done.stderr
    assert done.stderr.count("FIX: ") == 4


def members(count: int, name: str = "Large") -> str:
    return f"class {name} {{\n public:\n" + "".join(f"  int a{i}_ = 0;\n" for i in range(count)) + "};\n"


# 10 members: nested types, aliases, friends and what stands in bodies or comments are none.
MIXED = """template <typename T>
class Mixed final : public Base<T> {
 public:
  using Value = T;
  enum class Kind { kOne, kTwo };
  struct Nested { int a, b, c; };
  explicit Mixed(int a) : a_(a), b_{1, 2} { f(a); }
  ~Mixed() = default;
  template <typename U, typename V>
  std::map<U, V> list(const U& one, V other = {}) const { int local = 0; return {local, one}; }
  bool operator==(const Mixed&) const = default;
  friend class Other;

 private:
  // int commented;
  static constexpr int kMany[] = {1, 2, 3};
  int a_ = 0, b_[2];
  std::function<void(int, int)> call_;
  std::map<int, std::pair<int, int>> map_{};
  struct { int inner; } unnamed_;
};
"""


def test_members_of_classes_are_counted(write, check, tmp_path: Path) -> None:
    write("src/a.hpp", members(40))
    assert check("check_sizes").returncode == 0
    write("src/a.hpp", members(41) + MIXED)
    done = check("check_sizes")
    assert done.returncode == 1
    assert "src/a.hpp:1: Large has 41 members, the limit is 40" in done.stderr
    assert done.stderr.count("FIX: ") == 1
    table = tmp_path / "tools" / "sizes.toml"
    table.write_text(table.read_text().replace("members = 40", "members = 9"))
    write("src/a.hpp", MIXED)
    assert "src/a.hpp:2: Mixed has 10 members, the limit is 9" in check("check_sizes").stderr


def test_an_exception_states_the_size_exactly(write, check, tmp_path: Path) -> None:
    write("src/a.cpp", function(90))
    exceptions(tmp_path, '"src/a.cpp:f" = 90')
    assert check("check_sizes").returncode == 0
    for size in (89, 91):
        exceptions(tmp_path, f'"src/a.cpp:f" = {size}')
        done = check("check_sizes")
        assert done.returncode == 1
        assert f"the exception says {size}" in done.stderr


def test_an_idle_exception_goes(write, check, tmp_path: Path) -> None:
    write("src/a.cpp", function(10))
    exceptions(tmp_path, '"src/a.cpp:f" = 90')
    done = check("check_sizes")
    assert done.returncode == 1
    assert "not needed any more" in done.stderr


def test_exceptions_never_grow(write, check, tmp_path: Path) -> None:
    write("src/a.cpp", function(90))
    exceptions(tmp_path, '"src/a.cpp:f" = 90')
    commit(tmp_path)
    assert check("check_sizes").returncode == 0
    write("src/a.cpp", function(95))
    exceptions(tmp_path, '"src/a.cpp:f" = 95')
    assert "is new or larger" in check("check_sizes").stderr
    write("src/a.cpp", function(85))
    exceptions(tmp_path, '"src/a.cpp:f" = 85')
    assert check("check_sizes").returncode == 0

"""Plugins of NCCL and drivers that do not fit: each libnccl.so.2 of a program here is asked for itself."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from jobs import GUARD
from planted import around
from stretto.audit import gpus, libraries, plugins
from stretto.audit.context import LEVELS, Context
from stretto.audit.finding import Finding, Severity
from test_audit import HEALTHY, ROOT, gravest, look


def test_a_plugin_that_hangs_when_it_is_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, plugin = tmp_path / "plugin.c", tmp_path / "libnccl-tuner.so"
    source.write_text("#include <unistd.h>\n__attribute__((constructor)) static void wait(void) { sleep(600); }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", plugin], check=True, timeout=GUARD)
    monkeypatch.setattr(plugins, "_TRY_SECONDS", 20.0)
    # By its usual name on the search path, and by the variable.
    for variables in ({"LD_LIBRARY_PATH": str(tmp_path)}, {"NCCL_TUNER_PLUGIN": str(plugin)}):
        context = around(**variables, NCCL_NET_PLUGIN="none", NCCL_PROFILER_PLUGIN="none")
        found = gravest(look("environment.plugins", context))
        assert found.severity is Severity.WARNING and found.subject == "tuner" and "constructor" in found.cause


def test_a_plugin_that_hangs_is_named_within_the_time_of_an_audit(tmp_path: Path) -> None:
    """As its constructor waits, and as it hangs ranks that start with it."""
    plugin = compiled(
        tmp_path / "libnccl-profiler.so",
        "#include <unistd.h>\n__attribute__((constructor)) static void wait(void) { sleep(600); }\n",
    )
    context = around(NCCL_PROFILER_PLUGIN=str(plugin), NCCL_NET_PLUGIN="none", NCCL_TUNER_PLUGIN="none")
    context = dataclasses.replace(context, level=dataclasses.replace(LEVELS["default"], seconds=60))
    found = gravest(look("environment.plugins", context))
    assert found.severity is Severity.WARNING and "constructor" in found.cause, found
    found = gravest(look("environment.refused-variables", context))
    assert found.severity is Severity.ERROR and "did not end an all-reduce" in found.measured, found


def compiled(file: Path, text: str, *options: object) -> Path:
    """A shared library, or with `-o` of its own a program."""
    file.parent.mkdir(parents=True, exist_ok=True)
    source = file.with_suffix(".c")
    source.write_text(text)
    kind = () if "-no-pie" in options else ("-shared", "-fPIC")
    subprocess.run(["gcc", *kind, source, "-o", file, *map(str, options)], check=True, timeout=GUARD)
    return file


def program_with(folder: Path, texts: str) -> Path:
    """A program that is linked to a libnccl.so.2 of its own, which has these texts in it and looks for plugins beside
    itself.
    """
    text = f"const char* const texts[] = {{{texts}}};\nint ncclAllReduce(void) {{ return texts[0] != 0; }}\n"
    library = compiled(folder / "lib/libnccl.so.2", text, "-Wl,-soname,libnccl.so.2", f"-Wl,-rpath,{folder}/lib")
    call = "int ncclAllReduce(void);\nint main(void) { return ncclAllReduce(); }\n"
    return compiled(folder / "program", call, "-no-pie", library, f"-Wl,-rpath,{folder}/lib")


def of(program: Path, **variables: str) -> Context:
    return dataclasses.replace(around(PATH="/nowhere", **variables), programs=(program,), given=HEALTHY)


def by_subject(id: str, context: Context) -> dict[str, Finding]:
    return {one.subject: one for one in look(id, context)}


def test_a_plugin_that_one_program_alone_would_load_is_looked_at(tmp_path: Path) -> None:
    program = program_with(tmp_path, '"none"')
    plugin = compiled(tmp_path / "lib/libnccl-net.so", "int ncclNet_v11;")
    found = by_subject("environment.plugins", of(program))
    assert "net: none" in found["net"].measured, "this Python does not get it"
    assert found[f"net, {program}"].severity is Severity.OK and str(plugin) in found[f"net, {program}"].measured
    plugin.write_text("no library")
    found = by_subject("environment.plugins", of(program))
    assert found[f"net, {program}"].severity is Severity.WARNING and "no library" in found[f"net, {program}"].cause


@pytest.mark.parametrize(("version", "word"), [(1, "older"), (4, ""), (9, "newer")])
def test_a_plugin_of_another_version_is_named(version: int, word: str, tmp_path: Path) -> None:
    program = program_with(tmp_path, '"ncclTunerPlugin_v4", "ncclTunerPlugin_v3"')
    plugin = compiled(tmp_path / "tuner.so", f"int ncclTunerPlugin_v{version};")
    found = by_subject("environment.plugin-versions", of(program, NCCL_TUNER_PLUGIN=str(plugin)))
    (mine,) = found.values()
    assert mine.subject == f"tuner, {program}" and f"v{version}" in mine.measured and "v3, v4" in mine.measured
    assert mine.severity is (Severity.WARNING if word else Severity.OK)
    assert not word or (f"the plugin is {word} than" in mine.cause and "NCCL_TUNER_PLUGIN=none" in mine.next_step)


def test_a_profiler_that_this_library_does_not_call_is_named(tmp_path: Path) -> None:
    plugin = compiled(tmp_path / "profiler.so", "int ncclProfiler_v3, ncclProfiler_v4;")
    context = dataclasses.replace(around(PATH="/nowhere", NCCL_PROFILER_PLUGIN=str(plugin)), given=HEALTHY)
    found = gravest(look("environment.plugin-versions", context))
    assert found.severity is Severity.WARNING and found.subject == "profiler, this package", found


@pytest.mark.parametrize(
    ("cuda", "severity"), [("13.0", Severity.ERROR), ("12.9", Severity.NOTE), ("12.4", Severity.OK)]
)
def test_a_library_of_a_newer_cuda_than_the_drivers_is_named(cuda: str, severity: Severity, tmp_path: Path) -> None:
    program = program_with(tmp_path, f'"NCCL version 2.99.1+cuda{cuda}"')
    given = dataclasses.replace(HEALTHY, driver="a driver", driver_cuda=12080)
    found = gravest(look("environment.cuda", dataclasses.replace(of(program), given=given)))
    assert found.severity is severity and f"CUDA {cuda}, and the driver has 12.8" in found.measured, found
    if severity is Severity.ERROR:
        assert "insufficient" in found.cause and "nvidia-nccl-cu12" in found.next_step
        assert found.certainty == "likely", "nobody knows with which libcuda it is started"
    assert gravest(look("environment.cuda", of(program))).measured.startswith("no NVIDIA driver")


def test_a_driver_that_the_compatibility_package_makes_newer_is_well(tmp_path: Path) -> None:
    program = program_with(tmp_path, '"NCCL version 2.99.1+cuda13.0"')
    compiled(tmp_path / "compat/libcuda.so.1", "int cuInit;")
    given = dataclasses.replace(HEALTHY, driver="a driver", driver_cuda=12080)
    context = dataclasses.replace(of(program, LD_LIBRARY_PATH=str(tmp_path / "compat")), given=given)
    found = {one.subject: one for one in look("environment.cuda", context)}
    assert found[str(tmp_path / "lib/libnccl.so.2")].severity is Severity.OK, found


def test_a_library_of_another_python_that_is_too_new_is_a_warning(tmp_path: Path) -> None:
    library = program_with(tmp_path, '"NCCL version 2.99.1+cuda13.0"').parent / "lib/libnccl.so.2"
    given = dataclasses.replace(HEALTHY, driver="a driver", driver_cuda=12080)
    context = dataclasses.replace(around(PATH="/nowhere"), given=given)
    user = ("torch 9.0 of /opt/python", tmp_path / "program")
    vars(context)["pythons"] = [libraries.Python(Path("/opt/python"), "3.12", (user,))]
    found = gravest(look("environment.cuda", context))
    assert found.severity is Severity.WARNING and found.subject == str(library), found


def test_the_drivers_cuda_is_asked_of_its_library(tmp_path: Path) -> None:
    library = tmp_path / "libfake.so"
    source = ROOT / "tests/topology/fake_nvml.cpp"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True, timeout=GUARD)
    assert gpus.driver_cuda(tmp_path, str(library)) == 12080
    assert gpus.driver_cuda(tmp_path, str(tmp_path / "none.so")) is None and gpus.driver_cuda(tmp_path) is None

"""Entry points that vLLM and SGLang find. They load every installed plugin in each of their processes, and to import
the package `stretto` is to load its shared library. So these stand beside it: what is off costs a look into the
environment and says nothing; what was asked for and cannot be says why in one line, and the engine goes on without.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_said: set[str] = set()


def vllm() -> None:
    """Called by vLLM in each of its processes. Again: does nothing more. Never raises."""
    _register("vLLM", "STRETTO_VLLM", "stretto.vllm")


def sglang() -> None:
    """Called by SGLang in each of its processes, before it applies the hooks. Never raises."""
    _register("SGLang", "STRETTO_SGLANG", "stretto.sglang")


def say(engine: str, text: str) -> None:
    """One line on stderr, once in each process."""
    if text not in _said:
        _said.add(text)
        print(f"stretto: {engine}: {text}", file=sys.stderr, flush=True)


def _register(engine: str, variable: str, plugin: str) -> None:
    if not _asked_for(engine, variable):
        return
    try:
        import_module(plugin).register()
    except Exception as error:  # An engine without this plugin is better than one that does not start.
        what = " ".join(str(error).split())
        say(engine, f"the plugin failed ({type(error).__name__}: {what}): {engine} keeps its own all-reduce")


def _asked_for(engine: str, variable: str) -> bool:
    """By its variable: 1 is on, 0, nothing or no variable is off. Anything else is off, and is said."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        say(engine, f"{variable}={value} is neither 0 nor 1: {engine} keeps its own all-reduce")
    return value == "1"

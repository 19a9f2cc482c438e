"""What the plugins for inference engines have in common: `stretto.vllm` and `stretto.sglang`.

* `contract`: which functions of an engine a plugin calls or overrides, and whether those of the installed version can
  be called so.
* `switch`: the versions that a plugin serves, and its one line when it stays off.
* `tensors`: which tensors are served.

The variables that turn them on are read by `stretto_engines`, which the engines load.
"""

"""What the plugins for inference engines have in common: `stretto.vllm` and `stretto.sglang`.

* `contract`: which functions of an engine a plugin calls or overrides, and whether those of the installed version can
  be called so.
* `switch`: the variable that turns a plugin on, the versions that it serves, and its one line when it stays off.
* `tensors`: which tensors are served.
"""

"""The inference lab: what the all-reduces of tensor parallelism cost, alone, in chains, with a late rank, and in the
decode step of a model. `stretto lab` is its command line.

* `contenders`: who is compared: this library, the all-reduces of inference engines as baselines, and the peers of
  `stretto bench`.
* `chain`, `straggler`: dependent all-reduces, measured by the native drivers.
* `model`, `layer`: a Qwen3 layer in NumPy, cut for tensor parallelism; `backends`: the all-reduces that it can use;
  `decode_rank`: one rank of it; `decode`: who starts the ranks and measures.
* `document`, `plots`: what comes out.
"""

"""The benchmark: Stretto and its peers, measured in turns, every result verified.

`run.py` is the way in; `cli/bench.py` gives it a command line. `benchmarks/` at the root of the checkout
holds the native drivers, one file per implementation; this package starts them, tells them what to measure
and makes rows, a table and a plot of what they answer.
"""

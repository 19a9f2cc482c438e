"""Measuring which algorithm is fastest at which size, for the planner's table. `cli/tune.py` gives it a
command line.

`search.py` decides what to measure between CPU ranks and who won, `gpu_search.py` between GPUs; `ranks.py` starts the
ranks; `table.py` is the file; `driver.py` is a CPU rank in Python, for installations without the native driver.
"""

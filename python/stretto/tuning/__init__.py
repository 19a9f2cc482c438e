"""Measuring which algorithm is fastest at which size, for the planner's table. `cli/tune.py` gives it a
command line.

`search.py` decides what to measure and who won; `ranks.py` starts the ranks; `driver.py` is a rank in
Python, for installations without the native benchmark driver.
"""

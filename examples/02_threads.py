# Run it: python examples/02_threads.py
# Ranks need not be processes. stretto.threads runs a function on as many threads, gives each a communicator, and
# returns what they returned, in order of rank. NumPy and Stretto let go of Python's lock while they work.
import numpy
import stretto


def mean_of_all(comm: stretto.Communicator) -> float:
    # Each rank draws its own sample ...
    sample = numpy.random.default_rng(comm.rank).normal(loc=5.0, size=100_000)
    local = numpy.array([sample.mean()])
    # ... and "avg" divides the sum by the number of ranks.
    comm.all_reduce(local, "avg")
    return float(local[0])


results = stretto.threads(4, mean_of_all)
print(results)
# Not merely close: every rank gets the same bits.
assert len(set(results)) == 1

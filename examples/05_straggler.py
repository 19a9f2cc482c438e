# Run it: stretto trace record -o trace -- stretto run -n 4 examples/05_straggler.py && stretto trace report trace
# Before every operation one rank, drawn at random, sleeps for 200 us. The report says which one was late, how often,
# and how much shorter the run would be without.
import sys
import time

import numpy
import stretto

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500

with stretto.init() as world:
    # The same seed everywhere, so that all ranks know whose turn it is. The library and the recording do not.
    late = numpy.random.default_rng(seed=7).integers(0, world.size, STEPS)
    gradient = numpy.ones(1 << 14, "float32")
    for step in range(STEPS):
        if late[step] == world.rank:
            time.sleep(200e-6)
        world.all_reduce(gradient, "avg")
    if world.rank == 0:
        turns = numpy.bincount(late, minlength=world.size)
        print("late: " + ", ".join(f"rank {rank} {count} times" for rank, count in enumerate(turns)))

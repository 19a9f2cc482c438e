# Run it: stretto trace record -o run1 -- stretto run -n 4 examples/05_straggler.py 500 2 && stretto trace report run1
# Before every operation one rank sleeps for 200 us: rank 2 here, and without the last number one that is drawn at
# random each time. The report says which one was late, how often, and how much shorter the run would be without.
import sys
import time

import numpy
import stretto

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 500

with stretto.init() as world:
    # The same seed everywhere, so that all ranks know whose turn it is. The library and the recording do not.
    late = numpy.random.default_rng(seed=7).integers(0, world.size, STEPS)
    if len(sys.argv) > 2:
        late[:] = int(sys.argv[2])
    gradient = numpy.ones(1 << 14, "float32")
    for step in range(STEPS):
        if late[step] == world.rank:
            time.sleep(200e-6)
        world.all_reduce(gradient, "avg")
    if world.rank == 0:
        turns = numpy.bincount(late, minlength=world.size)
        print("late: " + ", ".join(f"rank {rank} {count} times" for rank, count in enumerate(turns)))

# Run it: stretto run -n 3 --tag examples/04_failure.py
# What happens when a rank dies in the middle of an operation, and how the others go on without it. (`stretto run` says
# that rank 2 was killed, and gives its status in the end.)
import os
import signal
import time

import numpy
import stretto

comm = stretto.init(name="example")
x = numpy.ones(1000, "float32")
comm.all_reduce(x)

if comm.rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)

began = time.monotonic()
try:
    # Without a word from rank 2, the others would wait for ever. Its connection tells them within a second.
    while True:
        comm.all_reduce(x, "max")
except stretto.RemoteError as error:
    print(f"after {time.monotonic() - began:.2f} s: {error}")

# The old communicator is of no use any more. The survivors make one without the dead rank; abort=True ends what may
# still run on the old one.
survivors = comm.shrink([2], abort=True)
comm.abort()
y = numpy.full(4, survivors.rank + 1, "float32")
survivors.all_reduce(y)
print(f"rank {survivors.rank} of {survivors.size} goes on: {y}")
survivors.close()

# Run it: stretto run -n 4 --tag examples/03_split.py
# A grid of ranks: one communicator per row and one per column, as tensor and data parallelism use them.
import numpy
import stretto

WIDTH = 2

with stretto.init() as world:
    row, column = divmod(world.rank, WIDTH)
    # Ranks with the same color come together, ordered by key. All ranks of the parent call.
    rows = world.split(color=row, key=column)
    columns = world.split(color=column, key=row)
    assert rows is not None and columns is not None  # None is what a rank with color=None gets

    # Within a row: everybody gets everybody's part, in order of rank.
    parts = rows.all_gather(numpy.array([world.rank]))
    # Within a column: the largest.
    largest = columns.all_reduce(numpy.array([world.rank]), "max")
    print(f"rank {world.rank}: row {row} has ranks {parts}, column {column} has {largest[0]} as its largest")

    # Neighbours exchange. A send may wait for its receive, so both stand in one group: in two plain calls, two ranks
    # that both send first could wait for each other.
    mine, theirs = numpy.array([world.rank]), numpy.array([-1])
    with rows.group():
        rows.send(mine, peer=1 - rows.rank)
        rows.recv(theirs, peer=1 - rows.rank)
    print(f"rank {world.rank}: my neighbour in the row is rank {theirs[0]}")

    rows.close()
    columns.close()

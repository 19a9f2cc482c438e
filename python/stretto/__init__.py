"""Stretto: collective communication between the ranks of a job.

    import numpy, stretto
    comm = stretto.init()                     # under `stretto run -n 4`, torchrun, mpirun or srun
    x = numpy.full(1024, comm.rank, "float32")
    comm.all_reduce(x)                        # x now holds the sum over all ranks

`init` joins as one rank; `threads` and `init_all` make several ranks in one process. `Communicator` has the
operations. Errors are subclasses of `StrettoError`.
"""

from stretto._native import version as _version
from stretto.communicator import Communicator, Quantised, Stream, group
from stretto.errors import (
    InternalError,
    InvalidArgument,
    InvalidUsage,
    RemoteError,
    StrettoError,
    SystemCallError,
    Timeout,
    UnhandledCudaError,
)
from stretto.library import (
    build,
    doctor,
    explain,
    include_path,
    library_path,
    nccl_library_path,
    parameters,
    topology,
)
from stretto.start import init, init_all, threads, unique_id
from stretto.values import DTYPES, OPERATORS, PreMulSum

__version__ = _version()

__all__ = [
    "DTYPES",
    "OPERATORS",
    "Communicator",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "PreMulSum",
    "Quantised",
    "RemoteError",
    "Stream",
    "StrettoError",
    "SystemCallError",
    "Timeout",
    "UnhandledCudaError",
    "__version__",
    "build",
    "doctor",
    "explain",
    "group",
    "include_path",
    "init",
    "init_all",
    "library_path",
    "nccl_library_path",
    "parameters",
    "threads",
    "topology",
    "unique_id",
]

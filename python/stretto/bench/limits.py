"""`stretto bench --limits`: runs limits_driver (benchmarks/cuda/limits.cu), which measures what the GPUs allow."""

import subprocess
import sys

from stretto.bench.drivers import Missing, find_driver
from stretto.bench.options import Options

# Of all measurements together, which take about ten seconds.
_SECONDS = 180


def run_limits(options: Options) -> int:
    """Prints the driver's table as it comes and writes its JSON. The driver's status, or Missing with the reason."""
    command = [str(find_driver("limits_driver")), "--gpus", str(max(2, options.ranks))]
    if options.json is not None:
        command += ["--json", str(options.json)]
    try:
        status = subprocess.run(command, timeout=_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise Missing(f"limits_driver did not end within {_SECONDS} s, and was ended") from error
    if options.json is not None and status == 0:
        print(f"limits: {options.json}", file=sys.stderr)
    return status

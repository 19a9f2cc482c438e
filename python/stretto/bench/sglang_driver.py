"""The driver of SGLang's barrier-free all-reduces, in one shot and in two. Run by `stretto bench`, through
standalone.py, with the algorithm's name and the library that tools/gpu_peers makes of benchmarks/peers/sglang.cu.
"""

import ctypes
import sys
from pathlib import Path

import torch

from stretto.bench.symm_session import CarriedSession, arguments, obey

MOST_RANKS = 8
# SGLang uses them up to a few megabytes, and its other kernels from there on.
MOST = {"one-shot": 16 << 20, "two-shot": 128 << 20}
MOST_BLOCKS = 1024


class Call(ctypes.Structure):
    """As benchmarks/peers/sglang.cu has it."""

    _fields_ = (
        ("workspaces", ctypes.c_void_p * MOST_RANKS),
        *((name, ctypes.c_void_p) for name in ("counters", "input", "output", "stream")),
        *((name, ctypes.c_uint32) for name in ("bytes", "slot_bytes")),
        *((name, ctypes.c_int32) for name in ("rank", "ranks", "one_shot")),
    )


class Sglang(CarriedSession):
    """Either of them."""

    whose = "SGLang's push"

    def __init__(self, library: ctypes.CDLL, algorithm: str, rank: int, ranks: int, most_bytes: int) -> None:
        super().__init__(library, algorithm, rank, ranks, most_bytes)
        self._most = min(most_bytes, MOST[algorithm])
        share = -(-self._most // (16 * ranks)) * 16
        self._slot = self._most if algorithm == "one-shot" else 2 * share
        self._places = self._shared(2 * ranks * self._slot)
        self._counters = torch.zeros(MOST_BLOCKS, dtype=torch.int32, device=self._device)
        torch.cuda.synchronize()

    def mistake(self, status: int) -> str:
        return f"CUDA's error {status}"

    def reduce(self, given: torch.Tensor, found: torch.Tensor) -> None:
        call = Call(
            workspaces=(ctypes.c_void_p * MOST_RANKS)(*self._places),
            counters=self._counters.data_ptr(),
            input=given.data_ptr(),
            output=found.data_ptr(),
            stream=torch.cuda.current_stream().cuda_stream,
            bytes=given.numel() * given.element_size(),
            slot_bytes=self._slot,
            rank=self._rank,
            ranks=self._ranks,
            one_shot=int(self._algorithm == "one-shot"),
        )
        self._expect(self._library.sglangAllReduce(ctypes.byref(call)))


def main() -> int:
    parser = arguments(__doc__, ("one-shot", "two-shot"))
    parser.add_argument("--library", type=Path, required=True)
    known = parser.parse_args()

    def make() -> Sglang:
        return Sglang(ctypes.CDLL(str(known.library)), known.algorithm, known.rank, known.ranks, known.max_bytes)

    return obey(known, f"sglang-{known.algorithm}", "SGLang", make)


if __name__ == "__main__":
    sys.exit(main())

"""The driver of all-reduces that inference servers use, out of FlashInfer's headers: vLLM's custom all-reduce and
TensorRT-LLM's one-shot (Lamport) and two-shot. Run by `stretto bench`, through standalone.py, with the algorithm's name
and the library that tools/gpu_peers makes of benchmarks/peers/flashinfer.cu, which says what its functions want.

vLLM's input lies in memory that both ranks see, as in its CUDA graphs; TensorRT-LLM's kernels copy theirs.
"""

import ctypes
import math
import sys
from pathlib import Path

import torch

from stretto.bench.symm_session import CarriedSession, arguments, obey
from stretto.bench.torch_driver import Unsupported

MOST_HIDDEN = 4096  # elements of a token, as of a common model
MOST_ONE_SHOT = 16 << 20  # three buffers of it for each rank; slower than two-shot long before
# Larger ones vLLM hands to NCCL, on H100 and H200.
MOST_VLLM = {2: 64 << 20, 4: 32 << 20, 8: 256 << 10}
TABLE_BYTES = 16 << 20
FLAGS_PER_RANK = 256
MINUS_ZERO = -(1 << 15)  # the bits of a 16-bit float's -0: what has not come yet


class TrtllmCall(ctypes.Structure):
    """As benchmarks/peers/flashinfer.cu has it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("workspace", "input", "output", "stream")),
        *((name, ctypes.c_int32) for name in ("rank", "ranks", "count", "hidden", "one_shot")),
    )


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.peerMistake.restype = ctypes.c_char_p
    library.vllmSignalBytes.restype = ctypes.c_size_t
    library.vllmOpen.restype = ctypes.c_void_p
    pointer, whole = ctypes.c_void_p, ctypes.c_int
    library.vllmOpen.argtypes = [pointer, pointer, ctypes.c_size_t, whole, whole]
    library.vllmRegister.argtypes = library.vllmCaptured.argtypes = library.vllmForget.argtypes = [pointer, pointer]
    library.vllmAllReduce.argtypes = [pointer, pointer, pointer, whole, pointer]
    return library


def _mistake(library: ctypes.CDLL) -> str:
    text: bytes = library.peerMistake()
    return text.decode()


class Vllm(CarriedSession):
    """vLLM's custom all-reduce: one stage between two ranks."""

    whose = "vLLM's custom all-reduce"

    def __init__(self, library: ctypes.CDLL, algorithm: str, rank: int, ranks: int, most_bytes: int) -> None:
        super().__init__(library, algorithm, rank, ranks, most_bytes)
        self._most = min(most_bytes, MOST_VLLM.get(ranks, most_bytes))
        # Behind the signals is what two stages keep between them.
        signals = self._shared(library.vllmSignalBytes() + self._most)
        self._inputs = self._addresses([int(address) for address in self._handle.buffer_ptrs])
        self._table = torch.zeros(TABLE_BYTES, dtype=torch.uint8, device=self._device)
        torch.cuda.synchronize()
        where = self._addresses(signals)
        self._own = library.vllmOpen(where, self._table.data_ptr(), TABLE_BYTES, rank, ranks)

    def mistake(self, status: int) -> str:
        return _mistake(self._library)

    def forget(self) -> None:
        self._library.vllmForget(self._own, self._table.data_ptr())
        self._expect(self._library.vllmRegister(self._own, self._inputs))

    def recorded(self) -> None:
        self._expect(self._library.vllmCaptured(self._own, self._inputs))

    def reduce(self, given: torch.Tensor, found: torch.Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._expect(self._library.vllmAllReduce(self._own, given.data_ptr(), found.data_ptr(), given.numel(), stream))


class Trtllm(CarriedSession):
    """TensorRT-LLM's fused all-reduce with nothing to fuse."""

    whose = "TensorRT-LLM's all-reduce"

    def __init__(self, library: ctypes.CDLL, algorithm: str, rank: int, ranks: int, most_bytes: int) -> None:
        super().__init__(library, algorithm, rank, ranks, most_bytes)
        self._one_shot = algorithm == "one-shot"
        self._most = min(most_bytes, MOST_ONE_SHOT) if self._one_shot else most_bytes
        one_shot = ranks * (self._most if self._one_shot else 4096)
        two_shots = 4096 if self._one_shot else ranks * self._most
        places = self._shared(two_shots) + self._shared(ranks * FLAGS_PER_RANK * 4)
        places += self._shared(3 * one_shot, MINUS_ZERO, torch.int16)
        # Calls in progress, flags of either kind, bytes of a buffer, bytes to erase.
        self._counters = torch.tensor([0, 0, 0, one_shot, 0], dtype=torch.int32, device=self._device)
        places.append(self._counters.data_ptr())
        self._workspace = torch.tensor(places, dtype=torch.int64, device=self._device)
        torch.cuda.synchronize()

    def mistake(self, status: int) -> str:
        return _mistake(self._library)

    def _hidden(self, count: int) -> int:
        """Two-shots want more tokens than there are ranks."""
        return math.gcd(MOST_HIDDEN, count if self._one_shot else count // (2 * self._ranks))

    def refuse(self, words: dict[str, str]) -> None:
        super().refuse(words)
        if self._hidden(int(words["count"])) % 8 or int(words["count"]) % self._hidden(int(words["count"])):
            raise Unsupported(f"{self.whose} wants tokens of whole words of 16 bytes")

    def reduce(self, given: torch.Tensor, found: torch.Tensor) -> None:
        call = TrtllmCall(
            workspace=self._workspace.data_ptr(),
            input=given.data_ptr(),
            output=found.data_ptr(),
            stream=torch.cuda.current_stream().cuda_stream,
            rank=self._rank,
            ranks=self._ranks,
            count=given.numel(),
            hidden=self._hidden(given.numel()),
            one_shot=int(self._one_shot),
        )
        self._expect(self._library.trtllmAllReduce(ctypes.byref(call)))


def main() -> int:
    parser = arguments(__doc__, ("vllm", "one-shot", "two-shot"))
    parser.add_argument("--library", type=Path, required=True)
    known = parser.parse_args()
    kind = Vllm if known.algorithm == "vllm" else Trtllm
    name = "vllm-custom" if known.algorithm == "vllm" else f"trtllm-{known.algorithm}"

    def make() -> CarriedSession:
        return kind(load(known.library), known.algorithm, known.rank, known.ranks, known.max_bytes)

    return obey(known, name, "FlashInfer", make)


if __name__ == "__main__":
    sys.exit(main())

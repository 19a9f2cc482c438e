"""The driver of torch's own all-reduces over symmetric memory. Run by `stretto bench`, through standalone.py, with the
algorithm's name; what it does between commands is in symm_session.py.
"""

import sys

import torch

from stretto.bench.symm_session import SymmetricSession, arguments, obey
from stretto.bench.torch_driver import Unsupported


class Session(SymmetricSession):
    """The operations of torch.ops.symm_mem."""

    whose = "torch's symmetric memory"

    @property
    def in_place(self) -> bool:
        return self._algorithm == "two-shot"

    def refuse(self, words: dict[str, str]) -> None:
        super().refuse(words)
        if words["type"] not in ("bfloat16", "float32"):
            raise Unsupported("torch's symmetric memory reduces bfloat16 and float32")
        if self.in_place and int(words["count"]) % self._ranks:
            raise Unsupported("torch's two-shot all_reduce wants a count that the ranks can share out evenly")
        if words.get("in_place") == "1" and not self.in_place:
            raise Unsupported("torch's one-shot all_reduce does not work in place")

    def run(self) -> None:
        if self.in_place:
            torch.ops.symm_mem.two_shot_all_reduce_(self._input, "sum", self._group)
        else:
            torch.ops.symm_mem.one_shot_all_reduce_out(self._input, "sum", self._group, self._result)


def main() -> int:
    known = arguments(__doc__, ("one-shot", "two-shot")).parse_args()
    name = f"symm-mem-{known.algorithm}"
    size = known.max_bytes
    return obey(
        known, name, f"torch {torch.__version__}", lambda: Session(known.algorithm, known.rank, known.ranks, size)
    )


if __name__ == "__main__":
    sys.exit(main())

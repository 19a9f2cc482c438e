"""`stretto lab`: every command on CPU ranks, small; that wrong results are noticed; and what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stretto.bench.options import UsageError
from stretto.bench.torch_chain import Chain, run_chains
from stretto.lab import all_reduce, chain, decode, document, straggler
from stretto.lab.backends import Alone, Job
from stretto.lab.contenders import KINDS, UNSAFE, contenders
from stretto.lab.decode_rank import Session
from stretto.lab.model import QWEN3_8B, Model, Parts, Shape, reference

SAFE = [kind for kind in KINDS if kind != UNSAFE]


def record(module: Any, options: Any) -> dict[str, Any]:
    """Runs a command that must succeed; what it wrote as JSON."""
    assert module.run(options) == 0
    return dict(json.loads(options.json.read_text()))


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_kind_reduces_right(ranks: int, tmp_path: Path) -> None:
    sizes = {"min_bytes": "4", "max_bytes": "20003", "factor": 11}
    options = all_reduce.AllReduceOptions(
        ranks=ranks, peers=",".join(SAFE), **sizes, rounds=1, budget_ms=2.0, json=tmp_path / "rows.json"
    )
    rows = record(all_reduce, options)["rows"]
    assert {row["implementation"] for row in rows} == {"stretto", *SAFE}
    assert all(row["verified"] and row["wrong"] == 0 for row in rows)


def test_a_chain_is_measured_with_and_without_work(tmp_path: Path) -> None:
    peers = "1stage-2buf,1stage-nosync"
    options = chain.ChainOptions(
        sizes="1K,5000", length=5, work_us="0,30", peers=peers, rounds=2, budget_ms=2.0, json=tmp_path / "rows.json"
    )
    rows = record(chain, options)["rows"]
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        assert row["wrong"] == 0
        assert row["us_median"] >= row["chain_length"] * row["work_us"]
        assert row["us_per_operation"] == pytest.approx(row["us_median"] / 5 - row["work_us"])


def test_the_report_names_the_late_rank_and_the_end_barrier_makes_others_wait(tmp_path: Path) -> None:
    options = straggler.StragglerOptions(
        ranks=3,
        length=2,
        late_at=0,
        late_rank=2,
        late_us=20000,
        work_us=0,
        size="4K",
        rounds=5,
        peers="1stage,1stage-nosync",
        json=tmp_path / "rows.json",
        recording=tmp_path / "recording",
    )
    found = record(straggler, options)
    assert found["report"]["named"] == 2
    assert list((tmp_path / "recording").glob("*.rec"))
    waits = {(row["implementation"], row["place"]): row["waits_in"] for row in found["rows"]}
    # Late inside, the end barrier holds the others in the same operation; without it they wait in the next one.
    assert waits == {
        ("stretto", "before"): 0,
        ("1stage", "before"): 0,
        ("1stage", "inside"): 0,
        ("1stage-nosync", "before"): 0,
        ("1stage-nosync", "inside"): 1,
    }


def test_a_kind_that_is_not_safe_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = straggler.StragglerOptions(
        length=2,
        late_at=0,
        late_us=20000,
        work_us=0,
        rounds=3,
        peers=UNSAFE,
        place="inside",
        json=tmp_path / "rows.json",
    )
    rows = record(straggler, options)["rows"]
    assert [row["wrong"] > 0 for row in rows] == [True]
    assert f"WRONG {UNSAFE}" in capsys.readouterr().out


def test_a_decode_step_gives_what_one_rank_gives(tmp_path: Path) -> None:
    names = ",".join(["stretto", "stretto-fused", *SAFE])
    options = decode.DecodeOptions(
        scale=16, layers=2, batch="1,3", context=7, backends=names, rounds=1, budget_ms=1.0, json=tmp_path / "rows.json"
    )
    rows = record(decode, options)["rows"]
    assert len(rows) == 2 * (2 + len(SAFE))
    for row in rows:
        assert row["wrong"] == 0
        assert 0 < row["error"] < 1e-4
        assert row["same_bits_on_all_ranks"]
        assert row["us_by_part"]["communication"] > 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_sequence_parallelism_gives_what_one_rank_gives(ranks: int, tmp_path: Path) -> None:
    options = decode.SequenceOptions(
        ranks=ranks, scale=32, layers=2, batch="4,12,32", rounds=1, budget_ms=1.0, json=tmp_path / "rows.json"
    )
    found = record(decode, options)
    assert found["lab"] == "sequence-parallel"
    assert {row["implementation"] for row in found["rows"]} == set(options.filled().backends.split(","))
    for row in found["rows"]:
        assert row["wrong"] == 0
        assert row["same_bits_on_all_ranks"]


def measured(folder: Path, backend: Any, rank: int = 0, ranks: int = 1, steps: int = 1) -> dict[str, Any]:
    """What a rank answers of a turn; rank 0 has prepared the same before."""
    words = {"scale": "32", "layers": "1", "batch": "2", "context": "3"}
    for each in sorted({0, rank}):
        session = Session(Job(folder, each, ranks, 0, b""), {"one": backend}, {})
        session.answer("prepare", words)
    return session.answer("measure", {"backend": "one", "warmup": "0", "steps": str(steps)})


class Broken(Alone):
    """Right but in one step, in which an element is another."""

    def __init__(self, step: int, value: float) -> None:
        self._at, self._value, self._calls = 2 * step, value, 0

    def all_reduce(self, x: Any) -> None:
        if self._calls == self._at:
            x.flat[0] = self._value
        self._calls += 1


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("value", [float("nan"), 1e6])
def test_each_step_is_compared(step: int, value: float, tmp_path: Path) -> None:
    right, broken = (measured(tmp_path, backend, steps=3) for backend in (Alone(), Broken(step, value)))
    assert right["wrong"] == 0
    assert right["error"] < 1e-5
    assert broken["wrong"] > 0
    assert broken["error"] > 1e-3
    assert broken["bits"] != right["bits"]


class Tensor(np.ndarray[Any, Any]):
    """As much of a tensor as chains of torch.distributed use."""

    def clone(self) -> "Tensor":
        return self.copy()

    def double(self) -> "Tensor":
        return self.astype(np.float64)

    def abs(self) -> "Tensor":
        return np.abs(self)


@pytest.mark.parametrize(("value", "wrong"), [(4.0, 0), (5.0, 1), (float("nan"), 1), (float("inf"), 1)])
def test_chains_of_torch_are_compared(value: float, wrong: int) -> None:
    def reduce(data: Tensor) -> None:
        data *= 2
        data[0] = value

    source = np.full(3, 2, np.float32).view(Tensor)
    found: Any = run_chains(Chain(), 0, 2, source, source * 2, reduce, lambda: None)  # type: ignore[arg-type]
    assert found["wrong"] == wrong


def test_ranks_with_different_bits_are_no_success() -> None:
    row = {"implementation": "gloo", "wrong": 0, "same_bits_on_all_ranks": True}
    assert document.status({"rows": [row], "failures": {}}) == 0
    assert document.status({"rows": [{**row, "same_bits_on_all_ranks": False}], "failures": {}}) == 1


def test_what_a_rank_alone_computes_of_its_shard_is_wrong(tmp_path: Path) -> None:
    shape = QWEN3_8B.scaled(32, 1)
    expected = reference(shape, 2, 3, Alone(), lambda: 0)
    for rank in (0, 1):
        assert measured(tmp_path, Alone(), rank, 2, steps=3)["wrong"] > 3 * expected.size / 2
    whole = Model(shape, 0, 1)
    whole.prepare(2, 3)
    np.testing.assert_allclose(whole.step(Alone(), Parts(lambda: 0)), expected, rtol=1e-5, atol=1e-5)


class Summed(Alone):
    """The ranks of one process, one after the other: a step's partial sums of all, as they were at the last try."""

    def __init__(self, sums: list[Any]) -> None:
        self._sums, self.at = sums, 0

    def all_reduce(self, x: Any) -> None:
        if self.at == len(self._sums):
            raise Pending(x.copy())
        x[:] = self._sums[self.at]
        self.at += 1


class Pending(Exception):
    """The partial sum that is to be added next."""


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_shards_of_any_number_of_ranks_add_up(ranks: int) -> None:
    shape = Shape(hidden=64, layers=2, heads=16, kv_heads=8, head_dim=4, intermediate=96)
    assert shape.refuse(ranks) == ""
    models = [Model(shape, rank, ranks) for rank in range(ranks)]
    for model in models:
        model.prepare(2, 5)
    sums: list[Any] = []
    while len(sums) < 2 * shape.layers:
        sums.append(np.sum([_partial(model, sums) for model in models], axis=0, dtype=np.float32))
    results = [model.step(Summed(sums), Parts(lambda: 0)) for model in models]
    expected = reference(shape, 2, 5, Alone(), lambda: 0)
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def _partial(model: Model, sums: list[Any]) -> Any:
    with pytest.raises(Pending) as pending:
        model.step(Summed(sums), Parts(lambda: 0))
    return pending.value.args[0]


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (chain, chain.ChainOptions(device="cuda"), "built for CPU ranks"),
        (chain, chain.ChainOptions(length=500), "leave float32's range"),
        (chain, chain.ChainOptions(work_us="-1"), "--work-us -1"),
        (chain, chain.ChainOptions(peers="nobody"), "choose from all, none, 1stage"),
        (straggler, straggler.StragglerOptions(late_rank=2), "--late-rank 2"),
        (straggler, straggler.StragglerOptions(place="after"), "choose from before, inside, both"),
        (straggler, straggler.StragglerOptions(device="cuda"), "built for CPU ranks"),
        (decode, decode.DecodeOptions(ranks=3), "cannot be cut for 3 ranks"),
        (decode, decode.DecodeOptions(scale=3), "leaves no whole sizes"),
        (decode, decode.DecodeOptions(scale=1, layers=10000), "a larger --scale"),
        (decode, decode.SequenceOptions(device="cuda"), "built for CPU ranks"),
        (decode, decode.LayerOptions(device="tpu"), "choose from cpu, cuda"),
        (decode, decode.LayerOptions(backends="mpi"), "choose from stretto"),
        (decode, decode.SequenceOptions(batch="16,3"), "cuts the tokens among 2 ranks"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(module: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        module.run(options)


def test_ranks_on_gpus_want_pytorch_and_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="compute with torch and triton, which this Python lacks"):
        decode.run(decode.LayerOptions(device="cuda"))


def test_all_leaves_out_the_kind_that_is_wrong() -> None:
    names = [peer.name for peer in contenders("all", "cpu")]
    assert names[: len(SAFE)] == SAFE
    assert UNSAFE not in names
    assert [peer.name for peer in contenders(f"{UNSAFE},openmpi", "cpu")] == [UNSAFE, "openmpi"]
    assert contenders("none", "cpu") == []
    assert "vllm-custom" in [peer.name for peer in contenders("all", "cuda")]


def test_json_on_stdout_is_json_alone() -> None:
    words = ["lab", "chain", "--sizes", "64", "--work-us", "0", "--peers", "none", "--rounds", "1", "--json", "-"]
    done = subprocess.run([sys.executable, "-m", "stretto", *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lab"] == "chain"
    assert "chains of 8 all-reduces" in done.stderr


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    small = {"rounds": 1, "budget_ms": 1.0}
    assert chain.run(chain.ChainOptions(sizes="64,256", peers="2stage", plot=tmp_path / "chain.svg", **small)) == 0
    layer = decode.LayerOptions(
        scale=32, batch="1", context=3, backends="stretto,2stage", plot=tmp_path / "l.png", **small
    )
    assert decode.run(layer) == 0
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("chain.svg", "l.png"))

"""`stretto bench --compare` and `--csv`: what counts as slower, what is refused, and what a script gets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from jobs import stretto
from stretto.bench import compare
from stretto.bench.measure import SUBJECT
from stretto.bench.options import Options, UsageError
from stretto.bench.run import REGRESSION, run
from test_bench import Fake, options


def row(bytes: int, low: float, median: float, high: float, name: str = SUBJECT) -> dict[str, Any]:
    return {"implementation": name, "bytes": bytes, "us_median": median, "us_spread": [low, high]}


@pytest.mark.parametrize(
    ("now", "threshold", "verdict"),
    [
        ((10, 10, 10), 0.0, "same"),
        ((12.2, 13, 14), 0.1, "slower"),
        ((11.9, 13, 14), 0.1, "same"),  # 11 is the slow end of before, and 10 % more is 12.1
        ((11.1, 11.2, 11.3), 0.0, "slower"),
        ((10.5, 20, 30), 0.0, "same"),  # the middle halves overlap
        ((7, 7.5, 8), 0.1, "faster"),
        ((7, 7.5, 8.5), 0.1, "same"),
    ],
)
def test_what_lies_apart_has_changed(now: tuple[float, float, float], threshold: float, verdict: str) -> None:
    before = row(8, 9, 10, 11)
    (found,) = compare.changes([before], [row(8, *now)], threshold)
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(now[1] / 10)


def test_only_sizes_that_both_have_and_only_our_own_rows() -> None:
    before = [row(8, 1, 1, 1), row(16, 1, 1, 1), row(32, 1, 1, 1, "openmpi")]
    now = [row(16, 2, 2, 2), row(32, 2, 2, 2), row(16, 9, 9, 9, "openmpi")]
    assert [(one.bytes, one.verdict) for one in compare.changes(before, now, 0.1)] == [(16, "slower")]


def measured(tmp_path: Path, us: float, **words: Any) -> tuple[int, Path]:
    """A run whose Stretto takes so long."""
    path = tmp_path / f"{us}.json"
    status = run(options(json=path, **words), Fake("stretto", us=us), [])
    return status, path


def test_a_slower_run_ends_with_its_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, old = measured(tmp_path, 10)
    status, path = measured(tmp_path, 15, compare=old)
    said = capsys.readouterr().out
    assert status == REGRESSION
    assert "1.500 times as long" in said and "SLOWER" in said and "10 -> 15 µs (x 1.50)" in said
    compared = json.loads(path.read_text())["compared"]
    assert compared["threshold"] == 0.1 and {one["verdict"] for one in compared["sizes"]} == {"slower"}
    assert measured(tmp_path, 15.5, compare=old, threshold=60)[0] == 0
    assert "no size has changed" in capsys.readouterr().out
    assert measured(tmp_path, 5, compare=old)[0] == 0
    assert "FASTER" in capsys.readouterr().out


def test_a_run_that_measured_something_else_is_refused_before_anything_starts(tmp_path: Path) -> None:
    _, old = measured(tmp_path, 10)
    for words, told in (
        ({"ranks": 3}, "--ranks 2, and this run 3"),
        ({"in_place": True}, "--in-place False, and this run True"),
        ({"op": "max"}, "--op sum, and this run max"),
        ({"collective": "broadcast"}, "the collective all_reduce, and this run broadcast"),
    ):
        with pytest.raises(UsageError, match=told):
            run(options(compare=old, **words), Fake("stretto", mode="die"), [])


def test_sizes_that_are_not_there_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, old = measured(tmp_path, 10)
    record = json.loads(old.read_text())
    for one in record["rows"]:
        one["bytes"] += 1
    old.write_text(json.dumps(record))
    status, new = measured(tmp_path, 11, compare=old)
    assert status == 1 and "FAILED --compare: no size of this run is in" in capsys.readouterr().out
    assert json.loads(new.read_text())["rows"], "what was measured is kept"


def earlier(**words: Any) -> str:
    """The record of a run of one row, with these facts."""
    return json.dumps({"schema": "stretto.bench/1", "rows": [{**row(8, 9, 10, 11), **words}]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no JSON"),
        ("[]", "is no run of stretto bench"),
        ('{"schema": "stretto.explain/1"}', "its schema is stretto.explain/1"),
        ('{"schema": "stretto.bench/1", "rows": []}', "has no rows of stretto"),
        ('{"schema": "stretto.bench/1", "rows": [{"implementation": "stretto"}]}', "are not those of stretto bench"),
        ('{"schema": "stretto.bench/1", "rows": 7}', "are not those of stretto bench"),
        (earlier(us_median=0), "are not those of stretto bench"),
        (earlier(us_spread=[1]), "are not those of stretto bench"),
        (earlier(wrong=3), "had wrong results"),
    ],
)
def test_what_is_no_earlier_run_is_refused(text: str, told: str, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text(text)
    with pytest.raises(UsageError, match=told):
        compare.read(old)


def test_rows_as_csv(tmp_path: Path) -> None:
    table, record = tmp_path / "rows.csv", tmp_path / "rows.json"
    assert run(options(csv=table, json=record), Fake("stretto"), [Fake("openmpi")]) == 0
    with table.open(newline="") as file:
        found = list(csv.DictReader(file))
    rows = json.loads(record.read_text())["rows"]
    assert [(one["implementation"], int(one["bytes"])) for one in found] == [
        (one["implementation"], one["bytes"]) for one in rows
    ]
    assert float(found[0]["us_spread_low"]) == rows[0]["us_spread"][0]
    assert "us_spread" not in found[0]


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_stdout_is_the_machine_s_alone(option: str) -> None:
    done = stretto("bench", "all_reduce", "--peers", "none", "-e", "16", "--rounds", 1, "--budget-ms", 1, option, "-")
    assert done.returncode == 0, done.stderr
    if option == "--json":
        assert json.loads(done.stdout)["schema"] == "stretto.bench/1"
    else:
        assert done.stdout.startswith("implementation,") and len(done.stdout.splitlines()) >= 3
    assert "ratio" in done.stderr, "people read the table there"


def test_the_expected_row_is_what_a_run_writes(tmp_path: Path) -> None:
    given: Options = options(json=tmp_path / "rows.json")
    assert run(given, Fake("stretto"), []) == 0
    written = json.loads((tmp_path / "rows.json").read_text())["rows"][0]
    for name, value in compare.expected_row(given).items():
        assert written[name] == value, name

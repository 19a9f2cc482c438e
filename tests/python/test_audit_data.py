"""Data that a library in between changes, delays or puts in another order: the audit names the pair, the collective and
the mechanism by which they are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import stretto
from planted import Faulty
from stretto.audit import rank
from stretto.audit.finding import Severity
from test_audit import gravest, look


def test_wrong_and_stale_data_are_named_with_their_ranks(faulty: Faulty) -> None:
    context = faulty("corrupt,stale")
    found = gravest(look("correctness.pairs", context))
    assert found.severity is Severity.ERROR and found.subject == "0 to 1" and "stale" in found.cause
    found = gravest(look("correctness.collectives", context))
    assert found.severity is Severity.ERROR and "all_reduce on rank 1" in found.measured
    assert "changed on their way" in found.cause
    # On a stream the result comes after the call: the shim changes what is sent, for all ranks.
    found = gravest(look("correctness.streams", context))
    assert found.severity is Severity.ERROR and "collectives on a stream, all_reduce" in found.measured


def test_a_flag_that_overtakes_its_data_is_named(faulty: Faulty) -> None:
    context = faulty("overtake", share=2)
    for found in look("correctness.order", context):
        assert found.severity is Severity.ERROR and "overtook" in found.cause, found
        assert found.subject == "1 to 0, signal", "what comes after the put is there after it"


def test_a_word_that_was_put_later_and_comes_first_is_named(faulty: Faulty) -> None:
    found = {one.subject: one for one in look("correctness.order", faulty("swap", rank=0, share=2))}
    assert {"0 to 1, flag", "0 to 1, later signal"} <= set(found) and not any("1 to 0" in one for one in found)
    assert "overtook" in found["0 to 1, flag"].cause and "put after it" in found["0 to 1, flag"].measured


def test_memory_that_others_may_not_write_to_is_left_out_of_the_order(faulty: Faulty) -> None:
    (found,) = look("correctness.order", faulty("deny", share=2))
    assert found.severity is Severity.OK and "without memory of processes" in found.measured, found


def test_windows_that_others_may_not_read_are_left_out_and_named(faulty: Faulty) -> None:
    """As by kernel.yama.ptrace_scope or seccomp: machine.ptrace has a note of it, and nothing else is wrong."""
    context = faulty("deny", share=2)
    (found,) = look("correctness.windows", context)
    assert found.severity is Severity.OK and "without the algorithm direct (" in found.measured, found
    assert gravest(look("correctness.collectives", context)).severity is Severity.OK


def test_data_that_are_wrong_by_one_mechanism_are_named_with_it(faulty: Faulty) -> None:
    found = gravest(look("correctness.collectives", faulty("protocol")))
    assert found.severity is Severity.ERROR and found.subject == "all_reduce one_shot ll", found
    context = faulty("window")
    assert gravest(look("correctness.collectives", context)).severity is Severity.OK
    found = gravest(look("correctness.windows", context))
    assert found.severity is Severity.ERROR and "collectives in windows, all_reduce" in found.measured, found


def test_data_that_are_wrong_under_load_alone_are_named(faulty: Faulty) -> None:
    context = faulty("pressed", rounds=3)
    assert gravest(look("correctness.pairs", context)).severity is Severity.OK
    found = gravest(look("correctness.loaded", context))
    assert found.severity is Severity.ERROR and found.subject == "1 to 0" and "busy cores" in found.measured, found


def test_wrong_data_under_stress_are_named(faulty: Faulty) -> None:
    context = faulty("corrupt", share=0.2)
    found = gravest(look("stress.random", context))
    assert found.severity is Severity.ERROR and "all_reduce on rank 1" in found.measured, found
    # In a group and on a stream the result comes after the call: the shim changes what is sent, for all ranks.
    for id, where in (("stress.sizes", "groups of all sizes"), ("stress.communicators", "communicators at once")):
        found = gravest(look(id, context))
        assert found.severity is Severity.ERROR and where in found.measured, found
        assert found.subject == "all_reduce"


def test_wrong_data_of_threads_are_named(faulty: Faulty) -> None:
    """In one process every rank has the number of the last one that was made, and one of the process's own is 0 or
    1."""
    found = gravest(look("correctness.threads", faulty("corrupt", rank=-2)))
    assert found.severity is Severity.ERROR and "collectives of threads" in found.measured
    found = gravest(look("stress.oversubscribed", faulty("corrupt", rank=-2, share=0.2)))
    assert found.severity is Severity.ERROR


def test_operations_on_a_stream_are_judged_as_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps its arrays until then."""
    judged: list[int] = []

    def judge(self: rank.Moves, begun: Iterable[rank.Begun]) -> None:
        judged.append(len(list(begun)))

    monkeypatch.setattr(rank.Moves, "judge", judge)
    stretto.threads(2, lambda comm: rank.check_streams(comm, 60.0, 3))
    assert set(judged) == {5} and len(judged) == 2 * 3 * len(rank._SIZES)

"""Who waited for whom in collectives between hosts, by the steps of proxies."""

from __future__ import annotations

from stretto.trace.analysis import analyse
from stretto.trace.report_text import sections
from synthetic_job import Job, make


def test_proxies_say_who_waited_for_whom() -> None:
    made = make(Job(style="net", ranks=4, operations=40))
    report = analyse(made.recording)
    assert {(item.rank, item.peer) for item in report.proxy_waits} == {
        (rank, (rank + way) % 4) for rank in range(4) for way in (1, -1)
    }
    for item in report.proxy_waits:
        assert (item.operations, item.chunks) == (40, 40)  # one step of one direction in each
        # The ring sends upwards: room is waited for there, data is waited for from below.
        upwards = item.peer == (item.rank + 1) % 4
        assert (item.for_room_ns > 0, item.for_data_ns > 0) == (upwards, not upwards)
    waits = [item.for_data_ns + item.for_room_ns for item in report.proxy_waits]
    assert waits == sorted(waits, reverse=True)
    assert any(section.title == "Who waited for whom between hosts" for section in sections(report, 10))
    assert analyse(make(Job(ranks=2, hosts=1, operations=5)).recording).proxy_waits == []

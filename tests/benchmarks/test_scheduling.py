"""The figures of the scheduling benchmark, from made-up measurements."""

from __future__ import annotations

from benchmarks.scheduling import ALL_VERBS, Found, _processor_time


def test_processor_time_is_that_of_the_extender_and_of_all_programs() -> None:
    bare = Found(processor={"etcd": [1.0, 3.0, 2.0], "the extender": [4.0, 4.0, 4.0]})
    ours = Found(processor={"etcd": [2.0, 2.0, 9.0], "the extender": [6.0, 5.0, 7.0]})
    figures = _processor_time(ALL_VERBS, ours, bare)
    assert [(figure.what.rpartition(", ")[2], figure.ours, figure.other) for figure in figures] == [
        ("the extender", 6.0, 4.0),
        ("all together", 8.0, 6.0),
    ]

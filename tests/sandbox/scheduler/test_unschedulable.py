"""The sentence that says why a pod waits."""

from __future__ import annotations

import pytest

from gas.sandbox.api.client import event_note
from gas.sandbox.scheduler.scheduler import waiting_sentence


@pytest.mark.parametrize(
    ("nodes", "reasons", "sentence"),
    [
        pytest.param(
            3,
            ["no card has 5.0 GB free", "Insufficient gpu.intel.com/i915", "no card has 5.0 GB free"],
            "0/3 nodes are available: 1 Insufficient gpu.intel.com/i915, 2 no card has 5.0 GB free.",
            id="equal-reasons-are-counted",
        ),
        pytest.param(0, [], "0/0 nodes are available.", id="no-nodes"),
        pytest.param(1, ["Insufficient a", "Insufficient b"], "0/1 nodes are available: 1 Insufficient a, "
                     "1 Insufficient b.", id="two-reasons-of-one-node"),
    ],
)  # fmt: skip
def test_reasons_are_counted_in_one_sentence(nodes: int, reasons: list[str], sentence: str) -> None:
    assert waiting_sentence(nodes, reasons) == sentence


def test_an_event_is_shortened_to_1024_characters() -> None:
    assert event_note("x" * 1024) == "x" * 1024
    assert event_note("x" * 1025) == "x" * 1020 + " ..."

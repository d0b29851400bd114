"""Any history of pods, binds, lost responses, late and repeated events: no card over capacity, a correct ledger."""

from __future__ import annotations

from hypothesis import settings

from gas.extender.nodes import Nodes
from gas.vocabularies.known import DEFAULT
from tests.extender.histories import CAPACITY, CARDS, Histories, nodes
from tests.listed import list_all

Histories.TestCase.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase


def test_the_nodes_of_the_histories_have_the_intended_capacity() -> None:
    known = Nodes(DEFAULT)
    list_all(known, nodes())
    for _, facts in known:
        assert [dict(amounts) for amounts in facts.inventory.capacity.values()] == [CAPACITY] * CARDS

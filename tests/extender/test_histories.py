"""Any history of pods, binds, lost responses, late and repeated events: no card over capacity, a correct ledger."""

from __future__ import annotations

from hypothesis import settings

from gas.extender.decider import Options
from gas.extender.nodes import Nodes
from gas.placement.demand import FIRST
from gas.placement.node_score import NodeScore
from gas.vocabularies.known import DEFAULT
from tests.extender.decider import DrivenDecider
from tests.extender.histories import CAPACITY, CARDS, NEEDS, Histories, nodes
from tests.listed import list_all

Histories.TestCase.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase


class HistoriesWithScores(Histories):
    """The same while nodes are scored, so that cards are chosen by what pods have asked for."""

    def _decider(self) -> DrivenDecider:
        options = Options(vocabularies=DEFAULT, count_hosts=True, node_score=NodeScore.BALANCE)
        decider = DrivenDecider(self.cluster, options=options)
        assert decider.scores is not None
        for number in range(FIRST):
            need = NEEDS[number % len(NEEDS)]
            decider.scores.learn(f"old-{number}", need, ())
        return decider


HistoriesWithScores.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestHistoriesWithScores = HistoriesWithScores.TestCase


def test_the_nodes_of_the_histories_have_the_intended_capacity() -> None:
    known = Nodes(DEFAULT)
    list_all(known, nodes())
    for _, facts in known:
        assert [dict(amounts) for amounts in facts.inventory.capacity.values()] == [CAPACITY] * CARDS

"""Any history of pods and binds while nodes are scored: no card over capacity, a correct ledger."""

from __future__ import annotations

from hypothesis import settings

from gas.extender.decider import Options
from gas.extender.scoring.scoring import Scoring
from gas.placement.node_cost import FIRST
from gas.placement.order import NodeScore
from gas.vocabularies.known import DEFAULT
from tests.extender.decider import DrivenDecider
from tests.extender.histories import NEEDS, Histories


class HistoriesWithScores(Histories):
    """Do the same while nodes are scored, so that cards are chosen by what pods have asked for."""

    def _decider(self) -> DrivenDecider:
        decider = DrivenDecider(self.cluster, options=Options(vocabularies=DEFAULT))
        scoring = Scoring(NodeScore.BALANCE, decider)
        decider.add(scoring.hooks)
        for number in range(FIRST):
            need = NEEDS[number % len(NEEDS)]
            scoring.scores.learn(f"old-{number}", need, ())
        return decider


HistoriesWithScores.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestHistoriesWithScores = HistoriesWithScores.TestCase

"""The flag of scores."""

from __future__ import annotations

import pytest

from gas.daemon.flags import UsageError
from gas.extender.command_line import parse_flags
from gas.extender.scoring.part import SCORING, ScoringFlags
from gas.placement.order import NodeScore


def test_it_is_off_by_default() -> None:
    assert not SCORING.is_on(parse_flags([]))
    assert SCORING.is_on(parse_flags(["--node-score=balance"]))
    assert parse_flags(["--node-score=balance"]).of(ScoringFlags).node_score is NodeScore.BALANCE


def test_an_unknown_policy_is_refused() -> None:
    sentence = "expected balance|best-fit|best-fit-card|spread|least-loaded|none, found 'fair'"
    with pytest.raises(UsageError) as refused:
        parse_flags(["--node-score=fair"])
    assert str(refused.value) == f"flag --node-score: {sentence}; see --help"

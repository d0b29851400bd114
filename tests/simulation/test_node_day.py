"""Days on one node: its laws hold, and find planted faults. ``python -m simulation.days --planted`` tries all."""

from __future__ import annotations

import pytest

from simulation.node_day import run_day
from simulation.planted import NODE_DAY
from simulation.planting import PlantedFault
from simulation.workers import find
from simulation.workers import run_day as run_day_there


@pytest.mark.parametrize("seed", [1, 2])
def test_the_laws_hold_on_a_day(seed: int) -> None:
    outcome = run_day(seed)
    assert (outcome.law, outcome.sentence) == ("", ""), "\n".join(outcome.trace)
    assert outcome.figures["faults"] > 20
    assert outcome.figures["pods"] > 500


@pytest.mark.parametrize("fault", NODE_DAY, ids=lambda fault: fault.name)
def test_a_fault_fits_the_product(fault: PlantedFault) -> None:
    fault.changed()


def test_a_planted_fault_is_found() -> None:
    assert find(NODE_DAY[0], 1, run_day_there) is not None

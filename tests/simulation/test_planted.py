"""Planted faults stay plantable, and are found. ``python -m simulation --planted`` finds all of them."""

import pytest

from simulation.planted import PLANTED
from simulation.planting import CannotPlant, PlantedFault
from simulation.workers import find


def test_there_are_many_and_their_names_differ() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED) >= 20


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_fault_fits_one_definition_once_and_changes_it_to_other_valid_python(fault: PlantedFault) -> None:
    changed = fault.changed()
    compile(changed.tree, str(changed.path), "exec")


@pytest.mark.parametrize(
    ("definition", "pattern", "sentence"),
    [
        ("check_redy", "X", "expected one definition check_redy in gas, found none"),
        ("run", "X", "expected one definition run in gas, found "),
        (
            "check_ready",
            "if why_not():\n    A",
            "check_ready in gas.extender.readiness has 0 pieces of code like 'if why_not():\\n    A', expected 1; "
            "the most similar one is 'if (sentence := why_not()) is not None:",
        ),
        ("check_ready", "X", "pieces of code like 'X', expected 1"),
    ],
)
def test_a_fault_that_does_not_fit_says_what_was_found(definition: str, pattern: str, sentence: str) -> None:
    with pytest.raises(CannotPlant) as raised:
        PlantedFault("x", definition, pattern, "None", 30).changed()
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", ["half of what is booked counts as free", "bookings of ended pods are kept"])
def test_a_planted_fault_is_found(name: str) -> None:
    found = find(next(fault for fault in PLANTED if fault.name == name), 1)
    assert found is not None

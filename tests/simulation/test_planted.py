"""Planted faults stay plantable, and are found. ``python -m simulation --planted`` finds all of them."""

import pytest

from simulation.planted import PLANTED, PlantedFault
from simulation.workers import find


def test_there_are_many_and_their_names_differ() -> None:
    assert len({fault.name for fault in PLANTED}) == len(PLANTED) >= 20


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_fault_changes_its_module_to_other_valid_python(fault: PlantedFault) -> None:
    text = fault.changed()
    assert text != fault.path.read_text()
    compile(text, str(fault.path), "exec")


@pytest.mark.parametrize("name", ["half of what is booked counts as free", "bookings of ended pods are kept"])
def test_a_planted_fault_is_found(name: str) -> None:
    found = find(next(fault for fault in PLANTED if fault.name == name), 1)
    assert found is not None

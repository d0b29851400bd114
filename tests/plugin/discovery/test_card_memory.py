from __future__ import annotations

from typing import Any

import pytest

from gas.plugin.discovery.scanner import FORGET_AFTER, CardMemory
from gas.values.card_facts import CardFacts, Scan
from gas.values.cards import Card
from tests.plugin.gpus import gpu, scan


def health(scan: Scan) -> dict[int, bool]:
    return {int(gpu.card): gpu.healthy for gpu in scan.gpus}


@pytest.fixture
def memory() -> CardMemory:
    """Return the memory of a node that had cards 0 and 1 at second 0."""
    memory = CardMemory()
    assert health(memory.update(scan(gpu(0), gpu(1)), 0)) == {0: True, 1: True}
    return memory


def test_found_cards_are_the_nodes_cards() -> None:
    found = scan(gpu(2), gpu(10, healthy=False), problems=("card10: ill",))
    assert CardMemory().update(found, 0) == found


def test_a_card_that_cannot_be_read_is_unhealthy_as_long_as_it_is_there(memory: CardMemory) -> None:
    broken = scan(gpu(0), problems=("card1: broken",), faults={Card(1): "broken"})
    for now in (5, 10 * FORGET_AFTER):
        seen = memory.update(broken, now)
        assert seen.gpus == (gpu(0), gpu(1, healthy=False))
        assert seen.problems == ("card1: broken",)
    assert health(memory.update(scan(gpu(0), gpu(1)), 11 * FORGET_AFTER)) == {0: True, 1: True}


def test_a_card_that_was_never_complete_is_not_invented() -> None:
    seen = CardMemory().update(scan(gpu(0), faults={Card(1): "broken"}), 0)
    assert health(seen) == {0: True}


def test_a_missing_card_is_unhealthy_for_a_while_and_then_forgotten(memory: CardMemory) -> None:
    without = scan(gpu(0))
    seen = memory.update(without, 5)
    assert seen.gpus == (gpu(0), gpu(1, healthy=False))
    assert seen.problems == ("card1: the card is missing; it is unhealthy until it returns or is forgotten",)
    assert memory.update(without, 10).problems == seen.problems
    assert health(memory.update(without, 4.9 + FORGET_AFTER)) == {0: True, 1: False}
    assert memory.update(without, 5 + FORGET_AFTER) == without
    assert memory.update(without, 6 + FORGET_AFTER) == without


def test_a_card_that_comes_back_is_healthy_and_waited_for_anew(memory: CardMemory) -> None:
    memory.update(scan(gpu(0)), 5)
    assert health(memory.update(scan(gpu(0), gpu(1)), 10)) == {0: True, 1: True}
    memory.update(scan(gpu(0)), 4 + FORGET_AFTER)
    assert health(memory.update(scan(gpu(0)), 6 + FORGET_AFTER)) == {0: True, 1: False}


def test_a_broken_card_that_then_is_missing_is_remembered_from_then_on(memory: CardMemory) -> None:
    memory.update(scan(gpu(0)), 5)
    memory.update(scan(gpu(0), faults={Card(1): "broken"}), 10)
    memory.update(scan(gpu(0)), 5 + FORGET_AFTER)
    assert health(memory.update(scan(gpu(0)), 10 + FORGET_AFTER)) == {0: True, 1: False}


def test_a_card_that_comes_back_incomplete_is_waited_for_anew(memory: CardMemory) -> None:
    memory.update(scan(gpu(0)), 5)
    memory.update(scan(gpu(0), gpu(1, device_nodes=("card1",))), 10)
    assert health(memory.update(scan(gpu(0)), 6 + FORGET_AFTER)) == {0: True, 1: False}


def test_all_cards_gone_at_once_are_not_forgotten_at_once(memory: CardMemory) -> None:
    assert health(memory.update(scan(), 5)) == {0: False, 1: False}


@pytest.mark.parametrize("faults", [{}, {Card(1): "broken"}], ids=["old-name-gone", "old-name-broken"])
def test_a_card_that_comes_back_under_another_number_is_not_there_twice(
    memory: CardMemory, faults: dict[Card, str]
) -> None:
    renumbered = gpu(2, pci_address=gpu(1).pci_address)
    assert memory.update(scan(gpu(0), renumbered, faults=faults), 5).gpus == (gpu(0), renumbered)


def test_cards_without_address_are_not_taken_for_one_another() -> None:
    memory = CardMemory()
    memory.update(scan(gpu(0, pci_address=""), gpu(1, pci_address="")), 0)
    assert health(memory.update(scan(gpu(0, pci_address="")), 5)) == {0: True, 1: False}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"device_nodes": ("card1",)}, gpu(1, healthy=False), id="a-lost-device-node-makes-it-unhealthy"),
        pytest.param({"device_nodes": ()}, gpu(1, healthy=False), id="so-do-all-of-them"),
        pytest.param(
            {"device_nodes": ("card1", "renderD200")},
            gpu(1, device_nodes=("card1", "renderD200")),
            id="a-renamed-one-is-as-good",
        ),
        pytest.param(
            {"device_nodes": ("card1",), "driver": "xe"},
            gpu(1, device_nodes=("card1",), driver="xe"),
            id="with-another-driver-it-is-another-card",
        ),
        pytest.param(
            {"device_nodes": ("card1",), "pci_address": "0000:77:00.0"},
            gpu(1, device_nodes=("card1",), pci_address="0000:77:00.0"),
            id="at-another-address-it-is-another-card",
        ),
        pytest.param({"memory": 5}, gpu(1, memory=5), id="a-new-description-counts"),
        pytest.param(
            {"memory": 5, "tiles": 7, "numa_node": None, "unread": frozenset({"memory"})},
            gpu(1, tiles=7),
            id="what-could-not-be-read-stays-as-it-was",
        ),
        pytest.param(
            {"driver": "xe", "memory": 5, "unread": frozenset({"memory"})},
            gpu(1, driver="xe", memory=5),
            id="another-card-takes-nothing-over",
        ),
    ],
)
def test_a_card_that_changed(memory: CardMemory, changes: dict[str, Any], expected: CardFacts) -> None:
    assert memory.update(scan(gpu(0), gpu(1, **changes)), 5).gpus == (gpu(0), expected)
    assert health(memory.update(scan(gpu(0), gpu(1)), 10)) == {0: True, 1: True}


def test_a_lost_device_node_is_reported(memory: CardMemory) -> None:
    seen = memory.update(scan(gpu(0), gpu(1, device_nodes=("card1",))), 5)
    assert seen.problems == ("card1: the card lost '/dev/dri/renderD129'; it is unhealthy",)


def test_a_field_that_was_never_read_is_as_in_the_scan(memory: CardMemory) -> None:
    unread = gpu(2, tiles=1, memory=4, unread=frozenset({"tiles", "memory"}))
    for now in (5, 10):
        assert memory.update(scan(gpu(0), gpu(1), unread), now).gpus[2] == gpu(2, tiles=1, memory=4)
    whole = gpu(2, tiles=2, memory=8)
    assert memory.update(scan(gpu(0), gpu(1), whole), 15).gpus[2] == whole
    for now in (20, 25):
        assert memory.update(scan(gpu(0), gpu(1), unread), now).gpus[2] == whole


def test_while_a_source_cannot_look_its_cards_stay_and_others_are_forgotten(memory: CardMemory) -> None:
    seen = memory.update(scan(gpu(0, driver="xe", pci_address="0000:aa:00.0")), 5)
    blind = scan(blind={"i915": "no look"})
    for now in (10, 10 * FORGET_AFTER):
        seen = memory.update(blind, now)
    assert (health(seen), seen.faults) == ({1: False}, {Card(1): "no look"})
    assert health(memory.update(scan(), 11 * FORGET_AFTER)) == {1: False}
    assert health(memory.update(scan(), 12 * FORGET_AFTER)) == {}


def test_recorded_cards_are_known_and_those_that_are_not_found_are_missing() -> None:
    memory = CardMemory()
    memory.recall([gpu(0), gpu(1), gpu(2, driver="xe")])
    assert health(memory.update(scan(blind={"i915": "no look"}), 0)) == {0: False, 1: False, 2: False}
    assert health(memory.update(scan(gpu(0), blind={"xe": "no look"}), 5)) == {0: True, 1: False, 2: False}
    assert health(memory.update(scan(gpu(0)), 6 + FORGET_AFTER)) == {0: True, 2: False}
    assert health(memory.update(scan(gpu(0)), 7 + 2 * FORGET_AFTER)) == {0: True}

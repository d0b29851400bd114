"""Cards of several sources together."""

from __future__ import annotations

import pytest

from gas.plugin.discovery.card_source import read_all
from gas.values.card_facts import CardFacts, Scan
from gas.values.cards import Card
from tests.plugin.gpus import gpu, scan


class Source:
    drivers = ("i915",)

    def __init__(self, found: Scan) -> None:
        self._found = found

    def read(self) -> Scan:
        return self._found


def test_the_cards_of_all_sources_come_in_natural_order() -> None:
    first = scan(gpu(2), gpu(10), problems=("a",), faults={Card(4): "broken"})
    second = scan(gpu(3), problems=("b",), faults={Card(5): "broken"})
    assert read_all([Source(first), Source(second)]) == scan(
        gpu(2), gpu(3), gpu(10), problems=("a", "b"), faults={Card(4): "broken", Card(5): "broken"}
    )


def test_no_source_finds_no_card() -> None:
    assert read_all([]) == Scan()


@pytest.mark.parametrize(
    ("scans", "problem"),
    [
        pytest.param(
            [scan(gpu(0), gpu(1, pci_address="0000:10:00.0"))],
            "card1: card0 has the same PCI address 0000:10:00.0; the card is left out",
            id="two-cards-with-one-pci-address",
        ),
        pytest.param(
            [scan(gpu(0)), scan(gpu(7, pci_address="0000:10:00.0"))],
            "card7: card0 has the same PCI address 0000:10:00.0; the card is left out",
            id="in-two-sources",
        ),
        pytest.param(
            [scan(gpu(0)), scan(gpu(0, pci_address="0000:77:00.0"))],
            "card0: two sources describe a card of this name; only the first one counts",
            id="two-cards-with-one-number",
        ),
    ],
)
def test_no_card_is_there_twice(scans: list[Scan], problem: str) -> None:
    found = read_all([Source(each) for each in scans])
    assert (found.gpus, found.problems) == ((gpu(0),), (problem,))


def test_cards_without_an_address_are_different_cards() -> None:
    cards: tuple[CardFacts, ...] = (gpu(0, pci_address=""), gpu(1, pci_address=""))
    assert read_all([Source(scan(*cards))]).gpus == cards


def test_a_card_that_one_source_found_is_not_broken() -> None:
    found = read_all([Source(Scan(faults={Card(0): "broken"})), Source(scan(gpu(0)))])
    assert (found.gpus, found.broken) == ((gpu(0),), frozenset())

"""Cards that belong together: ``numa-gpu-map`` (``0-0.1_1-2.3``) and ``pci-groups`` (``0.1_2.3.4``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gas.cards import Card
from gas.intel import names
from gas.intel.card_labels import read_number
from gas.intel.entry_faults import EntryFaults
from gas.intel.split_label import joined_label


def read_numa_groups(
    labels: Mapping[str, str], cards: Collection[Card], problems: list[str]
) -> tuple[tuple[Card, ...], ...] | None:
    """The node's cards by NUMA node, in the label's order; None when the node has no such label.

    A label without any readable group gives an empty tuple: nothing can then be said to be in one group.
    """
    if (text := joined_label(labels, names.NUMA_GPU_MAP, problems)) is None:
        return None
    faults = EntryFaults(f"label {names.NUMA_GPU_MAP}", "NUMA nodes with their card numbers such as 0-0.1_1-2.3")
    known, grouped = set(cards), set[Card]()
    groups: dict[int, list[Card]] = {}
    for entry in text.split("_") if text else ():
        numa_node, dash, numbers = entry.partition("-")
        number = read_number(numa_node)
        if number is None or not dash:
            faults.malformed(entry)
            continue
        groups.setdefault(number, []).extend(_group(numbers, known, grouped, faults))
    problems.extend(faults.sentences())
    return tuple(tuple(group) for group in groups.values() if group)


def read_pci_groups(
    labels: Mapping[str, str], cards: Collection[Card], problems: list[str]
) -> dict[Card, frozenset[Card]]:
    """For every card that shares its physical board with others: all cards of that board, itself included."""
    text = joined_label(labels, names.PCI_GROUPS, problems)
    faults = EntryFaults(f"label {names.PCI_GROUPS}", "groups of card numbers such as 0.1_2.3.4")
    known, grouped = set(cards), set[Card]()
    groups: dict[Card, frozenset[Card]] = {}
    for entry in text.split("_") if text else ():
        group = frozenset(_group(entry, known, grouped, faults))
        groups.update((card, group) for card in group)
    problems.extend(faults.sentences())
    return groups


def _group(numbers: str, known: set[Card], grouped: set[Card], faults: EntryFaults) -> list[Card]:
    """The cards of one group; ``grouped`` has those of other groups and gets these."""
    group: list[Card] = []
    for text in numbers.split("."):
        if (number := read_number(text)) is None:
            faults.malformed(text)
        elif (card := Card(number)) not in known:
            faults.unknown(str(card))
        elif card in grouped:
            faults.repeated(str(card))
        else:
            grouped.add(card)
            group.append(card)
    return group

"""Which cards a node has: labels ``gpu-numbers`` (``0.1.2``) and the older ``cards`` (``card0.card1``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from gas.cards import Card, MalformedCard
from gas.intel import names
from gas.intel.entry_faults import EntryFaults
from gas.intel.split_label import joined_label

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def read_number(text: str) -> int | None:
    """A number as the labels write it, of up to nine digits without leading zeros; None for anything else."""
    return int(text) if _NUMBER.fullmatch(text) is not None else None


def read_card(text: str) -> Card | None:
    """``"card3"`` -> ``Card(3)``; None for anything that is no card name."""
    try:
        return Card.parse(text)
    except MalformedCard:
        return None


def read_cards(labels: Mapping[str, str], problems: list[str]) -> tuple[Card, ...]:
    """The node's cards in natural order, each once: of ``gpu-numbers``, else of ``cards``."""
    if numbers := joined_label(labels, names.GPU_NUMBERS, problems):
        faults = EntryFaults(f"label {names.GPU_NUMBERS}", "numbers such as 0.1.10")
        cards = _each_once(numbers.split("."), _numbered_card, faults)
        problems.extend(faults.sentences())
        if cards:
            return cards
    if (card_names := labels.get(names.CARDS)) is None:
        return ()
    faults = EntryFaults(f"label {names.CARDS}", "card names such as card0.card1")
    cards = _each_once(card_names.split("."), read_card, faults)
    problems.extend(faults.sentences())
    return cards


def _each_once(entries: Iterable[str], read: Callable[[str], Card | None], faults: EntryFaults) -> tuple[Card, ...]:
    cards: set[Card] = set()
    for entry in entries:
        if (card := read(entry)) is None:
            faults.malformed(entry)
        elif card in cards:
            faults.repeated(entry)
        else:
            cards.add(card)
    return tuple(sorted(cards))


def _numbered_card(text: str) -> Card | None:
    number = read_number(text)
    return None if number is None else Card(number)

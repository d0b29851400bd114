"""What a bound pod's annotations say it holds, and how far that is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gas.cards import Card
from gas.decision.annotations import read_choice, read_receipt
from gas.decision.text import MalformedAnnotation
from gas.objects import Pod
from gas.placement.choice import Footprint, footprint
from gas.placement.need import PodNeed
from gas.quoted import listed

TilesOfCards = Callable[[str], Mapping[Card, int] | None]
"""Node name -> its cards and how many tiles each has; None while nothing is known of the node."""


@dataclass(frozen=True, slots=True)
class WrittenCards:
    """What is believed.

    footprint   None when nothing readable says which cards
    is_receipt  whether the device plugin says so, rather than the decision
    doubt       a sentence about what is written and not as it should be; empty when all is well
    """

    footprint: Footprint | None
    is_receipt: bool = False
    doubt: str = ""


def written_cards(pod: Pod, need: PodNeed, tiles_of_cards: TilesOfCards) -> WrittenCards:
    """Read a bound pod's annotations. Raises MalformedAnnotation when the decision itself cannot be read.

    A receipt is believed over the decision, but not one that is damaged or names what the node does not have: anybody
    who may edit the pod can write it, and no plugin would. A decision about a card that the node does not have is
    believed: the card may come back.
    """
    doubt = ""
    try:
        receipt = read_receipt(pod, need)
    except MalformedAnnotation as malformed:
        receipt, doubt = None, f"its receipt is not believed: {malformed}"
    if receipt is not None:
        held = footprint(need, receipt)
        if not (strange := _not_there(held, tiles_of_cards(pod.node_name))):
            return WrittenCards(held, is_receipt=True)
        doubt = f"its receipt is not believed: node {pod.node_name} does not have {strange}"
    choice = read_choice(pod, need)
    if choice is None:
        return WrittenCards(None, doubt=doubt)
    held = footprint(need, choice)
    if not doubt and (strange := _not_there(held, tiles_of_cards(pod.node_name))):
        doubt = f"it is booked as written on it, but node {pod.node_name} does not have {strange}"
    return WrittenCards(held, doubt=doubt)


def _not_there(held: Footprint, tiles_of_cards: Mapping[Card, int] | None) -> str:
    """The cards and tiles that the node does not have, in words; empty when it has all of them."""
    if tiles_of_cards is None:
        return ""
    strange = [str(card) for card in held.amounts if card not in tiles_of_cards]
    strange += [
        f"gt{index} of {card}"
        for card, indexes in held.tiles.items()
        for index in sorted(indexes)
        if card in tiles_of_cards and index >= tiles_of_cards[card]
    ]
    return listed(strange) if strange else ""

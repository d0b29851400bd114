"""Which cards a bound pod holds according to its annotations, and how far they are believed."""

from __future__ import annotations

from dataclasses import dataclass

from gas.decision.annotations import MalformedTiles, read_receipt
from gas.decision.text import MalformedAnnotation
from gas.objects.stored import Pod
from gas.placement.choice import Footprint, footprint
from gas.placement.need import PodNeed
from gas.values.amounts import TILES
from gas.values.quoted import listed
from gas.vocabularies.protocol import NodeFacts, Vocabulary


@dataclass(frozen=True, slots=True)
class WrittenCards:
    """The part of a pod's annotations that is believed.

    footprint   None if nothing readable says which cards
    is_receipt  whether the device plugin says so, rather than the decision
    lacks_tiles whether the tiles are malformed, so that only cards and amounts are known
    lacks_cards whether the node does not have cards that the annotations name, so that a change of it may matter
    doubt       a sentence about an annotation that is wrong; empty if all are right
    """

    footprint: Footprint | None
    is_receipt: bool = False
    lacks_tiles: bool = False
    lacks_cards: bool = False
    doubt: str = ""


def written_cards(pod: Pod, need: PodNeed, vocabulary: Vocabulary, node: NodeFacts | None) -> WrittenCards:
    """Read a bound pod's annotations. Raises MalformedAnnotation if the cards of the decision cannot be read.

    vocabulary  the one that the pod is written in
    node        what is known of the pod's node, None if nothing is

    A receipt is believed over the decision, unless it is malformed or names cards that the node does not have: anyone
    who may edit the pod can write such a receipt, and no plugin would. A decision about a card that the node does not
    have is believed: the card may come back.
    """
    capacity = node.inventory.capacity if node is not None else {}
    missing = doubt = ""
    try:
        receipt = read_receipt(pod, need)
    except MalformedAnnotation as malformed:
        receipt, doubt = None, f"its receipt is ignored: {malformed}"
    if receipt is not None:
        received = footprint(need, receipt, capacity)
        if not (missing := _missing_cards(received, node)):
            return WrittenCards(received, is_receipt=True)
        doubt = f"its receipt is ignored: node {pod.node_name} does not have {missing}"
    lacks_tiles = False
    try:
        choice = vocabulary.read_choice(pod, need, node)
    except MalformedTiles as malformed:
        choice, lacks_tiles = malformed.choice, True
        doubt = doubt or f"its cards are booked, but not its tiles: {malformed}"
    if choice is None:
        return WrittenCards(None, lacks_cards=bool(missing), doubt=doubt)
    decided = footprint(need, choice, capacity)
    if not doubt and (missing := _missing_cards(decided, node)):
        doubt = f"its annotated cards are booked, but node {pod.node_name} does not have {missing}"
    return WrittenCards(decided, lacks_tiles=lacks_tiles, lacks_cards=bool(missing), doubt=doubt)


def _missing_cards(held: Footprint, node: NodeFacts | None) -> str:
    """List the cards and tiles that the node does not have; empty if it has all of them or nothing is known of it."""
    if node is None:
        return ""
    capacity = node.inventory.capacity
    missing = [str(card) for card in held.amounts if card not in capacity]
    missing += [
        f"gt{index} of {card}"
        for card, indexes in held.tiles.items()
        for index in sorted(indexes)
        if card in capacity and index >= capacity[card].get(TILES, 0)
    ]
    return listed(missing) if missing else ""

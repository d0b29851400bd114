"""Close cards of nodes to new pods, and open them again: the only commands that change a cluster."""

from gas.cluster import paths
from gas.cluster.objects import get_object, patch_node_annotations
from gas.inspection.cluster import Missing
from gas.inspection.connection import Where
from gas.inspection.following import connected
from gas.objects.stored import Node
from gas.values.card_records import CardRecord, card_name, cordon_of, cordoned_cards
from gas.values.cards import Card
from gas.values.quoted import listed, quoted
from gas.vocabularies.node_parts import recorded_cards


async def set_cordon(where: Where, node: str, named: str, *, is_closed: bool) -> str:
    """Close or open a card that is named by number, PCI address or UUID, and return a sentence about it.

    Raises Missing, NoCluster, ApiRefused, Forbidden, ApiUnavailable.
    """
    async with connected(where) as api:
        if (found := await get_object(api, paths.node(node), Node)) is None:
            raise Missing(f"node {quoted(node)}: expected the name of a node; see kubectl get nodes")
        record = _record(found, named)
        present = cordoned_cards(found.annotations, [record]).get(record.card, ())
        names = present or (cordon_of(record),)
        if bool(present) != is_closed:
            await patch_node_annotations(api, node, dict.fromkeys(names, "true" if is_closed else None))
    if is_closed:
        return (
            f"{record.card} of node {node} is cordoned (annotation {names[0]}): it gets no new pods, and keeps its own"
        )
    return f"{record.card} of node {node} is {'no longer' if present else 'not'} cordoned"


def _record(node: Node, named: str) -> CardRecord:
    """Return the record of a card. On a node without records, a number is enough. Raises Missing."""
    name, records = card_name(named), recorded_cards(node)
    for record in records:
        if name in (record.card, record.pci_address, record.uuid.lower()):
            return record
    if isinstance(name, Card) and not records:
        return CardRecord(card=name)
    known = listed([str(each.card) for each in records]) or "cardN"
    ways = "by number, PCI address or UUID" if records else "by number"
    raise Missing(f"node {quoted(node.name)}: expected one of its cards {ways}, {known}, found {quoted(named)}")

"""Write the cards and their pods as Aliyun's extender does, in the units of ``aliyun.com/gpu-mem``."""

from collections.abc import Iterable

import msgspec

from gas.extender.decider import Decider
from gas.ledger.ledger import Booking
from gas.values.amounts import MEMORY_MAX, Amounts
from gas.values.cards import Card, in_order
from gas.values.quoted import quoted

UNITS = "gpu-mem"


def inspect_json(decider: Decider, node: str = "") -> bytes:
    """Return the body of ``inspect``, with the memory of pods in other vocabularies, rounded up to units.

    node  the only one to include; empty for all
    """
    nodes = []
    for name, facts in decider.nodes:
        if node not in ("", name):
            continue
        identified = decider.nodes.identified(name) or facts
        having = {card: has for card, has in facts.inventory.capacity.items() if has.get(UNITS)}
        order = in_order(having, identified.uuids)
        cards = [(card, having[card]) for card in order if card in having]
        if cards:
            bookings = decider.ledger.on_node(name).values()
            used = [_units(decider.ledger.usage(name).amounts.get(card, {}), has) for card, has in cards]
            devices = [
                {"id": order.index(card), "totalGPU": has[UNITS], "usedGPU": taken, "pods": _pods(bookings, card, has)}
                for (card, has), taken in zip(cards, used, strict=True)
            ]
            total = sum(has[UNITS] for _, has in cards)
            nodes.append({"name": name, "totalGPU": total, "usedGPU": sum(used), "devs": devices})
    unknown = {"error": f"node {quoted(node)} has no card with {UNITS}"} if node and not nodes else {}
    return msgspec.json.encode({"nodes": nodes, **unknown})


def _pods(bookings: Iterable[Booking], card: Card, has: Amounts) -> list[dict[str, object]]:
    return [
        {"name": name, "namespace": namespace, "usedGPU": _units(dict(booking.footprint.amounts[card]), has)}
        for booking in bookings
        if card in booking.footprint.amounts
        for namespace, _, name in (booking.pod.partition("/"),)
    ]


def _units(taken: Amounts, card: Amounts) -> int:
    return -(-taken.get(MEMORY_MAX, 0) * card[UNITS] // (card.get(MEMORY_MAX, 0) or 1))

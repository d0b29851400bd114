"""Write the ledger, the last decisions and the last refusals as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import msgspec

from gas.extender.decider import Decider
from gas.extender.decisions import Decisions, PodRefusal
from gas.extender.pods import Pods
from gas.ledger.ledger import Booking, Ledger, State
from gas.placement.choice import Footprint
from gas.placement.inventory import NOTHING
from gas.values.cards import Card


@dataclass(frozen=True, slots=True)
class CardSummary:
    """One card and what is booked on it: amounts by resource name without prefix, ``memory.*`` in bytes."""

    node: str
    card: Card
    capacity: Mapping[str, int]
    booked: Mapping[str, int]
    pods: int  # how many pods hold the card


def card_summaries(decider: Decider) -> Iterator[CardSummary]:
    """Return each card that a node has or that a pod still holds."""
    ledger = decider.ledger
    names = dict.fromkeys([*(name for name, _ in decider.nodes), *ledger.nodes()])
    for name in names:
        facts = decider.nodes.facts(name)
        capacity = facts.inventory.capacity if facts is not None else {}
        usage = ledger.usage(name)
        holders = ledger.holders(name)
        for card in sorted({*capacity, *holders}):
            yield CardSummary(
                node=name,
                card=card,
                capacity=capacity.get(card, NOTHING),
                booked=usage.amounts.get(card, NOTHING),
                pods=holders.get(card, 0),
            )


def books_json(decider: Decider) -> bytes:
    """Return the body of ``/debug/books``.

    nodes        node -> card -> capacity, booked amounts, tiles held, number of pods, whether disabled
    pods         UID -> which cards the pod holds on which node, its affinity labels and its card's name, if any
    trouble      by UID, bound GPU pods whose annotations differ from what is booked
    promised     by UID, the pods that are nominated for a node, and the cards promised to them there
    problems     nodes with labels, annotations or resources that cannot be used
    differences  how a ledger rebuilt from the pods' objects differs, apart from pods in trouble; always empty
    """
    nodes, pods, ledger = decider.nodes, decider.pods, decider.ledger
    by_node: dict[str, dict[str, object]] = {}
    for summary in card_summaries(decider):
        facts, card = nodes.facts(summary.node), summary.card
        by_node.setdefault(summary.node, {})[str(card)] = {
            "capacity": dict(summary.capacity),
            "booked": dict(summary.booked),
            "tiles": sorted(ledger.usage(summary.node).tiles.get(card, ())),
            "pods": summary.pods,
            "disabled": facts is not None and card in facts.inventory.disabled,
        }
    return msgspec.json.encode(
        {
            "nodes": by_node,
            "pods": {uid: _booking(booking) for uid, booking in ledger.bookings()},
            "trouble": {
                uid: {"pod": bound.object.key, "node": bound.object.node_name, "trouble": bound.trouble.sentence}
                for uid, bound in pods.in_trouble.items()
                if bound.trouble is not None
            },
            "promised": {
                each.nominated.uid: {
                    "pod": each.nominated.pod,
                    "node": each.nominated.node,
                    "priority": each.nominated.priority,
                    "cards": cards_json(each.footprint),
                }
                for each in decider.promises
            },
            "problems": {name: facts.problems for name, facts in nodes if facts.problems},
            "differences": differences(pods, ledger),
        }
    )


def refusals_json(refusals: Mapping[str, PodRefusal]) -> bytes:
    return msgspec.json.encode(dict(refusals))


def decisions_json(decisions: Decisions) -> bytes:
    """Return the body of ``/debug/decisions``: the decisions, newest first."""
    return msgspec.json.encode(list(decisions))


def differences(pods: Pods, ledger: Ledger) -> list[str]:
    """Return a sentence for each held booking that a ledger rebuilt from the pods' objects would not have."""
    held = {uid: booking for uid, booking in ledger.of_pods() if booking.state is State.HELD}
    rebuilt = dict(pods.rebuilt_ledger().bookings())
    found = []
    for uid in sorted({*held, *rebuilt}):
        if uid not in rebuilt:
            found.append(f"pod {held[uid].pod} ({uid}) is booked on {held[uid].node}, its object names no cards")
        elif uid not in held:
            found.append(f"pod {rebuilt[uid].pod} ({uid}) is not booked, its object names cards on {rebuilt[uid].node}")
        elif held[uid] != rebuilt[uid]:
            found.append(f"pod {held[uid].pod} ({uid}) is booked with other cards than its object names")
    return found


def _booking(booking: Booking) -> dict[str, object]:
    company = {name: label for name, label in asdict(booking.footprint.company).items() if label}
    return {
        booking.kind: booking.pod,
        "node": booking.node,
        "state": booking.state.value,
        "cards": cards_json(booking.footprint),
        **({"company": company} if company else {}),
        **({"card_name": booking.footprint.named} if booking.footprint.named else {}),
    }


def cards_json(footprint: Footprint) -> dict[str, object]:
    return {
        str(card): {"amounts": dict(amounts), "tiles": sorted(footprint.tiles.get(card, ()))}
        for card, amounts in footprint.amounts.items()
    }

"""The books and the last refusals as JSON, for people and for the commands and pages to come."""

from __future__ import annotations

import msgspec

from gas.extender.card_books import card_books
from gas.extender.nodes import Nodes, with_problems
from gas.extender.pods import Pods, rebuilt_books
from gas.extender.refusals import Refusals
from gas.ledger import Booking, Ledger, State


def books_json(nodes: Nodes, pods: Pods, ledger: Ledger) -> bytes:
    """``/debug/books``.

    nodes        node -> card -> capacity, booked, tiles held, number of pods, whether disabled
    pods         UID -> what it holds where
    trouble      bound GPU pods whose annotations are not what is booked, by UID
    problems     nodes whose labels make no sense somewhere
    differences  where books made anew from the pods' objects would differ; pods in trouble apart, always empty
    """
    by_node: dict[str, dict[str, object]] = {}
    for books in card_books(nodes, ledger):
        facts = nodes.facts(books.node)
        held = ledger.usage(books.node).tiles
        card = next((card for card in ledger.holders(books.node) if str(card) == books.card), None)
        by_node.setdefault(books.node, {})[books.card] = {
            "capacity": dict(books.capacity),
            "booked": dict(books.booked),
            "tiles": sorted(held.get(card, ())) if card is not None else [],
            "pods": books.pods,
            "disabled": facts is not None and books.card in {str(card) for card in facts.inventory.disabled},
        }
    return msgspec.json.encode(
        {
            "nodes": by_node,
            "pods": {uid: _booking(booking) for uid, booking in ledger.bookings()},
            "trouble": {
                uid: {
                    "pod": bound.object.key,
                    "node": bound.object.node_name,
                    "trouble": bound.trouble.sentence,
                }
                for uid, bound in pods.in_trouble.items()
                if bound.trouble is not None
            },
            "problems": with_problems(nodes),
            "differences": differences(pods, ledger),
        }
    )


def refusals_json(refusals: Refusals) -> bytes:
    """``/debug/refusals``: by pod UID the pod, the time, how many nodes gave each reason, and numbers card by card."""
    return msgspec.json.encode(
        {
            uid: {
                "pod": refusal.pod,
                "time": refusal.time,
                "reasons": dict(refusal.reasons),
                "details": {node: list(cards) for node, cards in refusal.details.items()},
            }
            for uid, refusal in refusals
        }
    )


def differences(pods: Pods, ledger: Ledger) -> list[str]:
    """Sentences about held bookings that books made anew from the pods' objects would not have alike."""
    fresh = rebuilt_books(pods)
    known = {uid: booking for uid, booking in ledger.bookings() if booking.state is State.HELD}
    anew = dict(fresh.bookings())
    found = []
    for uid in sorted({*known, *anew}):
        if uid not in anew:
            found.append(f"pod {known[uid].pod} ({uid}) is booked on {known[uid].node}, its object says nothing")
        elif uid not in known:
            found.append(f"pod {anew[uid].pod} ({uid}) is not booked, its object says node {anew[uid].node}")
        elif known[uid] != anew[uid]:
            found.append(f"pod {known[uid].pod} ({uid}) is booked otherwise than its object says")
    return found


def _booking(booking: Booking) -> dict[str, object]:
    return {
        "pod": booking.pod,
        "node": booking.node,
        "state": booking.state.value,
        "cards": {
            str(card): {
                "amounts": dict(amounts),
                "tiles": sorted(booking.footprint.tiles.get(card, ())),
            }
            for card, amounts in booking.footprint.amounts.items()
        },
    }

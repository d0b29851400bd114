"""Follow plans of moves with the extender's own filter and bind."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gas.inspection.cluster import Cluster
from gas.inspection.defrag import Move
from gas.inspection.objects import InspectedPod


def unbound(pod: InspectedPod) -> InspectedPod:
    """Return a pod as its controller creates it again."""
    return replace(pod, spec=replace(pod.spec, node_name=None))


def passing(cluster: Cluster, pod: InspectedPod) -> list[str]:
    """Return the nodes that pass for a pod."""
    allowed = [name for name, rule in cluster.eligible(pod).items() if not rule]
    return list(cluster.filter(pod, allowed).passing)


def follow_moves(cluster: Cluster, moves: Sequence[Move]) -> None:
    """Evict and place pod after pod. Fails if a step is not possible, or gives other cards than the plan says."""
    for move in moves:
        moved = cluster.pods.records[move.uid]
        booking = cluster.decider.ledger.booking(move.uid)
        assert booking is not None
        assert (moved.key, booking.node) == (move.pod, move.node)
        assert tuple(map(str, booking.footprint.amounts)) == move.cards
        cluster.watched_pods.deleted(moved)
        again = unbound(moved)
        assert move.target in passing(cluster, again)
        assert cluster.book(again, move.target) == move.target_cards
        cluster.pods.put(move.uid, moved)

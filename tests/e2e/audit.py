"""Adds up what is written on bound pods, card by card, and reports what must never happen."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.pods import OVER, PODS
from tests.e2e.promises import broken_promises
from tests.e2e.written_cards import (
    PREFIX,
    WrittenContainer,
    amount,
    held_amounts,
    held_tiles,
    wants_cards,
    written_containers,
)

Sums = dict[str, dict[str, dict[str, int]]]
"""Node -> card -> resource without prefix -> amount."""


def audit(api: KubeApi) -> list[str]:
    """Return sentences about cards over capacity, tiles that two pods have, and annotations that are not obeyed."""
    nodes = {node["metadata"]["name"]: node for node in api.items("/api/v1/nodes")}
    found: list[str] = []
    tiles: dict[tuple[str, str, str], str] = {}
    readable = []
    for pod in live_holders(api):
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        try:
            containers = written_containers(pod)
        except ValueError as error:
            found.append(f"pod {name}: {error}")
            continue
        readable.append(pod)
        wrong = _faults(containers, cards_of_node(nodes[node])) or broken_promises(pod, containers, nodes[node])
        found += [f"pod {name}: {sentence}" for sentence in wrong]
        for card, tile in sorted(held_tiles(containers)):
            other = tiles.setdefault((node, card, tile), name)
            if other != name:
                found.append(f"{node} {card} {tile} is given to {other} and to {name}")
    found += _unwanted_company(readable)
    for node, cards in _sums_of(readable).items():
        capacity = card_capacity(nodes[node])
        found += [
            f"{node} {card}: {taken} of {capacity.get(resource, 0)} {resource} are taken"
            for card, taken_by in cards.items()
            for resource, taken in taken_by.items()
            if taken > capacity.get(resource, 0)
        ]
    return found


def _unwanted_company(pods: list[Object]) -> list[str]:
    """Return sentences about pods that share a card although their exclusion or anti-affinity forbids it."""
    found = []
    for one, other in combinations(pods, 2):
        if one["spec"]["nodeName"] != other["spec"]["nodeName"]:
            continue
        ours, theirs = (pod["metadata"].get("annotations", {}) for pod in (one, other))
        apart = ours.get("gas-card-exclusion", "") != theirs.get("gas-card-exclusion", "")
        green = ours.get("gas-card-anti-affinity")
        apart = apart or (bool(green) and green == theirs.get("gas-card-anti-affinity"))
        if apart and (shared := _cards_of(one) & _cards_of(other)):
            found.append(f"{one['metadata']['name']} and {other['metadata']['name']} must not share {sorted(shared)}")
    return found


def _cards_of(pod: Object) -> set[str]:
    return {card for container in written_containers(pod) for card in container.cards}


def live_holders(api: KubeApi) -> list[Object]:
    """Return the bound pods that request cards and have not ended, terminating ones included."""
    selector = ",".join(("spec.nodeName!=", *(f"status.phase!={phase}" for phase in OVER)))
    return [pod for pod in api.items(PODS, fieldSelector=selector) if wants_cards(pod)]


def sums(api: KubeApi) -> Sums:
    """Return what the bound pods use of each card. Raises ValueError if annotations cannot be read."""
    return _sums_of(live_holders(api))


def _sums_of(pods: list[Object]) -> Sums:
    found: dict[str, dict[str, Counter[str]]] = {}
    for pod in pods:
        cards = found.setdefault(pod["spec"]["nodeName"], {})
        for card, amounts in held_amounts(written_containers(pod)).items():
            cards.setdefault(card, Counter()).update(amounts)
    return {node: {card: dict(amounts) for card, amounts in cards.items()} for node, cards in found.items()}


def cards_of_node(node: Object) -> list[str]:
    """Return the names of the node's cards in natural order."""
    numbers = node["metadata"]["labels"][PREFIX + "gpu-numbers"]
    return [f"card{number}" for number in sorted(map(int, numbers.split(".")))]


def card_capacity(node: Object) -> dict[str, int]:
    """Return the capacity of each card, by resource without prefix."""
    cards = len(cards_of_node(node))
    return {
        name.removeprefix(PREFIX): amount(text) // cards
        for name, text in node["status"]["allocatable"].items()
        if name.startswith(PREFIX)
    }


def _faults(containers: list[WrittenContainer], cards: list[str]) -> list[str]:
    found = []
    for c in containers:
        if len(c.cards) != c.count or len(set(c.cards)) != c.count or not set(c.cards) <= set(cards):
            found.append(f"container {c.name} wants {c.count} of {cards}, has {c.cards}")
        wanted = {card: c.per_card["tiles"] for card in c.cards if c.per_card.get("tiles")}
        if {card: len(set(tiles)) for card, tiles in c.tiles.items()} != wanted:
            found.append(f"container {c.name} wants tiles {wanted}, has {c.tiles}")
    for one, other in combinations(containers, 2):
        if at_one_time(one, other) and held_tiles([one]) & held_tiles([other]):
            found.append(f"containers {one.name} and {other.name} have a tile in common")
    return found


def at_one_time(earlier: WrittenContainer, later: WrittenContainer) -> bool:
    """Return whether two containers of a pod, in the pod's order, ever run at the same time."""
    return earlier.role == "sidecar" or (earlier.role == later.role == "app")

"""Checks that the cards written on a pod obey the pod's annotations."""

from __future__ import annotations

from itertools import pairwise

from tests.e2e.kube_api import Object
from tests.e2e.written_cards import PREFIX, WrittenContainer


def broken_promises(pod: Object, containers: list[WrittenContainer], node: Object) -> list[str]:
    """Return a sentence for each annotation that the choice does not obey, allow and deny lists included."""
    annotations = pod["metadata"].get("annotations", {})
    cards = {card for container in containers for card in container.cards}
    found = []
    if "gas-same-gpu" in annotations:
        shared = [c.cards for c in containers if c.name in annotations["gas-same-gpu"].split(",")]
        if len(set(shared)) != 1:
            found.append(f"the containers of gas-same-gpu have {shared}")
    if (
        "gas-allocate-single-numa" in annotations
        and (groups := numa_groups(node))
        and not any(map(cards.issubset, groups))
    ):
        found.append(f"{sorted(cards)} are not of one NUMA group")
    if "gas-allocate-xelink" in annotations:
        found += [f"{pair} are not linked" for pair in _unlinked_pairs(containers, node)]
    if "gas-allow" in annotations and not cards <= set(annotations["gas-allow"].split(",")):
        found.append(f"{sorted(cards)} are not all allowed")
    if cards & set(annotations.get("gas-deny", "").split(",")):
        found.append(f"of {sorted(cards)} some are denied")
    return found


def numa_groups(node: Object) -> list[set[str]]:
    """Return the cards of each NUMA node; empty if the node has no such label."""
    text = node["metadata"]["labels"].get(PREFIX + "numa-gpu-map", "")
    return [{f"card{number}" for number in group.split("-")[1].split(".")} for group in text.split("_") if group]


def _unlinked_pairs(containers: list[WrittenContainer], node: Object) -> list[str]:
    """Return the tiles of neighbouring pairs of cards without a link."""
    labels = node["metadata"]["labels"]
    devices = sorted(int(number) for number in labels[PREFIX + "gpu-numbers"].split("."))
    text = labels[PREFIX + "xe-links"] + labels.get(PREFIX + "xe-links2", "").removeprefix("Z")
    links = {frozenset(_end(end) for end in link.split("-")) for link in text.split("_")}
    found = []
    for container in containers:
        ends = [
            (devices.index(int(card.removeprefix("card"))), int(tile.removeprefix("gt")))
            for card in container.cards
            for tile in container.tiles[card]
        ]
        for one, other in list(pairwise(ends))[::2]:
            if frozenset((one, other)) not in links:
                found.append(f"{container.name}: {one} and {other}")
    return found


def _end(text: str) -> tuple[int, int]:
    device, tile = text.split(".")
    return int(device), int(tile)

"""Reads what is written on a bound pod, without using the code that wrote it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from tests.e2e.kube_api import Object

PREFIX = "gpu.intel.com/"
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True, slots=True)
class WrittenContainer:
    """A container's requests for each card, and the cards and tiles in its pod's annotations.

    role      "init", "sidecar" or "app"
    count     how many cards it asks for
    per_card  resource without prefix -> amount, the count resource and tiles too
    tiles     by card
    """

    name: str
    role: str
    count: int
    per_card: dict[str, int]
    cards: tuple[str, ...]
    tiles: dict[str, tuple[str, ...]]


def amount(quantity: str) -> int:
    """Parse a quantity: ``"5G"`` -> 5000000000."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if quantity.endswith(suffix):
            return int(quantity.removesuffix(suffix)) * _SUFFIXES[suffix]
    return int(quantity)


def gpu_requests(container: Object) -> dict[str, int]:
    """Return the container's GPU requests, by name without prefix."""
    requests = container.get("resources", {}).get("requests", {})
    return {name.removeprefix(PREFIX): amount(text) for name, text in requests.items() if name.startswith(PREFIX)}


def written_containers(pod: Object) -> list[WrittenContainer]:
    """Return the containers in order, init containers and sidecars first.

    Raises ValueError if an annotation has more or fewer places than the pod has containers.
    """
    annotations = pod["metadata"].get("annotations", {})
    found: list[WrittenContainer] = []
    for field, prefix in (("initContainers", "gas-init-container-"), ("containers", "gas-container-")):
        containers = pod["spec"].get(field, [])
        cards = _places(annotations.get(prefix + "cards", ""), len(containers))
        tiles = _places(annotations.get(prefix + "tiles", ""), len(containers))
        for container, own_cards, own_tiles in zip(containers, cards, tiles, strict=True):
            role = "app" if field == "containers" else "sidecar" if "restartPolicy" in container else "init"
            requests = gpu_requests(container)
            count = requests.get("i915", 0) + requests.get("xe", 0)
            per_card = {name: ceil(value / count) for name, value in requests.items()} if count else {}
            by_card = dict(text.split(":") for text in own_tiles)
            found.append(
                WrittenContainer(
                    name=container["name"],
                    role=role,
                    count=count,
                    per_card=per_card,
                    cards=own_cards,
                    tiles={card: tuple(text.split("+")) for card, text in by_card.items()},
                )
            )
    return found


def _places(text: str, containers: int) -> list[tuple[str, ...]]:
    if not text:
        return [()] * containers
    places = [tuple(place.split(",")) if place else () for place in text.split("|")]
    if len(places) != containers:
        raise ValueError(f"{text!r} has {len(places)} places for {containers} containers")
    return places


def held_amounts(containers: list[WrittenContainer]) -> dict[str, Counter[str]]:
    """Return card -> resource -> the most that the pod uses of it at any time.

    Sidecars that have started stay; init containers run one after the other; app containers run together.
    """
    most: dict[str, Counter[str]] = {}
    staying: dict[str, Counter[str]] = {}
    for container in containers:
        for card in container.cards:
            now = staying.setdefault(card, Counter()) + Counter(container.per_card)
            if container.role != "init":
                staying[card] = now
            most[card] = most.get(card, Counter()) | now  # the larger one of each
    return most


def held_tiles(containers: list[WrittenContainer]) -> set[tuple[str, str]]:
    """Return every (card, tile) that the pod uses at any time."""
    return {(card, tile) for c in containers for card, tiles in c.tiles.items() for tile in tiles}

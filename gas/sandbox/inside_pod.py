"""What the containers of a pod really have, as one sees it inside of them, beside what is written on the pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gas.cards import Card, MalformedCard
from gas.decision import names
from gas.decision.text import MalformedAnnotation, format_container_cards, parse_container_cards
from gas.plugin.devices.affinity_mask import AFFINITY_MASK
from gas.sandbox.containers import ContainerChoice, Containers

Object = dict[str, Any]

_DRI = "/dev/dri/"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsidePod:
    """Containers with GPU devices.

    cards       as in the annotations, those of init containers and sidecars before them in parentheses
    devices     ``card0 renderD128``, of several containers with their names before and ``; `` in between
    as_written  whether each container has exactly the cards that the pod's annotations name for it
    """

    cards: str
    devices: str
    as_written: bool


def inside_pod(pod: Object, containers: Containers) -> InsidePod:
    """Of a pod of which every container has been started."""
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    annotations = pod["metadata"].get("annotations") or {}
    found: dict[str, list[tuple[str, ContainerChoice]]] = {}
    for kind in ("initContainers", "containers"):
        named = [(each["name"], containers.get(uid, each["name"])) for each in spec.get(kind) or ()]
        found[kind] = [(name, container.given if container else ContainerChoice()) for name, container in named]
    init, app = ([_cards(given) for _, given in found[kind]] for kind in ("initContainers", "containers"))
    with_devices = {name: seen for kind in found.values() for name, given in kind if (seen := _devices(given))}
    return InsidePod(
        cards=shown_cards(format_container_cards(init), format_container_cards(app)),
        devices=_joined(with_devices.items()),
        as_written=_is_written(annotations.get(names.INIT_CONTAINER_CARDS, ""), init)
        and _is_written(annotations.get(names.CONTAINER_CARDS, ""), app),
    )


def shown_cards(init: str, app: str) -> str:
    """``(card0|card0) card2``: the cards of init containers, if any, before those of the others."""
    return f"({init}) {app}".strip() if init.strip("|") else app


def _cards(given: ContainerChoice) -> tuple[Card, ...]:
    """In natural order, by the device nodes in the container."""
    found = []
    for path in given.device_nodes:
        try:
            found.append(Card.parse(path.removeprefix(_DRI)))
        except MalformedCard:  # another node of the card
            continue
    return tuple(sorted(found))


def _devices(given: ContainerChoice) -> str:
    nodes = [path.removeprefix(_DRI) for path in given.device_nodes]
    mask = [f"{AFFINITY_MASK}={given.env[AFFINITY_MASK]}"] if AFFINITY_MASK in given.env else []
    return " ".join([*nodes, *mask])


def _joined(containers: Iterable[tuple[str, str]]) -> str:
    named = list(containers)
    if len(named) == 1:
        return named[0][1]
    return "; ".join(f"{name}: {seen}" for name, seen in named)


def _is_written(text: str, had: Sequence[tuple[Card, ...]]) -> bool:
    try:
        written = parse_container_cards(text) if text else ()
    except MalformedAnnotation:
        return False
    if not written:
        return not any(had)
    return [tuple(sorted(cards)) for cards in written] == list(had)

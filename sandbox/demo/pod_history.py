"""Record the history of one pod in the demo: the cards decided for it and the devices in its containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gas.decision import names
from gas.decision.annotations import MalformedAnnotation, format_container_cards, parse_container_cards
from gas.values.cards import Card, MalformedCard
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.devices import AFFINITY_MASK
from gas.vocabularies.intel.names import PREFIX as RESOURCE_PREFIX
from gas.vocabularies.known import KNOWN
from sandbox.kubelet.containers import ContainerDevices, Containers

Object = dict[str, Any]

_DRI = "/dev/dri/"
_ASKED = Vocabularies(KNOWN).managed_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class InsidePod:
    """The GPU devices in the containers of a pod."""

    cards: str  # in the form of the annotations; those of init containers and sidecars first, in parentheses
    devices: str  # such as ``card0 renderD128``; if several containers have devices: ``NAME: devices; NAME: devices``
    as_decided: bool  # each container has exactly the cards that the pod's annotations name for it


@dataclass(slots=True)
class PodHistory:
    """The events of one pod so far. Times are seconds since the start of the demo, None for events still to come."""

    name: str  # of the pod, after its namespace unless that is ``default``
    seen: float
    asks_for_gpus: bool  # a container requests a GPU resource
    found: bool  # the pod already had a node when it was first seen
    bound: float | None = None
    ended: float | None = None
    node: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""  # why it waited: the scheduler's latest sentence
    is_printed: bool = False  # its node, or the reason why it has none, has been printed
    inside: InsidePod | None = None  # None until its containers run, and where nothing runs
    receipt: str = ""  # what its node reports to have allocated, if this differs from the decision

    @classmethod
    def of(cls, pod: Object, seen: float) -> PodHistory:
        metadata, spec = pod["metadata"], pod["spec"]
        name = metadata["name"] if metadata["namespace"] == "default" else f"{metadata['namespace']}/{metadata['name']}"
        return cls(name, seen, asks_for_gpus=_asks_for_gpus(spec), found=bool(spec.get("nodeName")))

    @property
    def cards(self) -> str:
        """The decided cards, separated by ``|`` for containers and ``,`` for cards, with decided tiles.

        The cards of a container are in natural order, which may differ from the order of the decision. Those of init
        containers and sidecars come first, in parentheses: ``(card0|card0) card2``.
        """
        if not self.node or not self.asks_for_gpus:
            return ""
        init = self._cards_and_tiles(names.INIT_CONTAINER_CARDS, names.INIT_CONTAINER_TILES)
        app = self._cards_and_tiles(names.CONTAINER_CARDS, names.CONTAINER_TILES)
        return _joined_cards(init, app) or "no cards annotated"

    def _cards_and_tiles(self, cards: str, tiles: str) -> str:
        by_container = zip_longest(
            self.annotations.get(cards, "").split("|"), self.annotations.get(tiles, "").split("|"), fillvalue=""
        )
        return "|".join(_sorted(with_tiles or plain) for plain, with_tiles in by_container)


def inside_pod(pod: Object, containers: Containers) -> InsidePod:
    """Return the devices in the containers of a pod, all of which must have been started."""
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    annotations = pod["metadata"].get("annotations") or {}
    found: dict[str, list[tuple[str, ContainerDevices]]] = {}
    for kind in ("initContainers", "containers"):
        runs = [(each["name"], containers.get(uid, each["name"])) for each in spec.get(kind) or ()]
        found[kind] = [(name, run.devices if run else ContainerDevices()) for name, run in runs]
    init, app = ([_cards(devices) for _, devices in found[kind]] for kind in ("initContainers", "containers"))
    with_devices = {name: shown for kind in found.values() for name, devices in kind if (shown := _shown(devices))}
    return InsidePod(
        cards=_joined_cards(format_container_cards(init), format_container_cards(app)),
        devices=_joined_devices(with_devices.items()),
        as_decided=_is_decided(annotations.get(names.INIT_CONTAINER_CARDS, ""), init)
        and _is_decided(annotations.get(names.CONTAINER_CARDS, ""), app),
    )


def waiting_reason(pod: Object) -> str:
    """Return the scheduler's sentence about why the pod has no node; empty if there is none."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _sorted(cards: str) -> str:
    """Return the cards of one container in natural order, as `InsidePod` has them; malformed text stays as it is."""
    entries = cards.split(",")
    try:
        return ",".join(sorted(entries, key=lambda entry: Card.parse(entry.partition(":")[0])))
    except MalformedCard:
        return cards


def _joined_cards(init: str, app: str) -> str:
    return f"({init}) {app}".strip() if init.strip("|") else app


def _cards(devices: ContainerDevices) -> tuple[Card, ...]:
    """Return the cards of a container in natural order, by its device nodes."""
    found = []
    for path in devices.device_nodes:
        try:
            found.append(Card.parse(path.removeprefix(_DRI)))
        except MalformedCard:  # another device node of a card, such as renderD128
            continue
    return tuple(sorted(found))


def _shown(devices: ContainerDevices) -> str:
    nodes = [path.removeprefix(_DRI) for path in devices.device_nodes]
    mask = [f"{AFFINITY_MASK}={devices.env[AFFINITY_MASK]}"] if AFFINITY_MASK in devices.env else []
    return " ".join([*nodes, *mask])


def _joined_devices(containers: Iterable[tuple[str, str]]) -> str:
    named = list(containers)
    if len(named) == 1:
        return named[0][1]
    return "; ".join(f"{name}: {shown}" for name, shown in named)


def _is_decided(text: str, found: Sequence[tuple[Card, ...]]) -> bool:
    try:
        decided = parse_container_cards(text) if text else ()
    except MalformedAnnotation:
        return False
    if not decided:
        return not any(found)
    return [tuple(sorted(cards)) for cards in decided] == list(found)


def _asks_for_gpus(spec: Object) -> bool:
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return any(
        name.startswith(RESOURCE_PREFIX) or name in _ASKED
        for container in containers
        for name in (container.get("resources") or {}).get("requests") or {}
    )

"""What has happened to one pod of the demo so far, and how its cards are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gas.cards import Card, MalformedCard
from gas.decision import names
from gas.decision.text import MalformedAnnotation, format_container_cards, parse_container_cards
from gas.intel.names import PREFIX as RESOURCE_PREFIX
from gas.plugin.devices.affinity_mask import AFFINITY_MASK
from gas.sandbox.kubelet.containers import ContainerDevices, Containers

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
    found: dict[str, list[tuple[str, ContainerDevices]]] = {}
    for kind in ("initContainers", "containers"):
        named = [(each["name"], containers.get(uid, each["name"])) for each in spec.get(kind) or ()]
        found[kind] = [(name, container.devices if container else ContainerDevices()) for name, container in named]
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


def _cards(given: ContainerDevices) -> tuple[Card, ...]:
    """In natural order, by the device nodes in the container."""
    found = []
    for path in given.device_nodes:
        try:
            found.append(Card.parse(path.removeprefix(_DRI)))
        except MalformedCard:  # another node of the card
            continue
    return tuple(sorted(found))


def _devices(given: ContainerDevices) -> str:
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


@dataclass(slots=True)
class Story:
    """Times are seconds since the start of the demo; None: not yet.

    name           of the pod, behind its namespace unless that is ``default``
    asks_for_gpus  whether a container asks for anything of ours
    found          whether it had its node when it was first seen
    reason         why it waited, the last sentence of the scheduler
    is_told        whether that sentence, or its node, has been told
    inside         what its containers have; None until they run, and where nothing runs
    receipt        what its node says it has handed out, where that is not what was decided
    """

    name: str
    seen: float
    asks_for_gpus: bool
    found: bool
    bound: float | None = None
    ended: float | None = None
    node: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    is_told: bool = False
    inside: InsidePod | None = None
    receipt: str = ""

    @classmethod
    def of(cls, pod: Object, seen: float) -> Story:
        metadata, spec = pod["metadata"], pod["spec"]
        name = metadata["name"] if metadata["namespace"] == "default" else f"{metadata['namespace']}/{metadata['name']}"
        return cls(name, seen, asks_for_gpus=_asks_for_gpus(spec), found=bool(spec.get("nodeName")))

    @property
    def is_over(self) -> bool:
        return self.ended is not None

    @property
    def cards(self) -> str:
        """As in the annotations: containers by ``|``, cards by ``,``, with their tiles where tiles were given.

        Those of init containers and sidecars stand before them in parentheses: ``(card0|card0) card2``.
        """
        if not self.node or not self.asks_for_gpus:
            return ""
        init = self._cards_and_tiles(names.INIT_CONTAINER_CARDS, names.INIT_CONTAINER_TILES)
        return shown_cards(init, self._cards_and_tiles(names.CONTAINER_CARDS, names.CONTAINER_TILES)) or "none written"

    def _cards_and_tiles(self, cards: str, tiles: str) -> str:
        by_container = zip_longest(
            self.annotations.get(cards, "").split("|"), self.annotations.get(tiles, "").split("|"), fillvalue=""
        )
        return "|".join(with_tiles or plain for plain, with_tiles in by_container)


def why_it_waits(pod: Object) -> str:
    """The scheduler's sentence; empty when there is none."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _asks_for_gpus(spec: Object) -> bool:
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return any(
        name.startswith(RESOURCE_PREFIX)
        for container in containers
        for name in (container.get("resources") or {}).get("requests") or {}
    )

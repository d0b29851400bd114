"""What has happened to one pod of the demo so far, and how its cards are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from gas.decision import names as decision
from gas.intel import names
from gas.sandbox.inside_pod import InsidePod, shown_cards

Object = dict[str, Any]


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
        init = self._cards_and_tiles(decision.INIT_CONTAINER_CARDS, decision.INIT_CONTAINER_TILES)
        return (
            shown_cards(init, self._cards_and_tiles(decision.CONTAINER_CARDS, decision.CONTAINER_TILES))
            or "none written"
        )

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
        name.startswith(names.PREFIX)
        for container in containers
        for name in (container.get("resources") or {}).get("requests") or {}
    )

"""What a pod needs: the question that placement answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

from gas.amounts import TILES, SortedAmounts
from gas.cards import Card


class Role(enum.Enum):
    """When a container holds what it was given (Kubernetes' own accounting of init containers).

    INIT     until it ends, before the next container starts; then it is free for the pod's later containers
    SIDECAR  a restartable init container: from its start until the pod ends
    APP      from the end of the init containers until the pod ends
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerNeed:
    """One container's need.

    count     how many different cards; 0 for a container that uses none
    per_card  what it takes of each, its count resource included (1 each); ``tiles`` is the number of tiles of each card
    """

    name: str
    count: int = 0
    per_card: SortedAmounts = ()
    role: Role = Role.APP

    @property
    def tiles(self) -> int:
        """Tiles on each card."""
        return next((amount for name, amount in self.per_card if name == TILES), 0)


@dataclass(frozen=True)
class PodNeed:
    """A pod's need. Equal needs get equal answers from equal nodes, so it serves as a key.

    containers       in the order in which kubelet starts them: init containers and sidecars, then app containers
    allowed          the only cards that may be used; None when any may
    denied           cards that may not be used
    same_card        positions in ``containers`` of those that share one card; each has count 1 and no tiles
    linked           cards are given in pairs joined by a link, one tile of each; every count is even, tiles 1 a card
    single_numa      all cards come from one NUMA group
    count_resources  names of the resources that only count cards: every container with cards wants one of them, so a
                     refusal names them only if nothing else is short
    """

    containers: tuple[ContainerNeed, ...]
    allowed: frozenset[Card] | None = None
    denied: frozenset[Card] = frozenset()
    same_card: frozenset[int] = frozenset()
    linked: bool = False
    single_numa: bool = False
    count_resources: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(
            (
                self.containers,
                self.allowed,
                self.denied,
                self.same_card,
                self.linked,
                self.single_numa,
                self.count_resources,
            )
        )

    @cached_property
    def wants_cards(self) -> bool:
        """Whether any container wants a card; if none does, the pod fits everywhere."""
        return any(container.count for container in self.containers)

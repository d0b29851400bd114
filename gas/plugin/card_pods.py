"""Interfaces to the pods and containers that have cards. `gas.plugin.matching.matcher.Matcher` implements them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from gas.plugin.devices.allocation import Allocation
from gas.plugin.devices.device_ids import Ids
from gas.values.amounts import Amounts
from gas.values.card_facts import CardFacts
from gas.values.cards import Card


class CardPod(Protocol):
    """A pod on this node that has cards, or waits for them, and has not ended."""

    @property
    def uid(self) -> str: ...

    @property
    def key(self) -> str:
        """``namespace/name``."""

    @property
    def cgroup_uid(self) -> str:
        """The UID in the name of the pod's cgroup."""

    @property
    def isolation(self) -> str:
        """The software by which the pod wants its use of cards limited, in lower case; empty if it does not say."""

    @property
    def is_running(self) -> bool:
        """True if a container of the pod has started, and not all have ended."""

    def requested_memory(self, gpus: Iterable[CardFacts]) -> Mapping[Card, int]:
        """Return the most bytes of memory that the pod may use of each of its cards at a time, 0 if it requests none.

        ``gpus`` are those of this node, for requests that are a part of a card.
        """

    def share(self, container: int, gpus: Iterable[CardFacts]) -> Mapping[Card, Amounts]:
        """Return what a container, by its place in the order of starts, may use of each of these cards.

        The containers of a pod that has one card may each use what the pod requests, unless they request a part of it.
        """


AddToContainer = Callable[[CardPod, int, Sequence[CardFacts]], Allocation]
"""Returns what a container, by its place in the order of starts, gets in addition to these cards."""


class Holder(NamedTuple):
    """A pod of which a container was given device ids, and whether that is certain."""

    pod: CardPod
    is_certain: bool


class CardPods(Protocol):
    def __iter__(self) -> Iterator[CardPod]: ...

    def present(self) -> Collection[str] | None:
        """Return the names of all pods that have not ended, with or without cards; None until all are known."""

    def holders(self, resource: str, ids: Ids) -> Sequence[Holder]:
        """Return the pods of which a container was given exactly these ids of a resource, as far as that is known."""

    def users(self) -> Mapping[Card, Collection[str]]:
        """Return by card the UIDs of the pods that kubelet has admitted with it and that have not ended."""

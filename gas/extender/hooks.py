"""The hooks by which optional parts add to decisions and learn what has happened. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Protocol

from gas.objects.handler import Handler
from gas.objects.stored import Pod
from gas.placement.choice import Footprint
from gas.placement.need import PodNeed
from gas.vocabularies.protocol import NodeFacts

NominatedCards = Mapping[str, Sequence[Footprint]]
"""By node, cards that are nominated for other pods, so they count as booked. Not to be confused with cards that the
ledger has reserved: those are decided, and their pod is being bound."""

NO_CARDS: NominatedCards = MappingProxyType({})


class Observer:
    """The receiver of what the decider reports. The methods of this base class do nothing.

    A method must return at once and must not call the decider.
    """

    def node_changed(self, node: str) -> None:
        """Note that a node, its bookings, or one of its bound pods has changed."""

    def capacity_changed(self, node: str) -> None:
        """Note that what a node has, or its free CPU, memory or pod slots, have changed."""

    def cards_freed(self, node: str) -> None:
        """Note that cards or resources of a node may have become free."""

    def reserved(self, pod: Pod, node: str) -> None:
        """Note that a pod is about to be bound to a node."""

    def taken_back(self, uid: str) -> None:
        """Note that the reservation of a pod was cancelled, because the pod was not bound."""

    def bound_pod_changed(self, uid: str, pod: Pod) -> None:
        """Note that a GPU pod is bound or has changed; ``pod`` has only the metadata that `Pods` retains."""

    def bound_pod_gone(self, uid: str) -> None:
        """Note that a bound GPU pod is gone or has ended."""

    def node_is_invalid(self, node: str, problems: tuple[str, ...]) -> None:
        """Report labels, annotations or resources of a changed node that cannot be used; one sentence each."""

    def allocation_corrected(self, pod: Pod) -> None:
        """Report that the ledger follows a receipt: kubelet gave a bound pod other cards than were decided."""

    def booking_mismatch(self, pod: Pod, sentence: str) -> None:
        """Report, once for each sentence, what is wrong with the annotations of a bound pod."""

    def reservation_vanished(self, uid: str, pod: str) -> None:
        """Note that a complete list of pods lacks one (``namespace/name``) that may be newer: it is in doubt."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def add(self, observers: Sequence[Observer]) -> None:
        self._observers += tuple(observers)


def _to_each(event: str) -> Callable[..., None]:
    def pass_on(self: Observers, *reported: Any) -> None:
        for each in self._observers:
            getattr(each, event)(*reported)

    return pass_on


for _event in [name for name in vars(Observer) if not name.startswith("_")]:
    setattr(Observers, _event, _to_each(_event))


class PodHandler(Handler[Any], Protocol):
    def needs(self, pod: Any, /) -> bool:
        """Return whether the handler must be shown a pod as it is now. One that it knows is needed until its end."""


class OpenReviews(Protocol):
    """Cards that were given to Bindings of other clients which may still be stored."""

    def is_repeated(self, uid: str) -> bool:
        """Return whether another client may still store a Binding that repeats the extender's own of this pod."""

    def forget_repeated(self, uid: str) -> None:
        """Note that no such Binding can be stored any more."""

    def is_open(self, uid: str) -> bool:
        """Return whether a Binding of this pod that was given cards may still be stored."""

    def hurry(self, uid: str) -> None:
        """Find out now whether the pod is bound, without waiting for its Binding any longer."""

    async def settled(self, uid: str) -> None:
        """Hurry, and return once it is known whether the pod is bound."""

    def open_nodes(self) -> frozenset[str]:
        """Return the nodes on which cards are reserved for such Bindings."""

    async def settle_on(self, nodes: Collection[str], *, patience: float) -> None:
        """Hurry the reviews for these nodes. Return once none of them is open, or after ``patience`` seconds."""


FindHopeless = Callable[
    [PodNeed, Collection[str], Callable[[str], NodeFacts | None]], Generator[None, None, Collection[str]]
]
"""(need, failed nodes, facts of a node) -> some of these nodes; others get their turn in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The additions of parts to decisions. Each tuple is empty if no part that is on has anything to add."""

    # each returns, by node, the cards that are nominated for other pods than the one to be decided about
    nominated: tuple[Callable[[Pod], NominatedCards], ...] = ()
    # each is called with a pod that wants cards, its need, and the named nodes
    asked: tuple[Callable[[Pod, PodNeed, Sequence[str]], None], ...] = ()
    # each returns the need with which the cards of a pod (UID, need) are chosen on a node
    choosing: tuple[Callable[[str, PodNeed, NodeFacts | None], PodNeed], ...] = ()
    # each returns which of the failed nodes could not hold a pod even if nothing were booked; responses to filter name
    # such nodes only if there is one
    hopeless: tuple[FindHopeless, ...] = ()
    observers: tuple[Observer, ...] = ()
    handlers: tuple[PodHandler, ...] = ()  # get the pods that the watch shows, after the core
    reviews: tuple[OpenReviews, ...] = ()  # of Bindings of other clients that were given cards
    books: tuple[Callable[[], Mapping[str, object]], ...] = ()  # each returns more content of /debug/books
    # labels and annotations of bound pods to retain, in addition to those of the vocabularies
    bound_names: tuple[str, ...] = ()

    def __add__(self, more: Hooks) -> Hooks:
        return Hooks(**{each.name: getattr(self, each.name) + getattr(more, each.name) for each in fields(Hooks)})


NO_HOOKS = Hooks()

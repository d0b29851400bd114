"""The doors by which optional parts take part in decisions, and learn what has happened. No I/O.

There are four: a part may say which cards are promised to a pod (`Hooks.promised`), admit, refuse or restrict nodes
(`Hooks.restricting`), narrow the choice of cards (`Hooks.choosing`), and observe (`Hooks.observers`, `Hooks.handlers`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gas.extender.bookings import Move
from gas.extender.decisions import PodRefusal
from gas.objects.handler import Handler
from gas.objects.stored import Pod
from gas.placement.choice import Footprint
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed
from gas.vocabularies.protocol import NodeFacts

PromisedCards = Mapping[str, Sequence[Footprint]]
"""By node, cards that are promised to other pods, so they count as booked. Not to be confused with cards that the
ledger has reserved: those are decided, and their pod is being bound."""

NO_CARDS: PromisedCards = MappingProxyType({})


class Change(enum.Flag):
    """The parts of a node that may have changed."""

    PODS = enum.auto()  # its bookings, or one of its bound pods
    FREED = enum.auto()  # cards or resources may have become free
    CAPACITY = enum.auto()  # what it has, or its free CPU, memory or pod slots


class InvalidNode(NamedTuple):
    """A changed node with labels, annotations or resources that cannot be used; one sentence each."""

    node: str
    problems: tuple[str, ...]


class Corrected(NamedTuple):
    """The ledger follows a receipt: kubelet gave a bound pod other cards than were decided."""

    pod: Pod


class Mismatch(NamedTuple):
    """Something is wrong with the annotations of a bound pod. Reported once for each sentence."""

    pod: Pod
    sentence: str


Problem = InvalidNode | Corrected | Mismatch


class Observer:
    """The receiver of what the decider reports. The methods of this base class do nothing.

    A method must return at once and must not call the decider.
    """

    def node_changed(self, node: str, change: Change) -> None:
        """Note that a node, its bookings, or one of its bound pods has changed."""

    def moved(self, move: Move) -> None:
        """Note that a pod's cards went through an event."""

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        """Note that a filter asks about a pod that wants cards, and these nodes."""

    def found(self, problem: Problem) -> None:
        """Report a problem that an administrator or the owner of a pod should know."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def add(self, *observers: Observer) -> None:
        self._observers += observers

    def node_changed(self, node: str, change: Change) -> None:
        for each in self._observers:
            each.node_changed(node, change)

    def moved(self, move: Move) -> None:
        for each in self._observers:
            each.moved(move)

    def asked(self, pod: Pod, need: PodNeed, names: Sequence[str]) -> None:
        for each in self._observers:
            each.asked(pod, need, names)

    def found(self, problem: Problem) -> None:
        for each in self._observers:
            each.found(problem)


class PodHandler(Handler[Any], Protocol):
    def needs(self, pod: Any, /) -> bool:
        """Return whether the handler must be shown a pod as it is now. One that it knows is needed until its end."""


class Nominated(NamedTuple):
    """A pod that kube-scheduler has nominated for a node, and that has no cards yet."""

    uid: str
    pod: str  # ``namespace/name``
    node: str
    priority: int
    need: PodNeed


@dataclass(frozen=True, slots=True)
class FilterDecision:
    passing: Sequence[str]  # names of the nodes that pass, in the order of the request
    failed: Mapping[str, str] = field(default_factory=dict)  # the other nodes, with the reason
    # those of ``failed`` that could not hold the pod even if nothing were booked, if a part asks for them
    hopeless: Collection[str] = ()
    gets_cards: bool = False  # whether a bind of the pod will book cards
    refusals: Mapping[str, int] = field(default_factory=dict)  # how many nodes were refused, by kind of refusal
    refusal: PodRefusal | None = None  # what is remembered of the pod; None if a node passes


Promise = Callable[[Nominated, Inventory, Sequence[Footprint]], Footprint | None]
"""(nominated pod, its node's cards, cards promised to more important pods there) -> the cards that are promised to it;
no cards if it has no room; None if the part does not know better than placement."""

Restrict = Callable[
    [Pod, PodNeed, FilterDecision, Callable[[str], NodeFacts | None]], Generator[None, None, FilterDecision]
]
"""(pod, need, decision by the verdicts, facts of a node) -> the decision; other work gets its turn in between. A pod
with a need that cannot be read has one without cards here."""

Choose = Callable[[Pod, PodNeed, NodeFacts | None], PodNeed]
"""(pod, need, facts of its node) -> the need with which its cards are chosen; one without cards if the pod gets none of
the ledger's. Raises CannotBind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The additions of parts to decisions. Each tuple is empty if no part that is on has anything to add."""

    promised: tuple[Promise, ...] = ()
    # each returns a name that a pod shares with those that kube-scheduler binds together with it; empty if it has none
    together: tuple[Callable[[Pod], str], ...] = ()
    restricting: tuple[Restrict, ...] = ()
    choosing: tuple[Choose, ...] = ()
    observers: tuple[Observer, ...] = ()
    handlers: tuple[PodHandler, ...] = ()  # get the pods that the watch shows, after the core

    def __add__(self, more: Hooks) -> Hooks:
        return Hooks(**{each.name: getattr(self, each.name) + getattr(more, each.name) for each in fields(Hooks)})


NO_HOOKS = Hooks()

"""The cluster as the commands see it: nodes, pods, and the ledger that the extender's own code makes of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from gas import card_records
from gas.card_records import CardRecord
from gas.cards import Card
from gas.daemon.flags import UsageError
from gas.doctor.programs import Program, containers_with, flag_value
from gas.errors import GasError
from gas.extender.decider import Decider, FilterDecision, Handler, Options
from gas.extender.flags import Flags, parse_flags
from gas.extender.wire import FilterArgs
from gas.inspection.node_rules import exclusion, node_rules
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.use import CardUse
from gas.ledger import Booking
from gas.objects import ObjectId
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.quoted import quoted
from gas.vocabularies import KNOWN
from gas.vocabulary import NeedOptions, Vocabularies

T = TypeVar("T", InspectedNode, InspectedPod)
R = TypeVar("R")
_ALL_VOCABULARIES = Vocabularies(KNOWN)


class Missing(GasError):
    """The command names an object that the cluster does not have."""

    exit_code = 1


class Settings(NamedTuple):
    """The extender's settings that placement depends on, and a sentence for each thing that had to be assumed."""

    options: Options
    notes: tuple[str, ...] = ()


_FLAGS = (
    "enableAllowlist",
    "enableDenylist",
    "balancedResource",
    "card-order",
    "search-steps",
    "vocabularies",
    "aliyun-unit",
)
"""The extender's flags that decide which cards a pod may get. Others do not change what fits."""


def settings_of(pods: Iterable[InspectedPod]) -> Settings:
    """Return the settings of the extender that runs in the cluster, read from its command line."""
    for pod in pods:
        for container in () if pod.is_over else containers_with(pod, Program.EXTENDER):
            given = [f"--{name}={text}" for name in _FLAGS if (text := flag_value(container, name)) is not None]
            try:
                flags = parse_flags(given, environ={})
            except UsageError as error:
                return Settings(_options(Flags()), (f"the flags of the extender's pod {pod.key} are ignored: {error}",))
            return Settings(_options(flags))
    return Settings(_options(Flags()), ("no extender was found in a pod; its default flags are assumed",))


def _options(flags: Flags) -> Options:
    return Options(
        vocabularies=Vocabularies(flags.vocabularies),
        need=NeedOptions(allowlist=flags.allowlist, denylist=flags.denylist, card_order=flags.order_of_cards),
        step_limit=flags.search_steps or DEFAULT_STEP_LIMIT,
    )


class Objects(Generic[T]):
    """The objects of one kind by key, passed on to handlers as they come. ``version`` rises with each change."""

    def __init__(self, key: Callable[[T | ObjectId], str], handlers: Sequence[Handler]) -> None:
        self._key: Callable[[T | ObjectId], str] = key
        self._handlers = handlers
        self.by_key: dict[str, T] = {}
        self.version = 0

    def listed(self, objects: list[T]) -> None:
        """Take in a part of a complete list."""
        for each in objects:
            self.by_key[self._key(each)] = each
        self.version += 1
        for handler in self._handlers:
            handler.listed(objects)

    def complete(self, listed: list[ObjectId]) -> None:
        """Forget the objects that are not in the complete list."""
        there = {self._key(each) for each in listed}
        for key in self.by_key.keys() - there:
            del self.by_key[key]
        self.version += 1
        for handler in self._handlers:
            handler.complete(listed)

    def changed(self, obj: T) -> None:
        """Take in an object that is new or was updated."""
        self.by_key[self._key(obj)] = obj
        self.version += 1
        for handler in self._handlers:
            handler.changed(obj)

    def deleted(self, obj: T) -> None:
        """Forget an object."""
        self.by_key.pop(self._key(obj), None)
        self.version += 1
        for handler in self._handlers:
            handler.deleted(obj)


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that holds cards of a node, with its booking."""

    uid: str
    booking: Booking


class Cluster:
    """Nodes and GPU pods with the books of them. Fed by lists or by watches through `nodes` and `pods`.

    nodes    by name
    pods     by UID, those that matter here (`matters`)
    decider  the extender's own, without a limit of time for one question
    use      measured use by pod UID and card, as far as it is known
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.decider = Decider(settings.options, clock=lambda: 0.0)
        self.nodes: Objects[InspectedNode] = Objects(lambda node: node.name, self.decider.node_handlers)
        self.pods: Objects[InspectedPod] = Objects(lambda pod: pod.uid, self.decider.pod_handlers)
        self.use: dict[tuple[str, Card], CardUse] = {}
        self._eligible: dict[bytes, Mapping[str, str]] = {}
        self._eligible_at = 0

    @classmethod
    def of(cls, nodes: Sequence[InspectedNode], pods: Sequence[InspectedPod]) -> Cluster:
        """Return the cluster that complete lists show."""
        cluster = cls(settings_of(pods))
        cluster.nodes.listed(list(nodes))
        cluster.pods.listed(list(pods))
        return cluster

    @property
    def gpu_pods(self) -> list[InspectedPod]:
        """The pods that ask for cards and have not ended."""
        speaks = self.decider.asks_for_cards
        return [pod for pod in self.pods.by_key.values() if not pod.is_over and speaks(pod)]

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes in the order in which people expect them."""
        return sorted(self.nodes.by_key, key=natural)

    def node(self, name: str) -> InspectedNode:
        """Return a node. Raises Missing."""
        if (node := self.nodes.by_key.get(name)) is None:
            raise Missing(f"node {quoted(name)}: expected the name of a node; see kubectl get nodes")
        return node

    def pod(self, namespace: str, name: str) -> InspectedPod:
        """Return a GPU pod by its names. Raises Missing."""
        for pod in self.pods.by_key.values():
            if pod.metadata.name == name and (pod.metadata.namespace or "default") == namespace:
                return pod
        raise Missing(
            f"pod {quoted(name)} in namespace {quoted(namespace)}: expected a pod that asks for GPUs, found none;"
            " see kubectl gas pods -A, and name another namespace with -n"
        )

    def records(self, node: str) -> Mapping[Card, CardRecord]:
        """Return the records of a node's cards."""
        return _records(self.nodes.by_key[node].annotations.get(card_records.ANNOTATION, ""))

    def cards(self, node: str) -> list[Card]:
        """Return the cards that a node has, is recorded to have, or on which anything is booked."""
        facts = self.decider.nodes.facts(node)
        found = set(facts.inventory.capacity) if facts is not None else set()
        return sorted(found | self.records(node).keys() | self.decider.ledger.usage(node).amounts.keys())

    def holders(self, node: str) -> dict[Card, list[Holder]]:
        """Return the pods that hold each card of a node, in the order of their names."""
        found: dict[Card, list[Holder]] = {}
        for uid, booking in sorted(self.decider.ledger.on_node(node).items(), key=lambda each: natural(each[1].pod)):
            for card in booking.footprint.amounts:
                found.setdefault(card, []).append(Holder(uid, booking))
        return found

    def eligible(self, pod: InspectedPod) -> Mapping[str, str]:
        """Return each node by name with the rule of Kubernetes that keeps the pod off it; empty if none does.

        Pods of one template share the result, until a node changes.
        """
        if self._eligible_at != self.nodes.version:
            self._eligible_at = self.nodes.version
            self._eligible.clear()
        rules = node_rules(pod)
        if (found := self._eligible.get(rules)) is None:
            found = self._eligible[rules] = {name: exclusion(pod, self.nodes.by_key[name]) for name in self.node_names}
        return found

    def filter(self, pod: InspectedPod, names: Sequence[str]) -> FilterDecision:
        """Return what the extender's filter would return for a pod now."""
        return done(self.decider.filter(FilterArgs(pod, list(names), None), now=0.0))


@lru_cache(maxsize=4096)
def _records(text: str) -> Mapping[Card, CardRecord]:
    return {record.card: record for record in card_records.parse_card_records(text)[0]} if text else {}


def matters(pod: InspectedPod) -> bool:
    """Return whether a pod asks for GPUs or runs the extender or the plugin."""
    return _ALL_VOCABULARIES.speaks(pod) or any(
        containers_with(pod, each) for each in (Program.EXTENDER, Program.PLUGIN)
    )


def done(work: Generator[None, None, R]) -> R:
    """Do work that offers turns to others without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: R = stop.value
            return result


def natural(text: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts numbers in names by value: gpu-2 before gpu-10."""
    return _natural(text)


@lru_cache(maxsize=65536)
def _natural(text: str) -> tuple[tuple[str, int], ...]:
    parts: list[tuple[str, int]] = []
    word = ""
    digits = ""
    for each in text:
        if each.isascii() and each.isdigit():
            digits += each
            continue
        if digits:
            parts.append((word, int(digits)))
            word = digits = ""
        word += each
    parts.append((word, int(digits) if digits else -1))
    return tuple(parts)

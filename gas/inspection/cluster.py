"""The cluster as the commands see it: nodes, pods, and the ledger that the extender's own code makes of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from gas.daemon.flags import UsageError
from gas.extender.decider import Decider, Options, options_of
from gas.extender.decisions import Decision
from gas.extender.device_classes.device_classes import DeviceClasses, serves
from gas.extender.hooks import FilterDecision, Observer
from gas.extender.host_resources import CPU, MEMORY, PODS, pod_requests
from gas.extender.verdicts import at_once
from gas.extender.wire import BindingArgs, FilterArgs
from gas.inspection.objects import InspectedNode, InspectedPod, exclusion, node_rules
from gas.ledger.ledger import Booking
from gas.objects.handler import Handlers, Mirror, MirrorByName
from gas.programs import EXTENDER, PLUGIN, containers_with, flag_values
from gas.values.amounts import SortedAmounts, describe
from gas.values.card_records import CardRecord
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.values.quoted import LONGEST_KEY, did_you_mean, listed, quoted, shown
from gas.vocabularies.known import DEFAULT, EVERY
from gas.vocabularies.node_parts import recorded_cards
from gas.vocabularies.protocol import BadNeed

T = TypeVar("T", InspectedNode, InspectedPod)
_OF_EVERY_NODE = frozenset({CPU, MEMORY, "ephemeral-storage", PODS})  # resources that kubelet states on every node


class Missing(GasError):
    """The command names an object that the cluster does not have."""

    exit_code = 1


class PlacementSettings(NamedTuple):
    """The extender's settings that placement depends on, and a sentence for each thing that had to be assumed."""

    options: Options
    notes: tuple[str, ...] = ()


_FLAGS = (
    "enableAllowlist",
    "enableDenylist",
    "balancedResource",
    "card-order",
    "card-order-for-all",
    "card-near",
    "search-steps",
    "vocabularies",
    "aliyun-unit",
    "memory-unit",
)
"""The extender's flags that decide which cards a pod may get. Others do not change what fits."""


def settings_of(pods: Iterable[InspectedPod]) -> PlacementSettings:
    """Return the settings of the extender that runs in the cluster, read from its command line."""
    default = Options(vocabularies=DEFAULT)
    for pod in pods:
        for container in () if pod.is_over else containers_with(pod, EXTENDER):
            given = [f"--{name}={text}" for name in _FLAGS for text in flag_values(container, name)]
            if not given:  # then no command waits for the import of all flags
                return PlacementSettings(default)
            from gas.extender.command_line import parse_flags

            try:
                return PlacementSettings(options_of(parse_flags(given)))
            except UsageError as error:
                return PlacementSettings(default, (f"the flags of the extender's pod {pod.key} are ignored: {error}",))
    return PlacementSettings(default, ("no extender was found in a pod; its default flags are assumed",))


class Known(Mirror[T, T]):
    """The objects of one kind by key, and a version that rises with each change."""

    version = 0

    def record(self, obj: T) -> T:
        return obj

    def replaced(self, key: str, old: T | None, new: T | None) -> None:
        self.version += 1


class KnownNodes(Known[InspectedNode], MirrorByName[InspectedNode, InspectedNode]):
    """The nodes by name."""


class MeasuredUse(NamedTuple):
    memory: int | None  # bytes; None if the driver does not say
    # share of the last interval for which the busiest class of engines worked; None if the driver does not say
    busy: float | None


class Cluster:
    """Nodes and pods with the books of them. Fed by lists or by watches through `watched_nodes` and `watched_pods`.

    counts_hosts  whether all pods that have a node are fed, so that free CPU, memory and pod slots of nodes are known

    decider  the extender's own, without a limit of time for one question. Reports changes to the observer, if any
    decisions  the extender's last decisions, the newest first, as far as they are known
    """

    def __init__(
        self, settings: PlacementSettings, observer: Observer | None = None, *, counts_hosts: bool = False
    ) -> None:
        self.settings = settings
        self.decider = Decider(settings.options, observer, clock=lambda: 0.0)
        if counts_hosts:
            self.decider.count_hosts()
        self.nodes = KnownNodes()  # by name
        self.pods: Known[InspectedPod] = Known()  # by UID
        self.watched_nodes = Handlers[Any](self.nodes, self.decider.node_handlers)
        self.watched_pods = Handlers[Any](self.pods, self.decider.pod_handlers)
        self.use: dict[tuple[str, Card], MeasuredUse] = {}  # measured use by pod UID and card, as far as it is known
        self.decisions: Sequence[Decision] = ()
        self.classes = DeviceClasses(self.decider)  # empty if they are not known
        self.of_drivers: frozenset[str] = frozenset()  # nodes of which a DRA driver publishes devices
        self._rules: dict[bytes, Mapping[str, str]] = {}
        self._rules_at = 0
        self._excluded: dict[tuple[bytes, SortedAmounts], dict[str, str]] = {}
        self._excluded_at = (0, 0)

    @classmethod
    def of(cls, nodes: Sequence[InspectedNode], pods: Sequence[InspectedPod], *, counts_hosts: bool = False) -> Cluster:
        """Return the cluster that complete lists show."""
        cluster = cls(settings_of(pods), counts_hosts=counts_hosts)
        cluster.watched_nodes.listed(list(nodes))
        cluster.watched_pods.listed(list(pods))
        return cluster

    @property
    def gpu_pods(self) -> list[InspectedPod]:
        """The pods that ask for cards and have not ended."""
        has_cards, has_claim = self.decider.pods.needs, self.settings.options.vocabularies.is_claimed
        return [pod for pod in self.pods.records.values() if not pod.is_over and (has_cards(pod) or has_claim(pod))]

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes in the order in which people expect them."""
        return sorted(self.nodes.records, key=natural)

    def node(self, name: str) -> InspectedNode:
        """Return a node. Raises Missing."""
        if (node := self.nodes.records.get(name)) is None:
            raise Missing(f"node {quoted(name)}: expected the name of a node; see kubectl get nodes")
        return node

    def pod(self, namespace: str, name: str) -> InspectedPod:
        """Return a GPU pod by its names. Raises Missing."""
        for pod in self.pods.records.values():
            if pod.metadata.name == name and (pod.metadata.namespace or "default") == namespace:
                return pod
        raise Missing(
            f"pod {quoted(name)} in namespace {quoted(namespace)}: expected a pod that asks for GPUs, found none;"
            " see kubectl gas pods -A, and name another namespace with -n"
        )

    def fault(self, pod: InspectedPod) -> str:
        """Return what is wrong with the annotations or requests of a bound pod; empty if nothing is.

        Of a pod that holds no cards of the ledger because DRA serves it, return that.
        """
        if pod.claimed and self.decider.pods.bound_pod(pod.uid) is None and (claim := self._claim(pod)):
            return claim
        if (bound := self.decider.pods.in_trouble.get(pod.uid)) is not None and bound.trouble is not None:
            return bound.trouble.sentence
        return self.decider.faults(pod) if self.decider.ledger.booking(pod.uid) is None else ""

    def _claim(self, pod: InspectedPod) -> str:
        status = pod.status.extended_resource_claim_status if pod.status is not None else None
        if status is None or not self.settings.options.vocabularies.is_claimed(pod):
            return ""
        names = sorted({self.classes.of_resource[each] for each in pod.claimed & self.classes.of_resource.keys()})
        classes = f"class {', '.join(names)}, " if names else ""
        return f"it is served by DRA ({classes}ResourceClaim {status.resource_claim_name})"

    def by_dra(self, pod: InspectedPod, names: Iterable[str]) -> tuple[Collection[str], str]:
        """Return on which of these nodes DRA serves a pod that waits, and by which classes."""
        try:
            asked = self.classes.asked(pod, self.decider.need(pod)) if self.of_drivers else frozenset()
        except BadNeed:
            return (), ""
        found = {name for name in names if name in self.of_drivers and serves(asked, self.decider.nodes.facts(name))}
        classes = ", ".join(sorted({self.classes.of_resource[each] for each in asked}))
        return found, f"by DRA (class {classes}), whose free devices are not looked at"

    def records(self, node: str) -> Mapping[Card, CardRecord]:
        return {record.card: record for record in recorded_cards(self.nodes.records[node])}

    def cards(self, node: str) -> list[Card]:
        """Return the cards that a node has, is recorded to have, or on which anything is booked."""
        facts = self.decider.nodes.facts(node)
        found = set(facts.inventory.capacity) if facts is not None else set()
        return sorted(found | self.records(node).keys() | self.decider.ledger.usage(node).amounts.keys())

    def holders(self, node: str) -> dict[Card, dict[str, Booking]]:
        """Return the bookings on each card of a node by pod UID, in the order of the pods' names."""
        found: dict[Card, dict[str, Booking]] = {}
        for uid, booking in sorted(self.decider.ledger.on_node(node).items(), key=lambda each: natural(each[1].pod)):
            for card in booking.footprint.amounts:
                found.setdefault(card, {})[uid] = booking
        return found

    def rules(self, pod: InspectedPod) -> Mapping[str, str]:
        """Return each node by name with the rule of Kubernetes that keeps the pod off it; empty if none does.

        Pods of one template share the result, until a node changes.
        """
        if self._rules_at != self.nodes.version:
            self._rules_at = self.nodes.version
            self._rules.clear()
        key = node_rules(pod)
        if (found := self._rules.get(key)) is None:
            found = self._rules[key] = {name: exclusion(pod, self.nodes.records[name]) for name in self.node_names}
        return found

    def eligible(self, pod: InspectedPod) -> Mapping[str, str]:
        """Return each node by name with what keeps the pod off it apart from cards; empty if nothing does.

        That is a rule of Kubernetes or, if they are counted, too little free CPU, memory or other resources. Pods of
        one template share the result, which follows `book`.
        """
        if not self.decider.counts_hosts:
            return self.rules(pod)
        if self._excluded_at != (now := (self.nodes.version, self.pods.version)):
            self._excluded_at = now
            self._excluded.clear()
        requests = self.other_requests(pod)
        key = node_rules(pod), requests
        if (found := self._excluded.get(key)) is None:
            rules = self.rules(pod)
            found = {name: rule or self.shortage(requests, name) for name, rule in rules.items()}
            self._excluded[key] = found
        return found

    def other_requests(self, pod: InspectedPod) -> SortedAmounts:
        """Return what a pod requests of its node apart from cards, with its pod slot; CPU in thousandths of a core.

        Of a pod that asks for parts of cards but for no card, these parts are among it: kube-scheduler compares them.
        It never compares those that no node offers.
        """
        words = self.settings.options.vocabularies
        try:
            wants_cards = self.decider.need(pod).wants_cards
        except BadNeed:
            wants_cards = True
        compared = (each for each in pod_requests(pod) if each[0] not in words.ignored_resources)
        return tuple((name, amount) for name, amount in compared if not (wants_cards and words.owns_resource(name)))

    def requested(self, uid: str) -> SortedAmounts:
        """Return what a pod that has a node requests of it; nothing if that is not counted."""
        return self.decider.hosts.pods.requested(uid) or ()

    def free_other_resources(self, node: str) -> dict[str, int]:
        """Return what is free of each resource that a node offers; nothing if that is not counted."""
        return self.decider.hosts.free_amounts(node) or {}

    def shortage(self, requests: SortedAmounts, node: str) -> str:
        """Return which of these requests a node has too little of, as a sentence; empty if there is enough."""
        return shortage(requests, self.free_other_resources(node))

    def unknown_resources(self, pod: InspectedPod) -> Iterator[str]:
        """Yield a sentence for each resource that a pod requests and no node has; none if the cluster has no nodes."""
        of_nodes = (node.status.allocatable or {} for node in self.nodes.records.values() if node.status is not None)
        known = _OF_EVERY_NODE.union(*of_nodes)
        ignored = self.settings.options.vocabularies.ignored_resources
        for name, _ in pod_requests(pod):
            if name not in known and name not in ignored and self.nodes.records:
                others = f"nodes have {listed(sorted(known - _OF_EVERY_NODE)) or 'no devices'}"
                yield f"no node has {shown(name, LONGEST_KEY)}; {did_you_mean(name, known - _OF_EVERY_NODE, others)}"

    def book(self, pod: InspectedPod, node: str) -> tuple[str, ...]:
        """Book a pod that waits on a node, as a bind would, and return its cards. Raises CannotBind and BadNeed."""
        args = BindingArgs(pod.metadata.name, pod.metadata.namespace or "default", pod.uid, node)
        self.decider.reserve(args, pod, now=0.0)
        for (rules, requests), found in self._excluded.items():
            found[node] = self._rules[rules][node] or self.shortage(requests, node)
        booking = self.decider.ledger.booking(pod.uid)
        return tuple(map(str, booking.footprint.amounts)) if booking is not None else ()

    def filter(self, pod: InspectedPod, names: Sequence[str]) -> FilterDecision:
        """Return what the extender's filter would return for a pod now."""
        return at_once(self.decider.filter(FilterArgs(pod, list(names), None), now=0.0))


def shortage(requests: SortedAmounts, free: Mapping[str, int]) -> str:
    """Return the first request that a node has too little of, as a sentence; empty if there is none."""
    if absent := not_offered(requests, free):
        return f"the node has no {absent[0]}"
    return next((text for text, _, _ in shortages(requests, free)), "")


def shortages(requests: SortedAmounts, free: Mapping[str, int]) -> Iterator[tuple[str, float, str]]:
    """Yield a sentence for each request that is larger than what is free, the part that is short, and what is free.

    Resources that every node has are not compared if this one does not state them.
    """
    for name, amount in requests:
        if amount > (there := max(free.get(name, amount), 0)):
            if name == PODS:
                yield "the node has no free pod slot", 1.0, ""
            else:
                text = f"the node has less than {_described(name, amount)} free"
                yield text, 1 - there / amount, _described(name, there)


def _described(name: str, amount: int) -> str:
    return f"{amount}m of {name}" if name == CPU else describe(name, amount)


def not_offered(requests: SortedAmounts, free: Mapping[str, int]) -> tuple[str, ...]:
    """Return the requested resources that a node does not offer at all; none if nothing is counted.

    No pod that ends or moves makes room for them.
    """
    return tuple(name for name, _ in requests if free and name not in free and name not in _OF_EVERY_NODE)


def matters(pod: InspectedPod) -> bool:
    """Return whether a pod asks for GPUs or runs the extender or the plugin."""
    return EVERY.is_gpu_pod(pod) or any(containers_with(pod, each) for each in (EXTENDER, PLUGIN))


@lru_cache(maxsize=65536)
def natural(text: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts numbers in names by value: gpu-2 before gpu-10."""
    words = _DIGITS.split(text)
    return tuple(zip(words[::2], [*map(int, words[1::2]), -1], strict=True))


_DIGITS = re.compile(r"([0-9]{1,18})")

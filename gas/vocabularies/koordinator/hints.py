"""Koordinator's annotations about which cards a pod gets: hints, and partitions of a node's cards.

They hold for pods in Koordinator's own words and for those that ask for whole cards of a vendor.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec

from gas.objects.stored import LabelSelector, NewPod, Node, Pod
from gas.placement.inventory import Company, Partition
from gas.placement.need import PartitionRule, PodNeed, Scope
from gas.placement.ratio import PERCENT
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.cards import Card, exchange_numbers
from gas.values.quoted import quoted
from gas.vocabularies.koordinator import names
from gas.vocabularies.pod_parts import requests_any
from gas.vocabularies.protocol import BadNeed

MOST_PARTITIONS = 256  # Partitions of one node. A node of 8 cards has 15 in Koordinator's own table.

EXCLUSIVE = Company(exclusion="(one pod)", anti_affinity="(one pod)")
"""Labels by which a card has no other pod. No user can write them: none begins with a parenthesis."""

_ANYWHERE = {"": Scope.ANYWHERE, "Node": Scope.ANYWHERE, "Device": Scope.ANYWHERE}
_SCOPES = _ANYWHERE | {"NUMANode": Scope.NUMA, "PCIe": Scope.BOARD}
_GPU = "gpu"
_T = TypeVar("_T")


class _Hint(msgspec.Struct, rename="camel"):
    required_topology_scope: str = ""
    exclusive_policy: str = ""
    allocate_strategy: str = ""
    selector: LabelSelector | None = None
    vf_selector: object = None


class _Spec(msgspec.Struct, rename="camel"):
    allocate_policy: str = ""
    ring_bus_bandwidth: str | int | None = None


class _Partition(msgspec.Struct, rename="camel"):
    minors: list[Annotated[int, msgspec.Meta(ge=0)]]
    allocation_score: int = 0
    ring_bus_bandwidth: str | int | None = None


def with_rules(need: PodNeed, annotations: Mapping[str, str]) -> PodNeed:
    """Return the need with the rules of a pod's annotations. Raises BadNeed."""
    hint = _hints(annotations).get(_GPU, _Hint())
    if (scope := _SCOPES.get(hint.required_topology_scope)) is None:
        expected = ", ".join(filter(None, _SCOPES))
        raise _bad("requiredTopologyScope", f"one of {expected}", hint.required_topology_scope)
    if hint.required_topology_scope == "Device" and need.cards > 1:
        raise BadNeed(f"{names.HINT}: requiredTopologyScope Device means one card, and the pod asks for {need.cards}")
    labels = company(annotations)
    return replace(
        need,
        idle=need.idle or labels == EXCLUSIVE,
        allowed=_models(hint.selector) if hint.selector is not None else need.allowed,
        scope=scope,
        partition=_partition_rule(annotations) if _has_whole_cards(need) else None,
        company=labels if need.company == Company() else need.company,
    )


def company(annotations: Mapping[str, str]) -> Company:
    """Return the labels of a pod; none if its hints cannot be read."""
    try:
        is_exclusive = _hints(annotations).get(_GPU, _Hint()).exclusive_policy == "DeviceLevel"
    except BadNeed:
        is_exclusive = False
    return EXCLUSIVE if is_exclusive else Company()


def partitions(node: Node, cards: Iterable[Card], problems: list[str]) -> tuple[Partition, ...]:
    """Return the partitions that a node's annotation states; none, and a problem, if it cannot be read."""
    if not (text := node.annotations.get(names.PARTITIONS)):
        return ()
    try:
        table = decoded(text, dict[str, list[_Partition]])
        stated = [each for of_size in table.values() for each in of_size]
        if len(stated) <= MOST_PARTITIONS:
            number_of = exchange_numbers(cards)
            of_cards = [frozenset(Card(number_of(minor)) for minor in each.minors) for each in stated]
            bandwidths = [_bandwidth(each.ring_bus_bandwidth) for each in stated]
            scores = [each.allocation_score for each in stated]
            return tuple(map(Partition, of_cards, scores, bandwidths))
        fault = f"expected at most {MOST_PARTITIONS} partitions, found {len(stated)}"
    except (msgspec.DecodeError, RecursionError, ValueError, MalformedQuantity):
        fault = f'expected JSON such as {{"2":[{{"minors":[0,1]}}]}}, found {quoted(text)}'
    problems.append(f"annotation {names.PARTITIONS}: {fault}; it is ignored")
    return ()


def without_effect(pod: Pod) -> Iterator[str]:
    """Yield a sentence for each of Koordinator's words on a pod that has no effect."""
    try:
        hints = _hints(pod.annotations)
    except BadNeed:
        hints = {}
    hint, labels = hints.get(_GPU, _Hint()), pod.metadata.labels or {}
    in_hint = [quoted(each[:40]) for each in sorted(hints) if each != _GPU]
    in_hint += ["vfSelector"] * (hint.vf_selector is not None) + ["allocateStrategy"] * bool(hint.allocate_strategy)
    if hint.exclusive_policy not in ("", "DeviceLevel"):
        in_hint.append(f"exclusivePolicy {quoted(hint.exclusive_policy)}")
    words = [f"{each} in annotation {names.HINT}" for each in in_hint]
    words += [f"annotation {names.JOINT}"] * (names.JOINT in pod.annotations)
    if labels.get(names.ISOLATION, names.HAMI_CORE) != names.HAMI_CORE:
        words.append(f"label {names.ISOLATION} with another value than {names.HAMI_CORE}")
    if isinstance(pod, NewPod) and names.QUOTA in labels and pod.spec.scheduler_name != names.SCHEDULER:
        words.append(f"label {names.QUOTA}, which only {names.SCHEDULER} reads,")
    yield from (f"{each} has no effect; docs/from-koordinator.md lists what has" for each in words)
    for resource in names.OTHER_DEVICES:
        if requests_any(pod, resource):
            yield f"{resource} is not given by gas: the pod waits for a node where another plugin offers it"


def _partition_rule(annotations: Mapping[str, str]) -> PartitionRule:
    if not annotations.get(names.PARTITION_SPEC):
        return PartitionRule()
    spec = _decoded(annotations, names.PARTITION_SPEC, _Spec, '{"allocatePolicy":"BestEffort"}')
    if spec.allocate_policy not in ("", "BestEffort", "Restricted"):
        raise _bad("allocatePolicy", "BestEffort or Restricted", spec.allocate_policy, names.PARTITION_SPEC)
    try:
        bandwidth = _bandwidth(spec.ring_bus_bandwidth)
    except MalformedQuantity as malformed:
        raise BadNeed(f"{names.PARTITION_SPEC}: ringBusBandwidth: {malformed}") from None
    return PartitionRule(required=True, best=spec.allocate_policy == "Restricted", bandwidth=bandwidth)


def _has_whole_cards(need: PodNeed) -> bool:
    return need.wants_cards and all(
        any(not ratio.of and ratio.part >= PERCENT for ratio in each.ratios) for each in need.containers if each.count
    )


def _models(selector: LabelSelector) -> frozenset[Card | str] | None:
    """Return the names of the models that a selector allows, None if any. Raises BadNeed for one of other labels."""
    wanted = [(name, [value]) for name, value in (selector.match_labels or {}).items()]
    for each in selector.match_expressions or ():
        if each.operator != "In":
            raise _bad("operator in selector", "In", each.operator)
        wanted.append((each.key, list(each.values or ())))
    if other := next((name for name, _ in wanted if name != names.MODEL), ""):
        raise _bad("selector", f"label {names.MODEL}, the only one that cards have", other)
    models = [frozenset[Card | str](value.lower() for value in values) for _, values in wanted]
    return frozenset.intersection(*models) if models else None


def _hints(annotations: Mapping[str, str]) -> Mapping[str, _Hint]:
    if not annotations.get(names.HINT):
        return {}
    return _decoded(annotations, names.HINT, dict[str, _Hint], '{"gpu":{"requiredTopologyScope":"NUMANode"}}')


def decoded(text: str, kind: type[_T]) -> _T:
    """Decode JSON, in which null means that a field is absent, as for Go. Raises DecodeError and RecursionError."""
    found = msgspec.json.decode(text)
    return msgspec.convert({} if found is None else _without_nulls(found), type=kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return list(map(_without_nulls, value)) if isinstance(value, list) else value


def _decoded(annotations: Mapping[str, str], name: str, kind: type[_T], example: str) -> _T:
    try:
        return decoded(annotations[name], kind)
    except (msgspec.DecodeError, RecursionError):
        raise BadNeed(f"{name}: expected JSON such as {example}, found {quoted(annotations[name][:30])}") from None


def _bandwidth(quantity: str | int | None) -> int:
    return parse_quantity(quantity) if quantity else 0


def _bad(field: str, expected: str, found: str, name: str = names.HINT) -> BadNeed:
    return BadNeed(f"{name}: {field}: expected {expected}, found {quoted(found[:40])}")

"""Read the parts of a pod that all vocabularies share: containers, requests, preferences and labels."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from gas.objects.json_patch import Operation, pointer
from gas.objects.stored import Container, NewContainer, Pod, Quantity
from gas.placement.inventory import Company
from gas.placement.need import PodNeed, Role
from gas.placement.order import CARD_ORDERS, NODE_SCORES, CardOrder, parse_card_order, parse_node_score
from gas.values.amounts import MAX_AMOUNT, MalformedQuantity, parse_quantity
from gas.values.errors import InvalidValue
from gas.values.quoted import did_you_mean, listed, quoted
from gas.vocabularies.protocol import BadNeed, ContainerFacts, Faults, NeedFacts, NeedOptions, Row

CARD_ORDER = "gas-card-order"
CARD_NEAR = "gas-card-near"
NODE_SCORE = "gas-node-score"
PREFERENCE_ROWS = (
    Row(CARD_ORDER, "you", f"the order in which cards are tried: `{CARD_ORDERS.replace('|', '`, `')}`"),
    Row(CARD_NEAR, "you", "`true`: after the first card, near cards are tried first"),
    Row(NODE_SCORE, "you", f"how nodes are scored, with --node-score: `{NODE_SCORES.replace('|', '`, `')}`"),
)
PREFERENCES = frozenset(row.name for row in PREFERENCE_ROWS)  # the annotations that `with_preferences` reads

ALONE = Company(exclusion="(whole cards)")
"""Labels by which a whole card has no other pods. No user can write them: none begins with a parenthesis."""

T = TypeVar("T")

LIMIT_RANGER = "kubernetes.io/limit-ranger"  # annotation of the API server about requests from a LimitRange
_ALWAYS = "Always"
_MOST_HINTS = 20  # requests of unknown resources that are compared with the known ones, which takes time
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)  # the form of a label's value


def need_facts(pod: Pod) -> NeedFacts:
    """Return the facts that the pod's need is read from. Raises BadNeed for a pod without containers."""
    if not pod.spec.containers:
        raise BadNeed("the pod has no containers")
    containers = tuple(ContainerFacts(each.name, role, each.requests) for each, role in started_containers(pod))
    return NeedFacts(containers, pod.annotations)


def started_containers(pod: Pod) -> list[tuple[Container, Role]]:
    """Return the containers with their roles, in the order in which kubelet starts them."""
    started = [
        (container, Role.SIDECAR if container.restart_policy == _ALWAYS else Role.INIT)
        for container in pod.spec.init_containers or ()
    ]
    return started + [(container, Role.APP) for container in pod.spec.containers or ()]


def requests_any(pod: Pod, resource: str) -> bool:
    """Return whether a container of the pod states a request for a resource, whatever the amount is."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers or ():
            if resource in container.requests:
                return True
    return False


def requests_under(pod: Pod, beginning: str) -> bool:
    """Return whether a container of the pod states a request for a resource whose name begins with this text."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers or ():
            for name in container.requests:
                if name.startswith(beginning):
                    return True
    return False


def unknown_resources(
    pod: Pod, beginning: str, known: Collection[str], others: Mapping[str, str] | None = None
) -> list[str]:
    """Return a sentence for each request of a resource with this beginning that is not known.

    others  what is wrong with a resource that nodes have and pods cannot request
    """
    others, all_known = others or {}, f"known: {', '.join(known)}"
    found = [
        (container.name, name)
        for container, _ in started_containers(pod)
        for name in container.requests
        if name.startswith(beginning) and name not in known
    ]
    hints = {name: did_you_mean(name, known, all_known) for _, name in found[:_MOST_HINTS]}
    return [
        f"container {quoted(container)} asks for {quoted(name)}, "
        + (others.get(name) or f"which no node has; {hints.get(name, all_known)}")
        for container, name in found
    ]


def requested(container: ContainerFacts, resource: str) -> int:
    """Return how much a container requests of a resource (its full name), 0 if nothing. Raises BadNeed."""
    return parse_request(container, resource, container.requests.get(resource, 0))


def parse_request(container: ContainerFacts, resource: str, quantity: Quantity) -> int:
    try:
        return parse_quantity(quantity)
    except MalformedQuantity as malformed:
        where = f"container {quoted(container.name)}, {quoted(resource)}"
        raise BadNeed(f"{where}: {malformed.reason}, found {quoted(quantity)}") from None


def is_positive(quantity: Quantity, *, if_unreadable: bool) -> bool:
    try:
        return parse_quantity(quantity) > 0
    except MalformedQuantity:
        return if_unreadable


def from_limit_range(pod: Pod, beginnings: Collection[str]) -> str:
    """Return a sentence about requests under these beginnings that the API server took from a LimitRange; or nothing.

    It does so for a LimitRange with a maximum and no default, and writes an annotation.
    """
    names = {
        name
        for container, _ in started_containers(pod)
        for name, amount in container.requests.items()
        if name.startswith(tuple(beginnings)) and is_positive(amount, if_unreadable=False)
    }
    said = frozenset(re.findall(r"[^\s,]+", pod.annotations.get(LIMIT_RANGER, "")))
    if not (found := sorted(names & said)):
        return ""
    return (
        f"a LimitRange of the namespace gave the pod its requests of {listed(found)}: without a default, its max"
        " counts; set their default to 0 in the LimitRange"
    )


def check_sum(resource: str, amount: int) -> None:
    """Raise BadNeed if the containers together ask for more than Kubernetes can count."""
    if amount > MAX_AMOUNT:
        raise BadNeed(
            f"the pod's containers ask for more than 2^63-1 of {quoted(resource)} in total; lower the requests"
        )


def with_preferences(
    need: PodNeed, annotations: Mapping[str, str], options: NeedOptions, own_order: CardOrder | None = None
) -> PodNeed:
    """Return the need with the order of cards, near cards and score of nodes that the pod prefers. Raises BadNeed.

    own_order  the vocabulary's own order of cards, in place of the administrator's
    """
    default_order = options.card_order if own_order is None or options.order_for_all else own_order
    near_by_default = options.card_near and not need.scope.is_one_card
    faults = Faults()
    order = faults.of(_preference, annotations, CARD_ORDER, parse_card_order, default_order)
    near = faults.of(_preference, annotations, CARD_NEAR, _parse_true_or_false, near_by_default)
    node_score = faults.of(_preference, annotations, NODE_SCORE, parse_node_score, None)
    read = replace(need, order=order or default_order, near=bool(near), node_score=node_score)
    return faults.none_in(read)


def _preference(annotations: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    if not (text := annotations.get(name)):
        return default
    try:
        return parse(text)
    except InvalidValue as invalid:
        raise BadNeed(f"{name}: {invalid}") from None


def _parse_true_or_false(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidValue(f"expected true or false, found {quoted(text)}")
    return text == "true"


def card_company(
    annotations: Mapping[str, str],
    affinity: str,
    anti_affinity: str,
    exclusion: str,
    read: Callable[[Mapping[str, str], str], str] | None = None,
) -> Company:
    """Return the labels in the annotations of these names, each by ``read``, or else `label_of`. Raises as these do."""
    faults = Faults()
    alike, unlike, alone = (
        faults.of(read or label_of, annotations, each) or "" for each in (affinity, anti_affinity, exclusion)
    )
    return faults.none_in(Company(affinity=alike, anti_affinity=unlike, exclusion=alone))


def label_of(annotations: Mapping[str, str], name: str) -> str:
    """Return the text of an annotation that has the form of a label's value, empty without one. Raises BadNeed."""
    text = annotations.get(name, "")
    if text and _LABEL.fullmatch(text) is None:
        raise BadNeed(
            f"{name}: expected at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends,"
            f" found {quoted(text)}"
        )
    return text


def readable_labels(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in annotations.items() if _LABEL.fullmatch(text)}


def with_resources(container: NewContainer, place: tuple[str, ...], wanted: Mapping[str, str]) -> Iterator[Operation]:
    """Yield what adds requests and equal limits to a container, as Kubernetes demands of such resources."""
    resources = container.resources
    if resources is None:
        if wanted:
            yield Operation("add", pointer(*place, "resources"), {"limits": dict(wanted), "requests": dict(wanted)})
        return
    for field, present in (("limits", resources.limits), ("requests", resources.requests)):
        missing = {name: amount for name, amount in wanted.items() if name not in (present or {})}
        if missing and present is None:
            yield Operation("add", pointer(*place, "resources", field), missing)
        else:
            for name, amount in missing.items():
                yield Operation("add", pointer(*place, "resources", field, name), amount)

"""The parts of a pod that every vocabulary reads in the same way.

These are its containers in the order in which kubelet starts them, the amounts that they request, and the preferences
that users write in the annotations of gas itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from gas.objects.stored import Container, Pod, Quantity
from gas.placement.need import Role
from gas.placement.node_score import NodeScore, parse_node_score
from gas.placement.order import CardOrder, parse_card_order
from gas.values.amounts import MAX_AMOUNT, MalformedQuantity, parse_quantity
from gas.values.errors import InvalidValue
from gas.values.quoted import quoted
from gas.vocabularies.protocol import BadNeed

CARD_ORDER = "gas-card-order"
CARD_NEAR = "gas-card-near"
NODE_SCORE = "gas-node-score"

_ALWAYS = "Always"


def started_containers(pod: Pod) -> list[tuple[Container, Role]]:
    """Return the containers with their roles, in the order in which kubelet starts them."""
    started = [
        (container, Role.SIDECAR if container.restart_policy == _ALWAYS else Role.INIT)
        for container in pod.spec.init_containers or ()
    ]
    return started + [(container, Role.APP) for container in pod.spec.containers or ()]


def requests_any(pod: Pod, resource: str) -> bool:
    """Return whether a container of the pod states a request for a resource, whatever the amount is."""
    return any(
        container.resources is not None and resource in (container.resources.requests or ())
        for containers in (pod.spec.containers, pod.spec.init_containers)
        for container in containers or ()
    )


def requested(container: Container, resource: str) -> int:
    """Return how much a container requests of a resource, 0 if nothing. Raises BadNeed.

    resource  full name: ``gpu.intel.com/i915``
    """
    requests = (container.resources.requests if container.resources else None) or {}
    return parse_request(container, resource, requests[resource]) if resource in requests else 0


def parse_request(container: Container, resource: str, quantity: Quantity) -> int:
    """Parse the amount of a resource that a container requests. Raises BadNeed with the names of both."""
    try:
        return parse_quantity(quantity)
    except MalformedQuantity as malformed:
        where = f"container {quoted(container.name)}, {quoted(resource)}"
        raise BadNeed(f"{where}: {malformed.reason}, found {quoted(quantity)}") from None


def check_sum(resource: str, amount: int) -> None:
    """Raise BadNeed if the containers together ask for more than Kubernetes can count."""
    if amount > MAX_AMOUNT:
        raise BadNeed(
            f"the pod's containers ask for more than 2^63-1 of {quoted(resource)} in total; lower the requests"
        )


def chosen_card_order(annotations: Mapping[str, str], default: CardOrder) -> CardOrder:
    """Return the order of cards that the pod chooses, else the default. Raises BadNeed."""
    if not (text := annotations.get(CARD_ORDER)):
        return default
    try:
        return parse_card_order(text)
    except InvalidValue as invalid:
        raise BadNeed(f"{CARD_ORDER}: {invalid}") from None


def chosen_node_score(annotations: Mapping[str, str]) -> NodeScore | None:
    """Return the way of scoring nodes that the pod chooses, None if it chooses none. Raises BadNeed."""
    if not (text := annotations.get(NODE_SCORE)):
        return None
    try:
        return parse_node_score(text)
    except InvalidValue as invalid:
        raise BadNeed(f"{NODE_SCORE}: {invalid}") from None


def wants_near_cards(annotations: Mapping[str, str]) -> bool:
    """Return whether the pod prefers cards that are close to each other. Raises BadNeed."""
    text = annotations.get(CARD_NEAR) or "false"
    if text not in ("true", "false"):
        raise BadNeed(f"{CARD_NEAR}: expected true or false, found {quoted(text)}")
    return text == "true"

"""Derive a pod's receipt: the cards that kubelet really gave it, where they differ from the decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gas.decision.annotations import MalformedAnnotation, format_container_cards, parse_container_cards, read_receipt
from gas.decision.names import ALLOCATED_CARDS, ALLOCATED_INIT_CARDS
from gas.placement.choice import Choice
from gas.placement.need import Role
from gas.plugin.devices.device_ids import NO_IDS
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import GpuPod
from gas.values.cards import Card
from gas.values.quoted import quoted

_MOST_NAMED = 3


class ReceiptKind(StrEnum):
    MISMATCH = "mismatch"  # kubelet gave other cards than decided
    ADOPTED = "adopted"  # the pod has cards, and there is no decision for it
    REPAIRED = "repaired"  # an earlier receipt on the pod is wrong


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt to write on a pod, with a sentence for the event and the log."""

    kind: ReceiptKind
    annotations: Mapping[str, str]  # in the form of ``gas-container-cards``; an empty text removes one
    sentence: str


Cards = frozenset[Card]


def receipt(pod: GpuPod, listed: ContainerIds, init_containers: Mapping[int, Cards]) -> Receipt | None:
    """Return the receipt that is missing on a pod; None if its annotations are true or not all is known yet.

    listed           the pod's entry in kubelet's list, requested after the watch showed the pod
    init_containers  by index, the cards of ordinary init containers. Kubelet does not list them, so
                     one that is missing here keeps its decided cards

    Returns None while kubelet still hands out: until it has written the pod's status and every app container and
    sidecar has as many devices as it wants. A container with two ids of one card counts as having that card.
    """
    given = given_cards(pod, listed, init_containers)
    if not given:
        return None
    decided = pod.decided
    apps = sum(role is not Role.APP for role in pod.roles)
    groups = {ALLOCATED_INIT_CARDS: range(apps), ALLOCATED_CARDS: range(apps, len(pod.roles))}
    is_damaged = _is_damaged(pod, groups)
    annotations = {
        name: _text(group, given, decided)
        for name, group in groups.items()
        if is_damaged or _differs(given, group, pod.raw.annotations.get(name), decided)
    }
    if not annotations:
        return None
    kind = _kind(pod, given, decided)
    return Receipt(kind, annotations, _sentence(kind, pod, given, decided))


def given_cards(pod: GpuPod, listed: ContainerIds, init_containers: Mapping[int, Cards]) -> dict[int, Cards] | None:
    """Return the known cards of containers, by container index; None while that is not final."""
    if not pod.is_admitted:
        return None
    given: dict[int, Cards] = {}
    for demand in pod.demands:
        if demand.role is Role.INIT:
            if demand.index in init_containers:
                given[demand.index] = init_containers[demand.index]
            continue
        ids = listed.get(demand.container, {}).get(demand.resource, NO_IDS)
        if len(ids) != demand.count:
            return None
        given[demand.index] = given.get(demand.index, frozenset()) | {id_.card for id_ in ids}
    return given


def _is_damaged(pod: GpuPod, groups: Mapping[str, range]) -> bool:
    """Return whether the pod has a receipt that the extender rejects, or would if it could read the pod's need."""
    texts = {name: text for name in groups if (text := pod.raw.annotations.get(name))}
    try:
        if pod.need is not None:
            read_receipt(pod.raw, pod.need)
        return any(len(parse_container_cards(text)) != len(groups[name]) for name, text in texts.items())
    except MalformedAnnotation:
        return True


def _differs(given: Mapping[int, Cards], group: range, text: str | None, decided: Choice | None) -> bool:
    """Return whether a container of the group got other cards than its receipt states, or without one its decision.

    The text is compared, not the extender's reading of it: for a container with fewer cards than it requests that
    includes more than it got.
    """
    if text:
        stated = [frozenset(cards) for cards in parse_container_cards(text)]
    else:
        stated = [_cards(decided, index) for index in group]
    return any(given.get(index, cards) != cards for index, cards in zip(group, stated, strict=True))


def _cards(choice: Choice | None, index: int) -> Cards:
    return frozenset(choice.containers[index].cards) if choice else frozenset()


def _text(group: range, given: Mapping[int, Cards], decided: Choice | None) -> str:
    """Return the annotation, decided cards in their decided order; empty if no container of the group has any."""
    containers: list[list[Card]] = []
    for index in group:
        order = decided.containers[index].cards if decided else ()
        cards = given.get(index, frozenset(order))
        containers.append([card for card in order if card in cards] + sorted(cards.difference(order)))
    return format_container_cards(containers) if any(containers) else ""


def _kind(pod: GpuPod, given: Mapping[int, Cards], decided: Choice | None) -> ReceiptKind:
    if decided is None:
        return ReceiptKind.MISMATCH if pod.trouble and pod.need is not None else ReceiptKind.ADOPTED
    if all(cards == _cards(decided, index) for index, cards in given.items()):
        return ReceiptKind.REPAIRED
    return ReceiptKind.MISMATCH


def _sentence(kind: ReceiptKind, pod: GpuPod, given: Mapping[int, Cards], decided: Choice | None) -> str:
    names = {demand.index: quoted(demand.container) for demand in pod.demands}
    if kind is ReceiptKind.MISMATCH and decided is not None:
        differing = {index: cards for index, cards in given.items() if cards != _cards(decided, index)}
        clauses = [
            f"container {names[index]} got {_listed(cards)} instead of {_listed(_cards(decided, index))}"
            for index, cards in differing.items()
        ]
        return f"kubelet gave other cards than decided: {_joined(clauses)}"
    clauses = [f"container {names[index]} has {_listed(cards)}" for index, cards in given.items()]
    if kind is ReceiptKind.REPAIRED:
        return f"the receipt on the pod was wrong: {_joined(clauses)}, as decided"
    why = pod.trouble or "there is no decision for the pod"
    return f"{why}; kubelet chose its cards: {_joined(clauses)}"


def _listed(cards: Cards) -> str:
    return ", ".join(map(str, sorted(cards))) or "no card"


def _joined(clauses: list[str]) -> str:
    more = f"; and {len(clauses) - _MOST_NAMED} more" if len(clauses) > _MOST_NAMED else ""
    return "; ".join(clauses[:_MOST_NAMED]) + more

"""Receipts: what kubelet has really given to a pod, where that is not what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gas.cards import Card
from gas.decision.annotations import read_receipt
from gas.decision.names import ALLOCATED_CARDS, ALLOCATED_INIT_CARDS
from gas.decision.text import MalformedAnnotation, format_container_cards, parse_container_cards
from gas.placement.choice import Choice
from gas.placement.need import Role
from gas.plugin.devices.device_ids import NO_IDS
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.gpu_pods import GpuPod
from gas.quoted import quoted

_MOST_TOLD = 3
"""Containers that one sentence names."""


class ReceiptKind(StrEnum):
    MISMATCH = "mismatch"  # kubelet gave other cards than decided
    ADOPTED = "adopted"  # the pod has cards, and nothing was or could be decided for it
    REPAIRED = "repaired"  # an earlier receipt on the pod says something else


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is to be written on a pod.

    annotations  in the form of ``gas-container-cards``; an empty text takes an annotation away
    sentence     for the event and the log
    """

    kind: ReceiptKind
    annotations: Mapping[str, str]
    sentence: str


Cards = frozenset[Card]


def receipt(pod: GpuPod, listed: ContainerIds, init_containers: Mapping[int, Cards]) -> Receipt | None:
    """The receipt that is missing on a pod, or None when what is written on it is true, or not all is known yet.

    listed           what kubelet's PodResources says of the pod, asked for after the pod was seen
    init_containers  by their place, what ordinary init containers were given. Kubelet does not tell, so a place that
                     is missing keeps what was decided for it

    None while kubelet hands out, which is until it has written the pod's status and every app container and
    sidecar has as many devices as it wants. A container with two ids of one card counts as having that card.
    """
    given = _given(pod, listed, init_containers)
    if not given:
        return None
    decided = pod.decided
    apps = sum(role is not Role.APP for role in pod.roles)
    places = {ALLOCATED_INIT_CARDS: range(apps), ALLOCATED_CARDS: range(apps, len(pod.roles))}
    is_damaged = _is_damaged(pod, places)
    annotations = {
        name: _text(group, given, decided)
        for name, group in places.items()
        if is_damaged or _is_other(given, group, pod.trimmed.annotations.get(name, ""), decided)
    }
    if not annotations:
        return None
    kind = _kind(pod, given, decided)
    return Receipt(kind, annotations, _sentence(kind, pod, given, decided))


def _given(pod: GpuPod, listed: ContainerIds, init_containers: Mapping[int, Cards]) -> dict[int, Cards] | None:
    """By container what it was given, as far as it is known; None while that is not final."""
    if not pod.is_admitted:
        return None
    given: dict[int, Cards] = {}
    for want in pod.demands:
        if want.role is Role.INIT:
            if want.index in init_containers:
                given[want.index] = init_containers[want.index]
            continue
        ids = listed.get(want.container, {}).get(want.resource, NO_IDS)
        if len(ids) != want.count:
            return None
        given[want.index] = given.get(want.index, frozenset()) | {id_.card for id_ in ids}
    return given


def _is_damaged(pod: GpuPod, places: Mapping[str, range]) -> bool:
    """Whether a receipt is written that the extender does not believe, or would not if it could read the pod's need."""
    texts = {name: text for name in places if (text := pod.trimmed.annotations.get(name))}
    try:
        if pod.need is not None:
            read_receipt(pod.trimmed, pod.need)
        return any(len(parse_container_cards(text)) != len(places[name]) for name, text in texts.items())
    except MalformedAnnotation:
        return True


def _is_other(given: Mapping[int, Cards], group: range, text: str, decided: Choice | None) -> bool:
    """Whether a container of the group was given other cards than its receipt says, or the decision without one.

    It is the text that is compared, not what the extender makes of it: for a container with fewer cards than it asks
    for that is more than what was handed out.
    """
    if text:
        stated = [frozenset(cards) for cards in parse_container_cards(text)]
    else:
        stated = [_cards(decided, index) for index in group]
    return any(given.get(index, cards) != cards for index, cards in zip(group, stated, strict=True))


def _cards(choice: Choice | None, index: int) -> Cards:
    return frozenset(choice.containers[index].cards) if choice else frozenset()


def _text(group: range, given: Mapping[int, Cards], decided: Choice | None) -> str:
    """Cards in the order decided, as far as they are those; empty when no container of the group has any."""
    places: list[list[Card]] = []
    for index in group:
        order = decided.containers[index].cards if decided else ()
        cards = given.get(index, frozenset(order))
        places.append([card for card in order if card in cards] + sorted(cards.difference(order)))
    return format_container_cards(places) if any(places) else ""


def _kind(pod: GpuPod, given: Mapping[int, Cards], decided: Choice | None) -> ReceiptKind:
    if decided is None:
        return ReceiptKind.MISMATCH if pod.trouble and pod.need is not None else ReceiptKind.ADOPTED
    if all(cards == _cards(decided, index) for index, cards in given.items()):
        return ReceiptKind.REPAIRED
    return ReceiptKind.MISMATCH


def _sentence(kind: ReceiptKind, pod: GpuPod, given: Mapping[int, Cards], decided: Choice | None) -> str:
    names = {want.index: quoted(want.container) for want in pod.demands}
    if kind is ReceiptKind.MISMATCH and decided is not None:
        other = {index: cards for index, cards in given.items() if cards != _cards(decided, index)}
        told = [
            f"container {names[index]} got {_listed(cards)} instead of {_listed(_cards(decided, index))}"
            for index, cards in other.items()
        ]
        return f"kubelet gave other cards than decided: {_joined(told)}"
    told = [f"container {names[index]} has {_listed(cards)}" for index, cards in given.items()]
    if kind is ReceiptKind.REPAIRED:
        return f"the receipt on the pod was wrong: {_joined(told)}, as decided"
    why = pod.trouble or "nothing was decided for the pod"
    return f"{why}; kubelet gave it cards by itself: {_joined(told)}"


def _listed(cards: Cards) -> str:
    return ", ".join(map(str, sorted(cards))) or "no card"


def _joined(told: list[str]) -> str:
    more = f"; and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return "; ".join(told[:_MOST_TOLD]) + more

"""The annotation ``scheduling.koordinator.sh/device-allocated``: the cards of a pod and what it takes of each."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gas.decision.text import LONGEST, MalformedAnnotation
from gas.values.amounts import MEMORY_MAX, MILLICORES, MILLICORES_OF_A_CARD, Amounts
from gas.values.cards import Card
from gas.values.quoted import quoted
from gas.vocabularies.koordinator.names import ALLOCATED, CORE, MEMORY, MEMORY_RATIO, full_name

MILLICORES_OF_CORE = MILLICORES_OF_A_CARD // 100
"""Koordinator counts a card's compute in hundredths."""

_MOST_CARDS = 1024
_PERCENT = 100


class _Device(msgspec.Struct):
    minor: int
    resources: dict[str, str] = {}


class _Read(msgspec.Struct):
    """A device as Koordinator wrote it: of its other fields, none says which card it is."""

    minor: int


class _Devices(msgspec.Struct):
    gpu: list[_Read] | None = None


def format_allocated(amounts: Mapping[Card, Amounts], capacity: Mapping[Card, Amounts]) -> str:
    """Return the text of the annotation.

    amounts   what the pod takes of each of its cards
    capacity  what each card has; the percentage of a card whose memory is not known is left out
    """
    devices = []
    for card, taken in sorted(amounts.items()):
        memory, has = taken.get(MEMORY_MAX, 0), capacity.get(card, {}).get(MEMORY_MAX, 0)
        resources = {full_name(CORE): taken.get(MILLICORES, 0) // MILLICORES_OF_CORE, full_name(MEMORY): memory}
        if has:
            # Rounded up: a part of a card was rounded down to bytes, and must read as the percentage that it was.
            resources[full_name(MEMORY_RATIO)] = -(-memory * _PERCENT // has)
        devices.append(_Device(int(card), {name: str(amount) for name, amount in resources.items()}))
    return msgspec.json.encode({"gpu": devices}).decode()


def parse_allocated(text: str) -> tuple[Card, ...]:
    """Return the cards that the annotation names. Raises MalformedAnnotation."""
    if len(text) > LONGEST:
        raise MalformedAnnotation(ALLOCATED, f"expected at most {LONGEST} characters, found {len(text)}")
    try:
        devices = msgspec.json.decode(text, type=_Devices).gpu or ()
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedAnnotation(
            ALLOCATED, f'expected JSON such as {{"gpu":[{{"minor":0}}]}}, found {quoted(text)}: {error}'
        ) from None
    minors = [device.minor for device in devices]
    if len(minors) > _MOST_CARDS or len(set(minors)) < len(minors) or any(not 0 <= each < 10**9 for each in minors):
        raise MalformedAnnotation(ALLOCATED, f"expected different numbers of cards, found {quoted(text)}")
    return tuple(Card(minor) for minor in minors)

"""The measured use of cards, read from the document ``/usage`` of the device plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gas.values.cards import Card, MalformedCard
from gas.values.errors import GasError
from gas.values.quoted import quoted


class MeasuredUse(NamedTuple):
    """The use of one card by one pod.

    memory  bytes; None if the driver does not say
    busy    share of the last interval for which the busiest class of engines worked; None if the driver does not say
    """

    memory: int | None
    busy: float | None


class Unusable(GasError):
    """The document is not one of a device plugin that measures."""


class _Engine(msgspec.Struct, frozen=True):
    busy: float = 0.0


class _CardUse(msgspec.Struct, frozen=True, rename="camel"):
    memory_used: int | None = None
    engines: dict[str, _Engine] | None = None


class _PodUse(msgspec.Struct, frozen=True):
    uid: str = ""
    cards: dict[str, _CardUse] | None = None


class _Document(msgspec.Struct, frozen=True):
    trouble: str | None = None
    pods: list[_PodUse] | None = None


_DECODER = msgspec.json.Decoder(_Document)


def parse_use(document: bytes) -> Mapping[tuple[str, Card], MeasuredUse]:
    """Return the use by pod UID and card. Raises Unusable with a sentence."""
    try:
        read = _DECODER.decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unusable(f"expected the document /usage of gas-plugin, found something else: {error}") from error
    if read.trouble:
        raise Unusable(read.trouble)
    found: dict[tuple[str, Card], MeasuredUse] = {}
    for pod in read.pods or ():
        for name, use in (pod.cards or {}).items():
            try:
                card = Card.parse(name)
            except MalformedCard as error:
                raise Unusable(f"the use of pod {quoted(pod.uid)}: {error}") from error
            busy = max((engine.busy for engine in use.engines.values()), default=None) if use.engines else None
            found[pod.uid, card] = MeasuredUse(use.memory_used, busy)
    return found

"""Kubelet's ids of devices: ``card0-3`` is the fourth place of card0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gas.cards import Card
from gas.errors import GasError

ALL_CARDS = "all"
"""The only id of a monitoring resource."""

_DEVICE_ID = re.compile(r"card(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,8})", re.ASCII)


class MalformedDeviceId(GasError):
    """The text is no id of ours. Attribute ``text`` is what was found."""

    def __init__(self, text: str) -> None:
        super().__init__(f"expected a device id such as card0-0, found {text[:80]!r}")
        self.text = text


class DeviceId(NamedTuple):
    """One of the places of a card that containers can be given. They sort by card, in natural order, then by slot.

    slot  from 0 to ``--shared-dev-num`` - 1
    """

    card: Card
    slot: int

    @classmethod
    def parse(cls, text: str) -> DeviceId:
        """``"card10-2"`` -> ``DeviceId(Card(10), 2)``. Raises MalformedDeviceId."""
        if (match := _DEVICE_ID.fullmatch(text)) is None:
            raise MalformedDeviceId(text)
        return cls(Card(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.card}-{self.slot}"


Ids = frozenset[DeviceId]
NO_IDS: Ids = frozenset()


def known_ids(texts: Iterable[str]) -> tuple[DeviceId, ...]:
    """The ids among these texts that are ours, in the order given; others (monitoring's ``all``) are left out."""
    return tuple(id_ for text in texts if (id_ := _known_id(text)) is not None)


@lru_cache(maxsize=4096)  # kubelet names the same ids in every call
def _known_id(text: str) -> DeviceId | None:
    match = _DEVICE_ID.fullmatch(text)
    return None if match is None else DeviceId(Card(match[1]), int(match[2]))

"""Parse kubelet's device ids, such as ``card0-3`` for the fourth slot of card0, and represent its calls about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from gas.values.cards import Card

ALL_CARDS = "all"
"""The only id of a monitoring resource."""

_DEVICE_ID = re.compile(r"card(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,8})", re.ASCII)


class DeviceId(NamedTuple):
    """One slot of a card, counted from 0. Ids sort by card, in natural order, then by slot."""

    card: Card
    slot: int

    def __str__(self) -> str:
        return f"card{int(self.card)}-{self.slot}"


Ids = frozenset[DeviceId]
NO_IDS: Ids = frozenset()


def known_ids(texts: Iterable[str]) -> tuple[DeviceId, ...]:
    """Parse device ids of cards, in their order. Other texts, such as ``all``, are left out."""
    return tuple(id_ for text in texts if (id_ := _known_id(text)) is not None)


@lru_cache(maxsize=2**18)  # kubelet names the same ids in every call; with memory as ids up to 170,000
def _known_id(text: str) -> DeviceId | None:
    match = _DEVICE_ID.fullmatch(text)
    return None if match is None else DeviceId(_card(match[1]), int(match[2]))


@lru_cache(maxsize=1024)
def _card(number: str) -> Card:
    """Return one object for all ids of a card, of which there may be thousands."""
    return Card(int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateRequest:
    """Allocate: kubelet has chosen these ids for one container.

    resource  full name: ``gpu.intel.com/i915``
    ids       empty for a monitoring resource
    counts    number of ids of each card
    """

    resource: str
    ids: Ids
    counts: Mapping[Card, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", Counter(map(_card_of, self.ids)))

    @property
    def size(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredRequest:
    """GetPreferredAllocation: kubelet asks which ids one container should get.

    resource      full name: ``gpu.intel.com/i915``
    offered       the ids to choose from, each once, in kubelet's order
    must_include  ids that the container gets in any case: those that the pod's init containers had
    size          number of ids that the container gets, including ``must_include``
    available     ``offered`` as a set
    by_card       ``offered`` by card, not sorted, because sorting takes time
    counts        number of offered ids of each card
    """

    resource: str
    offered: tuple[DeviceId, ...]
    must_include: Ids
    size: int
    available: Ids = field(init=False, repr=False, compare=False)
    by_card: Mapping[Card, Sequence[DeviceId]] = field(init=False, repr=False, compare=False)
    counts: Mapping[Card, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Made once, because a call may be compared with every pod that waits, and may offer 170,000 ids.
        by_card: dict[Card, list[DeviceId]] = {}
        for id_ in self.offered:
            by_card.setdefault(id_[0], []).append(id_)
        object.__setattr__(self, "available", frozenset(self.offered))
        object.__setattr__(self, "by_card", by_card)
        object.__setattr__(self, "counts", {card: len(ids) for card, ids in by_card.items()})

    def can_lead_to(self, call: AllocateRequest) -> bool:
        """Return whether this Allocate can follow the question."""
        return (
            self.resource == call.resource
            and self.size == call.size
            and self.must_include <= call.ids <= self.available
        )


_card_of = itemgetter(0)

Call = PreferredRequest | AllocateRequest


def short_name(resource: str) -> str:
    """Return a resource's name for metrics and logs: ``i915`` for ``gpu.intel.com/i915``."""
    return resource.rpartition("/")[2]

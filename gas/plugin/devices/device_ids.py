"""Parse kubelet's device ids, such as ``card0-3`` for the fourth slot of card0, and represent its calls about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from operator import attrgetter

from gas.values.cards import Card

ALL_CARDS = "all"  # the only id of a monitoring resource

_DEVICE_ID = re.compile(r"card(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,8})", re.ASCII)


class DeviceId(str):
    """One slot of a card, counted from 0. A string, so that sets of thousands of ids are fast; sort by `in_order`."""

    __slots__ = ("card", "slot")

    card: Card
    slot: int

    def __new__(cls, card: Card, slot: int) -> DeviceId:
        id_ = super().__new__(cls, f"card{int(card)}-{slot}")
        id_.card, id_.slot = card, slot
        return id_


in_order = attrgetter("card", "slot")  # sort key of ids: by card, in natural order, then by slot
card_of = attrgetter("card")

Ids = frozenset[DeviceId]
NO_IDS: Ids = frozenset()


def known_ids(texts: Iterable[str]) -> tuple[DeviceId, ...]:
    """Parse device ids of cards, in their order. Other texts, such as ``all``, are left out."""
    return tuple(filter(None, map(_known_id, texts)))


def is_known(text: str) -> bool:
    return text == ALL_CARDS or _known_id(text) is not None


# Kubelet names the same ids in every call: those that were offered, up to 170,000 if they are memory. The cache finds
# plain texts only: a `DeviceId` would be parsed and kept a second time.
@cache
def _known_id(text: str) -> DeviceId | None:
    match = _DEVICE_ID.fullmatch(text)
    return None if match is None else DeviceId(_card(match[1]), int(match[2]))


@cache
def _card(number: str) -> Card:
    """Return one object for all ids of a card, of which there may be thousands."""
    return Card(int(number))


@dataclass(frozen=True, kw_only=True)
class AllocateRequest:
    """Allocate: kubelet has chosen these ids for one container.

    resource  full name: ``gpu.intel.com/i915``
    ids       empty for a monitoring resource
    counts    number of ids of each card
    """

    resource: str
    ids: Ids

    @cached_property
    def counts(self) -> Mapping[Card, int]:
        return Counter(map(card_of, self.ids))

    @property
    def size(self) -> int:
        return len(self.ids)

    def has(self, card: Card, number: int) -> bool:
        return self.counts.get(card, 0) >= number


@dataclass(frozen=True, kw_only=True)
class PreferredRequest:
    """GetPreferredAllocation: kubelet asks which ids one container should get.

    resource      full name: ``gpu.intel.com/i915``
    offered       the ids to choose from, each once, in kubelet's order, which is random
    must_include  ids that the container gets in any case: those that the pod's init containers had
    size          number of ids that the container gets, including ``must_include``
    available     ``offered`` as a set
    counts        number of offered ids of each card
    """

    resource: str
    offered: Sequence[str]
    must_include: Ids
    size: int

    # Each is made once, because a call may be compared with every pod that waits. It may offer 170,000 ids, so that to
    # read them all takes longer than everything else: only containers without a decision need that.

    @cached_property
    def available(self) -> frozenset[str]:
        return frozenset(self.offered)

    @cached_property
    def counts(self) -> Mapping[Card, int]:
        return Counter(map(card_of, known_ids(self.offered)))

    @cached_property
    def _read(self) -> dict[Card, tuple[list[str], Iterator[str]]]:
        """Hold, by card, the ids that `first_of` has found so far, and those that it has not read yet."""
        return {}

    def first_of(self, card: Card, number: int) -> Sequence[str]:
        """Return the first offered ids of a card in kubelet's order, up to ``number``. Reads no more than it needs."""
        if card not in self._read:
            prefix = f"{card}-"
            self._read[card] = [], (text for text in self.offered if text.startswith(prefix))
        found, rest = self._read[card]
        found += islice(rest, max(number - len(found), 0))
        return found[: max(number, 0)]

    def has(self, card: Card, number: int) -> bool:
        return len(self.first_of(card, number)) >= number

    def can_lead_to(self, call: AllocateRequest, preferred: Collection[str]) -> bool:
        """Return whether this Allocate can follow the question and the preference that was returned."""
        is_alike = self.resource == call.resource and self.size == call.size
        return is_alike and (call.ids == preferred or self.must_include <= call.ids <= self.available)


Call = PreferredRequest | AllocateRequest


def short_name(resource: str) -> str:
    """Return a resource's name for metrics and logs: ``i915`` for ``gpu.intel.com/i915``."""
    return resource.rpartition("/")[2]

"""Withhold card numbers that mean another card than the running pods on them were given.

The kernel numbers cards at each start. kubelet knows devices by their numbers only: after a reboot it gives a pod
of before the same number again, without asking, if the device is healthy. So a number with another card behind it is
unhealthy until the pods of before have ended. kubelet then rejects them, and their owners create new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gas.values.card_facts import CardFacts
from gas.values.card_records import CardRecord
from gas.values.cards import Card


@dataclass(frozen=True, slots=True)
class _Identity:
    """The identity of a card; empty texts are unknown."""

    pci_address: str
    uuid: str

    def is_another_than(self, other: _Identity) -> bool:
        """Return whether two cards are certainly different. A UUID moves with its card; an address does not."""
        if self.uuid and other.uuid:
            return self.uuid != other.uuid
        return bool(self.pci_address and other.pci_address) and self.pci_address != other.pci_address


class Renumbering:
    """Track which card each number meant.

    recorded  what the node said when the plugin started, before the plugin changed it
    """

    def __init__(self, recorded: Iterable[CardRecord] = ()) -> None:
        self._known = {each.card: _Identity(each.pci_address, each.uuid) for each in recorded}
        self._withheld: dict[Card, frozenset[str]] = {}

    @property
    def withheld(self) -> Mapping[Card, frozenset[str]]:
        """The cards that are withheld, with the UIDs of the pods that were given the earlier card of that number."""
        return self._withheld

    def update(self, cards: Sequence[CardFacts], users: Mapping[Card, Collection[str]]) -> tuple[CardFacts, ...]:
        """Return the cards, those unhealthy that are withheld.

        users  by card number, the UIDs of the pods that kubelet has admitted with it and that have not ended
        """
        withheld = dict(self._withheld)
        for gpu in cards:
            now = _Identity(gpu.pci_address, gpu.uuid)
            before = self._known.get(gpu.card)
            if before is not None and now.is_another_than(before):
                withheld[gpu.card] = withheld.get(gpu.card, frozenset()).union(users.get(gpu.card, ()))
            if before is None or now.pci_address:
                self._known[gpu.card] = now
        left = {card: uids.intersection(users.get(card, ())) for card, uids in withheld.items()}
        self._withheld = {card: uids for card, uids in left.items() if uids}
        return tuple(replace(gpu, healthy=False) if gpu.card in self._withheld else gpu for gpu in cards)

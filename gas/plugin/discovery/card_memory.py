"""Which cards this node has, over many scans: a card that cannot be read for a moment is not forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gas.card_facts import CardFacts, Scan
from gas.cards import Card
from gas.quoted import listed

FORGET_AFTER = 60.0
"""Seconds that a card which went away stays known: longer than a reset of the card or a reload of its driver takes."""


@dataclass(slots=True)
class _Known:
    """A card as it was when it was whole, and when it was first missed (None: it is there)."""

    gpu: CardFacts
    missed: float | None = None


class CardMemory:
    """Turns what single scans found into what the node has.

                           .--- it can be read, with as many device nodes -------.
                           v                                                     |
        unknown --found--> healthy --broken, gone, or lost a device node--> unhealthy
           ^                                                                     |
           '--------- gone for a minute, or back under another number -----------'

    What a scan could not read of a known card (`CardFacts.unread`) keeps its last value, so that one failed read costs
    pods neither tiles nor memory. An unhealthy card keeps its last description, so its labels and the numbers by which
    links between cards are known stay the same. Broken cards stay as long as they are present. Kubelet takes an
    unhealthy card from what it can give and leaves pods that have it alone.
    """

    def __init__(self, forget_after: float = FORGET_AFTER) -> None:
        self._forget_after = forget_after
        self._known: dict[Card, _Known] = {}

    def take_in(self, scan: Scan, now: float) -> Scan:
        """What the node has after this scan; ``now`` is seconds on a clock that never goes back."""
        problems = list(scan.problems)
        gpus: dict[Card, CardFacts] = {}
        for gpu in scan.gpus:
            gpus[gpu.card] = self._met(gpu, problems)
        elsewhere = {gpu.pci_address for gpu in scan.gpus if gpu.pci_address}
        for card, known in list(self._known.items()):
            if card in gpus:
                continue
            if not self._still_counts(known, now, is_there=card in scan.broken) or known.gpu.pci_address in elsewhere:
                del self._known[card]
                continue
            if known.missed is not None:
                problems.append(f"{card}: it went away; it is unhealthy until it comes back or is forgotten")
            gpus[card] = replace(known.gpu, healthy=False)
        return Scan(
            gpus=tuple(gpus[card] for card in sorted(gpus)),
            problems=tuple(problems),
            broken=scan.broken,
        )

    def _met(self, gpu: CardFacts, problems: list[str]) -> CardFacts:
        """A card that could be read; nothing of the answer is `CardFacts.unread`, whether it was ever known or not."""
        known = self._known.get(gpu.card)
        if known is not None and (known.gpu.pci_address, known.gpu.driver) == (gpu.pci_address, gpu.driver):
            known.missed = None
            gpu = replace(gpu, **{name: getattr(known.gpu, name) for name in gpu.unread})
            if len(gpu.device_nodes) < len(known.gpu.device_nodes):
                lost = sorted(set(known.gpu.device_nodes).difference(gpu.device_nodes))
                problems.append(f"{gpu.card}: it lost {listed([f'/dev/dri/{name}' for name in lost])}; it is unhealthy")
                return replace(known.gpu, healthy=False)
        gpu = replace(gpu, unread=frozenset())
        self._known[gpu.card] = _Known(gpu)
        return gpu

    def _still_counts(self, known: _Known, now: float, *, is_there: bool) -> bool:
        """Whether a card that could not be read is waited for; it is from when it went away."""
        if is_there:
            known.missed = None
        elif known.missed is None:
            known.missed = now
        return known.missed is None or now - known.missed < self._forget_after

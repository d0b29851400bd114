"""Cards for tests: a call names only what the case is about."""

from __future__ import annotations

from typing import Any

from gas.card_facts import CardFacts, Scan
from gas.cards import Card


def gpu(card: int, **fields: Any) -> CardFacts:
    """Return a healthy i915 card of one tile with 8 GB, two device nodes and its own PCI address."""
    address = f"0000:{card + 0x10:02x}:00.0"
    described: dict[str, Any] = {
        "driver": "i915",
        "device_id": "0x56c0",
        "pci_address": address,
        "memory": 8_000_000_000,
        "device_nodes": (f"card{card}", f"renderD{128 + card}"),
        "pci_path": ("pci0000:00", f"0000:{card:02x}:01.0", address),
    }
    return CardFacts(card=Card(card), **(described | fields))


def scan(*gpus: CardFacts, **fields: Any) -> Scan:
    return Scan(gpus=gpus, **fields)

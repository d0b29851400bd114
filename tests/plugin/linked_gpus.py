"""GPUs with everything that a container can be given of them."""

from __future__ import annotations

from typing import Any

from gas.values.card_facts import CardFacts
from tests.plugin.gpus import gpu


def linked_gpu(number: int, driver: str = "i915", **facts: Any) -> CardFacts:
    """Return a card with by-path links and a management engine that follow from its number."""
    address = f"0000:{number:02x}:00.0"
    links = {"by_path": (f"pci-{address}-card", f"pci-{address}-render"), "mei": (f"mei{number}",)}
    return gpu(number, **{"driver": driver, "pci_address": address, **links, **facts})

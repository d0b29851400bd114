"""Cards for tests: a call names only what the case is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gas.plugin.discovery.card_source import CardRules
from gas.plugin.discovery.render_node import Query, memory_regions
from gas.plugin.discovery.sysfs import SysfsCards
from gas.values.card_facts import CardFacts, MemorySource, Scan
from gas.values.cards import Card


def gpu(card: int, **fields: Any) -> CardFacts:
    """Return a healthy i915 card of one tile with 8 GB, two device nodes and its own PCI address."""
    address = f"0000:{card + 0x10:02x}:00.0"
    described: dict[str, Any] = {
        "driver": "i915",
        "device_id": "0x56c0",
        "pci_address": address,
        "memory": 8_000_000_000,
        "memory_source": MemorySource.SYSFS,
        "device_nodes": (f"card{card}", f"renderD{128 + card}"),
        "pci_path": ("pci0000:00", f"0000:{card:02x}:01.0", address),
    }
    return CardFacts(card=Card(card), **(described | fields))


def linked_gpu(number: int, driver: str = "i915", **facts: Any) -> CardFacts:
    """Return a card with by-path links and a management engine that follow from its number."""
    address = f"0000:{number:02x}:00.0"
    links = {"by_path": (f"pci-{address}-card", f"pci-{address}-render"), "mei": (f"mei{number}",)}
    return gpu(number, **{"driver": driver, "pci_address": address, **links, **facts})


def nvidia_gpu(card: int, **fields: Any) -> CardFacts:
    """Return a healthy NVIDIA card with 80 GiB, which its container runtime knows by its UUID."""
    uuid = f"GPU-00000000-0000-4000-8000-{card:012x}"
    described: dict[str, Any] = {
        "driver": "nvidia",
        "device_id": "0x2330",
        "pci_address": f"0000:{card % 100 + 0x80:02x}:00.0",
        "memory": 80 * 2**30,
        "memory_source": MemorySource.QUERY,
        "device_nodes": (),
        "pci_path": (),
        "uuid": uuid,
        "variables": (("NVIDIA_VISIBLE_DEVICES", uuid),),
    }
    return gpu(card, **(described | fields))


def scan(*gpus: CardFacts, **fields: Any) -> Scan:
    return Scan(gpus=gpus, **fields)


def read_gpus(
    root: Path,
    *,
    query: Query = memory_regions,
    **rules: Any,
) -> Scan:
    """Scan a tree once. Its render nodes are no devices, so no driver can be asked without another ``query``."""
    return SysfsCards(root, CardRules(**rules), query).read()

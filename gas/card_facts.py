"""The GPUs of this node, as the kernel describes them."""

from __future__ import annotations

from dataclasses import dataclass

from gas.cards import Card

MOST_MEMORY = 2**50
"""Bytes: no card has a pebibyte. A larger number is a mistake, and the sum of a few would be no Kubernetes quantity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What is known of one card. Paths and names are those of the node itself, never with a prefix before them.

    driver        ``i915`` or ``xe``; it picks the resource
    device_id     PCI device id, ``0x56c0``
    pci_address   ``0000:4d:00.0``; empty when it cannot be told
    numa_node     None when the card belongs to none
    tiles         at least 1
    memory        bytes of the whole card that pods may use; None when unknown or when nothing is left of it
    device_nodes  names under ``/dev/dri``: ``card0``, ``renderD128``
    by_path       names under ``/dev/dri/by-path``: ``pci-0000:4d:00.0-card``
    mei           names under ``/dev`` of its management engine: ``mei0``; told by sysfs alone
    pci_path      folders of its sysfs path, from the one that starts with ``pci`` to the PCI device itself
    healthy       whether it may be given to containers now
    unread        names of the fields above whose source is there and could not be read, or makes no sense
    """

    card: Card
    driver: str
    device_id: str
    pci_address: str = ""
    numa_node: int | None = None
    tiles: int = 1
    memory: int | None = None
    device_nodes: tuple[str, ...] = ()
    by_path: tuple[str, ...] = ()
    mei: tuple[str, ...] = ()
    pci_path: tuple[str, ...] = ()
    healthy: bool = True
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What one look at the whole node found.

    gpus      in natural order of the cards
    problems  what could not be read or makes no sense, one sentence each, the same for equal trees
    broken    cards that are there but cannot be told what they are; none of them is among ``gpus``
    """

    gpus: tuple[CardFacts, ...] = ()
    problems: tuple[str, ...] = ()
    broken: frozenset[Card] = frozenset()

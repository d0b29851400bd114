"""A double of NVIDIA's library, for tests that need only Python. `tests/e2e` has one in C, behind the real bindings."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from gas.plugin.nvml.nvml_library import Failure, Nvml, NvmlCard, NvmlFault, NvmlUse

GIB = 2**30


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{number:012x}"


def nvml_card(minor: int, **fields: Any) -> NvmlCard:
    """Return a card of 80 GiB, 1 GiB of it reserved, that no link joins to another."""
    described: dict[str, Any] = {
        "index": minor,
        "uuid": uuid(minor),
        "pci": (0, 0x10 + minor, 0),
        "pci_ids": 0x233010DE,
        "model": "NVIDIA H100 80GB HBM3",
        "total": 80 * GIB,
        "reserved": GIB,
    }
    return NvmlCard(minor=minor, **(described | fields))


def instance(minor: int, gi: int, ci: int = 0, **fields: Any) -> NvmlCard:
    """Return a MIG instance of a card: 40 GiB, and 3 of 7 parts of its compute."""
    described: dict[str, Any] = {
        "uuid": f"MIG-00000000-0000-4000-8000-{minor:04x}{gi:04x}{ci:04x}",
        "card_uuid": uuid(minor),
        "place": (gi, ci),
        "total": 40 * GIB,
        "reserved": 0,
        "millicores": 428,
        "has_mig": True,
    }
    return nvml_card(minor, **(described | fields))


LOST = NvmlFault("nvmlDeviceGetHandleByIndex: GPU is lost", code=15, is_lost=True)


@dataclass
class FakeNvml(Nvml):
    """The library with these cards.

    faults   index of a card, ``open`` or ``count`` -> the error of its call
    hanging  the same names, whose calls wait until `released` is set
    pending  what cards have reported, until they are described
    near     pairs of UUIDs that share PCIe switches
    uses     who uses a card, by its UUID
    """

    cards: list[NvmlCard]
    faults: dict[int | str, NvmlFault] = field(default_factory=dict)
    hanging: set[int | str] = field(default_factory=set)
    near: set[frozenset[str]] = field(default_factory=set)
    pending: list[Failure] = field(default_factory=list)
    uses: dict[str, NvmlUse] = field(default_factory=dict)
    opened: int = 0
    is_open: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    calls: list[int | str] = field(default_factory=list)
    _reported: list[Failure] = field(default_factory=list)

    def open(self) -> None:
        self._called("open")
        self.opened += not self.is_open
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def count(self) -> int:
        self._called("count")
        return len(self.cards)

    def card(self, index: int) -> NvmlCard:
        self._called(index)
        card = self.cards[index]
        self._reported += [each for each in self.pending if each.uuid == card.uuid]
        self.pending = [each for each in self.pending if each.uuid != card.uuid]
        return card

    def share_a_switch(self, one: str, other: str) -> bool:
        self._called("switches")
        return frozenset((one, other)) in self.near

    def use(self, uuid: str, since: int) -> NvmlUse:
        self._called(uuid)
        return self.uses.get(uuid, NvmlUse({}))

    def _called(self, name: int | str) -> None:
        self.calls.append(name)
        if name in self.hanging:
            self.released.wait()
        if name in self.faults:
            raise self.faults[name]

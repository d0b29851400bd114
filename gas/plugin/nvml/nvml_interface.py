"""The few calls of NVIDIA's management library (NVML) that the plugin needs, as types.

Every call may block for as long as the driver does, so callers use threads of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gas.values.errors import GasError


class NvmlFault(GasError):
    """A call of NVML failed.

    code       NVML's own number of the error; None if the library returned something that cannot be
    is_lost    whether the card no longer responds to its driver
    is_closed  whether the library must be opened again
    """

    def __init__(
        self, sentence: str, *, code: int | None = None, is_lost: bool = False, is_closed: bool = False
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.is_lost = is_lost
        self.is_closed = is_closed


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """One card as NVML describes it, unchecked.

    index      NVML's own number, which may change whenever the driver is loaded
    minor      N of ``/dev/nvidiaN``
    pci        domain, bus and device
    pci_ids    PCI device id in the upper 16 bits, that of the vendor in the lower ones
    total      bytes of its memory
    reserved   bytes of it that the driver and the firmware keep
    has_mig    whether it is divided into MIG instances
    peers      ``pci`` of the cards at the other ends of its active NVLinks
    on_switch  whether an active NVLink leads to an NVSwitch
    """

    index: int
    uuid: str
    minor: int
    pci: tuple[int, int, int]
    pci_ids: int
    model: str
    total: int
    reserved: int
    has_mig: bool = False
    peers: tuple[tuple[int, int, int], ...] = ()
    on_switch: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that a card has reported since the last call.

    xid  number of the driver's message; None for memory with an error of two bits
    """

    uuid: str
    xid: int | None

    @property
    def sentence(self) -> str:
        return "its memory had an error of two bits" if self.xid is None else f"it reported Xid {self.xid}"


class NvmlLibrary(Protocol):
    """The library. All methods but `open` need it open, and raise NvmlFault."""

    def open(self) -> None:
        """Load and initialise the library. Does nothing if it is open. Raises NvmlFault."""

    def close(self) -> None:
        """Let the next `open` initialise the library again. Never raises."""

    def count(self) -> int:
        """Return the number of cards, with those that have failed."""

    def card(self, index: int) -> NvmlCard:
        """Return one card."""

    def share_a_switch(self, one: str, other: str) -> bool:
        """Return whether data between two cards, by UUID, passes PCIe switches only, not the processor's bridge."""

    def failures(self) -> Sequence[Failure]:
        """Return what cards have reported since the last call, or since `open`. Does not wait."""

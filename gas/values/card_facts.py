"""The GPUs of this node, as their drivers describe them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gas.values.amounts import MILLICORES_OF_A_CARD
from gas.values.cards import Card

MOST_MEMORY = 2**50  # Bytes. A larger amount is a mistake, and the sum of a few would exceed a Kubernetes quantity.


class MemorySource(StrEnum):
    """The origin of the amount of a card's memory, best first."""

    SYSFS = "sysfs"
    QUERY = "query"  # the driver, asked through the card's render node
    BAR = "bar"  # the size of the PCI memory window through which the processor sees all of the card's memory
    OVERRIDE = "override"  # the administrator
    TABLE = "table"  # what cards of its model have
    SHARED = "shared"  # none: an integrated GPU uses the memory of the node
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """The facts about one card. Paths and names are those of the node itself, without any prefix."""

    card: Card
    driver: str  # ``i915``, ``xe`` or ``nvidia``; it picks the resource
    device_id: str  # PCI device id, ``0x56c0``
    driver_version: str = ""  # empty if it is unknown or that of the kernel
    model: str = ""  # name of the model; empty if it is unknown
    pci_address: str = ""  # ``0000:4d:00.0``; empty if it is unknown
    uuid: str = ""  # the same wherever the card is plugged in; empty if it is unknown
    numa_node: int | None = None  # None if the card belongs to none
    tiles: int = 1  # at least 1
    # thousandths of a whole card's compute; less than 1000 for an instance of a divided card
    millicores: int = MILLICORES_OF_A_CARD
    # bytes of the whole card that pods may use; None if it is unknown, shared or if none is left
    memory: int | None = None
    # bytes of the whole card, including reserved ones; None if neither sysfs nor the driver states it
    memory_size: int | None = None
    memory_source: MemorySource = MemorySource.UNKNOWN
    # why the memory is unknown and what to do, a sentence without the card's name; empty if it is known
    memory_fault: str = ""
    device_nodes: tuple[str, ...] = ()  # names under ``/dev/dri``: ``card0``, ``renderD128``
    by_path: tuple[str, ...] = ()  # names under ``/dev/dri/by-path``: ``pci-0000:4d:00.0-card``
    other_nodes: tuple[str, ...] = ()  # names under ``/dev`` that containers get as well: ``nvidia0``, ``nvidiactl``
    # names and values of variables by which a container runtime gives the card to a container
    variables: tuple[tuple[str, str], ...] = ()
    # full name of the CDI device, if another program than this plugin describes the card; else empty
    cdi_name: str = ""
    # cards that direct links join to it, one as often as there are links, in natural order
    links: tuple[Card, ...] = ()
    # the same number for cards that are behind the same PCIe switches; None if that is unknown
    board: int | None = None
    mei: tuple[str, ...] = ()  # names under ``/dev`` of its management engine: ``mei0``; known from sysfs only
    pci_path: tuple[str, ...] = ()  # folders of its sysfs path, from the one that starts with ``pci`` to the PCI device
    healthy: bool = True  # whether it may be given to containers now
    unread: frozenset[str] = frozenset()  # names of the fields above whose source exists but is unreadable or invalid

    @property
    def render_node(self) -> str:
        """Its device node by which programs compute, ``renderD128``; empty if it is unknown or there is none."""
        return next((name for name in self.device_nodes if name.startswith("renderD")), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The result of one scan of the whole node."""

    gpus: tuple[CardFacts, ...] = ()  # in natural order of the cards
    problems: tuple[str, ...] = ()  # unreadable or invalid parts, one sentence each, the same for equal trees
    # by unhealthy card, the cause and what to do, a sentence without the card's name
    faults: Mapping[Card, str] = field(default_factory=dict)
    # by driver of which not all cards could be looked for, the cause: those that are known stay, unhealthy
    blind: Mapping[str, str] = field(default_factory=dict)
    # why a new container of the plugin may see cards that this one cannot use; empty if it would see no more
    container_fault: str = ""

    @property
    def broken(self) -> frozenset[Card]:
        """The cards that exist but could not be identified."""
        return frozenset(self.faults.keys() - {gpu.card for gpu in self.gpus})

"""The cgroup controller ``dmem``: the kernel's limits of device memory, as text in its files.

Source: Documentation/admin-guide/cgroup-v2.rst and kernel/cgroup/dmem.c of Linux 6.14. A region is named
``drm/0000:03:00.0/vram0``, and a card with several tiles has several. Only the root has the file with their capacities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gas.values.errors import GasError
from gas.values.quoted import quoted

Limits = Mapping[str, int | None]
"""Bytes by region; None for a region without a limit."""

_UNLIMITED = "max"


class MalformedLimits(GasError):
    """A file of the controller has another form than the kernel writes."""


class Controller(Protocol):
    """The files of a cgroup controller that limits memory of cards.

    name      of the controller, as in ``cgroup.controllers``
    capacity  name of the file with the regions, in the root
    limits    name of the file with the limits, in every other cgroup
    """

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> str: ...

    @property
    def limits(self) -> str: ...

    def parse_capacity(self, text: str) -> Mapping[str, int]:
        """Return the bytes of each region. Raises MalformedLimits."""

    def parse_limits(self, text: str) -> Limits:
        """Return the limits of a cgroup. Raises MalformedLimits."""

    def format_limit(self, region: str, limit: int | None) -> str:
        """Return the text to write for one region. The kernel takes one region with each write."""


class Dmem:
    """The real controller."""

    name = "dmem"
    capacity = "dmem.capacity"
    limits = "dmem.max"

    def parse_capacity(self, text: str) -> Mapping[str, int]:
        return {region: _bytes(value) for region, value in _lines(text)}

    def parse_limits(self, text: str) -> Limits:
        return {region: None if value == _UNLIMITED else _bytes(value) for region, value in _lines(text)}

    def format_limit(self, region: str, limit: int | None) -> str:
        return f"{region} {_UNLIMITED if limit is None else limit}\n"


DMEM: Controller = Dmem()


def regions_of(pci_address: str, capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the regions on the card and their bytes, without memory that the driver keeps for itself (``stolen``)."""
    prefix = f"drm/{pci_address}/vram"
    return {
        region: size
        for region, size in capacity.items()
        if region.startswith(prefix) and (region == prefix or region[len(prefix) :].isdigit())
    }


def _lines(text: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        region, _, value = line.partition(" ")
        if not region or not value:
            raise MalformedLimits(f"expected a region and an amount in each line, found {quoted(line)}")
        lines.append((region, value))
    return lines


def _bytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise MalformedLimits(f"expected bytes, found {quoted(text)}")
    return int(text)

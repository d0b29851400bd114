"""PCI device ids, such as ``0x56c0``: the model of a GPU."""

from __future__ import annotations

import re

from gas.values.errors import InvalidEntry

_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)


def parse_pci_id(text: str) -> str | None:
    """Return a PCI device id in lower case, the form in which ids are compared; None for any other text."""
    lowered = text.strip().lower()
    return lowered if _ID.fullmatch(lowered) is not None else None


def parse_pci_ids(text: str) -> frozenset[str]:
    """Parse a comma-separated list of ids, as a flag's value; the empty text is an empty list. Contract P1.10.

    Raises InvalidEntry.
    """
    ids: set[str] = set()
    for entry in text.split(",") if text.strip() else ():
        if (pci_id := parse_pci_id(entry)) is None:
            raise InvalidEntry("PCI device ids such as 0x56c0,0x56c1", entry)
        ids.add(pci_id)
    return frozenset(ids)

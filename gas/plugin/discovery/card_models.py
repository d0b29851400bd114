"""Parse PCI device ids, such as ``0x56c0``, and look up Intel's models in the table of `scripts/card_models.py`."""

import re
from functools import cache
from pathlib import Path

from gas.values.errors import InvalidEntry

TABLE = Path(__file__).with_name("intel_models.tsv")

_WITH_OWN_MEMORY = re.compile(r"0x(490[5-9]|56[0-9a-f]{2}|0b6[9e]|0bd[4-9ab]|e2[0-9a-f]{2}|674[c-f]|6750)", re.ASCII)
"""The ids in the table that are not integrated GPUs: DG1, Arc A and Flex, Max, Arc B, and Crescent Island."""

_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)


def parse_pci_id(text: str) -> str | None:
    """Return a PCI device id in lower case; None for any other text."""
    lowered = text.strip().lower()
    return lowered if _ID.fullmatch(lowered) is not None else None


def parse_pci_ids(text: str) -> frozenset[str]:
    """Parse a comma-separated list of ids, which may be empty, from a flag. Contract P1.10. Raises InvalidEntry."""
    ids: set[str] = set()
    for entry in text.split(",") if text.strip() else ():
        if (pci_id := parse_pci_id(entry)) is None:
            raise InvalidEntry("PCI device ids such as 0x56c0,0x56c1", entry)
        ids.add(pci_id)
    return frozenset(ids)


def model_of(device_id: str) -> str:
    """Return the name of the Intel model with this PCI device id; empty if the table does not have it."""
    return _models().get(device_id, "")


def is_integrated(device_id: str) -> bool:
    return device_id in _models() and _WITH_OWN_MEMORY.fullmatch(device_id) is None


@cache
def _models() -> dict[str, str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))

"""Models by PCI device id, from a table that `scripts/card_models.py` writes: their names, and which are integrated."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("intel_models.tsv")

_WITH_OWN_MEMORY = re.compile(
    r"0x(490[5-9]|56[0-9a-f]{2}|0b6[9e]|0bd[4-9ab]|e2[0-9a-f]{2}|674[c-f]|6750)",
    re.ASCII,
)
"""The ids in the table that are not integrated GPUs: DG1, Arc A and Flex, Max, Arc B, and Crescent Island."""


def model_of(device_id: str) -> str:
    """Return the name of Intel's model with this PCI device id; empty if the table does not have it."""
    return _models().get(device_id, "")


def is_integrated(device_id: str) -> bool:
    """Return whether the table has this PCI device id as that of an integrated GPU."""
    return device_id in _models() and _WITH_OWN_MEMORY.fullmatch(device_id) is None


@cache
def _models() -> dict[str, str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))

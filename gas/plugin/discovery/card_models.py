"""The name of a card's model, from a table of PCI device ids that `scripts/card_models.py` writes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("intel_models.tsv")


def model_of(device_id: str) -> str:
    """Return the name of Intel's model with this PCI device id; empty if the table does not have it."""
    return _models().get(device_id, "")


@cache
def _models() -> dict[str, str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))

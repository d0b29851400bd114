"""What administrators tell the plugin in environment variables, under the names that Intel's plugin gave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gas.amounts import MalformedQuantity, parse_quantity
from gas.card_facts import MOST_MEMORY
from gas.errors import GasError


class MalformedVariable(GasError):
    """The variable holds no whole number."""

    def __init__(self, name: str, reason: MalformedQuantity) -> None:
        super().__init__(f"environment variable {name}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables' meaning.

    memory_override     GPU_MEMORY_OVERRIDE: bytes of a card whose memory cannot be read; None when not set
    memory_reserved     GPU_MEMORY_RESERVED: bytes of a card that are kept from pods
    pci_grouping_level  GPU_PCI_GROUPING_LEVEL: how many folders cards of one PCI group share; 0: no groups
    """

    memory_override: int | None = None
    memory_reserved: int = 0
    pci_grouping_level: int = 0


def read_environment(environ: Mapping[str, str]) -> Environment:
    """The variables; an empty one counts as not set, and numbers may be Kubernetes quantities (``16Gi``).

    Raises MalformedVariable. An override of 0 is none: a card without memory needs no number.
    """
    return Environment(
        memory_override=_number(environ, "GPU_MEMORY_OVERRIDE") or None,
        memory_reserved=_number(environ, "GPU_MEMORY_RESERVED"),
        pci_grouping_level=_number(environ, "GPU_PCI_GROUPING_LEVEL"),
    )


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return 0
    try:
        number = parse_quantity(text)
        if number > MOST_MEMORY:
            raise MalformedQuantity(text, f"expected at most {MOST_MEMORY}")
    except MalformedQuantity as malformed:
        raise MalformedVariable(name, malformed) from malformed
    return number

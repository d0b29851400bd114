"""The environment variables of the plugin, under the names that Intel's plugin gave them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.card_facts import MOST_MEMORY
from gas.values.errors import GasError

Number = TypeVar("Number", int, int | None)


class MalformedVariable(GasError):
    """The value of a variable is not a whole number."""

    def __init__(self, name: str, reason: MalformedQuantity) -> None:
        super().__init__(f"environment variable {name}: {reason}")


def _variable(name: str, default: Number, description: str) -> Number:
    """Declare a variable as a field of `Environment`."""
    return dataclasses.field(default=default, metadata={"name": name, "description": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The values of the variables."""

    memory_override: int | None = _variable(
        "GPU_MEMORY_OVERRIDE", None, "Memory of each card of which no other source states it, in bytes."
    )
    memory_reserved: int = _variable(
        "GPU_MEMORY_RESERVED",
        0,
        "Memory of each card that pods do not get, in bytes. It is subtracted from what sysfs or the driver "
        "says, never from the override.",
    )
    pci_grouping_level: int = _variable(
        "GPU_PCI_GROUPING_LEVEL",
        0,
        "How many directories the sysfs paths of cards in one group of the label pci-groups share, counted from the "
        "one that begins with pci. If it is not set, there is no such label.",
    )


VARIABLES: Mapping[str, str] = {
    field.metadata["name"]: field.metadata["description"] for field in dataclasses.fields(Environment)
}
"""The description of each variable, by name."""


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Return the values. An empty variable counts as not set, and numbers may be Kubernetes quantities (``16Gi``).

    Raises MalformedVariable. A value of 0 is the same as none, for every variable.
    """
    numbers = {field.name: _number(environ, field.metadata["name"]) for field in dataclasses.fields(Environment)}
    return Environment(**{name: number for name, number in numbers.items() if number})


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

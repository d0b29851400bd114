"""Which models of GPU are taken: flags ``--allow-ids`` and ``--deny-ids``, csv of PCI device ids such as ``0x56c0``."""

from __future__ import annotations

import re

from gas.errors import GasError
from gas.quoted import quoted

_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)


class MalformedPciId(GasError):
    """An entry of the list is no PCI device id."""

    def __init__(self, flag: str, entry: str) -> None:
        super().__init__(f"{flag}: expected PCI device ids such as 0x56c0,0x56c1, found {quoted(entry)} among them")


class AllowedAndDenied(GasError):
    """Both lists are given, and only one can say which cards are taken."""

    def __init__(self) -> None:
        super().__init__("--allow-ids and --deny-ids exclude each other: give one of them")


def parse_pci_id(text: str) -> str | None:
    """A PCI device id in the form that ids are compared in, lower case; None for anything else."""
    lowered = text.strip().lower()
    return lowered if _ID.fullmatch(lowered) is not None else None


def parse_id_lists(allow: str, deny: str) -> tuple[frozenset[str], frozenset[str]]:
    """The two flags' texts as sets of ids; an empty text is a flag that was not given.

    Raises MalformedPciId and AllowedAndDenied. Source: contract P1.10.
    """
    lists = _parse_ids("--allow-ids", allow), _parse_ids("--deny-ids", deny)
    if all(lists):
        raise AllowedAndDenied
    return lists


def _parse_ids(flag: str, text: str) -> frozenset[str]:
    ids: set[str] = set()
    for entry in text.split(",") if text.strip() else ():
        if (pci_id := parse_pci_id(entry)) is None:
            raise MalformedPciId(flag, entry)
        ids.add(pci_id)
    return frozenset(ids)

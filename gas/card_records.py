"""The node annotation ``gas-cards``: one record for each card, by which the card itself is known.

The kernel numbers cards anew at each start. A record states which card a number means now: its PCI address, its model
and, where there is one, its UUID. It is a JSON list, so that other programs can read it:

    [{"card":0,"driver":"i915","id":"0x56c0","model":"Data Center GPU Flex 170","pci":"0000:4d:00.0","numa":0}]

Fields with nothing to say are left out. Readers ignore fields that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import msgspec

from gas.amounts import is_whole
from gas.card_facts import MOST_MEMORY, CardFacts
from gas.cards import Card, MalformedCard
from gas.errors import InvalidValue
from gas.quoted import quoted

ANNOTATION = "gas-cards"

MOST_RECORDS = 1024
"""Cards of one node. Far more than any node has, also with virtual functions."""

MOST_BYTES = 128 * 1024
"""Half of what Kubernetes allows for all annotations of an object together."""

_LAST_CARD = Card(999_999_999)
_LONGEST_MODEL = 80
_MOST_NUMA_NODES = 1024
_MOST_TILES = 256
_PLACE = f"annotation {ANNOTATION}"
_DRIVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_DEVICE_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)
_SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_FULL_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_UUID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_.:-]{7,79}", re.ASCII)


@dataclass(frozen=True)
class CardRecord:
    """The description of one card. Raises InvalidValue for a value that no card has.

    driver       kernel driver; empty if it is unknown, as every text here
    device_id    PCI device id, ``0x56c0``
    model        name of the model, without commas, since lists of cards are divided by commas
    pci_address  with the domain, ``0000:4d:00.0``
    uuid         the same wherever the card is plugged in
    memory       bytes that pods may use; None if that is unknown or shared
    numa_node    None if the card belongs to none
    healthy      whether it may be given to containers now
    """

    card: Card
    driver: str = ""
    device_id: str = ""
    model: str = ""
    pci_address: str = ""
    uuid: str = ""
    memory: int | None = None
    numa_node: int | None = None
    tiles: int = 1
    healthy: bool = True

    def __post_init__(self) -> None:
        if self.card > _LAST_CARD:
            raise InvalidValue(f"expected a card number up to {int(_LAST_CARD)}, found {quoted(int(self.card))}")
        for name, form, expected in (
            ("driver", _DRIVER, "a name such as i915"),
            ("device_id", _DEVICE_ID, "a PCI device id such as 0x56c0"),
            ("pci_address", _FULL_ADDRESS, "a PCI address such as 0000:4d:00.0"),
            ("uuid", _UUID, "8 to 80 letters, digits and hyphens"),
        ):
            text = getattr(self, name)
            if text and form.fullmatch(text) is None:
                raise InvalidValue(f"{self.card}, {_WRITTEN_NAMES[name]}: expected {expected}, found {quoted(text)}")
        if self.model and not is_model(self.model):
            raise InvalidValue(
                f"{self.card}, model: expected at most {_LONGEST_MODEL} printable characters without a comma, found"
                f" {quoted(self.model)}"
            )
        for name, least, most in (
            ("memory", 1, MOST_MEMORY),
            ("numa_node", 0, _MOST_NUMA_NODES - 1),
            ("tiles", 1, _MOST_TILES),
        ):
            number = getattr(self, name)
            if number is not None and not (is_whole(number) and least <= number <= most):
                raise InvalidValue(
                    f"{self.card}, {_WRITTEN_NAMES[name]}: expected a whole number from {least} to {most}, found"
                    f" {quoted(number)}"
                )

    @cached_property
    def names(self) -> frozenset[str]:
        """The names by which lists of cards may name the card, besides ``cardN``, in lower case.

        UUIDs are not among them: with these no two nodes would be alike, and verdicts are remembered for nodes alike.
        """
        return frozenset(filter(None, (self.pci_address, self.device_id, self.model.lower())))


_WRITTEN_NAMES = {
    "card": "card",
    "driver": "driver",
    "device_id": "id",
    "model": "model",
    "pci_address": "pci",
    "uuid": "uuid",
    "memory": "memory",
    "numa_node": "numa",
    "tiles": "tiles",
    "healthy": "healthy",
}
"""Field of `CardRecord` -> its name in the annotation."""

_DEFAULTS = {field.name: field.default for field in fields(CardRecord)}


class _Written(msgspec.Struct, rename=_WRITTEN_NAMES, kw_only=True):
    card: int
    driver: str = ""
    device_id: str = ""
    model: str = ""
    pci_address: str = ""
    uuid: str = ""
    memory: int | None = None
    numa_node: int | None = None
    tiles: int = 1
    healthy: bool = True


def is_model(text: str) -> bool:
    """Return whether a text can be the name of a model."""
    return 0 < len(text) <= _LONGEST_MODEL and text.isprintable() and "," not in text and text == " ".join(text.split())


def card_name(text: str) -> Card | str:
    """Return the card or the other name that an entry of a list of cards stands for.

    Names are compared in lower case, and a PCI address gets its domain: ``4D:00.0`` is ``0000:4d:00.0``.
    """
    try:
        return Card.parse(text.strip())
    except MalformedCard:
        name = " ".join(text.lower().split())
        return f"0000:{name}" if _SHORT_ADDRESS.fullmatch(name) is not None else name


def card_records(cards: Iterable[CardFacts]) -> tuple[CardRecord, ...]:
    """Return the records of cards as they were found.

    A UUID that two cards report identifies neither and is left out. Of a card that no record can describe, such as one
    with 1,000 tiles, only the number and the health are recorded.
    """
    records = tuple(map(_record, cards))
    uuids = [record.uuid for record in records]
    return tuple(record if uuids.count(record.uuid) == 1 else replace(record, uuid="") for record in records)


def _record(gpu: CardFacts) -> CardRecord:
    values = {name: getattr(gpu, name) for name in _DEFAULTS}
    try:
        return CardRecord(**values)
    except InvalidValue:
        return CardRecord(card=gpu.card, healthy=gpu.healthy)


def format_card_records(records: Sequence[CardRecord]) -> str:
    """Return the annotation for `parse_card_records`."""
    written = [
        {
            _WRITTEN_NAMES[name]: int(value) if isinstance(value, Card) else value
            for name, default in _DEFAULTS.items()
            if (value := getattr(record, name)) != default
        }
        for record in records
    ]
    return msgspec.json.encode(written).decode()


def parse_card_records(text: str) -> tuple[tuple[CardRecord, ...], tuple[str, ...]]:
    """Return the records in natural order of the cards, and one sentence about each fault.

    An invalid record is left out. Of two records of one card the first counts, and of two cards with one PCI address
    or UUID only the first has it.
    """
    try:
        entries = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return (), (f"{_PLACE}: expected a JSON list of cards, found {quoted(text)}; it is ignored",)
    faults: list[str] = []
    if len(entries) > MOST_RECORDS:
        faults.append(f"{_PLACE}: expected at most {MOST_RECORDS} cards, found {len(entries)}; the others are ignored")
    found: dict[Card, CardRecord] = {}
    owners: dict[str, Card] = {}
    for number, entry in enumerate(entries[:MOST_RECORDS], 1):
        record = _read(entry)
        if isinstance(record, str):
            faults.append(f"{_PLACE}: record {number}: {record}; it is ignored")
        elif record.card in found:
            faults.append(f"{_PLACE}: {record.card} is listed more than once; the first one is used")
        else:
            found[record.card] = _without_taken(record, owners, faults)
    return tuple(found[card] for card in sorted(found)), tuple(_first(faults))


def _read(entry: msgspec.Raw) -> CardRecord | str:
    """Return a record, or why it is invalid."""
    try:
        written = msgspec.json.decode(entry, type=_Written)
        values = {name: getattr(written, name) for name in _DEFAULTS}
        return CardRecord(**{**values, "card": Card(written.card)})
    except msgspec.ValidationError as error:
        return str(error)
    except (msgspec.DecodeError, RecursionError):
        return "it cannot be read"
    except InvalidValue as error:
        return str(error)


def _without_taken(record: CardRecord, owners: dict[str, Card], faults: list[str]) -> CardRecord:
    """Return the record without an identity that another card has already."""
    for words, text in (("PCI address", record.pci_address), ("UUID", record.uuid)):
        owner = owners.setdefault(f"{words} {text.lower()}", record.card) if text else record.card
        if owner != record.card:
            faults.append(f"{_PLACE}: {owner} and {record.card} have the same {words} {text}; only {owner} counts")
            record = replace(record, pci_address="") if text == record.pci_address else replace(record, uuid="")
    return record


_MOST_FAULTS = 5


def _first(faults: Sequence[str]) -> Iterable[str]:
    """Yield the first faults, and how many more there are: a long annotation must not become a long event."""
    yield from faults[:_MOST_FAULTS]
    if len(faults) > _MOST_FAULTS:
        yield f"{_PLACE}: {len(faults) - _MOST_FAULTS} more records are invalid"


def cards_by_name(records: Iterable[CardRecord]) -> Mapping[str, frozenset[Card]]:
    """Return other name -> the cards that it names: one for a PCI address, any number for a model."""
    found: dict[str, set[Card]] = {}
    for record in records:
        for name in record.names:
            found.setdefault(name, set()).add(record.card)
    return {name: frozenset(found[name]) for name in sorted(found)}

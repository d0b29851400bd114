"""The node annotation ``gas-cards``: one record for each card, which identifies the card itself.

The kernel numbers cards again at each start. A record states which card a number means now: its PCI address, its model
and, where there is one, its UUID. It is a JSON list, so that other programs can read it:

    [{"card":0,"driver":"i915","id":"0x56c0","model":"Data Center GPU Flex 170","pci":"0000:4d:00.0","numa":0}]

Empty fields are left out. Readers ignore fields that they do not know.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from gas.values.amounts import MILLICORES_OF_A_CARD, is_whole
from gas.values.card_facts import MOST_MEMORY, CardFacts, MemorySource
from gas.values.cards import Card, MalformedCard
from gas.values.errors import InvalidValue
from gas.values.quoted import quoted

ANNOTATION = "gas-cards"
CORDON = "cordon.gas/"
"""The beginning of a node annotation that closes a card to new pods; its UUID or PCI address follows, or ``cardN``."""

MOST_RECORDS = 1024  # Cards of one node. Far more than any node has, also with virtual functions.
MOST_BYTES = 128 * 1024  # half of what Kubernetes allows for all annotations of an object together

_LAST_CARD = Card(999_999_999)
_LONGEST_MODEL = 80
MOST_NUMA_NODES = 1024
MOST_TILES = 256  # of one card, which has a few
_LONGEST_IDENTITY = 63  # characters that the name of an annotation may have after its prefix
_PLACE = f"annotation {ANNOTATION}"
_DRIVER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_DEVICE_ID = re.compile(r"0x[0-9a-f]{4}", re.ASCII)
_SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_FULL_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_SOURCE = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_RENDER_NODE = re.compile(r"renderD[0-9]{1,7}", re.ASCII)
_UUID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_.:-]{7,79}", re.ASCII)


_WRITTEN_NAMES = {
    "device_id": "id",
    "pci_address": "pci",
    "numa_node": "numa",
    "memory_source": "memorySource",
    "render_node": "render",
}
"""Field of `CardRecord` -> its name in the annotation, if that is another one."""


class CardRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_WRITTEN_NAMES):
    """The description of one card by fields of `CardFacts`. Raises InvalidValue for a value that no card has."""

    card: Card
    driver: str = ""
    device_id: str = ""
    model: str = ""  # without commas, since lists of cards are divided by commas
    pci_address: str = ""  # with the domain, ``0000:4d:00.0``
    uuid: str = ""
    memory: int | None = None  # bytes that pods may use; None if that is unknown or shared, or if all of it is reserved
    memory_source: str = ""  # a `MemorySource`, or one of a newer plugin; empty if an older plugin wrote the record
    numa_node: int | None = None
    tiles: int = 1
    millicores: int = MILLICORES_OF_A_CARD
    # cards that direct links join to it, one as often as there are links, in natural order
    links: tuple[Card, ...] = ()
    board: int | None = None
    render_node: str = ""  # ``renderD128``; containers that run keep it when the numbers of such nodes change
    healthy: bool = True

    def __post_init__(self) -> None:
        if self.card > _LAST_CARD:
            raise InvalidValue(f"expected a card number up to {int(_LAST_CARD)}, found {quoted(int(self.card))}")
        self._check_text("driver", self.driver, _DRIVER, "a name such as i915")
        self._check_text("id", self.device_id, _DEVICE_ID, "a PCI device id such as 0x56c0")
        self._check_text("pci", self.pci_address, _FULL_ADDRESS, "a PCI address such as 0000:4d:00.0")
        self._check_text("render", self.render_node, _RENDER_NODE, "a device node such as renderD128")
        self._check_text("uuid", self.uuid, _UUID, "8 to 80 letters, digits and hyphens")
        if self.model and not is_model(self.model):
            raise InvalidValue(
                f"{self.card}, model: expected at most {_LONGEST_MODEL} printable characters without a comma, found"
                f" {quoted(self.model)}"
            )
        self._check_text("memorySource", self.memory_source, _SOURCE, "a word such as query")
        self._check_number("memory", self.memory, 1, MOST_MEMORY)
        self._check_number("numa", self.numa_node, 0, MOST_NUMA_NODES - 1)
        self._check_number("tiles", self.tiles, 1, MOST_TILES)
        self._check_number("millicores", self.millicores, 1, MILLICORES_OF_A_CARD)
        self._check_number("board", self.board, 0, _LAST_CARD)
        if self.card in self.links or list(self.links) != sorted(self.links):
            numbers = ", ".join(map(str, self.links))
            raise InvalidValue(f"{self.card}, links: expected other cards in natural order, found {numbers}")

    def _check_text(self, name: str, text: str, form: re.Pattern[str], expected: str) -> None:
        if text and form.fullmatch(text) is None:
            raise InvalidValue(f"{self.card}, {name}: expected {expected}, found {quoted(text)}")

    def _check_number(self, name: str, number: int | None, least: int, most: int) -> None:
        if number is not None and not (is_whole(number) and least <= number <= most):
            raise InvalidValue(
                f"{self.card}, {name}: expected a whole number from {least} to {most}, found {quoted(number)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which lists of cards may name the card, besides ``cardN``, in lower case; some may be empty.

        UUIDs are not among them, since no two nodes would be alike: `Nodes.distinguish` adds those that pods name.
        """
        return self.pci_address, self.device_id, self.model.lower(), model_label(self.model).lower()


def is_model(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_MODEL and text.isprintable() and "," not in text and text == " ".join(text.split())


def model_label(model: str) -> str:
    """Return a model as the value of a label: ``Arc B580`` -> ``Arc-B580``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model)[:63].strip("-_.")


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
    try:
        return CardRecord(**{name: getattr(gpu, name) for name in CardRecord.__struct_fields__})
    except InvalidValue:
        return CardRecord(card=gpu.card, healthy=gpu.healthy)


def recorded_facts(record: CardRecord) -> CardFacts:
    """Return a card as far as its record describes it."""
    known = {name: getattr(record, name) for name in CardRecord.__struct_fields__}
    source = record.memory_source
    render_node = known.pop("render_node")
    known["device_nodes"] = (render_node,) if render_node else ()
    known["memory_source"] = MemorySource(source) if source in set(MemorySource) else MemorySource.UNKNOWN
    return CardFacts(**known)


def format_card_records(records: Sequence[CardRecord]) -> str:
    """Return the annotation for `parse_card_records`."""
    return _ENCODER.encode(records).decode()


def _card_of(kind: type[Card], number: object) -> Card:
    """Return the card of a decoded number. Raises InvalidValue, which msgspec reports as its own error."""
    if kind is not Card or type(number) is not int:
        raise InvalidValue(f"expected a card number 0, 1 and so on, found {quoted(number)}")
    return Card(number)


_ENCODER = msgspec.json.Encoder(enc_hook=int)  # of all values only a Card needs a hook
_RECORD = msgspec.json.Decoder(CardRecord, dec_hook=_card_of)
_RECORDS = msgspec.json.Decoder(list[CardRecord], dec_hook=_card_of)
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])


@lru_cache(maxsize=64)  # texts: nodes of one model have the same
def parse_card_records(text: str) -> tuple[tuple[CardRecord, ...], tuple[str, ...]]:
    """Return the records in natural order of the cards, and one sentence about each fault.

    An invalid record is left out. Of two records of one card the first counts, and of two cards with one PCI address
    or UUID only the first has it.
    """
    faults: list[str] = []
    if len(text) > MOST_BYTES:
        return (), (f"{_PLACE}: expected at most {MOST_BYTES} characters, found {len(text)}; it is ignored",)
    try:
        records = _RECORDS.decode(text) if text.count("{") <= MOST_RECORDS else _valid_records(text, faults)
    except (msgspec.DecodeError, RecursionError):
        records = _valid_records(text, faults)
    found: dict[Card, CardRecord] = {}
    owners: dict[str, Card] = {}
    for record in records:
        if record.card in found:
            faults.append(f"{_PLACE}: {record.card} is listed more than once; the first one is used")
        else:
            found[record.card] = _without_taken(record, owners, faults)
    return tuple(found[card] for card in sorted(found)), tuple(_first(faults))


def _valid_records(text: str, faults: list[str]) -> list[CardRecord]:
    """Return the valid ones of the first records of a text, and add what is wrong to ``faults``."""
    try:
        entries = _ENTRIES.decode(text)
    except (msgspec.DecodeError, RecursionError):
        faults.append(f"{_PLACE}: expected a JSON list of cards, found {quoted(text)}; it is ignored")
        return []
    if len(entries) > MOST_RECORDS:
        faults.append(f"{_PLACE}: expected at most {MOST_RECORDS} cards, found {len(entries)}; the others are ignored")
    records: list[CardRecord] = []
    for number, entry in enumerate(entries[:MOST_RECORDS], 1):
        try:
            records.append(_RECORD.decode(entry))
        except msgspec.ValidationError as error:
            try:
                records.append(_without_links(entry))
            except msgspec.ValidationError:
                faults.append(f"{_PLACE}: record {number}: {error}; it is ignored")
            else:
                faults.append(f"{_PLACE}: record {number}: {error}; its links are ignored")
        except (msgspec.DecodeError, RecursionError):
            faults.append(f"{_PLACE}: record {number}: it cannot be read; it is ignored")
    return records


def _without_links(entry: msgspec.Raw) -> CardRecord:
    """Return a record without its links, which nothing else depends on. Raises msgspec.ValidationError."""
    fields = msgspec.json.decode(entry)
    if not isinstance(fields, dict) or "links" not in fields:
        raise msgspec.ValidationError("it has no links")
    del fields["links"]
    return _RECORD.decode(msgspec.json.encode(fields))


def _without_taken(record: CardRecord, owners: dict[str, Card], faults: list[str]) -> CardRecord:
    """Return the record without an identity that another card has already. No address is another card's UUID."""
    address, uuid = record.pci_address, record.uuid
    if address and owners.setdefault(address, record.card) != record.card:
        faults.append(_same(owners[address], record.card, f"PCI address {address}"))
        record = replace(record, pci_address="")
    if uuid and owners.setdefault(uuid.lower(), record.card) != record.card:
        faults.append(_same(owners[uuid.lower()], record.card, f"UUID {uuid}"))
        record = replace(record, uuid="")
    return record


def _same(first: Card, second: Card, what: str) -> str:
    return f"{_PLACE}: {first} and {second} have the same {what}; only {first} counts"


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
        for name in filter(None, record.names):
            found.setdefault(name, set()).add(record.card)
    return {name: frozenset(found[name]) for name in sorted(found)}


def cordon_of(record: CardRecord) -> str:
    """Return the name of the annotation that closes a card, and stays its own when cards get other numbers."""
    identities = (record.uuid, record.pci_address, str(record.card))
    return CORDON + next(each for each in map(_in_a_name, identities) if 0 < len(each) <= _LONGEST_IDENTITY)


def cordoned_cards(annotations: Iterable[str], records: Iterable[CardRecord]) -> Mapping[Card, tuple[str, ...]]:
    """Return card -> the names of a node's annotations that close it. Those about unknown cards are left out."""
    names = {_in_a_name(name.removeprefix(CORDON)): name for name in annotations if name.startswith(CORDON)}
    found: dict[Card, set[str]] = {}
    for record in records:
        for each in (record.uuid, record.pci_address):
            if each and (name := names.get(_in_a_name(each))):
                found.setdefault(record.card, set()).add(name)
    for text, name in names.items():
        if isinstance(card := card_name(text), Card):
            found.setdefault(card, set()).add(name)
    return {card: tuple(sorted(found[card])) for card in sorted(found)}


def _in_a_name(identity: str) -> str:
    return identity.replace(":", "-").lower()

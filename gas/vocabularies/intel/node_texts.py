"""Read and write the texts in which nodes state their cards: labels that continue in others, and single cards' amounts.

A label value has at most 63 characters. The text of ``name`` continues in ``name2``, ``name3`` and so on (contract
E2.3). Each continuation begins with the control character ``Z``, which does not belong to the text. A piece may end
after any letter or digit, even inside a number, so join the pieces before you split the text into entries.

The annotation ``gas-card-capacity`` has the amounts of single cards where cards differ. In
``card0=memory.max:8000000000,millicores:1000;card1=memory.max:16Gi``, ``;`` separates cards and ``,`` separates the
resources of one card, each with a Kubernetes quantity. Blanks around the parts and full names of resources
(``gpu.intel.com/xe``) are accepted. An amount of 0 means that the card does not have the resource.
"""

import re
from collections.abc import Mapping
from itertools import count

from gas.values.amounts import Amounts, MalformedQuantity, parse_quantity
from gas.values.cards import Card, MalformedCard
from gas.values.quoted import listed, quoted
from gas.vocabularies.intel import names

LONGEST_VALUE = 63
MOST_PIECES = 512  # labels of one text: enough for thousands of cards
_CONTINUED = "Z"
_CONTINUATION = re.compile(r"[2-9]|[1-9][0-9]{1,8}", re.ASCII)


def joined_label(labels: Mapping[str, str], name: str, problems: list[str]) -> str | None:
    """Return the text of a label with all its continuations, or None if there is no label of that name.

    A missing continuation, or one that does not begin with ``Z``, ends the text. An empty piece is skipped. A text of
    more than MOST_PIECES labels is ignored. Each problem adds a sentence to ``problems``.
    """
    pieces: list[str] = []
    for number in count(1):
        label, prefix = (name, "") if number == 1 else (f"{name}{number}", _CONTINUED)
        value = labels.get(label)
        if value is None:
            if left_out := _continuations_after(number, labels, name):
                problems.append(f"label {label} is missing, so {listed(left_out)} is ignored")
            break
        if number > MOST_PIECES:
            problems.append(f"label {name}: expected a text of at most {MOST_PIECES} labels, found more; it is ignored")
            return None
        if value and not value.startswith(prefix):
            problems.append(
                f"label {label}: expected a value that begins with Z, found {quoted(value)};"
                " it and the labels after it are ignored"
            )
            break
        if len(value) <= len(prefix):
            problems.append(f"label {label}: expected a text, found an empty value")
        pieces.append(value[len(prefix) :])
    return "".join(pieces) if pieces else None


def _continuations_after(number: int, labels: Mapping[str, str], name: str) -> list[str]:
    """Return the labels that continue ``name`` with a higher number than the missing one."""
    behind = []
    for label in labels:
        match = _CONTINUATION.fullmatch(label, len(name)) if label.startswith(name) else None
        if match is not None and int(match[0]) > number:
            behind.append((int(match[0]), label))
    return [label for _, label in sorted(behind)]


def split_value(name: str, text: str) -> dict[str, str]:
    """Split a text into labels, the inverse of `joined_label`. It has a letter or digit in every 62 characters."""
    labels: dict[str, str] = {}
    rest, label, prefix = text, name, ""
    for number in count(2):
        room = LONGEST_VALUE - len(prefix)
        piece = rest[:room]
        if len(rest) > room:
            piece = piece.rstrip("-_.")
        labels[label] = prefix + piece
        rest = rest[len(piece) :]
        if not rest:
            break
        label, prefix = f"{name}{number}", _CONTINUED
    return labels


_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def read_number(text: str) -> int | None:
    """Parse a number of up to nine digits without leading zeros; return None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) is not None else None


def read_card(text: str) -> Card | None:
    """Parse a card name, ``"card3"`` -> ``Card(3)``; return None for any other text."""
    try:
        return Card.parse(text)
    except MalformedCard:
        return None


class EntryFaults:
    """The faulty entries of a text at ``place``, in at most three sentences; correct entries have the ``form``."""

    def __init__(self, place: str, form: str) -> None:
        self._place = place
        self._form = form
        self.malformed: list[str] = []
        self.unknown: list[str] = []  # those that name something that the node does not have
        self.repeated: list[str] = []

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each kind of fault, with each entry once, in the order in which they were added."""
        wrong, missing, again = (listed(dict.fromkeys(each)) for each in (self.malformed, self.unknown, self.repeated))
        sentences = (
            (self.malformed, f"expected {self._form}, found {wrong}; other entries are used"),
            (self.unknown, f"the node does not have {missing}; other entries are used"),
            (self.repeated, f"{again} is listed more than once; the first one is used"),
        )
        return tuple(f"{self._place}: {sentence}" for entries, sentence in sentences if entries)


_RESOURCE = re.compile(r"[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", re.ASCII)


def parse_card_capacity(text: str, problems: list[str]) -> dict[Card, dict[str, int]]:
    """Return the listed amounts by card. Invalid entries are left out and added to ``problems``."""
    faults = EntryFaults(
        f"annotation {names.CARD_CAPACITY}", "cards with amounts such as card0=memory.max:8000000000,millicores:1000"
    )
    capacity: dict[Card, dict[str, int]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, _, amounts = part.partition("=")
        if (card := read_card(name.strip())) is None:
            faults.malformed.append(part)
            continue
        if card in capacity:
            faults.repeated.append(str(card))
            continue
        capacity[card] = _amounts(amounts, card, faults)
    problems.extend(faults.sentences())
    return capacity


def _amounts(text: str, card: Card, faults: EntryFaults) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for part in map(str.strip, text.split(",")):
        written, _, quantity = part.partition(":")
        resource = written.strip().removeprefix(names.PREFIX)
        if _RESOURCE.fullmatch(resource) is None:
            faults.malformed.append(f"{card}={part}")
            continue
        if resource in amounts:
            faults.repeated.append(f"{resource} of {card}")
            continue
        try:
            amounts[resource] = parse_quantity(quantity.strip())
        except MalformedQuantity:
            faults.malformed.append(f"{card}={part}")
    return amounts


def format_card_capacity(capacity: Mapping[Card, Amounts]) -> str:
    """Return the annotation for `parse_card_capacity`; a card without amounts is left out."""
    return ";".join(
        f"{card}=" + ",".join(f"{resource}:{amount}" for resource, amount in amounts.items())
        for card, amounts in capacity.items()
        if amounts
    )

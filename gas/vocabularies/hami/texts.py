"""The texts in which HAMi states the cards of a pod and of a node, in all forms that its releases wrote.

Pods: ``UUID,NVIDIA,MiB,percent:`` for each card and ``;`` after each container, init containers first. Releases up to
2.8 leave out init containers, some of 2.10 leave out every container without cards. Nodes: JSON, or up to 2.7
``UUID,cards,MiB,percent,type,numa,health:``, in which the mode may follow.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gas.decision.annotations import LONGEST, MalformedAnnotation
from gas.placement.need import PodNeed
from gas.values.amounts import MemoryUnit
from gas.values.card_facts import MOST_MEMORY, CardFacts
from gas.values.card_records import MOST_RECORDS
from gas.values.cards import Card
from gas.values.quoted import quoted
from gas.vocabularies.hami import names

_KIND = "NVIDIA"
_PERCENT_OF_A_CARD = 100
_MIB = MemoryUnit.MIB.bytes
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_INSTANCE = re.compile(r"\[[^\]]*\]$")  # follows the UUID of a card that is divided


class Share(NamedTuple):
    """The part of a card that a container has."""

    mib: int
    percent: int


Place = Mapping[str, Share]  # the cards of one container, by UUID


def format_allocated(places: Iterable[Sequence[tuple[str, Share]]]) -> str:
    return "".join(
        "".join(f"{uuid},{_KIND},{share.mib},{share.percent}:" for uuid, share in place) + ";" for place in places
    )


def parse_allocated(text: str) -> tuple[Place, ...]:
    """Return the places that name a card, in order. Raises MalformedAnnotation."""
    if len(text) > LONGEST:
        raise MalformedAnnotation(names.ALLOCATED, f"expected at most {LONGEST} characters, found {len(text)}")
    places = []
    for place in text.split(";"):
        found: dict[str, Share] = {}
        for entry in filter(None, place.split(":")):
            uuid, *rest = entry.split(",")
            if len(rest) != 3 or any(_NUMBER.fullmatch(each) is None for each in rest[1:]):
                raise MalformedAnnotation(
                    names.ALLOCATED, f"expected UUID,{_KIND},MiB,percent: for each card, found {quoted(entry)}"
                )
            if uuid := _INSTANCE.sub("", uuid.strip()):
                before = found.get(uuid, Share(0, 0))
                found[uuid] = Share(before.mib + int(rest[1]), before.percent + int(rest[2]))
        if found:
            places.append(found)
    return tuple(places)


def aligned(places: Sequence[Place], asking: Sequence[int], apps: Sequence[int]) -> dict[int, Place] | None:
    """Return the place of each container by position, None if the places do not match the containers that ask.

    asking  positions of all containers that ask for cards; ``apps`` are those of them that are app containers
    """
    for positions in (asking, apps):
        if len(positions) == len(places):
            return dict(zip(positions, places, strict=True))
    return None


def total(places: Iterable[Place]) -> Place:
    """Return what containers have together of each card."""
    found: dict[str, Share] = {}
    for place in places:
        for uuid, share in place.items():
            before = found.get(uuid, Share(0, 0))
            found[uuid] = Share(before.mib + share.mib, before.percent + share.percent)
    return found


def cards_of(places: Sequence[Place], need: PodNeed, uuids: Mapping[str, Card]) -> list[tuple[Card, ...]]:
    """Return the known cards of each container of a need that was read from the same places."""
    holders = [each for each in need.containers if each.count]
    following = iter(places if len(holders) == len(places) else [total(places)])
    return [
        tuple(uuids[uuid] for uuid in next(following, {}) if uuid in uuids) if each.count else ()
        for each in need.containers
    ]


class Registered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card in the annotation of a node; HAMi leaves out fields that are 0, false or empty."""

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    mode: str = ""
    health: bool = False


def registered(cards: Iterable[CardFacts], places: int) -> tuple[Registered, ...]:
    """Return cards as HAMi's device plugin registers them, without scaling."""
    return tuple(
        Registered(
            id=card.uuid,
            index=int(card.card),
            count=places,
            devmem=(card.memory or 0) // _MIB,
            devcore=_PERCENT_OF_A_CARD,
            type=card.model if card.model.startswith(_KIND) else f"{_KIND}-{card.model}",
            numa=card.numa_node or 0,
            mode=names.HAMI_CORE,
            health=card.healthy,
        )
        for card in cards
        if card.uuid
    )


def format_register(cards: Sequence[Registered]) -> str:
    return msgspec.json.encode(cards).decode()


def parse_register(text: str) -> tuple[Registered, ...]:
    """Return the cards that a node's annotation registers. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"expected at most {LONGEST} characters, found {len(text)}")
    if not text.lstrip().startswith("["):
        found = tuple(_registered_before_2_8(entry) for entry in text.split(":") if entry.strip())
    else:
        try:
            found = tuple(msgspec.json.decode(text, type=list[Registered]))
        except (msgspec.DecodeError, RecursionError):
            raise ValueError(f"expected a JSON list of cards, found {quoted(text)}") from None
    uuids = {each.id for each in found}
    if len(found) > MOST_RECORDS or len(uuids) < len(found) or "" in uuids:
        raise ValueError(f"expected at most {MOST_RECORDS} cards with different ids, found {quoted(text)}")
    if not all(0 <= each.devmem * _MIB <= MOST_MEMORY and 0 <= each.count <= MOST_RECORDS for each in found):
        raise ValueError(f"expected MiB of memory and places of each card, found {quoted(text)}")
    return found


def _registered_before_2_8(entry: str) -> Registered:
    fields = entry.split(",")
    numbers = [fields[at] for at in (1, 2, 3, 5) if at < len(fields)]
    if len(fields) not in (7, 9) or any(_NUMBER.fullmatch(each.strip()) is None for each in numbers):
        raise ValueError(f"expected UUID,cards,MiB,percent,type,numa,health: for each card, found {quoted(entry)}")
    count, devmem, devcore, numa = map(int, numbers)
    index, mode = (fields[7], fields[8]) if len(fields) == 9 else ("", "")
    return Registered(
        id=fields[0].strip(),
        index=int(index) if _NUMBER.fullmatch(index) else 0,
        count=count,
        devmem=devmem,
        devcore=devcore,
        type=fields[4],
        numa=numa,
        mode=mode,
        health=fields[6].strip().lower() == "true",
    )


def numbered(cards: Sequence[Registered]) -> dict[Card, Registered]:
    """Return the cards by number: their indexes if these differ, else their places in the annotation."""
    indexes = [each.index for each in cards]
    is_numbered = len(set(indexes)) == len(indexes) and all(0 <= each < 10**9 for each in indexes)
    found = {Card(each.index if is_numbered else at): each for at, each in enumerate(cards)}
    return {card: found[card] for card in sorted(found)}


def model_of(card: Registered) -> str:
    """Return driver and model as `Inventory.models` has them. Releases up to 2.7 wrote ``NVIDIA-NVIDIA A10``."""
    kind = card.type if card.type.startswith(f"{_KIND}-") else f"{_KIND}-{card.type}"
    return kind.lower()

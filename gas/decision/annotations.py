"""Write and read the decision on a pod, and the receipt of the cards that its node handed out.

Cards: ``card0,card1|card2``. Containers are separated by ``|``, the cards of one by ``,``. A container without cards
leaves its place empty: ``card0||card1`` (contract E3.1). Tiles: ``card0:gt0+gt1,card1:gt0|card2:gt1``, with the tiles
of a card separated by ``+`` (contract E3.2).

An empty text counts as an absent annotation: a Binding can only set annotations, so it removes one by emptying it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import starmap
from typing import NamedTuple

from gas.decision import names
from gas.objects.stored import Pod
from gas.placement.choice import Choice, ContainerChoice
from gas.placement.need import ContainerNeed, PodNeed, Role
from gas.values.cards import Card, MalformedCard, Tile
from gas.values.errors import GasError
from gas.values.quoted import quoted

CardTiles = tuple[Card, tuple[int, ...]]  # a card and its tiles, at least one
LONGEST = 65_536  # characters of an annotation that are parsed: enough for 7,000 cards, far more than is ever written

MOST_REMEMBERED = 4096  # decisions, and as many receipts, by need and texts: equal pods on equal cards share one
LARGEST_REMEMBERED = 1024  # characters of the longest texts that are remembered

Written = tuple[tuple[str, str], ...]  # (annotation, its text) pairs
Reader = Callable[[PodNeed, Written], Choice | None]

LATEST_TIMESTAMP = 2**63 - 1
"""Nanoseconds since the epoch, in the year 2262. A later timestamp on a pod was not written by an extender: it does not
fit the 64 bits in which programs keep such a time."""

_NANOSECONDS = re.compile(r"[0-9]{1,19}", re.ASCII)
_TILE = re.compile(r"gt(0|[1-9][0-9]{0,8})", re.ASCII)


class MalformedAnnotation(GasError):
    """An annotation about cards or tiles is invalid; ``reason`` is what is wrong with it."""

    def __init__(self, annotation: str, reason: str) -> None:
        super().__init__(f"annotation {annotation}: {reason}")
        self.annotation = annotation
        self.reason = reason


def parse_timestamp(text: str) -> int | None:
    """Return the time of a decision in nanoseconds since the epoch, None if no extender wrote the text."""
    time = int(text) if _NANOSECONDS.fullmatch(text) else LATEST_TIMESTAMP + 1
    return time if time <= LATEST_TIMESTAMP else None


def format_container_cards(containers: Sequence[Sequence[Card]]) -> str:
    return "|".join(",".join(map(str, cards)) for cards in containers)


def parse_container_cards(text: str, annotation: str = names.CONTAINER_CARDS) -> tuple[tuple[Card, ...], ...]:
    """Parse the cards of each container. Only the form is checked. Raises MalformedAnnotation."""
    _check_length(annotation, text)
    try:
        return tuple(tuple(Card.parse(name) for name in place.split(",")) if place else () for place in text.split("|"))
    except MalformedCard as malformed:
        raise MalformedAnnotation(
            annotation, f"expected card names as in card0,card1||card2, found {quoted(malformed.text)}"
        ) from None


def format_container_tiles(containers: Sequence[Sequence[CardTiles]]) -> str:
    def of_card(card: Card, tiles: tuple[int, ...]) -> str:
        return f"{card}:" + "+".join(f"gt{tile}" for tile in tiles)

    return "|".join(",".join(starmap(of_card, cards)) for cards in containers)


def parse_container_tiles(text: str, annotation: str = names.CONTAINER_TILES) -> tuple[tuple[CardTiles, ...], ...]:
    """Parse the tiles of each container, as `parse_container_cards` does; an empty part is a card without tiles."""
    _check_length(annotation, text)
    return tuple(tuple(_parse_card(part, annotation) for part in place.split(",") if part) for place in text.split("|"))


def _check_length(annotation: str, text: str) -> None:
    if len(text) > LONGEST:
        raise MalformedAnnotation(annotation, f"expected at most {LONGEST} characters, found {len(text)}")


def _parse_card(text: str, annotation: str) -> CardTiles:
    name, _, tiles = text.partition(":")
    matches = [_TILE.fullmatch(tile) for tile in tiles.split("+")]
    indexes = tuple(int(match[1]) for match in matches if match is not None)
    with suppress(MalformedCard):
        card = Card.parse(name)
        if len(indexes) == len(matches):
            return card, indexes
    raise MalformedAnnotation(annotation, f"expected tiles of cards as in card0:gt0+gt1, found {quoted(text)}")


class MalformedTiles(MalformedAnnotation):
    """The cards of a decision are valid, but their tiles are not; ``choice`` is the decision without tiles."""

    def __init__(self, malformed: MalformedAnnotation, choice: Choice) -> None:
        super().__init__(malformed.annotation, malformed.reason)
        self.choice = choice


class _Part(NamedTuple):
    """The containers of a pod that have annotations of their own, and the names of these."""

    containers: slice
    cards: str
    tiles: str
    receipt: str


def _parts(need: PodNeed) -> tuple[_Part, _Part]:
    """Return the init containers with the sidecars, which come first, and the app containers."""
    apps = sum(container.role is not Role.APP for container in need.containers)
    return (
        _Part(slice(apps), names.INIT_CONTAINER_CARDS, names.INIT_CONTAINER_TILES, names.ALLOCATED_INIT_CARDS),
        _Part(slice(apps, None), names.CONTAINER_CARDS, names.CONTAINER_TILES, names.ALLOCATED_CARDS),
    )


def choice_annotations(need: PodNeed, choice: Choice, *, timestamp_ns: int) -> dict[str, str]:
    """Return the annotations that state a pod's cards and tiles; none for a pod that wants no cards."""
    if not need.wants_cards:
        return {}
    annotations = {names.TIMESTAMP: str(timestamp_ns)}
    for part in _parts(need):
        given = choice.containers[part.containers]
        if part.cards == names.CONTAINER_CARDS or any(each.cards for each in given):
            annotations[part.cards] = format_container_cards([each.cards for each in given])
        if any(each.tiles for each in given):
            annotations[part.tiles] = format_container_tiles([_card_tiles(each) for each in given])
    return annotations


def _remembered(read: Reader) -> Reader:
    """Remember what is read from short texts. Errors are not remembered."""
    remembering = lru_cache(MOST_REMEMBERED)(read)

    def reading(need: PodNeed, written: Written) -> Choice | None:
        is_short = sum(len(text) for _, text in written) <= LARGEST_REMEMBERED
        return remembering(need, written) if is_short else read(need, written)

    return reading


def is_decided(pod: Pod) -> bool:
    """Return whether gas has chosen the pod's cards, whatever is written about them by now."""
    has_cards = names.CONTAINER_CARDS in pod.annotations or names.INIT_CONTAINER_CARDS in pod.annotations
    return has_cards and names.TIMESTAMP in pod.annotations


def read_choice(pod: Pod, need: PodNeed) -> Choice | None:
    """Return the decision written on a pod, or None if there is none.

    Incomplete decisions are accepted, because the original wrote some: cards without tiles, cards of app containers
    without those of init containers, and fewer tiles than needed. The original rounded down where tiles did not divide
    evenly, and left out the tiles of a card that had too few. Raises MalformedTiles if the cards can be a choice for
    this need but their tiles cannot, and MalformedAnnotation if the cards cannot.
    """
    return _read_choice(need, _written(pod, names.DECISION))


def _written(pod: Pod, annotations: Iterable[str]) -> Written:
    return tuple((name, text) for name in annotations if (text := pod.annotations.get(name)))


@_remembered
def _read_choice(need: PodNeed, written: Written) -> Choice | None:
    texts = dict(written)
    init, apps = _parts(need)
    for_apps, for_init = texts.get(apps.cards), texts.get(init.cards)
    init_wants, apps_want = (
        any(container.count for container in need.containers[each.containers]) for each in (init, apps)
    )
    if not for_apps and (apps_want or not for_init or not init_wants):
        return None
    cards = tuple(own for part in (init, apps) for own in _read_cards(texts, need, part))
    without_tiles = Choice(tuple(map(ContainerChoice, cards)))
    if apps.tiles not in texts and init.tiles not in texts:
        return without_tiles
    try:
        given = tuple(own for part in (init, apps) for own in _with_tiles(texts, need, part, cards))
        _check_tiles_apart(need, given)
    except MalformedAnnotation as malformed:
        raise MalformedTiles(malformed, without_tiles) from None
    return Choice(given)


def read_receipt(pod: Pod, need: PodNeed) -> Choice | None:
    """Return the cards that the node handed out to a pod, or None if it wrote no receipt.

    The receipt decides which cards a container has, but it frees none: a container that got fewer cards than it asks
    for also holds the decided cards, and those come first. The decision stays for everything that the receipt does not
    mention: the containers of an absent annotation, an ordinary init container whose place is empty (the node forgets
    it when it has ended), and the tiles of cards that were handed out as decided. Raises MalformedAnnotation if the
    text has another form or another number of containers, if a container has a card twice or more cards than it asks
    for, and if an app container or a sidecar that asks for cards has none.
    """
    if not need.wants_cards or not any(map(pod.annotations.get, names.RECEIPT)):
        return None
    return _read_receipt(need, _written(pod, (*names.DECISION, *names.RECEIPT)))


@_remembered
def _read_receipt(need: PodNeed, written: Written) -> Choice | None:
    texts, decided = dict(written), _decided(need, written)
    return Choice(tuple(own for part in _parts(need) for own in _received(texts, need, part, decided)))


def _card_tiles(given: ContainerChoice) -> list[CardTiles]:
    return [(card, tiles) for card, tiles in zip(given.cards, given.tiles, strict=False) if tiles]


def _read_cards(texts: Mapping[str, str], need: PodNeed, part: _Part) -> tuple[tuple[Card, ...], ...]:
    """Return the cards of each container from one annotation; no cards if it is absent."""
    containers = need.containers[part.containers]
    if not (text := texts.get(part.cards)):
        return ((),) * len(containers)
    cards = parse_container_cards(text, part.cards)
    _check_places(part.cards, len(cards), len(containers))
    for container, own_cards in zip(containers, cards, strict=True):
        _check_once(part.cards, own_cards, container.name)
        if len(own_cards) != container.count:
            raise MalformedAnnotation(
                part.cards,
                f"expected {container.count} card(s) for container {quoted(container.name)}, found {len(own_cards)}",
            )
    return cards


def _with_tiles(
    texts: Mapping[str, str], need: PodNeed, part: _Part, cards: Sequence[tuple[Card, ...]]
) -> tuple[ContainerChoice, ...]:
    containers, cards = need.containers[part.containers], cards[part.containers]
    if part.cards not in texts or not (text := texts.get(part.tiles)):
        return tuple(map(ContainerChoice, cards))
    tiles = parse_container_tiles(text, part.tiles)
    _check_places(part.tiles, len(tiles), len(containers))
    return tuple(
        ContainerChoice(own_cards, _tiles_in_order(part.tiles, container, own_cards, own_tiles))
        for container, own_cards, own_tiles in zip(containers, cards, tiles, strict=True)
    )


def _check_places(annotation: str, found: int, expected: int) -> None:
    if found != expected:
        raise MalformedAnnotation(annotation, f"expected {expected} container(s) between '|', found {found}")


def _check_once(annotation: str, cards: Sequence[Card], container: str) -> None:
    if len(set(cards)) < len(cards):
        raise MalformedAnnotation(annotation, f"container {quoted(container)} has a card more than once")


def _tiles_in_order(
    annotation: str, container: ContainerNeed, cards: Sequence[Card], tiles: Sequence[CardTiles]
) -> tuple[tuple[int, ...], ...]:
    """Return the tiles of each of the container's cards, in the order of ``cards``; empty if none are known."""
    wanted = container.tiles if container.count else 0
    if not wanted:
        if tiles:
            raise MalformedAnnotation(annotation, f"container {quoted(container.name)} needs no tiles, but has some")
        return ()
    by_card = dict(tiles)
    if len(by_card) < len(tiles) or not by_card.keys() <= set(cards):
        raise MalformedAnnotation(
            annotation, f"container {quoted(container.name)} has tiles of other cards than its own"
        )
    for card, indexes in by_card.items():
        if len(set(indexes)) < len(indexes) or len(indexes) > wanted:
            raise MalformedAnnotation(
                annotation,
                f"expected at most {wanted} different tile(s) of {card} for container {quoted(container.name)},"
                f" found {', '.join(f'gt{index}' for index in indexes)}",
            )
    return tuple(by_card.get(card, ()) for card in cards) if by_card else ()


def _check_tiles_apart(need: PodNeed, given: Sequence[ContainerChoice]) -> None:
    """Raise MalformedAnnotation if two containers hold the same tile and both run until the pod ends."""
    held: set[Tile] = set()
    for container, own in zip(need.containers, given, strict=True):
        if container.role is Role.INIT:
            continue
        tiles = {Tile(card, index) for card, indexes in _card_tiles(own) for index in indexes}
        if tiles & held:
            name = names.CONTAINER_TILES if container.role is Role.APP else names.INIT_CONTAINER_TILES
            raise MalformedAnnotation(
                name, f"container {quoted(container.name)} has a tile that another container holds"
            )
        held |= tiles


def _decided(need: PodNeed, written: Written) -> tuple[ContainerChoice, ...]:
    """Return the decision of each container; empty choices if there is no readable decision."""
    try:
        choice = _read_choice(need, written)
    except MalformedTiles as malformed:
        choice = malformed.choice
    except MalformedAnnotation:
        choice = None
    return choice.containers if choice else (ContainerChoice(),) * len(need.containers)


def _received(
    texts: Mapping[str, str], need: PodNeed, part: _Part, decided: Sequence[ContainerChoice]
) -> Sequence[ContainerChoice]:
    """Return what each container in one part of the pod was handed out; the decision if there is no receipt for it."""
    containers, decided = need.containers[part.containers], decided[part.containers]
    if not (text := texts.get(part.receipt)):
        return decided
    places = parse_container_cards(text, part.receipt)
    _check_places(part.receipt, len(places), len(containers))
    for container, cards in zip(containers, places, strict=True):
        _check_handed_out(part.receipt, container, cards, need.count_resources)
    return [
        _with_decided(container, cards, given)
        for container, cards, given in zip(containers, places, decided, strict=True)
    ]


def _check_handed_out(
    annotation: str, container: ContainerNeed, cards: Sequence[Card], count_resources: Collection[str]
) -> None:
    _check_once(annotation, cards, container.name)
    # A container may have asked for cards by two count resources, as the original allowed: it gets as many of each.
    most = container.count * sum(amount for name, amount in container.per_card if name in count_resources)
    least = 0 if container.role is Role.INIT else min(most, 1)
    if not least <= len(cards) <= most:
        expected = f"{least} to {most}" if least < most else f"{most}"
        raise MalformedAnnotation(
            annotation, f"expected {expected} card(s) for container {quoted(container.name)}, found {len(cards)}"
        )


def _with_decided(container: ContainerNeed, cards: tuple[Card, ...], decided: ContainerChoice) -> ContainerChoice:
    if len(cards) < container.count:
        cards = (*decided.cards, *(card for card in cards if card not in decided.cards))
    known = dict(_card_tiles(decided))
    return ContainerChoice(cards, tuple(known.get(card, ()) for card in cards) if known else ())

"""Why a pod does not fit a node: one type a reason, each writes its own sentence.

kube-scheduler counts equal reasons of all nodes into one event of 1,024 characters. So a sentence names the
need and the kind of shortage, reads the same on nodes alike, and holds no list of cards; numbers card by card
are for `gas.placement.detail`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gas.amounts import SortedAmounts, describe, is_bytes
from gas.cards import Card


@dataclass(frozen=True)
class Refusal:
    """The answer "no"; ``str()`` is the sentence for people.

    kind            the reason's name in kebab-case, a label of metrics
    per_card_books  whether only books per card can see this reason: kube-scheduler itself, which adds a
                    node's cards up, does not
    """

    kind: ClassVar[str]
    per_card_books: ClassVar[bool]


@dataclass(frozen=True)
class UnknownNode(Refusal):
    """Nothing is known about a node of that name."""

    kind: ClassVar[str] = "unknown-node"
    per_card_books: ClassVar[bool] = False

    def __str__(self) -> str:
        return "the node is unknown"


@dataclass(frozen=True)
class PreferredElsewhere(Refusal):
    """There is room, but another node gives the pod the card that it prefers (contract E6.4)."""

    kind: ClassVar[str] = "preferred-elsewhere"
    per_card_books: ClassVar[bool] = False

    def __str__(self) -> str:
        return "another node has the pod's preferred card free"


@dataclass(frozen=True)
class UnreadableNeed(Refusal):
    """What the pod asks for cannot be read, so it fits nowhere. ``reason`` is the whole sentence."""

    kind: ClassVar[str] = "unreadable-need"
    per_card_books: ClassVar[bool] = False

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class NoCards(Refusal):
    """The node names no card."""

    kind: ClassVar[str] = "no-cards"
    per_card_books: ClassVar[bool] = False

    def __str__(self) -> str:
        return "the node has no known GPU card"


@dataclass(frozen=True)
class ResourceNotOnNode(Refusal):
    """No card of the node has any of a resource that the pod names; a need of 0 does not fit there either."""

    kind: ClassVar[str] = "resource-not-on-node"
    per_card_books: ClassVar[bool] = False

    resource: str

    def __str__(self) -> str:
        return f"no card of the node has any {self.resource}"


@dataclass(frozen=True)
class FewerCardsThanWanted(Refusal):
    """One container wants more different cards than the node has."""

    kind: ClassVar[str] = "fewer-cards-than-wanted"
    per_card_books: ClassVar[bool] = True

    wanted: int
    cards: int

    def __str__(self) -> str:
        return f"needs {self.wanted} cards, the node has {self.cards}"


@dataclass(frozen=True)
class CardsDisabled(Refusal):
    """The pod would fit if the disabled cards were open."""

    kind: ClassVar[str] = "cards-disabled"
    per_card_books: ClassVar[bool] = True

    disabled: tuple[Card, ...]

    def __str__(self) -> str:
        if len(self.disabled) == 1:
            return f"{self.disabled[0]} is disabled by a telemetry label"
        return f"{len(self.disabled)} cards are disabled by telemetry labels"


@dataclass(frozen=True)
class Shortage:
    """What one container, or the containers that share a card, lack.

    wanted   how many different cards
    fitting  how many cards have ``amounts`` free
    amounts  per card, only those that are short; several are short together
    sharing  how many containers share the card; 1 when none do
    """

    wanted: int
    fitting: int
    amounts: SortedAmounts
    sharing: int = 1

    def sentence(self, which: str = "") -> str:
        """``which`` narrows the cards down: ``"that the allow list names"``."""
        each = in_words(self.amounts)
        if self.wanted == 1:
            cards = f"no card {which} has" if which else "no card has"
            together = " together" if len(self.amounts) > 1 else ""
            purpose = f" for {self.sharing} containers that share a card" if self.sharing > 1 else ""
            return f"{cards} {each} free{together}{purpose}"
        number = str(self.fitting) if self.fitting else "none"
        have = "has" if self.fitting <= 1 else "have"
        among = f"of those {which} " if which else ""
        return f"needs {self.wanted} cards with {each} each, {among}{number} {have} that"


@dataclass(frozen=True)
class NoRoom(Refusal):
    """The cards are too full, or too small."""

    kind: ClassVar[str] = "no-room"
    per_card_books: ClassVar[bool] = True

    shortage: Shortage

    def __str__(self) -> str:
        return self.shortage.sentence()


@dataclass(frozen=True)
class NotTogether(Refusal):
    """Every container fits alone, but not all of them.

    containers  how many want cards
    amounts     what they need in total at the fullest moment of the pod's life
    """

    kind: ClassVar[str] = "not-together"
    per_card_books: ClassVar[bool] = True

    containers: int
    amounts: SortedAmounts

    def __str__(self) -> str:
        return _not_together(self.containers, self.amounts)


@dataclass(frozen=True)
class _ListInTheWay(Refusal):
    """The pod would fit without a list of its own. ``short`` is what the list's cards lack."""

    per_card_books: ClassVar[bool] = True
    which: ClassVar[str]

    short: Shortage | NotTogether

    def __str__(self) -> str:
        if isinstance(self.short, Shortage):
            return self.short.sentence(self.which)
        return f"{_not_together(self.short.containers, self.short.amounts)} on the cards {self.which}"


@dataclass(frozen=True)
class AllowListInTheWay(_ListInTheWay):
    """The pod would fit if its allow list named other cards."""

    kind: ClassVar[str] = "allow-list"
    which: ClassVar[str] = "that the allow list names"


@dataclass(frozen=True)
class DenyListInTheWay(_ListInTheWay):
    """The pod would fit if its deny list named other cards."""

    kind: ClassVar[str] = "deny-list"
    which: ClassVar[str] = "that the deny list leaves"


@dataclass(frozen=True)
class NoNumaGroup(Refusal):
    """There is room, but not inside one NUMA group. ``short`` is None when only all containers together lack
    it."""

    kind: ClassVar[str] = "numa"
    per_card_books: ClassVar[bool] = True

    short: Shortage | None

    def __str__(self) -> str:
        if self.short is None:
            return "no NUMA group has room for all containers together"
        each = in_words(self.short.amounts)
        if self.short.wanted == 1:
            return f"no NUMA group has a card with {each} free"
        return f"no NUMA group has {self.short.wanted} cards with {each} each"


@dataclass(frozen=True)
class NoLinkedPairs(Refusal):
    """There is room, but not on cards joined by links whose tiles are free.

    pairs     how many pairs
    amounts   what each card must have free besides its tile
    together  whether ``pairs`` counts those of all containers
    """

    kind: ClassVar[str] = "links"
    per_card_books: ClassVar[bool] = True

    pairs: int
    amounts: SortedAmounts
    together: bool = False

    def __str__(self) -> str:
        pairs = "free linked pair" if self.pairs == 1 else f"{self.pairs} free linked pairs"
        needs = f" with {in_words(self.amounts)} each" if self.amounts else ""
        return f"no {pairs} of cards{needs}{' for all containers together' if self.together else ''}"


@dataclass(frozen=True)
class NoTimeLeft(Refusal):
    """Not known: nodes before this one took all the time that one question may take."""

    kind: ClassVar[str] = "no-time-left"
    per_card_books: ClassVar[bool] = False

    def __str__(self) -> str:
        return "not looked at: nodes before it took all the time there is; the next try gets further"


@dataclass(frozen=True)
class SearchLimitHit(Refusal):
    """Not known: the search was stopped before it had tried everything."""

    kind: ClassVar[str] = "search-limit-hit"
    per_card_books: ClassVar[bool] = True

    steps: int

    def __str__(self) -> str:
        return f"no cards were found within {self.steps} steps of the search; whether the pod fits is not known"


def in_words(amounts: SortedAmounts) -> str:
    """``"1 i915, 500 millicores and 5.0 GB of memory.max"``: plain numbers first, then bytes."""
    words = [describe(name, amount) for name, amount in sorted(amounts, key=lambda pair: (is_bytes(pair[0]), pair[0]))]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _not_together(containers: int, amounts: SortedAmounts) -> str:
    return f"each of {containers} containers fits, but not all together ({in_words(amounts)} in total)"

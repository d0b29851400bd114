"""The refusals: one type for each reason why a pod does not fit a node; each writes its own sentence.

kube-scheduler counts equal reasons of all nodes in one event of 1,024 characters. So a sentence names the need and the
kind of shortage, is the same for nodes that are alike, and lists no cards. `card_details` in `gas.placement.reason` has
the numbers card by card. The refusals of rules that close single cards are in `gas.placement.card_rules`.
"""

from dataclasses import dataclass
from typing import ClassVar

from gas.placement.ratio import Ratio, Wanted, name_of
from gas.values.amounts import StatedMemory, describe, is_bytes
from gas.values.quoted import quoted, shown


@dataclass(frozen=True)
class Refusal:
    """A node's refusal of a pod; ``str()`` is the sentence for people."""

    kind: ClassVar[str]  # the reason's name in kebab-case, a label of metrics
    # True if only accounting per card finds this reason, not kube-scheduler's sum of a node's cards
    only_per_card: ClassVar[bool] = True

    def __init_subclass__(cls, kind: str = "", *, only_per_card: bool = True) -> None:
        if kind:
            cls.kind, cls.only_per_card = kind, only_per_card


@dataclass(frozen=True)
class UnknownNode(Refusal, kind="unknown-node", only_per_card=False):
    def __str__(self) -> str:
        return "the extender does not know the node; it may have just been created or deleted"


@dataclass(frozen=True)
class PreferredElsewhere(Refusal, kind="preferred-elsewhere", only_per_card=False):
    """The pod fits, but another node can give it the card that telemetry prefers (contract E6.3, E6.4, E8.6)."""

    def __str__(self) -> str:
        return "another node has the pod's preferred card free"


@dataclass(frozen=True)
class UnreadableNeed(Refusal, kind="unreadable-need", only_per_card=False):
    """The pod's requests or annotations are invalid, so it fits nowhere. ``reason`` is the whole sentence."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class NoCards(Refusal, kind="no-cards", only_per_card=False):
    """The node's labels name no card."""

    def __str__(self) -> str:
        return "the node has no known GPU card"


@dataclass(frozen=True)
class ResourceNotOnNode(Refusal, kind="resource-not-on-node", only_per_card=False):
    """No card of the node has a resource that the pod names; not even a need of 0 fits there."""

    resource: str

    def __str__(self) -> str:
        where_to_look = " (see the events of the node)" if is_bytes(self.resource) else ""
        return f"no card of the node has any {shown(self.resource)}{where_to_look}"


@dataclass(frozen=True)
class FewerCardsThanWanted(Refusal, kind="fewer-cards-than-wanted"):
    """A container, the first of those that want the most cards, wants more different cards than the node has."""

    container: str
    wanted: int
    cards: int

    def __str__(self) -> str:
        return f"container {quoted(self.container)} asks for {self.wanted} cards, but the node has {self.cards}"


@dataclass(frozen=True)
class Shortage:
    """The amounts that one container, or the containers that share a card, lack."""

    wanted: int  # how many different cards
    fitting: int  # how many cards have ``amounts`` free
    amounts: tuple[Wanted, ...]  # per card, only the resources that are short; several are short together
    sharing: int = 1  # how many containers share the card
    stated: StatedMemory | None = None  # how the pod states memory

    def sentence(self, where: str = "") -> str:
        """Return the sentence; ``where`` narrows down the cards: ``"in the allow list"``."""
        each = in_words(self.amounts, self.stated)
        place = f" {where}" if where else ""
        if self.wanted == 1:
            together = " together" if len(self.amounts) > 1 else ""
            purpose = f" for {self.sharing} containers that share a card" if self.sharing > 1 else ""
            return f"no card{place} has {each} free{together}{purpose}"
        return f"needs {self.wanted} cards with {each} free each, found {self.fitting or 'none'}{place}"


@dataclass(frozen=True)
class NoRoom(Refusal, kind="no-room"):
    """The cards are too full, or too small."""

    shortage: Shortage

    def __str__(self) -> str:
        return self.shortage.sentence()


@dataclass(frozen=True)
class NotTogether(Refusal, kind="not-together"):
    """Every container fits alone, but they do not fit together."""

    containers: int  # how many want cards
    amounts: tuple[Wanted, ...]  # what they need in total at the moment that needs most
    stated: StatedMemory | None = None  # how the pod states memory

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, where: str = "") -> str:
        """Return the sentence; ``where`` narrows down the cards: ``"in the allow list"``."""
        place = f" on the cards {where}" if where else ""
        total = in_words(self.amounts, self.stated)
        return f"each of {self.containers} containers fits alone, but not all together{place} ({total} in total)"


@dataclass(frozen=True)
class NoCardForAll(Refusal, kind="one-card"):
    """The pod would fit, but not on one card. The fields are those of `NotTogether`."""

    containers: int
    amounts: tuple[Wanted, ...]
    stated: StatedMemory | None = None

    def __str__(self) -> str:
        total = in_words(self.amounts, self.stated)
        return f"no card has room for all {self.containers} containers together ({total} in total)"


@dataclass(frozen=True)
class NoNumaGroup(Refusal, kind="numa"):
    """The pod would fit, but not within one NUMA group."""

    group: ClassVar[str] = "NUMA group"
    short: Shortage | None  # None if every container fits some group alone and only all of them together do not

    def __str__(self) -> str:
        if self.short is None:
            return f"no {self.group} has room for all containers together"
        each = in_words(self.short.amounts, self.short.stated)
        cards = "a card" if self.short.wanted == 1 else f"{self.short.wanted} cards"
        return f"no {self.group} has {cards} with {each} free{'' if self.short.wanted == 1 else ' each'}"


@dataclass(frozen=True)
class NoBoard(NoNumaGroup, kind="board"):
    """The pod would fit, but not on the cards of one board."""

    group: ClassVar[str] = "board"


@dataclass(frozen=True)
class NoPartition(Refusal, kind="partition"):
    """The pod would fit, but not on one of the node's partitions."""

    cards: int

    def __str__(self) -> str:
        return f"no partition of {self.cards} card(s) that the pod may use is free"


@dataclass(frozen=True)
class NoLinkedPairs(Refusal, kind="links"):
    """The pod would fit, but not on cards joined by links whose tiles are free."""

    pairs: int
    amounts: tuple[Wanted, ...]  # what each card must have free besides its tile
    together: bool = False  # True if ``pairs`` is for all containers together, False if it is for one of them

    def __str__(self) -> str:
        pairs = "no free linked pair" if self.pairs == 1 else f"fewer than {self.pairs} free linked pairs"
        needs = f" with {in_words(self.amounts)} free each" if self.amounts else ""
        return f"{pairs} of cards{needs}{' for all containers together' if self.together else ''}"


@dataclass(frozen=True)
class NoTimeLeft(Refusal, kind="no-time-left", only_per_card=False):
    """The node was not evaluated: earlier nodes took all the time that one filter may take."""

    def __str__(self) -> str:
        return "not evaluated: the time limit was reached on earlier nodes; it will be retried"


@dataclass(frozen=True)
class SearchLimitHit(Refusal, kind="search-limit-hit"):
    """The search stopped before it had tried everything, so it is not known whether the pod fits."""

    steps: int

    def __str__(self) -> str:
        return f"the search stopped at its limit of {self.steps} steps; the pod may still fit; raise --search-steps"


def in_words(amounts: tuple[Wanted, ...], stated: StatedMemory | None = None) -> str:
    """List amounts, plain numbers first, then bytes: ``"1 i915, 500 millicores and 5.0 GB of memory.max"``."""
    ordered = sorted(amounts, key=lambda amount: (is_bytes(name_of(amount)), name_of(amount)))
    words = [amount.in_words(stated) if isinstance(amount, Ratio) else describe(*amount, stated) for amount in ordered]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

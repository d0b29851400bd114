"""Who holds what: the only mutable state of the extender. Plain code on one thread; no Kubernetes object comes here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gas.amounts import add, take_away
from gas.cards import Card
from gas.errors import GasError
from gas.placement.choice import Footprint
from gas.placement.inventory import UNUSED, Usage

LedgerState = tuple[object, ...]
"""What is booked on one node: each card, its amounts by name and its tiles, all in order and in one row. Thousands of
them are kept, and so they are a fifth of the size of sets in sets."""


class State(enum.Enum):
    """RESERVED: decided here, not yet seen bound. HELD: the cluster's own objects say so."""

    RESERVED = "reserved"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Booking:
    """What one pod holds on one node.

    pod   ``namespace/name``, for people
    node  the node's name
    """

    pod: str
    node: str
    footprint: Footprint
    state: State


class AlreadyBooked(GasError):
    """A second reservation for a pod that has one: it must keep the cards it was given."""

    def __init__(self, uid: str, booking: Booking) -> None:
        super().__init__(f"pod {booking.pod} ({uid}) is {booking.state.value} on node {booking.node} already")
        self.booking = booking


class _NodeBooks:
    """Sums over the bookings of one node, kept so that a question costs no walk over pods."""

    __slots__ = ("amounts", "holders", "tiles", "uids")

    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.amounts: dict[Card, dict[str, int]] = {}
        self.holders: dict[Card, int] = {}
        self.tiles: dict[Card, dict[int, int]] = {}

    def put(self, uid: str, footprint: Footprint) -> None:
        self.uids.add(uid)
        for card, amounts in footprint.amounts.items():
            add(self.amounts.setdefault(card, {}), amounts)
            self.holders[card] = self.holders.get(card, 0) + 1
        for card, indexes in footprint.tiles.items():
            counts = self.tiles.setdefault(card, {})
            for index in indexes:
                counts[index] = counts.get(index, 0) + 1

    def take(self, uid: str, footprint: Footprint) -> None:
        self.uids.discard(uid)
        for card, amounts in footprint.amounts.items():
            take_away(self.amounts[card], amounts)
            self.holders[card] -= 1
            if not self.holders[card]:
                del self.amounts[card], self.holders[card]
        for card, indexes in footprint.tiles.items():
            counts = self.tiles[card]
            for index in indexes:
                counts[index] -= 1
                if not counts[index]:
                    del counts[index]
            if not counts:
                del self.tiles[card]


class Ledger:
    """Which pod holds what on which card.

        unknown --reserve--> reserved --hold--> held --release--> unknown
                                 `----cancel---> unknown
           `-----------------hold (after our own restart, or bound by others)--> held

    Keyed by pod UID: a recreated pod of the same name is another pod. Every arrow may come twice; the second changes
    nothing. `hold` with other cards than those booked is a correction: the caller decides whether to believe it.
    ``on_change`` is called with the node's name whenever what is booked on that node has changed.
    """

    def __init__(self, on_change: Callable[[str], None] = lambda _node: None) -> None:
        self._bookings: dict[str, Booking] = {}
        self._nodes: dict[str, _NodeBooks] = {}
        self._on_change = on_change

    def reserve(self, uid: str, pod: str, node: str, footprint: Footprint) -> None:
        """Book before the pod is bound. Raises AlreadyBooked when the pod has a booking of any kind."""
        if (booked := self._bookings.get(uid)) is not None:
            raise AlreadyBooked(uid, booked)
        self._put(uid, Booking(pod, node, footprint, State.RESERVED))

    def cancel(self, uid: str) -> bool:
        """Take a reservation back; a booking that is held stays. Answers whether there was one."""
        booked = self._bookings.get(uid)
        if booked is None or booked.state is State.HELD:
            return False
        self._take(uid)
        return True

    def hold(self, uid: str, pod: str, node: str, footprint: Footprint) -> None:
        """Book what the cluster says a bound pod holds, in place of whatever was booked for it."""
        booking = Booking(pod, node, footprint, State.HELD)
        booked = self._bookings.get(uid)
        if booked == booking:
            return
        if booked is not None and replace(booked, state=State.HELD) == booking:
            self._bookings[uid] = booking
            return
        if booked is not None:
            self._take(uid)
        self._put(uid, booking)

    def confirm(self, uid: str) -> bool:
        """A reserved pod was seen bound where it was reserved. Answers whether it was only reserved until now."""
        booked = self._bookings.get(uid)
        if booked is None or booked.state is State.HELD:
            return False
        self._bookings[uid] = replace(booked, state=State.HELD)
        return True

    def release(self, uid: str) -> Booking | None:
        """The pod is gone, Succeeded or Failed. Answers what it held, or None when nothing was booked."""
        return self._take(uid) if uid in self._bookings else None

    def booking(self, uid: str) -> Booking | None:
        return self._bookings.get(uid)

    def bookings(self) -> Iterator[tuple[str, Booking]]:
        """Every (uid, booking), in no particular order."""
        yield from self._bookings.items()

    def on_node(self, node: str) -> dict[str, Booking]:
        """The bookings of one node by pod UID."""
        books = self._nodes.get(node)
        return {uid: self._bookings[uid] for uid in books.uids} if books else {}

    def usage(self, node: str) -> Usage:
        """What is booked on a node now: a view to read at once, not to keep."""
        books = self._nodes.get(node)
        if books is None:
            return UNUSED
        tiles = {card: frozenset(counts) for card, counts in books.tiles.items()}
        return Usage(amounts=books.amounts, tiles=tiles)

    def state(self, node: str) -> LedgerState:
        """The value of `usage`: equal for nodes on which the same is booked, by whomever."""
        books = self._nodes.get(node)
        if books is None:
            return ()
        row: list[object] = []
        for card in sorted(books.amounts):
            row.append(card)
            for name_and_amount in sorted(books.amounts[card].items()):
                row += name_and_amount
            row.append(tuple(sorted(books.tiles[card])) if card in books.tiles else ())
        return tuple(row)

    def holders(self, node: str) -> Mapping[Card, int]:
        """How many pods hold each card of a node."""
        books = self._nodes.get(node)
        return MappingProxyType(books.holders) if books else {}

    def nodes(self) -> tuple[str, ...]:
        """The nodes with any booking."""
        return tuple(self._nodes)

    def _put(self, uid: str, booking: Booking) -> None:
        self._bookings[uid] = booking
        self._nodes.setdefault(booking.node, _NodeBooks()).put(uid, booking.footprint)
        self._on_change(booking.node)

    def _take(self, uid: str) -> Booking:
        booking = self._bookings.pop(uid)
        books = self._nodes[booking.node]
        books.take(uid, booking.footprint)
        if not books.uids:
            del self._nodes[booking.node]
        self._on_change(booking.node)
        return booking

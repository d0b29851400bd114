"""The ledger: which pod holds which cards. Plain code for one thread, without Kubernetes objects."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from gas.placement.choice import Footprint
from gas.placement.inventory import NO_COMPANY, Company, Usage
from gas.values.amounts import add
from gas.values.cards import Card
from gas.values.errors import GasError

T = TypeVar("T")

LedgerState = tuple[object, ...]
"""The bookings of one node as a flat tuple: each card, its amounts by name, its tiles and its number of containers, and
where there are any, the company labels of its pods and its names. Thousands are kept, and a flat tuple takes a fifth of
the memory of nested sets."""


class State(enum.Enum):
    """RESERVED: decided, but the pod was not yet seen bound. HELD: the pod's object shows it bound with these cards."""

    RESERVED = "reserved"
    HELD = "held"


POD = "pod"  # the kind of holder that nearly all bookings have


@dataclass(frozen=True, slots=True)
class Booking:
    """The cards that one holder, such as a pod (``namespace/name``), has on one node."""

    pod: str
    node: str
    footprint: Footprint
    state: State
    kind: str = POD


class AlreadyBooked(GasError):
    """The pod already has a booking: it must keep the cards it was given."""

    def __init__(self, uid: str, booking: Booking) -> None:
        super().__init__(f"pod {booking.pod} ({uid}) is already {booking.state.value} on node {booking.node}")
        self.booking = booking


class NodeSums:
    """Sums over the bookings of one node, maintained so that `usage` does not walk over pods."""

    __slots__ = ("amounts", "companies", "containers", "holders", "names", "tiles", "uids")

    def __init__(self) -> None:
        self.uids: set[str] = set()
        self.amounts: dict[Card, dict[str, int]] = {}
        self.holders: dict[Card, int] = {}
        self.containers: dict[Card, int] = {}
        self.tiles: dict[Card, dict[int, int]] = {}
        self.companies: dict[Card, dict[Company, int]] = {}  # of pods that have labels
        self.names: dict[Card, dict[str, int]] = {}

    def put(self, uid: str, footprint: Footprint) -> None:
        self.uids.add(uid)
        self._add(footprint, 1)

    def take(self, uid: str, footprint: Footprint) -> None:
        self.uids.discard(uid)
        self._add(footprint, -1)

    def _add(self, footprint: Footprint, times: int) -> None:
        """Add what a pod holds, or take it away with ``times=-1``."""
        for card, amounts in footprint.amounts.items():
            add(self.amounts.setdefault(card, {}), amounts, times)
            self.holders[card] = self.holders.get(card, 0) + times
            self.containers[card] = self.containers.get(card, 0) + times * footprint.containers.get(card, 0)
            if footprint.company != NO_COMPANY:
                _add_count(self.companies, card, footprint.company, times)
            if footprint.named:
                _add_count(self.names, card, footprint.named, times)
            if not self.holders[card]:
                del self.amounts[card], self.holders[card], self.containers[card]
        for card, indexes in footprint.tiles.items():
            for index in indexes:
                _add_count(self.tiles, card, index, times)

    def usage(self) -> Usage:
        """Return the sums: a view of the present state, to be read at once."""
        return Usage(
            amounts=self.amounts,
            tiles={card: frozenset(counts) for card, counts in self.tiles.items()},
            containers=self.containers,
            company=self.company(),
            names={card: frozenset(counts) for card, counts in self.names.items()},
        )

    def state(self) -> LedgerState:
        """Return the value of `usage`: equal for equal sums, whichever pods hold them."""
        row: list[object] = []
        company = self.company()
        for card in sorted(self.amounts):
            row.append(card)
            for name_and_amount in sorted(self.amounts[card].items()):
                row += name_and_amount
            row.append(tuple(sorted(self.tiles[card])) if card in self.tiles else ())
            row.append(self.containers[card])
            if card in company:
                row.append(company[card])
            if card in self.names:
                row.append(frozenset(self.names[card]))
        return tuple(row)

    def company(self) -> Mapping[Card, frozenset[Company]]:
        """Return the different labels of the pods on each card that has a pod with labels."""
        return {
            card: frozenset(counts) if sum(counts.values()) == self.holders[card] else frozenset((*counts, NO_COMPANY))
            for card, counts in self.companies.items()
        }


def _add_count(counts: dict[Card, dict[T, int]], card: Card, what: T, number: int) -> None:
    """Change a count. Keys without a count are dropped, so equal sums are equal dictionaries."""
    of_card = counts.setdefault(card, {})
    of_card[what] = of_card.get(what, 0) + number
    if not of_card[what]:
        del of_card[what]
    if not of_card:
        del counts[card]


_NOTHING = NodeSums()  # of a node without bookings


class Ledger:
    """The bookings of all pods: what each holds on which card.

        unknown --reserve--> reserved --hold, confirm--> held --release--> unknown
                                 `------release---> unknown
           `-----------------hold (after a restart, or bound by others)--> held

    Bookings are by UID: a recreated pod of the same name is another pod. A repeated transition changes nothing. `hold`
    with other cards than those booked is a correction; the caller decides whether to trust it. Whatever holds cards has
    a kind, so that what becomes of pods never touches the cards of other holders. When which transition is due is
    `gas.extender.bookings`' business. ``on_change`` is called with the node's name whenever what is booked on that node
    has changed.
    """

    def __init__(self, on_change: Callable[[str], None] = lambda _node: None) -> None:
        self._bookings: dict[str, Booking] = {}
        self._nodes: dict[str, NodeSums] = {}
        self._on_change = on_change

    def reserve(self, uid: str, pod: str, node: str, footprint: Footprint, *, kind: str = POD) -> None:
        """Book cards for a pod that is about to be bound. Raises AlreadyBooked if the pod has a booking of any kind."""
        if (booked := self._bookings.get(uid)) is not None:
            raise AlreadyBooked(uid, booked)
        self._put(uid, Booking(pod, node, footprint, State.RESERVED, kind))

    def hold(self, uid: str, pod: str, node: str, footprint: Footprint, *, kind: str = POD) -> None:
        """Book the cards of a bound pod, or of another holder, in place of any earlier booking of it."""
        booking = Booking(pod, node, footprint, State.HELD, kind)
        booked = self._bookings.get(uid)
        if booked is not None and replace(booked, state=State.HELD) == booking:
            self._bookings[uid] = booking
            return
        if booked is not None:
            self._take(uid)
        self._put(uid, booking)

    def confirm(self, uid: str) -> bool:
        """Hold the reserved cards of a pod that was seen bound, and return whether it was only reserved until now."""
        booked = self._bookings.get(uid)
        if booked is None or booked.state is State.HELD:
            return False
        self._bookings[uid] = replace(booked, state=State.HELD)
        return True

    def release(self, uid: str) -> Booking | None:
        """Remove the booking of a pod that is gone, Succeeded or Failed. Return it, None if there was none."""
        return self._take(uid) if uid in self._bookings else None

    def booking(self, uid: str) -> Booking | None:
        return self._bookings.get(uid)

    def bookings(self) -> Iterator[tuple[str, Booking]]:
        """Return every (uid, booking), in no particular order."""
        yield from self._bookings.items()

    def of_pods(self) -> list[tuple[str, Booking]]:
        """Return every (uid, booking) of a pod, in no particular order."""
        return [each for each in self._bookings.items() if each[1].kind == POD]

    def on_node(self, node: str) -> dict[str, Booking]:
        """Return the bookings of one node by pod UID."""
        return {uid: self._bookings[uid] for uid in self._sums(node).uids}

    def usage(self, node: str) -> Usage:
        """Return the sums of the bookings of a node, see `NodeSums.usage`."""
        return self._sums(node).usage()

    def state(self, node: str) -> LedgerState:
        """Return the value of `usage`, see `NodeSums.state`."""
        return self._sums(node).state()

    def sums(self, node: str, also: Iterable[Footprint] = ()) -> NodeSums:
        """Return new sums of the bookings of a node, and of further footprints, that may be changed freely."""
        sums = NodeSums()
        for uid, booking in self.on_node(node).items():
            sums.put(uid, booking.footprint)
        for number, footprint in enumerate(also):
            sums.put(f"also {number}", footprint)
        return sums

    def holders(self, node: str) -> Mapping[Card, int]:
        """Return how many pods hold each card of a node."""
        return MappingProxyType(self._sums(node).holders)

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    def _sums(self, node: str) -> NodeSums:
        return self._nodes.get(node, _NOTHING)

    def _put(self, uid: str, booking: Booking) -> None:
        self._bookings[uid] = booking
        self._nodes.setdefault(booking.node, NodeSums()).put(uid, booking.footprint)
        self._on_change(booking.node)

    def _take(self, uid: str) -> Booking:
        booking = self._bookings.pop(uid)
        sums = self._nodes[booking.node]
        sums.take(uid, booking.footprint)
        if not sums.uids:
            del self._nodes[booking.node]
        self._on_change(booking.node)
        return booking

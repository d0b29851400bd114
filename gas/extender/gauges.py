"""Write the gauges of cards and of waiting pods as Prometheus text, in pieces between which other tasks run.

With 40,000 cards, writing them at once would stop filter and bind for seconds. The lines are valid in Prometheus' text
format and in OpenMetrics, and come before the metrics of `gas.extender.metrics`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gas.daemon.metric import Metric
from gas.extender.debug import CardSummary, card_summaries
from gas.extender.decider import PODS_A_TURN, Decider
from gas.extender.filter import in_turns
from gas.extender.verdicts import Turns
from gas.objects.stored import SUSPENSIONS
from gas.placement.stranded import StrandedCapacity
from gas.values.amounts import Amounts
from gas.values.timing import seconds_of

NOT_REFUSED = "not-refused"


Waits = Mapping[tuple[str, str], tuple[int, float]]
"""By namespace and kind of reason, NOT_REFUSED where no refusal is remembered, or why kube-scheduler does not look at
the pods (`Pod.suspended`): the number of pods, and when the oldest of them was created, in seconds since the epoch;
infinite if that cannot be read."""


def waits(decider: Decider) -> Turns[Waits]:
    """Return the pods without a node by namespace and reason."""
    kinds = {uid: refusal.kind for uid, refusal in decider.refusals.items()}
    counts: dict[tuple[str, str], int] = {}
    oldest: dict[tuple[str, str], str] = {}
    for at, (uid, pod) in enumerate(list(decider.pods.waiting.items()), start=1):
        place = pod.metadata.namespace or "default", pod.suspended or kinds.get(uid, NOT_REFUSED)
        counts[place] = counts.get(place, 0) + 1
        if created := pod.metadata.creation_timestamp:
            oldest[place] = min(oldest.get(place, created), created)  # times in UTC sort as texts
        if at % PODS_A_TURN == 0:
            yield
    return {place: (pods, seconds_of(oldest.get(place))) for place, pods in counts.items()}


CARDS_A_PIECE = 60  # cards written before other work gets its turn: a fraction of a millisecond, since filters wait

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Gauge(Metric):
    """A metric of which this module writes the text itself."""

    def head(self) -> str:
        return f"# HELP {self.name} {self.description}\n# TYPE {self.name} gauge\n"

    @cached_property
    def _line(self) -> str:
        labels = ",".join(f'{name}="%s"' for name in self.labels)
        return f"{self.name}{{{labels}}} %s\n"

    def sample(self, *values: str, amount: float) -> str:
        """Return the line of a sample; ``values`` are those of the labels, in their order."""
        return self._line % (*[value.translate(_ESCAPES) for value in values], amount)


CARD_CAPACITY = Gauge(
    "gas_extender_card_capacity",
    "How much of a resource a card has, in the unit of the resource (memory in bytes).",
    ("node", "card", "resource"),
)
CARD_BOOKED = Gauge(
    "gas_extender_card_booked",
    "How much of a resource of a card pods hold, in the unit of the resource (memory in bytes).",
    ("node", "card", "resource"),
)
CARD_STRANDED = Gauge(
    "gas_extender_card_stranded",
    "How much of a resource is free on a card that is in use and on which no container of the cluster's GPU pods, "
    "running or waiting, would fit, in the unit of the resource (memory in bytes).",
    ("node", "card", "resource"),
)
CARD_PODS = Gauge("gas_extender_card_pods", "How many pods hold a card.", ("node", "card"))
WAITING_PODS = Gauge(
    "gas_extender_waiting_pods",
    "GPU pods without a node, by namespace and by the most frequent reason of the last refusal of all nodes; "
    "docs/troubleshooting.md explains the reasons. not-refused: the extender found room, was not asked, or was asked "
    "before the last 1024 refusals. Suspended pods are not among them. Only the replica that decides reports it.",
    ("namespace", "reason"),
)
SUSPENDED_PODS = Gauge(
    "gas_extender_suspended_pods",
    "GPU pods without a node that kube-scheduler does not look at, by namespace and reason: Gated (it has scheduling "
    "gates), Terminating (it is being deleted). Only the replica that decides reports it.",
    ("namespace", "reason"),
)
LONGEST_WAIT = Gauge(
    "gas_extender_longest_wait_seconds", "Seconds since the oldest of these pods was created.", ("namespace", "reason")
)
GAUGES = (CARD_CAPACITY, CARD_BOOKED, CARD_PODS, CARD_STRANDED, WAITING_PODS, SUSPENDED_PODS, LONGEST_WAIT)


@dataclass(eq=False)
class ClusterGauges:
    """The text of all gauges, computed at each scrape; ``decides`` returns whether this replica decides."""

    decider: Decider
    decides: Callable[[], bool]
    now: Callable[[], float]
    _stranded: StrandedCapacity = field(init=False, default_factory=lambda: StrandedCapacity(()))

    async def __call__(self) -> AsyncIterator[str]:
        async for piece in card_series(lambda: card_summaries(self.decider)):
            yield piece
        yield CARD_STRANDED.head()
        async for piece in self._stranded_series():
            yield piece
        found: Waits = {}
        if self.decides():
            found = await in_turns(waits(self.decider))
        for piece in wait_series(found, self.now()):
            yield piece

    async def _stranded_series(self) -> AsyncIterator[str]:
        shapes = await in_turns(self.decider.shapes())
        if shapes != self._stranded.shapes:
            self._stranded = StrandedCapacity(shapes)
        decider, stranded = self.decider, self._stranded  # another scrape may replace it
        for name in list(decider.ledger.nodes()):
            if (facts := decider.nodes.facts(name)) is None:
                continue
            usage, kind = decider.ledger.usage(name), decider.nodes.kind(name)
            yield "".join(
                _by_resource(CARD_STRANDED, name, str(card), stranded.of(kind, facts.inventory, usage, card))
                for card in facts.inventory.capacity
            )
            await asyncio.sleep(0)


async def card_series(snapshot: Callable[[], Iterable[CardSummary]]) -> AsyncIterator[str]:
    """Write the capacity, the bookings and the pods of all cards. ``snapshot`` is called once for each gauge."""
    families: tuple[tuple[Gauge, Callable[[CardSummary], str]], ...] = (
        (CARD_CAPACITY, lambda card: _by_resource(CARD_CAPACITY, card.node, str(card.card), card.capacity)),
        (CARD_BOOKED, lambda card: _by_resource(CARD_BOOKED, card.node, str(card.card), card.booked)),
        (CARD_PODS, lambda card: CARD_PODS.sample(card.node, str(card.card), amount=card.pods)),
    )
    for gauge, lines in families:
        yield gauge.head()
        piece: list[str] = []
        for number, card in enumerate(snapshot(), start=1):
            piece.append(lines(card))
            if number % CARDS_A_PIECE == 0:
                yield "".join(piece)
                piece.clear()
                await asyncio.sleep(0)
        yield "".join(piece)


def wait_series(found: Waits, now: float) -> Iterator[str]:
    """Write the gauges of waiting pods. ``now`` is in seconds since the epoch."""
    waiting = {place: of_place for place, of_place in found.items() if place[1] not in SUSPENSIONS}
    yield WAITING_PODS.head()
    for place, (pods, _) in waiting.items():
        yield WAITING_PODS.sample(*place, amount=pods)
    yield SUSPENDED_PODS.head()
    for place in found.keys() - waiting.keys():
        yield SUSPENDED_PODS.sample(*place, amount=found[place][0])
    yield LONGEST_WAIT.head()
    for place, (_, since) in waiting.items():
        yield LONGEST_WAIT.sample(*place, amount=max(now - since, 0.0))


def _by_resource(gauge: Gauge, node: str, card: str, amounts: Amounts) -> str:
    return "".join([gauge.sample(node, card, resource, amount=amount) for resource, amount in amounts.items()])

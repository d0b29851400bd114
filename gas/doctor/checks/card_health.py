"""Check that the cards that nodes record can be used, and name the cause where pods do not get them."""

from collections.abc import Iterator, Mapping

from gas.cluster import paths
from gas.cluster.listing import Lister
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.checks.plugins import plugins_on
from gas.doctor.findings import Finding, Unseen, about, probe, problem
from gas.doctor.objects import WarningEvent
from gas.doctor.snapshot import Snapshot
from gas.inspection.objects import InspectedNode
from gas.values.cards import Card
from gas.vocabularies.node_parts import recorded_cards

CARD_EVENTS = "card_events"  # name of the gathered warnings about unhealthy cards, the newest last

_LOSSES = ("GPUCardUnhealthy", "GPUCardsRenumbered")  # reasons of events that begin with the card
_OF_CONTAINER = "NVML: "  # begin of causes that are about the driver or the plugin's container, not about a card


async def _gather_events(sources: Sources) -> Mapping[str, object]:
    if not any(_unhealthy(node) for node in sources.snapshot.checked_nodes):
        return {}
    selector = "type=Warning,involvedObject.kind=Node"
    listing = Lister(sources.api, paths.events("default"), WarningEvent, field_selector=selector).fetch()
    if isinstance(listed := await probe(listing), Unseen):
        return {CARD_EVENTS: listed}
    events = [each for each in listed.objects if each.reason in _LOSSES]
    return {CARD_EVENTS: tuple(sorted(events, key=lambda each: each.last_timestamp or ""))}


def _unhealthy(node: InspectedNode) -> list[Card]:
    return [each.card for each in recorded_cards(node) if not each.healthy]


def check_card_health(snapshot: Snapshot) -> Iterator[Finding]:
    events: tuple[WarningEvent, ...] | Unseen = snapshot.gathered.get(CARD_EVENTS, ())
    for node in snapshot.checked_nodes:
        cards: dict[str, list[Card]] = {}
        for card in _unhealthy(node):
            begin = f"{card}: "
            said = [
                each.message.removeprefix(begin)
                for each in (events if not isinstance(events, Unseen) else ())
                if each.involved_object.name == node.name and each.message.startswith(begin)
            ]
            cards.setdefault(said[-1] if said else "", []).append(card)
        yield from about(f"node {node.name}", (_lost(snapshot, node, *each) for each in cards.items()))


def _lost(snapshot: Snapshot, node: InspectedNode, cause: str, cards: list[Card]) -> Finding:
    sentence = f"pods do not get {', '.join(map(str, cards))}: {cause or 'unhealthy, and no event says why'}"
    look = fix.kubectl("describe", "node", node.name, note="its events say why cards are unhealthy")
    if not cause.startswith(_OF_CONTAINER):
        return problem(sentence, look)
    restarts = (fix.pod(each.pod, "delete", "pod") for each in plugins_on(snapshot, node.name))
    return problem(sentence, "nvidia-smi   # on the node; if it fails, the driver is at fault", *restarts)


CHECKS = (
    Check(name="card-health", title="cards that pods do not get", findings=check_card_health, gather=_gather_events),
)

"""Publish the cards of the node: to kubelet as lists of devices, and in descriptions of the node."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from gas.plugin.devices.device_lists import device_lists, too_long
from gas.plugin.discovery.scanner import Scanner
from gas.plugin.flags import Flags
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.kubelet.registration import Phase, Registration
from gas.plugin.node_writer import Events
from gas.plugin.own_node import OwnNode
from gas.values.card_facts import CardFacts, Scan
from gas.values.card_records import CardRecord, recorded_facts
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions, NodeDescription

logger = logging.getLogger(__name__)

_ANOTHER_NODE = (
    "its render node is another than before, so containers that restart may use another card; delete the pods that have"
    " it; no other container gets it until they have ended"
)
_ANOTHER_CARD = "the number means another card than before; no container gets it until the pods that have it have ended"


class Renumbering:
    """Withhold card numbers that mean another card than the running pods on them were given.

    The kernel numbers cards at each start. kubelet knows devices by their numbers only: after a reboot it gives an
    earlier pod the same number again, without asking, if the device is healthy. So a number with another card behind it
    is unhealthy until those pods have ended. kubelet then rejects them, and their owners create new ones. The same
    counts for a card whose render node has another number, as after a reload of the driver: a container that restarts
    in its pod gets the earlier one. ``recorded`` is what the node said when the plugin started, before the plugin
    changed it.
    """

    def __init__(self, recorded: Iterable[CardRecord] = ()) -> None:
        self._known: dict[Card, CardRecord | CardFacts] = {each.card: each for each in recorded}
        self._render_nodes = {each.card: each.render_node for each in recorded}
        self._reasons: dict[Card, str] = {}
        # The cards that are withheld, with the UIDs of the pods that were given the earlier card of that number.
        self.withheld: Mapping[Card, frozenset[str]] = {}

    def update(self, cards: Sequence[CardFacts], users: Mapping[Card, Collection[str]]) -> tuple[CardFacts, ...]:
        """Return the cards, withheld ones as unhealthy.

        ``users`` are, by card number, the UIDs of the pods that kubelet has admitted with it and that have not ended.
        """
        withheld = dict(self.withheld)
        for gpu in cards:
            before = self._known.get(gpu.card)
            if (reason := self._reason(gpu, before)) is not None:
                withheld[gpu.card] = withheld.get(gpu.card, frozenset()).union(users.get(gpu.card, ()))
                self._reasons[gpu.card] = reason
            self._render_nodes[gpu.card] = gpu.render_node or self._render_nodes.get(gpu.card, "")
            if before is None or gpu.pci_address or gpu.uuid:
                self._known[gpu.card] = gpu
        left = {card: uids.intersection(users.get(card, ())) for card, uids in withheld.items()}
        self.withheld = {card: uids for card, uids in left.items() if uids}
        return tuple(replace(gpu, healthy=False) if gpu.card in self.withheld else gpu for gpu in cards)

    def sentences(self) -> list[str]:
        """Return why cards are withheld, in their order."""
        return [f"{card}: {self._reasons[card]}" for card in sorted(self.withheld)]

    def _reason(self, gpu: CardFacts, before: CardRecord | CardFacts | None) -> str | None:
        if before is not None and _is_another(gpu, before):
            return _ANOTHER_CARD
        has_moved = gpu.render_node and self._render_nodes.get(gpu.card, "") not in ("", gpu.render_node)
        return _ANOTHER_NODE if has_moved else None


def _is_another(one: CardFacts, other: CardRecord | CardFacts) -> bool:
    """Return whether two cards are certainly different. A UUID moves with its card; an address does not."""
    if one.uuid and other.uuid:
        return one.uuid != other.uuid
    return bool(one.pci_address and other.pci_address) and one.pci_address != other.pci_address


@dataclass(eq=False)
class Publisher:
    """Publish the cards after each change, as unhealthy those whose number meant another card before.

    Kubelet is shown devices as soon as the cards are known. The node is described later: once its pods are known, as
    far as they can be (`compare_numbers`).
    """

    scanner: Scanner
    node: OwnNode
    vocabularies: Vocabularies
    flags: Flags
    options: DeviceOptions
    _: KW_ONLY
    drivers: Collection[str]  # of which this plugin can find cards; it leaves other cards as they are recorded
    servers: Collection[DeviceServer]
    describe: Sequence[Callable[[NodeDescription], None]]
    _may_describe: bool = field(init=False, default=False)
    _renumbering: Renumbering = field(init=False, default_factory=Renumbering)
    _not_offered: Mapping[str, str] = field(init=False, default_factory=dict)
    _others: Sequence[CardFacts] | None = field(init=False, default=None)

    @property
    def withheld(self) -> frozenset[Card]:
        return frozenset(self._renumbering.withheld)

    def compare_numbers(self, recorded: Sequence[CardRecord] | None = None) -> None:
        """Compare the cards with what the node said about them before, and describe the node from now on.

        ``recorded`` is None if that is not known in time: then the current cards are taken for the earlier ones.
        """
        if recorded is not None:
            self._renumbering = Renumbering(recorded)
        self._may_describe = True
        self.publish()

    def recorded_changed(self) -> None:
        """Leave cards that another plugin has recorded as they are, and recall those of the own drivers.

        Called before the node is written: a plugin of another kind may start here while a label is away, or this one
        without the library of a driver.
        """
        recorded = [recorded_facts(record) for record in self.node.recorded if record.driver]
        others = [card for card in recorded if card.driver not in self.drivers]
        before, self._others = self._others, others
        if before is None:
            self.scanner.recall([card for card in recorded if card.driver in self.drivers])
        if others != before:
            self.publish()

    def pods_changed(self) -> None:
        """Publish cards again that were withheld for pods that have ended."""
        if self.withheld:
            self.publish()

    def publish(self) -> None:
        """Publish the cards, if they are known, without the resources whose lists kubelet would refuse."""
        if not self.scanner.finished:
            return
        gpus: Sequence[CardFacts] = self.scanner.scan.gpus
        if self._may_describe:
            before = self._renumbering.withheld
            gpus = self._renumbering.update(gpus, self.node.pods.users())
            self._report_withheld(before)
        hints = self.flags.topology_hints
        not_offered = too_long(gpus, self.vocabularies, self.options, topology_hints=hints)
        self._report_not_offered(not_offered)
        lists = device_lists(
            gpus, self.vocabularies, self.options, self.flags.monitoring, topology_hints=hints, without=not_offered
        )
        for server in self.servers:
            server.show(lists.get(server.resource, ()))
        if self._may_describe:
            links = self.node.links
            linked = [
                replace(gpu, links=tuple(sorted((Counter(gpu.links) | Counter(links.get(gpu.card, ()))).elements())))
                for gpu in gpus
            ]
            numbers = {gpu.card for gpu in gpus}
            others = [card for card in self._others or () if card.card not in numbers]
            description = self.vocabularies.describe([*linked, *others], self.options)
            for describe in self.describe:
                describe(description)

    def _report_not_offered(self, now: Mapping[str, str]) -> None:
        """Log the resources that begin or end to be left out, and set the events of those that are."""
        for resource in now.keys() - self._not_offered.keys():
            logger.error(now[resource])
        for resource in self._not_offered.keys() - now.keys():
            logger.info("%s is offered again", resource)
        self._not_offered = now
        self.node.events.set_states("GPUDevicesNotOffered", now.values())

    def _report_withheld(self, before: Mapping[Card, object]) -> None:
        sentences = self._renumbering.sentences()
        for card, sentence in zip(sorted(self.withheld), sentences, strict=True):
            if card not in before:
                logger.warning(sentence)
        self.node.events.set_states("GPUCardsRenumbered", sentences)
        if ended := sorted(before.keys() - self.withheld):
            logger.info("%s: the pods of before have ended", ", ".join(map(str, ended)))


class Losses:
    """Report cards that become unhealthy or leave, and those that return, as events of the node and in metrics."""

    def __init__(self, events: Events) -> None:
        self.lost: Counter[str] = Counter()  # by driver, how often cards became unhealthy
        self.returned: Counter[str] = Counter()
        self._events = events
        self._unhealthy: dict[Card, CardFacts] = {}

    def update(self, scan: Scan) -> None:
        unhealthy = {gpu.card: gpu for gpu in scan.gpus if not gpu.healthy}
        self.lost.update(unhealthy[card].driver for card in unhealthy.keys() - self._unhealthy.keys())
        faults = [f"{card}: {scan.faults.get(card) or 'it is unhealthy'}" for card in unhealthy]
        self._events.set_states("GPUCardUnhealthy", faults)
        self._events.set_states("GPUContainerFault", [scan.container_fault] if scan.container_fault else [])
        for gpu in (gpu for gpu in scan.gpus if gpu.card in self._unhealthy and gpu.healthy):
            self.returned[gpu.driver] += 1
            logger.info("%s is healthy again", gpu.card)
            self._events.on_node("GPUCardHealthy", f"{gpu.card}: it is healthy again")
        self._unhealthy = unhealthy


def log_scan(scan: Scan) -> None:
    logger.info(
        "this node has %d card(s)",
        len(scan.gpus),
        extra={
            "cards": ",".join(str(gpu.card) for gpu in scan.gpus),
            "unhealthy": ",".join(str(gpu.card) for gpu in scan.gpus if not gpu.healthy),
            "memory": ",".join(f"{gpu.card}:{gpu.memory_source}" for gpu in scan.gpus),
        },
    )


def unknown_memory(scan: Scan) -> list[str]:
    cards: dict[str, list[str]] = {}
    for gpu in scan.gpus:
        if gpu.memory_fault:
            cards.setdefault(gpu.memory_fault, []).append(str(gpu.card))
    return [f"{', '.join(names)}: {fault}" for fault, names in cards.items()]


class PluginReadiness:
    """The plugin's state for ``/readyz``. A DaemonSet continues with its next node when this plugin is ready.

    The plugin is ready once it has scanned its cards and kubelet watches every resource that has, or had, a card. A
    node without cards is ready, since there is nothing to allocate. The cluster's API does not matter, since cards are
    allocated without it.
    """

    def __init__(self, scanner: Scanner, resources: Mapping[DeviceServer, Registration]) -> None:
        self.stopping = False
        self._scanner = scanner
        self._resources = resources

    def why_not(self) -> str | None:
        """Return a sentence about why the plugin is not ready; None if it is."""
        if self.stopping:
            return "the plugin is stopping"
        if self._scanner.stuck is not None:
            return self._scanner.stuck
        if not self._scanner.finished:
            return "the cards of this node have not been scanned yet"
        missing = [
            registration.trouble or f"kubelet does not watch {server.resource} yet"
            for server, registration in self._resources.items()
            if server.devices is not None and registration.state is not Phase.WATCHED
        ]
        return "; ".join(missing) or None

"""Publish the cards of the node: to kubelet as lists of devices, and in what is written about the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from gas.plugin.devices.device_lists import check_lengths, device_lists
from gas.plugin.discovery.scanner import Scanner
from gas.plugin.flags import Flags
from gas.plugin.kubelet.device_server import DeviceServer
from gas.plugin.node.renumbering import Renumbering
from gas.plugin.own_node import OwnNode
from gas.values.card_facts import CardFacts, Scan
from gas.values.card_records import CardRecord
from gas.values.cards import Card
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions, NodeDescription

logger = logging.getLogger(__name__)

_ANOTHER_CARD = "the number means another card than before; no container gets it until the pods that have it have ended"


class Publisher:
    """Publish the cards after each change, as unhealthy those whose number meant another card before.

    servers    show the devices of one resource each to kubelet
    describe   write a description of the node

    Kubelet is shown devices as soon as the cards are known. The node is described later: once its pods are known, as
    far as they can be (`compare_numbers`).
    """

    def __init__(
        self,
        scanner: Scanner,
        node: OwnNode,
        vocabularies: Vocabularies,
        flags: Flags,
        options: DeviceOptions,
        *,
        servers: Collection[DeviceServer],
        describe: Sequence[Callable[[NodeDescription], None]],
    ) -> None:
        self._scanner = scanner
        self._node = node
        self._vocabularies = vocabularies
        self._flags = flags
        self._options = options
        self._servers = servers
        self._describe = describe
        self._may_describe = False
        self._renumbering = Renumbering()

    @property
    def withheld(self) -> frozenset[Card]:
        """The cards that no container gets until the pods that had another card of that number have ended."""
        return frozenset(self._renumbering.withheld)

    def compare_numbers(self, recorded: Sequence[CardRecord] | None = None) -> None:
        """Compare the cards with what the node said about them before, and describe the node from now on.

        recorded  None if that is not known in time: then the cards of now are taken for those of before
        """
        if recorded is not None:
            self._renumbering = Renumbering(recorded)
        self._may_describe = True
        self.publish()

    def pods_changed(self) -> None:
        """Publish cards again that were withheld for pods that have ended now."""
        if self.withheld:
            self.publish()

    def publish(self) -> None:
        """Publish the cards, if they are known. Raises ListTooLong, which ends the plugin, if kubelet would refuse."""
        if not self._scanner.finished:
            return
        gpus: Sequence[CardFacts] = self._scanner.scan.gpus
        if self._may_describe:
            before = self._renumbering.withheld
            gpus = self._renumbering.update(gpus, self._node.pods.users())
            self._report_withheld(before, self._renumbering.withheld)
        lists = device_lists(
            gpus,
            self._vocabularies,
            self._options,
            self._flags.monitoring,
            topology_hints=self._flags.topology_hints,
        )
        check_lengths(lists, self._vocabularies)
        for server in self._servers:
            server.show(lists.get(server.resource, ()))
        if self._may_describe:
            links = self._node.links
            linked = [replace(gpu, links=tuple(sorted({*gpu.links, *links.get(gpu.card, ())}))) for gpu in gpus]
            description = self._vocabularies.describe(linked, self._options)
            for describe in self._describe:
                describe(description)

    def _report_withheld(self, before: Mapping[Card, object], now: Mapping[Card, object]) -> None:
        """Log the cards that begin or end to be withheld, and set the events of those that are."""
        if begun := sorted(now.keys() - before.keys()):
            logger.warning("%s: %s", ", ".join(map(str, begun)), _ANOTHER_CARD)
        self._node.events.set_states("GPUCardsRenumbered", [f"{card}: {_ANOTHER_CARD}" for card in sorted(now)])
        if ended := sorted(before.keys() - now.keys()):
            logger.info("%s: the pods of before have ended", ", ".join(map(str, ended)))


def log_scan(scan: Scan) -> None:
    """Log the cards of this node."""
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
    """Return sentences about the cards whose memory is unknown."""
    cards: dict[str, list[str]] = {}
    for gpu in scan.gpus:
        if gpu.memory_fault:
            cards.setdefault(gpu.memory_fault, []).append(str(gpu.card))
    return [f"{', '.join(names)}: {fault}" for fault, names in cards.items()]

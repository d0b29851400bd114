"""Check that a node's resources agree with the cards that its labels name."""

from __future__ import annotations

from collections.abc import Iterator

from configurator.scheduler_configuration import CARD_RESOURCES
from gas.amounts import MEMORY_MAX
from gas.cards import Card
from gas.doctor.findings import Finding, kubectl, kubectl_pods_on, ok, problem, warning
from gas.doctor.gpus import gpu_amounts, gpu_nodes
from gas.doctor.snapshot import Snapshot
from gas.intel import names
from gas.intel.card_labels import read_cards
from gas.objects import DetailedNode
from gas.placement.inventory import Inventory
from gas.vocabularies import DEFAULT

CHECK = "node-resources"
MILLICORES = "millicores"
MILLICORES_OF_A_CARD = 1000


def check_node_resources(snapshot: Snapshot) -> Iterator[Finding]:
    """Check the resources of every GPU node."""
    for node in gpu_nodes(snapshot):
        inventory = DEFAULT.facts(node).inventory
        if not inventory.cards:
            continue  # reported with the labels
        faults = [*_counts(node), *_shares(node, inventory), *_memory(node, inventory), *_labels(node, inventory)]
        yield from faults
        if not faults:
            total = ", ".join(f"{amount} {name}" for name, amount in sorted(gpu_amounts(node).items()))
            yield ok(CHECK, f"node {node.name}", f"{len(inventory.cards)} cards with {total} in total")


def _counts(node: DetailedNode) -> Iterator[Finding]:
    where = f"node {node.name}"
    has, could = gpu_amounts(node), gpu_amounts(node, capacity=True)
    look = kubectl_pods_on(node.name, "is there a device plugin, is it ready, and what does its log say?")
    resources = {name.removeprefix(names.PREFIX): name for name in CARD_RESOURCES}
    counted = [name for name in resources if has.get(name) or could.get(name)]
    if not counted:
        yield problem(
            CHECK,
            where,
            "it has labels about cards, but kubelet does not offer any",
            look,
            expected=f"{' or '.join(CARD_RESOURCES)} in status.allocatable",
            found="neither",
        )
    for name in counted:
        allocatable, capacity = has.get(name, 0), could.get(name, 0)
        if allocatable == 0:
            yield problem(
                CHECK,
                where,
                f"kubelet has lost the device plugin for {resources[name]}, or all its cards are unhealthy",
                look,
                expected=f"{capacity} allocatable",
                found="0",
            )
        elif allocatable < capacity:
            yield warning(
                CHECK,
                where,
                f"some devices of {resources[name]} are unhealthy",
                look,
                expected=f"{capacity} allocatable, as the capacity says",
                found=str(allocatable),
            )


def _shares(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check that the amounts of the cards add up to the node's amounts, which kube-scheduler counts."""
    cards = len(inventory.cards)
    for name, total in sorted(gpu_amounts(node).items()):
        if name in names.MONITORING_RESOURCES or not total:
            continue
        of_cards = {card: has.get(name, 0) for card, has in inventory.capacity.items()}
        if (added := sum(of_cards.values())) != total:
            yield warning(
                CHECK,
                f"node {node.name}",
                f"{names.PREFIX}{name} is not the sum of its cards"
                + ("" if names.CARD_CAPACITY in node.annotations else ": it does not divide evenly among them"),
                _show(node, f"labels, annotation {names.CARD_CAPACITY} and allocatable must agree"),
                expected=f"{added}, from {cards} cards",
                found=str(total),
            )
        elif name == MILLICORES and (odd := _odd(of_cards)):
            yield warning(
                CHECK,
                f"node {node.name}",
                "a card has 1000 millicores, but these cards have other amounts",
                _show(node, "and correct it at its source"),
                expected=str(MILLICORES_OF_A_CARD * cards),
                found=", ".join(f"{card}: {amount}" for card, amount in odd.items()),
            )


def _memory(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check that cards in use have memory. Without millicores a card is unhealthy, or the node is not the plugin's."""
    without = [str(card) for card, has in inventory.capacity.items() if has.get(MILLICORES) and not has.get(MEMORY_MAX)]
    if without:
        cards = ", ".join(without)
        yield warning(
            CHECK,
            f"node {node.name}",
            f"pods that request {MEMORY_MAX} do not get {cards}: the device plugin does not know how much memory they "
            "have, or they are integrated GPUs, which have none of their own; nothing is wrong with those",
            kubectl("describe", "node", node.name, note="the event GPUMemoryUnknown names the cards of unknown memory"),
            "# if it names a card: let the plugin open render nodes, see docs/plugin.md, or set GPU_MEMORY_OVERRIDE",
            "# if it names none: no step is needed; --deny-ids of gas-plugin leaves integrated GPUs out",
            expected=f"{MEMORY_MAX} of every card",
            found=f"none of {cards}",
        )


def _odd(of_cards: dict[Card, int]) -> dict[Card, int]:
    """Return the cards with another amount than a whole card's. A card that cannot be used has 0."""
    return {card: amount for card, amount in of_cards.items() if amount not in (0, MILLICORES_OF_A_CARD)}


def _labels(node: DetailedNode, inventory: Inventory) -> Iterator[Finding]:
    """Check the old label of cards. It cannot continue in a second label, so it may name fewer cards, but no others."""
    if (text := node.labels.get(names.CARDS)) is None:
        return
    by_name = read_cards({names.CARDS: text}, [])
    if others := sorted(set(by_name) - set(inventory.cards)):
        yield warning(
            CHECK,
            f"node {node.name}",
            f"the labels {names.GPU_NUMBERS} and {names.CARDS} disagree; {names.GPU_NUMBERS} counts",
            kubectl("label", "node", node.name, f"{names.CARDS}-", note="removes the old label"),
            expected=", ".join(map(str, inventory.cards)),
            found=", ".join(map(str, others)),
        )


def _show(node: DetailedNode, note: str) -> str:
    return kubectl("get", "node", node.name, "--output=yaml", note=note)
